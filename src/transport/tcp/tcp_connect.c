/* Connects a tcp endpoint: both ends say who they are and accept each other, so that neither takes a connection for
 * ready that the other has refused. Nothing is read beyond the hellos: messages may follow at once. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/status.h"
#include "transport/tcp/tcp_endpoint.h"

enum {
	HELLO_MAGIC = 0x67746c63,     /* "cltg" */
	PROTOCOL_VERSION = 2
};

static struct tcp_hello make_hello(const struct tcp_endpoint *tcp, bool accepted)
{
	return (struct tcp_hello){ .magic = HELLO_MAGIC, .version = PROTOCOL_VERSION, .is_accepted = accepted,
		.from = tcp->self->rank, .to = tcp->peer->rank, .channel = tcp->endpoint.channel };
}

void collet_tcp_hello_init(struct tcp_endpoint *tcp)
{
	tcp->hello.out = make_hello(tcp, false);
	tcp->hello.out_bytes = tcp->hello.in_bytes = 0;
	tcp->state = TCP_SEND_HELLO;
}

static collet_status fail_connect(struct tcp_endpoint *tcp, int error)
{
	/* A peer that refuses closes the connection too. */
	const collet_status status = collet_fail(
		collet_tcp_is_unreachable(error) ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
		"tcp: rank %u on %s, channel %u: the connection ended before it was ready (%s)",
		tcp->endpoint.peer, tcp->peer->host, tcp->endpoint.channel,
		error ? strerror(error) : "closed by the peer");
	collet_tcp_fail(tcp, status);
	return status;
}

static collet_status send_hello(struct tcp_endpoint *tcp)
{
	const uint8_t *bytes = (const uint8_t *)&tcp->hello.out;
	while (tcp->hello.out_bytes < sizeof(tcp->hello.out)) {
		tcp->endpoint.stats.system_calls++;
		const ssize_t written = send(tcp->socket, bytes + tcp->hello.out_bytes,
			sizeof(tcp->hello.out) - tcp->hello.out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : fail_connect(tcp, errno);
		tcp->hello.out_bytes += (size_t)written;
	}
	tcp->hello.out_bytes = 0;
	tcp->hello.out = make_hello(tcp, true);
	return COLLET_OK;
}

static collet_status receive_hello(struct tcp_endpoint *tcp)
{
	uint8_t *bytes = (uint8_t *)&tcp->hello.in;
	while (tcp->hello.in_bytes < sizeof(tcp->hello.in)) {
		tcp->endpoint.stats.system_calls++;
		const ssize_t got = recv(tcp->socket, bytes + tcp->hello.in_bytes,
			sizeof(tcp->hello.in) - tcp->hello.in_bytes, MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)
				       ? COLLET_PENDING
				       : fail_connect(tcp, got < 0 ? errno : 0);
		tcp->hello.in_bytes += (size_t)got;
	}
	tcp->hello.in_bytes = 0;
	const struct tcp_hello *hello = &tcp->hello.in;
	const bool accepted = tcp->state == TCP_AWAIT_ACCEPTED;
	if (hello->magic == HELLO_MAGIC && hello->version == PROTOCOL_VERSION && hello->is_accepted == accepted &&
		hello->from == tcp->peer->rank && hello->to == tcp->self->rank &&
		hello->channel == tcp->endpoint.channel)
		return COLLET_OK;
	const collet_status status =
		hello->magic != HELLO_MAGIC
			? collet_fail(COLLET_ERR_TRANSPORT,
				  "tcp: rank %u on %s, channel %u: the received bytes are not a hello (they start with "
				  "%08x); is something else talking to this port?",
				  tcp->endpoint.peer, tcp->peer->host, tcp->endpoint.channel, hello->magic)
			: collet_fail(COLLET_ERR_TRANSPORT,
				  "tcp: rank %u on %s, channel %u: the other end is version %u, rank %u to rank "
				  "%u, channel %u; expected version %u, rank %u to rank %u",
				  tcp->endpoint.peer, tcp->peer->host, tcp->endpoint.channel, hello->version,
				  hello->from, hello->to, hello->channel, PROTOCOL_VERSION, tcp->peer->rank,
				  tcp->self->rank);
	collet_tcp_fail(tcp, status);
	return status;
}

collet_status collet_tcp_open_progress(struct tcp_endpoint *tcp)
{
	static collet_status (*const steps[])(struct tcp_endpoint *) = {
		[TCP_SEND_HELLO] = send_hello,
		[TCP_AWAIT_HELLO] = receive_hello,
		[TCP_SEND_ACCEPTED] = send_hello,
		[TCP_AWAIT_ACCEPTED] = receive_hello,
	};
	if (tcp->endpoint.status != COLLET_OK)
		return tcp->endpoint.status;
	while (tcp->state != TCP_READY) {
		const collet_status status = steps[tcp->state](tcp);
		if (status != COLLET_OK)
			return status;
		tcp->state++;
	}
	return COLLET_OK;
}
