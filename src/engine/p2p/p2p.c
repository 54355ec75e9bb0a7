/* Runs point to point.
 *
 * Small messages are sent eagerly with their tag (EAGER). The receiver keeps those that no receive matches. Large
 * messages use rendezvous (p2p_rendezvous.c). The sender sends RTS, with the length and its number for the message.
 * When a receive matches, its rank answers RTR, and the data go straight into the receive's buffer (DATA), whole or in
 * segments. If the sender has exported its buffer, it sends RTS_PULL instead. A receiver that can access the buffer
 * pulls the data and answers ATS; another answers RTR. An RTS can be withdrawn (p2p_withdraw.c).
 *
 * A pair of ranks has one endpoint for all of this. It keeps order, so messages of one pair and tag stay in order. The
 * next message of an endpoint is peeked at before its destination is chosen, so one message at a time arrives per
 * peer. */
#include <stdio.h>
#include <stdlib.h>

#include "core/status.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/engine.h"
#include "engine/mismatch.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/request.h"

enum {
	/* The cost of polling one peer where ranks outnumber cores. One or two polls are enough there, because the peer
	 * that must answer mostly has no core now. */
	OVERSUBSCRIBED_POLL_COST = 32,
	/* Peers without waiters are polled in every round of this number. */
	POLL_ALL_INTERVAL = 16
};

static void fail_peer(struct collet_comm_state *state, uint32_t rank, collet_status status)
{
	/* A peer without waiters may have left in order. */
	if (status == COLLET_ERR_PEER_LOST && !state->p2p->peers[rank].waiter_count)
		return;
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "point to point with rank %u: %s", rank, collet_last_error());
	pthread_mutex_lock(&state->engine->connections_lock);
	collet_mismatch_suspect_loss(state, rank, status, error_text);
	pthread_mutex_unlock(&state->engine->connections_lock);
}

static void progress_peer(struct collet_comm_state *state, uint32_t rank)
{
	struct collet_peer_queue *peer_queue = collet_peer_queue_find(state, COLLET_CHANNEL_P2P, rank);
	struct collet_p2p_peer *peer = &state->p2p->peers[rank];
	struct collet_endpoint *endpoint = collet_p2p_endpoint(peer_queue);
	if (!endpoint) {
		if (peer_queue && peer->first_out)
			collet_connections_request(peer_queue);
		return;
	}
	if (endpoint->posted)
		endpoint->transport->progress(endpoint);
	collet_status status =
		!peer->first_out || collet_p2p_progress_sends(state, rank, endpoint) ? COLLET_OK : endpoint->status;
	if (status == COLLET_OK)
		status = collet_p2p_progress_receives(state, rank, peer, endpoint);
	/* Receiving may have sent the end of a message, after which its receiver left: that message is complete. */
	if (peer->first_out && !collet_p2p_progress_sends(state, rank, endpoint) && status == COLLET_OK)
		status = endpoint->status;
	if (status != COLLET_OK)
		fail_peer(state, rank, status);
}

bool collet_p2p_is_busy(const struct collet_comm_state *state)
{
	const struct collet_p2p *p2p = state->p2p;
	return p2p && (p2p->request_count || p2p->outgoing_count);
}

/* Polls all peers. Returns how many requests and messages completed. */
static uint32_t progress_all(struct collet_comm_state *state)
{
	const struct collet_p2p *p2p = state->p2p;
	const uint32_t before = p2p->completed_count;
	for (uint32_t rank = 0; rank < state->size; rank++)
		progress_peer(state, rank);
	return p2p->completed_count - before;
}

uint32_t collet_p2p_progress(struct collet_comm_state *state)
{
	struct collet_p2p *p2p = state->p2p;
	if (!collet_p2p_is_busy(state))
		return 0;
	const uint32_t moved = collet_p2p_progress_bounces(p2p);
	if (p2p->any_source_count || ++p2p->poll_count % POLL_ALL_INTERVAL == 0)
		return moved + progress_all(state);
	const uint32_t before = p2p->completed_count;
	for (struct collet_p2p_peer *peer = p2p->awaited; peer; peer = p2p->next_poll) {
		p2p->next_poll = peer->next_awaited;
		progress_peer(state, (uint32_t)(peer - p2p->peers));
	}
	return moved + p2p->completed_count - before;
}

void collet_p2p_poll_all(struct collet_comm_state *state)
{
	(void)progress_all(state);
}

bool collet_p2p_progress_all(struct collet_comm_state *state)
{
	return collet_p2p_is_busy(state) && progress_all(state);
}

