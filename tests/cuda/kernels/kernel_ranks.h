/* Ranks of one launch of the plan kernel, without communicators. Each has its memory, its window and its kernel plan on
 * a GPU, and one process launches them all. */
#ifndef TESTS_CUDA_KERNELS_KERNEL_RANKS_H
#define TESTS_CUDA_KERNELS_KERNEL_RANKS_H

#include "core/types.h"
#include "cuda/kernels/kernel_set.h"
#include "cuda/peer_gpus/kernel_plan.h"
#include "program.h"

enum { WORLD = 4, MOST_COUNT = 1501, ROOM = WORLD * MOST_COUNT * 8 + 64, CHANNELS = 2, SEGMENT_BYTES = 1024 };

struct row {
	uint64_t number;
	const struct collet_program *program;
	uint64_t count;
	collet_dtype dtype;
	collet_op op;
	bool is_ll, in_place, own_gpus;  /* own_gpus: each rank's launch is on its own GPU */
	uint32_t channels;
	uint32_t jitter;             /* as in struct collet_plan_arguments */
};

uint32_t row_root(uint32_t size);
uint64_t row_send_count(const struct row *row, uint32_t rank, uint32_t size);
uint64_t row_recv_count(const struct row *row, uint32_t rank, uint32_t size);
/* The factor of a rank for premul_sum. */
double row_scale(uint32_t rank);

/* A rank's memory on one GPU, and its launches. */
struct kernel_rank {
	const struct program *program;
	struct collet_copy_stream *copy_stream;
	struct collet_kernel_set *set;
	struct buffer window, plan, input, result, scratch, windows;
};

struct gpus {
	struct collet_cuda cuda;
	struct collet_copy_streams copy_streams;
	struct collet_kernel_sets sets;
	struct program programs[WORLD];
	uint32_t count;              /* number of GPUs in use */
	struct kernel_rank members[2][WORLD]; /* all ranks on one GPU; each on its own */
	struct buffer abort_word;    /* and unused bytes behind it */
	struct collet_window window;
};

/* Zeroes windows and abort word. */
bool gpus_open(struct gpus *gpus, uint32_t size);
bool gpus_close(struct gpus *gpus);

/* Builds the rank's plan, and its input (row_send_count() values); fills in the kernel's arguments for the rank. */
bool kernel_rank_prepare(const struct gpus *gpus, struct kernel_rank *member, const struct row *row, uint32_t rank,
	uint32_t size, const void *values, struct collet_plan_rank *rank_arguments, uint32_t *blocks);
/* Launches this many ranks. */
collet_status kernel_rank_launch(
	struct kernel_rank *member, const struct collet_plan_arguments *arguments, uint32_t blocks, uint32_t rows);
/* Selects an order of the blocks of a launch; 0: any. Only on the fake driver. */
void set_schedule(uint64_t seed);

#endif
