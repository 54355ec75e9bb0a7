/* Point to point. Small messages travel with their tag at once (EAGER) and are kept by the receiver until somebody asks
 * for them. Of a large one only the announcement travels (ANNOUNCE: length and the sender's number for it); the
 * receiver asks for it when a receive matches (FETCH), and then it goes straight into the receive's buffer (DATA). All
 * four share one conduit a pair, in order, which is what keeps messages of one pair and tag in order. A conduit's next
 * message is looked at (peek) before a place for it is chosen, so one message at a time comes in per peer. */
#include "engine/p2p.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum {
	EAGER_BYTES = 64 << 10,           /* larger messages are announced */
	SPARES_MOST = 64,
	KEPT_BYTES_MOST = 64 << 20,       /* of unasked-for messages of a peer; beyond, its conduit is left alone */
	ROUNDS_OF_FEW = 16                /* rounds of progress until peers are looked at that nobody here waits for */
};

enum kind { EAGER = 1, ANNOUNCE, FETCH, DATA };

struct note {
	uint64_t bytes, id;
};

/* A message on its way out. */
struct outgoing {
	struct outgoing *next;            /* in its peer's queue, or among the spare ones */
	struct collet_transfer transfer;
	struct collet_request *request;   /* settles with it; NULL: nobody */
	struct note note;                 /* the payload of ANNOUNCE and FETCH */
};

/* A message that nobody has asked for yet: of an eager one the bytes, of a large one the announcement. */
struct kept {
	struct kept *next;
	uint32_t source, tag;
	bool announced;
	struct note note;
	char data[];
};

/* One peer's conduit. */
struct peer {
	/* Messages to it, receives from it and sends that it has not fetched: while there are any, each round of
	 * progress looks at it. Others are looked at now and then, and before a sleep: what they send unasked has time,
	 * but they may wait until it has been taken. */
	uint32_t needs;
	struct peer *next_needed, **previous_needed;
	struct outgoing *first_out, *last_out;
	uint64_t sent;                    /* messages, for their sequence */
	bool receiving;                   /* incoming is lent */
	struct collet_transfer incoming;
	enum kind incoming_kind;
	struct collet_request *into;      /* whose buffer it goes into; NULL: kept, or a note */
	struct kept *keeping;             /* not yet in the list: its bytes are on their way */
	struct note note;
	uint64_t kept_bytes;
};

struct collet_p2p {
	struct collet_request *receives, **last_receive; /* posted, in order; matched ones included until they end */
	struct collet_request *sends;                    /* large ones, not fetched yet */
	struct kept *kept, **last_kept;                  /* in order of arrival */
	uint64_t next_id;
	uint32_t pending;                                /* requests under way */
	uint32_t busy;                                   /* messages on their way out */
	struct outgoing *spare;                          /* kept for the next messages */
	uint32_t spares;
	struct peer *peers;                              /* by rank */
	struct peer *needed, *next_look;                 /* the second: whom a round under way comes to next */
	uint32_t any;                                    /* receives that whoever sends may satisfy */
	uint32_t rounds;
	uint32_t ended;                                  /* requests, and messages on their way out; it wraps */
};

static void need(struct collet_p2p *p2p, uint32_t rank)
{
	struct peer *peer = &p2p->peers[rank];
	if (peer->needs++)
		return;
	peer->next_needed = p2p->needed;
	if (p2p->needed)
		p2p->needed->previous_needed = &peer->next_needed;
	p2p->needed = peer;
	peer->previous_needed = &p2p->needed;
}

static void need_no_more(struct collet_p2p *p2p, uint32_t rank)
{
	struct peer *peer = &p2p->peers[rank];
	assert(peer->needs);
	if (--peer->needs)
		return;
	if (p2p->next_look == peer)
		p2p->next_look = peer->next_needed;
	*peer->previous_needed = peer->next_needed;
	if (peer->next_needed)
		peer->next_needed->previous_needed = peer->previous_needed;
}

static uint64_t signature_of(enum kind kind, uint32_t tag)
{
	return (uint64_t)kind << 32 | tag;
}

/* ---- Ends of requests ---- */

static void remove_from(struct collet_request **list, struct collet_request *request)
{
	while (*list && *list != request)
		list = &(*list)->p2p.next;
	if (*list)
		*list = request->p2p.next;
}

