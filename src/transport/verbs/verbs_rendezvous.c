/* verbs: large messages (rendezvous). The sender announces a message, the receiver answers with a CTS, and all data
 * queue pairs write stripes of it from the sender's memory into the receiver's. Stripes are cut in proportion to the
 * rates of the queue pairs, so that they end together. The cut does not affect the order of a reduction, because the
 * engine reduces a message when all of it has arrived. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "verbs_completion.h"
#include "verbs_endpoint.h"

/* Argument of an immediate of VERBS_KIND_END: number of the large message, number of its stripes, and END_BOUNCE for a
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
			"%llu bytes of GPU memory at %p were deregistered before a message there had completed",
			(unsigned long long)bytes, transfer->data);
	return true;
}

/* ---- Receiving ---------------------------------------------------------------------------------------------- */

void collet_verbs_begin_large_recv(struct verbs_endpoint *verbs, uint32_t id, struct collet_transfer *transfer)
{
	struct verbs_incoming *incoming = &verbs->incoming[id];
	assert(incoming->mode == VERBS_CTS_NONE);
	*incoming = (struct verbs_incoming){ .transfer = transfer, .mode = VERBS_CTS_DISCARD };
	if (!transfer)
		return;
	const uint64_t bytes = transfer->message.bytes,
		       window_bytes = (uint64_t)VERBS_BOUNCE_BUFFERS * verbs->profile->bounce_bytes;
	incoming->allowed_bytes = bytes < window_bytes ? bytes : window_bytes;
	incoming->mode =
		acquire_mr(verbs, &incoming->mr, transfer, VERBS_ACCESS_WRITE) ? VERBS_CTS_DIRECT : VERBS_CTS_BOUNCE;
}

/* Sends the CTS of an incoming message. Returns false if it has to wait for room or for the bounce buffers. */
static bool send_cts(struct verbs_endpoint *verbs, uint32_t id)
{
	struct verbs_incoming *incoming = &verbs->incoming[id];
	const struct verbs_qp *qp = &verbs->qps[0];
	const bool is_bounced = incoming->mode == VERBS_CTS_BOUNCE;
	if (!collet_verbs_has_room(qp) ||
		(is_bounced && verbs->recv_bounce_owner && verbs->recv_bounce_owner != incoming))
		return false;
	if (is_bounced)
		verbs->recv_bounce_owner = incoming;
	struct verbs_cts *cts = &verbs->memory->cts_out[id];
	*cts = (struct verbs_cts){ .mode = incoming->mode, .allowed_bytes = incoming->allowed_bytes };
	if (incoming->mode == VERBS_CTS_DIRECT) {
		cts->address = (uintptr_t)incoming->transfer->data;
		for (uint32_t r = 0; r < verbs->rail_count; r++)
			cts->rkeys[r] = collet_verbs_mr(&incoming->mr, adapter_of(verbs, r))->rkey;
	}
	const struct verbs_write write = { .parts = { { .addr = (uintptr_t)cts,
						   .length = sizeof(*cts),
						   .lkey = verbs->rails[qp->rail].mr->lkey } },
		.part_count = 1,
		.to = verbs->peer_memory + offsetof(struct verbs_memory, cts_in) + id * sizeof(*cts),
		.rkey = verbs->peer_rkeys[qp->peer_rail],
		.has_immediate = true,
		.immediate = collet_verbs_immediate(verbs, VERBS_KIND_CTS, id),
		.tag = VERBS_TAG_RING };
	collet_verbs_post_write(verbs, 0, &write);
	incoming->is_cts_sent = true;
	if (incoming->mode == VERBS_CTS_DISCARD)
		*incoming = (struct verbs_incoming){ 0 };
	return true;
}

static void complete_recv(struct verbs_endpoint *verbs, struct verbs_incoming *incoming)
{
	collet_verbs_release_mr(verbs->device, &incoming->mr);
	incoming->transfer->view = incoming->transfer->data;
	incoming->transfer->transport_private[0] = VERBS_PHASE_DONE;
	if (verbs->recv_bounce_owner == incoming)
		verbs->recv_bounce_owner = NULL;
	*incoming = (struct verbs_incoming){ 0 };
}

/* Copies a segment out of a bounce buffer. Returns false if no segment of this size is expected. */
static bool receive_bounced(struct verbs_endpoint *verbs, struct verbs_incoming *incoming, uint32_t bytes)
{
	const uint64_t total = incoming->transfer->message.bytes, left = total - incoming->received_bytes;
	const uint64_t bounce_bytes = verbs->profile->bounce_bytes;
	if (bytes != (left < bounce_bytes ? left : bounce_bytes) || incoming->received_bytes >= incoming->allowed_bytes)
		return false;
	memcpy((uint8_t *)incoming->transfer->data + incoming->received_bytes,
		verbs->recv_bounce + incoming->received_bytes / bounce_bytes % VERBS_BOUNCE_BUFFERS * bounce_bytes,
		bytes);
	incoming->received_bytes += bytes;
	if (incoming->received_bytes == total) {
		complete_recv(verbs, incoming);
	} else if (incoming->allowed_bytes < total) {
		incoming->allowed_bytes +=
			total - incoming->allowed_bytes < bounce_bytes ? total - incoming->allowed_bytes : bounce_bytes;
		incoming->is_cts_sent = false;
	}
	return true;
}

