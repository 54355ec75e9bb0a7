/* Point to point. Small messages travel with their tag at once (EAGER) and are kept by the receiver until somebody asks
 * for them. Of a large one only the announcement travels (ANNOUNCE: length and the sender's number for it); the
 * receiver asks for it when a receive matches (FETCH), and then it goes straight into the receive's buffer (DATA), as
 * one message or in pieces (p2p_rendezvous.c). Or the announcement says where the message is (OFFER), and a receiver
 * that can get there takes it and says so (TAKEN); another asks for it. All share one conduit a pair, in order, which
 * is what keeps messages of one pair and tag in order. A conduit's next message is looked at (peek) before a place for
 * it is chosen, so one message at a time comes in per peer. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"

enum {
	CROWDED_LOOKS = 32,               /* what looking at a peer counts as where ranks outnumber cores: there a look
					     or two are enough, since who has to answer mostly has no core now */
	ROUNDS_OF_FEW = 16                /* rounds of progress until peers are looked at that nobody here waits for */
};

static void fail(struct collet_group *group, uint32_t rank, collet_status status)
{
	/* A peer that nothing here needs may have left in good order. */
	if (status == COLLET_ERR_PEER_LOST && !group->p2p->peers[rank].needs)
		return;
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence), "point to point with rank %u: %s", rank, collet_last_error());
	pthread_mutex_lock(&group->engine->fabric_lock);
	collet_board_doubt(group, rank, status, sentence);
	pthread_mutex_unlock(&group->engine->fabric_lock);
}

static void advance_peer(struct collet_group *group, uint32_t rank)
{
	struct collet_route *route = collet_route_peek(group, COLLET_CHANNEL_P2P, rank);
	struct collet_p2p_peer *peer = &group->p2p->peers[rank];
	struct collet_conduit *conduit = collet_p2p_conduit(route);
	if (!conduit) {
		if (route && peer->first_out)
			collet_fabric_want(route);
		return;
	}
	if (conduit->posted)
		conduit->transport->progress(conduit);
	collet_status status =
		!peer->first_out || collet_p2p_advance_out(group, rank, conduit) ? COLLET_OK : conduit->status;
	if (status == COLLET_OK)
		status = collet_p2p_advance_in(group, rank, peer, conduit);
	/* Looking for what comes may have moved the last of a message whose receiver then left: it is sent. */
	if (peer->first_out && !collet_p2p_advance_out(group, rank, conduit) && status == COLLET_OK)
		status = conduit->status;
	if (status != COLLET_OK)
		fail(group, rank, status);
}

bool collet_p2p_is_busy(const struct collet_group *group)
{
	const struct collet_p2p *p2p = group->p2p;
	return p2p && (p2p->pending || p2p->busy);
}

/* One round of all peers. Returns how many requests and messages it has brought to their end. */
static uint32_t advance_all(struct collet_group *group)
{
	const struct collet_p2p *p2p = group->p2p;
	const uint32_t before = p2p->ended;
	for (uint32_t rank = 0; rank < group->size; rank++)
		advance_peer(group, rank);
	return p2p->ended - before;
}

uint32_t collet_p2p_progress(struct collet_group *group)
{
	struct collet_p2p *p2p = group->p2p;
	if (!collet_p2p_is_busy(group))
		return 0;
	const uint32_t moved = collet_p2p_advance_bounces(p2p);
	if (p2p->any || ++p2p->rounds % ROUNDS_OF_FEW == 0)
		return moved + advance_all(group);
	const uint32_t before = p2p->ended;
	for (struct collet_p2p_peer *peer = p2p->needed; peer; peer = p2p->next_look) {
		p2p->next_look = peer->next_needed;
		advance_peer(group, (uint32_t)(peer - p2p->peers));
	}
	return moved + p2p->ended - before;
}

void collet_p2p_look_at_all(struct collet_group *group)
{
	(void)advance_all(group);
}

bool collet_p2p_settle_down(struct collet_group *group)
{
	return collet_p2p_is_busy(group) && advance_all(group);
}

uint32_t collet_p2p_look_cost(const struct collet_group *group)
{
	uint32_t cost = 0;
	const struct collet_p2p_peer *peer = group->p2p ? group->p2p->needed : NULL;
	for (; peer; peer = peer->next_needed) {
		const uint32_t rank = (uint32_t)(peer - group->p2p->peers);
		const struct collet_conduit *conduit =
			collet_p2p_conduit(collet_route_peek(group, COLLET_CHANNEL_P2P, rank));
		cost += conduit && conduit->transport->caps & COLLET_CAP_CALLS ? COLLET_CALL_LOOKS :
			group->engine->crowded ? CROWDED_LOOKS : 1;
	}
	return cost;
}

