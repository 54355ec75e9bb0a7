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

#include "control/control.h"
#include "core/clock.h"
#include "core/status.h"
#include "engine/p2p/p2p.h"
#include "engine/recorder.h"
#include "reduce/reduce.h"
#include "selection/choice.h"
#include "transport/registry.h"

enum {
	TASK_WINDOW = 16,            /* items under way in a lane; > COLLET_LOOKAHEAD */
	PUBLISH_WINDOW = COLLET_LOOKAHEAD + 2, /* the same of a request that publishes: what is in staging should still
	                                be in a cache when peers come to read it */
	TRANSFER_RING_SIZE = 16,      /* transfers queued on a route each way; a power of two */
	PASS_SEGMENTS = 3,           /* pieces of each step in one pass; < COLLET_LOOKAHEAD, so that a pass of sends
	                                leaves room for the receives that follow it */
	FAST_PATH_STEPS = 8,         /* that a call run on the spot may have, */
	FAST_PATH_TRANSFERS = UINT8_MAX, /* with so many transfers and operands */
	COLLET_TASKS = 8,            /* parts x channels of one request at most */
	COLLET_CHANNEL_P2P = COLLET_TASKS, /* the channel of point-to-point messages */
	COLLET_CHANNELS,
	/* Of a lane, touched only as far as used. The odd 64 KiB make a slot's pieces a little longer, together, than
	 * 512 KiB: behind them, a span of a power of two has no message of some bytes. */
	COLLET_STAGING_BYTES = (8 << 20) + (64 << 10),
	COLLET_SCRATCH_BYTES = 8 << 20  /* of a group, likewise */
};

struct collet_pipeline;
struct collet_comm_state;
struct collet_peer_queue;

struct collet_range {
	const char *first;
	size_t bytes;
};

/* One piece of one step. */
struct collet_work_item {
	struct collet_request *request;
	const struct collet_step *step; /* own_step, or one that the request keeps */
	struct collet_step own_step;
	/* The piece: elements from the start of the step's spans. per_peer: of the longest. */
	uint64_t offset, count;
	uint32_t receives_pending, sends_pending;
	uint32_t staging_slot;       /* of the lane's staging */
	bool executed;               /* combined; its sends may be posted */
	bool in_staging;             /* a kept receive that lands in staging, since its place was not free */
	bool published;              /* what its sends read is a copy in staging, or in its cell (gdr.h) */
	uint32_t channel;            /* the lane's; where requests reach a GPU's buffers (gdr.h), */
	bool is_copying;             /* and copies are to be made, or are being made, before it is executed, */
	struct collet_work_item *next_copy; /* then of this one */
	uint32_t read_count;
	struct collet_range reads[COLLET_STEP_SOURCES];
	struct collet_range writes;
	struct collet_range borrowed; /* what its sends read */
	struct collet_range excluded; /* per_peer: the ranges above are hulls, of which this part is not meant */
	void *value;                 /* where the combined piece is (to be) */
};

/* Where a lane has got to in a request's program. */
struct collet_cursor {
	uint32_t part;
	uint64_t steps, step, pass;
	uint32_t segment;            /* in the pass; counts this channel's own */
	bool at_second;              /* of two paired steps, the second is next */
	bool has_more_passes;        /* some step has pieces beyond this pass */
	bool loaded, is_pair;        /* current holds step, and the next one if they are paired */
	struct collet_step current[2];
	uint64_t longest_span[2];    /* their spans */
};

struct collet_task {
	struct collet_comm_state *state;
	uint32_t channel;
	struct collet_request *first_request, *last_request; /* requests that have items to enter here, in starting
	                                                        order */
	struct collet_cursor cursor;          /* in the first */
	struct collet_work_item items[TASK_WINDOW];
	uint32_t oldest, next;                /* items[oldest % TASK_WINDOW] up to next are under way; both only grow */
	uint32_t free_slots;                  /* bit mask */
	bool has_pending_item;                /* items[next] is filled in, but its routes have no room yet */
	char *staging;                        /* in the arena, if that had room: then local peers have it mapped */
	bool staging_is_mapped;
	struct collet_operand *operands;      /* group size + 2, for one execution */
};

/* A transfer in a route's queue. */
struct collet_queued_transfer {
	struct collet_transfer transfer;
	struct collet_work_item *item; /* NULL: nobody's any more */
	bool is_ready;               /* may be posted */
	bool released;               /* a receive's bytes are not needed any more */
};

