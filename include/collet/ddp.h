/* collet: data-parallel training, as PyTorch's DistributedDataParallel does it.
 *
 * Every rank holds the whole model and trains on its own samples; collet_ddp keeps the models equal. Its creation
 * broadcasts the parameters' values from rank 0. In each step, gradients are averaged over the ranks by all-reduce, in
 * buckets. A bucket is large enough to use the network well, and small enough that the first buckets are reduced while
 * backward still computes.
 *
 *     collet_ddp_create(&ddp, comm, parameters, count, NULL);
 *     for each parameter p: compute its gradient at collet_ddp_gradient(ddp, p) from now on
 *     for each step:
 *             forward
 *             backward, calling collet_ddp_ready(ddp, p) as soon as parameter p's gradient is complete
 *             collet_ddp_wait(ddp)
 *             optimiser, on every rank alike
 *
 * Gradients live in the buckets, so nothing is copied in or out. A bucket's all-reduce starts when its last gradient is
 * ready. Buckets start in the same order on every rank, so ranks may call ready() in different orders. An all-reduce
 * advances inside later calls of ready() and wait(). With a progress thread (collet_options.progress_thread) it
 * advances all the time.
 *
 * Further features are options or functions of their own:
 *     collet_ddp_set_sync()                     steps that only accumulate gradients
 *     collet_ddp_options.unused                 parameters that a step does not use
 *     collet_ddp_options.has_uneven_inputs      ranks that run out of input before others, and collet_ddp_join()
 *     collet_ddp_options.buffers                tensors that are not trained but must be equal everywhere
 *     collet_ddp_options.hook                   how buckets are exchanged: compressed, or as a user's hook does it
 *     collet_ddp_clip()                         the global norm of the gradients
 *     collet_ddp_state_save()                   the part of a checkpoint that belongs to collet_ddp
 *
 * Bits: after wait() every rank holds bitwise the same gradients. Each element is the sum in the order of the
 * all-reduce's algorithm, times 1/n (COLLET_AVERAGE). Ranks that start alike and step alike stay bitwise equal. The
 * same inputs give the same bits in every run, overlapped or not.
 *
 * Threads: one thread at a time uses a collet_ddp, as with a communicator. Its collectives run on communicators split
 * from the caller's, which stays free for other collectives at all times. (Li et al., "PyTorch Distributed: Experiences
 * on Accelerating Data Parallel Training", 2020.) */
#ifndef COLLET_DDP_H
#define COLLET_DDP_H

#include <collet/collet.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Creation ----------------------------------------------------------------------------------------------- */

/* Keeps the models of all ranks equal. Opaque. */
typedef struct collet_ddp collet_ddp;

/* Most dimensions of a parameter. */
#define COLLET_DDP_DIMENSIONS_MAX 8

/* A tensor that training changes. The struct is read during create() only; value is used later too. */
typedef struct collet_ddp_parameter {
	const char *name;        /* used by error texts; may be NULL */
	void *value;             /* dense; belongs to the caller; may be NULL if shape has no elements */
	const uint64_t *shape;   /* elements along each dimension */
	uint32_t dimensions;     /* 0 (one element) .. COLLET_DDP_DIMENSIONS_MAX */
	collet_dtype dtype;      /* of value and gradient: one of the floats */
} collet_ddp_parameter;

/* How wait() treats parameters that are not marked ready. */
typedef enum collet_ddp_unused {
	COLLET_DDP_ALL_USED = 0,   /* it returns COLLET_ERR_ARGUMENT */
	COLLET_DDP_FIND_UNUSED,    /* this rank contributes zeros; found anew in every step */
	COLLET_DDP_STATIC_UNUSED   /* the same, but found in the first step only: later buckets do not wait for them */
} collet_ddp_unused;

struct collet_ddp_hook;

/* Fields that are zero take the default. All fields must be the same on every rank. */
typedef struct collet_ddp_options {
	uint64_t first_bucket_bytes; /* size of the first bucket, which should start early; 1 MiB */
	uint64_t bucket_bytes;       /* size of the other buckets; 25 MiB */
	const char *algorithm;       /* of the all-reduces (collet_how.algorithm); NULL: the tuner's choice */
	/* How buckets are exchanged; must live as long as the collet_ddp. NULL: averaged by all-reduce. */
	const struct collet_ddp_hook *hook;
	/* Tensors of any dtype that are not trained (running statistics). Every wait() copies those of the lowest rank
	 * that still has input to every rank. */
	const collet_ddp_parameter *buffers;
	uint32_t buffer_count;       /* entries of buffers */
	collet_ddp_unused unused;    /* parameters that a step does not use */
	/* Keep the buckets in the order of parameters, last to first. Otherwise they are laid out again after the first
	 * synchronised step, in the order in which gradients became ready on rank 0 (collet_ddp_layout()). */
	bool keep_order;
	bool has_uneven_inputs;      /* ranks may run out of input; they then call collet_ddp_join() */
	bool divide_by_initial;      /* with uneven inputs: divide by size, not by the ranks that still have input */
	uint8_t reserved_bytes[5];   /* must be zero */
	uint64_t reserved[5];        /* must be zero */
} collet_ddp_options;

