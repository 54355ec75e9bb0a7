/* verbs: the transport's table, progress, and closing an endpoint. verbs_endpoint.h explains how bytes move. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_completion.h"
#include "verbs_endpoint.h"
#include "verbs_iwarp.h"

/* Rounds of progress, and of flushing, between checks of the peer. Each check is a system call. */
enum { IDLE_ROUNDS = 1000, FLUSH_CHECKS = 100 };

/* Most time that close() waits until sent messages are acknowledged. */
static const int64_t flush_timeout_ns = INT64_C(1000000000);

static struct verbs_endpoint *verbs_of(struct collet_endpoint *endpoint)
{
	return (struct verbs_endpoint *)endpoint;
}

static bool reaches(const struct collet_peer_info *self, const struct collet_peer_info *peer)
{
	size_t own_bytes, their_bytes;
	const uint8_t *own = collet_peer_info_data(self, "verbs", &own_bytes);
	const uint8_t *theirs = collet_peer_info_data(peer, "verbs", &their_bytes);
	/* The bytes of struct verbs_peer_data: protocol version, then kinds of networks. */
	return self->rank != peer->rank && own && theirs && own_bytes >= 2 && their_bytes >= 2 && own[0] == theirs[0] &&
		(own[1] & theirs[1]) != 0;
}

/* ---- Data path ---------------------------------------------------------------------------------------------- */

/* Borrows a transfer. Returns false if the endpoint has ended: the transfer then completes with its status. */
static bool enqueue(
	struct collet_endpoint *endpoint, struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->status = endpoint->status;
	if (endpoint->status != COLLET_OK)
		return false;
	transfer->status = COLLET_PENDING;
	transfer->transport_private[0] = VERBS_PHASE_WAITING;
	transfer->transport_private[2] = false;
	endpoint->posted++;
	collet_transfer_queue_add(queue, transfer);
	return true;
}

static void post_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct verbs_endpoint *verbs = verbs_of(endpoint);
	if (endpoint->status == COLLET_OK && collet_verbs_try_send(verbs, transfer))
		return;
	if (!enqueue(endpoint, &verbs->sends, transfer))
		return;
	if (!verbs->unsent)
		verbs->unsent = transfer;
	collet_verbs_send(verbs);
}

static void post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct verbs_endpoint *verbs = verbs_of(endpoint);
	if (!enqueue(endpoint, &verbs->receives, transfer))
		return;
	if (!verbs->unmatched)
		verbs->unmatched = transfer;
	if (verbs->in_matched == verbs->in_arrived)
		return;
	collet_verbs_match(verbs);
	collet_verbs_progress_large(verbs);
	collet_verbs_send_credit(verbs);
	(void)collet_verbs_complete(verbs);
}

static void release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct verbs_endpoint *verbs = verbs_of(endpoint);
	if (!transfer->transport_private[2] || endpoint->status != COLLET_OK)
		return;
	collet_verbs_free_arrival(verbs, (uint32_t)transfer->transport_private[1]);
	collet_verbs_send_credit(verbs);
}

static uint32_t progress_queues(struct verbs_endpoint *verbs)
{
	const uint32_t completions = collet_verbs_poll(verbs);
	collet_verbs_match(verbs);
	if (!verbs->is_lost) {
		collet_verbs_send(verbs);
		collet_verbs_progress_large(verbs);
		collet_verbs_send_credit(verbs);
	}
	verbs->empty_rounds = completions ? 0 : verbs->empty_rounds + 1;
	return collet_verbs_complete(verbs);
}

static uint32_t progress(struct collet_endpoint *endpoint)
{
	struct verbs_endpoint *verbs = verbs_of(endpoint);
	if (endpoint->status != COLLET_OK)
		return 0;
	uint32_t completed = progress_queues(verbs);
	if (verbs->empty_rounds >= IDLE_ROUNDS && endpoint->posted && !verbs->is_lost) {
		verbs->empty_rounds = 0;
		collet_verbs_check_peer(verbs);
	}
	if (!verbs->is_lost)
		return completed;
	/* Delivers everything that arrived before the loss. */
	do
		completed += progress_queues(verbs);
	while (verbs->empty_rounds == 0);
	return endpoint->posted ? completed + collet_verbs_fail(verbs) : completed;
}

/* Detects in peek() that the peer has gone: nobody calls progress() while nothing is posted. */
static void check_idle_peer(struct verbs_endpoint *verbs)
{
	if (verbs->empty_rounds >= IDLE_ROUNDS && !verbs->is_lost) {
		verbs->empty_rounds = 0;
		collet_verbs_check_peer(verbs);
	}
	if (!verbs->is_lost)
		return;
	do
		(void)progress_queues(verbs);
	while (verbs->empty_rounds == 0);
	if (verbs->in_matched == verbs->in_arrived)
		(void)collet_verbs_fail(verbs);
}

