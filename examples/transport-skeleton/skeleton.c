/* skeleton: the smallest complete transport, to start your own one from.
 *
 * It keeps the socket that the library brings, and sends messages over it: a header, then the bytes, one message after
 * the other in each direction. It has no buffers and no batching, so a message costs a system call or two. The slots of
 * struct collet_transport in collet/transport.h say what each function must do, may assume and leaves behind. This file
 * only shows how to do that with a socket. Comments marked YOURS say what a transport with an adapter of its own does
 * instead. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE                      /* POLLRDHUP */
#endif
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <collet/transport.h>

enum { MAGIC = 0x6e6b7331 };

/* Header of a message on the wire. Both ends have the same version and byte order: the library has compared them. */
struct header {
	uint32_t magic, reserved;
	struct collet_message message;
};

/* State of one rank, from before bootstrap until its last endpoint is closed. YOURS: the adapter, its memory
 * regions. */
struct collet_device {
	const struct collet_services *services;
};

struct skeleton_endpoint {
	struct collet_endpoint base; /* must be first: callers pass a pointer to it */
	const struct collet_services *services;
	const struct collet_peer_info *peer;
	int socket, epoll_fd;
	pid_t owner_pid;                 /* process that opened it; a forked child only closes its copies */
	bool is_open, is_hello_sent, is_ready;
	struct collet_transfer_queue sends, receives;
	struct header out, in;
	uint64_t sent_bytes, received_bytes; /* of the first transfer in each queue, header included */
	bool is_receiving;               /* the header of the first receive has been read and matches */
	uint64_t skip_bytes;             /* bytes to discard of a message that was a mismatch */
};

static struct skeleton_endpoint *skeleton_of(struct collet_endpoint *endpoint)
{
	return (struct skeleton_endpoint *)endpoint;
}

/* ---- Device ------------------------------------------------------------------------------------------------ */

static collet_status device_open(
	struct collet_device **device, const struct collet_device_config *config, struct collet_device_info *info)
{
	/* YOURS: look for the adapter. If there is none, return config->services->fail(COLLET_ERR_UNSUPPORTED, "no
	 * adapter in ..."): the rank then continues without this transport. */
	struct collet_device *created = calloc(1, sizeof(*created));
	if (!created)
		return config->services->fail(COLLET_ERR_MEMORY, "no memory for a device");
	created->services = config->services;
	/* Peers read this with collet_peer_info_data(). YOURS: the network and port of this rank. */
	info->peer_data[0] = 1;
	info->peer_data_bytes = 1;
	strcpy(info->description, "the socket itself");
	*device = created;
	return COLLET_OK;
}

static void device_close(struct collet_device *device)
{
	free(device);
}

/* ---- Open and close ----------------------------------------------------------------------------------------- */

static bool reaches(const struct collet_peer_info *self, const struct collet_peer_info *peer)
{
	size_t bytes;
	/* YOURS: compare the networks of the two ranks. */
	return self->rank != peer->rank && collet_peer_info_data(peer, "skeleton", &bytes) && bytes == 1;
}