uint32_t collet_p2p_poll_cost(const struct collet_comm_state *state)
{
	uint32_t cost = 0;
	const struct collet_p2p_peer *peer = state->p2p ? state->p2p->awaited : NULL;
	for (; peer; peer = peer->next_awaited) {
		const uint32_t rank = (uint32_t)(peer - state->p2p->peers);
		const struct collet_endpoint *endpoint =
			collet_p2p_endpoint(collet_peer_queue_find(state, COLLET_CHANNEL_P2P, rank));
		cost += endpoint && endpoint->transport->caps & COLLET_CAP_SYSCALLS ? COLLET_SYSCALL_POLLS :
			state->engine->oversubscribed ? OVERSUBSCRIBED_POLL_COST : 1;
	}
	return cost;
}

bool collet_p2p_awaits_own_core(const struct collet_comm_state *state)
{
	const struct collet_p2p_peer *peer = state->p2p ? state->p2p->awaited : NULL;
	const bool any = peer;
	for (; peer; peer = peer->next_awaited) {
		const uint32_t rank = (uint32_t)(peer - state->p2p->peers);
		const struct collet_peer_queue *peer_queue = collet_peer_queue_find(state, COLLET_CHANNEL_P2P, rank);
		if (!peer_queue || !collet_peer_queue_shares_core(peer_queue))
			return false;
	}
	return any;
}

bool collet_p2p_arm(struct collet_comm_state *state)
{
	if (state->p2p && !collet_p2p_bounces_idle(state->p2p))
		return false;
	for (uint32_t rank = 0; collet_p2p_is_busy(state) && rank < state->size; rank++) {
		struct collet_endpoint *endpoint =
			collet_p2p_endpoint(collet_peer_queue_find(state, COLLET_CHANNEL_P2P, rank));
		/* A failed endpoint needs no wake-up: its rank has left in order, or the last round of progress has
		 * reported it to mismatch detection. */
		if (endpoint && endpoint->status == COLLET_OK && !endpoint->transport->arm(endpoint))
			return false;
	}
	return true;
}

void collet_p2p_disarm(struct collet_comm_state *state)
{
	for (uint32_t rank = 0; state->p2p && rank < state->size; rank++) {
		struct collet_endpoint *endpoint =
			collet_p2p_endpoint(collet_peer_queue_find(state, COLLET_CHANNEL_P2P, rank));
		if (endpoint)
			endpoint->transport->disarm(endpoint);
	}
}

/* Sets each peer's eager limit, which depends on whether it is on this host. */
static void set_eager_bytes(const struct collet_comm_state *state, struct collet_p2p_peer *peers)
{
	const struct collet_engine *engine = state->engine;
	const uint64_t host = engine->peer_infos[engine->rank].host_id;
	for (uint32_t rank = 0; rank < state->size; rank++) {
		const bool local = engine->peer_infos[collet_comm_state_world_rank(state, rank)].host_id == host;
		peers[rank].eager_bytes = local ? engine->limits.eager_local : engine->limits.eager_remote;
	}
}

static collet_status create_p2p(struct collet_comm_state *state)
{
	struct collet_p2p *p2p = calloc(1, sizeof(*p2p));
	struct collet_p2p_peer *peers = calloc(state->size, sizeof(*peers));
	if (!p2p || !peers) {
		free(p2p);
		free(peers);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for point to point");
	}
	p2p->peers = peers;
	p2p->next_id = 1;
	set_eager_bytes(state, peers);
	state->p2p = p2p;
	return COLLET_OK;
}

/* True if a send is eager. Sends through a bounce buffer always use rendezvous. */
static bool is_eager(const struct collet_request *request)
{
	const struct collet_p2p_call *call = &request->p2p;
	return !call->bounce && call->bytes <= request->state->p2p->peers[call->peer].eager_bytes;
}

static collet_status start_send(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_p2p_call *call = &request->p2p;
	if (is_eager(request))
		return collet_p2p_send_message(
			state, call->peer, P2P_EAGER, call->tag, NULL, call->buffer, call->bytes, request);
	call->id = state->p2p->next_id++;
	call->message_bytes = call->bytes;
	const collet_status status = collet_match_add(&state->p2p->sends, &call->match, call->peer, (uint32_t)call->id);
	if (status != COLLET_OK)
		return status;
	collet_p2p_await_peer(state->p2p, request);
	if (call->may_pull) {
		struct collet_bounce_rts *rts = &call->bounce->rts;
		rts->bytes = call->bytes;
		rts->id = call->id;
		return collet_p2p_send_message(
			state, call->peer, P2P_RTS_PULL, call->tag, NULL, rts, sizeof(*rts), NULL);
	}
	const struct collet_p2p_header header = { .bytes = call->bytes, .id = call->id };
	return collet_p2p_send_message(state, call->peer, P2P_RTS, call->tag, &header, NULL, 0, NULL);
}

static collet_status start_receive(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_p2p *p2p = state->p2p;
	const uint32_t peer = request->p2p.peer;
	if (peer == COLLET_ANY_SOURCE) {
		p2p->any_source_count++;
	} else {
		collet_p2p_await_peer(p2p, request);
		struct collet_peer_queue *peer_queue = collet_p2p_peer_queue(state, peer);
		if (peer_queue && !collet_p2p_endpoint(peer_queue))
			collet_connections_request(peer_queue);
	}
	return collet_p2p_post_receive(request);
}

