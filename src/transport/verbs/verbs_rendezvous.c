/* verbs: large messages (rendezvous). The sender announces a message, the receiver answers with a CTS, and all data
 * queue pairs write stripes of it from the sender's memory into the receiver's. Stripes are cut in proportion to the
 * rates of the queue pairs, so that they end together. The cut does not affect the order of a reduction, because the
 * engine reduces a message when all of it has arrived. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "verbs_completion.h"
#include "verbs_endpoint.h"

/* Argument of an immediate of KIND_END: number of the large message, number of its stripes, and END_BOUNCE for a
 * segment in a bounce buffer. */
enum { END_ID_MASK = 3, END_PARTS_SHIFT = 2, END_PARTS_MASK = 7, END_BOUNCE = 1 << 5 };

static uint32_t adapter_of(const struct verbs_endpoint *verbs, uint32_t rail)
{
	return (uint32_t)(verbs->rails[rail].adapter - verbs->device->adapters);
}

/* Registers a transfer's memory. Returns false if that fails: the message then goes through bounce buffers. GPU memory
 * cannot be copied here, so for it a failure ends the endpoint. */
static bool acquire_mr(struct verbs_endpoint *verbs, struct verbs_mr_ref *mr, const struct collet_transfer *transfer,
	enum verbs_access access)
{
	const uint64_t bytes = transfer->message.bytes;
	if (!(transfer->flags & COLLET_TRANSFER_GPU))
		return collet_verbs_acquire_mr(verbs->device, mr, transfer->data, bytes, access);
	if (!collet_verbs_acquire_gpu_mr(verbs->device, mr, transfer->data, bytes))
		collet_verbs_mark_lost(verbs, COLLET_ERR_ARGUMENT,
			"%llu bytes of GPU memory at %p were deregistered before a message there had ended",
			(unsigned long long)bytes, transfer->data);
	return true;
}

/* ---- Receiving ---------------------------------------------------------------------------------------------- */

void collet_verbs_begin_large_recv(struct verbs_endpoint *verbs, uint32_t id, struct collet_transfer *transfer)
{
	struct verbs_incoming *incoming = &verbs->incoming[id];
	assert(incoming->mode == CTS_NONE);
	*incoming = (struct verbs_incoming){ .transfer = transfer, .mode = CTS_DISCARD };
	if (!transfer)
		return;
	const uint64_t bytes = transfer->message.bytes,
		       is_bounced = (uint64_t)BOUNCE_BUFFERS * verbs->profile->bounce_bytes;
	incoming->allowed_bytes = bytes < is_bounced ? bytes : is_bounced;
	incoming->mode = acquire_mr(verbs, &incoming->mr, transfer, ACCESS_WRITE) ? CTS_DIRECT : CTS_BOUNCE;
}

/* Sends the CTS of an incoming message. Returns false if it has to wait for room or for the bounce buffers. */
static bool send_cts(struct verbs_endpoint *verbs, uint32_t id)
{
	struct verbs_incoming *incoming = &verbs->incoming[id];
	const struct verbs_qp *qp = &verbs->qps[0];
	const bool is_bounced = incoming->mode == CTS_BOUNCE;
	if (!collet_verbs_has_room(qp) ||
		(is_bounced && verbs->recv_bounce_owner && verbs->recv_bounce_owner != incoming))
		return false;
	if (is_bounced)
		verbs->recv_bounce_owner = incoming;
	struct verbs_cts *granted = &verbs->memory->cts_out[id];
	*granted = (struct verbs_cts){ .mode = incoming->mode, .allowed_bytes = incoming->allowed_bytes };
	if (incoming->mode == CTS_DIRECT) {
		granted->address = (uintptr_t)incoming->transfer->data;
		for (uint32_t r = 0; r < verbs->rail_count; r++)
			granted->rkeys[r] = collet_verbs_mr(&incoming->mr, adapter_of(verbs, r))->rkey;
	}
	const struct verbs_write write = {
		.parts = { { .addr = (uintptr_t)granted, .length = sizeof(*granted),
			.lkey = verbs->rails[qp->rail].mr->lkey } },
		.part_count = 1,
		.to = verbs->peer_memory + offsetof(struct verbs_memory, cts_in) + id * sizeof(*granted),
		.rkey = verbs->peer_rkeys[qp->peer_rail],
		.has_immediate = true,
		.immediate = collet_verbs_immediate(verbs, KIND_CTS, id),
		.tag = TAG_RING };
	collet_verbs_post_write(verbs, 0, &write);
	incoming->is_cts_sent = true;
	if (incoming->mode == CTS_DISCARD)
		*incoming = (struct verbs_incoming){ 0 };
	return true;
}

static void complete_recv(struct verbs_endpoint *verbs, struct verbs_incoming *incoming)
{
	collet_verbs_release_mr(verbs->device, &incoming->mr);
	incoming->transfer->view = incoming->transfer->data;
	incoming->transfer->transport_private[0] = PHASE_DONE;
	if (verbs->recv_bounce_owner == incoming)
		verbs->recv_bounce_owner = NULL;
	*incoming = (struct verbs_incoming){ 0 };
}

