/* Keeps the calls of one communicator on streams, for the files of this folder. */
#ifndef COLLET_CUDA_STREAM_STREAM_INTERNAL_H
#define COLLET_CUDA_STREAM_STREAM_INTERNAL_H

#include "cuda/gpu_context.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/stream/stream_call.h"

/* The flags between a stream and the host, in page-locked memory. */
struct collet_stream_flags {
	/* Set by the host when the call has ended, with or without an error. If the GPU signals completion, the stream
	 * waits for its completion flag instead. */
	_Atomic uint32_t done;
	/* Set by the stream: it uses nothing of the call any more. */
	_Atomic uint32_t released;
};

/* A call on a stream. */
struct collet_stream_call {
	struct collet_streams *streams;
	struct collet_stream_call *next;              /* in whichever list it is */
	const char *function;                         /* static, for error sentences */
	const struct collet_copy_stream *copy_stream; /* of its stream's context */
	struct collet_gpu_staging *staging;           /* the stream copies to and from it; NULL if it copies nothing */
	/* The leader gets gpu_buffers when the doorbell has rung (cuda/shared_gpu/shared_gpu.h). */
	bool is_for_leader;
	/* Where the caller's buffers are; described completely only if is_for_leader. */
	struct collet_call_buffers gpu_buffers;
	struct collet_request *request; /* a collective's from the start; that of messages while they are pending */
	struct collet_p2p_op ops[2];    /* messages, op_count of them */
	uint32_t op_count;
	collet_dtype dtype;
	int64_t timeout_ns;
	uint64_t capture; /* the graph it belongs to; 0 if none */
	/* The driver failed twice: nothing will report that the stream has passed the call. What it uses is never
	 * freed, unless the call belongs to a graph. */
	bool is_leaked;
	struct collet_stream_flags *flags;
	/* The flag that ranks who share a GPU may have the GPU set (cuda/shared_gpu/completion_flags.h). */
	struct collet_completion_flag completion_flag;
	_Atomic uint32_t *done_flag; /* flags->done, or that of completion_flag */
	cu_pointer done, released;   /* the GPU's addresses of both flags */

	/* The thread's own. */
	bool is_active;             /* it is in the thread's list */
	bool is_on_gpu;             /* the GPU executes it and sets done */
	int64_t deadline;           /* of a call on the GPU */
	unsigned started_doorbells; /* its doorbells when it was started */

	atomic_uint doorbells; /* how often it has rung */
	int64_t rung_ns;       /* when it rang; written before rung */
	atomic_bool rung;      /* set by the stream (release), cleared by the thread */
};

/* The calls of one graph. They start in the order of its capture, round and round. */
struct collet_captured_calls {
	struct collet_captured_calls *next;
	uint64_t id;
	struct collet_stream_call **calls;
	size_t count, capacity;
	size_t next_index; /* the call that is next */
};

struct collet_stream_flags_block {
	struct collet_stream_flags_block *next;
	struct collet_pinned_block *memory;
	cu_pointer gpu;
	size_t used;
};

struct collet_streams {
	struct collet_streams *next_in_context;
	collet_comm *comm;
	struct collet_engine *engine;
	pthread_t thread;
	int doorbell_fd;             /* an eventfd, for the thread to sleep on when it does not wait in the engine */
	atomic_uint doorbells;       /* how often any call has rung */
	atomic_bool is_in_engine;    /* the thread waits in the engine */
	atomic_bool is_closing;      /* no call starts any more; a doorbell releases its own stream */
	atomic_bool is_stopping;     /* the thread must end */
	atomic_uint unstarted_count; /* calls made and not started, without those of graphs */
	atomic_uint waiter_count;    /* threads that wait for unstarted_count */

	pthread_mutex_t lock;                     /* of the lists; taken after the engine's lock */
	struct collet_stream_call *first, **last; /* calls made and not started, in order */
	struct collet_captured_calls *captured;
	struct collet_stream_call *unreleased; /* ended calls that their streams may still use */

	/* The thread's own. */
	struct collet_stream_call *active; /* started calls */
	unsigned doorbells_seen;
	/* The first deadline of calls that have rung and wait for others, and its function; 0 if none waits. */
	int64_t deferred_until;
	const char *deferred_function;
	int64_t next_poll_ns; /* when to poll calls on the GPU next; 0 if there are none */

	/* Of the thread inside the communicator. */
	size_t unreleased_count; /* calls, not of graphs, that streams may still use */
	bool has_eviction_pause; /* evictions from the IPC cache are paused (cuda/driver/ipc.h) */
	struct collet_stream_call *free;
	struct collet_stream_flags_block *blocks;
};

/* ---- stream_thread.c */
/* The host function that a stream calls. data is a collet_stream_call. */
void collet_streams_ring_doorbell(void *data);

/* Returns the communicator's streams. The first time, makes them and their thread. */
collet_status collet_streams_get(collet_comm *comm, struct collet_streams **streams);

/* Ends the thread, when its active calls have been torn down. */
void collet_streams_stop(struct collet_streams *streams);

/* ---- stream_call.c */
/* Makes a call that has flags and nothing else, page-locked in the context of copy_stream. */
collet_status collet_stream_call_new(
	struct collet_streams *streams, const struct collet_copy_stream *copy_stream, struct collet_stream_call **call);
/* Frees a call of which nothing is on a stream. */
void collet_stream_call_free(struct collet_stream_call *call);
/* Frees the calls that streams have passed. */
void collet_streams_reap(struct collet_streams *streams);

/* ---- stream_completion.c: called by the thread, under the engine's lock. */
/* Notes a call whose request has ended and that the GPU executes: the GPU sets `done` itself. */
void collet_stream_call_await_gpu(struct collet_stream_call *call);
/* True if it is time for collet_streams_poll_completions(). */
bool collet_streams_poll_is_due(const struct collet_streams *streams);
/* Polls calls that the GPU executes. If the communicator has ended, releases their streams; if a call takes too long,
 * ends the communicator. */
void collet_streams_poll_completions(struct collet_streams *streams, bool ended);

/* ---- stream_start_order.c */
/* Adds a call at the end of the order, or of its graph's; COLLET_ERR_MEMORY. withdraw undoes that for the call added
 * last, if it has not rung and never will. */
collet_status collet_stream_call_add(struct collet_stream_call *call);
void collet_stream_call_withdraw(struct collet_stream_call *call);
/* Adds a call to the unreleased ones: its stream may still use its memory. */
void collet_stream_call_await_release(struct collet_stream_call *call);
/* True if a stream of the context may still use this memory. Under the engine's lock. */
bool collet_streams_use(const struct collet_context *context, const void *first, size_t bytes);
/* Takes the next call that has rung and may start; if the communicator has ended, in any order. Returns NULL if there
 * is none, and sets deferred_until if calls that have rung wait for others. Called by the thread. */
struct collet_stream_call *collet_streams_next(struct collet_streams *streams, bool ended);

#endif