/* Creates a collet_ddp. Collective: compares the parameters (number, order, dtype, shape) and options across ranks,
 * lays out the buckets, and broadcasts values and buffers from rank 0. Parameters go into buckets from the last to the
 * first, since backward computes gradients in that order. A bucket holds one dtype; the parameter that fills it closes
 * it.
 *
 * comm must outlive *ddp. The buckets take as much memory as the parameters, from collet_mem_alloc(). *ddp is written
 * on success only; the caller destroys it.
 *
 * COLLET_ERR_ARGUMENT, on every rank: one rank's arguments are invalid or differ from rank 0's. The error text names
 * the rank and the parameter; nothing changed and comm works on. COLLET_ERR_MEMORY, on every rank. Other errors are
 * those of collet_broadcast(). */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_create(collet_ddp **ddp, collet_comm *comm,
	const collet_ddp_parameter *parameters, uint32_t parameter_count, const collet_ddp_options *options);

/* Waits for pending collectives, then frees *ddp and sets it to NULL. Call it before comm is destroyed. Parameters'
 * values are not touched. Returns the status of the pending collectives. COLLET_ERR_ARGUMENT: ddp or *ddp is NULL. */
COLLET_API collet_status collet_ddp_destroy(collet_ddp **ddp);

/* ---- Steps -------------------------------------------------------------------------------------------------- */

/* Returns the address of this parameter's gradient, or NULL if there is no such parameter. The gradient has as many
 * elements as the value, is dense, 64-byte aligned, and zero at first. It belongs to the collet_ddp and stays there
 * until destroy, except for one move (collet_ddp_layout()). Do not touch it between ready() and wait(). */
COLLET_API void *collet_ddp_gradient(const collet_ddp *ddp, uint32_t parameter);

/* Returns how often gradients have moved, with their contents: 0, or 1 after the first synchronised wait() if it laid
 * out the buckets again. Call collet_ddp_gradient() again when it has changed. */
COLLET_API uint32_t collet_ddp_layout(const collet_ddp *ddp);

/* Sets every gradient to zero. COLLET_ERR_ARGUMENT: called between ready() and wait(). */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_zero(collet_ddp *ddp);

/* Switches synchronisation on or off. Without it, ready() and wait() only do bookkeeping, for steps that accumulate
 * gradients. The next synchronised step averages the accumulated gradients. It is on at first and must be the same on
 * every rank. COLLET_ERR_ARGUMENT: called between ready() and wait(). */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_set_sync(collet_ddp *ddp, bool sync);

/* Marks this parameter's gradient as complete; nobody may write it until wait() returns. Starts the buckets that are
 * now complete and advances those in progress, without blocking. COLLET_ERR_ARGUMENT: there is no such parameter, it
 * was marked since the last wait(), or COLLET_DDP_STATIC_UNUSED has found it unused. Otherwise, the status that ended
 * the communicator. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_ready(collet_ddp *ddp, uint32_t parameter);

/* Blocks until every gradient is the average over all ranks; then the next step may begin. COLLET_ERR_ARGUMENT: the
 * named parameter is not marked ready and options.unused does not allow it; mark it and call again. Other errors are
 * those of collet_allreduce(); gradients are then undefined. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_wait(collet_ddp *ddp);

/* Returns true if any rank marked this parameter in the last synchronised step, or in the unsynchronised steps before
 * it. A parameter that no rank used has a gradient of zeros, and an optimiser with momentum should skip it. Always true
 * with COLLET_DDP_ALL_USED; false if there is no such parameter. */
COLLET_API bool collet_ddp_used(const collet_ddp *ddp, uint32_t parameter);

