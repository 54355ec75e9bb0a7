/* Withdraws sends and receives of which no data are under way, so that they end alone.
 *
 * A receive that no message has matched leaves its table. A message that no transport has yet leaves its queue. If the
 * RTS of a large message has been sent, its sender forgets the request and sends WITHDRAW. The receiver then drops the
 * RTS, and answers with an RTR of 0 bytes. Or it has matched the RTS and has sent an RTR, which crosses WITHDRAW: then
 * its receive waits for a message again, in its old place. So each WITHDRAW has one answer, and until that comes the
 * sender knows the number of the message. */
#include <stdlib.h>

#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"
#include "engine/p2p/p2p.h"
#include "engine/request.h"

/* The number of a withdrawn message whose receiver has not answered yet. */
struct collet_p2p_withdrawn {
	struct collet_p2p_withdrawn *next;
	uint32_t peer;
	uint64_t id;
};

/* ---- The sender's and the receiver's own end ---- */

/* True if this message announces or carries the send. */
static bool belongs_to(const struct collet_p2p_outgoing *out, const struct collet_request *request)
{
	const struct collet_p2p_call *call = &request->p2p;
	const enum collet_p2p_kind kind = (enum collet_p2p_kind)(out->transfer.message.signature >> 32);
	if (kind == P2P_RTS)
		return call->id && out->header.id == call->id;
	if (kind == P2P_RTS_PULL)
		return call->may_pull && out->transfer.data == &call->bounce->rts;
	return out->request == request;
}

/* Finds the first message of a send in its peer's queue. *is_posted: a transport has it. NULL: it has been sent. */
static struct collet_p2p_outgoing *find_outgoing(const struct collet_request *request, bool *is_posted)
{
	const struct collet_p2p_peer *peer = &request->state->p2p->peers[request->p2p.peer];
	struct collet_p2p_outgoing *out = peer->first_out;
	*is_posted = true;
	for (; out; out = out->next) {
		*is_posted = *is_posted && out != peer->next_out;
		if (belongs_to(out, request))
			break;
	}
	return out;
}

static bool may_withdraw_send(const struct collet_request *request)
{
	bool is_posted;
	const struct collet_p2p_outgoing *out = find_outgoing(request, &is_posted);
	if (out && !is_posted)
		return !request->p2p.has_rtr;
	/* A receiver that may pull can do so any time. */
	return request->p2p.id && !request->p2p.has_rtr && !request->p2p.may_pull;
}

/* A matched receive is in no table, or has the number of its message. */
static bool may_withdraw_receive(const struct collet_request *request)
{
	return request->p2p.match.previous && !request->p2p.id;
}

static bool may_withdraw(const struct collet_request *request)
{
	return request->p2p.is_send ? may_withdraw_send(request) : may_withdraw_receive(request);
}

/* Tells the receiver of an announced message. */
static collet_status send_withdrawal(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_p2p_withdrawn *withdrawn = malloc(sizeof(*withdrawn));
	if (!withdrawn)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to withdraw a message");
	const struct collet_p2p_header header = { .id = request->p2p.id };
	const collet_status status =
		collet_p2p_send_message(state, request->p2p.peer, P2P_WITHDRAW, 0, &header, NULL, 0, NULL);
	if (status != COLLET_OK) {
		free(withdrawn);
		return status;
	}
	*withdrawn = (struct collet_p2p_withdrawn){ state->p2p->withdrawn, request->p2p.peer, request->p2p.id };
	state->p2p->withdrawn = withdrawn;
	return COLLET_OK;
}

static collet_status withdraw_send(struct collet_request *request)
{
	bool is_posted;
	struct collet_p2p_outgoing *out = find_outgoing(request, &is_posted);
	if (!out || is_posted)
		return send_withdrawal(request);
	collet_p2p_drop_outgoing(request->state->p2p, request->p2p.peer, out);
	return COLLET_OK;
}

/* Withdraws one operation and ends it. */
static collet_status withdraw_op(struct collet_request *request, collet_status ending)
{
	struct collet_p2p *p2p = request->state->p2p;
	const collet_status status = request->p2p.is_send ? withdraw_send(request) : COLLET_OK;
	if (status != COLLET_OK)
		return status;
	if (!request->p2p.is_send && request->p2p.peer == COLLET_ANY_SOURCE)
		p2p->any_source_count--;
	request->p2p.outcome = ending;
	if (request->p2p.parent) /* for the error text; the receive is the later of two */
		request->p2p.parent->p2p.peer = request->p2p.peer;
	collet_p2p_complete(p2p, request);
	return COLLET_OK;
}

/* Returns the operation of a sendrecv after this one that is pending; after NULL the first. */
static struct collet_request *next_op(const struct collet_request *parent, const struct collet_request *after)
{
	struct collet_request *op = after ? after->next_pending : parent->state->pending.others.first;
	while (op && op->p2p.parent != parent)
		op = op->next_pending;
	return op;
}

bool collet_p2p_withdraw(struct collet_request *request, collet_status ending)
{
	if (request->p2p.parent)
		request = request->p2p.parent;
	if (!request->p2p.pending_ops)
		return may_withdraw(request) && withdraw_op(request, ending) == COLLET_OK;
	for (const struct collet_request *op = NULL; (op = next_op(request, op));)
		if (!may_withdraw(op))
			return false;
	for (struct collet_request *op = NULL; request->status == COLLET_PENDING && (op = next_op(request, NULL));)
		if (withdraw_op(op, ending) != COLLET_OK)
			return false;
	return true;
}

/* ---- The other end ---- */

bool collet_p2p_forget_withdrawn(struct collet_p2p *p2p, uint32_t peer, uint64_t id)
{
	for (struct collet_p2p_withdrawn **at = &p2p->withdrawn; *at; at = &(*at)->next) {
		struct collet_p2p_withdrawn *withdrawn = *at;
		if (withdrawn->peer != peer || withdrawn->id != id)
			continue;
		*at = withdrawn->next;
		free(withdrawn);
		return true;
	}
	return false;
}

void collet_p2p_free_withdrawn(struct collet_p2p *p2p)
{
	for (struct collet_p2p_withdrawn *withdrawn = p2p->withdrawn, *next; withdrawn; withdrawn = next) {
		next = withdrawn->next;
		free(withdrawn);
	}
	p2p->withdrawn = NULL;
}
