/* Shared by the files of allreduce on GPUs. allreduce_device.c lays out buckets and takes steps. _reduce.c averages
 * buckets in GPU memory. _hook.c lets a hook of collet_ddp do it in host memory. */
#ifndef TRAIN_ALLREDUCE_DEVICE_H
#define TRAIN_ALLREDUCE_DEVICE_H

#include <collet/ddp.h>
#include <collet/ddp_hook.h>

#include "cuda/network.h"
#include "strategies/strategy.h"

struct bucket {
	float *gradients;          /* of the GPU */
	uint64_t count;
	uint32_t parameter_count, missing;
	void *narrow;              /* of the GPU: what is sent, if it has 16 bits; else NULL */
	float *host;               /* of the host, page-locked where it can be; only with a hook */
	bool locked;
	gpu_event complete;        /* on the computing stream */
	gpu_event began, ended;    /* on the side stream, timed */
	collet_request *request;
	struct transfer transfer;
};

struct shards;

struct device_allreduce {
	struct trainer *trainer;
	void *memory;              /* of all buckets */
	uint32_t bucket_count, complete, started, done;  /* in this step, as many of the first ones */
	struct bucket buckets[MODEL_PARAMETERS];
	uint32_t bucket_of[MODEL_PARAMETERS];
	collet_dtype dtype;        /* of gradients on the wire */
	bool streams;              /* the library takes calls on a stream */
	bool staged;               /* the next batch is on its way to the GPU */
	gpu_event step_began, computed;  /* timed */
	struct shards *shards;     /* with --shards only */
	collet_ddp *ddp;           /* with a hook only, and its buckets are the host's */
	collet_ddp_hook *hook;
};

/* All false after a line on standard error. */

/* Collective. Whether the library takes calls on a stream. */
bool device_reduce_init(struct device_allreduce *state);
/* Runs once all of the next bucket's gradients are enqueued on the computing stream. */
bool device_reduce_mark(struct device_allreduce *state, struct bucket *bucket);
/* Averages all buckets while backward runs. Every gradient is then the average for later work on the computing
 * stream. The timeline gets the times. */
bool device_reduce(struct device_allreduce *state);

/* The same with a hook. init() takes a ddp that was created with the hook. */
bool device_hook_init(struct device_allreduce *state);
void device_hook_deinit(struct device_allreduce *state);
bool device_hook_mark(struct device_allreduce *state, struct bucket *bucket);
bool device_hook_reduce(struct device_allreduce *state);

/* Calls poll() again and again while the GPU computes. */
bool device_while_computing(struct device_allreduce *state, bool (*poll)(struct device_allreduce *state));

#endif
