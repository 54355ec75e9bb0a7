/* The state of a communicator in the engine: its ranks, tasks, peer queues and requests, and the status that ended
 * it. */
#ifndef COLLET_ENGINE_COMM_STATE_H
#define COLLET_ENGINE_COMM_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "engine/channel.h"
#include "engine/mismatch.h"
#include "engine/pending.h"
#include "engine/plan_key.h"
#include "engine/recorder.h"

struct collet_engine;
struct collet_p2p;
struct collet_peer_queue;
struct collet_progress_hook;
struct collet_request;
struct collet_task;
struct collet_turns;

enum { COLLET_SCRATCH_BYTES = 8 << 20 }; /* address space; only used pages take memory */

struct collet_comm_state {
	struct collet_engine *engine;
	struct collet_progress_hook *hooks;  /* a list; entries belong to their owners */
	struct collet_comm_state *internal;  /* same ranks; carries messages of GPU paths, and ends with this one */
	struct collet_comm_state *next_in_all; /* in engine.all_states */
	struct collet_comm_state *next_reachable; /* in engine.reachable_states */
	uint64_t id;                         /* the same on all ranks */
	uint32_t rank, size;
	const uint32_t *world_ranks;         /* by rank of the communicator; NULL: the same numbers */
	struct collet_task *tasks[COLLET_TASKS];
	/* By channel, then peer. NULL until used; set under connections_lock. */
	_Atomic(struct collet_peer_queue *) *peer_queues;
	struct collet_peer_queue *all_peer_queues; /* under connections_lock */
	char *scratch;                       /* COLLET_SCRATCH_BYTES */
	/* wide_bytes for the first of the requests, which are a list; NULL until used: see wide_sums.h */
	char *wide_memory;
	size_t wide_bytes;
	bool wide_is_mapped;
	struct collet_request *wide_requests, **wide_end;
	/* Pooled for later calls, those with a plan by its slot: see plan_key.h. */
	struct collet_request *free_requests[COLLET_PLAN_SLOTS + 1];
	struct collet_request *all_requests;
	uint32_t request_count;              /* in all_requests */
	uint64_t next_sequence;
	uint64_t history_hash;               /* see collet_call_history_hash() */
	struct collet_pending pending;
	struct collet_stall stall;
	bool tasks_need_progress;            /* a transfer completed since its tasks made progress */
	struct collet_request *fast_path_request; /* the first on the fast path; task 0 issues nothing meanwhile */
	struct collet_request *fast_path_queued; /* the first of them that has not begun; NULL: all have */
	struct collet_request *fast_path_last, *fast_path_newest; /* if the first has a next: last, last begun */
	_Atomic int64_t timeout_ns;          /* of calls that set none; read and written relaxed, by any thread */
	struct collet_turns *turns;          /* of threads that make calls: see api/turns.h; NULL: one at a time */
	struct collet_recorder recorder;     /* any thread may read it */
	uint64_t roundings;
	_Atomic int end_status;              /* COLLET_OK, or the status that ended it (release, after the sentence) */
	char error_text[COLLET_ERROR_BYTES];
	_Atomic uint32_t *abort_flag;        /* set to 1 when the communicator ends; NULL: none. Under end_lock */
	/* Kernels read it: bit i is set when rank i has left in order. NULL: none. Under end_lock. */
	_Atomic uint64_t *left_ranks;
	bool torn_down;                      /* its endpoints are closed and its requests have ended */
	struct collet_p2p *p2p;
	struct collet_mismatch mismatch;
};

/* Initializes a zeroed state whose engine, id, rank, size and world_ranks are filled in. */
collet_status collet_comm_state_init(struct collet_comm_state *state);
/* Frees what it holds. It has been torn down and is in no list of the engine. */
void collet_comm_state_deinit(struct collet_comm_state *state);
/* Ends the communicator for this rank. Only the first call has an effect. notify_peers: also tells the other ranks.
 * Wakes waiters; the thread that makes progress next tears the state down. Any thread, with any lock but end_lock
 * held. */
void collet_comm_state_end(
	struct collet_comm_state *state, enum collet_status status, bool notify_peers, const char *error_text);
/* Closes its endpoints, so that no peer touches its buffers any more, and ends its requests. Under the lock; safe to
 * repeat. */
void collet_comm_state_tear_down(struct collet_comm_state *state);
/* Returns the host name of a rank. */
const char *collet_comm_state_host(const struct collet_comm_state *state, uint32_t rank);
/* Returns the timeout of calls that set none. */
static inline int64_t collet_comm_state_timeout_ns(const struct collet_comm_state *state)
{
	return atomic_load_explicit(&state->timeout_ns, memory_order_relaxed);
}
static inline uint32_t collet_comm_state_world_rank(const struct collet_comm_state *state, uint32_t rank)
{
	return state->world_ranks ? state->world_ranks[rank] : rank;
}

#endif
