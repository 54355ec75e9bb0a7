/* Implements the self transport: an endpoint from a rank to itself. Each message is received in order by one memcpy.
 *
 * The second post of a pair moves the bytes. So progress() never has anything to do, and a send completes only when its
 * receive is posted: there is no buffer in between. */
#include <string.h>

#include "core/status.h"
#include "transport/registry.h"

struct self_endpoint {
	struct collet_endpoint endpoint;
	struct collet_transfer_queue sends, receives;  /* at least one of them is empty */
};

static bool reaches(const struct collet_peer_info *self, const struct collet_peer_info *peer)
{
	return self->rank == peer->rank;
}

static collet_status open_endpoint(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config)
{
	endpoint->status = COLLET_OK;
	return COLLET_OK;
}

static collet_status open_progress(struct collet_endpoint *endpoint)
{
	return endpoint->status;
}

static void close_endpoint(struct collet_endpoint *endpoint)
{
	struct self_endpoint *self = (struct self_endpoint *)endpoint;
	if (endpoint->status != COLLET_OK)
		return;
	endpoint->status = COLLET_CANCELLED;
	collet_transfer_queue_complete_all(&self->sends, endpoint, COLLET_CANCELLED);
	collet_transfer_queue_complete_all(&self->receives, endpoint, COLLET_CANCELLED);
}

/* Moves the oldest send into the oldest receive, or completes a mismatch. */
static void match_first(struct self_endpoint *self)
{
	struct collet_endpoint *endpoint = &self->endpoint;
	const struct collet_transfer *send = self->sends.first;
	struct collet_transfer *receive = self->receives.first;
	const uint64_t bytes = send->message.bytes;
	if (collet_message_equal(&send->message, &receive->message)) {
		if (bytes && receive->data != send->data)
			memcpy(receive->data, send->data, bytes);
		receive->view = receive->data;
		endpoint->stats.bytes_received += bytes;
		endpoint->stats.messages_received++;
		collet_transfer_queue_complete(&self->receives, endpoint, COLLET_OK);
	} else {
		receive->message = send->message;
		collet_transfer_queue_complete(&self->receives, endpoint, COLLET_ERR_MISMATCH);
	}
	endpoint->stats.bytes_sent += bytes;
	endpoint->stats.messages_sent++;
	collet_transfer_queue_complete(&self->sends, endpoint, COLLET_OK);
}

static void post(struct self_endpoint *self, struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->status = self->endpoint.status;
	if (transfer->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	self->endpoint.posted++;
	collet_transfer_queue_add(queue, transfer);
	if (self->sends.first && self->receives.first)
		match_first(self);
}

static void post_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct self_endpoint *self = (struct self_endpoint *)endpoint;
	post(self, &self->sends, transfer);
}

static void post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct self_endpoint *self = (struct self_endpoint *)endpoint;
	post(self, &self->receives, transfer);
}

static void release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	/* The view is the receiver's own buffer. */
}

static uint32_t progress(struct collet_endpoint *endpoint)
{
	return 0;
}

static bool peek(struct collet_endpoint *endpoint, struct collet_message *message)
{
	const struct self_endpoint *self = (const struct self_endpoint *)endpoint;
	if (!self->sends.first)
		return false;
	*message = self->sends.first->message;
	return true;
}

static bool arm(struct collet_endpoint *endpoint)
{
	/* Pending transfers wait for this rank's own next post, which no descriptor signals. */
	return endpoint->status == COLLET_OK;
}

static void disarm(struct collet_endpoint *endpoint)
{
}

const struct collet_transport collet_self_transport = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "self",
	.summary = "a rank and itself: memcpy",
	.caps = COLLET_CAP_LOCAL,
	.priority = 1000,
	.endpoint_bytes = sizeof(struct self_endpoint),
	.reaches = reaches,
	.open = open_endpoint,
	.open_progress = open_progress,
	.close = close_endpoint,
	.post_send = post_send,
	.post_recv = post_recv,
	.release_view = release_view,
	.progress = progress,
	.peek = peek,
	.arm = arm,
	.disarm = disarm,
};