/* Takes part in the other ranks' synchronised steps, with gradients of zero, until all ranks have called it.
 * Collective, with options.has_uneven_inputs: every rank calls it when it has no more input in this epoch. Then it
 * copies the parameters' values of the lowest rank that took the last step to every rank. The optimiser states of ranks
 * that ran out early remain those of their last step. *steps, if not NULL: the number of steps it took part in. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_join(collet_ddp *ddp, uint64_t *steps);

/* Computes the 2-norm over all gradients, without communication, and the same bits on every rank: it sums in f64, in an
 * order that depends on the model alone. If the norm is finite and above max_norm, multiplies every gradient by
 * max_norm / norm. max_norm is positive; infinity asks for the norm only. *norm may be infinite or NaN: then nothing is
 * scaled. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_clip(collet_ddp *ddp, double max_norm, double *norm);

/* ---- Checkpoints -------------------------------------------------------------------------------------------- */

/* State for checkpoints: what this rank's collet_ddp keeps from step to step, besides parameters and gradients, which
 * belong to the caller. It is the number of steps, the layout, the unused parameters, and the hook's state, such as
 * error feedback (ddp_hook.h). A new collet_ddp with the same number of ranks, parameters and options continues bit for
 * bit when every rank has loaded the state that the rank of its number saved. Call these between steps only. States are
 * exchangeable between machines of one byte order. */

/* Writes the size of the state; it is constant from the first synchronised step on. COLLET_ERR_MEMORY. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_state_bytes(collet_ddp *ddp, uint64_t *bytes);
/* Writes the state. COLLET_ERR_ARGUMENT: bytes is not its size, or a step is in progress. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_state_save(collet_ddp *ddp, void *state, uint64_t bytes);
/* Loads a saved state. Collective. Gradients may move: see collet_ddp_layout(). COLLET_ERR_ARGUMENT, on every rank: a
 * rank's state was not saved by the rank of its number, with as many ranks and the same parameters and hook. The error
 * text names that rank; nothing changed. COLLET_ERR_MEMORY, on every rank: only destroy is left. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_state_load(collet_ddp *ddp, const void *state, uint64_t bytes);

/* ---- Buckets ------------------------------------------------------------------------------------------------ */

/* The position of a parameter in a bucket. */
typedef struct collet_ddp_slice {
	uint32_t parameter;          /* its number */
	uint32_t dimensions;         /* entries of shape */
	uint64_t first, count;       /* in elements of the bucket */
	const uint64_t *shape;       /* elements along each dimension */
} collet_ddp_slice;

/* A bucket, for operations on all gradients regardless of parameters: norms, accumulation, hooks. The pointers are
 * valid until the layout changes or the collet_ddp is destroyed. */
typedef struct collet_ddp_bucket {
	void *gradients;             /* padding between two parameters' gradients is always zero */
	uint64_t count;              /* elements, with the padding */
	collet_dtype dtype;          /* of all its gradients */
	uint32_t slice_count;        /* number of its parameters */
	const collet_ddp_slice *slices;  /* in the order of the bucket */
} collet_ddp_bucket;

/* Returns the number of buckets. */
COLLET_API uint32_t collet_ddp_bucket_count(const collet_ddp *ddp);
/* Describes a bucket. COLLET_ERR_ARGUMENT: there is no such bucket. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_bucket_get(
	const collet_ddp *ddp, uint32_t index, collet_ddp_bucket *bucket);

/* The time of a bucket's exchange in the last step, in ns of clock_gettime(CLOCK_MONOTONIC). The end is when this rank
 * noticed it, in ready() or wait(). */
typedef struct collet_ddp_interval {
	int64_t began_ns, ended_ns;  /* start and end */
} collet_ddp_interval;
/* Writes when the exchange of a bucket started and ended in the last step. COLLET_ERR_ARGUMENT: there is no such
 * bucket, or no synchronised step has ended yet. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_last_travel(
	const collet_ddp *ddp, uint32_t index, collet_ddp_interval *interval);

/* What this rank has sent and received for this collet_ddp since its creation: the collet_comm_stats() of its own
 * communicators, without the broadcast of the first values. */
typedef struct collet_ddp_traffic {
	uint64_t steps;              /* synchronised ones */
	uint64_t bytes_sent, bytes_received; /* payload */
	uint64_t messages_sent;      /* number of messages */
	uint64_t reserved[4];
} collet_ddp_traffic;
/* Writes what this rank has sent and received so far. COLLET_ERR_ARGUMENT: ddp or traffic is NULL. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_traffic_get(collet_ddp *ddp, collet_ddp_traffic *traffic);

#ifdef __cplusplus
}
#endif
#endif