static bool peek(struct collet_endpoint *endpoint, struct collet_message *message)
{
	struct verbs_endpoint *verbs = verbs_of(endpoint);
	if (endpoint->status != COLLET_OK)
		return false;
	if (verbs->in_matched == verbs->in_arrived)
		(void)progress_queues(verbs);
	if (verbs->in_matched == verbs->in_arrived && endpoint->posted == 0)
		check_idle_peer(verbs);
	if (verbs->in_matched == verbs->in_arrived)
		return false;
	*message = verbs->arrivals[verbs->in_matched % VERBS_SLOTS].header.message;
	return true;
}

/* Refuses messages that fit into the ring, because the CPU copies those. */
static bool accepts_gpu(struct collet_endpoint *endpoint, const void *data, uint64_t bytes)
{
	const struct verbs_endpoint *verbs = verbs_of(endpoint);
	return bytes > verbs_max_small_bytes(verbs->profile) && collet_verbs_has_gpu_mr(verbs->device, data, bytes);
}

/* ---- Closing ------------------------------------------------------------------------------------------------ */

/* Returns true if the peer has closed its socket. It does so last, so no queue pair of it acknowledges anything
 * then. */
static bool has_peer_left(const struct verbs_endpoint *verbs)
{
	char byte;
	return recv(verbs->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Waits until sent messages have arrived: a send completes when its bytes have been copied or posted. The probe is
 * behind all of them in the queue. */
static void flush_sends(struct verbs_endpoint *verbs)
{
	const int64_t start_ns = collet_verbs_now_ns();
	bool is_posted = false;
	verbs->is_closing = true;
	verbs->is_flush_pending = true;
	for (uint32_t round = 1;
		verbs->is_flush_pending && !verbs->is_lost && collet_verbs_now_ns() - start_ns < flush_timeout_ns;
		round++) {
		if (round % FLUSH_CHECKS == 0 && has_peer_left(verbs))
			break;
		if (!is_posted && collet_verbs_has_room(&verbs->qps[0])) {
			is_posted = true;
			collet_verbs_post_probe(verbs, 0, VERBS_TAG_FLUSH);
		}
		collet_verbs_poll(verbs);
	}
}

/* Closes the descriptors of an endpoint in a forked child. The adapters' objects belong to the parent, and registered
 * memory is not mapped in the child. The first endpoint also closes those of the device, since device_close() is not
 * called in a child. */
static void close_in_child(struct verbs_endpoint *verbs)
{
	for (uint32_t r = 0; r < verbs->rail_count; r++)
		if (verbs->rails[r].comp_channel)
			close(verbs->rails[r].comp_channel->fd);
	if (verbs_is_iwarp(verbs))
		collet_verbs_iwarp_close_in_child(verbs);
	close(verbs->socket);
	if (verbs->device->is_closed_in_child)
		return;
	verbs->device->is_closed_in_child = true;
	collet_verbs_close_fds_in_child(verbs->device);
}

static void close_endpoint(struct collet_endpoint *endpoint)
{
	struct verbs_endpoint *verbs = verbs_of(endpoint);
	if (verbs->state == VERBS_CLOSED)
		return;
	const bool is_intact = endpoint->status == COLLET_OK && verbs->state == VERBS_READY && !verbs->is_lost;
	if (endpoint->status == COLLET_OK)
		endpoint->status = COLLET_CANCELLED;
	verbs->state = VERBS_CLOSED;
	if (verbs->owner_pid != getpid()) {
		close_in_child(verbs);
		return;
	}
	if (is_intact)
		flush_sends(verbs);
	collet_verbs_destroy_qps(verbs);
	collet_verbs_reset_large(verbs);
	(void)collet_verbs_complete_all(verbs, COLLET_CANCELLED);
	collet_verbs_free_resources(verbs);
	(void)epoll_ctl(verbs->epoll_fd, EPOLL_CTL_DEL, verbs->socket, NULL);
	shutdown(verbs->socket, SHUT_RDWR);  /* close() alone does not end it if a forked child has a copy */
	close(verbs->socket);
}

const struct collet_transport collet_transport_module = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "verbs",
	.summary = "hosts with RDMA adapters: InfiniBand, RoCE and iWARP, by reliable connections",
	.caps = COLLET_CAP_VIEW,
	.priority = 500,
	.endpoint_bytes = sizeof(struct verbs_endpoint),
	.device_open = collet_verbs_device_open,
	.device_close = collet_verbs_device_close,
	.memory_register = collet_verbs_memory_register,
	.memory_deregister = collet_verbs_memory_deregister,
	.reaches = reaches,
	.open = collet_verbs_open,
	.open_progress = collet_verbs_open_progress,
	.close = close_endpoint,
	.post_send = post_send,
	.post_recv = post_recv,
	.release_view = release_view,
	.progress = progress,
	.peek = peek,
	.arm = collet_verbs_arm,
	.disarm = collet_verbs_disarm,
	.accepts_gpu = accepts_gpu,
};
