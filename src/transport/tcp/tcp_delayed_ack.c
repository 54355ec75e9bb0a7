/* tcp, running ahead: who only sends, call after call, as the root of broadcasts does, goes through all of TCP for
 * each small message, the receiver's part and an acknowledgement included, and a receiver that keeps up takes each by
 * itself: 4 us a message over loopback, though the two do not wait for each other. Held back until the one before is
 * acknowledged (Nagle's algorithm), messages travel together, as many as have come up meanwhile: 1 to 2 us each.
 *
 * What gives Nagle's algorithm its name for being slow is that the other kernel may take 40 ms to acknowledge. Here the
 * receiver knows from the header before that its sender runs ahead, and asks for the rest when it misses it: it has its
 * kernel acknowledge, which on one host has sent what was held when it returns. So messages wait for no longer than
 * their receiver does other things, and this is done between ranks of one host alone.
 *
 * A rank that waited between two sends does not run ahead: its messages have somebody waiting for them, and go at
 * once. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "transport/tcp/tcp_endpoint.h"

/* What a wait takes off the count: one now and then, for room in the socket, does not matter. */
enum { EMPTY_POLL_WEIGHT = 4 };

static void set_option(struct tcp_endpoint *tcp, int name, int value)
{
	tcp->endpoint.stats.system_calls++;
	/* If it cannot be set all works, only slower. */
	(void)setsockopt(tcp->socket, IPPROTO_TCP, name, &value, sizeof(value));
}

static void set_nagle(struct tcp_endpoint *tcp, bool has_nagle)
{
	if (tcp->has_nagle == has_nagle)
		return;
	tcp->has_nagle = has_nagle;
	set_option(tcp, TCP_NODELAY, !has_nagle);
}

void collet_tcp_delayed_ack_judge(struct tcp_endpoint *tcp, uint64_t bytes)
{
	if (!tcp->is_local)
		return;
	const uint32_t empty_polls = tcp->wake->empty_polls;
	const bool waited = empty_polls != tcp->empty_polls_seen;
	tcp->empty_polls_seen = empty_polls;
	if (bytes > TCP_BUFFERED_MAX)
		tcp->burst_count = 0;
	else if (!waited)
		tcp->burst_count += tcp->burst_count < 2 * TCP_BURST_COUNT;
	else
		tcp->burst_count -= tcp->burst_count < EMPTY_POLL_WEIGHT ? tcp->burst_count : EMPTY_POLL_WEIGHT;
	if (tcp->is_burst_announced && tcp->burst_count > TCP_BURST_COUNT)
		set_nagle(tcp, true);
	if (tcp->burst_count == 0)
		set_nagle(tcp, false);
	tcp->is_burst = tcp->has_nagle || tcp->burst_count >= TCP_BURST_COUNT;
}

void collet_tcp_delayed_ack_reset(struct tcp_endpoint *tcp)
{
	tcp->burst_count = 0;
	set_nagle(tcp, false);
}

void collet_tcp_delayed_ack_received(struct tcp_endpoint *tcp)
{
	tcp->has_unacked = true;
	tcp->empty_reads = 0;
}

void collet_tcp_delayed_ack_sent(struct tcp_endpoint *tcp)
{
	tcp->has_unacked &= tcp->has_nagle;
	tcp->is_burst_announced = tcp->is_burst;
}

void collet_tcp_delayed_ack_starved(struct tcp_endpoint *tcp, bool sleeping)
{
	if (!tcp->is_peer_burst || !tcp->has_unacked || (++tcp->empty_reads < TCP_EMPTY_READS && !sleeping))
		return;
	tcp->has_unacked = false;
	set_option(tcp, TCP_QUICKACK, 1);
}
