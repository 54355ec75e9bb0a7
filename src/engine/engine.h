/* The engine runs step programs over transports. There is one engine per context, for all its communicators.
 *
 * Objects and their headers
 *   engine       one per context: the lock, the sleep, the control plane, every communicator state
 *   comm state   a communicator as the engine sees it: its ranks, its tasks and peer queues, and what has ended it
 *   task         an independent sequence of work items: one part of a program, or every channels-th segment of it.
 *                Task i sends on channel i, so tasks never wait for each other
 *   work item    one segment of one step, under way. A task keeps up to TASK_WINDOW items under way
 *   peer queue   one endpoint as tasks use it: two rings keep (request, step) order, in whatever order items finish
 *   request      one call: a program, a shape, two buffers
 *
 * Threads. The engine's lock (lock.h) protects everything here. The thread that makes progress holds it: a user's
 * thread, or the progress thread. No thread holds it while it sleeps. The control thread touches only fields that say
 * so: it opens endpoints (connection_setup.c) under connections_lock, publishes them, and ends communicators by
 * collet_comm_state.end_status. */
#ifndef COLLET_ENGINE_ENGINE_H
#define COLLET_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

#include "core/log.h"

struct collet_arena;
struct collet_comm_state;
struct collet_connection_setup;
struct collet_control;
struct collet_early_end;
struct collet_peer_info;
struct collet_peer_queue;
struct collet_pipeline;
struct collet_transport_set;

/* Limits of the tuning that belong to no formula (tools.h), in bytes. */
struct collet_limits {
	uint32_t eager_local, eager_remote;  /* for peers on this host, and on others */
	uint32_t fast_path_bytes;            /* above this size, overlap within a message pays */
};

struct collet_engine {
	pthread_mutex_t mutex;               /* the lock is this and the bias below: see lock.h */
	/* the thread that may enter without the mutex; 0: none. Written under it */
	_Atomic uintptr_t bias_owner;
	_Atomic uint32_t bias_held;          /* the owner is inside; only the owner writes this */
	_Atomic bool has_caller;             /* some thread has made a call */
	struct collet_peer_queue *active_queues; /* peer queues that have something queued */
	size_t pending_count;                /* pending requests of all communicators: see pending.h */
	struct collet_comm_state *all_states;
	struct collet_pipeline *pipelines;   /* pipelines of running requests */
	bool has_sleeper;                    /* a thread is in epoll_wait */
	uint32_t followers;                  /* threads that wait on request_ended */
	uint64_t ended_count;                /* requests that have ended, and on_end() that have returned */
	uint64_t ended_seen;                 /* of them, those before collet_engine_progress_until() returned */
	/* Requests that have ended and whose on_end() is still to be called. A list in that order. */
	struct collet_request *ended_requests, **last_ended;
	struct collet_comm_state *on_end_state; /* the communicator whose on_end() runs now; NULL: none */
	struct collet_request *on_end_request; /* its request, if the caller has that and has not freed it */
	pthread_cond_t request_ended;
	uint32_t polls_since_watchdog;
	bool stop_progress_thread;
	bool has_progress_thread;
	pthread_t progress_thread;
	bool is_watched;                     /* the caller polls watch_fd: see watch.h */
	int watch_fd, watch_timer_fd;        /* -1: the descriptor was never asked for */
	int progress_timer_fd;               /* a timer that ends the progress thread's sleep */
	bool progress_timer_set;
	bool parked;                         /* the progress thread leaves all progress to users' threads */
	/* users' threads that wait or are about to; counted for the progress thread */
	_Atomic uint32_t user_waiters;

	pthread_mutex_t connections_lock;    /* taken after the engine's lock if both are needed */
	struct collet_comm_state *reachable_states; /* those that peers may connect to */
	struct collet_connection_setup *setups; /* all of them */
	struct collet_connection_setup *unexpected_setups; /* for communicators that this rank has not created yet */
	uint32_t unexpected_count;
	struct collet_early_end *early_ends; /* ends of communicators that this rank has not created yet */
	uint32_t early_ends_count;
	uint64_t *destroyed_ids;             /* ids of destroyed communicators */
	size_t destroyed_count;
	char first_death[512];               /* "rank 3 on host (pid 7) is gone: ..."; empty: no rank has died */

	pthread_mutex_t end_lock;            /* protects the end of every communicator; taken last */

	/* Set before anything runs, then only read. */
	struct collet_wake wake;
	struct collet_control *control;
	const struct collet_peer_info *peer_infos; /* by world rank */
	uint32_t rank, size;
	struct collet_arena *arena;
	struct collet_transport_set *transports;
	struct collet_log log;
	bool has_fence;                      /* this process has joined core/fence.h */
	bool oversubscribed;                 /* on some host there are more ranks than cores */
	uint64_t nontemporal_min_bytes;      /* bytes of a call whose results no cache holds until they are read */
	struct collet_limits limits;
	/* Calls on_end() of all ended_requests. Under the lock, which it releases meanwhile. */
	void (*run_on_end)(struct collet_engine *engine);
	uint32_t spin_polls;                 /* see wait.c */
	int64_t yield_ns;
};

/* ---- engine.c */
/* Initializes a zeroed engine. */
collet_status collet_engine_init(struct collet_engine *engine);
/* Frees the engine's resources, after the control plane was destroyed and every communicator state torn down. */
void collet_engine_deinit(struct collet_engine *engine);
/* Does the same in a forked child, except for the locks and the condition variable. Threads that do not exist in the
 * child may hold them or wait on them, and pthread_cond_destroy() would wait for these. */
void collet_engine_atfork_child(struct collet_engine *engine);
/* Makes one round of progress on everything of this rank. Returns the number of transfers that completed and of hooks
 * that made progress. Under the lock. */
uint32_t collet_engine_progress(struct collet_engine *engine);

#endif
