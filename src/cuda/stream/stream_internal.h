/* The streams of one communicator, for the files that know what is in it. */
#ifndef COLLET_CUDA_STREAM_STREAM_INTERNAL_H
#define COLLET_CUDA_STREAM_STREAM_INTERNAL_H

#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/stream/stream_call.h"

/* What a stream and the host tell each other, in page-locked memory. */
struct collet_words {
	_Atomic uint32_t done;       /* by the host: the call has ended, however it has; of calls that have
	                                a word of the GPU's, that one is used in its place */
	_Atomic uint32_t passed;     /* by the stream: it uses nothing of the call any more */
};

/* A call on a stream. */
struct collet_streamed {
	struct collet_streams *streams;
	struct collet_streamed *next;/* in whichever list it is */
	const char *function;        /* for sentences; static */
	const struct collet_copier *copier;  /* of its stream's context */
	struct collet_staged *staged;/* the stream copies to and from it; NULL: it copies nothing */
	bool offered; /* the leader is offered sides, once it has rung (see cuda/shared_gpu/shared_gpu.h) */
	struct collet_direct_sides sides; /* else only where the caller's buffers are */
	struct collet_request *request; /* a collective's, from the beginning; a message's, while it is under way */
	struct collet_half halves[2];/* messages: half_count of them */
	uint32_t half_count;
	collet_dtype dtype;
	int64_t timeout_ns;
	uint64_t capture;            /* it belongs to a graph; 0: it does not */
	bool lost;                   /* the driver failed twice: nobody will say that the stream has passed, and what
	                                it uses is never freed, but for a graph's */
	struct collet_words *words;
	struct collet_order_word word;       /* that ranks who share a GPU may have the GPU set (see
	                                        cuda/shared_gpu/completion_flags.h) */
	_Atomic uint32_t *done_word; /* words->done, or word's */
	cu_pointer done, passed;     /* where the GPU has them */
	/* The thread's own. */
	bool active;                 /* in its list */
	bool ordered;                /* the GPU is at it, and sets done; */
	int64_t until;               /* by then, or it takes too long */
	unsigned launch;             /* how often it had rung when it was started */

	atomic_uint rings;           /* so far */
	int64_t rung_ns;             /* when; before rung */
	atomic_bool rung;            /* set by the stream (release), taken back by the thread */
};

/* The calls of one capture, which start in its order, round and round. */
struct collet_captured {
	struct collet_captured *next;
	uint64_t id;
	struct collet_streamed **calls;
	size_t count, capacity;
	size_t turn;                 /* whose it is */
};

struct collet_words_block {
	struct collet_words_block *next;
	struct collet_pinned *memory;
	cu_pointer gpu;
	size_t used;
};

struct collet_streams {
	struct collet_streams *next_in_context;
	collet_comm *comm;
	struct collet_engine *engine;
	pthread_t thread;
	int ring_fd;                 /* an event, for the thread's sleep where it does not wait in the engine */
	atomic_uint rings;           /* so far */
	atomic_bool in_engine;       /* the thread waits there */
	atomic_bool closing;         /* nothing starts any more: whoever rings lets itself go */
	atomic_bool stop;            /* the thread is to end */
	atomic_uint unstarted;       /* calls made and not started, those of graphs aside */
	atomic_uint waiters;         /* threads that wait for that */

	pthread_mutex_t lock;        /* of the lists; taken after the engine's */
	struct collet_streamed *first, **last; /* made and not started, in order */
	struct collet_captured *captured;
	struct collet_streamed *passing; /* ended; their streams may not have passed them */

	/* The thread's own. */
	struct collet_streamed *active; /* started */
	unsigned rings_seen;
	int64_t held_until; /* calls have rung and wait for others before them: the first of their deadlines, */
	const char *held;            /* and whose that is; 0: none does */
	int64_t look_ns;             /* when to look at calls that the GPU is at; 0: there are none */

	/* The caller's own (whoever is inside the communicator). */
	size_t under_way;            /* calls not of graphs that streams may not have passed */
	bool holds;                  /* what is open of other processes (see cuda/driver/ipc.h) */
	struct collet_streamed *free;
	struct collet_words_block *blocks;
};

/* ---- stream_thread.c */
/* The function of the host that a stream calls; data: a collet_streamed. */
void collet_streams_ring(void *data);

/* The communicator's, made with its thread when they are first asked for. */
collet_status collet_streams_get(collet_comm *comm, struct collet_streams **streams);

/* Ends the thread, when all that was active has been torn down. */
void collet_streams_stop(struct collet_streams *streams);

/* ---- stream_call.c */
/* A call with words, and nothing else in it. copier: in whose context words are page-locked. */
collet_status collet_streamed_new(
	struct collet_streams *streams, const struct collet_copier *copier, struct collet_streamed **call);
/* Nothing of it is on a stream. */
void collet_streamed_free(struct collet_streamed *call);
/* What streams have passed is free again. */
void collet_streams_reap(struct collet_streams *streams);

/* ---- stream_completion.c: the thread's, under the engine's lock. */
/* The call's request has ended, and the GPU is at it: it sets `done` itself. */
void collet_streamed_order(struct collet_streamed *call);
/* Is it time to look? */
bool collet_streams_are_due(const struct collet_streams *streams);
/* Of calls that the GPU is at: when the communicator has ended their streams go on, and that they take too long ends
 * it. */
void collet_streams_look(struct collet_streams *streams, bool ended);

/* ---- stream_start_order.c */
/* It is next in the order, or in its capture's; COLLET_ERR_MEMORY. withdraw: it was the last that was added, it has not
 * rung, and it never will. */
collet_status collet_streamed_add(struct collet_streamed *call);
void collet_streamed_withdraw(struct collet_streamed *call);
/* Out of the order, but its memory may be in use by the stream. */
void collet_streamed_let_pass(struct collet_streamed *call);
/* May some stream of the context still use what is there? Under the engine's lock. */
bool collet_streams_use(const struct collet_context *context, const void *first, size_t bytes);
/* The next call that may start, and has not rung any more; ended: in whatever order. NULL: there is none; then the
 * streams' held says which others hold up. The thread's. */
struct collet_streamed *collet_streams_take(struct collet_streams *streams, bool ended);

#endif