/* Copies a segment out of a bounce buffer. Returns false if no segment of this size is expected. */
static bool receive_bounced(struct verbs_endpoint *verbs, struct verbs_incoming *incoming, uint32_t bytes)
{
	const uint64_t total = incoming->transfer->message.bytes, left = total - incoming->received_bytes;
	const uint64_t most = verbs->profile->bounce_bytes;
	if (bytes != (left < most ? left : most) || incoming->received_bytes >= incoming->allowed_bytes)
		return false;
	memcpy((uint8_t *)incoming->transfer->data + incoming->received_bytes,
		verbs->recv_bounce + incoming->received_bytes / most % BOUNCE_BUFFERS * most, bytes);
	incoming->received_bytes += bytes;
	if (incoming->received_bytes == total) {
		complete_recv(verbs, incoming);
	} else if (incoming->allowed_bytes < total) {
		incoming->allowed_bytes +=
			total - incoming->allowed_bytes < most ? total - incoming->allowed_bytes : most;
		incoming->is_cts_sent = false;
	}
	return true;
}

void collet_verbs_handle_end(struct verbs_endpoint *verbs, uint32_t argument, uint32_t bytes)
{
	struct verbs_incoming *incoming = &verbs->incoming[argument & END_ID_MASK];
	const uint32_t parts = argument >> END_PARTS_SHIFT & END_PARTS_MASK;
	const bool place = argument & END_BOUNCE;
	/* The CTS of a bounced message is sent again and again, and the latest may still wait for room. */
	const bool expected = incoming->transfer && parts > 0 && parts <= DATA_QPS_MAX &&
		(place ? incoming->mode == CTS_BOUNCE : incoming->mode == CTS_DIRECT && incoming->is_cts_sent);
	if (!expected || (place && !receive_bounced(verbs, incoming, bytes))) {
		collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT,
			"it ends large message %u with %u bytes, which is not due", argument & END_ID_MASK, bytes);
		return;
	}
	if (!place && ++incoming->ended_parts == parts)
		complete_recv(verbs, incoming);
}

/* ---- Sending ------------------------------------------------------------------------------------------------ */

void collet_verbs_begin_large_send(struct verbs_endpoint *verbs, uint32_t id, struct collet_transfer *transfer)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[id];
	*outgoing = (struct verbs_outgoing){ .transfer = transfer };
	/* Registers after the announcement is posted, so both take place at the same time. */
	outgoing->is_bounced = !acquire_mr(verbs, &outgoing->mr, transfer, ACCESS_READ);
}

/* Cuts a message into stripes, one for each data queue pair, in proportion to their rates. Stripes are whole units, and
 * the last one takes the rest. */
static void stripe(const struct verbs_endpoint *verbs, struct verbs_outgoing *outgoing)
{
	const uint64_t bytes = outgoing->transfer->message.bytes;
	const uint32_t pairs = verbs->qp_count - 1;
	const bool whole = outgoing->is_bounced || outgoing->cts.mode == CTS_BOUNCE;
	uint64_t rates = 0, at = 0;
	outgoing->parts = whole || bytes / STRIPE_BYTES < 2 ? 1
			: bytes / STRIPE_BYTES < pairs	    ? (uint32_t)(bytes / STRIPE_BYTES)
							    : pairs;
	for (uint32_t p = 0; p < outgoing->parts; p++)
		rates += verbs->rates_mbps[1 + p];
	for (uint32_t p = 0; p < outgoing->parts; p++) {
		/* No stripe may be empty, because each ends with an immediate. */
		const uint64_t most = bytes - at - (outgoing->parts - 1 - p) * (uint64_t)UNIT_BYTES;
		uint64_t share =
			(uint64_t)((unsigned __int128)bytes * verbs->rates_mbps[1 + p] / rates) | (UNIT_BYTES - 1);
		share = share + 1 < most && p + 1 < outgoing->parts ? share + 1 : most;
		outgoing->next[p] = at;
		at += share;
		outgoing->end[p] = at;
	}
}

static void complete_send(struct verbs_endpoint *verbs, struct verbs_outgoing *outgoing)
{
	collet_verbs_release_mr(verbs->device, &outgoing->mr);
	outgoing->transfer->transport_private[0] = PHASE_DONE;
	*outgoing = (struct verbs_outgoing){ 0 };
}

void collet_verbs_handle_cts(struct verbs_endpoint *verbs, uint32_t id)
{
	struct verbs_outgoing *outgoing = id < LARGE_MAX ? &verbs->outgoing[id] : NULL;
	struct verbs_cts cts;
	if (outgoing)
		memcpy(&cts, &verbs->memory->cts_in[id], sizeof(cts));
	const bool first = outgoing && outgoing->cts.mode == CTS_NONE;
	if (!outgoing || !outgoing->transfer || cts.mode == CTS_NONE || cts.mode > CTS_DISCARD ||
		(!first && (cts.mode != CTS_BOUNCE || outgoing->cts.mode != CTS_BOUNCE))) {
		collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT,
			"it grants large message %u, which was not announced", id);
		return;
	}
	outgoing->cts = cts;
	if (cts.mode == CTS_DISCARD)
		complete_send(verbs, outgoing);
	else if (first)
		stripe(verbs, outgoing);
}

