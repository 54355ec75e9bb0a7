/* tcp, receiving: small messages through the conduit's buffer, large ones straight to where they are wanted. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/status.h"
#include "transport/tcp/tcp_endpoint.h"

static uint32_t buffered(const struct tcp_conduit *tcp)
{
	return tcp->buffer_end - tcp->buffer_begin;
}

bool collet_tcp_has_header(const struct tcp_conduit *tcp)
{
	return tcp->has_header || (!tcp->taking && !tcp->skip && buffered(tcp) >= sizeof(struct tcp_header));
}

/* Takes bytes that are in the buffer out of it. */
static void take(struct tcp_conduit *tcp, void *into, size_t bytes)
{
	if (into && bytes)
		memcpy(into, tcp->buffer + tcp->buffer_begin, bytes);
	tcp->buffer_begin += (uint32_t)bytes;
	if (tcp->buffer_begin == tcp->buffer_end)
		tcp->buffer_begin = tcp->buffer_end = 0;
}

/* Drops what has come of a message that was a mismatch. */
static void drop(struct tcp_conduit *tcp)
{
	const uint64_t bytes = tcp->skip < buffered(tcp) ? tcp->skip : buffered(tcp);
	take(tcp, NULL, bytes);
	tcp->skip -= bytes;
}

/* Makes has_header true if the buffer holds one. False also when it was no header: the conduit has then failed, with
 * *settled transfers. */
static bool read_header(struct tcp_conduit *tcp, uint32_t *settled)
{
	if (tcp->has_header)
		return true;
	drop(tcp);
	if (tcp->skip || buffered(tcp) < sizeof(struct tcp_header))
		return false;
	struct tcp_header header;
	take(tcp, &header, sizeof(header));
	const bool known = header.magic == TCP_MESSAGE_MAGIC || header.magic == TCP_AHEAD_MAGIC;
	if (!known || header.check != collet_tcp_check(&header.message) || header.message.bytes > INT64_MAX) {
		collet_fail(COLLET_ERR_TRANSPORT,
			"tcp: rank %u on %s, channel %u: what came is not a message (it starts with "
			"%04x and says to be %llu bytes long); is something else talking to this port?",
			tcp->conduit.peer, tcp->peer->host, tcp->conduit.channel, header.magic,
			(unsigned long long)header.message.bytes);
		*settled += collet_tcp_fail(tcp, COLLET_ERR_TRANSPORT);
		return false;
	}
	tcp->arriving = header.message;
	/* Whoever waits for the next one of large messages had better look on than give way at once. */
	tcp->conduit.peer_cpu = header.message.bytes <= TCP_BUFFERED_MOST ? header.cpu : 0;
	tcp->peer_ahead = header.magic == TCP_AHEAD_MAGIC;
	tcp->has_header = true;
	return true;
}

/* The next message meets the first receive. */
static uint32_t match(struct tcp_conduit *tcp)
{
	struct collet_transfer *receive = tcp->receives.first;
	tcp->has_header = false;
	if (collet_message_equal(&tcp->arriving, &receive->message)) {
		tcp->taking = true;
		tcp->received = 0;
		return 0;
	}
	receive->message = tcp->arriving;
	tcp->skip = tcp->arriving.bytes;
	collet_transfer_queue_settle(&tcp->receives, &tcp->conduit, COLLET_ERR_MISMATCH);
	return 1;
}

/* The first receive is complete. */
static void finish(struct tcp_conduit *tcp)
{
	struct collet_transfer *receive = tcp->receives.first;
	tcp->taking = false;
	collet_tcp_ahead_end(tcp);
	tcp->conduit.stats.bytes_received += receive->message.bytes;
	tcp->conduit.stats.messages_received++;
	receive->view = receive->data;
	collet_transfer_queue_settle(&tcp->receives, &tcp->conduit, COLLET_OK);
	if (tcp->watched && ++tcp->awake_count >= TCP_AWAKE_COUNT && !tcp->armed)
		collet_tcp_unwatch(tcp);
}

uint32_t collet_tcp_deliver(struct tcp_conduit *tcp)
{
	uint32_t settled = 0;
	while (tcp->receives.first) {
		if (!tcp->taking) {
			if (!read_header(tcp, &settled))
				break;
			settled += match(tcp);
			continue;
		}
		const uint64_t left = tcp->arriving.bytes - tcp->received;
		const uint64_t bytes = left < buffered(tcp) ? left : buffered(tcp);
		if (bytes)
			take(tcp, (uint8_t *)tcp->receives.first->data + tcp->received, bytes);
		tcp->received += bytes;
		if (bytes < left)
			break;
		finish(tcp);
		settled++;
	}
	return settled;
}