static void end_request(struct collet_p2p *p2p, struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	if (!call->sends) {
		need_no_more(p2p, call->peer);
		remove_from(&p2p->receives, request);
		p2p->last_receive = &p2p->receives;
		while (*p2p->last_receive)
			p2p->last_receive = &(*p2p->last_receive)->p2p.next;
	}
	p2p->pending--;
	p2p->ended++;
	struct collet_request *parent = call->parent;
	const enum collet_status status = call->truncated ? COLLET_ERR_TRUNCATED : COLLET_OK;
	collet_request_end(request, status);
	if (!parent)
		return;
	parent->p2p.truncated |= call->truncated;
	collet_request_free(request);
	if (--parent->p2p.pending_parts == 0)
		collet_request_end(parent, parent->p2p.truncated ? COLLET_ERR_TRUNCATED : COLLET_OK);
}

static void end_receive(struct collet_p2p *p2p, struct collet_request *request, uint64_t bytes)
{
	struct collet_p2p_call *call = &request->p2p;
	if (call->received && !call->truncated)
		*call->received = (collet_received){ call->peer, call->tag, bytes / call->element_bytes };
	end_request(p2p, request);
}

/* ---- Sending ---- */

static struct collet_route *route_to(struct collet_group *group, uint32_t peer)
{
	return collet_route_get(group, COLLET_CHANNEL_P2P, peer);
}

static struct collet_conduit *conduit_of(struct collet_route *route)
{
	/* Pairs with the control thread's release store that publishes it. */
	return route ? atomic_load_explicit(&route->conduit, memory_order_acquire) : NULL;
}

static struct outgoing *get_outgoing(struct collet_p2p *p2p)
{
	struct outgoing *out = p2p->spare;
	if (!out)
		return calloc(1, sizeof(*out));
	p2p->spare = out->next;
	p2p->spares--;
	out->next = NULL;
	out->transfer = (struct collet_transfer){ 0 };
	return out;
}

static void put_outgoing(struct collet_p2p *p2p, struct outgoing *out)
{
	if (p2p->spares == SPARES_MOST) {
		free(out);
		return;
	}
	out->next = p2p->spare;
	p2p->spare = out;
	p2p->spares++;
}

static void free_outgoing(struct outgoing *first)
{
	for (struct outgoing *next; first; first = next) {
		next = first->next;
		free(first);
	}
}

static collet_status send_message(struct collet_group *group, uint32_t to, enum kind kind, uint32_t tag,
	const struct note *note, const void *data, uint64_t bytes, struct collet_request *request)
{
	struct collet_p2p *p2p = group->p2p;
	struct collet_route *route = route_to(group, to);
	struct outgoing *out = route ? get_outgoing(p2p) : NULL;
	if (!out) {
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message to rank %u", to);
	}
	struct peer *peer = &p2p->peers[to];
	out->request = request;
	out->transfer.status = COLLET_CANCELLED;  /* not posted yet */
	out->transfer.message = (struct collet_message){ signature_of(kind, tag), peer->sent++, bytes };
	out->transfer.data = (void *)(uintptr_t)data;
	if (note) {
		out->note = *note;
		out->transfer.data = &out->note;
		out->transfer.message.bytes = sizeof(out->note);
	}
	if (peer->first_out)
		peer->last_out->next = out;
	else
		peer->first_out = out;
	peer->last_out = out;
	p2p->busy++;
	need(p2p, to);
	return COLLET_OK;
}

/* Posts what is queued, and takes what has settled; false: the conduit failed. */
static bool advance_out(struct collet_group *group, uint32_t rank, struct collet_conduit *conduit)
{
	struct collet_p2p *p2p = group->p2p;
	struct peer *peer = &p2p->peers[rank];
	for (struct outgoing *out = peer->first_out; out; out = out->next) {
		if (out->transfer.status != COLLET_CANCELLED)
			continue;
		out->transfer.status = COLLET_PENDING;
		conduit->transport->post_send(conduit, &out->transfer);
	}
	while (peer->first_out && peer->first_out->transfer.status != COLLET_PENDING) {
		struct outgoing *out = peer->first_out;
		if (out->transfer.status != COLLET_OK)
			return false;
		peer->first_out = out->next;
		p2p->busy--;
		p2p->ended++;
		need_no_more(p2p, rank);
		if (out->request)
			end_request(p2p, out->request);
		put_outgoing(p2p, out);
	}
	return true;
}

