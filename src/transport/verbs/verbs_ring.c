/* verbs, small messages: through the peer's ring. Both ends compute where the next message begins (behind the last; at
 * the start where it would not fit before the end), so what the immediate says of it is only compared. */
#include <stddef.h>
#include <string.h>

#include "verbs_endpoint.h"

enum { HEADER_CHECK = 0x76746c63 };  /* "cltv" */
_Static_assert(sizeof(struct verbs_header) == HEADER_BYTES, "a ring's messages are counted with their headers");

static uint32_t units_of(uint64_t bytes)
{
	return (uint32_t)((sizeof(struct verbs_header) + bytes + UNIT_BYTES - 1) / UNIT_BYTES);
}

/* ---- Sending ------------------------------------------------------------------------------------------------ */

/* One write: the header, and bytes of data behind it. False: no room. */
static bool put(struct verbs_conduit *verbs, const struct verbs_header *header, const void *data, uint64_t bytes)
{
	struct verbs_pair *pair = &verbs->pairs[0];
	const uint32_t units = units_of(bytes);
	const bool skips = verbs->out_at + units > verbs->shape->units;
	const uint32_t skipped = skips ? verbs->shape->units - verbs->out_at : 0;
	if (verbs->out_sent - verbs->out_freed == verbs->shape->window || skipped + units > verbs->out_free ||
		!collet_verbs_room(pair))
		return false;
	const uint32_t start = skips ? 0 : verbs->out_at;
	const uint32_t length = (uint32_t)(sizeof(*header) + bytes);
	const uint64_t ring = verbs->peer_memory + verbs_memory_offset(verbs, verbs->ring);
	struct verbs_write write = { .to = ring + start * UNIT_BYTES,
		.peer_key = verbs->peer_keys[pair->peer_rail], .has_immediate = true, .tag = TAG_RING };
	if (length <= pair->inline_bytes) {
		write.parts[0] = (struct ibv_sge){ .addr = (uintptr_t)header, .length = sizeof(*header) };
		write.parts[1] = (struct ibv_sge){ .addr = (uintptr_t)data, .length = (uint32_t)bytes };
		write.part_count = bytes ? 2 : 1;
	} else {
		/* The place is free here as it is there: what was sent from it has been received. */
		uint8_t *mirror = verbs->mirror + start * UNIT_BYTES;
		memcpy(mirror, header, sizeof(*header));
		memcpy(mirror + sizeof(*header), data, bytes);
		write.parts[0] = (struct ibv_sge){ .addr = (uintptr_t)mirror, .length = length,
			.lkey = verbs->rails[pair->rail].memory->lkey };
		write.part_count = 1;
	}
	write.immediate = collet_verbs_immediate(verbs, KIND_MESSAGE, start);
	verbs->out_at = start + units;
	verbs->out_free -= skipped + units;
	verbs->out_units[verbs->out_sent++ % SLOTS] = (uint16_t)(skipped + units);
	collet_verbs_write(verbs, 0, &write);
	return true;
}

static bool put_small(struct verbs_conduit *verbs, const struct collet_transfer *transfer)
{
	const struct verbs_header header = { .message = transfer->message, .check = HEADER_CHECK };
	return put(verbs, &header, transfer->data, transfer->message.bytes);
}

static bool put_large(struct verbs_conduit *verbs, struct collet_transfer *transfer)
{
	const uint32_t which = verbs->large_sent % LARGE_MOST;
	const struct verbs_header header = { .message = transfer->message, .large = 1 + which, .check = HEADER_CHECK };
	if (verbs->outgoing[which].transfer || !put(verbs, &header, NULL, 0))
		return false;
	verbs->large_sent++;
	collet_verbs_announced(verbs, which, transfer);
	return true;
}

bool collet_verbs_send_at_once(struct verbs_conduit *verbs, struct collet_transfer *transfer)
{
	if (verbs->sends.first || verbs->gone || transfer->message.bytes > verbs_small_most(verbs->shape) ||
		!put_small(verbs, transfer))
		return false;
	verbs->conduit.stats.messages_sent++;
	verbs->conduit.stats.bytes_sent += transfer->message.bytes;
	transfer->status = COLLET_OK;
	return true;
}

void collet_verbs_send(struct verbs_conduit *verbs)
{
	while (verbs->unsent && !verbs->gone) {
		struct collet_transfer *transfer = verbs->unsent;
		const bool small = transfer->message.bytes <= verbs_small_most(verbs->shape);
		if (!(small ? put_small(verbs, transfer) : put_large(verbs, transfer)))
			return;
		transfer->transport_private[0] = small ? PHASE_DONE : PHASE_FLYING;
		verbs->unsent = transfer->next;
	}
}

void collet_verbs_credit(struct verbs_conduit *verbs, uint32_t freed)
{
	uint32_t more = (freed - verbs->out_freed) & 0xfffff;
	if (more > verbs->out_sent - verbs->out_freed) {
		collet_verbs_lose(verbs, COLLET_ERR_TRANSPORT,
			"it says that it has freed %u messages more than it was sent",
			more - (verbs->out_sent - verbs->out_freed));
		return;
	}
	for (; more; more--)
		verbs->out_free += verbs->out_units[verbs->out_freed++ % SLOTS];
}

/* ---- Receiving ---------------------------------------------------------------------------------------------- */

