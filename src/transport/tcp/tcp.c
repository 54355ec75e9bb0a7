/* tcp: the table, beginning and end of a conduit, and how it sleeps. See tcp_endpoint.h for what travels. */
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
#include "core/status.h"
#include "transport/tcp/tcp_endpoint.h"

/* A host that is switched off says nothing. An idle connection to it ends after 28 to 32 s by keep-alive; one with
 * bytes under way, which keep-alive leaves out, by silent_host(). TCP_USER_TIMEOUT would do both, but it also ends the
 * connection to a peer that lives and merely does not read for that long: what the rendezvous set is taken back.
 *
 * All connections of a communicator fall idle at once, and of thousands of questions in one moment a kernel loses most,
 * in the same order each time. So pairs begin at different times, and ask often enough that all come through. */
enum { KEEPALIVE_IDLE_S = 8, KEEPALIVE_SPREAD_S = 5, KEEPALIVE_INTERVAL_S = 2, KEEPALIVE_COUNT = 10 };
enum { SILENCE_MS = 30000, UNANSWERED_COUNT = 6 };

/* How long close() lets a peer that reads slowly make room for what has been sent. */
static const int64_t linger_ns = INT64_C(1000000000);

extern const struct collet_transport collet_tcp_transport;

static struct tcp_conduit *of(struct collet_conduit *conduit)
{
	return (struct tcp_conduit *)conduit;
}

static bool reaches(const struct collet_card *self, const struct collet_card *peer)
{
	return self->family != 0 && peer->family != 0;
}

static bool set_option(int socket, int level, int name, int value)
{
	return setsockopt(socket, level, name, &value, sizeof(value)) == 0;
}

/* Between ranks of one host nothing is congested, but a congestion control that paces what it sends (BBR) takes twice
 * the time all the same. Reno sends what the windows allow; every kernel has it, for every user. If it cannot be had,
 * all works as it is. */
static void send_without_pacing(int socket)
{
	static const char name[] = "reno";
	(void)setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name) - 1);
}

