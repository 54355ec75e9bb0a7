/* verbs: the table, progress and the end of a conduit. See verbs_endpoint.h for how bytes move. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_endpoint.h"

/* Rounds of progress, or of lingering, between looks for the peer: each is a system call. */
enum { IDLE_ROUNDS = 1000, LINGER_LOOKS = 100 };

/* How long close() waits for what has been sent to be acknowledged. */
static const int64_t linger_ns = INT64_C(1000000000);

static struct verbs_conduit *of(struct collet_conduit *conduit)
{
	return (struct verbs_conduit *)conduit;
}

static bool reaches(const struct collet_card *self, const struct collet_card *peer)
{
	size_t own_bytes, their_bytes;
	const uint8_t *own = collet_card_data(self, "verbs", &own_bytes);
	const uint8_t *theirs = collet_card_data(peer, "verbs", &their_bytes);
	/* Version, then the kinds of networks. */
	return self->rank != peer->rank && own && theirs && own_bytes >= 2 && their_bytes >= 2 && own[0] == theirs[0] &&
		(own[1] & theirs[1]) != 0;
}

/* ---- Moving ------------------------------------------------------------------------------------------------- */

/* Lent from here on, or settled at once when the conduit has ended. */
static bool lend(struct collet_conduit *conduit, struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->status = conduit->status;
	if (conduit->status != COLLET_OK)
		return false;
	transfer->status = COLLET_PENDING;
	transfer->transport_private[0] = PHASE_WAITING;
	transfer->transport_private[2] = false;
	conduit->posted++;
	collet_transfer_queue_add(queue, transfer);
	return true;
}

static void post_send(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct verbs_conduit *verbs = of(conduit);
	if (conduit->status == COLLET_OK && collet_verbs_send_at_once(verbs, transfer))
		return;
	if (!lend(conduit, &verbs->sends, transfer))
		return;
	if (!verbs->unsent)
		verbs->unsent = transfer;
	collet_verbs_send(verbs);
}

static void post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct verbs_conduit *verbs = of(conduit);
	if (!lend(conduit, &verbs->receives, transfer))
		return;
	if (!verbs->unmatched)
		verbs->unmatched = transfer;
	if (verbs->in_taken == verbs->in_come)
		return;
	collet_verbs_match(verbs);
	collet_verbs_push(verbs);
	collet_verbs_tell(verbs);
	(void)collet_verbs_settle(verbs);
}

static void release(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct verbs_conduit *verbs = of(conduit);
	if (!transfer->transport_private[2] || conduit->status != COLLET_OK)
		return;
	collet_verbs_free_arrival(verbs, (uint32_t)transfer->transport_private[1]);
	collet_verbs_tell(verbs);
}

static uint32_t move(struct verbs_conduit *verbs)
{
	const uint32_t completions = collet_verbs_poll(verbs);
	collet_verbs_match(verbs);
	if (!verbs->gone) {
		collet_verbs_send(verbs);
		collet_verbs_push(verbs);
		collet_verbs_tell(verbs);
	}
	verbs->idle = completions ? 0 : verbs->idle + 1;
	return collet_verbs_settle(verbs);
}

static uint32_t progress(struct collet_conduit *conduit)
{
	struct verbs_conduit *verbs = of(conduit);
	if (conduit->status != COLLET_OK)
		return 0;
	uint32_t settled = move(verbs);
	if (verbs->idle >= IDLE_ROUNDS && conduit->posted && !verbs->gone) {
		verbs->idle = 0;
		collet_verbs_look_for_peer(verbs);
	}
	if (!verbs->gone)
		return settled;
	/* What has come is still delivered. */
	do
		settled += move(verbs);
	while (verbs->idle == 0);
	return conduit->posted ? settled + collet_verbs_fail(verbs) : settled;
}

/* Nobody makes progress where nothing is posted: so who peeks finds out that the peer is gone. */
static void look_in_vain(struct verbs_conduit *verbs)
{
	if (verbs->idle >= IDLE_ROUNDS && !verbs->gone) {
		verbs->idle = 0;
		collet_verbs_look_for_peer(verbs);
	}
	if (!verbs->gone)
		return;
	do
		(void)move(verbs);
	while (verbs->idle == 0);
	if (verbs->in_taken == verbs->in_come)
		(void)collet_verbs_fail(verbs);
}

