/* Short messages of blocking calls, without a request: what the transport takes, or has, at once. A request is made,
 * queued, matched, ended and given back, which is more than half of such a call's time where the peer has a core of its
 * own; nothing of that is needed where a call is over before anybody could ask for it. Whatever is not plainly so is
 * left to a request, which order, deadlines, losses and sleep belong to. */
#include "core/cpu.h"
#include "engine/call_class.h"
#include "engine/p2p/internal.h"

enum { CALLS_OF_FEW = 64 };  /* receives so, until other peers are looked at, which may wait for that */

/* Longer ones the transport is told of, or wants to know first. */
static bool is_short(const struct collet_group *group, uint32_t rank, uint64_t bytes)
{
	return group->p2p && bytes < COLLET_CALL_TOLD_BYTES && bytes <= group->p2p->peers[rank].eager_bytes;
}

bool collet_p2p_send_at_once(struct collet_group *group, uint32_t to, uint32_t tag, const void *data, uint64_t bytes)
{
	return is_short(group, to, bytes) && collet_p2p_send_now(group, to, tag, data, bytes);
}

/* Nothing that came, or that was asked for, comes before it; and nobody waits for this rank to get on meanwhile. */
static bool is_alone(const struct collet_group *group, const struct collet_p2p_peer *peer)
{
	return !group->engine->requests && !group->p2p->busy && !group->p2p->kept && !peer->receiving;
}

bool collet_p2p_receive_at_once(struct collet_group *group, uint32_t from, uint32_t tag, void *data, uint64_t bytes)
{
	struct collet_engine *engine = group->engine;
	if (from == COLLET_ANY_SOURCE || !is_short(group, from, bytes))
		return false;
	struct collet_p2p_peer *peer = &group->p2p->peers[from];
	struct collet_conduit *conduit = collet_p2p_conduit(collet_route_peek(group, COLLET_CHANNEL_P2P, from));
	if (!conduit || !conduit->transport->recv_now || !is_alone(group, peer))
		return false;
	if (++group->p2p->at_once % CALLS_OF_FEW == 0) {
		collet_p2p_look_at_all(group);
		return false;
	}
	struct collet_transfer now = {
		.status = COLLET_PENDING,
		.message = { collet_p2p_signature(EAGER, tag), peer->came, bytes },
		.data = data,
	};
	uint32_t looks = collet_engine_brief_looks(engine);
	for (;;) {
		const enum collet_now outcome = conduit->transport->recv_now(conduit, &now);
		if (outcome == COLLET_NOW_DONE) {
			peer->came++;
			return true;
		}
		if (outcome != COLLET_NOW_WAIT || !looks)
			return false;
		looks--;
		engine->wake.waits++;
		collet_cpu_relax();
	}
}