/* The peer's kernel says when its process ends, and within a host there is no other end to fear. */
static bool watch_host(const struct tcp_conduit *tcp)
{
	const uint32_t pair = tcp->self->rank + tcp->conduit.peer + tcp->conduit.channel;
	return set_option(tcp->socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0) &&
	       set_option(tcp->socket, SOL_SOCKET, SO_KEEPALIVE, !tcp->near) &&
	       set_option(tcp->socket, IPPROTO_TCP, TCP_KEEPIDLE,
		       KEEPALIVE_IDLE_S + (int)(pair % KEEPALIVE_SPREAD_S)) &&
	       set_option(tcp->socket, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S) &&
	       set_option(tcp->socket, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
}

static collet_status open_conduit(struct collet_conduit *conduit, const struct collet_conduit_config *config)
{
	static_assert(
		sizeof(struct tcp_header) == 32 && sizeof(struct tcp_greeting) == 24, "what travels has no padding");
	struct tcp_conduit *tcp = of(conduit);
	conduit->status = COLLET_OK;
	tcp->socket = config->socket;
	tcp->epoll_fd = config->wake->epoll_fd;
	tcp->process = (uint32_t)getpid();
	tcp->self = config->self;
	tcp->peer = config->peer;
	tcp->wake = config->wake;
	tcp->near = config->self->host_id == config->peer->host_id;
	collet_tcp_greetings_begin(tcp);
	if (!set_option(tcp->socket, IPPROTO_TCP, TCP_NODELAY, 1) || !watch_host(tcp)) {
		conduit->status =
			collet_fail(COLLET_ERR_SYSTEM, "tcp: cannot set up the connection to rank %u on %s: %s",
				conduit->peer, tcp->peer->host, strerror(errno));
	}
	if (tcp->near)
		send_without_pacing(tcp->socket);
	return conduit->status;
}

static collet_status opening(struct collet_conduit *conduit)
{
	return collet_tcp_opening(of(conduit));
}

uint32_t collet_tcp_fail(struct tcp_conduit *tcp, collet_status status)
{
	assert(tcp->conduit.status == COLLET_OK && status != COLLET_OK);
	tcp->conduit.status = status;
	shutdown(tcp->socket, SHUT_RDWR);  /* the peer finds out, and the socket has nothing more to wake us for */
	return collet_transfer_queue_settle_all(&tcp->sends, &tcp->conduit, status) +
		collet_transfer_queue_settle_all(&tcp->receives, &tcp->conduit, status);
}

static unsigned length(const struct collet_transfer_queue *queue)
{
	unsigned count = 0;
	for (const struct collet_transfer *transfer = queue->first; transfer; transfer = transfer->next)
		count++;
	return count;
}

bool collet_tcp_way_is_gone(int error)
{
	return error == ETIMEDOUT || error == EHOSTUNREACH || error == EHOSTDOWN || error == ENETUNREACH ||
	       error == ENETDOWN;
}

uint32_t collet_tcp_lost(struct tcp_conduit *tcp, const char *doing, int error)
{
	char part[96] = "";
	if (tcp->taking)
		snprintf(part, sizeof(part), ", %llu of %llu bytes of a message had come",
			(unsigned long long)tcp->received, (unsigned long long)tcp->arriving.bytes);
	const bool gone = error == 0 || error == ECONNRESET || error == EPIPE || error == ECONNREFUSED ||
			  collet_tcp_way_is_gone(error);
	const collet_status status = gone ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT;
	collet_fail(status, "tcp: %s rank %u on %s (channel %u) while %s: %s; %u sends and %u receives were pending%s",
		gone ? "lost" : "the connection failed to", tcp->conduit.peer, tcp->peer->host, tcp->conduit.channel,
		doing, error ? strerror(error) : "it closed the connection", length(&tcp->sends),
		length(&tcp->receives), part);
	return collet_tcp_fail(tcp, status);
}

/* Throws away what has come and nobody will read; false when nothing more can come. */
static bool discard(int socket)
{
	for (int i = 0; i < 64; i++) {
		/* Not recv(): ThreadSanitizer would take it for a write to where NULL points. */
		const long bytes = syscall(
			SYS_recvfrom, socket, NULL, (size_t)TCP_MOVE_BYTES, MSG_TRUNC | MSG_DONTWAIT, NULL, NULL);
		if (bytes <= 0)
			return bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
	}
	return true;
}

/* Before a socket is closed whose sends have settled. The kernel goes on sending after close(), unless bytes are unread
 * here or come later: it then resets the connection and drops what it has not sent. */
static void let_sends_out(int socket)
{
	const int64_t deadline = collet_deadline_after(linger_ns);
	while (discard(socket)) {
		int unsent = 0;
		if (ioctl(socket, SIOCOUTQNSD, &unsent) < 0 || unsent == 0 || collet_deadline_passed(deadline))
			break;
		struct pollfd incoming = { .fd = socket, .events = POLLIN };
		poll(&incoming, 1, 1);
	}
}

static void close_conduit(struct collet_conduit *conduit)
{
	struct tcp_conduit *tcp = of(conduit);
	if (tcp->state == TCP_CLOSED)
		return;
	const bool whole = conduit->status == COLLET_OK && tcp->sent == 0;  /* else the stream has broken off already */
	if (conduit->status == COLLET_OK)
		conduit->status = COLLET_CANCELLED;
	/* A forked child has its own descriptor of the same connection and the same epoll set: it only lets go of it.
	 * Nobody waits for transfers there, and the fork may have come amidst a change of the queues. */
	if (tcp->process == (uint32_t)getpid()) {
		collet_transfer_queue_settle_all(&tcp->sends, conduit, COLLET_CANCELLED);
		collet_transfer_queue_settle_all(&tcp->receives, conduit, COLLET_CANCELLED);
		collet_tcp_unwatch(tcp);
		collet_tcp_ahead_end(tcp);
		if (tcp->state == TCP_READY && whole)
			let_sends_out(tcp->socket);
		/* Not left to close(): a child forked meanwhile may hold the connection open. */
		shutdown(tcp->socket, SHUT_WR);
	}
	close(tcp->socket);
	tcp->state = TCP_CLOSED;
}

/* Lent from here on, or settled at once when the conduit has ended. */
static bool lend(struct collet_conduit *conduit, struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->status = conduit->status;
	if (conduit->status != COLLET_OK)
		return false;
	transfer->status = COLLET_PENDING;
	conduit->posted++;
	collet_transfer_queue_add(queue, transfer);
	return true;
}

static void post_send(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct tcp_conduit *tcp = of(conduit);
	if (lend(conduit, &tcp->sends, transfer) && tcp->sends.first == transfer)
		collet_tcp_send(tcp);
}

static void post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct tcp_conduit *tcp = of(conduit);
	if (lend(conduit, &tcp->receives, transfer) && tcp->receives.first == transfer)
		collet_tcp_deliver(tcp);
}

