/* What carries the bytes of a call on GPU memory from there and to there while the call runs. Each kind of call that is
 * not just copied before and after has one, which is a row of the table in gpu_staging.c:
 *
 *   reached   a large collective that only moves: transports do, from and to the GPU's memory
 *   piped     any large collective: by host memory as large as the buffers, cell by cell
 *   bounced   a message that is long: by a few cells of host memory, used round and round
 *
 * A row answers what gpu_staging.c asks of it, in this order: is it for this call, how much of the host's memory does
 * it need, what is its request started with (made), would it rather not (plan), and how does it rest and go. */
#ifndef COLLET_CUDA_STAGING_STAGING_METHOD_H
#define COLLET_CUDA_STAGING_STAGING_METHOD_H

#include "cuda/staging/gpu_staging.h"

struct collet_bounce_buffer;

/* Bytes of a buffer. */
struct collet_part {
	size_t offset, bytes;
};

struct collet_staged_side {
	struct collet_copier *copier; /* NULL: it is the host's, or not there; nothing is carried */
	char *gpu, *host;             /* host: what stands for it */
	size_t bytes;
	uint64_t allocation;          /* that gpu is in: the driver's number */
};

/* What is to be carried; at least one side is a GPU's. */
struct collet_load {
	struct collet_context *context;
	enum collet_staging staging;
	struct collet_staged_side sides[COLLET_SIDES];
};

/* The carrier's, for one call, with what it needs itself behind this. */
struct collet_carried {
	struct collet_pipeline *flow;                /* of both sides; or NULL, and then */
	struct collet_bounce_buffer *bounces[COLLET_SIDES]; /* of each that is carried: NULL, it is copied before and
	                                                       after */
};

struct collet_carrier {
	/* Is it for this call? The sides' hosts are not there yet. */
	bool (*takes)(const struct collet_load *load);
	/* No memory of the host's stands for the sides: the request has the GPU's addresses. */
	bool leaves;
	/* Else, how much a side that is a GPU's needs. NULL: as much as it has. */
	size_t (*host_bytes)(const struct collet_staged_side *side);
	/* Nothing is copied yet. COLLET_ERR_*: nothing has happened. May take the engine's lock, for messages. */
	collet_status (*make)(const struct collet_load *load, struct collet_carried **carried);
	/* The request has been planned, and is not started yet. *declines: it is for the next row that takes it, and
	 * nothing has happened. COLLET_ERR_MEMORY. NULL: it need not know. */
	collet_status (*plan)(struct collet_carried *carried, const struct collet_request *request, bool *declines);
	/* Of what is written these parts alone are to be taken; they stay the caller's. NULL: it takes no others. */
	void (*take_parts)(struct collet_carried *carried, const struct collet_part *parts, size_t count);
	/* The request does not run, and may not for long: what streams it has are others' until it does. Under the
	 * engine's lock; safe to repeat. */
	void (*rest)(struct collet_carried *carried);
	/* Its request is over. Waits for copies that are under way. false: as of collet_pipe_give(), of the host's
	 * memory that stands for the sides. */
	bool (*free)(struct collet_carried *carried);
};

static inline bool collet_load_is_message(const struct collet_load *load)
{
	return load->staging == COLLET_STAGED_BOUNCES || load->staging == COLLET_STAGED_PULLED;
}

#endif