/* Posts the next write of a stripe. Returns false if nothing can be written now. */
static bool write_segment(struct verbs_endpoint *verbs, uint32_t id, uint32_t part)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[id];
	const struct verbs_qp *qp = &verbs->qps[1 + part];
	const bool is_bounced = outgoing->cts.mode == CTS_BOUNCE;
	const uint64_t place_bytes = verbs->profile->bounce_bytes;
	const uint64_t at = outgoing->next[part],
		       most = is_bounced || outgoing->is_bounced ? place_bytes : verbs->max_write_bytes;
	uint64_t bytes = outgoing->end[part] - at;
	bytes = bytes < most ? bytes : most;
	if (!bytes || !collet_verbs_has_room(qp) || (is_bounced && at + bytes > outgoing->cts.allowed_bytes))
		return false;
	uint8_t *from = (uint8_t *)outgoing->transfer->data + at;
	uint32_t key, staging = 0;
	if (outgoing->is_bounced) {
		while (staging < BOUNCE_BUFFERS && (verbs->send_bounce_used >> staging & 1))
			staging++;
		if (staging == BOUNCE_BUFFERS)
			return false;
		from = memcpy(verbs->send_bounce + staging * place_bytes, from, bytes);
		verbs->send_bounce_used |= 1u << staging++;
		key = verbs->rails[qp->rail].mr->lkey;
	} else {
		key = collet_verbs_mr(&outgoing->mr, adapter_of(verbs, qp->rail))->lkey;
	}
	const struct verbs_write write = {
		.parts = { { .addr = (uintptr_t)from, .length = (uint32_t)bytes, .lkey = key } },
		.part_count = 1,
		.to = is_bounced ? verbs->peer_memory + verbs_memory_offset(verbs, verbs->recv_bounce) +
				at / place_bytes % BOUNCE_BUFFERS * place_bytes
			     : outgoing->cts.address + at,
		.rkey = is_bounced ? verbs->peer_rkeys[qp->peer_rail] : outgoing->cts.rkeys[qp->peer_rail],
		.has_immediate = is_bounced || at + bytes == outgoing->end[part],
		.immediate = (uint32_t)KIND_END << 30 |
			(id | outgoing->parts << END_PARTS_SHIFT | (is_bounced ? END_BOUNCE : 0)) << 20,
		.tag = TAG_DATA | id << 8 | staging << 16 };
	outgoing->next[part] += bytes;
	outgoing->in_flight++;
	collet_verbs_post_write(verbs, 1 + part, &write);
	return !verbs->is_lost;
}

void collet_verbs_handle_data_done(struct verbs_endpoint *verbs, uint32_t tag)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[tag & 0xff];
	const uint32_t staging = tag >> 8;
	if (staging)
		verbs->send_bounce_used &= ~(1u << (staging - 1));
	if (!outgoing->transfer)
		return;
	outgoing->in_flight--;
	for (uint32_t p = 0; p < outgoing->parts; p++)
		if (outgoing->next[p] != outgoing->end[p])
			return;
	if (!outgoing->in_flight)
		complete_send(verbs, outgoing);
}

/* ---- Both --------------------------------------------------------------------------------------------------- */

void collet_verbs_progress_large(struct verbs_endpoint *verbs)
{
	for (uint32_t id = 0; id < LARGE_MAX && !verbs->is_lost; id++)
		if (verbs->incoming[id].mode != CTS_NONE && !verbs->incoming[id].is_cts_sent)
			(void)send_cts(verbs, id);
	for (uint32_t i = 0; i < LARGE_MAX && !verbs->is_lost; i++) {
		const uint32_t id = (verbs->large_sent + i) % LARGE_MAX;      /* the oldest first */
		if (!verbs->outgoing[id].transfer || verbs->outgoing[id].cts.mode == CTS_NONE)
			continue;
		for (uint32_t p = 0; p < verbs->outgoing[id].parts; p++)
			while (!verbs->is_lost && write_segment(verbs, id, p)) {
			}
	}
}

void collet_verbs_reset_large(struct verbs_endpoint *verbs)
{
	for (uint32_t id = 0; id < LARGE_MAX; id++) {
		collet_verbs_release_mr(verbs->device, &verbs->outgoing[id].mr);
		collet_verbs_release_mr(verbs->device, &verbs->incoming[id].mr);
		verbs->outgoing[id] = (struct verbs_outgoing){ 0 };
		verbs->incoming[id] = (struct verbs_incoming){ 0 };
	}
	verbs->recv_bounce_owner = NULL;
}