static void release(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	/* the view is the receiver's own buffer */
}

static uint32_t progress(struct collet_conduit *conduit)
{
	struct tcp_conduit *tcp = of(conduit);
	uint32_t settled = 0;
	if (tcp->sends.first)
		settled += collet_tcp_send(tcp);
	size_t moved;
	if (tcp->receives.first)
		settled += collet_tcp_receive(tcp, &moved);
	return settled;
}

/* A large message's payload must not be read but where it is wanted, which only a posted receive says. */
static bool has_come(struct collet_conduit *conduit, uint64_t bytes)
{
	return conduit->status != COLLET_OK || bytes > TCP_BUFFERED_MOST || collet_tcp_has_come(of(conduit));
}

static bool peek(struct collet_conduit *conduit, struct collet_message *message)
{
	return conduit->status == COLLET_OK && collet_tcp_peek(of(conduit), message);
}

/* Bytes are under way and the peer's host has not answered for long, though asked again and again. A peer that is
 * stopped or slow has a kernel that answers. */
static bool silent_host(struct tcp_conduit *tcp)
{
	const int64_t now = collet_clock_ns();
	if (now - tcp->looked_ns < INT64_C(1000000000))
		return false;
	tcp->looked_ns = now;
	struct tcp_info info = { 0 };
	socklen_t bytes = sizeof(info);
	tcp->conduit.stats.system_calls++;
	return getsockopt(tcp->socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
		info.tcpi_last_ack_recv >= SILENCE_MS && info.tcpi_retransmits + info.tcpi_probes >= UNANSWERED_COUNT;
}

/* Into the epoll set before the first sleep, and out of it when so many messages have come without one that none seems
 * to be near: for a socket that is in it, each of the peer's sends does the set's work too (3 to 5 % of a small
 * exchange). Edge-triggered meanwhile: what is not waited for must not wake again and again. arm() asks the socket
 * itself, so no edge is missed. False: it cannot be watched, and the conduit has failed. */
static bool watch(struct tcp_conduit *tcp)
{
	tcp->awake_count = 0;
	if (tcp->watched)
		return true;
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = &tcp->conduit };
	tcp->conduit.stats.system_calls++;
	tcp->watched = epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, tcp->socket, &event) == 0;
	if (!tcp->watched)
		collet_tcp_fail(tcp, collet_fail(COLLET_ERR_SYSTEM,
			"tcp: cannot watch the connection to rank %u on %s: %s", tcp->conduit.peer, tcp->peer->host,
			strerror(errno)));
	return tcp->watched;
}

void collet_tcp_unwatch(struct tcp_conduit *tcp)
{
	if (!tcp->watched)
		return;
	tcp->watched = false;
	tcp->conduit.stats.system_calls++;
	epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, tcp->socket, NULL);
}

static bool arm(struct collet_conduit *conduit)
{
	struct tcp_conduit *tcp = of(conduit);
	if (conduit->status != COLLET_OK)
		return false;
	const bool peeking = conduit->posted == 0;
	if (peeking && collet_tcp_has_header(tcp))
		return false;
	if (silent_host(tcp)) {
		collet_tcp_lost(tcp, "waiting", ETIMEDOUT);
		return false;
	}
	if (!watch(tcp))
		return false;
	collet_tcp_ahead_starved(tcp, true);
	struct pollfd ready = { .fd = tcp->socket };
	if (tcp->receives.first || peeking)
		ready.events |= POLLIN | POLLRDHUP;
	if (tcp->sends.first)
		ready.events |= POLLOUT;
	conduit->stats.system_calls++;
	tcp->armed = poll(&ready, 1, 0) == 0;
	return tcp->armed;
}

static void disarm(struct collet_conduit *conduit)
{
	of(conduit)->armed = false;
}

const struct collet_transport collet_tcp_transport = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "tcp",
	.summary = "any two ranks: a socket a channel, scatter and gather",
	.caps = COLLET_CAP_CALLS,
	.priority = 200,
	.conduit_bytes = sizeof(struct tcp_conduit),
	.reaches = reaches,
	.open = open_conduit,
	.opening = opening,
	.close = close_conduit,
	.post_send = post_send,
	.post_recv = post_recv,
	.release = release,
	.progress = progress,
	.has_come = has_come,
	.peek = peek,
	.arm = arm,
	.disarm = disarm,
};
