/* skeleton: the least that a transport can be, and a place to begin one's own.
 *
 * It keeps the socket that the control plane has brought and moves messages over it: a header, then the bytes, one
 * message after the other each way. No buffers, no batching: a system call or two a message. What each function has to
 * do, may assume and must leave behind is said at its slot in collet/transport.h; here is only how it is done with a
 * socket. The comments marked YOURS say what a transport with an adapter of its own would do in their place. */
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

/* What travels before the bytes of a message. Both ends are of one version and one byte order, or never met. */
struct header {
	uint32_t magic, reserved;
	struct collet_message message;
};

/* A rank's own: made before ranks meet, and gone after the last conduit. YOURS: the adapter, its memory regions. */
struct collet_device {
	const struct collet_host *host;
};

struct conduit {
	struct collet_conduit head;      /* first: the caller's pointer is to this */
	const struct collet_host *host;
	const struct collet_card *peer;
	int socket, epoll_fd;
	pid_t process;                   /* which opened it: a forked child only lets go */
	bool opened, greeted, ready;
	struct collet_transfer_queue sends, receives;
	struct header out, in;
	uint64_t sent, received;         /* of the first in the queue, or of what is skipped: header and bytes */
	bool taking;                     /* the first receive's bytes are coming */
	uint64_t skip;                   /* bytes of a message that was a mismatch, still to come */
};

static struct conduit *of(struct collet_conduit *conduit)
{
	return (struct conduit *)conduit;
}

/* ---- The rank's device -------------------------------------------------------------------------------------- */

static collet_status device_open(
	struct collet_device **device, const struct collet_device_config *config, struct collet_device_info *info)
{
	/* YOURS: look for the adapter. None: return config->host->fail(COLLET_ERR_UNSUPPORTED, "no adapter in ...");
	 * ranks then go on without this transport. */
	struct collet_device *made = calloc(1, sizeof(*made));
	if (!made)
		return config->host->fail(COLLET_ERR_MEMORY, "no memory for a device");
	made->host = config->host;
	/* What peers will find by collet_card_data(). YOURS: which fabric and port this rank is at. */
	info->card[0] = 1;
	info->card_bytes = 1;
	strcpy(info->text, "the socket itself");
	*device = made;
	return COLLET_OK;
}

static void device_close(struct collet_device *device)
{
	free(device);
}

/* ---- Beginning and end -------------------------------------------------------------------------------------- */

static bool reaches(const struct collet_card *self, const struct collet_card *peer)
{
	size_t bytes;
	/* YOURS: are the two at one fabric? */
	return self->rank != peer->rank && collet_card_data(peer, "skeleton", &bytes) && bytes == 1;
}

