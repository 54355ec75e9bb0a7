/* Declares the kernels and the arguments that the host passes to them. For C, for nvcc, and for the fake driver. */
#ifndef COLLET_CUDA_KERNELS_ARGUMENTS_H
#define COLLET_CUDA_KERNELS_ARGUMENTS_H

#include <collet/collet.h>

#include "cuda/kernels/plan_format.h"

/* K(name): every kernel, without its prefix "collet_". The reduce kernels are in the order of collet_dtype. */
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
	K(reduce_i16)                                                                                                  \
	K(reduce_u16)                                                                                                  \
	K(reduce_truth)                                                                                                \
	K(copy)                                                                                                        \
	K(swap)                                                                                                        \
	K(wide_sums)                                                                                                   \
	K(round)                                                                                                       \
	K(plan)

enum collet_gpu_kernel {
#define COLLET_GPU_KERNEL_NUMBER(name) COLLET_GPU_##name,
	COLLET_GPU_KERNELS(COLLET_GPU_KERNEL_NUMBER)
#undef COLLET_GPU_KERNEL_NUMBER
	COLLET_GPU_KERNEL_COUNT
};

enum {
	COLLET_BLOCK_THREADS = 512,
	COLLET_SPAN_MAX_OPERANDS = 64, /* sources of a span, and also results */
	COLLET_LAUNCH_SPANS = 64,  /* spans in one launch */
	COLLET_LAUNCH_WORDS = 376, /* so that all fits the 4 KiB of arguments that every driver allows */
	COLLET_LAUNCH_RANKS = 16   /* ranks that one launch runs */
};

/* What a kernel writes to the abort word: it has waited too long, a peer was launched for another call, or a peer has
 * left. The lower bits name that peer. */
#define COLLET_ABORT_TIMEOUT UINT32_C(0x80000000)
#define COLLET_ABORT_MISMATCH UINT32_C(0x40000000)
#define COLLET_ABORT_PEER_LEFT UINT32_C(0x20000000)

/* Words from first_word on: addresses of the sources, then of the results. If the span is scaled, each source's factor
 * follows, as a double's bits. */
struct collet_span_item {
	uint64_t count;            /* elements; bytes for copy and swap */
	uint16_t first_word;
	uint8_t source_count, result_count;
	uint8_t is_scaled;
	uint8_t unused[3];
};

/* Each row of blocks (blockIdx.y) executes one span. */
struct collet_span_arguments {
	uint32_t op;               /* collet_op; average and premul_sum count as sums */
	uint32_t divisor;          /* of an average; 1 if nothing is divided */
	uint32_t item_count;
	uint32_t dtype;            /* collet_dtype, for wide_sums */
	struct collet_span_item items[COLLET_LAUNCH_SPANS];
	uint64_t words[COLLET_LAUNCH_WORDS];
};

/* Of round: divides sums of wide_sums by the divisor, and rounds them to dtype. */
struct collet_round_arguments {
	uint64_t from, to;         /* addresses */
	uint64_t count;            /* elements; 0: only done is set */
	uint64_t done, ticket;     /* as in collet_plan_rank */
	uint32_t dtype, divisor;
};

/* One rank's arguments. Addresses are the GPU's. A buffer that the rank does not use has 0 bytes. */
struct collet_plan_rank {
	uint64_t plan, plan_bytes; /* no bytes: the kernel does nothing */
	uint64_t windows;          /* an array: the address of each rank's window */
	uint64_t abort;            /* A 32-bit word; if it is not 0, all waits give up. See COLLET_ABORT_TIMEOUT. */
	uint64_t left_ranks;       /* a 64-bit word: one bit for each rank that has left; 0: not checked */
	uint64_t timeout_ns;       /* limit of each wait, counted from the kernel's start; 0: none */
	uint64_t signature;        /* of the call; ranks launched for different calls disagree. 0: not checked */
	/* done: a 64-bit word that is set to ticket when all channels have ended, for whatever reason; 0: nobody is
	 * told. */
	uint64_t done, ticket;
	uint64_t buffers[3], bytes[3];  /* by enum collet_plan_buffer */
	uint64_t scale;            /* premul_sum: the factor for elements of the input, as a double's bits */
};

/* Each row of blocks is a rank, each column a channel. */
struct collet_plan_arguments {
	uint32_t op;
	uint32_t divisor;          /* of an average, applied at an element's last touch; 1: none */
	uint32_t is_scaled;
	uint32_t dtype;            /* collet_dtype */
	uint32_t jitter;           /* for tests: seed of random delays around flags; 0: none */
	struct collet_window window;
	struct collet_plan_rank ranks[COLLET_LAUNCH_RANKS];
};

#endif