/* ---- Receiving ---- */

static bool matches(const struct collet_p2p_call *call, uint32_t source, uint32_t tag)
{
	return !call->started && call->tag == tag && (call->peer == source || call->peer == COLLET_ANY_SOURCE);
}

static struct collet_request *find_receive(const struct collet_p2p *p2p, uint32_t source, uint32_t tag)
{
	struct collet_request *request = p2p->receives;
	while (request && !matches(&request->p2p, source, tag))
		request = request->p2p.next;
	return request;
}

/* A message from source is this receive's. */
static void match(struct collet_p2p *p2p, struct collet_request *request, uint32_t source)
{
	struct collet_p2p_call *call = &request->p2p;
	call->started = true;
	if (call->peer != COLLET_ANY_SOURCE)
		return;
	call->peer = source;
	p2p->any--;
	need(p2p, source);
}

/* A large message goes into this receive: ask for it. One that is too long is fetched by nobody; its sender is told. */
static collet_status fetch(struct collet_group *group, struct collet_request *request, uint32_t source,
	const struct note *note)
{
	struct collet_p2p_call *call = &request->p2p;
	match(group->p2p, request, source);
	call->id = note->id;
	call->truncated = note->bytes > call->bytes;
	const struct note ask = { call->truncated ? 0 : note->bytes, note->id };
	const collet_status status = send_message(group, source, FETCH, call->tag, &ask, NULL, 0, NULL);
	if (status == COLLET_OK && call->truncated)
		end_receive(group->p2p, request, 0);
	return status;
}

static struct kept *keep(uint32_t source, uint32_t tag, uint64_t bytes)
{
	struct kept *kept = calloc(1, sizeof(*kept) + bytes);
	if (!kept)
		return NULL;
	kept->source = source;
	kept->tag = tag;
	kept->note.bytes = bytes;
	return kept;
}

static void add_kept(struct collet_p2p *p2p, struct kept *kept)
{
	*p2p->last_kept = kept;
	p2p->last_kept = &kept->next;
}

/* A message has come whole. */
static collet_status arrived(struct collet_group *group, uint32_t source, struct peer *peer)
{
	struct collet_p2p *p2p = group->p2p;
	const uint32_t tag = (uint32_t)peer->incoming.message.signature;
	struct collet_request *request = peer->into;
	peer->into = NULL;
	switch (peer->incoming_kind) {
	case EAGER:
		if (request) {
			end_receive(p2p, request, peer->incoming.message.bytes);
		} else {
			peer->kept_bytes += peer->keeping->note.bytes;
			struct kept *kept = peer->keeping;
			peer->keeping = NULL;
			/* A receive may have been posted while the bytes came. */
			add_kept(p2p, kept);
			collet_p2p_match_kept(group);
		}
		return COLLET_OK;
	case ANNOUNCE:
		request = find_receive(p2p, source, tag);
		if (request)
			return fetch(group, request, source, &peer->note);
		peer->keeping = keep(source, tag, 0);
		if (!peer->keeping)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
		peer->keeping->announced = true;
		peer->keeping->note = peer->note;
		add_kept(p2p, peer->keeping);
		peer->keeping = NULL;
		return COLLET_OK;
	case FETCH:
		for (request = p2p->sends; request && request->p2p.id != peer->note.id;)
			request = request->p2p.next;
		if (!request || request->p2p.peer != source || peer->note.bytes > request->p2p.bytes)
			return collet_fail(COLLET_ERR_TRANSPORT,
				"rank %u asked for a message that was not announced to it", source);
		remove_from(&p2p->sends, request);
		need_no_more(p2p, source);
		if (peer->note.bytes == 0) {
			end_request(p2p, request);  /* its receive was too short: dropped */
			return COLLET_OK;
		}
		return send_message(
			group, source, DATA, request->p2p.tag, NULL, request->p2p.buffer, request->p2p.bytes, request);
	case DATA:
		end_receive(p2p, request, peer->incoming.message.bytes);
		return COLLET_OK;
	}
	return COLLET_OK;
}

