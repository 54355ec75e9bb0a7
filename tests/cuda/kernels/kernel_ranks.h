/* Ranks of a launch of the executor kernel, without communicators: each has its memory, its window and its tape on a
 * GPU, and all of them are launched by one process. */
#ifndef TESTS_CUDA_SEATS_H
#define TESTS_CUDA_SEATS_H

#include "core/types.h"
#include "cuda/kernels/kernel_set.h"
#include "cuda/peer_gpus/kernel_plan.h"
#include "program.h"

enum { WORLD = 4, MOST_COUNT = 1501, ROOM = WORLD * MOST_COUNT * 8 + 64, CHANNELS = 2, PIECE_BYTES = 1024 };

struct row {
	uint64_t number;
	const struct collet_program *program;
	uint64_t count;
	collet_dtype dtype;
	collet_op op;
	bool quick, in_place, apart;  /* apart: each rank's launch on its own GPU */
	uint32_t channels;
	uint32_t jitter;             /* see struct collet_plan_arguments */
};

uint32_t row_root(uint32_t size);
uint64_t row_send_count(const struct row *row, uint32_t rank, uint32_t size);
uint64_t row_recv_count(const struct row *row, uint32_t rank, uint32_t size);
/* What a rank multiplies by, of premul_sum. */
double row_scale(uint32_t rank);

/* A rank's memory on one GPU, and where its kernels are launched. */
struct seat {
	const struct program *program;
	struct collet_copy_stream *copier;
	struct collet_kernel_set *set;
	struct buffer window, tape, input, result, scratch, windows;
};

struct gpus {
	struct collet_cuda cuda;
	struct collet_copy_streams copiers;
	struct collet_kernel_sets sets;
	struct program programs[WORLD];
	uint32_t count;              /* of GPUs that are used */
	struct seat seats[2][WORLD]; /* all on one, and apart */
	struct buffer abort_word;    /* and as many bytes more */
	struct collet_window window;
};

/* Windows and abort word are zeroed. */
bool gpus_open(struct gpus *gpus, uint32_t size);
bool gpus_close(struct gpus *gpus);

/* The rank's tape, and what it sends (row_send_count() of values), on its seat. laid: what its kernel is told. */
bool seat_lay(const struct gpus *gpus, struct seat *seat, const struct row *row, uint32_t rank, uint32_t size,
	const void *values, struct collet_plan_rank *laid, uint32_t *lanes);
/* So many rows of them. */
collet_status seat_launch(struct seat *seat, const struct collet_plan_arguments *arguments, uint32_t lanes,
	uint32_t rows);
/* Another order of the blocks of a launch for each seed; 0: any. On the stand-in alone. */
void set_schedule(uint64_t seed);

#endif
