/* The interpreter: moves messages from one rank to another. */
#include <string.h>

#include "machine.h"

/* Removes the message with this number from a list. */
static struct message *take(struct message **list, uint32_t *count, uint64_t number, bool remove)
{
	for (uint32_t i = 0; i < *count; i++) {
		if (list[i]->number != number)
			continue;
		struct message *message = list[i];
		if (remove)
			list[i] = list[--*count];
		return message;
	}
	return NULL;
}

static void settle_send(struct conduit *conduit, struct message *send)
{
	conduit->sent++;
	take(conduit->sending, &conduit->sending_count, send->number, true);
	send->item->sends_left--;
	settle(send->item);
	advance(send->item->stream);
}

static void settle_receive(struct conduit *conduit, struct message *receive, const expression *values)
{
	memcpy(receive->memory, values, receive->length * sizeof *values);
	conduit->received++;
	take(conduit->receiving, &conduit->receiving_count, receive->number, true);
	receive->item->receives_left--;
	settle(receive->item);
	advance(receive->item->stream);
}

/* Reads the sender's memory as it is now. */
static void fetch(struct machine *m, struct conduit *conduit, struct message *send, struct message *receive)
{
	const size_t bytes = send->length * sizeof *send->memory;
	if (send->snapshot && memcmp(send->snapshot, send->memory, bytes) != 0)
		found(m, DEFECT_LENT_OVERWRITTEN, "call %u, rank %u, item %llu", send->item->stream->call,
			send->item->stream->rank, (unsigned long long)send->item->index);
	expression *values = must(malloc(bytes + 1));
	memcpy(values, send->memory, bytes);
	settle_send(conduit, send);
	settle_receive(conduit, receive, values);
	free(values);
}

static void fill_slot(struct conduit *conduit, struct message *send)
{
	conduit->slot = must(malloc(send->length * sizeof *send->memory + 1));
	memcpy(conduit->slot, send->memory, send->length * sizeof *send->memory);
	conduit->slot_full = true;
	settle_send(conduit, send);
}

static void empty_slot(struct conduit *conduit, struct message *receive)
{
	expression *values = conduit->slot;
	conduit->slot_full = false;
	conduit->slot = NULL;
	settle_receive(conduit, receive, values);
	free(values);
}

bool turn(struct machine *m, struct conduit *conduit)
{
	struct message *send = take(conduit->sending, &conduit->sending_count, conduit->sent, false);
	struct message *receive = take(conduit->receiving, &conduit->receiving_count, conduit->received, false);
	if (m->run->mode == TRANSFER_ONE_SLOT) {
		if (send && !conduit->slot_full)
			fill_slot(conduit, send);
		else if (receive && conduit->slot_full)
			empty_slot(conduit, receive);
		else
			return false;
		return true;
	}
	if (!send || !receive)
		return false;
	fetch(m, conduit, send, receive);
	return true;
}
