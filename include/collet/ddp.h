/* collet: data-parallel training, the way PyTorch's DistributedDataParallel does it.
 *
 * Every rank holds the whole model and trains on its own samples; collet_ddp keeps the models equal. At creation the
 * parameters' values are broadcast from rank 0. In each step, gradients are averaged over the ranks by all-reduce, in
 * buckets: large enough to use the network well, small enough that the first ones travel while backward still computes.
 *
 *     collet_ddp_create(&ddp, comm, parameters, count, NULL);
 *     for each parameter p: compute its gradient at collet_ddp_gradient(ddp, p) from now on
 *     for each step:
 *             forward
 *             backward, calling collet_ddp_ready(ddp, p) as soon as parameter p's gradient is complete
 *             collet_ddp_wait(ddp)
 *             optimiser, on every rank alike
 *
 * Gradients live in the buckets: nothing is copied in or out. A bucket's all-reduce starts when its last gradient is
 * ready, and buckets start in one order on every rank, whatever the order in which ranks call ready(); so they may
 * differ in it. It then advances inside later calls of ready() and wait(), and all the time where the communicator has
 * a progress thread (collet_options.progress_thread).
 *
 * Bits: after wait() every rank holds bitwise the same gradients: for each element, the sum in the order of the
 * all-reduce's algorithm, times 1/n (COLLET_AVERAGE). Ranks that start alike and step alike stay bitwise equal. The
 * same inputs give the same bits in every run, overlapped or not.
 *
 * Threads: as for the communicator, which belongs to collet_ddp from ready() to wait(): one thread at a time.
 * (Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020.)
 */
#ifndef COLLET_DDP_H
#define COLLET_DDP_H

#include <collet/collet.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct collet_ddp collet_ddp;

/* A tensor that training changes; read during create() only, but for value. */
typedef struct collet_ddp_parameter {
	const char *name;        /* for error texts; may be NULL */
	void *value;             /* dense; the caller's; may be NULL if shape has no elements */
	const uint64_t *shape;   /* elements along each dimension */
	uint32_t dimensions;     /* 0 (one element) .. COLLET_DDP_DIMENSIONS */
	collet_dtype dtype;      /* of value and gradient: one of the floats */
} collet_ddp_parameter;
#define COLLET_DDP_DIMENSIONS 8

/* Zero-initialised fields take the default. The same on every rank. */
typedef struct collet_ddp_options {
	uint64_t first_bucket_bytes; /* the first bucket is full with this much; 1 MiB: it should leave early */
	uint64_t bucket_bytes;       /* the others; 25 MiB */
	const char *algorithm;       /* of the all-reduces (collet_how.algorithm); NULL: chosen by size */
	uint64_t reserved[8];        /* must be zero */
} collet_ddp_options;

/* Collective. Compares the parameters across ranks (number, order, dtype, shape) and the options, lays out the buckets,
 * and broadcasts the values from rank 0 into every rank's. Parameters go into buckets from the last to the first, since
 * backward computes gradients in that order; a bucket holds one dtype and is closed by the parameter that fills it.
 *
 * comm must outlive *ddp, and no other collective may run on it between ready() and wait(). The buckets take as much
 * memory as the parameters, from collet_mem_alloc(). *ddp is written on success only.
 *
 * COLLET_ERR_ARGUMENT on every rank when one rank's arguments make no sense, or differ from rank 0's: the sentence
 * names the rank and the parameter; nothing has changed and comm works on. COLLET_ERR_MEMORY, on every rank. Else as
 * collet_broadcast(). */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_create(collet_ddp **ddp, collet_comm *comm,
	const collet_ddp_parameter *parameters, uint32_t parameter_count, const collet_ddp_options *options);

/* Waits for what is under way, then frees *ddp and sets it to NULL; before comm's destroy. Parameters' values are not
 * touched. The status of what it waited for; NULL or *ddp == NULL: COLLET_ERR_ARGUMENT. */
COLLET_API collet_status collet_ddp_destroy(collet_ddp **ddp);

/* Where this parameter's gradient lives: as many elements as its value, dense, 64-byte aligned, zero at first. Stays
 * there until destroy. Between ready() and wait() it is the library's. NULL: there is no such parameter. */
COLLET_API void *collet_ddp_gradient(const collet_ddp *ddp, uint32_t parameter);

/* This parameter's gradient is complete, and nobody writes it until wait() returns. Starts the buckets that this
 * completes and advances those under way; does not wait. COLLET_ERR_ARGUMENT: no such parameter, or marked already
 * since the last wait(). Else what has ended the communicator. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_ready(collet_ddp *ddp, uint32_t parameter);

/* Returns when every gradient is the average over all ranks; then the next step may begin. COLLET_ERR_ARGUMENT: the
 * named parameter has not been marked ready; mark it and call again. Else as collet_allreduce(): gradients are then
 * undefined. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_wait(collet_ddp *ddp);

/* A bucket, for what goes over all gradients whatever parameter they belong to: norms, clipping, accumulation. */
typedef struct collet_ddp_bucket {
	void *gradients;             /* elements between two parameters' gradients are zero and stay zero */
	uint64_t count;
	collet_dtype dtype;
	uint32_t parameter_count;
	const uint32_t *parameters;  /* their numbers, as they lie in the bucket; lives as long as the collet_ddp */
} collet_ddp_bucket;

COLLET_API uint32_t collet_ddp_bucket_count(const collet_ddp *ddp);
/* Buckets in the order in which they start. COLLET_ERR_ARGUMENT: there is no such bucket; *bucket is untouched. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_bucket_get(
	const collet_ddp *ddp, uint32_t index, collet_ddp_bucket *bucket);

#ifdef __cplusplus
}
#endif
#endif
