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
enum { WAIT_WEIGHT = 4 };

static void set_option(struct tcp_conduit *tcp, int name, int value)
{
	tcp->conduit.stats.system_calls++;
	/* If it cannot be set all works, only slower. */
	(void)setsockopt(tcp->socket, IPPROTO_TCP, name, &value, sizeof(value));
}

static void hold(struct tcp_conduit *tcp, bool holds)
{
	if (tcp->holds == holds)
		return;
	tcp->holds = holds;
	set_option(tcp, TCP_NODELAY, !holds);
}

void collet_tcp_ahead_judge(struct tcp_conduit *tcp, uint64_t bytes)
{
	if (!tcp->near)
		return;
	const uint32_t waits = tcp->wake->waits;
	const bool waited = waits != tcp->waits_seen;
	tcp->waits_seen = waits;
	if (bytes > TCP_BUFFERED_MOST)
		tcp->ahead_count = 0;
	else if (!waited)
		tcp->ahead_count += tcp->ahead_count < 2 * TCP_AHEAD_COUNT;
	else
		tcp->ahead_count -= tcp->ahead_count < WAIT_WEIGHT ? tcp->ahead_count : WAIT_WEIGHT;
	if (tcp->told_ahead && tcp->ahead_count > TCP_AHEAD_COUNT)
		hold(tcp, true);
	if (tcp->ahead_count == 0)
		hold(tcp, false);
	tcp->says_ahead = tcp->holds || tcp->ahead_count >= TCP_AHEAD_COUNT;
}

void collet_tcp_ahead_end(struct tcp_conduit *tcp)
{
	tcp->ahead_count = 0;
	hold(tcp, false);
}

void collet_tcp_ahead_received(struct tcp_conduit *tcp)
{
	tcp->owes = true;
	tcp->vain_count = 0;
}

void collet_tcp_ahead_sent(struct tcp_conduit *tcp)
{
	tcp->owes &= tcp->holds;
	tcp->told_ahead = tcp->says_ahead;
}

void collet_tcp_ahead_starved(struct tcp_conduit *tcp, bool sleeping)
{
	if (!tcp->peer_ahead || !tcp->owes || (++tcp->vain_count < TCP_VAIN_COUNT && !sleeping))
		return;
	tcp->owes = false;
	set_option(tcp, TCP_QUICKACK, 1);
}
