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
 * Beyond that, each an option or a call of its own:
 *     collet_ddp_set_sync()           steps that only accumulate
 *     collet_ddp_options.unused       parameters that a step leaves out
 *     collet_ddp_options.uneven       ranks that run out of input before others, and collet_ddp_join()
 *     collet_ddp_options.buffers      what is not trained but must be the same everywhere
 *     collet_ddp_options.hook         how buckets travel: compressed, or as you like (ddp_hook.h)
 *     collet_ddp_clip()               the global norm of the gradients
 *     collet_ddp_state_save()         what a checkpoint needs besides
 *
 * Bits: after wait() every rank holds bitwise the same gradients: for each element, the sum in the order of the
 * all-reduce's algorithm, times 1/n (COLLET_AVERAGE). Ranks that start alike and step alike stay bitwise equal. The
 * same inputs give the same bits in every run, overlapped or not.
 *
 * Threads: as for a communicator: one thread at a time. Gradients travel over communicators that are split from the
 * caller's, which stays free for other collectives at all times.
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
	uint32_t dimensions;     /* 0 (one element) .. COLLET_DDP_DIMENSIONS_MAX */
	collet_dtype dtype;      /* of value and gradient: one of the floats */
} collet_ddp_parameter;
#define COLLET_DDP_DIMENSIONS_MAX 8

/* What becomes of parameters that are not marked ready before wait(). */
typedef enum collet_ddp_unused {
	COLLET_DDP_ALL_USED = 0,   /* a mistake */
	COLLET_DDP_FIND_UNUSED,    /* this rank adds zeros for them, found anew in every step */
	COLLET_DDP_STATIC_UNUSED   /* the same in every step: found in the first, after which buckets need not wait */
} collet_ddp_unused;

struct collet_ddp_hook;

/* Zero-initialised fields take the default. The same on every rank. */
typedef struct collet_ddp_options {
	uint64_t first_bucket_bytes; /* the first bucket is full with this much; 1 MiB: it should leave early */
	uint64_t bucket_bytes;       /* the others; 25 MiB */
	const char *algorithm;       /* of the all-reduces (collet_how.algorithm); NULL: chosen by size */
	const struct collet_ddp_hook *hook; /* how buckets travel; lives as long as the collet_ddp; NULL: averaged as
	                                     * they are */
	const collet_ddp_parameter *buffers; /* of any dtype, not trained (running statistics): every wait() gives
	                                      * every rank those of the lowest rank that still has input */
	uint32_t buffer_count;
	collet_ddp_unused unused;
	bool keep_order;             /* buckets stay in the order of parameters, last to first; else they are laid out
	                              * once more, after the first synchronised step, in the order in which gradients
	                              * became ready on rank 0 (collet_ddp_layout()) */
	bool has_uneven_inputs;      /* ranks may run out of input: they then call collet_ddp_join() */
	bool divide_by_initial;      /* with uneven: averages are sums / size, not / ranks that still have input */
	uint8_t reserved_bytes[5];   /* must be zero */
	uint64_t reserved[5];        /* must be zero */
} collet_ddp_options;

/* Collective. Compares the parameters across ranks (number, order, dtype, shape) and the options, lays out the buckets,
 * and broadcasts values and buffers from rank 0 into every rank's. Parameters go into buckets from the last to the
 * first, since backward computes gradients in that order; a bucket holds one dtype and is closed by the parameter that
 * fills it.
 *
 * comm must outlive *ddp. The buckets take as much memory as the parameters, from collet_mem_alloc(). *ddp is written
 * on success only.
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
 * there until destroy, but for one move (collet_ddp_layout()). Between ready() and wait() it is the library's. NULL:
 * there is no such parameter. */
COLLET_API void *collet_ddp_gradient(const collet_ddp *ddp, uint32_t parameter);

/* How often gradients have moved: 0, and 1 from the end of the first synchronised step's wait() on if buckets were laid
 * out once more there (their contents move along). Ask collet_ddp_gradient() again when it has changed. */
COLLET_API uint32_t collet_ddp_layout(const collet_ddp *ddp);

/* Sets every gradient to zero. Not between ready() and wait(): COLLET_ERR_ARGUMENT. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_zero(collet_ddp *ddp);

/* Without sync, ready() and wait() only keep the books and nothing travels: for steps that add to the gradients of the
 * steps before. The next step with sync averages what has come together. On at first; the same on every rank; not
 * between ready() and wait(): COLLET_ERR_ARGUMENT. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_set_sync(collet_ddp *ddp, bool sync);

/* This parameter's gradient is complete, and nobody writes it until wait() returns. Starts the buckets that this
 * completes and advances those under way; does not wait. COLLET_ERR_ARGUMENT: no such parameter, marked already since
 * the last wait(), or one that COLLET_DDP_STATIC_UNUSED has found unused. Else what has ended the communicator. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_ready(collet_ddp *ddp, uint32_t parameter);

/* Returns when every gradient is the average over all ranks; then the next step may begin. COLLET_ERR_ARGUMENT: the
 * named parameter has not been marked ready and options.unused does not allow it; mark it and call again. Else as
 * collet_allreduce(): gradients are then undefined. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_wait(collet_ddp *ddp);

/* Whether any rank marked this parameter in the last synchronised step or in those without sync before it. One that
 * nobody used has a gradient of zeros, and an optimiser with momentum should leave it alone. Always true with
 * COLLET_DDP_ALL_USED; false: there is no such parameter. */
