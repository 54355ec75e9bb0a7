/* Implements the tcp transport: its table, opening and closing an endpoint, and sleeping. tcp_endpoint.h says what
 * travels. */
#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/silence.h"
#include "core/status.h"
#include "transport/tcp/tcp_endpoint.h"

/* Detects a host that is switched off and says nothing. Keep-alive ends an idle connection to it after 28 to 32 s. It
 * leaves out connections with unacknowledged bytes, which is_host_silent() ends. TCP_USER_TIMEOUT would do both. But it
 * also ends the connection to a live peer that does not read for that long, so the one that the bootstrap set is
 * reset.
 *
 * All connections of a communicator become idle at the same time. Of thousands of probes at one moment a kernel drops
 * most, in the same order each time. So pairs start at different times, and probe often enough that all get through. */
enum { KEEPALIVE_IDLE_S = 8, KEEPALIVE_SPREAD_S = 5, KEEPALIVE_INTERVAL_S = 2, KEEPALIVE_COUNT = 10 };
enum { SILENCE_MS = 30000 };

/* How long close() waits for a slow peer to make room for what was sent. */
static const int64_t flush_timeout_ns = INT64_C(1000000000);

extern const struct collet_transport collet_tcp_transport;

static struct tcp_endpoint *tcp_of(struct collet_endpoint *endpoint)
{
	return (struct tcp_endpoint *)endpoint;
}

static bool reaches(const struct collet_peer_info *self, const struct collet_peer_info *peer)
{
	return self->family != 0 && peer->family != 0;
}

static bool set_option(int socket, int level, int name, int value)
{
	return setsockopt(socket, level, name, &value, sizeof(value)) == 0;
}

/* Replaces a congestion control that paces (BBR). Between ranks of one host nothing is congested, and pacing doubles
 * the time. Reno sends what the windows allow. Every kernel has it, for every user. Without it everything works, as
 * before. */
static void disable_pacing(int socket)
{
	static const char name[] = "reno";
	(void)setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name) - 1);
}

/* Sets keep-alive up. The peer's kernel reports the end of its process, and within a host no other end is possible, so
 * only remote peers need it. */
