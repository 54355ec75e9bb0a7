/* What the executor's files know of each other. */
#ifndef COLLET_CUDA_PEER_GPUS_INTERNAL_H
#define COLLET_CUDA_PEER_GPUS_INTERNAL_H

#include <stdatomic.h>

#include "cuda/driver/vmm.h"
#include "cuda/peer_gpus/device_comm.h"

enum {
	EXECUTOR_SHARES = 4,         /* all lanes of so many communicators run on a GPU at the same time */
	EXECUTOR_TAPES = 256,        /* that are kept, but for those of graphs */
	EXECUTOR_TAPE_BLOCK = 1 << 20
};

/* What the GPU and the host tell each other, in page-locked memory. */
struct executor_words {
	_Atomic uint32_t abort;      /* 1: by the host, when the group has ended; by a kernel COLLET_LATE ... */
	uint32_t unused;
	_Atomic uint64_t done;       /* by kernels: a ticket */
	_Atomic uint64_t left;       /* by the host: ranks that have, a bit each */
};

/* A tape on the GPU. Good for every call of its key. */
struct collet_executor_tape {
	struct collet_executor_tape *next;   /* the latest used first */
	const struct collet_program *program;        /* NULL: for one call alone (a v-form) */
	uint64_t count;
	uint32_t root;
	struct collet_taping taping;
	uint32_t lanes, bytes, room;
	cu_pointer at;
	uint32_t promised;           /* launches that are still to come */
	uint64_t used;               /* by the launch of this number, and none after it; 0: by none */
	bool captured;               /* a graph has it: it stays */
};

struct executor_block {
	struct executor_block *next;
	cu_pointer memory;
	size_t used, bytes;
};

struct collet_executor {
	struct collet_executor *next_kept;   /* in the device's list */
	struct collet_device *device;
	const struct collet_cuda *cuda;
	struct collet_comm_state *group;
	const struct collet_executor_exchange *exchange;     /* while it is made */
	bool led;                    /* larger calls go by a leader */
	struct collet_executor_lanes lanes;
	uint32_t neighbours;         /* ranks on one GPU, at most, this one with them */
	struct collet_together *together;    /* NULL: each rank has a GPU of its own */
	uint32_t taken;              /* blocks of this rank's GPU */
	struct collet_copier *copier;
	struct collet_kernel_set *kernels;
	uint32_t channels;
	uint32_t piece_bytes;        /* most of a message */
	struct collet_window window;
	struct collet_mapped own;    /* the window; then the addresses of all ranks' */
	struct collet_opened **opened;       /* by rank */
	struct executor_words *words;
	cu_pointer words_gpu;
	cu_stream stream;
	cu_event order;              /* after the last launch that is no graph's */
	cu_event captured_order;     /* the same in the last capture */
	uint64_t launches;           /* no graph's; */
	uint64_t ended;              /* and of those, so many have, as far as is known */
	unsigned long long last_stream, last_captured_stream;        /* their ids */
	uint64_t last_capture;
	cu_pointer scratch;          /* 0: none has been needed */
	struct collet_executor_tape *tapes;
	uint32_t kept;               /* tapes that are no graph's */
	struct executor_block *blocks;
};

static inline cu_pointer executor_windows(const struct collet_executor *executor)
{
	return executor->own.first + collet_window_bytes(&executor->window);
}

/* ---- device_comm.c */
/* Is it the same GPU? */
bool collet_executor_share(const struct collet_comm_state *group, uint32_t rank, uint32_t other);

/* ---- device_comm_connect.c */
/* All but the tapes; *fine false: some rank has a complaint. */
COLLET_MUST_USE collet_status collet_executor_connect(struct collet_executor *executor, bool *fine);

/* ---- device_comm_test.c. In the executor's context. */
/* A kernel's first launch, of one that does nothing. */
COLLET_MUST_USE collet_status collet_executor_warm_up(struct collet_executor *executor);
/* To each peer a line; and what all of them have written here. */
COLLET_MUST_USE collet_status collet_executor_write_lines(struct collet_executor *executor);
COLLET_MUST_USE collet_status collet_executor_check_lines(struct collet_executor *executor);
/* What is allocated is so before any rank's kernel waits for another's. A zeroed one may be freed. */
struct executor_test {
	uint32_t *words;
	cu_pointer memory;
	uint64_t count;              /* of words in use */
	bool quick;
	struct collet_executor_tape *tape;
};
COLLET_MUST_USE collet_status collet_executor_make_test(
	const struct collet_executor *executor, struct executor_test *test);
/* One collective, quick or through all lanes. launch: all ranks have prepared theirs. check: it has ended. stop: some
 * rank's will not, and a kernel of this one may be on its way. */
COLLET_MUST_USE collet_status collet_executor_prepare_test(
	struct collet_executor *executor, struct executor_test *test, bool quick);
COLLET_MUST_USE collet_status collet_executor_launch_test(
	struct collet_executor *executor, const struct executor_test *test);
COLLET_MUST_USE collet_status collet_executor_check_test(
	struct collet_executor *executor, const struct executor_test *test);
void collet_executor_stop_test(struct collet_executor *executor);
void collet_executor_free_test(const struct collet_executor *executor, const struct executor_test *test);

/* ---- device_comm_plans.c */
/* What calls would allocate else, when others' kernels wait for theirs already. In the executor's context. */
COLLET_MUST_USE collet_status collet_executor_allocate_ahead(struct collet_executor *executor);
/* Nothing runs any more. In the executor's context. */
void collet_executor_free_tapes(struct collet_executor *executor);

#endif
