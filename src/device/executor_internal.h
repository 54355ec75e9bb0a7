/* What the executor's files know of each other. */
#ifndef COLLET_DEVICE_EXECUTOR_INTERNAL_H
#define COLLET_DEVICE_EXECUTOR_INTERNAL_H

#include <stdatomic.h>

#include "cuda/mapped.h"
#include "device/executor.h"

enum {
	EXECUTOR_CHANNELS = 16,      /* of a part, at most; */
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
	uint64_t used;               /* by the launch of this number, and none after it; 0: by none */
	bool captured;               /* a graph has it: it stays */
};

struct executor_block {
	struct executor_block *next;
	cu_pointer memory;
	size_t used, bytes;
};

struct collet_executor {
	struct collet_device *device;
	const struct collet_cuda *cuda;
	struct collet_group *group;
	const struct collet_executor_exchange *exchange;     /* while it is made */
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

/* ---- executor_connect.c */
/* All but the tapes; *fine false: some rank has a complaint. */
COLLET_MUST_USE collet_status collet_executor_connect(struct collet_executor *executor, bool *fine);

/* ---- executor_tapes.c */
/* Nothing runs any more. In the executor's context. */
void collet_executor_free_tapes(struct collet_executor *executor);

#endif
