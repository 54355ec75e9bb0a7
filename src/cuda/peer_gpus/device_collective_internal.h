/* What device_collective.c and device_collective_buffers.c know of each other. */
#ifndef COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_INTERNAL_H
#define COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_INTERNAL_H

#include <stdatomic.h>

#include "api/call.h"
#include "cuda/gpu_context.h"
#include "cuda/peer_gpus/device_collective.h"
#include "cuda/peer_gpus/device_comm.h"
#include "engine/progress_hook.h"
#include "engine/recorder.h"

/* A buffer of a call. */
struct devcoll_buffer {
	char *first;
	size_t bytes;                       /* 0: the rank does not use it */
	bool is_staged;                     /* the GPU does not reach it: `pinned` stands for it */
	const struct collet_copy_stream *copy_stream; /* away: another GPU's; NULL: the host's */
	char *pinned;
	cu_pointer device_address; /* where the kernel has it */
};

struct devcoll_part {
	size_t offset, bytes;
};

/* A call of which something is left to be done, or kept. */
struct devcoll {
	struct devcoll *next;
	struct collet_device_collectives *owner;
	struct collet_request *request; /* NULL: it is on a stream, or has ended */
	struct collet_devcoll_call call;
	struct collet_device_plan *plan;
	uint64_t ticket; /* 0: it is on a stream, or has not been launched */
	uint64_t sequence; /* among those that this rank, and all others, has made; see cuda/peer_gpus/co_resident.h */
	struct devcoll_buffer buffers[COLLET_USER_BUFFERS];
	struct collet_pinned_block *blocks[COLLET_USER_BUFFERS];
	struct devcoll_part *parts;  /* of what is written, v-forms; NULL: all of it is */
	uint32_t part_count;
	bool is_captured;   /* it stays */
	bool is_leaked;     /* likewise: the driver failed twice, and nobody will say that the stream has passed */
	atomic_bool is_released; /* by the stream, which uses nothing of it any more */
};

/* A communicator's. */
struct collet_device_collectives {
	collet_comm *comm;
	struct collet_context *context; /* which outlives it where streams have not passed, */
	struct collet_device_collectives *next_leaked; /* and has this then */
	struct collet_progress_hook hook;
	struct collet_device_comm *device_comm;
	struct collet_co_resident *co_resident; /* NULL: no ranks share a GPU */
	/* A leader does larger calls. Of those that are ranged by when their streams come to them nobody knows how they
	 * lie among these, which are by when they are made: so these have no number in the communicator, but among
	 * themselves. */
	bool has_leader;
	struct collet_choice_inputs inputs; /* what calls that are done here are chosen by */
	struct collet_choice_table table;
	struct collet_recorder out_of_band_recorder; /* of these, by their own numbers; where there is a leader */
	uint64_t last_ticket;		  /* given out */
	bool has_asked;			  /* who disagrees; under the engine's lock */
	uint32_t poll_count;			  /* at what is pending; likewise */
	struct devcoll *pending, **last;  /* requests, in order; under the engine's lock */
	struct devcoll *unreleased;       /* of streams, whose memory they may use */
};

/* ---- device_collective.c */
/* It has its place among the communicator's calls, or its own; number: what collet_co_resident_count_call() has given
 * it, if there is that. Under the engine's lock. */
void devcoll_begin(struct collet_device_collectives *devcolls, struct collet_request *request, uint64_t number);

/* ---- device_collective_request.c */
extern const struct collet_progress_hooks devcoll_hooks;
/* Its call, tape and sides are there. *followed: it has taken both over. */
collet_status devcoll_run_request(struct collet_device_collectives *devcolls, struct devcoll *devcoll,
	struct collet_request *request, const collet_how *how, bool *consumed);
/* Whatever waits for its turn does so no more. */
void devcoll_launch_all(struct collet_device_collectives *devcolls);

/* ---- device_collective_stream.c */
/* Where a call is made: the executor's context is the thread's until it leaves, and what is made meanwhile spoils
 * nobody's capture. stream NULL: on none. */
struct devcoll_scope {
	const struct collet_cuda *cuda;
	struct collet_launch_target target;
	int capture_mode; /* the thread's, of capturing, before */
};
collet_status devcoll_enter(struct collet_device_collectives *devcolls, void *stream, struct devcoll_scope *scope);
void devcoll_leave(struct devcoll_scope *scope);
/* Takes both over. */
collet_status devcoll_run_on_stream(struct collet_device_collectives *devcolls, struct devcoll *devcoll,
	struct collet_request *request, const struct devcoll_scope *scope);
/* The memory of what streams have passed, of which graphs' stays until the end; all: this is it, and nothing runs. */
void devcoll_reap(struct collet_device_collectives *devcolls, bool all);
void devcoll_keep(struct collet_device_collectives *devcolls, struct devcoll *devcoll);

/* ---- device_collective_buffers.c */
/* Where the buffers are; those away get page-locked memory. In the executor's context. */
collet_status devcoll_find_buffers(
	struct devcoll *devcoll, const char *function, const struct collet_user_buffer buffers[COLLET_USER_BUFFERS]);
/* The result's blocks alone are written. COLLET_ERR_MEMORY. */
collet_status devcoll_set_parts(
	struct devcoll *devcoll, size_t element_bytes, uint32_t size, const struct collet_partition *cut);
bool devcoll_is_staged(const struct devcoll *devcoll);
/* At once. */
collet_status devcoll_copy_in(const struct devcoll *devcoll);
collet_status devcoll_copy_out(const struct devcoll *devcoll);
/* By a stream, whose context is current. */
collet_status devcoll_enqueue_copy_in(struct devcoll *devcoll, cu_stream stream);
collet_status devcoll_enqueue_copy_out(struct devcoll *devcoll, cu_stream stream);
/* In place of the rest, which the driver has refused: that the stream has passed what it has. */
collet_status devcoll_enqueue_release(struct devcoll *devcoll, cu_stream stream);
/* Nothing uses its memory any more. */
void devcoll_free(struct devcoll *devcoll);

#endif