void collet_verbs_handle_end(struct verbs_endpoint *verbs, uint32_t argument, uint32_t bytes)
{
	struct verbs_incoming *incoming = &verbs->incoming[argument & END_ID_MASK];
	const uint32_t parts = argument >> END_PARTS_SHIFT & END_PARTS_MASK;
	const bool is_bounced = argument & END_BOUNCE;
	/* The CTS of a bounced message is sent again and again, and the latest may still wait for room. */
	const bool is_expected = incoming->transfer && parts > 0 && parts <= VERBS_DATA_QPS_MAX &&
				 (is_bounced ? incoming->mode == VERBS_CTS_BOUNCE
					     : incoming->mode == VERBS_CTS_DIRECT && incoming->is_cts_sent);
	if (!is_expected || (is_bounced && !receive_bounced(verbs, incoming, bytes))) {
		collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT,
			"it ended large message %u with %u bytes, which is unexpected", argument & END_ID_MASK, bytes);
		return;
	}
	if (!is_bounced && ++incoming->ended_parts == parts)
		complete_recv(verbs, incoming);
}

/* ---- Sending ------------------------------------------------------------------------------------------------ */

void collet_verbs_begin_large_send(struct verbs_endpoint *verbs, uint32_t id, struct collet_transfer *transfer)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[id];
	*outgoing = (struct verbs_outgoing){ .transfer = transfer };
	/* Registers after the announcement is posted, so both take place at the same time. */
	outgoing->is_bounced = !acquire_mr(verbs, &outgoing->mr, transfer, VERBS_ACCESS_READ);
}

/* Cuts a message into stripes, one for each data queue pair, in proportion to their rates. Stripes are whole units, and
 * the last one takes the rest. */
static void stripe(const struct verbs_endpoint *verbs, struct verbs_outgoing *outgoing)
{
	const uint64_t bytes = outgoing->transfer->message.bytes;
	const uint32_t data_qps = verbs->qp_count - 1;
	const bool is_single = outgoing->is_bounced || outgoing->cts.mode == VERBS_CTS_BOUNCE;
	uint64_t rates = 0, offset = 0;
	outgoing->parts = is_single || bytes / VERBS_STRIPE_BYTES < 2 ? 1
			  : bytes / VERBS_STRIPE_BYTES < data_qps     ? (uint32_t)(bytes / VERBS_STRIPE_BYTES)
								      : data_qps;
	for (uint32_t p = 0; p < outgoing->parts; p++)
		rates += verbs->rates_mbps[1 + p];
	for (uint32_t p = 0; p < outgoing->parts; p++) {
		/* No stripe may be empty, because each ends with an immediate. */
		const uint64_t max_bytes = bytes - offset - (outgoing->parts - 1 - p) * (uint64_t)VERBS_UNIT_BYTES;
		uint64_t share = (uint64_t)((unsigned __int128)bytes * verbs->rates_mbps[1 + p] / rates) |
				 (VERBS_UNIT_BYTES - 1);
		share = share + 1 < max_bytes && p + 1 < outgoing->parts ? share + 1 : max_bytes;
		outgoing->next[p] = offset;
		offset += share;
		outgoing->end[p] = offset;
	}
}

static void complete_send(struct verbs_endpoint *verbs, struct verbs_outgoing *outgoing)
{
	collet_verbs_release_mr(verbs->device, &outgoing->mr);
	outgoing->transfer->transport_private[0] = VERBS_PHASE_DONE;
	*outgoing = (struct verbs_outgoing){ 0 };
}

void collet_verbs_handle_cts(struct verbs_endpoint *verbs, uint32_t id)
{
	struct verbs_outgoing *outgoing = id < VERBS_LARGE_MAX ? &verbs->outgoing[id] : NULL;
	struct verbs_cts cts;
	if (outgoing)
		memcpy(&cts, &verbs->memory->cts_in[id], sizeof(cts));
	const bool is_first = outgoing && outgoing->cts.mode == VERBS_CTS_NONE;
	if (!outgoing || !outgoing->transfer || cts.mode == VERBS_CTS_NONE || cts.mode > VERBS_CTS_DISCARD ||
		(!is_first && (cts.mode != VERBS_CTS_BOUNCE || outgoing->cts.mode != VERBS_CTS_BOUNCE))) {
		collet_verbs_mark_lost(
			verbs, COLLET_ERR_TRANSPORT, "it sent a CTS for large message %u, which was not announced", id);
		return;
	}
	outgoing->cts = cts;
	if (cts.mode == VERBS_CTS_DISCARD)
		complete_send(verbs, outgoing);
	else if (is_first)
		stripe(verbs, outgoing);
}

