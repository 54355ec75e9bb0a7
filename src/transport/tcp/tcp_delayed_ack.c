/* Avoids the cost of one TCP segment per small message in a burst, and the delayed acknowledgement that this would
 * cause.
 *
 * A rank that only sends, such as the root of broadcasts, runs all of TCP for each small message: its own part, the
 * receiver's part and an acknowledgement. A receiver that keeps up takes each message by itself. That costs 4 us a
 * message over loopback, although the two do not wait for each other. With Nagle's algorithm the kernel holds messages
 * back until the one before is acknowledged. Then as many as have been posted meanwhile travel together, at 1 to 2 us
 * each.
 *
 * Nagle's algorithm is known as slow because the other kernel may delay the acknowledgement by 40 ms. Here the previous
 * header tells the receiver that its sender is in a burst. A receiver that misses the next message makes its kernel
 * acknowledge at once. On one host, the held messages have arrived when that call returns. So messages wait no longer
 * than their receiver is busy with other things. This is done only between ranks of one host.
 *
 * A rank that waited between two sends is not in a burst: somebody waits for its messages, and they are sent at
 * once. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "transport/tcp/tcp_endpoint.h"

/* What a wait subtracts from burst_count. An occasional wait, for room in the socket, does not end a burst. */
enum { EMPTY_POLL_WEIGHT = 4 };

static void set_option(struct tcp_endpoint *tcp, int name, int value)
{
	tcp->endpoint.stats.system_calls++;
	/* Ignored: without the option everything works, only slower. */
	(void)setsockopt(tcp->socket, IPPROTO_TCP, name, &value, sizeof(value));
}

static void set_nagle(struct tcp_endpoint *tcp, bool has_nagle)
{
	if (tcp->has_nagle == has_nagle)
		return;
	tcp->has_nagle = has_nagle;
	set_option(tcp, TCP_NODELAY, !has_nagle);
}

void collet_tcp_delayed_ack_update(struct tcp_endpoint *tcp, uint64_t bytes)
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

void collet_tcp_delayed_ack_empty_read(struct tcp_endpoint *tcp, bool sleeping)
{
	if (!tcp->is_peer_burst || !tcp->has_unacked || (++tcp->empty_reads < TCP_EMPTY_READS && !sleeping))
		return;
	tcp->has_unacked = false;
	set_option(tcp, TCP_QUICKACK, 1);
}