static bool set_keepalive(const struct tcp_endpoint *tcp)
{
	const uint32_t pair = tcp->self->rank + tcp->endpoint.peer + tcp->endpoint.channel;
	return set_option(tcp->socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0) &&
	       set_option(tcp->socket, SOL_SOCKET, SO_KEEPALIVE, !tcp->is_local) &&
	       set_option(tcp->socket, IPPROTO_TCP, TCP_KEEPIDLE,
		       KEEPALIVE_IDLE_S + (int)(pair % KEEPALIVE_SPREAD_S)) &&
	       set_option(tcp->socket, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S) &&
	       set_option(tcp->socket, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
}

static collet_status open_endpoint(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config)
{
	static_assert(
		sizeof(struct tcp_header) == 32 && sizeof(struct tcp_hello) == 24, "the wire format has no padding");
	struct tcp_endpoint *tcp = tcp_of(endpoint);
	endpoint->status = COLLET_OK;
	tcp->socket = config->socket;
	tcp->epoll_fd = config->wake->epoll_fd;
	tcp->owner_pid = (uint32_t)getpid();
	tcp->self = config->self;
	tcp->peer = config->peer;
	tcp->wake = config->wake;
	tcp->is_local = config->self->host_id == config->peer->host_id;
	collet_tcp_hello_init(tcp);
	if (!set_option(tcp->socket, IPPROTO_TCP, TCP_NODELAY, 1) || !set_keepalive(tcp)) {
		endpoint->status =
			collet_fail(COLLET_ERR_SYSTEM, "tcp: cannot set up the connection to rank %u on %s: %s",
				endpoint->peer, tcp->peer->host, strerror(errno));
	}
	if (tcp->is_local)
		disable_pacing(tcp->socket);
	return endpoint->status;
}

static collet_status open_progress(struct collet_endpoint *endpoint)
{
	return collet_tcp_open_progress(tcp_of(endpoint));
}

uint32_t collet_tcp_fail(struct tcp_endpoint *tcp, collet_status status)
{
	assert(tcp->endpoint.status == COLLET_OK && status != COLLET_OK);
	tcp->endpoint.status = status;
	shutdown(tcp->socket, SHUT_RDWR);  /* the peer is told, and the socket wakes this rank no more */
	return collet_transfer_queue_complete_all(&tcp->sends, &tcp->endpoint, status) +
		collet_transfer_queue_complete_all(&tcp->receives, &tcp->endpoint, status);
}

static unsigned queue_length(const struct collet_transfer_queue *queue)
{
	unsigned count = 0;
	for (const struct collet_transfer *transfer = queue->first; transfer; transfer = transfer->next)
		count++;
	return count;
}

bool collet_tcp_is_unreachable(int error)
{
	return error == ETIMEDOUT || error == EHOSTUNREACH || error == EHOSTDOWN || error == ENETUNREACH ||
	       error == ENETDOWN;
}

uint32_t collet_tcp_lose_peer(struct tcp_endpoint *tcp, const char *doing, int error)
{
	char part[96] = "";
	if (tcp->is_receiving)
		snprintf(part, sizeof(part), ", %llu of %llu bytes of a message had arrived",
			(unsigned long long)tcp->received_bytes, (unsigned long long)tcp->arriving.bytes);
	const bool is_lost = error == 0 || error == ECONNRESET || error == EPIPE || error == ECONNREFUSED ||
			  collet_tcp_is_unreachable(error);
	const collet_status status = is_lost ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT;
	collet_fail(status, "tcp: %s rank %u on %s (channel %u) while %s: %s; %u sends and %u receives were pending%s",
		is_lost ? "lost" : "the connection failed to", tcp->endpoint.peer, tcp->peer->host,
		tcp->endpoint.channel, doing, error ? strerror(error) : "it closed the connection",
		queue_length(&tcp->sends), queue_length(&tcp->receives), part);
	return collet_tcp_fail(tcp, status);
}

/* Discards what has come and nobody will read. False if nothing more can come. */
static bool discard(int socket)
{
	for (int i = 0; i < 64; i++) {
		/* Not recv(): ThreadSanitizer would take it for a write through NULL. */
		const long bytes = syscall(
			SYS_recvfrom, socket, NULL, (size_t)TCP_PROGRESS_BYTES, MSG_TRUNC | MSG_DONTWAIT, NULL, NULL);
		if (bytes <= 0)
			return bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
	}
	return true;
}

/* Waits until completed sends have left the socket, before it is closed. The kernel continues to send after close().
 * But if bytes are unread here or come later, it resets the connection and drops what it has not sent. */
static void flush_sends(int socket)
{
	const int64_t deadline = collet_deadline_after(flush_timeout_ns);
	while (discard(socket)) {
		int unsent = 0;
		if (ioctl(socket, SIOCOUTQNSD, &unsent) < 0 || unsent == 0 || collet_deadline_passed(deadline))
			break;
		struct pollfd incoming = { .fd = socket, .events = POLLIN };
		poll(&incoming, 1, 1);
	}
}

static void close_endpoint(struct collet_endpoint *endpoint)
{
	struct tcp_endpoint *tcp = tcp_of(endpoint);
	if (tcp->state == TCP_CLOSED)
		return;
	/* else the stream is already incomplete */
	const bool is_intact = endpoint->status == COLLET_OK && tcp->sent_bytes == 0;
	if (endpoint->status == COLLET_OK)
		endpoint->status = COLLET_CANCELLED;
	/* A forked child has its own descriptor of the same connection and epoll set, and only closes it. It has no
	 * transfers to complete, and the fork may have interrupted a change of the queues. */
	if (tcp->owner_pid == (uint32_t)getpid()) {
		collet_transfer_queue_complete_all(&tcp->sends, endpoint, COLLET_CANCELLED);
		collet_transfer_queue_complete_all(&tcp->receives, endpoint, COLLET_CANCELLED);
		collet_tcp_unwatch(tcp);
		collet_tcp_delayed_ack_reset(tcp);
		if (tcp->state == TCP_READY && is_intact)
			flush_sends(tcp->socket);
		/* Not left to close(): a child forked meanwhile may keep the connection open. */
		shutdown(tcp->socket, SHUT_WR);
	}
	close(tcp->socket);
	tcp->state = TCP_CLOSED;
}

/* Queues a transfer. If the endpoint has ended, completes it instead and returns false. */
static bool enqueue(
	struct collet_endpoint *endpoint, struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->status = endpoint->status;
	if (endpoint->status != COLLET_OK)
		return false;
	transfer->status = COLLET_PENDING;
	endpoint->posted++;
	collet_transfer_queue_add(queue, transfer);
	return true;
}

static void post_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct tcp_endpoint *tcp = tcp_of(endpoint);
	if (enqueue(endpoint, &tcp->sends, transfer) && tcp->sends.first == transfer)
		collet_tcp_send(tcp);
}

