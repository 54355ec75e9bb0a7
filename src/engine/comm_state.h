/* A communicator as the engine sees it: its ranks, tasks and peer queues, and what has ended it. */
#ifndef COLLET_ENGINE_COMM_STATE_H
#define COLLET_ENGINE_COMM_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "engine/channel.h"
#include "engine/mismatch.h"
#include "engine/recorder.h"

struct collet_engine;
struct collet_p2p;
struct collet_peer_queue;
struct collet_progress_hook;
struct collet_request;
struct collet_task;

enum { COLLET_SCRATCH_BYTES = 8 << 20 };    /* of a group, touched only as far as used */

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
static inline uint32_t collet_comm_state_world_rank(const struct collet_comm_state *state, uint32_t rank)
{
	return state->world_ranks ? state->world_ranks[rank] : rank;
}

#endif
