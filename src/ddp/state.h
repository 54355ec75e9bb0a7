/* What a collet_ddp is made of. layout.c cuts parameters into buckets, travel.c moves a bucket through its hook's
 * stages, step.c is ready(), wait() and join(), ddp.c the rest. */
#ifndef COLLET_DDP_STATE_H
#define COLLET_DDP_STATE_H

#include <collet/ddp_hook.h>

struct bucket {
	void *memory;               /* collet_mem_alloc()'s */
	uint64_t bytes;
	collet_dtype dtype;
	uint32_t first_slice, slice_count;  /* into collet_ddp.slices */
	uint32_t unready_count;     /* gradients not ready in this step */
	collet_ddp_hook_args hook_args; /* what the hook is told */
	void *state;                /* the hook's */
	bool is_open;               /* the hook has been asked for one */
	bool is_done;               /* in this step */
	uint32_t next_stage;        /* next to start */
	collet_request *request;    /* of the stage before */
	collet_ddp_interval interval;
};

struct parameter_state {
	uint32_t bucket;
	uint64_t offset;            /* bytes */
	bool is_ready;              /* since the last wait() */
	bool is_used;               /* since the last synchronised step, on this rank */
	bool is_never_used;         /* COLLET_DDP_STATIC_UNUSED: this rank never uses it */
};

struct collet_ddp {
	collet_comm *comm;
	collet_comm *stage_comms[COLLET_DDP_STAGES_MAX]; /* splits of comm, as many as the hook has stages */
	collet_comm *control_comm;  /* another: what must keep its order whatever buckets do; NULL where nothing must */
	char *algorithm;
	collet_ddp_options options; /* without its pointers to parameters */

	collet_ddp_parameter *parameters;  /* with shapes and names of this copy */
	uint32_t parameter_count, buffer_count;  /* buffers stand behind the parameters */
	uint64_t (*shapes)[COLLET_DDP_DIMENSIONS_MAX];
	struct parameter_state *parameter_states; /* one a parameter */

	/* The layout. */
	struct bucket *buckets;
	uint32_t bucket_count;
	collet_ddp_slice *slices;   /* in the order of buckets */
	uint32_t layout_changes;    /* how often it has changed */
	bool is_layout_final;       /* it does not change any more */
	uint32_t *order;            /* until then: parameters as they became ready in the first synchronised step */
	uint32_t order_count;

	/* A step. */
	const collet_ddp_hook *hook;
	bool is_sync, is_in_step;   /* within: something has been marked since the last wait() */
	bool has_sync_begun;        /* this synchronised step has begun */
	bool failed;                /* a bucket's way has ended badly: gradients are undefined */
	uint32_t started_count;     /* buckets under way in this step: always the first ones */
	uint32_t stage_next_bucket[COLLET_DDP_STAGES_MAX]; /* the bucket whose turn it is on a stage's communicator */
	uint64_t step;
	collet_request **wait_requests; /* room for one a bucket */

	/* Unused parameters, uneven input, buffers. */
	uint8_t *any_rank_used;     /* by any rank, in the last synchronised step */
	collet_request *used_request;
	uint8_t *active;            /* a rank each: it has input; this rank's own is sent from live_mine */
	uint8_t own_active;
	collet_request *active_request;
	uint32_t source_rank;       /* the lowest rank that went through the last step; COLLET_DDP_NO_RANK */
	unsigned char *packed_buffers; /* buffers one after the other */
	uint64_t packed_bytes;
};
#define COLLET_DDP_NO_RANK UINT32_MAX

/* ---- step.c ---- */

/* COLLET_ERR_ARGUMENT, in the name of this function: a step is under way, or ddp is NULL. */
collet_status collet_ddp_check_between_steps(const collet_ddp *ddp, const char *function);

extern const collet_ddp_hook collet_ddp_hook_average;

/* ---- ddp.c ---- */

/* Gives every rank the values of the first so many parameters, then buffers, of rank `from`. */
collet_status collet_ddp_broadcast_values(const collet_ddp *ddp, collet_comm *comm, uint32_t count, uint32_t from);

/* ---- layout.c ---- */

/* Cuts the parameters, taken in this order (NULL: last to first), into buckets of this ddp's sizes, with memory.
 * COLLET_ERR_MEMORY: nothing has changed. */
collet_status collet_ddp_layout_create(collet_ddp *ddp, const uint32_t *order);
/* The same again: gradients move along. */
collet_status collet_ddp_layout_replace(collet_ddp *ddp, const uint32_t *order);
/* Closes the hook's states. Nothing is under way. */
void collet_ddp_close_buckets(collet_ddp *ddp);
/* And frees the buckets. */
void collet_ddp_layout_free(collet_ddp *ddp);

static inline void *collet_ddp_gradient_at(const collet_ddp *ddp, const struct parameter_state *parameter_state)
{
	char *memory = ddp->buckets[parameter_state->bucket].memory;
	return memory ? memory + parameter_state->offset : NULL;
}

/* ---- travel.c ---- */

/* Starts the buckets that are complete and whose turn it is, and moves all as far as they go without waiting. */
collet_status collet_ddp_progress(collet_ddp *ddp);
/* Asks the hook for the bucket's state, unless it has one. */
collet_status collet_ddp_open_bucket(const collet_ddp *ddp, struct bucket *bucket);
/* Until every bucket is done. */
collet_status collet_ddp_progress_all(collet_ddp *ddp);
/* Waits for all that is under way, whatever becomes of it: nothing of the caller's may still be read or written. */
collet_status collet_ddp_drain(collet_ddp *ddp);

/* ---- numbers.c: arrays of any float dtype ---- */

void collet_ddp_scale(void *elements, uint64_t count, collet_dtype dtype, double factor);
/* In f64, block by block in order: depends on the elements alone. */
double collet_ddp_sum_of_squares(const void *elements, uint64_t count, collet_dtype dtype);

#endif
