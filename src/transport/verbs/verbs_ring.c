/* verbs: small messages through the peer's ring. Both ends compute where the next message starts: behind the last one,
 * or at unit 0 if it does not fit before the end. The start in the immediate only serves as a check. */
#include <stddef.h>
#include <string.h>

#include "verbs_completion.h"
#include "verbs_endpoint.h"

enum { HEADER_MAGIC = 0x76746c63 };  /* "cltv" */
_Static_assert(sizeof(struct verbs_header) == VERBS_HEADER_BYTES, "a ring's messages are counted with their headers");

static uint32_t units_of(uint64_t bytes)
{
	return (uint32_t)((sizeof(struct verbs_header) + bytes + VERBS_UNIT_BYTES - 1) / VERBS_UNIT_BYTES);
}

/* ---- Sending ------------------------------------------------------------------------------------------------ */

/* Sends a header and the data behind it with one write. Returns false if there is no room. */
static bool put_message(
	struct verbs_endpoint *verbs, const struct verbs_header *header, const void *data, uint64_t bytes)
{
	struct verbs_qp *qp = &verbs->qps[0];
	const uint32_t units = units_of(bytes);
	const bool is_wrapped = verbs->out_unit + units > verbs->profile->units;
	const uint32_t skipped = is_wrapped ? verbs->profile->units - verbs->out_unit : 0;
	if (verbs->out_sent - verbs->out_freed == verbs->profile->window || skipped + units > verbs->out_free_units ||
		!collet_verbs_has_room(qp))
		return false;
	const uint32_t start = is_wrapped ? 0 : verbs->out_unit;
	const uint32_t length = (uint32_t)(sizeof(*header) + bytes);
	const uint64_t ring = verbs->peer_memory + verbs_memory_offset(verbs, verbs->ring);
	struct verbs_write write = { .to = ring + start * VERBS_UNIT_BYTES,
		.rkey = verbs->peer_rkeys[qp->peer_rail],
		.has_immediate = true,
		.tag = VERBS_TAG_RING };
	if (length <= qp->inline_bytes) {
		write.parts[0] = (struct ibv_sge){ .addr = (uintptr_t)header, .length = sizeof(*header) };
		write.parts[1] = (struct ibv_sge){ .addr = (uintptr_t)data, .length = (uint32_t)bytes };
		write.part_count = bytes ? 2 : 1;
	} else {
		/* The mirror is free here because the ring is free there: the message that was sent from here has
		 * been received. */
		uint8_t *mirror = verbs->mirror + start * VERBS_UNIT_BYTES;
		memcpy(mirror, header, sizeof(*header));
		memcpy(mirror + sizeof(*header), data, bytes);
		write.parts[0] = (struct ibv_sge){ .addr = (uintptr_t)mirror, .length = length,
			.lkey = verbs->rails[qp->rail].mr->lkey };
		write.part_count = 1;
	}
	write.immediate = collet_verbs_immediate(verbs, VERBS_KIND_MESSAGE, start);
	verbs->out_unit = start + units;
	verbs->out_free_units -= skipped + units;
	verbs->out_units[verbs->out_sent++ % VERBS_SLOTS] = (uint16_t)(skipped + units);
	collet_verbs_post_write(verbs, 0, &write);
	return true;
}

static bool put_small(struct verbs_endpoint *verbs, const struct collet_transfer *transfer)
{
	const struct verbs_header header = { .message = transfer->message, .magic = HEADER_MAGIC };
	return put_message(verbs, &header, transfer->data, transfer->message.bytes);
}

static bool put_large(struct verbs_endpoint *verbs, struct collet_transfer *transfer)
{
	const uint32_t id = verbs->large_sent % VERBS_LARGE_MAX;
	const struct verbs_header header = { .message = transfer->message, .large_id = 1 + id, .magic = HEADER_MAGIC };
	if (verbs->outgoing[id].transfer || !put_message(verbs, &header, NULL, 0))
		return false;
	verbs->large_sent++;
	collet_verbs_begin_large_send(verbs, id, transfer);
	return true;
}