/* A ring of transfers; indices only grow: [head, settled) settled but not released, [settled, posted) lent to the
 * transport, [posted, tail) waiting to be ready. */
struct collet_transfer_ring {
	struct collet_queued_transfer entry[TRANSFER_RING_SIZE];
	uint32_t head, completed, posted, tail;
};

struct collet_peer_queue {
	_Atomic(struct collet_endpoint *) endpoint; /* NULL until open; set once, by the control thread (release) */
	struct collet_comm_state *state;
	uint32_t peer;               /* rank in the group */
	uint32_t channel;
	struct collet_transfer_ring send, receive;
	struct collet_peer_queue *next_active, **previous_active; /* in engine.active while something is queued */
	bool connection_requested;   /* collet_connections_request() has been called */
	struct collet_peer_queue *next_in_state;
	/* Under fabric_lock from here on. */
	struct collet_connection_setup *setup;
	uint32_t failed_transports;  /* of the engine's transports, those that this pair has tried in vain, as bits */
	bool has_dialed;             /* this rank has dialed */
};

/* ---- A small call's steps, as fast_path_plan.c keeps them ---- */

enum { COLLET_STAGING = COLLET_SCRATCH + 1, COLLET_FAST_PATH_BUFFERS };

/* Bytes into the caller's buffers, the scratch, or the lane's staging. */
struct collet_buffer_offset {
	uint64_t offset;
	uint32_t buffer;             /* enum collet_buffer, or COLLET_STAGING */
};

/* A transfer, or this rank's own operand. */
struct collet_planned_transfer {
	struct collet_peer_queue *peer_queue; /* NULL: own */
	struct collet_buffer_offset place, staging_place; /* spare: while its place is not free */
	uint64_t bytes;
	struct collet_transfer transfer; /* while it may settle at once, */
	struct collet_queued_transfer *queued;/* and otherwise; NULL: not queued */
};

struct collet_fast_path_step {
	struct collet_planned_transfer *operand_list, *send_list; /* its moves: the operands in order, then the sends */
	uint8_t operand_count, send_count;
	uint8_t receive_count;       /* of the operands */
	bool combines, averages, copies, writes;
	bool sends_first;            /* it only copies, and sends what it copies */
	bool overwrites_sent;        /* it writes what a step before it sends, or does so if the caller's buffers */
	bool overwrites_if_in_place; /* overlap */
	uint64_t count;              /* elements of the value */
	struct collet_buffer_offset value;
};

struct collet_fast_path {
	bool is_eligible;
	uint32_t send_flags;
	uint32_t step_count, planned_count, planned_capacity;
	struct collet_fast_path_step steps[FAST_PATH_STEPS];
	struct collet_planned_transfer *planned; /* room for so many; the request's for good */
	uint64_t staged_bytes;
	uint32_t poll_backoff;       /* how long its calls wait before they look: see api/call.c */
	/* Of one call: */
	bool in_place;               /* the caller's buffers overlap */
	struct collet_work_item *item; /* which counts what is pending */
	char *base[COLLET_FAST_PATH_BUFFERS];
	uint32_t step_index;         /* the step at hand */
	bool receives_expected;      /* its receives are expected, */
	uint32_t unqueued_receives;  /* so many of them without having been queued; */
	bool must_release;           /* some of them have been, or hold what must be given back */
};

/* What a request was planned for. A pooled request that is used for the same call again keeps its plan. */
struct collet_plan_key {
	uint64_t count;
	uint32_t root, op;
	uint32_t segment_bytes;      /* 0: the choice; channels too */
	uint8_t channels;
	uint8_t collective, dtype;
	uint8_t algorithm;           /* 0: there is no plan; 1: the choice; 2 + i: the collective's i-th was named */
	bool commutes;
};

