/* What the host gives to the kernels, and what they are called. For C, for nvcc, and for the stand-in driver. */
#ifndef COLLET_CUDA_KERNELS_ARGUMENTS_H
#define COLLET_CUDA_KERNELS_ARGUMENTS_H

#include <collet/collet.h>

#include "cuda/kernels/plan_format.h"

/* K(name): every kernel, "collet_" before it. Those of a dtype are named for it, in the order of collet_dtype. */
#define COLLET_GPU_KERNELS(K)                                                                                          \
	K(reduce_i8)                                                                                                   \
	K(reduce_u8)                                                                                                   \
	K(reduce_i32)                                                                                                  \
	K(reduce_u32)                                                                                                  \
	K(reduce_i64)                                                                                                  \
	K(reduce_u64)                                                                                                  \
	K(reduce_f16)                                                                                                  \
	K(reduce_bf16)                                                                                                 \
	K(reduce_f32)                                                                                                  \
	K(reduce_f64)                                                                                                  \
	K(reduce_f8e4m3)                                                                                               \
	K(reduce_f8e5m2)                                                                                               \
	K(copy)                                                                                                        \
	K(swap)                                                                                                       \
	K(plan)

enum collet_gpu_kernel {
#define COLLET_GPU_KERNEL_NUMBER(name) COLLET_GPU_##name,
	COLLET_GPU_KERNELS(COLLET_GPU_KERNEL_NUMBER)
#undef COLLET_GPU_KERNEL_NUMBER
	COLLET_GPU_KERNEL_COUNT
};

enum {
	COLLET_BLOCK_THREADS = 512,
	COLLET_SPAN_MAX_OPERANDS = 64, /* sources of a span, and results */
	COLLET_LAUNCH_SPANS = 64,  /* in one launch */
	COLLET_LAUNCH_WORDS = 376, /* all is to fit the 4 KiB that every driver passes by value */
	COLLET_LAUNCH_RANKS = 16   /* ranks that one launch serves */
};

/* What a kernel writes to the abort word that has waited too long, or that another rank was launched for another call,
 * or has left; the lower bits: for which position. */
#define COLLET_ABORT_TIMEOUT UINT32_C(0x80000000)
#define COLLET_ABORT_MISMATCH UINT32_C(0x40000000)
#define COLLET_ABORT_PEER_LEFT UINT32_C(0x20000000)

/* Words from `at` on: addresses of sources, then of results, then, if it is scaled, what each source is multiplied by
 * (a double's bits). */
struct collet_span_item {
	uint64_t count;            /* elements; of copy and swap: bytes */
	uint16_t first_word;
	uint8_t source_count, result_count;
	uint8_t is_scaled;
	uint8_t unused[3];
};

/* One span a row of blocks (blockIdx.y). */
struct collet_span_arguments {
	uint32_t op;               /* collet_op; average and premul_sum are sums */
	uint32_t divisor;          /* of an average; 1: nothing is divided */
	uint32_t item_count;
	uint32_t unused;
	struct collet_span_item items[COLLET_LAUNCH_SPANS];
	uint64_t words[COLLET_LAUNCH_WORDS];
};

/* One rank. Addresses are the GPU's; a buffer that the rank does not use has no bytes. */
struct collet_plan_rank {
	uint64_t plan, plan_bytes;
	uint64_t windows;          /* an array of the addresses of all ranks' windows */
	uint64_t abort;            /* a 32-bit word: not 0, and whoever waits gives up. See COLLET_ABORT_TIMEOUT */
	uint64_t left_ranks;       /* a 64-bit word: ranks that have left, a bit each; 0: nobody looks */
	uint64_t timeout_ns;       /* from the launch's beginning, each wait; 0: none */
	uint64_t signature;        /* of the call: ranks that are launched for others disagree. 0: nobody looks */
	uint64_t done, ticket;     /* a 64-bit word, which becomes the ticket when all lanes have ended, however they
	                              have; done 0: nobody is told */
	uint64_t buffers[3], bytes[3];  /* by enum collet_plan_buffer */
	uint64_t scale;            /* premul_sum: what elements of the input are multiplied by, a double's bits */
};

/* A rank a row of blocks, a lane a column. */
struct collet_plan_arguments {
	uint32_t op;
	uint32_t divisor;          /* of an average, at its elements' last touch; 1: none */
	uint32_t is_scaled;
	uint32_t dtype;            /* collet_dtype */
	uint32_t jitter;           /* for tests: the seed of random delays around flags; 0: none */
	struct collet_window window;
	struct collet_plan_rank ranks[COLLET_LAUNCH_RANKS];
};

#endif
