/* collet: how the buckets of data-parallel training travel. A hook replaces the all-reduce of a bucket by something
 * else that leaves (nearly) the average in it: fewer bits, fewer elements, a matrix of low rank. Those below come with
 * collet; users can write their own on the public interface.
 *
 *     collet_ddp_hook *hook = NULL;
 *     collet_ddp_hook_create(&hook, "powersgd:2", seed);
 *     collet_ddp_options options = { .hook = hook };
 *     collet_ddp_create(&ddp, comm, parameters, count, &options);
 *     ...
 *     collet_ddp_destroy(&ddp);
 *     collet_ddp_hook_destroy(&hook);
 */
#ifndef COLLET_DDP_HOOK_H
#define COLLET_DDP_HOOK_H

#include <collet/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLLET_DDP_STAGES_MAX 4

/* What a hook learns of a bucket. Valid as long as the state that open() made. */
typedef struct collet_ddp_hook_args {
	collet_comm *const *comms; /* one a stage: the collectives of a stage go over its communicator, in the buckets'
				    * order, so that stages of different buckets can be under way at once */
	collet_ddp_bucket bucket;
	uint32_t index;              /* the bucket's number */
	uint64_t step;               /* synchronised steps before this one: the same on every rank */
	const char *algorithm;       /* collet_ddp_options.algorithm */
} collet_ddp_hook_args;

/* A way to travel. A bucket goes through its stages in order; each reads what the one before has brought and starts at
 * most one collective. All functions are called by the thread that calls the collet_ddp; the same sequence on every
 * rank. A failure ends the step with that status. */
typedef struct collet_ddp_hook {
	const char *name;
	uint32_t stages;             /* 1 .. COLLET_DDP_STAGES_MAX */
	void *context;               /* the hook's own */
	/* Before a bucket's first stage: memory, state. COLLET_ERR_UNSUPPORTED: not for this dtype. */
	collet_status (*open)(const struct collet_ddp_hook *hook, const collet_ddp_hook_args *args, void **state);
	/* Starts stage 0, 1, ... with collet_how.request = request, over task->comms[stage]; may leave *request NULL.
	 */
	collet_status (*start)(void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request);
	/* After the last stage: the bucket's gradients become the average over collet_comm_size() ranks, the same bits
	 * on every rank; elements between slices zero. */
	collet_status (*finish)(void *state, const collet_ddp_hook_args *args);
	void (*close)(void *state);
	/* What the state remembers from step to step, for collet_ddp_state_save(): so many bytes, the same for the same
	 * bucket whatever has happened. load() is given what save() has written for this bucket on the same rank of as
	 * many. All three NULL: nothing is remembered. */
	uint64_t (*saved_bytes)(const void *state, const collet_ddp_hook_args *args);
	void (*save)(const void *state, const collet_ddp_hook_args *args, void *saved);
	void (*load)(void *state, const collet_ddp_hook_args *args, const void *saved);
} collet_ddp_hook;

/* Makes a hook from its words. f32 gradients only, unless said. n: ranks; "wire": bytes each rank sends per element of
 * 4 bytes, against 8 (n-1)/n of an all-reduce. Error feedback: what a rank's message leaves out is added to its next
 * step's gradient (Seide et al. 2014; Karimireddy et al., "Error Feedback Fixes SignSGD", 2019).
 *
 * "f16", "bf16": rounded to 16 bits, averaged so. Wire: half. Cost: two passes over the bucket.
 *
 * "topk:R": the R (0 < R <= 1) share of largest magnitude of each bucket, as an all-gather of index and value; error
 * feedback. Wire: 8 R (n-1) bytes. Cost: a selection and n R additions an element. (Aji and Heafield, "Sparse
 * Communication for Distributed Gradient Descent", 2017.)
 *
 * "randomk:R": a share R, drawn from seed and step, the same on every rank, so that values alone travel, by all-reduce;
 * error feedback. Parameters of one dimension (biases, batch norm) travel whole. Wire: R. (Stich et al., "Sparsified
 * SGD with Memory", 2018.)
 *
 * "qsgd:B": B = 8, 4 or 2 bits an element and a scale every 512 (the largest magnitude; of 2 bits, which are -s, 0 and
 * s, the mean one): rounded up or down at random so that it is right in the mean; error feedback for 4 and 2 bits.
 * Codes do not add: an all-to-all brings each rank its share of everybody's, which it decodes, averages and encodes
 * again for an all-gather. Wire: (B + 1/16) / 32. (Alistarh et al., "QSGD", 2017.)
 *
 * "sign": one bit an element, and a mean magnitude every 512 elements; the same way; error feedback. Wire: (1 + 1/16) /
 * 32. (Seide et al., "1-Bit Stochastic Gradient Descent", 2014.)
 *
 * "powersgd:K": matrices (dimension 0 against the others) as a product of rank K, warm started; error feedback; what
 * would not get smaller travels as it is. Two all-reduces. Wire: K (rows + columns) / (rows columns) a matrix. Cost: 3
 * products and an orthogonalisation. (Vogels et al., "PowerSGD", 2019.)
 *
 * Any of them with ",momentum:M" behind it ("sign,momentum:0.9", 0 <= M < 1; f32 only): each rank's velocity = M
 * velocity + gradient travels instead of its gradients, for an optimiser without momentum of its own. What comes late
 * by error feedback then does less harm. Cost: another pass, another copy of the gradients. (Lin et al., "Deep Gradient
 * Compression", 2018, momentum correction.)
 *
 * COLLET_ERR_ARGUMENT: none of these words, or a number out of range. COLLET_ERR_MEMORY. */
COLLET_API COLLET_MUST_USE collet_status collet_ddp_hook_create(
	collet_ddp_hook **hook, const char *spec, uint64_t seed);
/* After the collet_ddp that uses it. Sets *hook to NULL; NULL or *hook == NULL: COLLET_ERR_ARGUMENT. */
COLLET_API collet_status collet_ddp_hook_destroy(collet_ddp_hook **hook);

#ifdef __cplusplus
}
#endif
#endif
