/* The engine: runs step programs over transports, for all communicators of one context.
 *
 * Who owns what
 *   engine   one a context: the lock, the sleep, the control plane, every group
 *   group    a communicator as the engine sees it: who is in it, its lanes and routes, what has ended it
 *   lane     one independent sequence of items: a part of a program, or every channels-th piece of it. Lane i's
 *            messages travel on channel i, so lanes never wait for each other
 *   item     one piece of one step, under way: a lane looks TASK_WINDOW items ahead
 *   route    one conduit as the lanes use it: two queues that keep (request, step) order whatever order items
 *            finish in
 *   request  one call: a program, a shape, two buffers
 *
 * Threads. Everything here is under the engine's lock (lock.h), held by whichever thread makes progress (a user's, or
 * the progress thread), and never while sleeping. The control thread touches only what is marked so: it opens conduits
 * (connection_setup.c) under fabric_lock and publishes them, and it ends groups by group.ended. */
#ifndef COLLET_ENGINE_ENGINE_H
#define COLLET_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <collet/collet.h>

#include "control/control.h"
#include "core/log.h"
#include "transport/registry.h"

struct collet_arena;
struct collet_comm_state;
struct collet_connection_setup;
struct collet_early_end;
struct collet_peer_info;
struct collet_peer_queue;
struct collet_pipeline;
struct collet_request;

/* The tuning's limits that are no formula's (tools.h), in bytes. */
struct collet_limits {
	uint32_t eager_local, eager_remote;  /* to ranks of this host, and of others */
	uint32_t fast_path_bytes;            /* beyond, overlap within a message pays */
};

struct collet_engine {
	pthread_mutex_t mutex;               /* see lock.h; "under lock", here and elsewhere, is more than that */
	_Atomic uintptr_t bias_owner;        /* the thread that may step in; 0: none. Written under mutex */
	_Atomic uint32_t bias_held;          /* it has. It alone writes this */
	_Atomic bool has_caller;             /* some thread has called */
	struct collet_peer_queue *active_queues; /* routes with something queued */
	struct collet_request *pending_requests; /* pending */
	struct collet_comm_state *all_states; /* all of them, for progress */
	struct collet_pipeline *pipelines;   /* of requests that run */
	bool has_sleeper;                    /* a thread is in epoll_wait */
	uint32_t followers;                  /* threads on something_ended */
	pthread_cond_t request_ended;
	uint32_t polls_since_watchdog;
	bool stop_progress_thread;
	bool has_progress_thread;
	pthread_t progress_thread;
	int progress_timer_fd;               /* a timer that ends the progress thread's sleep */
	bool progress_timer_set;             /* it has been set */
	bool parked;                         /* the progress thread has left everything to users' threads */
	_Atomic uint32_t user_waiters;       /* which wait, or are about to; counted if there is a progress thread */

	pthread_mutex_t connections_lock;    /* taken after lock, if both */
	struct collet_comm_state *reachable_states; /* those that peers may reach */
	struct collet_connection_setup *setups; /* all of them */
	struct collet_connection_setup *unexpected_setups; /* connections for groups that this rank has not made yet */
	uint32_t unexpected_count;
	struct collet_early_end *early_ends; /* of groups that this rank has not made yet */
	uint32_t early_ends_count;
	uint64_t *destroyed_ids;             /* ids of groups that are no more */
	size_t destroyed_count;
	char first_loss[512];                /* "rank 3 on host (pid 7) is gone: ..."; empty: none has died */

	pthread_mutex_t end_lock;            /* of every group's end; taken last */

	/* Set before anything runs, then only read. */
	struct collet_wake wake;
	struct collet_control *control;
	const struct collet_peer_info *peer_infos; /* by world rank */
	uint32_t rank, size;
	struct collet_arena *arena;
	struct collet_transport_set *transports;
	struct collet_log log;
	bool has_fence;                      /* core/fence.h: this process has joined */
	bool oversubscribed;                 /* ranks outnumber cores somewhere */
	struct collet_limits limits;
	uint32_t spin_polls;                 /* see wait.c */
	int64_t yield_ns;
};

/* Of a zeroed engine. */
collet_status collet_engine_init(struct collet_engine *engine);
/* The control plane has been destroyed and every group torn down. */
void collet_engine_deinit(struct collet_engine *engine);
/* In a forked child, as deinit, but for locks and condition variable: threads that are not here may hold or await them,
 * and pthread_cond_destroy() would wait until these have left. */
void collet_engine_atfork_child(struct collet_engine *engine);
/* One round for everything of this rank; how many transfers settled, and groups got on by their hooks. Under lock. */
uint32_t collet_engine_progress(struct collet_engine *engine);

#endif