void collet_verbs_arrived(struct verbs_conduit *verbs, uint32_t start, uint32_t bytes)
{
	const struct verbs_shape *shape = verbs->shape;
	struct verbs_header header = { 0 };
	if (start < shape->units)
		memcpy(&header, verbs->ring + start * UNIT_BYTES, sizeof(header));
	const uint64_t payload = header.large ? 0 : header.message.bytes;
	const bool sane = header.check == HEADER_CHECK && header.large <= LARGE_MOST &&
		payload <= verbs_small_most(shape) && bytes == sizeof(header) + payload &&
		verbs->in_come - verbs->in_freed < shape->window && start + units_of(payload) <= shape->units;
	const uint32_t units = sane ? units_of(payload) : 0;
	const bool skips = verbs->in_at + units > shape->units;
	if (!sane || start != (skips ? 0 : verbs->in_at)) {
		collet_verbs_lose(verbs, COLLET_ERR_TRANSPORT,
			"what came into unit %u of the ring (expected in unit %u) with %u bytes is no message", start,
			skips ? 0 : verbs->in_at, bytes);
		return;
	}
	verbs->arrivals[verbs->in_come++ % SLOTS] = (struct verbs_arrival){ .header = header, .start = (uint16_t)start,
		.units = (uint16_t)(units + (skips ? shape->units - verbs->in_at : 0)) };
	verbs->in_at = start + units;
}

void collet_verbs_free_arrival(struct verbs_conduit *verbs, uint32_t index)
{
	verbs->arrivals[index % SLOTS].freed = true;
	while (verbs->in_freed != verbs->in_taken && verbs->arrivals[verbs->in_freed % SLOTS].freed)
		verbs->in_units_untold += verbs->arrivals[verbs->in_freed++ % SLOTS].units;
}

/* A small message meets its receive. */
static enum verbs_phase deliver(struct verbs_conduit *verbs, struct collet_transfer *receive, uint32_t index)
{
	const struct verbs_arrival *arrival = &verbs->arrivals[index % SLOTS];
	const uint8_t *bytes = verbs->ring + arrival->start * UNIT_BYTES + sizeof(arrival->header);
	if (receive->flags & COLLET_TRANSFER_VIEW) {
		receive->view = bytes;
		receive->transport_private[1] = index;
		receive->transport_private[2] = true;
		return PHASE_DONE;
	}
	if (receive->message.bytes)
		memcpy(receive->data, bytes, receive->message.bytes);
	receive->view = receive->data;
	collet_verbs_free_arrival(verbs, index);
	return PHASE_DONE;
}

/* Announced under the number of an earlier large message whose last end is still on its way: queue pairs overtake each
 * other, and so do completion queues. */
static bool is_early(const struct verbs_conduit *verbs, const struct verbs_header *header)
{
	return header->large && verbs->incoming[header->large - 1].mode != GRANT_NONE;
}

void collet_verbs_match(struct verbs_conduit *verbs)
{
	while (verbs->unmatched && verbs->in_taken != verbs->in_come) {
		struct collet_transfer *receive = verbs->unmatched;
		const uint32_t index = verbs->in_taken;
		const struct verbs_header header = verbs->arrivals[index % SLOTS].header;
		if (is_early(verbs, &header))
			return;
		verbs->in_taken++;
		const bool wanted = collet_message_equal(&header.message, &receive->message);
		enum verbs_phase phase = PHASE_MISMATCH;
		verbs->unmatched = receive->next;
		if (header.large) {
			collet_verbs_free_arrival(verbs, index);
			collet_verbs_expect(verbs, header.large - 1, wanted ? receive : NULL);
			phase = wanted ? PHASE_FLYING : PHASE_MISMATCH;
		} else if (wanted) {
			phase = deliver(verbs, receive, index);
		} else {
			collet_verbs_free_arrival(verbs, index);
		}
		if (phase == PHASE_MISMATCH)
			receive->message = header.message;
		receive->transport_private[0] = phase;
	}
}

void collet_verbs_tell(struct verbs_conduit *verbs)
{
	const bool due = verbs->in_freed - verbs->in_told >= verbs->shape->window / TELL_PARTS ||
		verbs->in_units_untold >= verbs->shape->units / 2;
	if (!due || verbs->gone || !collet_verbs_room(&verbs->pairs[0]))
		return;
	const struct verbs_write write = { .to = verbs->peer_memory + offsetof(struct verbs_memory, probe),
		.peer_key = verbs->peer_keys[verbs->pairs[0].peer_rail], .has_immediate = true,
		.immediate = collet_verbs_immediate(verbs, KIND_CREDIT, 0), .tag = TAG_RING };
	collet_verbs_write(verbs, 0, &write);
}

/* ---- Both --------------------------------------------------------------------------------------------------- */

uint32_t collet_verbs_settle(struct verbs_conduit *verbs)
{
	struct collet_conduit *conduit = &verbs->conduit;
	uint32_t settled = 0;
	for (; verbs->receives.first && verbs->receives.first != verbs->unmatched; settled++) {
		const struct collet_transfer *receive = verbs->receives.first;
		const uint64_t phase = receive->transport_private[0];
		if (phase == PHASE_FLYING)
			break;
		if (phase == PHASE_DONE) {
			conduit->stats.messages_received++;
			conduit->stats.bytes_received += receive->message.bytes;
		}
		collet_transfer_queue_settle(
			&verbs->receives, conduit, phase == PHASE_DONE ? COLLET_OK : COLLET_ERR_MISMATCH);
	}
	for (; verbs->sends.first && verbs->sends.first != verbs->unsent; settled++) {
		const struct collet_transfer *send = verbs->sends.first;
		if (send->transport_private[0] != PHASE_DONE)
			break;
		conduit->stats.messages_sent++;
		conduit->stats.bytes_sent += send->message.bytes;
		collet_transfer_queue_settle(&verbs->sends, conduit, COLLET_OK);
	}
	return settled;
}
