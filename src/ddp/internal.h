/* The state of a collet_ddp. bucket_layout.c cuts parameters into buckets, bucket_exchange.c moves a bucket through its
 * hook's stages, training_step.c has ready(), wait() and join(), ddp.c the rest. */
#ifndef COLLET_DDP_INTERNAL_H
#define COLLET_DDP_INTERNAL_H

#include <collet/ddp_hook.h>

struct bucket {
	void *memory;               /* from collet_mem_alloc() */
	uint64_t bytes;
	collet_dtype dtype;
	uint32_t first_slice, slice_count;  /* in collet_ddp.slices */
	uint32_t unready_count;     /* gradients not ready in this step */
	collet_ddp_hook_args hook_args; /* arguments of the hook */
	void *state;                /* belongs to the hook */
	bool is_open;               /* the hook has made a state */
	bool is_done;               /* its exchange in this step has ended */
	uint32_t next_stage;        /* the stage to start next */
	collet_request *request;    /* of the stage in progress */
	collet_ddp_interval interval;
};

struct parameter_state {
	uint32_t bucket;
	uint64_t offset;            /* bytes */
	bool is_ready;              /* marked since the last wait() */
	bool is_used;               /* marked since the last synchronised step, on this rank */
	bool is_never_used;         /* COLLET_DDP_STATIC_UNUSED: this rank never uses it */
};

struct collet_ddp {
	collet_comm *comm;
	collet_comm *stage_comms[COLLET_DDP_STAGES_MAX]; /* splits of comm, one per stage of the hook */
	/* Another split, for collectives whose order must not depend on buckets; NULL if there are none. */
	collet_comm *control_comm;
	char *algorithm;
	collet_ddp_options options; /* without its pointers to parameters */

	collet_ddp_parameter *parameters;  /* shapes and names are copies */
	uint32_t parameter_count, buffer_count;  /* buffers follow the parameters */
	uint64_t (*shapes)[COLLET_DDP_DIMENSIONS_MAX];
	struct parameter_state *parameter_states; /* one per parameter */

	/* The layout. */
	struct bucket *buckets;
	uint32_t bucket_count;
	collet_ddp_slice *slices;   /* in the order of buckets */
	uint32_t layout_changes;    /* number of changes */
	bool is_layout_final;       /* no more changes follow */
	/* Until then: parameters in the order in which they became ready in the first synchronised step. */
	uint32_t *order;
	uint32_t order_count;

	/* A step. */
	const collet_ddp_hook *hook;
	bool is_sync, is_in_step;   /* is_in_step: a gradient was marked since the last wait() */
	bool has_sync_begun;        /* the synchronised step has begun */
	bool failed;                /* an exchange has failed: gradients are undefined */
	uint32_t started_count;     /* started in this step: always the first ones */
	uint32_t stage_next_bucket[COLLET_DDP_STAGES_MAX]; /* by stage: the bucket to start next */
	uint64_t step;
	collet_request **wait_requests; /* room for one per bucket */

	/* Unused parameters, uneven input, buffers. */
	uint8_t *any_rank_used;     /* used by any rank in the last synchronised step */
	collet_request *used_request;
	uint8_t *active;            /* by rank: it has input; this rank's own is sent from own_active */
	uint8_t own_active;
	collet_request *active_request;
	uint32_t source_rank;       /* the lowest rank that took the last step, or COLLET_DDP_NO_RANK */
	unsigned char *packed_buffers; /* buffers, packed without gaps */
	uint64_t packed_bytes;
};
#define COLLET_DDP_NO_RANK UINT32_MAX

/* ---- training_step.c ---- */

/* Returns COLLET_ERR_ARGUMENT, naming this function, if a step is in progress or ddp is NULL. */
collet_status collet_ddp_check_between_steps(const collet_ddp *ddp, const char *function);

extern const collet_ddp_hook collet_ddp_hook_average;

/* ---- ddp.c ---- */

/* Broadcasts the values of the first `count` parameters (then buffers) of rank `from` to every rank. */
collet_status collet_ddp_broadcast_values(const collet_ddp *ddp, collet_comm *comm, uint32_t count, uint32_t from);

/* ---- bucket_layout.c ---- */

/* Cuts the parameters, in this order (NULL: last to first), into buckets, and allocates their memory.
 * COLLET_ERR_MEMORY: nothing changed. */
collet_status collet_ddp_layout_create(collet_ddp *ddp, const uint32_t *order);
/* Replaces the layout by a new one and moves the gradients. */
collet_status collet_ddp_layout_replace(collet_ddp *ddp, const uint32_t *order);
/* Closes the hook's states. No exchange may be in progress. */
void collet_ddp_close_buckets(collet_ddp *ddp);
/* Closes the hook's states and frees the buckets. */
void collet_ddp_layout_free(collet_ddp *ddp);

static inline void *collet_ddp_gradient_at(const collet_ddp *ddp, const struct parameter_state *parameter_state)
{
	char *memory = ddp->buckets[parameter_state->bucket].memory;
	return memory ? memory + parameter_state->offset : NULL;
}

/* ---- bucket_exchange.c ---- */

/* Starts the buckets that are complete and next in order, and advances all without blocking. */
collet_status collet_ddp_progress(collet_ddp *ddp);
/* Makes the hook's state of the bucket, unless it exists. */
collet_status collet_ddp_open_bucket(const collet_ddp *ddp, struct bucket *bucket);
/* Blocks until every bucket's exchange has ended. */
collet_status collet_ddp_progress_all(collet_ddp *ddp);
/* Blocks until all exchanges in progress have ended, with any status, so that the caller's memory is not used any
 * more. */
collet_status collet_ddp_drain(collet_ddp *ddp);

/* ---- float_arrays.c: arrays of any float dtype ---- */

void collet_ddp_scale(void *elements, uint64_t count, collet_dtype dtype, double factor);
/* Returns the sum of squares in f64, block by block in order. It depends on the elements alone. */
double collet_ddp_sum_of_squares(const void *elements, uint64_t count, collet_dtype dtype);

#endif