static void post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct tcp_endpoint *tcp = tcp_of(endpoint);
	if (enqueue(endpoint, &tcp->receives, transfer) && tcp->receives.first == transfer)
		collet_tcp_deliver(tcp);
}

static void release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	/* The view is the receiver's own buffer. */
}

static uint32_t progress(struct collet_endpoint *endpoint)
{
	struct tcp_endpoint *tcp = tcp_of(endpoint);
	uint32_t completed = 0;
	if (tcp->sends.first)
		completed += collet_tcp_send(tcp);
	size_t moved;
	if (tcp->receives.first)
		completed += collet_tcp_receive(tcp, &moved);
	return completed;
}

/* Returns true for a large message without reading: only a posted receive says where its payload goes. */
static bool is_recv_ready(struct collet_endpoint *endpoint, uint64_t bytes)
{
	return endpoint->status != COLLET_OK || bytes > TCP_BUFFERED_MAX || collet_tcp_is_recv_ready(tcp_of(endpoint));
}

static bool peek(struct collet_endpoint *endpoint, struct collet_message *message)
{
	return endpoint->status == COLLET_OK && collet_tcp_peek(tcp_of(endpoint), message);
}

/* Checks the peer's host, at most once a second. */
static bool is_host_silent(struct tcp_endpoint *tcp)
{
	const int64_t now = collet_clock_ns();
	if (now - tcp->host_checked_ns < INT64_C(1000000000))
		return false;
	tcp->host_checked_ns = now;
	tcp->endpoint.stats.system_calls++;
	return collet_host_is_silent(tcp->socket, SILENCE_MS);
}

/* Adds the endpoint to the epoll set, before its first sleep. It leaves the set when many messages have come without a
 * sleep, so that none seems near. For a socket in the set, each of the peer's sends does the set's work too (3 to 5 %
 * of a small exchange). It is edge-triggered, so that a socket that nobody waits for does not wake the rank again and
 * again. arm() polls the socket itself, so no edge is missed. False if it cannot be added; the endpoint has then
 * failed. */
static bool watch(struct tcp_endpoint *tcp)
{
	tcp->messages_since_arm = 0;
	if (tcp->is_watched)
		return true;
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = &tcp->endpoint };
	tcp->endpoint.stats.system_calls++;
	tcp->is_watched = epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, tcp->socket, &event) == 0;
	if (!tcp->is_watched)
		collet_tcp_fail(tcp, collet_fail(COLLET_ERR_SYSTEM,
			"tcp: cannot watch the connection to rank %u on %s: %s", tcp->endpoint.peer, tcp->peer->host,
			strerror(errno)));
	return tcp->is_watched;
}

void collet_tcp_unwatch(struct tcp_endpoint *tcp)
{
	if (!tcp->is_watched)
		return;
	tcp->is_watched = false;
	tcp->endpoint.stats.system_calls++;
	epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, tcp->socket, NULL);
}

static bool arm(struct collet_endpoint *endpoint)
{
	struct tcp_endpoint *tcp = tcp_of(endpoint);
	if (endpoint->status != COLLET_OK)
		return false;
	const bool is_peeking = endpoint->posted == 0;
	if (is_peeking && collet_tcp_has_header(tcp))
		return false;
	if (is_host_silent(tcp)) {
		collet_tcp_lose_peer(tcp, "waiting", ETIMEDOUT);
		return false;
	}
	if (!watch(tcp))
		return false;
	collet_tcp_delayed_ack_empty_read(tcp, true);
	struct pollfd ready = { .fd = tcp->socket };
	if (tcp->receives.first || is_peeking)
		ready.events |= POLLIN | POLLRDHUP;
	if (tcp->sends.first)
		ready.events |= POLLOUT;
	endpoint->stats.system_calls++;
	tcp->is_armed = poll(&ready, 1, 0) == 0;
	return tcp->is_armed;
}

static void disarm(struct collet_endpoint *endpoint)
{
	tcp_of(endpoint)->is_armed = false;
}

const struct collet_transport collet_tcp_transport = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "tcp",
	.summary = "any two ranks: a socket a channel, scatter and gather",
	.caps = COLLET_CAP_SYSCALLS,
	.priority = 200,
	.endpoint_bytes = sizeof(struct tcp_endpoint),
	.reaches = reaches,
	.open = open_endpoint,
	.open_progress = open_progress,
	.close = close_endpoint,
	.post_send = post_send,
	.post_recv = post_recv,
	.release_view = release_view,
	.progress = progress,
	.is_recv_ready = is_recv_ready,
	.peek = peek,
	.arm = arm,
	.disarm = disarm,
};