bool collet_p2p_awaits_own_core(const struct collet_group *group)
{
	const struct collet_p2p_peer *peer = group->p2p ? group->p2p->needed : NULL;
	const bool some = peer;
	for (; peer; peer = peer->next_needed) {
		const uint32_t rank = (uint32_t)(peer - group->p2p->peers);
		const struct collet_route *route = collet_route_peek(group, COLLET_CHANNEL_P2P, rank);
		if (!route || !collet_route_shares_core(route))
			return false;
	}
	return some;
}

bool collet_p2p_arm(struct collet_group *group)
{
	if (group->p2p && !collet_p2p_bounces_rest(group->p2p))
		return false;
	for (uint32_t rank = 0; collet_p2p_is_busy(group) && rank < group->size; rank++) {
		struct collet_conduit *conduit = collet_p2p_conduit(collet_route_peek(group, COLLET_CHANNEL_P2P, rank));
		/* One that has failed has nothing to tell any more: its rank has left in order, or progress, which has
		 * just been here, has told the board. */
		if (conduit && conduit->status == COLLET_OK && !conduit->transport->arm(conduit))
			return false;
	}
	return true;
}

void collet_p2p_disarm(struct collet_group *group)
{
	for (uint32_t rank = 0; group->p2p && rank < group->size; rank++) {
		struct collet_conduit *conduit = collet_p2p_conduit(collet_route_peek(group, COLLET_CHANNEL_P2P, rank));
		if (conduit)
			conduit->transport->disarm(conduit);
	}
}

/* By whether they share this rank's host. */
static void set_limits(const struct collet_group *group, struct collet_p2p_peer *peers)
{
	const struct collet_engine *engine = group->engine;
	const uint64_t host = engine->cards[engine->rank].host_id;
	for (uint32_t rank = 0; rank < group->size; rank++) {
		const bool local = engine->cards[collet_group_world_rank(group, rank)].host_id == host;
		peers[rank].eager_bytes = local ? engine->limits.eager_local : engine->limits.eager_remote;
	}
}

static collet_status make(struct collet_group *group)
{
	struct collet_p2p *p2p = calloc(1, sizeof(*p2p));
	struct collet_p2p_peer *peers = calloc(group->size, sizeof(*peers));
	if (!p2p || !peers) {
		free(p2p);
		free(peers);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for point to point");
	}
	p2p->peers = peers;
	p2p->last_receive = &p2p->receives;
	p2p->last_kept = &p2p->kept;
	p2p->next_id = 1;
	set_limits(group, peers);
	group->p2p = p2p;
	return COLLET_OK;
}

/* Does a send travel at once, and not when it is asked for? What goes through cells always is. */
static bool is_eager(const struct collet_request *request)
{
	const struct collet_p2p_call *call = &request->p2p;
	return !call->bounce && call->bytes <= request->group->p2p->peers[call->peer].eager_bytes;
}

static collet_status start_send(struct collet_request *request)
{
	struct collet_group *group = request->group;
	struct collet_p2p_call *call = &request->p2p;
	if (is_eager(request))
		return collet_p2p_send_message(
			group, call->peer, EAGER, call->tag, NULL, call->buffer, call->bytes, request);
	call->id = group->p2p->next_id++;
	call->message_bytes = call->bytes;
	call->next = group->p2p->sends;
	group->p2p->sends = request;
	collet_p2p_need_peer(group->p2p, request);
	if (call->offered) {
		struct collet_bounce_offer *offer = &call->bounce->offer;
		offer->bytes = call->bytes;
		offer->id = call->id;
		return collet_p2p_send_message(
			group, call->peer, OFFER, call->tag, NULL, offer, sizeof(*offer), NULL);
	}
	const struct collet_p2p_note note = { .bytes = call->bytes, .id = call->id };
	return collet_p2p_send_message(group, call->peer, ANNOUNCE, call->tag, &note, NULL, 0, NULL);
}

