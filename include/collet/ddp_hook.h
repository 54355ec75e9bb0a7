/* collet: communication hooks, which exchange the buckets of data-parallel training.
 *
 * A hook replaces a bucket's all-reduce by something else that leaves the average in it, or nearly: fewer bits, fewer
 * elements, a matrix of low rank. The hooks below are part of collet. Users can write their own against this header.
 *
 *     collet_ddp_hook *hook = NULL;
 *     collet_ddp_hook_create(&hook, "powersgd:2", seed);
 *     collet_ddp_options options = { .hook = hook };
 *     collet_ddp_create(&ddp, comm, parameters, count, &options);
 *     ...
 *     collet_ddp_destroy(&ddp);
 *     collet_ddp_hook_destroy(&hook); */
#ifndef COLLET_DDP_HOOK_H
#define COLLET_DDP_HOOK_H

#include <collet/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most stages of a hook. */
#define COLLET_DDP_STAGES_MAX 4

/* A hook's arguments for a bucket. They are valid as long as the state that open() made. */
typedef struct collet_ddp_hook_args {
	/* One communicator per stage. Each carries the buckets' collectives of its stage in the buckets' order, so
	 * stages of different buckets can run at the same time. */
	collet_comm *const *comms;
	collet_ddp_bucket bucket;    /* the bucket */
	uint32_t index;              /* number of the bucket */
	uint64_t step;               /* synchronised steps before this one; the same on every rank */
	const char *algorithm;       /* collet_ddp_options.algorithm */
} collet_ddp_hook_args;

/* A communication hook. A bucket goes through its stages in order. Each stage reads what the previous one received and
 * starts at most one collective. The thread that calls the collet_ddp calls all functions, in the same sequence on
 * every rank. A failure ends the step with that status. */
typedef struct collet_ddp_hook {
	const char *name;            /* the same on every rank; for error texts */
	uint32_t stages;             /* 1 .. COLLET_DDP_STAGES_MAX */
	void *context;               /* belongs to the hook */
	/* Prepares a bucket before its first stage: memory, state. COLLET_ERR_UNSUPPORTED: not for this dtype. */
	collet_status (*open)(const struct collet_ddp_hook *hook, const collet_ddp_hook_args *args, void **state);
	/* Starts stage 0, 1, ... over args->comms[stage], with collet_how.request = request; may leave *request
	 * NULL. */
	collet_status (*start)(void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request);
	/* Called after the last stage. Makes the bucket's gradients the average over collet_comm_size() ranks, the same
	 * bits on every rank. Elements between slices stay zero. */
	collet_status (*finish)(void *state, const collet_ddp_hook_args *args);
	/* Frees what open() made. */
	void (*close)(void *state);
	/* For collet_ddp_state_save(): what the state keeps from step to step. The size is constant for a bucket.
	 * load() gets what save() wrote for this bucket, on the rank of the same number among as many ranks. All three
	 * are NULL if nothing is kept. */
	uint64_t (*saved_bytes)(const void *state, const collet_ddp_hook_args *args);
	void (*save)(const void *state, const collet_ddp_hook_args *args, void *saved);
	void (*load)(void *state, const collet_ddp_hook_args *args, const void *saved);
} collet_ddp_hook;

/* Creates a hook from its specification; the caller destroys it. Gradients are f32 unless noted. n: ranks. "wire":
 * bytes that each rank sends per element of 4 bytes, where an all-reduce sends 8 (n-1)/n. Error feedback: what a rank's
 * message leaves out is added to its next step's gradient (Seide et al. 2014; Karimireddy et al., "Error Feedback Fixes
 * SignSGD", 2019).
 *
 * "f16", "bf16": gradients rounded to 16 bits and averaged in that type. Wire: half. Cost: two passes over the bucket.
 *
 * "topk:R": the R (0 < R <= 1) share of largest magnitude of each bucket, as an all-gather of indices and values; error
 * feedback. Wire: 8 R (n-1) bytes. Cost: a selection and n R additions per element. (Aji and Heafield, "Sparse
 * Communication for Distributed Gradient Descent", 2017.)
 *
 * "randomk:R": a share R of the elements, drawn from seed and step. All ranks draw the same ones, so only values are
 * exchanged, by all-reduce; error feedback. Parameters of one dimension (biases, batch norm) are sent whole. Wire: R.
 * (Stich et al., "Sparsified SGD with Memory", 2018.)
 *
 * "qsgd:B": B = 8, 4 or 2 bits per element, and a scale per 512 elements. The scale is the largest magnitude; for 2
 * bits, which encode -s, 0 and s, it is the mean magnitude. Values are rounded up or down at random, so that the mean
 * is right; error feedback for 4 and 2 bits. Codes cannot be added: an all-to-all brings each rank its share from all
 * others. It decodes, averages and encodes the share again, for an all-gather. Wire: (B + 1/16) / 32. (Alistarh et al.,
 * "QSGD", 2017.)
 *
 * "sign": one bit per element and a mean magnitude per 512 elements, exchanged likewise; error feedback. Wire: (1 +
 * 1/16) / 32. (Seide et al., "1-Bit Stochastic Gradient Descent", 2014.)
 *
 * "powersgd:K": matrices (dimension 0 against the others) as a product of rank K, warm started; error feedback.
 * Parameters that would not become smaller are sent whole. Two all-reduces. Wire: K (rows + columns) / (rows columns)
 * per matrix. Cost: 3 products and an orthogonalisation. (Vogels et al., "PowerSGD", 2019.)
 *
 * ",momentum:M" may follow any of them ("sign,momentum:0.9", 0 <= M < 1; f32 only). Each rank then sends its velocity =
 * M velocity + gradient instead of its gradients, for an optimiser without momentum of its own. This reduces the harm
 * of gradients delayed by error feedback. Cost: another pass, another copy of the gradients. (Lin et al., "Deep
 * Gradient Compression", 2018, momentum correction.)
 *
 * COLLET_ERR_ARGUMENT: an unknown specification, or a number out of range. COLLET_ERR_MEMORY. Any thread. */
COLLET_MUST_USE COLLET_API collet_status collet_ddp_hook_create(
	collet_ddp_hook **hook, const char *spec, uint64_t seed);
/* Frees the hook and sets *hook to NULL. Call it after the collet_ddp that uses it is destroyed. COLLET_ERR_ARGUMENT:
 * hook or *hook is NULL. */
COLLET_API collet_status collet_ddp_hook_destroy(collet_ddp_hook **hook);

#ifdef __cplusplus
}
#endif
#endif