/* Did a system call move nothing because nothing can be moved now? */
static bool must_wait(ssize_t bytes)
{
	return bytes < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Everything ends here: the conduit, and with it all that is lent. Returns how many transfers that settled. */
static uint32_t end(struct conduit *c, collet_status status)
{
	c->head.status = status;
	(void)shutdown(c->socket, SHUT_RDWR);  /* the peer finds out */
	return collet_transfer_queue_settle_all(&c->sends, &c->head, status) +
		collet_transfer_queue_settle_all(&c->receives, &c->head, status);
}

/* error: errno, or 0 for the end of the stream. */
static uint32_t lose(struct conduit *c, int error)
{
	const bool gone = error == 0 || error == ECONNRESET || error == EPIPE || error == ETIMEDOUT;
	const char *why = error ? strerror(error) : "it closed the connection";
	return end(c, c->host->fail(gone ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
			      "skeleton: lost rank %u on %s (channel %u): %s", c->head.peer, c->peer->host,
			      c->head.channel, why));
}

static collet_status open_conduit(struct collet_conduit *conduit, const struct collet_conduit_config *config)
{
	struct conduit *c = of(conduit);
	c->host = config->host;
	c->peer = config->peer;
	c->socket = config->socket;
	c->epoll_fd = config->wake->epoll_fd;
	c->process = getpid();
	c->opened = true;
	/* Else a small message after another waits for its acknowledgement, for 40 ms. */
	const int yes = 1;
	if (setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0)
		conduit->status = c->host->fail(COLLET_ERR_SYSTEM,
			"skeleton: cannot set up the connection to rank %u on %s: %s", conduit->peer, c->peer->host,
			strerror(errno));
	/* YOURS: make a queue pair here; its number is what to send in the greeting. */
	return conduit->status;
}

/* Each end says that it is there. An end that fails says nothing and closes, so nobody takes the conduit for ready. */
static collet_status opening(struct collet_conduit *conduit)
{
	struct conduit *c = of(conduit);
	char byte = 's';
	if (conduit->status != COLLET_OK || c->ready)
		return conduit->status;
	if (!c->greeted) {
		const ssize_t sent = send(c->socket, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (must_wait(sent))
			return COLLET_PENDING;
		if (sent < 0) {
			(void)lose(c, errno);
			return conduit->status;
		}
		c->greeted = true;
	}
	const ssize_t got = recv(c->socket, &byte, 1, MSG_DONTWAIT);
	if (must_wait(got))
		return COLLET_PENDING;
	if (got != 1 || byte != 's') {
		(void)lose(c, got < 0 ? errno : 0);
		return conduit->status;
	}
	/* Edge-triggered: arm() asks the socket itself, so no edge is missed and none wakes for ever. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = conduit };
	if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->socket, &event) != 0) {
		(void)end(c, c->host->fail(COLLET_ERR_SYSTEM,
				     "skeleton: cannot watch the connection to rank %u on %s: %s", conduit->peer,
				     c->peer->host, strerror(errno)));
		return conduit->status;
	}
	c->ready = true;
	return COLLET_OK;
}

/* What has been sent arrives, if the peer lives: the kernel goes on sending after close(), but not if bytes are unread
 * here. For a second at most. YOURS: wait for the last completions. */
static void let_sends_out(int socket)
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

static void close_conduit(struct collet_conduit *conduit)
{
	struct conduit *c = of(conduit);
	if (!c->opened)
		return;
	c->opened = false;
	if (c->process == getpid()) {
		const bool whole = conduit->status == COLLET_OK && c->sent == 0;  /* else the stream has broken off */
		if (conduit->status == COLLET_OK)
			conduit->status = COLLET_CANCELLED;
		(void)collet_transfer_queue_settle_all(&c->sends, conduit, COLLET_CANCELLED);
		(void)collet_transfer_queue_settle_all(&c->receives, conduit, COLLET_CANCELLED);
		if (c->ready)
			(void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, c->socket, NULL);
		if (c->ready && whole)
			let_sends_out(c->socket);
		(void)shutdown(c->socket, SHUT_WR);  /* a child forked meanwhile may hold the connection open */
	}
	close(c->socket);
}

/* ---- Sending ------------------------------------------------------------------------------------------------ */

static uint32_t send_some(struct conduit *c)
{
	uint32_t settled = 0;
	while (c->sends.first) {
		const struct collet_transfer *first = c->sends.first;
		const uint64_t all = sizeof(c->out) + first->message.bytes;
		c->out = (struct header){ .magic = MAGIC, .message = first->message };
		struct iovec parts[2];
		int count = 0;
		if (c->sent < sizeof(c->out))
			parts[count++] = (struct iovec){ (char *)&c->out + c->sent, sizeof(c->out) - c->sent };
		const uint64_t done = c->sent > sizeof(c->out) ? c->sent - sizeof(c->out) : 0;
		if (first->message.bytes > done)
			parts[count++] = (struct iovec){ (char *)first->data + done, first->message.bytes - done };
		const struct msghdr bytes = { .msg_iov = parts, .msg_iovlen = (size_t)count };
		const ssize_t moved = sendmsg(c->socket, &bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		c->head.stats.system_calls++;
		if (must_wait(moved))
			break;
		if (moved < 0)
			return settled + lose(c, errno);
		c->sent += (uint64_t)moved;
		if (c->sent < all)
			continue;
		c->sent = 0;
		c->head.stats.messages_sent++;
		c->head.stats.bytes_sent += first->message.bytes;
		collet_transfer_queue_settle(&c->sends, &c->head, COLLET_OK);
		settled++;
	}
	return settled;
}

/* ---- Receiving ---------------------------------------------------------------------------------------------- */

/* Reads up to so many bytes; 0: none now, or the conduit has ended and *settled counts what that settled. */
static uint64_t read_some(struct conduit *c, void *into, uint64_t bytes, uint32_t *settled)
{
	const ssize_t got = recv(c->socket, into, bytes, MSG_DONTWAIT);
	c->head.stats.system_calls++;
	if (got > 0)
		return (uint64_t)got;
	if (!must_wait(got))
		*settled += lose(c, got < 0 ? errno : 0);
	return 0;
}

/* Is the next message's header here, all of it? What is left of one that nobody wanted goes first. */
static bool has_header(struct conduit *c, uint32_t *settled)
{
	char unwanted[16384];
	while (c->skip) {
		const uint64_t got = read_some(
			c, unwanted, c->skip < sizeof(unwanted) ? c->skip : sizeof(unwanted), settled);
		if (!got)
			return false;
		c->skip -= got;
	}
	while (c->received < sizeof(c->in)) {
		const uint64_t got = read_some(c, (char *)&c->in + c->received, sizeof(c->in) - c->received, settled);
		if (!got)
			return false;
		c->received += got;
	}
	if (c->in.magic == MAGIC && c->in.message.bytes <= INT64_MAX)
		return true;
	*settled += end(c, c->host->fail(COLLET_ERR_TRANSPORT, "skeleton: what came from rank %u on %s is no message",
				     c->head.peer, c->peer->host));
	return false;
}

static uint32_t receive_some(struct conduit *c)
{
	uint32_t settled = 0;
	while (c->receives.first && c->head.status == COLLET_OK) {
		struct collet_transfer *first = c->receives.first;
		if (!c->taking) {
			if (!has_header(c, &settled))
				break;
			if (!collet_message_equal(&c->in.message, &first->message)) {
				c->skip = c->in.message.bytes;
				c->received = 0;
				first->message = c->in.message;
				collet_transfer_queue_settle(&c->receives, &c->head, COLLET_ERR_MISMATCH);
				settled++;
				continue;
			}
			c->taking = true;
		}
		const uint64_t done = c->received - sizeof(c->in);
		if (done < first->message.bytes) {
			const uint64_t got =
				read_some(c, (char *)first->data + done, first->message.bytes - done, &settled);
			if (!got)
				break;
			c->received += got;
			continue;
		}
		c->taking = false;
		c->received = 0;
		c->head.stats.messages_received++;
		c->head.stats.bytes_received += first->message.bytes;
		first->view = first->data;  /* no view is cheaper than what is there already */
		collet_transfer_queue_settle(&c->receives, &c->head, COLLET_OK);
		settled++;
	}
	return settled;
}

/* ---- The data path ------------------------------------------------------------------------------------------ */

/* Lent from here on; or settled at once, by the end of the conduit. */
static bool lend(struct conduit *c, struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->status = c->head.status;
	if (c->head.status != COLLET_OK)
		return false;
	transfer->status = COLLET_PENDING;
	c->head.posted++;
	collet_transfer_queue_add(queue, transfer);
	return queue->first == transfer;
}

static void post_send(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	if (lend(of(conduit), &of(conduit)->sends, transfer))
		(void)send_some(of(conduit));
}

static void post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	if (lend(of(conduit), &of(conduit)->receives, transfer))
		(void)receive_some(of(conduit));
}

static void release(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	(void)conduit;
	(void)transfer;  /* the view is the receiver's own buffer */
}

static uint32_t progress(struct collet_conduit *conduit)
{
	struct conduit *c = of(conduit);
	uint32_t settled = conduit->status == COLLET_OK ? receive_some(c) : 0;  /* what came before an end counts */
	if (conduit->status == COLLET_OK)
		settled += send_some(c);
	return settled;
}

static bool peek(struct collet_conduit *conduit, struct collet_message *message)
{
	uint32_t settled = 0;
	if (conduit->status != COLLET_OK || !has_header(of(conduit), &settled))
		return false;
	*message = of(conduit)->in.message;
	return true;
}

static bool arm(struct collet_conduit *conduit)
{
	const struct conduit *c = of(conduit);
	if (conduit->status != COLLET_OK || (!c->taking && !c->skip && c->received == sizeof(c->in)))
		return false;
	struct pollfd ready = { .fd = c->socket };
	if (c->receives.first || conduit->posted == 0)
		ready.events |= POLLIN | POLLRDHUP;
	if (c->sends.first)
		ready.events |= POLLOUT;
	return poll(&ready, 1, 0) == 0;
}

static void disarm(struct collet_conduit *conduit)
{
	(void)conduit;  /* the socket stays in the set */
}

const struct collet_transport collet_transport_module = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "skeleton",
	.summary = "any two ranks: one socket, one message after the other",
	.caps = COLLET_CAP_CALLS,
	.priority = 100,                 /* below tcp, which does all that this does, and better */
	.conduit_bytes = sizeof(struct conduit),
	.device_open = device_open,
	.device_close = device_close,
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