/* Returns true if a system call moved nothing because it would have had to wait. */
static bool must_wait(ssize_t bytes)
{
	return bytes < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Ends the endpoint and completes all pending transfers with its status. Returns their number. */
static uint32_t fail_endpoint(struct skeleton_endpoint *ep, collet_status status)
{
	ep->base.status = status;
	(void)shutdown(ep->socket, SHUT_RDWR); /* tells the peer */
	return collet_transfer_queue_complete_all(&ep->sends, &ep->base, status) +
	       collet_transfer_queue_complete_all(&ep->receives, &ep->base, status);
}

/* Ends the endpoint because of an error of the socket: errno, or 0 for the end of the stream. */
static uint32_t lose_peer(struct skeleton_endpoint *ep, int error)
{
	const bool is_lost = error == 0 || error == ECONNRESET || error == EPIPE || error == ETIMEDOUT;
	const char *why = error ? strerror(error) : "it closed the connection";
	return fail_endpoint(ep, ep->services->fail(is_lost ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
					 "skeleton: lost rank %u on %s (channel %u): %s", ep->base.peer, ep->peer->host,
					 ep->base.channel, why));
}

static collet_status open_endpoint(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config)
{
	struct skeleton_endpoint *ep = skeleton_of(endpoint);
	ep->services = config->services;
	ep->peer = config->peer;
	ep->socket = config->socket;
	ep->epoll_fd = config->wake->epoll_fd;
	ep->owner_pid = getpid();
	ep->is_open = true;
	/* Without it, a small message waits up to 40 ms for the acknowledgement of the one before. */
	const int yes = 1;
	if (setsockopt(ep->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0)
		endpoint->status = ep->services->fail(COLLET_ERR_SYSTEM,
			"skeleton: cannot set up the connection to rank %u on %s: %s", endpoint->peer, ep->peer->host,
			strerror(errno));
	/* YOURS: create a queue pair here, and send its number to the peer in open_progress(). */
	return endpoint->status;
}

/* Sends a byte and waits for the peer's. An end that fails sends nothing and closes, so its peer never reports
 * COLLET_OK. */
static collet_status open_progress(struct collet_endpoint *endpoint)
{
	struct skeleton_endpoint *ep = skeleton_of(endpoint);
	char byte = 's';
	if (endpoint->status != COLLET_OK || ep->is_ready)
		return endpoint->status;
	if (!ep->is_hello_sent) {
		const ssize_t sent = send(ep->socket, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (must_wait(sent))
			return COLLET_PENDING;
		if (sent < 0) {
			(void)lose_peer(ep, errno);
			return endpoint->status;
		}
		ep->is_hello_sent = true;
	}
	const ssize_t got = recv(ep->socket, &byte, 1, MSG_DONTWAIT);
	if (must_wait(got))
		return COLLET_PENDING;
	if (got != 1 || byte != 's') {
		(void)lose_peer(ep, got < 0 ? errno : 0);
		return endpoint->status;
	}
	/* Edge-triggered, so a ready socket does not wake the rank for ever. No edge is missed, since arm() polls the
	 * socket. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = endpoint };
	if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, ep->socket, &event) != 0) {
		(void)fail_endpoint(ep, ep->services->fail(COLLET_ERR_SYSTEM,
						"skeleton: cannot watch the connection to rank %u on %s: %s",
						endpoint->peer, ep->peer->host, strerror(errno)));
		return endpoint->status;
	}
	ep->is_ready = true;
	return COLLET_OK;
}

/* Waits until sent bytes have left, at most 1 s. The kernel goes on sending after close(), but drops them if bytes are
 * unread here. YOURS: wait for the last completions. */
static void flush_sends(int socket)
{
	char unread[4096];
	for (int waited_ms = 0; waited_ms < 1000; waited_ms++) {
		ssize_t got;
		int unsent = 0;
		while ((got = recv(socket, unread, sizeof(unread), MSG_DONTWAIT)) > 0)
			;
		if (got == 0 || errno != EAGAIN || ioctl(socket, TIOCOUTQ, &unsent) != 0 || unsent == 0)
			return;
		struct pollfd incoming = { .fd = socket, .events = POLLIN };
		(void)poll(&incoming, 1, 1);
	}
}

static void close_endpoint(struct collet_endpoint *endpoint)
{
	struct skeleton_endpoint *ep = skeleton_of(endpoint);
	if (!ep->is_open)
		return;
	ep->is_open = false;
	if (ep->owner_pid == getpid()) {
		/* A message that was sent in part cannot be finished. */
		const bool is_intact = endpoint->status == COLLET_OK && ep->sent_bytes == 0;
		if (endpoint->status == COLLET_OK)
			endpoint->status = COLLET_CANCELLED;
		(void)collet_transfer_queue_complete_all(&ep->sends, endpoint, COLLET_CANCELLED);
		(void)collet_transfer_queue_complete_all(&ep->receives, endpoint, COLLET_CANCELLED);
		if (ep->is_ready)
			(void)epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, ep->socket, NULL);
		if (ep->is_ready && is_intact)
			flush_sends(ep->socket);
		(void)shutdown(ep->socket, SHUT_WR); /* close() alone does not end it if a forked child has a copy */
	}
	close(ep->socket);
}

/* ---- Sending ------------------------------------------------------------------------------------------------ */

static uint32_t send_some(struct skeleton_endpoint *ep)
{
	uint32_t completed = 0;
	while (ep->sends.first) {
		const struct collet_transfer *first = ep->sends.first;
		const uint64_t all = sizeof(ep->out) + first->message.bytes;
		ep->out = (struct header){ .magic = MAGIC, .message = first->message };
		struct iovec parts[2];
		int count = 0;
		if (ep->sent_bytes < sizeof(ep->out))
			parts[count++] =
				(struct iovec){ (char *)&ep->out + ep->sent_bytes, sizeof(ep->out) - ep->sent_bytes };
		const uint64_t done = ep->sent_bytes > sizeof(ep->out) ? ep->sent_bytes - sizeof(ep->out) : 0;
		if (first->message.bytes > done)
			parts[count++] = (struct iovec){ (char *)first->data + done, first->message.bytes - done };
		const struct msghdr bytes = { .msg_iov = parts, .msg_iovlen = (size_t)count };
		const ssize_t moved = sendmsg(ep->socket, &bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		ep->base.stats.system_calls++;
		if (must_wait(moved))
			break;
		if (moved < 0)
			return completed + lose_peer(ep, errno);
		ep->sent_bytes += (uint64_t)moved;
		if (ep->sent_bytes < all)
			continue;
		ep->sent_bytes = 0;
		ep->base.stats.messages_sent++;
		ep->base.stats.bytes_sent += first->message.bytes;
		collet_transfer_queue_complete(&ep->sends, &ep->base, COLLET_OK);
		completed++;
	}
	return completed;
}

/* ---- Receiving ---------------------------------------------------------------------------------------------- */

/* Reads up to this many bytes. Returns 0 if there are none now, or if the endpoint has ended; then it adds the number
 * of completed transfers to *completed. */
static uint64_t read_some(struct skeleton_endpoint *ep, void *into, uint64_t bytes, uint32_t *completed)
{
	const ssize_t got = recv(ep->socket, into, bytes, MSG_DONTWAIT);
	ep->base.stats.system_calls++;
	if (got > 0)
		return (uint64_t)got;
	if (!must_wait(got))
		*completed += lose_peer(ep, got < 0 ? errno : 0);
	return 0;
}

/* Returns true if the whole header of the next message is here. First discards the rest of a mismatched message. */
static bool has_header(struct skeleton_endpoint *ep, uint32_t *completed)
{
	char unwanted[16384];
	while (ep->skip_bytes) {
		const uint64_t got = read_some(
			ep, unwanted, ep->skip_bytes < sizeof(unwanted) ? ep->skip_bytes : sizeof(unwanted), completed);
		if (!got)
			return false;
		ep->skip_bytes -= got;
	}
	while (ep->received_bytes < sizeof(ep->in)) {
		const uint64_t got = read_some(
			ep, (char *)&ep->in + ep->received_bytes, sizeof(ep->in) - ep->received_bytes, completed);
		if (!got)
			return false;
		ep->received_bytes += got;
	}
	if (ep->in.magic == MAGIC && ep->in.message.bytes <= INT64_MAX)
		return true;
	*completed += fail_endpoint(
		ep, ep->services->fail(COLLET_ERR_TRANSPORT, "skeleton: what came from rank %u on %s is no message",
			    ep->base.peer, ep->peer->host));
	return false;
}

static uint32_t receive_some(struct skeleton_endpoint *ep)
{
	uint32_t completed = 0;
	while (ep->receives.first && ep->base.status == COLLET_OK) {
		struct collet_transfer *first = ep->receives.first;
		if (!ep->is_receiving) {
			if (!has_header(ep, &completed))
				break;
			if (!collet_message_equal(&ep->in.message, &first->message)) {
				ep->skip_bytes = ep->in.message.bytes;
				ep->received_bytes = 0;
				first->message = ep->in.message;
				collet_transfer_queue_complete(&ep->receives, &ep->base, COLLET_ERR_MISMATCH);
				completed++;
				continue;
			}
			ep->is_receiving = true;
		}
		const uint64_t done = ep->received_bytes - sizeof(ep->in);
		if (done < first->message.bytes) {
			const uint64_t got =
				read_some(ep, (char *)first->data + done, first->message.bytes - done, &completed);
			if (!got)
				break;
			ep->received_bytes += got;
			continue;
		}
		ep->is_receiving = false;
		ep->received_bytes = 0;
		ep->base.stats.messages_received++;
		ep->base.stats.bytes_received += first->message.bytes;
		first->view = first->data;  /* the bytes are in the caller's buffer already */
		collet_transfer_queue_complete(&ep->receives, &ep->base, COLLET_OK);
		completed++;
	}
	return completed;
}

/* ---- Data path ---------------------------------------------------------------------------------------------- */

/* Borrows a transfer. If the endpoint has ended, completes it at once. Returns true if it is now first in its queue. */
static bool enqueue(struct skeleton_endpoint *ep, struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->status = ep->base.status;
	if (ep->base.status != COLLET_OK)
		return false;
	transfer->status = COLLET_PENDING;
	ep->base.posted++;
	collet_transfer_queue_add(queue, transfer);
	return queue->first == transfer;
}

static void post_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	if (enqueue(skeleton_of(endpoint), &skeleton_of(endpoint)->sends, transfer))
		(void)send_some(skeleton_of(endpoint));
}

static void post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	if (enqueue(skeleton_of(endpoint), &skeleton_of(endpoint)->receives, transfer))
		(void)receive_some(skeleton_of(endpoint));
}

static void release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	(void)endpoint;
	(void)transfer;  /* the view is the receiver's own buffer */
}

static uint32_t progress(struct collet_endpoint *endpoint)
{
	struct skeleton_endpoint *ep = skeleton_of(endpoint);
	/* Receives first: what arrived before the peer's end counts. */
	uint32_t completed = endpoint->status == COLLET_OK ? receive_some(ep) : 0;
	if (endpoint->status == COLLET_OK)
		completed += send_some(ep);
	return completed;
}

static bool peek(struct collet_endpoint *endpoint, struct collet_message *message)
{
	uint32_t completed = 0;
	if (endpoint->status != COLLET_OK || !has_header(skeleton_of(endpoint), &completed))
		return false;
	*message = skeleton_of(endpoint)->in.message;
	return true;
}

static bool arm(struct collet_endpoint *endpoint)
{
	const struct skeleton_endpoint *ep = skeleton_of(endpoint);
	if (endpoint->status != COLLET_OK ||
		(!ep->is_receiving && !ep->skip_bytes && ep->received_bytes == sizeof(ep->in)))
		return false;
	struct pollfd ready = { .fd = ep->socket };
	if (ep->receives.first || endpoint->posted == 0)
		ready.events |= POLLIN | POLLRDHUP;
	if (ep->sends.first)
		ready.events |= POLLOUT;
	return poll(&ready, 1, 0) == 0;
}

static void disarm(struct collet_endpoint *endpoint)
{
	(void)endpoint; /* the socket stays in the epoll set */
}

const struct collet_transport collet_transport_module = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "skeleton",
	.summary = "any two ranks: one socket, one message after the other",
	.caps = COLLET_CAP_SYSCALLS,
	.priority = 100,                 /* below tcp, which is faster */
	.endpoint_bytes = sizeof(struct skeleton_endpoint),
	.device_open = device_open,
	.device_close = device_close,
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