/* How much to read ahead: of a large message only the header, since the rest has a better place to go. */
static size_t ahead(const struct collet_transfer *receive)
{
	return receive && receive->message.bytes > TCP_BUFFERED_MOST ? sizeof(struct tcp_header) : TCP_BUFFER_BYTES;
}

/* Where the next bytes shall go: the rest of the message being taken, then the buffer. Returns how many parts. */
static int plan(struct tcp_conduit *tcp, struct iovec parts[2])
{
	int count = 0;
	size_t room = TCP_BUFFER_BYTES;
	if (tcp->taking) {
		assert(buffered(tcp) == 0);  /* else deliver() would have used it */
		struct collet_transfer *receive = tcp->receives.first;
		const uint64_t left = tcp->arriving.bytes - tcp->received;
		parts[count++] = (struct iovec){ .iov_base = (uint8_t *)receive->data + tcp->received,
			.iov_len = left < TCP_MOVE_BYTES ? left : TCP_MOVE_BYTES };
		if (left > TCP_MOVE_BYTES)
			return count;
		room = ahead(receive->next ? receive->next : receive);
	} else if (!tcp->skip) {
		/* No more than a part of a header is there. */
		memmove(tcp->buffer, tcp->buffer + tcp->buffer_begin, buffered(tcp));
		tcp->buffer_end = buffered(tcp);
		tcp->buffer_begin = 0;
		room = ahead(tcp->receives.first) - tcp->buffer_end;
	}
	parts[count++] = (struct iovec){ .iov_base = tcp->buffer + tcp->buffer_end, .iov_len = room };
	return count;
}

/* One read into the planned places. Returns its bytes, 0 when nothing is there or the conduit has failed, settling
 * *settled. *full: there may be more. */
static size_t read_some(struct tcp_conduit *tcp, bool *full, uint32_t *settled)
{
	struct iovec parts[2];
	const int count = plan(tcp, parts);
	const size_t wanted = parts[0].iov_len + (count > 1 ? parts[1].iov_len : 0);
	ssize_t bytes;
	do {
		tcp->conduit.stats.system_calls++;
		bytes = count == 1 ? recv(tcp->socket, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT)
			: readv(tcp->socket, parts, count);
	} while (bytes < 0 && errno == EINTR);
	*full = bytes == (ssize_t)wanted;
	if (bytes <= 0) {
		if (bytes == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
			*settled += collet_tcp_lost(tcp, "receiving", bytes == 0 ? 0 : errno);
		else
			collet_tcp_ahead_starved(tcp, false);
		return 0;
	}
	collet_tcp_ahead_received(tcp);
	size_t into_buffer = (size_t)bytes;
	if (tcp->taking) {
		const size_t direct = into_buffer < parts[0].iov_len ? into_buffer : parts[0].iov_len;
		tcp->received += direct;
		into_buffer -= direct;
	}
	tcp->buffer_end += (uint32_t)into_buffer;
	return (size_t)bytes;
}

uint32_t collet_tcp_receive(struct tcp_conduit *tcp, size_t *moved)
{
	uint32_t settled = collet_tcp_deliver(tcp);
	bool full = true;
	*moved = 0;
	while (tcp->receives.first && full && *moved < TCP_MOVE_BYTES) {
		*moved += read_some(tcp, &full, &settled);
		settled += collet_tcp_deliver(tcp);
	}
	return settled;
}

bool collet_tcp_has_come(struct tcp_conduit *tcp)
{
	uint32_t settled = 0;
	bool full;
	assert(!tcp->receives.first);
	if (!read_header(tcp, &settled) && tcp->conduit.status == COLLET_OK && read_some(tcp, &full, &settled))
		read_header(tcp, &settled);
	return tcp->has_header || tcp->conduit.status != COLLET_OK;
}

bool collet_tcp_peek(struct tcp_conduit *tcp, struct collet_message *message)
{
	uint32_t settled = 0;
	bool full = true;
	assert(!tcp->receives.first);
	while (!read_header(tcp, &settled)) {
		if (tcp->conduit.status != COLLET_OK || !full)
			return false;
		read_some(tcp, &full, &settled);
	}
	*message = tcp->arriving;
	return true;
}
