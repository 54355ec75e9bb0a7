/* collet: how the buckets of data-parallel training travel. A hook replaces the all-reduce of a bucket by something
 * else that leaves (nearly) the average in it: fewer bits, fewer elements, a matrix of low rank.
 */
#ifndef COLLET_DDP_HOOK_H
#define COLLET_DDP_HOOK_H

#include <collet/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLLET_DDP_STAGES 4

/* What a hook learns of a bucket. Valid as long as the state that open() made. */
typedef struct collet_ddp_task {
	collet_comm *const *comms; /* one a stage: the collectives of a stage go over its communicator, in the buckets'
				    * order, so that stages of different buckets can be under way at once */
	collet_ddp_bucket bucket;
	uint32_t index;              /* the bucket's number */
	uint64_t step;               /* synchronised steps before this one: the same on every rank */
	const char *algorithm;       /* collet_ddp_options.algorithm */
} collet_ddp_task;

/* A way to travel. A bucket goes through its stages in order; each reads what the one before has brought and starts at
 * most one collective. All functions are called by the thread that calls the collet_ddp; the same sequence on every
 * rank. A failure ends the step with that status. */
typedef struct collet_ddp_hook {
	const char *name;
	uint32_t stages;             /* 1 .. COLLET_DDP_STAGES */
	void *context;               /* the hook's own */
	/* Before a bucket's first stage: memory, state. COLLET_ERR_UNSUPPORTED: not for this dtype. */
	collet_status (*open)(const struct collet_ddp_hook *hook, const collet_ddp_task *task, void **state);
	/* Starts stage 0, 1, ... with collet_how.request = request, over task->comms[stage]; may leave *request NULL.
	 */
	collet_status (*start)(void *state, const collet_ddp_task *task, uint32_t stage, collet_request **request);
	/* After the last stage: the bucket's gradients become the average over collet_comm_size() ranks, the same bits
	 * on every rank; elements between slices zero. */
	collet_status (*finish)(void *state, const collet_ddp_task *task);
	void (*close)(void *state);
} collet_ddp_hook;

#ifdef __cplusplus
}
#endif
#endif