COLLET_API bool collet_ddp_used(const collet_ddp *ddp, uint32_t parameter);

/* Collective, with options.uneven: called by every rank when it has no more input in this epoch. Takes part in the
 * other ranks' synchronised steps, with gradients of zero, until all have called it; then gives every rank the
 * parameters' values of the lowest rank that went through the last step, which the ranks that ran out have not taken.
 * (Their optimiser's state is as old as their last step.) *steps, if not NULL: how many steps it took part in. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_join(collet_ddp *ddp, uint64_t *steps);

/* The 2-norm over all gradients, added up in f64 in an order that depends on the model alone: the same bits on every
 * rank, without communication. If it is above most (and finite), every gradient is multiplied by most / norm. most:
 * positive; infinity to ask for the norm only. *norm may be infinite or NaN: then nothing is scaled. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_clip(collet_ddp *ddp, double max_norm, double *norm);

/* For checkpoints: what this rank's collet_ddp knows from step to step beside parameters and gradients, which are the
 * caller's: how many steps there were, where gradients lie, which parameters are unused, and what the hook remembers,
 * such as error feedback (ddp_hook.h). A collet_ddp that is made anew, by as many ranks with the same parameters and
 * options, goes on bit for bit when every rank has loaded what the rank of its number has saved. Between steps only.
 * What is saved is for machines of one byte order. */

/* How many bytes save() writes: the same from the first synchronised step on. COLLET_ERR_MEMORY. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_state_bytes(collet_ddp *ddp, uint64_t *bytes);
/* COLLET_ERR_ARGUMENT: bytes is another number; a step is under way. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_state_save(collet_ddp *ddp, void *state, uint64_t bytes);
/* Collective. Gradients may move: see collet_ddp_layout(). COLLET_ERR_ARGUMENT on every rank: on one it is not what a
 * rank of that number among as many, with the same parameters and hook, has saved, and the sentence names it; nothing
 * has changed. COLLET_ERR_MEMORY on every rank: only destroy is left. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_state_load(collet_ddp *ddp, const void *state, uint64_t bytes);

/* One parameter's place in a bucket. */
typedef struct collet_ddp_slice {
	uint32_t parameter, dimensions;
	uint64_t first, count;       /* elements of the bucket */
	const uint64_t *shape;
} collet_ddp_slice;

/* A bucket, for what goes over all gradients whatever parameter they belong to: norms, accumulation, hooks. Pointers
 * live until the layout changes or the collet_ddp goes. */
typedef struct collet_ddp_bucket {
	void *gradients;             /* elements between two parameters' gradients are zero and stay zero */
	uint64_t count;
	collet_dtype dtype;
	uint32_t slice_count;
	const collet_ddp_slice *slices;  /* as they lie in the bucket */
} collet_ddp_bucket;

COLLET_API uint32_t collet_ddp_bucket_count(const collet_ddp *ddp);
/* Buckets in the order in which they start. COLLET_ERR_ARGUMENT: there is no such bucket; *bucket is untouched. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_bucket_get(
	const collet_ddp *ddp, uint32_t index, collet_ddp_bucket *bucket);

/* When a bucket travelled in the last step, on the clock of clock_gettime(CLOCK_MONOTONIC), ns. Its end is when this
 * rank noticed: in a call of ready() or wait(). */
typedef struct collet_ddp_interval {
	int64_t began_ns, ended_ns;
} collet_ddp_interval;
/* COLLET_ERR_ARGUMENT: there is no such bucket, or no synchronised step has ended yet. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_last_travel(
	const collet_ddp *ddp, uint32_t index, collet_ddp_interval *interval);

/* What this rank has moved for this collet_ddp since its creation: collet_comm_stats() of the communicators that it has
 * split, without the sharing of first values. */
typedef struct collet_ddp_traffic {
	uint64_t steps;              /* synchronised ones */
	uint64_t bytes_sent, bytes_received, messages_sent;
	uint64_t reserved[4];
} collet_ddp_traffic;
COLLET_API COLLET_MUST_USE collet_status collet_ddp_traffic_get(collet_ddp *ddp, collet_ddp_traffic *traffic);

#ifdef __cplusplus
}
#endif
#endif
