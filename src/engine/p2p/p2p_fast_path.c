/* Executes blocking calls with short messages without a request, if the transport can send or receive the message
 * immediately. To allocate, queue, match, complete and release a request takes more than half of such a call where the
 * peer has a core of its own. All other cases use a request, which handles order, deadlines, losses and sleep. */
#include "core/cpu.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/p2p/internal.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/wait.h"

enum { FAST_POLL_ALL_INTERVAL = 64 }; /* receives between two polls of all peers, which may wait for one */

/* True if a message may use the fast path. Longer ones use rendezvous. */
static bool is_short(const struct collet_comm_state *state, uint32_t rank, uint64_t bytes)
{
	return state->p2p && bytes <= state->p2p->peers[rank].eager_bytes;
}

bool collet_p2p_send_fast(struct collet_comm_state *state, uint32_t to, uint32_t tag, const void *data, uint64_t bytes)
{
	return is_short(state, to, bytes) && collet_p2p_try_send(state, to, tag, data, bytes);
}

/* True if no earlier request or message precedes this receive, and no other request waits for progress. */
static bool may_receive_fast(const struct collet_comm_state *state, const struct collet_p2p_peer *peer)
{
	return !state->engine->pending_count && !state->p2p->outgoing_count && !state->p2p->all_unexpected &&
	       !peer->receiving;
}

bool collet_p2p_receive_fast(struct collet_comm_state *state, uint32_t from, uint32_t tag, void *data, uint64_t bytes)
{
	struct collet_engine *engine = state->engine;
	if (from == COLLET_ANY_SOURCE || !is_short(state, from, bytes))
		return false;
	struct collet_p2p_peer *peer = &state->p2p->peers[from];
	struct collet_endpoint *endpoint = collet_p2p_endpoint(collet_peer_queue_find(state, COLLET_CHANNEL_P2P, from));
	if (!endpoint || !endpoint->transport->try_recv || !may_receive_fast(state, peer))
		return false;
	if (++state->p2p->fast_count % FAST_POLL_ALL_INTERVAL == 0) {
		collet_p2p_poll_all(state);
		return false;
	}
	struct collet_transfer transfer = {
		.status = COLLET_PENDING,
		.message = { collet_p2p_signature(P2P_EAGER, tag), peer->received_count, bytes },
		.data = data,
	};
	uint32_t polls = collet_engine_spin_budget(engine);
	for (;;) {
		const enum collet_try_result outcome = endpoint->transport->try_recv(endpoint, &transfer);
		if (outcome == COLLET_TRY_DONE) {
			peer->received_count++;
			return true;
		}
		if (outcome != COLLET_TRY_AGAIN || !polls)
			return false;
		polls--;
		engine->wake.empty_polls++;
		collet_cpu_relax();
	}
}
