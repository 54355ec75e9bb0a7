/* faulty, receiving: a head says what follows, and only then is the message's own receive posted. */
#include "core/status.h"
#include "transport/wrap/faulty.h"

/* A head that no sender of ours makes: as with any transport, what comes from a peer is not believed. */
static bool is_sound(const struct faulty_head *head)
{
	if (head->parts < 1 || head->parts > PARTS_MOST || head->ends[head->parts - 1] != head->message.bytes)
		return false;
	for (uint64_t p = 1; p < head->parts; p++)
		if (head->ends[p] < head->ends[p - 1])
			return false;
	return true;
}

/* May what the head announces be received where the first receive that waits would have it? Else it is the end. */
static bool is_receivable(struct faulty_conduit *faulty)
{
	if (faulty->came.parts == 1 || !(faulty->in.waiting.first->flags & COLLET_TRANSFER_GPU))
		return true;
	(void)faulty_end(faulty,
		collet_fail(COLLET_ERR_CONFIG,
			"%s: rank %u on %s, channel %u: what it has cut cannot be received in a GPU's memory; "
			"COLLET_FAULTY must say split=0 on all ranks or on none",
			faulty->device->name, faulty->conduit.peer, faulty->peer->host, faulty->conduit.channel));
	return false;
}

/* Has a head: receives what it announces, into the first receive that waits. False: no room now. */
static bool begin_receive(struct faulty_conduit *faulty)
{
	const struct collet_transport *table = faulty_table(faulty);
	struct collet_conduit *inner = faulty_inner(faulty);
	struct faulty_slot *slot = faulty_take_slot(&faulty->in, faulty->in.waiting.first);
	if (!slot)
		return false;
	struct collet_transfer *outer = faulty_take_waiting(&faulty->in);
	faulty->has_head = false;
	slot->bytes = faulty->came;
	slot->parts = (uint32_t)slot->bytes.parts;
	slot->mismatched = !collet_message_equal(&slot->bytes.message, &outer->message);
	slot->viewed = !slot->mismatched && slot->parts == 1 && outer->flags & COLLET_TRANSFER_VIEW;
	for (uint32_t p = 0; p < slot->parts; p++) {
		slot->part[p] = faulty_part(&faulty->in, slot, p, outer, slot->mismatched);
		slot->part[p].flags |= slot->viewed ? COLLET_TRANSFER_VIEW : 0;
	}
	for (uint32_t p = 0; p < slot->parts; p++)
		table->post_recv(inner, &slot->part[p]);
	return true;
}

bool faulty_get_head(struct faulty_conduit *faulty)
{
	if (faulty->has_head)
		return true;
	if (!faulty->heading_posted) {
		faulty->heading = (struct collet_transfer){
			.message = { HEAD_SIGNATURE, faulty->in.sequence++, sizeof(faulty->came) },
			.data = &faulty->came,
		};
		faulty->heading_posted = true;
		faulty_table(faulty)->post_recv(faulty_inner(faulty), &faulty->heading);
	}
	if (faulty->heading.status == COLLET_PENDING)
		return false;
	if (faulty->heading.status == COLLET_OK && is_sound(&faulty->came)) {
		faulty->heading_posted = false;
		faulty->has_head = true;
		return true;
	}
	if (faulty_inner(faulty)->status == COLLET_OK && faulty->conduit.status == COLLET_OK)
		(void)faulty_end(faulty,
			collet_fail(COLLET_ERR_TRANSPORT,
				"%s: rank %u on %s, channel %u: what came is no message of this wrapper",
				faulty->device->name, faulty->conduit.peer, faulty->peer->host,
				faulty->conduit.channel));
	return false;
}

static void settle_receive(struct faulty_conduit *faulty, struct faulty_slot *slot)
{
	struct collet_transfer *outer = slot->outer;
	slot->outer = NULL;
	faulty->conduit.posted--;
	if (slot->mismatched) {
		slot->used = false;
		outer->message = slot->bytes.message;
		outer->status = COLLET_ERR_MISMATCH;
		return;
	}
	/* A view's slot is kept until it is released. */
	outer->transport_private[0] = slot->viewed ? (uint64_t)(slot - faulty->in.slot) + 1 : 0;
	outer->view = slot->viewed ? slot->part[0].view : outer->data;
	slot->used = slot->viewed;
	faulty->conduit.stats.messages_received++;
	faulty->conduit.stats.bytes_received += outer->message.bytes;
	outer->status = COLLET_OK;
}

uint32_t faulty_advance_in(struct faulty_conduit *faulty)
{
	struct faulty_way *in = &faulty->in;
	uint32_t settled = 0;
	while (in->waiting.first && faulty->conduit.status == COLLET_OK && faulty_get_head(faulty) &&
		is_receivable(faulty) && begin_receive(faulty))
		;
	while (in->first) {
		struct faulty_slot *slot = in->first;
		collet_status status;
		if (!faulty_has_settled(slot, &status))
			break;
		if (status != (slot->mismatched ? COLLET_ERR_MISMATCH : COLLET_OK))
			break;  /* the wrapped conduit has ended: faulty_follow() */
		in->first = slot->next;
		settle_receive(faulty, slot);
		settled++;
	}
	return settled;
}

void faulty_post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	transfer->status = conduit->status;
	if (conduit->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	conduit->posted++;
	collet_transfer_queue_add(&faulty->in.waiting, transfer);
	(void)faulty_advance_in(faulty);
	(void)faulty_follow(faulty);
}

void faulty_release(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	const uint64_t place = transfer->transport_private[0];
	if (!place || place > SLOTS)
		return;
	struct faulty_slot *slot = &faulty->in.slot[place - 1];
	transfer->transport_private[0] = 0;
	faulty_table(faulty)->release(faulty_inner(faulty), &slot->part[0]);
	transfer->status = slot->part[0].status;
	slot->used = false;
}
