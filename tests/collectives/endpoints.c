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

static void complete_send(struct endpoint *endpoint, struct message *send)
{
	endpoint->sent++;
	take(endpoint->sending, &endpoint->sending_count, send->number, true);
	send->item->sends_left--;
	complete(send->item);
	advance(send->item->stream);
}

static void complete_receive(struct endpoint *endpoint, struct message *receive, const expression *values)
{
	memcpy(receive->memory, values, receive->length * sizeof *values);
	endpoint->received++;
	take(endpoint->receiving, &endpoint->receiving_count, receive->number, true);
	receive->item->receives_left--;
	complete(receive->item);
	advance(receive->item->stream);
}

/* Reads the sender's memory as it is now. */
static void fetch(struct machine *m, struct endpoint *endpoint, struct message *send, struct message *receive)
{
	const size_t bytes = send->length * sizeof *send->memory;
	if (send->snapshot && memcmp(send->snapshot, send->memory, bytes) != 0)
		found(m, DEFECT_SENT_OVERWRITTEN, "call %u, rank %u, item %llu", send->item->stream->call,
			send->item->stream->rank, (unsigned long long)send->item->index);
	expression *values = must(malloc(bytes + 1));
	memcpy(values, send->memory, bytes);
	complete_send(endpoint, send);
	complete_receive(endpoint, receive, values);
	free(values);
}

static void fill_slot(struct endpoint *endpoint, struct message *send)
{
	endpoint->slot = must(malloc(send->length * sizeof *send->memory + 1));
	memcpy(endpoint->slot, send->memory, send->length * sizeof *send->memory);
	endpoint->slot_full = true;
	complete_send(endpoint, send);
}

static void empty_slot(struct endpoint *endpoint, struct message *receive)
{
	expression *values = endpoint->slot;
	endpoint->slot_full = false;
	endpoint->slot = NULL;
	complete_receive(endpoint, receive, values);
	free(values);
}

bool turn(struct machine *m, struct endpoint *endpoint)
{
	struct message *send = take(endpoint->sending, &endpoint->sending_count, endpoint->sent, false);
	struct message *receive = take(endpoint->receiving, &endpoint->receiving_count, endpoint->received, false);
	if (m->run->mode == TRANSFER_ONE_SLOT) {
		if (send && !endpoint->slot_full)
			fill_slot(endpoint, send);
		else if (receive && endpoint->slot_full)
			empty_slot(endpoint, receive);
		else
			return false;
		return true;
	}
	if (!send || !receive)
		return false;
	fetch(m, endpoint, send, receive);
	return true;
}