static bool peek(struct collet_conduit *conduit, struct collet_message *message)
{
	struct verbs_conduit *verbs = of(conduit);
	if (conduit->status != COLLET_OK)
		return false;
	if (verbs->in_taken == verbs->in_come)
		(void)move(verbs);
	if (verbs->in_taken == verbs->in_come && conduit->posted == 0)
		look_in_vain(verbs);
	if (verbs->in_taken == verbs->in_come)
		return false;
	*message = verbs->arrivals[verbs->in_taken % SLOTS].header.message;
	return true;
}

/* What fits into the ring the processor copies there. */
static bool takes_gpu(struct collet_conduit *conduit, const void *data, uint64_t bytes)
{
	const struct verbs_conduit *verbs = of(conduit);
	return bytes > verbs_small_most(verbs->shape) && collet_verbs_knows_gpu(verbs->device, data, bytes);
}

/* ---- Closing ------------------------------------------------------------------------------------------------ */

/* The peer closes its socket last: then it has no queue pairs any more that would acknowledge anything. */
static bool has_left(const struct verbs_conduit *verbs)
{
	char byte;
	return recv(verbs->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* A send settles when its bytes have been taken, not when they have arrived. */
static void let_sends_out(struct verbs_conduit *verbs)
{
	const int64_t begun = collet_verbs_now_ns();
	bool asked = false;
	verbs->closing = true;
	verbs->last_pending = true;
	for (uint32_t round = 1; verbs->last_pending && !verbs->gone && collet_verbs_now_ns() - begun < linger_ns;
		round++) {
		if (round % LINGER_LOOKS == 0 && has_left(verbs))
			break;
		if (!asked && collet_verbs_room(&verbs->pairs[0])) {
			asked = true;
			collet_verbs_write_empty(verbs, 0, TAG_LAST);
		}
		collet_verbs_poll(verbs);
	}
}

/* In a forked child the adapters' objects are the parent's, and its registered memory is not there. What is closed are
 * descriptors; the device's own by the first conduit, since no device is closed in a child. */
static void let_go_in_child(struct verbs_conduit *verbs)
{
	for (uint32_t r = 0; r < verbs->rail_count; r++)
		if (verbs->rails[r].channel)
			close(verbs->rails[r].channel->fd);
	if (verbs_is_iwarp(verbs))
		collet_verbs_iwarp_leave_in_child(verbs);
	close(verbs->socket);
	if (verbs->device->left_in_child)
		return;
	verbs->device->left_in_child = true;
	collet_verbs_leave_adapters(verbs->device);
}

static void close_conduit(struct collet_conduit *conduit)
{
	struct verbs_conduit *verbs = of(conduit);
	if (verbs->state == VERBS_CLOSED)
		return;
	const bool whole = conduit->status == COLLET_OK && verbs->state == VERBS_READY && !verbs->gone;
	if (conduit->status == COLLET_OK)
		conduit->status = COLLET_CANCELLED;
	verbs->state = VERBS_CLOSED;
	if (verbs->owner != getpid()) {
		let_go_in_child(verbs);
		return;
	}
	if (whole)
		let_sends_out(verbs);
	collet_verbs_destroy_pairs(verbs);
	collet_verbs_forget_large(verbs);
	(void)collet_verbs_settle_all(verbs, COLLET_CANCELLED);
	collet_verbs_let_go(verbs);
	(void)epoll_ctl(verbs->epoll_fd, EPOLL_CTL_DEL, verbs->socket, NULL);
	shutdown(verbs->socket, SHUT_RDWR);  /* a child forked meanwhile may hold it open */
	close(verbs->socket);
}

const struct collet_transport collet_transport_module = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "verbs",
	.summary = "hosts with RDMA adapters: InfiniBand, RoCE and iWARP, by reliable connections",
	.caps = COLLET_CAP_VIEW,
	.priority = 500,
	.conduit_bytes = sizeof(struct verbs_conduit),
	.device_open = collet_verbs_device_open,
	.device_close = collet_verbs_device_close,
	.memory_register = collet_verbs_memory_register,
	.memory_deregister = collet_verbs_memory_deregister,
	.reaches = reaches,
	.open = collet_verbs_open,
	.opening = collet_verbs_opening,
	.close = close_conduit,
	.post_send = post_send,
	.post_recv = post_recv,
	.release = release,
	.progress = progress,
	.peek = peek,
	.arm = collet_verbs_arm,
	.disarm = collet_verbs_disarm,
	.takes_gpu = takes_gpu,
};