/* Where the message that is next goes. */
static collet_status place(
	struct collet_group *group, uint32_t source, struct peer *peer, const struct collet_message *next)
{
	struct collet_p2p *p2p = group->p2p;
	const enum kind kind = (enum kind)(next->signature >> 32);
	const uint32_t tag = (uint32_t)next->signature;
	peer->incoming_kind = kind;
	peer->into = NULL;
	if (kind == EAGER && next->bytes <= EAGER_BYTES) {
		struct collet_request *request = find_receive(p2p, source, tag);
		if (request && next->bytes <= request->p2p.bytes) {
			match(p2p, request, source);
			peer->into = request;
			peer->incoming.data = request->p2p.buffer;
			return COLLET_OK;
		}
		peer->keeping = keep(source, tag, next->bytes);
		if (!peer->keeping)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
		peer->incoming.data = peer->keeping->data;
		return COLLET_OK;
	}
	if ((kind == ANNOUNCE || kind == FETCH) && next->bytes == sizeof(peer->note)) {
		peer->incoming.data = &peer->note;
		return COLLET_OK;
	}
	if (kind == DATA) {
		/* Large messages of a pair come in the order in which they were fetched. */
		for (struct collet_request *request = p2p->receives; request; request = request->p2p.next) {
			if (request->p2p.started && request->p2p.peer == source && request->p2p.tag == tag &&
				request->p2p.id && next->bytes <= request->p2p.bytes) {
				peer->into = request;
				peer->incoming.data = request->p2p.buffer;
				return COLLET_OK;
			}
		}
	}
	return collet_fail(COLLET_ERR_TRANSPORT,
		"rank %u sent a point-to-point message that makes no sense (kind %u, %llu bytes)", source,
		(unsigned)kind, (unsigned long long)next->bytes);
}

/* Takes in what has come, one message after the other. */
static collet_status advance_in(struct collet_group *group, uint32_t source, struct peer *peer,
	struct collet_conduit *conduit)
{
	for (;;) {
		if (peer->receiving) {
			if (peer->incoming.status == COLLET_PENDING)
				return COLLET_OK;
			peer->receiving = false;
			if (peer->incoming.status != COLLET_OK)
				return peer->incoming.status;
			const collet_status status = arrived(group, source, peer);
			if (status != COLLET_OK)
				return status;
		}
		struct collet_message next;
		if (peer->kept_bytes > KEPT_BYTES_MOST || !conduit->transport->peek(conduit, &next))
			return conduit->status;
		const collet_status status = place(group, source, peer, &next);
		if (status != COLLET_OK)
			return status;
		peer->incoming.status = COLLET_PENDING;
		peer->incoming.flags = 0;
		peer->incoming.message = next;
		peer->receiving = true;
		conduit->transport->post_recv(conduit, &peer->incoming);
	}
}

/* Gives what was kept to the receives that ask for it. */
void collet_p2p_match_kept(struct collet_group *group)
{
	struct collet_p2p *p2p = group->p2p;
	for (struct kept **at = &p2p->kept; *at;) {
		struct kept *kept = *at;
		struct collet_request *request = find_receive(p2p, kept->source, kept->tag);
		if (!request) {
			at = &kept->next;
			continue;
		}
		*at = kept->next;
		if (p2p->last_kept == &kept->next)
			p2p->last_kept = at;
		if (kept->announced) {
			const collet_status status = fetch(group, request, kept->source, &kept->note);
			if (status != COLLET_OK)
				collet_group_end(group, status, true, collet_last_error());
		} else {
			struct collet_p2p_call *call = &request->p2p;
			match(p2p, request, kept->source);
			call->truncated = kept->note.bytes > call->bytes;
			if (!call->truncated && kept->note.bytes)
				memcpy(call->buffer, kept->data, kept->note.bytes);
			p2p->peers[kept->source].kept_bytes -= kept->note.bytes;
			end_receive(p2p, request, kept->note.bytes);
		}
		free(kept);
	}
}

/* ---- What the engine calls ---- */

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
	struct peer *peer = &group->p2p->peers[rank];
	struct collet_conduit *conduit = conduit_of(route);
	if (!conduit) {
		if (route && peer->first_out)
			collet_fabric_want(route);
		return;
	}
	if (conduit->posted)
		conduit->transport->progress(conduit);
	collet_status status = !peer->first_out || advance_out(group, rank, conduit) ? COLLET_OK : conduit->status;
	if (status == COLLET_OK)
		status = advance_in(group, rank, peer, conduit);
	/* Looking for what comes may have moved the last of a message whose receiver then left: it is sent. */
	if (peer->first_out && !advance_out(group, rank, conduit) && status == COLLET_OK)
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
	if (p2p->any || ++p2p->rounds % ROUNDS_OF_FEW == 0)
		return advance_all(group);
	const uint32_t before = p2p->ended;
	for (struct peer *peer = p2p->needed; peer; peer = p2p->next_look) {
		p2p->next_look = peer->next_needed;
		advance_peer(group, (uint32_t)(peer - p2p->peers));
	}
	return p2p->ended - before;
}