bool collet_verbs_try_send(struct verbs_endpoint *verbs, struct collet_transfer *transfer)
{
	if (verbs->sends.first || verbs->is_lost || transfer->message.bytes > verbs_max_small_bytes(verbs->profile) ||
		!put_small(verbs, transfer))
		return false;
	verbs->endpoint.stats.messages_sent++;
	verbs->endpoint.stats.bytes_sent += transfer->message.bytes;
	transfer->status = COLLET_OK;
	return true;
}

void collet_verbs_send(struct verbs_endpoint *verbs)
{
	while (verbs->unsent && !verbs->is_lost) {
		struct collet_transfer *transfer = verbs->unsent;
		const bool is_small = transfer->message.bytes <= verbs_max_small_bytes(verbs->profile);
		if (!(is_small ? put_small(verbs, transfer) : put_large(verbs, transfer)))
			return;
		transfer->transport_private[0] = is_small ? VERBS_PHASE_DONE : VERBS_PHASE_IN_FLIGHT;
		verbs->unsent = transfer->next;
	}
}

void collet_verbs_handle_credit(struct verbs_endpoint *verbs, uint32_t freed)
{
	uint32_t freed_count = (freed - verbs->out_freed) & 0xfffff;
	if (freed_count > verbs->out_sent - verbs->out_freed) {
		collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT, "it freed %u messages more than it was sent",
			freed_count - (verbs->out_sent - verbs->out_freed));
		return;
	}
	for (; freed_count; freed_count--)
		verbs->out_free_units += verbs->out_units[verbs->out_freed++ % VERBS_SLOTS];
}

/* ---- Receiving ---------------------------------------------------------------------------------------------- */

void collet_verbs_handle_arrival(struct verbs_endpoint *verbs, uint32_t start, uint32_t bytes)
{
	const struct verbs_profile *profile = verbs->profile;
	struct verbs_header header = { 0 };
	if (start < profile->units)
		memcpy(&header, verbs->ring + start * VERBS_UNIT_BYTES, sizeof(header));
	const uint64_t payload = header.large_id ? 0 : header.message.bytes;
	const bool is_valid = header.magic == HEADER_MAGIC && header.large_id <= VERBS_LARGE_MAX &&
			      payload <= verbs_max_small_bytes(profile) && bytes == sizeof(header) + payload &&
			      verbs->in_arrived - verbs->in_freed < profile->window &&
			      start + units_of(payload) <= profile->units;
	const uint32_t units = is_valid ? units_of(payload) : 0;
	const bool is_wrapped = verbs->in_unit + units > profile->units;
	if (!is_valid || start != (is_wrapped ? 0 : verbs->in_unit)) {
		collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT,
			"the %u bytes in unit %u of the ring (expected in unit %u) are no valid message", bytes, start,
			is_wrapped ? 0 : verbs->in_unit);
		return;
	}
	verbs->arrivals[verbs->in_arrived++ % VERBS_SLOTS] = (struct verbs_arrival){ .header = header,
		.start = (uint16_t)start,
		.units = (uint16_t)(units + (is_wrapped ? profile->units - verbs->in_unit : 0)) };
	verbs->in_unit = start + units;
}

void collet_verbs_free_arrival(struct verbs_endpoint *verbs, uint32_t index)
{
	verbs->arrivals[index % VERBS_SLOTS].is_freed = true;
	while (verbs->in_freed != verbs->in_matched && verbs->arrivals[verbs->in_freed % VERBS_SLOTS].is_freed)
		verbs->in_units_uncredited += verbs->arrivals[verbs->in_freed++ % VERBS_SLOTS].units;
}

/* Delivers a small message to its receive: as a view of the ring, or by a copy. */
static enum verbs_phase deliver(struct verbs_endpoint *verbs, struct collet_transfer *receive, uint32_t index)
{
	const struct verbs_arrival *arrival = &verbs->arrivals[index % VERBS_SLOTS];
	const uint8_t *bytes = verbs->ring + arrival->start * VERBS_UNIT_BYTES + sizeof(arrival->header);
	if (receive->flags & COLLET_TRANSFER_VIEW) {
		receive->view = bytes;
		receive->transport_private[1] = index;
		receive->transport_private[2] = true;
		return VERBS_PHASE_DONE;
	}
	if (receive->message.bytes)
		memcpy(receive->data, bytes, receive->message.bytes);
	receive->view = receive->data;
	collet_verbs_free_arrival(verbs, index);
	return VERBS_PHASE_DONE;
}