/* One call. */
struct collet_request {
	struct collet_comm_state *state;
	struct collet_request *next_free, *next_allocated; /* in the group's lists */
	struct collet_request *next_active, **previous_active; /* in engine.requests while pending */
	struct collet_request *next_in_task[COLLET_TASKS];
	enum collet_status status;   /* COLLET_PENDING until it has ended */
	/* It has read what means nothing: it cannot end well, and waits for the group's end. */
	bool poisoned;
	bool is_p2p;
	bool deferred;               /* its lanes let nothing in, of it or behind it, until it is said who does it */
	bool offloaded;              /* it is done by other means: its lanes pass it over */
	bool stream_ordered;         /* likewise, and its stream is told by the GPU that does it */
	struct collet_recorder *out_of_band_recorder; /* that has it, since it has no place among the group's calls,
	                                                 about which others can be asked; NULL: it has */
	uint32_t task_count;         /* it uses lanes 0 .. lanes - 1 */
	uint32_t issuing_tasks;      /* lanes that have not taken all of its items in yet */
	uint64_t items_in_flight;    /* under way */
	const struct collet_program *program;
	struct collet_shape shape;
	uint32_t parts, channels;
	uint64_t segment_elements;   /* elements */
	uint32_t fan_in;             /* remote operands of one step at most */
	size_t element_bytes;
	uint64_t counted_bytes;      /* of the call, as statistics count them */
	struct collet_reduction reduction;
	struct collet_fast_path fast_path;
	bool has_published;          /* something of it was published: it keeps to PUBLISH_WINDOW */
	bool prescales, averages;    /* INPUT is scaled where it is read; the last touch divides */
	const char *input;
	char *result;
	uint64_t call_signature;     /* of this call alone */
	uint64_t signature, sequence; /* what its messages carry; the first is the group's history up to this call */
	struct collet_call call;
	struct collet_plan_key plan_key;
	uint32_t plan_count;         /* that it has had, and operations */
	int64_t timeout_ns;
	uint64_t started_ticks;
	int64_t started_ns;          /* the same in ns; 0: nobody has asked yet, as for most short calls nobody does */
	bool is_starting;            /* it is being started, and has not had to be waited for */
	int64_t deadline_ns, next_query_ns;
	uint32_t warning_stage;      /* see mismatch.c */
	uint64_t finished_items;     /* how far it got */
	uint64_t *vector_counts;     /* owned copies of the v-forms' counts and displacements */
	size_t vector_capacity;
	struct collet_p2p_call p2p;
	void *staging;               /* the caller's (see cuda/staging/gpu_staging.h); NULL: none */
	struct collet_pipeline *pipeline; /* its buffers are filled and emptied while it runs (see pipeline.h); NULL:
	                                     no */
	bool algorithm_named;        /* its algorithm was asked for by name */
};

/* What a rank has answered about a call. */
struct collet_peer_reply {
	bool has_replied, arrived;
	bool has_left;               /* it has closed its context in order: there is nothing more that it will say */
	uint64_t queried_sequence, call_count;
	struct collet_call last_call;
};

/* Under fabric_lock. */
struct collet_mismatch {
	/* COLLET_OK, or what the group ends with unless somebody says better: see mismatch.c. Read without the lock as
	 * a hint. */
	_Atomic int suspected_status;
	uint32_t peer;
	int64_t grace_deadline_ns;
	char sentence[COLLET_ERROR_BYTES];
	struct collet_peer_reply *replies; /* by rank */
};

/* For who does a group's calls by other means than lanes (see cuda/shared_gpu/shared_gpu.h,
 * cuda/peer_gpus/device_collective.h). Under lock. */
struct collet_progress_hooks {
	/* In each round of progress while the group has not ended. true: something has got on, and may have left
	 * transfers that only the next round moves. */
	bool (*progress)(struct collet_comm_state *state, void *context);
	/* Does it need no further round before a message comes? */
	bool (*is_idle)(const void *context);
	/* Which ranks a held request waits for, for a sentence. false: somebody else does it. */
	bool (*name_awaited)(
		const void *context, const struct collet_request *request, char *text, size_t capacity);
	/* The group is over, and its requests are about to end: then buffers are the callers'. NULL: nothing. */
	void (*release_buffers)(void *context);
};

/* One of those who do, in a group's list. */
struct collet_progress_hook {
	struct collet_progress_hook *next;
	const struct collet_progress_hooks *table;
	void *context;                       /* the hooks' */
};