/* True if a send may not need its cells, by GPUDirect or by a pull. The receiver's answer decides. */
static bool may_skip_cells(struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	if (!call->is_send)
		return false;
	if (collet_p2p_may_gpudirect(request, call->bytes))
		return true;
	call->may_pull = call->bounce->export_buffer && call->bounce->export_buffer(call->bounce, request);
	return call->may_pull;
}

/* A send is tried immediately. If its endpoint fails, the next round of progress reports it. */
collet_status collet_p2p_start(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	const struct collet_p2p_call *call = &request->p2p;
	const uint32_t rank = call->peer;
	collet_status status = state->p2p ? COLLET_OK : create_p2p(state);
	if (status != COLLET_OK)
		return status;
	state->p2p->request_count++;
	if (call->bounce && !may_skip_cells(request))
		collet_p2p_start_bounce(request);
	if (!call->is_send)
		return start_receive(request);
	if (is_eager(request) && collet_p2p_try_send(state, rank, call->tag, call->buffer, call->bytes)) {
		collet_p2p_complete(state->p2p, request);
		return COLLET_OK;
	}
	status = start_send(request);
	if (status != COLLET_OK)
		return status;
	struct collet_peer_queue *peer_queue = collet_peer_queue_find(state, COLLET_CHANNEL_P2P, rank);
	struct collet_endpoint *endpoint = collet_p2p_endpoint(peer_queue);
	if (endpoint)
		(void)collet_p2p_progress_sends(state, rank, endpoint);
	else
		collet_connections_request(peer_queue);
	return COLLET_OK;
}

void collet_p2p_deinit(struct collet_comm_state *state)
{
	struct collet_p2p *p2p = state->p2p;
	if (!p2p)
		return;
	for (uint32_t rank = 0; rank < state->size; rank++) {
		collet_p2p_free_outgoing(p2p->peers[rank].first_out);
		free(p2p->peers[rank].incoming_unexpected);
	}
	collet_p2p_free_outgoing(p2p->free_outgoing);
	for (struct collet_p2p_unexpected *unexpected = p2p->all_unexpected, *next; unexpected; unexpected = next) {
		next = unexpected->next;
		free(unexpected);
	}
	collet_p2p_free_withdrawn(p2p);
	collet_match_deinit(&p2p->receives);
	collet_match_deinit(&p2p->unexpected);
	collet_match_deinit(&p2p->sends);
	collet_match_deinit(&p2p->rendezvous);
	free(p2p->peers);
	free(p2p);
	state->p2p = NULL;
}

const struct collet_endpoint_stats *collet_p2p_pull_stats(const struct collet_comm_state *state, uint32_t peer)
{
	const struct collet_endpoint_stats *pull_stats = state->p2p ? &state->p2p->peers[peer].pull_stats : NULL;
	return pull_stats && (pull_stats->messages_sent || pull_stats->messages_received) ? pull_stats : NULL;
}

void collet_p2p_describe(const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_p2p_call *call = &request->p2p;
	if (!call->element_bytes)
		snprintf(text, capacity, "sendrecv");
	else if (call->is_send)
		snprintf(text, capacity, "send of %llu bytes to rank %u, tag %u", (unsigned long long)call->bytes,
			call->peer, call->tag);
	else if (call->peer == COLLET_ANY_SOURCE)
		snprintf(text, capacity, "recv from any rank, tag %u", call->tag);
	else
		snprintf(text, capacity, "recv from rank %u, tag %u", call->peer, call->tag);
}

/* Appends a peer to a list; false if it does not fit. */
static bool list_peer(const struct collet_comm_state *state, uint32_t peer, char *text, size_t capacity, size_t *used)
{
	const char *between = *used ? ", " : "";
	const int length = peer == COLLET_ANY_SOURCE
				   ? snprintf(text + *used, capacity - *used, "%sany", between)
				   : snprintf(text + *used, capacity - *used, "%s%u on %s", between, peer,
					     collet_comm_state_host(state, peer));
	if (length < 0 || *used + (size_t)length >= capacity)
		return false;
	*used += (size_t)length;
	return true;
}

void collet_p2p_list_peers(const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_comm_state *state = request->state;
	size_t used = 0;
	if (request->status != COLLET_PENDING)
		(void)list_peer(state, request->p2p.peer, text, capacity, &used);
	for (const struct collet_request *op = state->pending.others.first; op; op = op->next_pending) {
		if (op != request && op->p2p.parent != request)
			continue;
		if (op->is_p2p && !op->p2p.pending_ops && !list_peer(state, op->p2p.peer, text, capacity, &used))
			return;
	}
}
