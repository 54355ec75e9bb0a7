/* The library's kernels, and launching them. The device code is in kernels/: one image, embedded in the library, loaded
 * into each CUDA context that needs it. */
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
	/* How many blocks of COLLET_BLOCK_THREADS run at the same time on an otherwise idle GPU. */
	uint32_t resident_blocks[COLLET_GPU_KERNEL_COUNT];
};

/* One a context of the library. */
struct collet_kernel_sets {
	const struct collet_cuda *cuda;
	pthread_mutex_t lock;        /* of first; sets stay where they are */
	struct collet_kernel_set *first;
};

void collet_kernel_sets_init(struct collet_kernel_sets *sets, const struct collet_cuda *cuda);
/* Nothing of them runs any more. Before the copiers go, which hold the contexts. A zeroed one is fine. */
void collet_kernel_sets_deinit(struct collet_kernel_sets *sets);

/* The kernels in a copier's context, loaded when they are first asked for, which takes milliseconds and may wait for
 * what runs on the GPU. COLLET_ERR_UNSUPPORTED, with the reason, if there are none for this GPU or in this build: the
 * caller then goes by way of the host. The calling thread's current context is left as it is. */
COLLET_MUST_USE collet_status collet_kernel_set_get(
	struct collet_kernel_sets *sets, const struct collet_copy_stream *copy_stream, struct collet_kernel_set **set);

/* Launches a kernel whose one argument this is. In the set's context (between collet_copy_stream_push_context() and
 * end), on a stream of it. The argument is copied before this returns. */
COLLET_MUST_USE collet_status collet_kernel_launch(const struct collet_kernel_set *set, enum collet_gpu_kernel kernel,
	uint32_t columns, uint32_t rows, const void *argument, cu_stream stream);

/* What is done with the elements. */
struct collet_gpu_reduction {
	collet_dtype dtype;
	collet_op op;                /* any but COLLET_USER */
	uint32_t average_of;         /* COLLET_AVERAGE: the world size, if this is the elements' last touch; else 1 */
};

/* A run of elements: each of every result becomes ((source 0 op source 1) op source 2) ... of those in its place, as
 * collet_reduction_run() has it and to the same bits. Addresses are the GPU's, at any alignment; what all lies alike
 * within 16 bytes goes fastest. A result may be exactly one of the span's sources; there is no other overlap, neither
 * in a span nor between those of one call. One source that is neither scaled nor divided is copied. */
struct collet_gpu_span {
	const void *const *sources;  /* 1 to COLLET_SPAN_MAX_OPERANDS */
	void *const *results;        /* the same */
	uint32_t source_count, result_count;
	const double *scales;        /* premul_sum: what each source is multiplied by, and rounded to the dtype; else
					NULL */
	uint64_t count;              /* 0: nothing */
	bool is_swap;                /* two of each: source k goes to result k as it is, and may lie where the other's
					result does */
};

/* In the set's context. What is given is copied before this returns; the elements' memory is used until the stream has
 * come past. Several launches if the spans are many. No synchronisation, so that it may be captured. */
COLLET_MUST_USE collet_status collet_gpu_spans_launch(const struct collet_kernel_set *set,
	const struct collet_gpu_reduction *reduction, const struct collet_gpu_span *spans, uint32_t span_count,
	cu_stream stream);

#endif
