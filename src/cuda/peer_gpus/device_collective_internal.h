/* What the files device_collective*.c share. */
#ifndef COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_INTERNAL_H
#define COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_INTERNAL_H

#include <stdatomic.h>

#include "api/call.h"
#include "cuda/gpu_context.h"
#include "cuda/peer_gpus/device_collective.h"
#include "cuda/peer_gpus/device_comm.h"
#include "engine/progress_hook.h"
#include "engine/recorder.h"

/* One buffer of a call. */
struct devcoll_buffer {
	char *first;
	size_t bytes;   /* 0 if this rank does not use it */
	bool is_staged; /* the GPU cannot access it; page-locked memory replaces it */
	const struct collet_copy_stream
		*copy_stream; /* if is_staged: of the GPU that has it; NULL if it is in host memory */
	char *pinned;
	cu_pointer device_address; /* by which the kernel accesses it */
};

struct devcoll_part {
	size_t offset, bytes;
};

/* A call that is pending, or whose memory a stream may use. */
struct devcoll {
	struct devcoll *next;
	struct collet_device_collectives *owner;
	struct collet_request *request; /* NULL if it is on a stream or has ended */
	struct collet_devcoll_call call;
	struct collet_device_plan *plan;
	uint64_t ticket;   /* 0 if it is on a stream or has not been launched */
	uint64_t sequence; /* its number among the calls of each rank (cuda/peer_gpus/co_resident.h) */
	struct devcoll_buffer buffers[COLLET_USER_BUFFERS];
	struct collet_pinned_block *blocks[COLLET_USER_BUFFERS];
	struct devcoll_part *parts; /* the parts that are written, of v-forms; NULL if all of it is */
	uint32_t part_count;
	bool is_captured; /* by a graph: it stays until the communicator is destroyed */
	bool is_leaked;   /* likewise: the driver failed twice, and nothing tells that the stream has passed it */
	atomic_bool is_released; /* set by the stream, which uses nothing of it any more */
};

/* The device collectives of a communicator. */
struct collet_device_collectives {
	collet_comm *comm;
	struct collet_context *context; /* outlives the communicator if streams have not passed its calls */
	struct collet_device_collectives *next_leaked; /* in the context's list of these */
	struct collet_progress_hook hook;
	struct collet_device_comm *device_comm;
	struct collet_co_resident *co_resident; /* NULL if no ranks share a GPU */
	/* A leader executes larger calls. On streams, its calls are ordered by when streams reach them, and device
	 * collectives by when they are made. So the order between the two kinds is unknown, and device collectives have
	 * numbers of their own. */
	bool has_leader;
	struct collet_choice_inputs inputs; /* of the choice of an algorithm for these calls */
	struct collet_choice_table table;
	struct collet_recorder out_of_band_recorder; /* of these calls, by their own numbers; if has_leader */
	uint64_t last_ticket;                        /* handed out so far */
	bool has_asked;                              /* other ranks what they have called; under the engine's lock */
	uint32_t poll_count;                         /* polls of pending calls; likewise */
	struct devcoll *pending, **last;  /* requests, in order; under the engine's lock */
	struct devcoll *unreleased;       /* calls on streams, which may use their memory */
};

/* ---- device_collective.c */
/* Starts the request as the next call of the communicator, or, with a leader, as its next device collective. number is
 * what collet_co_resident_count_call() has returned, if that was called. Under the engine's lock. */
void devcoll_begin(struct collet_device_collectives *devcolls, struct collet_request *request, uint64_t number);

/* ---- device_collective_request.c */
extern const struct collet_progress_hook_ops devcoll_hooks;
/* Runs a call whose plan and buffers are set. *consumed: this function owns devcoll and request now. */
collet_status devcoll_run_request(struct collet_device_collectives *devcolls, struct devcoll *devcoll,
	struct collet_request *request, const collet_how *how, bool *consumed);
/* Launches all calls that wait for their turn. */
void devcoll_launch_all(struct collet_device_collectives *devcolls);

/* ---- device_collective_stream.c */
/* Makes the device communicator's context current until leave; registering memory invalidates no capture meanwhile.
 * stream is NULL for calls on none. */
struct devcoll_scope {
	const struct collet_cuda *cuda;
	struct collet_launch_target target;
	int capture_mode; /* the thread's capture mode before */
};
collet_status devcoll_enter(struct collet_device_collectives *devcolls, void *stream, struct devcoll_scope *scope);
void devcoll_leave(struct devcoll_scope *scope);
/* Enqueues a call on its stream. Takes ownership of devcoll and request. */
collet_status devcoll_run_on_stream(struct collet_device_collectives *devcolls, struct devcoll *devcoll,
	struct collet_request *request, const struct devcoll_scope *scope);
/* Frees the calls that streams have passed, but not those of graphs. all: frees every call; nothing runs then. */
void devcoll_reap(struct collet_device_collectives *devcolls, bool all);
void devcoll_await_release(struct collet_device_collectives *devcolls, struct devcoll *devcoll);

/* ---- device_collective_buffers.c */
/* Finds where the buffers are, and stages those that the GPU cannot access. The context of the device communicator is
 * current. */
collet_status devcoll_find_buffers(
	struct devcoll *devcoll, const char *function, const struct collet_user_buffer buffers[COLLET_USER_BUFFERS]);
/* Restricts what is written to the result's blocks. COLLET_ERR_MEMORY. */
collet_status devcoll_set_parts(
	struct devcoll *devcoll, size_t element_bytes, uint32_t size, const struct collet_partition *partition);
bool devcoll_is_staged(const struct devcoll *devcoll);
/* Copies now, and waits. */
collet_status devcoll_copy_in(const struct devcoll *devcoll);
collet_status devcoll_copy_out(const struct devcoll *devcoll);
/* Enqueues the copies on a stream whose context is current. */
collet_status devcoll_enqueue_copy_in(struct devcoll *devcoll, cu_stream stream);
collet_status devcoll_enqueue_copy_out(struct devcoll *devcoll, cu_stream stream);
/* Enqueues the release of a call of which the driver has refused a part. */
collet_status devcoll_enqueue_release(struct devcoll *devcoll, cu_stream stream);
/* Frees a call whose memory nothing uses. */
void devcoll_free(struct devcoll *devcoll);

#endif