struct collet_comm_state {
	struct collet_engine *engine;
	struct collet_progress_hook *hooks;  /* what they are is their owners' */
	struct collet_comm_state *internal;  /* of the same ranks, for the hooks' messages; it ends with this one */
	struct collet_comm_state *next_in_all; /* in engine.used_groups */
	struct collet_comm_state *next_reachable; /* in engine.groups */
	uint64_t id;                         /* the same on every member */
	uint32_t rank, size;
	const uint32_t *world_ranks;         /* group rank -> world rank; NULL: the same */
	struct collet_task *tasks[COLLET_TASKS];
	_Atomic(struct collet_peer_queue *) *peer_queues; /* by channel, then peer; NULL until used; set under
	                                                     fabric_lock */
	struct collet_peer_queue *all_peer_queues; /* fabric_lock */
	char *scratch;                       /* COLLET_SCRATCH_BYTES, touched only as far as used */
	struct collet_request *free_requests, *all_requests;  /* kept for the next calls; all there are */
	uint64_t next_sequence;
	uint64_t call_history;               /* see collet_call_history() */
	bool tasks_need_progress;            /* something settled since its lanes made progress */
	struct collet_request *fast_path_request; /* run on the spot; lane 0 lets nothing in meanwhile */
	int64_t timeout_ns;
	struct collet_recorder recorder;     /* its own lock */
	uint64_t roundings;
	_Atomic int end_status;              /* COLLET_OK, or the status that ended it; sentence set before (release) */
	char sentence[COLLET_ERROR_BYTES];
	_Atomic uint32_t *abort_word;        /* becomes 1 when the group ends; NULL: none. Under end_lock */
	_Atomic uint64_t *departed_word;     /* gets the bits of members that leave in order; likewise */
	bool torn_down;                      /* its conduits are closed and its requests ended */
	struct collet_p2p *p2p;
	struct collet_mismatch mismatch;
};

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

/* ---- engine.c */
/* Of a zeroed engine. */
collet_status collet_engine_init(struct collet_engine *engine);
/* The control plane has been destroyed and every group torn down. */
void collet_engine_deinit(struct collet_engine *engine);
/* In a forked child, as deinit, but for locks and condition variable: threads that are not here may hold or await them,
 * and pthread_cond_destroy() would wait until these have left. */
void collet_engine_atfork_child(struct collet_engine *engine);
/* One round for everything of this rank; how many transfers settled, and groups got on by their hooks. Under lock. */
uint32_t collet_engine_progress(struct collet_engine *engine);

/* ---- wait.c */
/* Advances everything until done(), which is asked under lock; deadlines end what is pending. Never called
 * under lock. */
