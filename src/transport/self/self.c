/* self: a conduit from a rank to itself. What is sent on it is received on it, in order, by one memcpy.
 *
 * The second of a pair of posts moves the bytes, so nothing is ever left for progress() to do and a send settles only
 * once its receive has come: there is no buffer in between. */
#include <string.h>

#include "core/status.h"
#include "transport/registry.h"

struct self_conduit {
	struct collet_conduit conduit;
	struct collet_transfer_queue sends, receives;  /* at most one of them is not empty */
};

static bool reaches(const struct collet_card *self, const struct collet_card *peer)
{
	return self->rank == peer->rank;
}

static collet_status open_conduit(struct collet_conduit *conduit, const struct collet_conduit_config *config)
{
	conduit->status = COLLET_OK;
	return COLLET_OK;
}

static collet_status opening(struct collet_conduit *conduit)
{
	return conduit->status;
}

static void close_conduit(struct collet_conduit *conduit)
{
	struct self_conduit *self = (struct self_conduit *)conduit;
	if (conduit->status != COLLET_OK)
		return;
	conduit->status = COLLET_CANCELLED;
	collet_transfer_queue_settle_all(&self->sends, conduit, COLLET_CANCELLED);
	collet_transfer_queue_settle_all(&self->receives, conduit, COLLET_CANCELLED);
}

/* The oldest send meets the oldest receive. */
static void move(struct self_conduit *self)
{
	struct collet_conduit *conduit = &self->conduit;
	const struct collet_transfer *send = self->sends.first;
	struct collet_transfer *receive = self->receives.first;
	const uint64_t bytes = send->message.bytes;
	if (collet_message_equal(&send->message, &receive->message)) {
		if (bytes && receive->data != send->data)
			memcpy(receive->data, send->data, bytes);
		receive->view = receive->data;
		conduit->stats.bytes_received += bytes;
		conduit->stats.messages_received++;
		collet_transfer_queue_settle(&self->receives, conduit, COLLET_OK);
	} else {
		receive->message = send->message;
		collet_transfer_queue_settle(&self->receives, conduit, COLLET_ERR_MISMATCH);
	}
	conduit->stats.bytes_sent += bytes;
	conduit->stats.messages_sent++;
	collet_transfer_queue_settle(&self->sends, conduit, COLLET_OK);
}

static void post(struct self_conduit *self, struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->status = self->conduit.status;
	if (transfer->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	self->conduit.posted++;
	collet_transfer_queue_add(queue, transfer);
	if (self->sends.first && self->receives.first)
		move(self);
}

static void post_send(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct self_conduit *self = (struct self_conduit *)conduit;
	post(self, &self->sends, transfer);
}

static void post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct self_conduit *self = (struct self_conduit *)conduit;
	post(self, &self->receives, transfer);
}

static void release(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	/* the view is the receiver's own buffer */
}

static uint32_t progress(struct collet_conduit *conduit)
{
	return 0;
}

static bool peek(struct collet_conduit *conduit, struct collet_message *message)
{
	const struct self_conduit *self = (const struct self_conduit *)conduit;
	if (!self->sends.first)
		return false;
	*message = self->sends.first->message;
	return true;
}

static bool arm(struct collet_conduit *conduit)
{
	/* What is pending waits for this rank's own next post, which no descriptor tells of. */
	return conduit->status == COLLET_OK;
}

static void disarm(struct collet_conduit *conduit)
{
}

const struct collet_transport collet_self_transport = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "self",
	.summary = "a rank and itself: memcpy",
	.caps = COLLET_CAP_LOCAL,
	.priority = 1000,
	.conduit_bytes = sizeof(struct self_conduit),
	.reaches = reaches,
	.open = open_conduit,
	.opening = opening,
	.close = close_conduit,
	.post_send = post_send,
	.post_recv = post_recv,
	.release = release,
	.progress = progress,
	.peek = peek,
	.arm = arm,
	.disarm = disarm,
};
