/* Loads the library's kernels into CUDA contexts, and launches them. The library embeds one image; each CUDA context
 * that needs it loads it. */
#ifndef COLLET_CUDA_KERNELS_KERNEL_SET_H
#define COLLET_CUDA_KERNELS_KERNEL_SET_H

#include "cuda/driver/copy_stream.h"
#include "cuda/kernels/arguments.h"

/* The kernels in one CUDA context. Read-only once loaded, so any thread may launch. */
struct collet_kernel_set {
	struct collet_kernel_set *next;
	const struct collet_cuda *cuda;
	cu_context context;
	cu_module module;
	cu_function functions[COLLET_GPU_KERNEL_COUNT];
	/* Number of blocks of COLLET_BLOCK_THREADS threads that run at the same time on an otherwise idle GPU. */
	uint32_t resident_blocks[COLLET_GPU_KERNEL_COUNT];
};

/* All kernel sets of one library context. */
struct collet_kernel_sets {
	const struct collet_cuda *cuda;
	pthread_mutex_t lock;        /* protects first; sets never move */
	struct collet_kernel_set *first;
};

void collet_kernel_sets_init(struct collet_kernel_sets *sets, const struct collet_cuda *cuda);
/* Requires that no kernel runs any more. Call before the copy streams are destroyed, which hold the contexts. A zeroed
 * object is allowed. */
void collet_kernel_sets_deinit(struct collet_kernel_sets *sets);

/* Returns the kernels in a copy stream's context. Loads them on first use, which takes milliseconds and may wait for
 * work on the GPU. COLLET_ERR_UNSUPPORTED: this GPU or this build has no kernels; the sentence says why, and the caller
 * stages through the host. The thread's current context does not change. */
COLLET_MUST_USE collet_status collet_kernel_set_get(
	struct collet_kernel_sets *sets, const struct collet_copy_stream *copy_stream, struct collet_kernel_set **set);

/* Launches a kernel with one argument, which is copied before this returns. The set's context must be current, and the
 * stream belong to it. */
COLLET_MUST_USE collet_status collet_kernel_launch(const struct collet_kernel_set *set, enum collet_gpu_kernel kernel,
	uint32_t columns, uint32_t rows, const void *argument, cu_stream stream);

/* The operation on the elements. */
struct collet_gpu_reduction {
	collet_dtype dtype;
	collet_op op;                /* any except COLLET_USER */
	uint32_t average_of;         /* COLLET_AVERAGE: the world size at an element's last touch; else 1 */
};

/* A span of elements: each element of every result becomes ((source 0 op source 1) op source 2) ..., bit-equal to
 * collet_reduction_run(). Addresses are the GPU's, with any alignment; it is fastest if all are equal modulo 16. A
 * result may be exactly one of the span's sources. No other overlap is allowed, within a span or between the spans of
 * one call. A single source that is neither scaled nor divided is copied; of bool, as 0 or 1. */
struct collet_gpu_span {
	const void *const *sources;  /* 1 to COLLET_SPAN_MAX_OPERANDS */
	void *const *results;        /* 1 to COLLET_SPAN_MAX_OPERANDS */
	uint32_t source_count, result_count;
	/* premul_sum: the factor of each source, whose product is rounded to the dtype; else NULL */
	const double *scales;
	uint64_t count;              /* 0: nothing to do */
	/* Two sources and two results: source k is copied to result k, and may be the other's result. */
	bool is_swap;
};

/* Launches the spans in the set's context; several launches if there are many. The arguments are copied before this
 * returns; the stream uses the elements' memory later. Nothing is synchronised, so a stream capture may record it. */
COLLET_MUST_USE collet_status collet_gpu_spans_launch(const struct collet_kernel_set *set,
	const struct collet_gpu_reduction *reduction, const struct collet_gpu_span *spans, uint32_t span_count,
	cu_stream stream);
/* Launches a kernel that adds the sources of one span, narrow floats, and stores the sums as f32 in its only result.
 * They are in the order of a binomial tree, and shrunk for an average of so many ranks (collet_average_shrunk()). */
COLLET_MUST_USE collet_status collet_gpu_wide_sums_launch(const struct collet_kernel_set *set, collet_dtype dtype,
	uint32_t average_of, const struct collet_gpu_span *span, cu_stream stream);

#endif
