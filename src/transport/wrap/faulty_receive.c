/* Receives messages of the faulty wrapper: the receive of a message is posted once its header has come. */
#include "core/status.h"
#include "transport/wrap/faulty.h"

/* Checks a header. As in any transport, the peer's bytes are not trusted. */
static bool is_valid(const struct faulty_header *header)
{
	if (header->parts < 1 || header->parts > PARTS_MAX || header->ends[header->parts - 1] != header->message.bytes)
		return false;
	for (uint64_t p = 1; p < header->parts; p++)
		if (header->ends[p] < header->ends[p - 1])
			return false;
	return true;
}

/* True if the announced parts can be received into the first waiting receive. Otherwise ends the endpoint. */
static bool is_receivable(struct faulty_endpoint *faulty)
{
	if (faulty->header.parts == 1 || !(faulty->in.waiting.first->flags & COLLET_TRANSFER_GPU))
		return true;
	(void)faulty_end(faulty,
		collet_fail(COLLET_ERR_CONFIG,
			"%s: rank %u on %s, channel %u: a message that it has split cannot be received into GPU "
			"memory; COLLET_FAULTY must say split=0 on all ranks or on none",
			faulty->device->name, faulty->endpoint.peer, faulty->peer->host, faulty->endpoint.channel));
	return false;
}

/* Posts the receives of the announced parts, for the first waiting receive. False if no slot is free. */
static bool begin_receive(struct faulty_endpoint *faulty)
{
	const struct collet_transport *table = faulty_table(faulty);
	struct collet_endpoint *inner = faulty_inner(faulty);
	struct faulty_slot *slot = faulty_alloc_slot(&faulty->in, faulty->in.waiting.first);
	if (!slot)
		return false;
	struct collet_transfer *outer = faulty_pop_waiting(&faulty->in);
	faulty->has_header = false;
	slot->content = faulty->header;
	slot->parts = (uint32_t)slot->content.parts;
	slot->is_mismatch = !collet_message_equal(&slot->content.message, &outer->message);
	slot->is_view = !slot->is_mismatch && slot->parts == 1 && outer->flags & COLLET_TRANSFER_VIEW;
	for (uint32_t p = 0; p < slot->parts; p++) {
		slot->part[p] = faulty_part(&faulty->in, slot, p, outer, slot->is_mismatch);
		slot->part[p].flags |= slot->is_view ? COLLET_TRANSFER_VIEW : 0;
	}
	for (uint32_t p = 0; p < slot->parts; p++)
		table->post_recv(inner, &slot->part[p]);
	return true;
}

bool faulty_get_header(struct faulty_endpoint *faulty)
{
	if (faulty->has_header)
		return true;
	if (!faulty->is_header_posted) {
		faulty->header_receive = (struct collet_transfer){
			.message = { HEADER_SIGNATURE, faulty->in.sequence++, sizeof(faulty->header) },
			.data = &faulty->header,
		};
		faulty->is_header_posted = true;
		faulty_table(faulty)->post_recv(faulty_inner(faulty), &faulty->header_receive);
	}
	if (faulty->header_receive.status == COLLET_PENDING)
		return false;
	if (faulty->header_receive.status == COLLET_OK && is_valid(&faulty->header)) {
		faulty->is_header_posted = false;
		faulty->has_header = true;
		return true;
	}
	if (faulty_inner(faulty)->status == COLLET_OK && faulty->endpoint.status == COLLET_OK)
		(void)faulty_end(faulty,
			collet_fail(COLLET_ERR_TRANSPORT,
				"%s: rank %u on %s, channel %u: the received bytes are not a message of this wrapper",
				faulty->device->name, faulty->endpoint.peer, faulty->peer->host,
				faulty->endpoint.channel));
	return false;
}

static void complete_receive(struct faulty_endpoint *faulty, struct faulty_slot *slot)
{
	struct collet_transfer *outer = slot->outer;
	slot->outer = NULL;
	faulty->endpoint.posted--;
	if (slot->is_mismatch) {
		slot->is_used = false;
		outer->message = slot->content.message;
		outer->status = COLLET_ERR_MISMATCH;
		return;
	}
	/* The slot of a view is kept until release_view(). */
	outer->transport_private[0] = slot->is_view ? (uint64_t)(slot - faulty->in.slot) + 1 : 0;
	outer->view = slot->is_view ? slot->part[0].view : outer->data;
	slot->is_used = slot->is_view;
	faulty->endpoint.stats.messages_received++;
	faulty->endpoint.stats.bytes_received += outer->message.bytes;
	outer->status = COLLET_OK;
}

uint32_t faulty_advance_in(struct faulty_endpoint *faulty)
{
	struct faulty_direction *in = &faulty->in;
	uint32_t completed = 0;
	while (in->waiting.first && faulty->endpoint.status == COLLET_OK && faulty_get_header(faulty) &&
		is_receivable(faulty) && begin_receive(faulty))
		;
	while (in->first) {
		struct faulty_slot *slot = in->first;
		collet_status status;
		if (!faulty_is_complete(slot, &status))
			break;
		if (status != (slot->is_mismatch ? COLLET_ERR_MISMATCH : COLLET_OK))
			break;  /* the wrapped endpoint has ended: see faulty_mirror() */
		in->first = slot->next;
		complete_receive(faulty, slot);
		completed++;
	}
	return completed;
}

void faulty_post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	transfer->status = endpoint->status;
	if (endpoint->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	endpoint->posted++;
	collet_transfer_queue_add(&faulty->in.waiting, transfer);
	(void)faulty_advance_in(faulty);
	(void)faulty_mirror(faulty);
}

void faulty_release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	const uint64_t slot_number = transfer->transport_private[0];
	if (!slot_number || slot_number > SLOTS)
		return;
	struct faulty_slot *slot = &faulty->in.slot[slot_number - 1];
	transfer->transport_private[0] = 0;
	faulty_table(faulty)->release_view(faulty_inner(faulty), &slot->part[0]);
	transfer->status = slot->part[0].status;
	slot->is_used = false;
}