void collet_engine_wait(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* How often a blocking call looks for its own messages alone before it waits in earnest: a microsecond or so; not at
 * all where whom it waits for may need its core. */
static inline uint32_t collet_engine_spin_budget(const struct collet_engine *engine)
{
	enum { MOST = 64 };
	if (engine->oversubscribed)
		return 0;
	return engine->spin_polls < MOST ? engine->spin_polls : MOST;
}
/* The same, called under lock, which is let go of while waiting. */
void collet_engine_wait_locked(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* One round; what done() says then. */
bool collet_engine_poll(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* Lets go of lock: something is under way that this thread does not wait for now, so whoever sleeps is to see to it. */
void collet_engine_unlock_handoff(struct collet_engine *engine);

/* ---- sleep.c */
/* Any thread. */
void collet_engine_wake(struct collet_engine *engine);
/* A request has ended: whoever may wait for it looks again. Under lock. */
void collet_engine_notify_followers(struct collet_engine *engine);

/* ---- progress_thread.c */
collet_status collet_engine_start_progress_thread(struct collet_engine *engine);
void collet_engine_stop_progress_thread(struct collet_engine *engine);

/* ---- cursor.c. Under lock. */
/* Back to the start of the lane's first request. */
void collet_cursor_begin(struct collet_task *task);
/* Writes the next step and piece of the lane's first request into item; false when there is none left. */
bool collet_cursor_next(struct collet_task *task, struct collet_work_item *item);
/* Elements of a step's spans, of the longest if there are several. */
uint64_t collet_step_longest_span(const struct collet_request *request, const struct collet_step *step);

/* ---- task.c: requests on their way through the lanes. Under lock. */
/* Queues a filled-in request; it may have ended when this returns. */
collet_status collet_request_start(struct collet_request *request);
void collet_task_progress(struct collet_task *task);
void collet_work_item_transfer_done(struct collet_queued_transfer *queued, bool sent);

/* ---- task_staging.c */
void collet_task_destroy(struct collet_task *task);
/* How many pieces an item's slot of the staging has room for, if it gets pieces from up to fan_in peers: these; the
 * value, if it has no place of its own; and this rank's own operand, scaled, or one more of the parts that a scatter's
 * root makes for its peers. */
uint32_t collet_slot_segments(enum collet_collective collective, uint32_t fan_in);
/* The elements of a piece of about piece_bytes, such that a slot holds so many of them. */
uint64_t collet_segment_elements(uint32_t segment_bytes, uint32_t slot_segments, size_t element_bytes);

/* ---- fast_path_plan.c */
/* Finds out whether each of its few steps is one small piece, and if so keeps the steps. */
void collet_fast_path_plan(struct collet_request *request);
void collet_fast_path_free(struct collet_request *request);

/* ---- fast_path.c. Under lock. */
/* May it be run on the spot now? */
bool collet_fast_path_is_eligible(const struct collet_request *request);
/* Sends what it can send before anything has come. It is the group's inlined from here to its end. */
void collet_fast_path_start(struct collet_request *request);
/* Goes on as far as it can without waiting; it may have ended then. */
void collet_fast_path_progress(struct collet_request *request);
/* What collet_fast_path_progress() costs that finds nothing, in looks into memory; 0: it would not look at all that it
 * waits for. */
uint32_t collet_fast_path_poll_cost(const struct collet_request *request);
/* Does it wait for a rank that was last seen on this one's core? */
bool collet_fast_path_awaits_own_core(const struct collet_request *request);
/* Has it something to send yet to a rank that was last seen there? */
bool collet_fast_path_sends_to_own_core(const struct collet_request *request);
/* It will be waited for in earnest: its receives are posted, for progress and sleep to look after.
 * True: some were not. */
bool collet_fast_path_post_receives(struct collet_request *request);

/* ---- peer_queue.c. Under lock. */
enum { COLLET_SYSCALL_POLLS = 16 };
struct collet_peer_queue *collet_peer_queue_get(struct collet_comm_state *state, uint32_t channel, uint32_t peer);
/* The same, but NULL if there is none. */
struct collet_peer_queue *collet_peer_queue_find(
	const struct collet_comm_state *state, uint32_t channel, uint32_t peer);
bool collet_transfer_ring_is_full(const struct collet_transfer_ring *ring);
struct collet_queued_transfer *collet_transfer_ring_add(
	struct collet_transfer_ring *ring, struct collet_work_item *item);
/* The item's transfer whose bytes it still holds; NULL: it has none here. */
struct collet_queued_transfer *collet_transfer_ring_find(
	struct collet_transfer_ring *ring, const struct collet_work_item *item);
/* The item's transfer that is not ready yet. */
struct collet_queued_transfer *collet_transfer_ring_find_unready(
	struct collet_transfer_ring *ring, const struct collet_work_item *item);
/* Something has been queued: progress looks after it from now on, until nothing is. */
void collet_peer_queue_activate(struct collet_peer_queue *peer_queue);
/* Posts what is ready. */
void collet_peer_queue_post_ready(struct collet_peer_queue *peer_queue);
/* Posts what has just been queued to be sent. The route is activated if it did not settle at once. */
void collet_peer_queue_post_send(struct collet_peer_queue *peer_queue);
/* The same for the receive that has just been queued, but only if it is likely to settle: something has come. */
void collet_peer_queue_try_receive(struct collet_peer_queue *peer_queue);
/* Sends or receives at once, past the queues, where they are empty and the transport can. */
enum collet_try_result collet_peer_queue_send_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer);
enum collet_try_result collet_peer_queue_receive_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer);
/* Ends the view of one that was received so, for the request: it may have become COLLET_ERR_PEER_LOST. */
void collet_peer_queue_release_view(
	struct collet_peer_queue *peer_queue, struct collet_request *request, struct collet_transfer *transfer);
/* Posts it whatever has come, and activates the route. False: it was posted. */
bool collet_peer_queue_post_receive(struct collet_peer_queue *peer_queue);
/* Returns how many transfers settled. */
uint32_t collet_peer_queue_progress(struct collet_peer_queue *peer_queue);
/* Received bytes that are the transport's or the peer's memory are taken to the transfer's own place. */
void collet_peer_queue_copy_view(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued);
/* The same for all that it holds. */
void collet_peer_queue_copy_views(struct collet_peer_queue *peer_queue);
/* A receive's bytes are not needed any more. */
void collet_peer_queue_release(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued);
/* What it costs to find out whether the message has come that was queued last, in looks into memory: asking a kernel
 * takes as long as COLLET_SYSCALL_POLLS of them. 0: that is progress's to find out. */
uint32_t collet_peer_queue_poll_cost(const struct collet_peer_queue *peer_queue);
/* Was the peer on this rank's core when it was last heard of? */
bool collet_peer_queue_shares_core(const struct collet_peer_queue *peer_queue);
/* Takes it off the list of active routes; its queues are not looked at any more. */
void collet_peer_queue_deactivate(struct collet_peer_queue *peer_queue);

/* ---- mismatch.c */
/* A message that nobody expected came from peer. Under lock. */
void collet_mismatch_suspect(struct collet_comm_state *state, uint32_t peer, const struct collet_request *request,
	const struct collet_message *received);
/* The connection to peer has ended. That may be the first sign of what peer, or somebody, is about to tell: the group
 * ends with this status only if nothing comes. Under fabric_lock. */
void collet_mismatch_suspect_loss(
	struct collet_comm_state *state, uint32_t peer, enum collet_status status, const char *sentence);
/* Peer has closed its context, or destroyed the communicator, in order. Control thread, under fabric_lock. */
void collet_mismatch_peer_left(struct collet_comm_state *state, uint32_t peer);
/* A request is pending at `now`. Under lock. */
void collet_mismatch_check_pending(struct collet_request *request, int64_t now);
/* A control message for the group. Control thread, under fabric_lock. */
void collet_mismatch_handle_message(
	struct collet_comm_state *state, uint32_t from, uint32_t type, const void *data, size_t bytes);

/* ---- connection_manager.c */
/* The route to peer on channel, made if there is none yet; NULL when out of memory (which ends the group).
 * Under lock. */
struct collet_peer_queue *collet_connections_get_queue(
	struct collet_comm_state *state, uint32_t channel, uint32_t peer);
/* Makes sure that somebody dials. Under lock. */
void collet_connections_request(struct collet_peer_queue *peer_queue);
/* From here on peers reach the group. Under lock. */
void collet_connections_add(struct collet_comm_state *state);
/* No conduit of the group is open or opening any more, and no control event reaches it. Under lock. */
void collet_connections_remove(struct collet_comm_state *state);
/* In a forked child: frees the child's copies. Takes no lock: who held it at the fork is not here to let go of it. */
void collet_connections_atfork_child(struct collet_comm_state *state);
/* Tells the other ranks that the group has ended. Any thread. */
void collet_connections_notify_end(
	const struct collet_comm_state *state, enum collet_status status, const char *sentence);
/* Tells its members that this rank has left the group, unless that has ended: then they have been told why. Nothing
 * comes from this rank any more. Needed where some of them wait for it without a connection that closes. */
void collet_connections_notify_left(const struct collet_comm_state *state);
void collet_connections_deinit(struct collet_engine *engine);
extern const struct collet_control_events collet_connections_events;

/* ---- comm_state.c */
/* Of a zeroed group with engine, id, rank, size and world filled in. */
collet_status collet_comm_state_init(struct collet_comm_state *state);
/* Torn down, and off the engine's list. */
void collet_comm_state_deinit(struct collet_comm_state *state);
/* Ends the group for this rank, once; the first to call wins. tell: the other ranks too. Any thread, with any of the
 * locks but end_lock held; wakes waiters, and whoever makes progress next tears it down. */
void collet_comm_state_end(
	struct collet_comm_state *state, enum collet_status status, bool notify_peers, const char *sentence);
/* Closes its conduits, so that nobody touches its buffers any more, and ends its requests. Under lock;
 * safe to repeat. */
void collet_comm_state_tear_down(struct collet_comm_state *state);
/* The hook stays where it is until it is removed; one that is in no list may be removed. */
void collet_comm_state_add_hook(struct collet_comm_state *state, struct collet_progress_hook *hook);
void collet_comm_state_remove_hook(struct collet_comm_state *state, const struct collet_progress_hook *hook);
static inline uint32_t collet_comm_state_world_rank(const struct collet_comm_state *state, uint32_t rank)
{
	return state->world_ranks ? state->world_ranks[rank] : rank;
}
collet_status collet_request_acquire(struct collet_comm_state *state, struct collet_request **request);
/* It has not been started, or has ended: it may be started (again). */
void collet_request_reset(struct collet_request *request);
void collet_request_release(struct collet_request *request);
/* It is pending from here on: deadlines and progress look after it. */
void collet_request_activate(struct collet_request *request);
void collet_request_end(struct collet_request *request, enum collet_status status);
/* Its time runs from then. */
void collet_request_set_clock(struct collet_request *request, int64_t started_ns);
void collet_request_end_if_done(struct collet_request *request);
/* What it is, for a sentence. */
void collet_request_describe(const struct collet_request *request, char *text, size_t capacity);
#endif