bool collet_p2p_settle_down(struct collet_group *group)
{
	return collet_p2p_is_busy(group) && advance_all(group);
}

uint32_t collet_p2p_look_cost(const struct collet_group *group)
{
	uint32_t cost = 0;
	for (const struct peer *peer = group->p2p ? group->p2p->needed : NULL; peer; peer = peer->next_needed) {
		const uint32_t rank = (uint32_t)(peer - group->p2p->peers);
		const struct collet_conduit *conduit =
			conduit_of(collet_route_peek(group, COLLET_CHANNEL_P2P, rank));
		cost += !conduit || !(conduit->transport->caps & COLLET_CAP_CALLS) ? 1 : COLLET_CALL_LOOKS;
	}
	return cost;
}

bool collet_p2p_awaits_own_core(const struct collet_group *group)
{
	const struct peer *peer = group->p2p ? group->p2p->needed : NULL;
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
	for (uint32_t rank = 0; collet_p2p_is_busy(group) && rank < group->size; rank++) {
		struct collet_conduit *conduit = conduit_of(collet_route_peek(group, COLLET_CHANNEL_P2P, rank));
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
		struct collet_conduit *conduit = conduit_of(collet_route_peek(group, COLLET_CHANNEL_P2P, rank));
		if (conduit)
			conduit->transport->disarm(conduit);
	}
}

static collet_status make(struct collet_group *group)
{
	struct collet_p2p *p2p = calloc(1, sizeof(*p2p));
	struct peer *peers = calloc(group->size, sizeof(*peers));
	if (!p2p || !peers) {
		free(p2p);
		free(peers);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for point to point");
	}
	p2p->peers = peers;
	p2p->last_receive = &p2p->receives;
	p2p->last_kept = &p2p->kept;
	p2p->next_id = 1;
	group->p2p = p2p;
	return COLLET_OK;
}

static collet_status start_send(struct collet_request *request)
{
	struct collet_group *group = request->group;
	struct collet_p2p_call *call = &request->p2p;
	if (call->bytes <= EAGER_BYTES)
		return send_message(group, call->peer, EAGER, call->tag, NULL, call->buffer, call->bytes, request);
	call->id = group->p2p->next_id++;
	call->next = group->p2p->sends;
	group->p2p->sends = request;
	need(group->p2p, call->peer);
	const struct note note = { call->bytes, call->id };
	return send_message(group, call->peer, ANNOUNCE, call->tag, &note, NULL, 0, NULL);
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
		need(p2p, peer);
		struct collet_route *route = route_to(group, peer);
		if (route && !conduit_of(route))
			collet_fabric_want(route);
	}
	if (p2p->kept)
		collet_p2p_match_kept(group);
}

/* What is sent goes at once if it can; that it could not will be seen by progress. */
collet_status collet_p2p_start(struct collet_request *request)
{
	struct collet_group *group = request->group;
	const uint32_t rank = request->p2p.peer;
	collet_status status = group->p2p ? COLLET_OK : make(group);
	if (status != COLLET_OK)
		return status;
	group->p2p->pending++;
	if (!request->p2p.sends) {
		start_receive(request);
		return COLLET_OK;
	}
	status = start_send(request);
	if (status != COLLET_OK)
		return status;
	struct collet_route *route = collet_route_peek(group, COLLET_CHANNEL_P2P, rank);
	struct collet_conduit *conduit = conduit_of(route);
	if (conduit)
		(void)advance_out(group, rank, conduit);
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
		free_outgoing(p2p->peers[rank].first_out);
		free(p2p->peers[rank].keeping);
	}
	free_outgoing(p2p->spare);
	for (struct kept *kept = p2p->kept, *next; kept; kept = next) {
		next = kept->next;
		free(kept);
	}
	free(p2p->peers);
	free(p2p);
	group->p2p = NULL;
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