static void start_receive(struct collet_request *request)
{
	struct collet_group *group = request->group;
	struct collet_p2p *p2p = group->p2p;
	const uint32_t peer = request->p2p.peer;
	request->p2p.next = NULL;
	*p2p->last_receive = request;
	p2p->last_receive = &request->p2p.next;
	if (peer == COLLET_ANY_SOURCE) {
		p2p->any++;
	} else {
		collet_p2p_need_peer(p2p, request);
		struct collet_route *route = collet_p2p_route(group, peer);
		if (route && !collet_p2p_conduit(route))
			collet_fabric_want(route);
	}
	if (p2p->kept)
		collet_p2p_match_kept(group);
}

/* A send that may go as it is, or be taken from where it is, learns that when it is asked for. */
static bool may_stay(struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	if (!call->sends)
		return false;
	if (collet_p2p_reaches_gpu(request, call->bytes))
		return true;
	call->offered = call->bounce->show && call->bounce->show(call->bounce, request);
	return call->offered;
}

/* What is sent goes at once if it can; that it could not will be seen by progress. */
collet_status collet_p2p_start(struct collet_request *request)
{
	struct collet_group *group = request->group;
	const struct collet_p2p_call *call = &request->p2p;
	const uint32_t rank = call->peer;
	collet_status status = group->p2p ? COLLET_OK : make(group);
	if (status != COLLET_OK)
		return status;
	group->p2p->pending++;
	if (call->bounce && !may_stay(request))
		collet_p2p_start_bounce(request);
	if (!call->sends) {
		start_receive(request);
		return COLLET_OK;
	}
	if (is_eager(request) && collet_p2p_send_now(group, rank, call->tag, call->buffer, call->bytes)) {
		collet_p2p_end(group->p2p, request);
		return COLLET_OK;
	}
	status = start_send(request);
	if (status != COLLET_OK)
		return status;
	struct collet_route *route = collet_route_peek(group, COLLET_CHANNEL_P2P, rank);
	struct collet_conduit *conduit = collet_p2p_conduit(route);
	if (conduit)
		(void)collet_p2p_advance_out(group, rank, conduit);
	else
		collet_fabric_want(route);
	return COLLET_OK;
}

void collet_p2p_deinit(struct collet_group *group)
{
	struct collet_p2p *p2p = group->p2p;
	if (!p2p)
		return;
	for (uint32_t rank = 0; rank < group->size; rank++) {
		collet_p2p_free_outgoing(p2p->peers[rank].first_out);
		free(p2p->peers[rank].keeping);
	}
	collet_p2p_free_outgoing(p2p->spare);
	for (struct collet_p2p_kept *kept = p2p->kept, *next; kept; kept = next) {
		next = kept->next;
		free(kept);
	}
	free(p2p->peers);
	free(p2p);
	group->p2p = NULL;
}

const struct collet_conduit_stats *collet_p2p_pulled(const struct collet_group *group, uint32_t peer)
{
	const struct collet_conduit_stats *pulled = group->p2p ? &group->p2p->peers[peer].pulled : NULL;
	return pulled && (pulled->messages_sent || pulled->messages_received) ? pulled : NULL;
}

void collet_p2p_describe(const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_p2p_call *call = &request->p2p;
	if (call->pending_parts)
		snprintf(text, capacity, "sendrecv");
	else if (call->sends)
		snprintf(text, capacity, "send of %llu bytes to rank %u, tag %u", (unsigned long long)call->bytes,
			call->peer, call->tag);
	else if (call->peer == COLLET_ANY_SOURCE)
		snprintf(text, capacity, "recv from any rank, tag %u", call->tag);
	else
		snprintf(text, capacity, "recv from rank %u, tag %u", call->peer, call->tag);
}

void collet_p2p_name_peers(const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_group *group = request->group;
	size_t used = 0;
	for (const struct collet_request *half = group->engine->requests; half; half = half->next_active) {
		if (half != request && half->p2p.parent != request)
			continue;
		const uint32_t peer = half->p2p.peer;
		if (!half->point_to_point || half->p2p.pending_parts)
			continue;
		const int more = peer == COLLET_ANY_SOURCE ?
			snprintf(text + used, capacity - used, "%sany", used ? ", " : "") :
			snprintf(text + used, capacity - used, "%s%u on %s", used ? ", " : "", peer,
				group->engine->cards[collet_group_world_rank(group, peer)].host);
		if (more < 0 || used + (size_t)more >= capacity)
			return;
		used += (size_t)more;
	}
}