/* Returns true if an announcement uses the number of an earlier large message whose last end has not arrived yet. Queue
 * pairs, and completion queues, can overtake each other. */
static bool is_id_in_use(const struct verbs_endpoint *verbs, const struct verbs_header *header)
{
	return header->large_id && verbs->incoming[header->large_id - 1].mode != VERBS_CTS_NONE;
}

void collet_verbs_match(struct verbs_endpoint *verbs)
{
	while (verbs->unmatched && verbs->in_matched != verbs->in_arrived) {
		struct collet_transfer *receive = verbs->unmatched;
		const uint32_t index = verbs->in_matched;
		const struct verbs_header header = verbs->arrivals[index % VERBS_SLOTS].header;
		if (is_id_in_use(verbs, &header))
			return;
		verbs->in_matched++;
		const bool is_match = collet_message_equal(&header.message, &receive->message);
		enum verbs_phase phase = VERBS_PHASE_MISMATCH;
		verbs->unmatched = receive->next;
		if (header.large_id) {
			collet_verbs_free_arrival(verbs, index);
			collet_verbs_begin_large_recv(verbs, header.large_id - 1, is_match ? receive : NULL);
			phase = is_match ? VERBS_PHASE_IN_FLIGHT : VERBS_PHASE_MISMATCH;
		} else if (is_match) {
			phase = deliver(verbs, receive, index);
		} else {
			collet_verbs_free_arrival(verbs, index);
		}
		if (phase == VERBS_PHASE_MISMATCH)
			receive->message = header.message;
		receive->transport_private[0] = phase;
	}
}

void collet_verbs_send_credit(struct verbs_endpoint *verbs)
{
	const bool is_due = verbs->in_freed - verbs->in_credited >= verbs->profile->window / VERBS_CREDIT_PARTS ||
			    verbs->in_units_uncredited >= verbs->profile->units / 2;
	if (!is_due || verbs->is_lost || !collet_verbs_has_room(&verbs->qps[0]))
		return;
	const struct verbs_write write = { .to = verbs->peer_memory + offsetof(struct verbs_memory, probe),
		.rkey = verbs->peer_rkeys[verbs->qps[0].peer_rail],
		.has_immediate = true,
		.immediate = collet_verbs_immediate(verbs, VERBS_KIND_CREDIT, 0),
		.tag = VERBS_TAG_RING };
	collet_verbs_post_write(verbs, 0, &write);
}

/* ---- Both --------------------------------------------------------------------------------------------------- */

uint32_t collet_verbs_complete(struct verbs_endpoint *verbs)
{
	struct collet_endpoint *endpoint = &verbs->endpoint;
	uint32_t completed = 0;
	for (; verbs->receives.first && verbs->receives.first != verbs->unmatched; completed++) {
		const struct collet_transfer *receive = verbs->receives.first;
		const uint64_t phase = receive->transport_private[0];
		if (phase == VERBS_PHASE_IN_FLIGHT)
			break;
		if (phase == VERBS_PHASE_DONE) {
			endpoint->stats.messages_received++;
			endpoint->stats.bytes_received += receive->message.bytes;
		}
		collet_transfer_queue_complete(
			&verbs->receives, endpoint, phase == VERBS_PHASE_DONE ? COLLET_OK : COLLET_ERR_MISMATCH);
	}
	for (; verbs->sends.first && verbs->sends.first != verbs->unsent; completed++) {
		const struct collet_transfer *send = verbs->sends.first;
		if (send->transport_private[0] != VERBS_PHASE_DONE)
			break;
		endpoint->stats.messages_sent++;
		endpoint->stats.bytes_sent += send->message.bytes;
		collet_transfer_queue_complete(&verbs->sends, endpoint, COLLET_OK);
	}
	return completed;
}
