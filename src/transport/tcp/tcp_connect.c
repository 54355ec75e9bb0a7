/* tcp, opening: both ends say who they are and that they accept the other, so that neither takes a connection for ready
 * that the other has refused. Nothing is read beyond the greetings: messages may follow at once. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/status.h"
#include "transport/tcp/tcp_endpoint.h"

enum {
	GREETING_MAGIC = 0x67746c63,  /* "cltg" */
	PROTOCOL_VERSION = 2
};

static struct tcp_greeting greeting(const struct tcp_conduit *tcp, bool accepted)
{
	return (struct tcp_greeting){ .magic = GREETING_MAGIC, .version = PROTOCOL_VERSION, .accepted = accepted,
		.from = tcp->self->rank, .to = tcp->peer->rank, .channel = tcp->conduit.channel };
}

void collet_tcp_greetings_begin(struct tcp_conduit *tcp)
{
	tcp->greetings.say = greeting(tcp, false);
	tcp->greetings.said = tcp->greetings.heard = 0;
	tcp->state = TCP_SAY_HELLO;
}

static collet_status lost(struct tcp_conduit *tcp, int error)
{
	/* A peer that refuses closes the connection, too. */
	const collet_status status = collet_fail(
		collet_tcp_way_is_gone(error) ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
		"tcp: rank %u on %s, channel %u: the connection ended before it was ready (%s)",
		tcp->conduit.peer, tcp->peer->host, tcp->conduit.channel,
		error ? strerror(error) : "closed by the peer");
	collet_tcp_fail(tcp, status);
	return status;
}

static collet_status say(struct tcp_conduit *tcp)
{
	const uint8_t *bytes = (const uint8_t *)&tcp->greetings.say;
	while (tcp->greetings.said < sizeof(tcp->greetings.say)) {
		tcp->conduit.stats.system_calls++;
		const ssize_t written = send(tcp->socket, bytes + tcp->greetings.said,
			sizeof(tcp->greetings.say) - tcp->greetings.said, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : lost(tcp, errno);
		tcp->greetings.said += (size_t)written;
	}
	tcp->greetings.said = 0;
	tcp->greetings.say = greeting(tcp, true);
	return COLLET_OK;
}

static collet_status hear(struct tcp_conduit *tcp)
{
	uint8_t *bytes = (uint8_t *)&tcp->greetings.hear;
	while (tcp->greetings.heard < sizeof(tcp->greetings.hear)) {
		tcp->conduit.stats.system_calls++;
		const ssize_t got = recv(tcp->socket, bytes + tcp->greetings.heard,
			sizeof(tcp->greetings.hear) - tcp->greetings.heard, MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? COLLET_PENDING
										    : lost(tcp, got < 0 ? errno : 0);
		tcp->greetings.heard += (size_t)got;
	}
	tcp->greetings.heard = 0;
	const struct tcp_greeting *heard = &tcp->greetings.hear;
	const bool accepted = tcp->state == TCP_HEAR_ACCEPTED;
	if (heard->magic == GREETING_MAGIC && heard->version == PROTOCOL_VERSION && heard->accepted == accepted &&
		heard->from == tcp->peer->rank && heard->to == tcp->self->rank &&
		heard->channel == tcp->conduit.channel)
		return COLLET_OK;
	const collet_status status =
		heard->magic != GREETING_MAGIC
			? collet_fail(COLLET_ERR_TRANSPORT,
				  "tcp: rank %u on %s, channel %u: what came is not a greeting (it starts with "
				  "%08x); is something else talking to this port?",
				  tcp->conduit.peer, tcp->peer->host, tcp->conduit.channel, heard->magic)
			: collet_fail(COLLET_ERR_TRANSPORT,
				  "tcp: rank %u on %s, channel %u: the other end is version %u, rank %u to rank "
				  "%u, channel %u; expected version %u, rank %u to rank %u",
				  tcp->conduit.peer, tcp->peer->host, tcp->conduit.channel, heard->version, heard->from,
				  heard->to, heard->channel, PROTOCOL_VERSION, tcp->peer->rank, tcp->self->rank);
	collet_tcp_fail(tcp, status);
	return status;
}

collet_status collet_tcp_opening(struct tcp_conduit *tcp)
{
	static collet_status (*const steps[])(struct tcp_conduit *) = {
		[TCP_SAY_HELLO] = say, [TCP_HEAR_HELLO] = hear, [TCP_SAY_ACCEPTED] = say, [TCP_HEAR_ACCEPTED] = hear,
	};
	if (tcp->conduit.status != COLLET_OK)
		return tcp->conduit.status;
	while (tcp->state != TCP_READY) {
		const collet_status status = steps[tcp->state](tcp);
		if (status != COLLET_OK)
			return status;
		tcp->state++;
	}
	return COLLET_OK;
}