/* Posts the next write of a stripe. Returns false if nothing can be written now. */
static bool write_segment(struct verbs_endpoint *verbs, uint32_t id, uint32_t part)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[id];
	const struct verbs_qp *qp = &verbs->qps[1 + part];
	const bool is_bounced = outgoing->cts.mode == VERBS_CTS_BOUNCE;
	const uint64_t bounce_bytes = verbs->profile->bounce_bytes;
	const uint64_t offset = outgoing->next[part],
		       max_bytes = is_bounced || outgoing->is_bounced ? bounce_bytes : verbs->max_write_bytes;
	uint64_t bytes = outgoing->end[part] - offset;
	bytes = bytes < max_bytes ? bytes : max_bytes;
	if (!bytes || !collet_verbs_has_room(qp) || (is_bounced && offset + bytes > outgoing->cts.allowed_bytes))
		return false;
	uint8_t *from = (uint8_t *)outgoing->transfer->data + offset;
	uint32_t key, buffer = 0;
	if (outgoing->is_bounced) {
		while (buffer < VERBS_BOUNCE_BUFFERS && (verbs->send_bounce_used >> buffer & 1))
			buffer++;
		if (buffer == VERBS_BOUNCE_BUFFERS)
			return false;
		from = memcpy(verbs->send_bounce + buffer * bounce_bytes, from, bytes);
		verbs->send_bounce_used |= 1u << buffer++;
		key = verbs->rails[qp->rail].mr->lkey;
	} else {
		key = collet_verbs_mr(&outgoing->mr, adapter_of(verbs, qp->rail))->lkey;
	}
	const struct verbs_write write = {
		.parts = { { .addr = (uintptr_t)from, .length = (uint32_t)bytes, .lkey = key } },
		.part_count = 1,
		.to = is_bounced ? verbs->peer_memory + verbs_memory_offset(verbs, verbs->recv_bounce) +
					   offset / bounce_bytes % VERBS_BOUNCE_BUFFERS * bounce_bytes
				 : outgoing->cts.address + offset,
		.rkey = is_bounced ? verbs->peer_rkeys[qp->peer_rail] : outgoing->cts.rkeys[qp->peer_rail],
		.has_immediate = is_bounced || offset + bytes == outgoing->end[part],
		.immediate = (uint32_t)VERBS_KIND_END << 30 |
			     (id | outgoing->parts << END_PARTS_SHIFT | (is_bounced ? END_BOUNCE : 0)) << 20,
		.tag = VERBS_TAG_DATA | id << 8 | buffer << 16
	};
	outgoing->next[part] += bytes;
	outgoing->in_flight++;
	collet_verbs_post_write(verbs, 1 + part, &write);
	return !verbs->is_lost;
}

void collet_verbs_handle_data_done(struct verbs_endpoint *verbs, uint32_t tag)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[tag & 0xff];
	const uint32_t buffer = tag >> 8;
	if (buffer)
		verbs->send_bounce_used &= ~(1u << (buffer - 1));
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
	for (uint32_t id = 0; id < VERBS_LARGE_MAX && !verbs->is_lost; id++)
		if (verbs->incoming[id].mode != VERBS_CTS_NONE && !verbs->incoming[id].is_cts_sent)
			(void)send_cts(verbs, id);
	for (uint32_t i = 0; i < VERBS_LARGE_MAX && !verbs->is_lost; i++) {
		const uint32_t id = (verbs->large_sent + i) % VERBS_LARGE_MAX; /* the oldest first */
		if (!verbs->outgoing[id].transfer || verbs->outgoing[id].cts.mode == VERBS_CTS_NONE)
			continue;
		for (uint32_t p = 0; p < verbs->outgoing[id].parts; p++)
			while (!verbs->is_lost && write_segment(verbs, id, p)) {
			}
	}
}

void collet_verbs_reset_large(struct verbs_endpoint *verbs)
{
	for (uint32_t id = 0; id < VERBS_LARGE_MAX; id++) {
		collet_verbs_release_mr(verbs->device, &verbs->outgoing[id].mr);
		collet_verbs_release_mr(verbs->device, &verbs->incoming[id].mr);
		verbs->outgoing[id] = (struct verbs_outgoing){ 0 };
		verbs->incoming[id] = (struct verbs_incoming){ 0 };
	}
	verbs->recv_bounce_owner = NULL;
}
