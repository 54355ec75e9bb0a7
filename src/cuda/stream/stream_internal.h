/* The streams of one communicator, for the files that know what is in it. */
#ifndef COLLET_CUDA_STREAM_STREAM_INTERNAL_H
#define COLLET_CUDA_STREAM_STREAM_INTERNAL_H

#include "cuda/gpu_context.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/stream/stream_call.h"

/* What a stream and the host tell each other, in page-locked memory. */
struct collet_stream_flags {
	_Atomic uint32_t done;       /* by the host: the call has ended, however it has; of calls that have
	                                a word of the GPU's, that one is used in its place */
	_Atomic uint32_t released;   /* by the stream: it uses nothing of the call any more */
};

/* A call on a stream. */
struct collet_stream_call {
	struct collet_streams *streams;
	struct collet_stream_call *next;/* in whichever list it is */
	const char *function;        /* for sentences; static */
	const struct collet_copy_stream *copy_stream; /* of its stream's context */
	struct collet_gpu_staging *staging;/* the stream copies to and from it; NULL: it copies nothing */
	bool is_for_leader; /* the leader is offered sides, once it has rung (see cuda/shared_gpu/shared_gpu.h) */
	struct collet_call_buffers gpu_buffers; /* else only where the caller's buffers are */
	struct collet_request *request; /* a collective's, from the beginning; a message's, while it is under way */
	struct collet_p2p_op ops[2];/* messages: half_count of them */
	uint32_t op_count;
	collet_dtype dtype;
	int64_t timeout_ns;
	uint64_t capture;            /* it belongs to a graph; 0: it does not */
	bool is_leaked;              /* the driver failed twice: nobody will say that the stream has passed, and what
	                                it uses is never freed, but for a graph's */
	struct collet_stream_flags *flags;
	struct collet_completion_flag completion_flag; /* that ranks who share a GPU may have the GPU set (see
	                                        cuda/shared_gpu/completion_flags.h) */
	_Atomic uint32_t *done_flag; /* words->done, or word's */
	cu_pointer done, released;   /* where the GPU has them */
	/* The thread's own. */
	bool is_active;              /* in its list */
	bool is_on_gpu;              /* the GPU is at it, and sets done; */
	int64_t deadline;            /* by then, or it takes too long */
	unsigned started_doorbells;  /* how often it had rung when it was started */

	atomic_uint doorbells;       /* so far */
	int64_t rung_ns;             /* when; before rung */
	atomic_bool rung;            /* set by the stream (release), taken back by the thread */
};

/* The calls of one capture, which start in its order, round and round. */
struct collet_captured_calls {
	struct collet_captured_calls *next;
	uint64_t id;
	struct collet_stream_call **calls;
	size_t count, capacity;
	size_t next_index;           /* whose it is */
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
	int doorbell_fd;             /* an event, for the thread's sleep where it does not wait in the engine */
	atomic_uint doorbells;       /* so far */
	atomic_bool is_in_engine;    /* the thread waits there */
	atomic_bool is_closing;      /* nothing starts any more: whoever rings lets itself go */
	atomic_bool is_stopping;     /* the thread is to end */
	atomic_uint unstarted_count; /* calls made and not started, those of graphs aside */
	atomic_uint waiter_count;    /* threads that wait for that */

	pthread_mutex_t lock;        /* of the lists; taken after the engine's */
	struct collet_stream_call *first, **last; /* made and not started, in order */
	struct collet_captured_calls *captured;
	struct collet_stream_call *unreleased; /* ended; their streams may not have passed them */

	/* The thread's own. */
	struct collet_stream_call *active; /* started */
	unsigned doorbells_seen;
	int64_t deferred_until; /* calls have rung and wait for others before them: the first of their deadlines, */
	const char *deferred_function; /* and whose that is; 0: none does */
	int64_t next_poll_ns;        /* when to look at calls that the GPU is at; 0: there are none */

	/* The caller's own (whoever is inside the communicator). */
	size_t unreleased_count;     /* calls not of graphs that streams may not have passed */
	bool has_ipc_hold;           /* what is open of other processes (see cuda/driver/ipc.h) */
	struct collet_stream_call *free;
	struct collet_stream_flags_block *blocks;
};

/* ---- stream_thread.c */
/* The function of the host that a stream calls; data: a collet_stream_call. */
void collet_streams_ring_doorbell(void *data);

/* The communicator's, made with its thread when they are first asked for. */
collet_status collet_streams_get(collet_comm *comm, struct collet_streams **streams);

/* Ends the thread, when all that was active has been torn down. */
void collet_streams_stop(struct collet_streams *streams);

/* ---- stream_call.c */
/* A call with words, and nothing else in it. copier: in whose context words are page-locked. */
collet_status collet_stream_call_new(
	struct collet_streams *streams, const struct collet_copy_stream *copy_stream, struct collet_stream_call **call);
/* Nothing of it is on a stream. */
void collet_stream_call_free(struct collet_stream_call *call);
/* What streams have passed is free again. */
void collet_streams_reap(struct collet_streams *streams);

/* ---- stream_completion.c: the thread's, under the engine's lock. */
/* The call's request has ended, and the GPU is at it: it sets `done` itself. */
void collet_stream_call_await_gpu(struct collet_stream_call *call);
/* Is it time to look? */
bool collet_streams_poll_is_due(const struct collet_streams *streams);
/* Of calls that the GPU is at: when the communicator has ended their streams go on, and that they take too long ends
 * it. */
void collet_streams_poll_completions(struct collet_streams *streams, bool ended);

/* ---- stream_start_order.c */
/* It is next in the order, or in its capture's; COLLET_ERR_MEMORY. withdraw: it was the last that was added, it has not
 * rung, and it never will. */
collet_status collet_stream_call_add(struct collet_stream_call *call);
void collet_stream_call_withdraw(struct collet_stream_call *call);
/* Out of the order, but its memory may be in use by the stream. */
void collet_stream_call_await_release(struct collet_stream_call *call);
/* May some stream of the context still use what is there? Under the engine's lock. */
bool collet_streams_use(const struct collet_context *context, const void *first, size_t bytes);
/* The next call that may start, and has not rung any more; ended: in whatever order. NULL: there is none; then the
 * streams' held says which others hold up. The thread's. */
struct collet_stream_call *collet_streams_next(struct collet_streams *streams, bool ended);

#endif
