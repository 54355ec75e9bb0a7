/* Receives small messages through the endpoint's buffer, and large ones straight into their destination. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/status.h"
#include "transport/tcp/tcp_endpoint.h"

static uint32_t buffered_bytes(const struct tcp_endpoint *tcp)
{
	return tcp->buffer_end - tcp->buffer_begin;
}

bool collet_tcp_has_header(const struct tcp_endpoint *tcp)
{
	return tcp->has_header ||
	       (!tcp->is_receiving && !tcp->skip_bytes && buffered_bytes(tcp) >= sizeof(struct tcp_header));
}

/* Consumes bytes of the buffer, and copies them to `into` if it is not NULL. */
static void consume(struct tcp_endpoint *tcp, void *into, size_t bytes)
{
	if (into && bytes)
		memcpy(into, tcp->buffer + tcp->buffer_begin, bytes);
	tcp->buffer_begin += (uint32_t)bytes;
	if (tcp->buffer_begin == tcp->buffer_end)
		tcp->buffer_begin = tcp->buffer_end = 0;
}

/* Discards what has come of a mismatched message. */
static void drop_skipped(struct tcp_endpoint *tcp)
{
	const uint64_t bytes = tcp->skip_bytes < buffered_bytes(tcp) ? tcp->skip_bytes : buffered_bytes(tcp);
	consume(tcp, NULL, bytes);
	tcp->skip_bytes -= bytes;
}

/* Reads a header from the buffer, if it holds one, and sets has_header. False if there is none, or if the bytes are no
 * header: then the endpoint has failed, and *completed counts its transfers. */
static bool read_header(struct tcp_endpoint *tcp, uint32_t *completed)
{
	if (tcp->has_header)
		return true;
	drop_skipped(tcp);
	if (tcp->skip_bytes || buffered_bytes(tcp) < sizeof(struct tcp_header))
		return false;
	struct tcp_header header;
	consume(tcp, &header, sizeof(header));
	const bool known = header.magic == TCP_MESSAGE_MAGIC || header.magic == TCP_BURST_MAGIC;
	if (!known || header.checksum != collet_tcp_checksum(&header.message) || header.message.bytes > INT64_MAX) {
		collet_fail(COLLET_ERR_TRANSPORT,
			"tcp: rank %u on %s, channel %u: the received bytes are not a message (they start with "
			"%04x and claim a length of %llu bytes); is something else talking to this port?",
			tcp->endpoint.peer, tcp->peer->host, tcp->endpoint.channel, header.magic,
			(unsigned long long)header.message.bytes);
		*completed += collet_tcp_fail(tcp, COLLET_ERR_TRANSPORT);
		return false;
	}
	tcp->arriving = header.message;
	/* A rank that waits for large messages should keep polling rather than yield to this CPU at once. */
	tcp->endpoint.peer_cpu = header.message.bytes <= TCP_BUFFERED_MAX ? header.cpu : 0;
	tcp->is_peer_burst = header.magic == TCP_BURST_MAGIC;
	tcp->has_header = true;
	return true;
}

/* Compares the next message with the first receive, and starts it or completes a mismatch. */
static uint32_t match(struct tcp_endpoint *tcp)
{
	struct collet_transfer *receive = tcp->receives.first;
	tcp->has_header = false;
	if (collet_message_equal(&tcp->arriving, &receive->message)) {
		tcp->is_receiving = true;
		tcp->received_bytes = 0;
		return 0;
	}
	receive->message = tcp->arriving;
	tcp->skip_bytes = tcp->arriving.bytes;
	collet_transfer_queue_complete(&tcp->receives, &tcp->endpoint, COLLET_ERR_MISMATCH);
	return 1;
}

/* Completes the first receive. */
static void complete_first(struct tcp_endpoint *tcp)
{
	struct collet_transfer *receive = tcp->receives.first;
	tcp->is_receiving = false;
	collet_tcp_delayed_ack_reset(tcp);
	tcp->endpoint.stats.bytes_received += receive->message.bytes;
	tcp->endpoint.stats.messages_received++;
	receive->view = receive->data;
	collet_transfer_queue_complete(&tcp->receives, &tcp->endpoint, COLLET_OK);
	if (tcp->is_watched && ++tcp->messages_since_arm >= TCP_UNWATCH_AFTER && !tcp->is_armed)
		collet_tcp_unwatch(tcp);
}

uint32_t collet_tcp_deliver(struct tcp_endpoint *tcp)
{
	uint32_t completed = 0;
	while (tcp->receives.first) {
		if (!tcp->is_receiving) {
			if (!read_header(tcp, &completed))
				break;
			completed += match(tcp);
			continue;
		}
		const uint64_t left = tcp->arriving.bytes - tcp->received_bytes;
		const uint64_t bytes = left < buffered_bytes(tcp) ? left : buffered_bytes(tcp);
		if (bytes)
			consume(tcp, (uint8_t *)tcp->receives.first->data + tcp->received_bytes, bytes);
		tcp->received_bytes += bytes;
		if (bytes < left)
			break;
		complete_first(tcp);
		completed++;
	}
	return completed;
}

/* Returns how many bytes to read ahead. Of a large message it is only the header, because its payload goes to its
 * destination. */
static size_t read_ahead_bytes(const struct collet_transfer *receive)
{
	return receive && receive->message.bytes > TCP_BUFFERED_MAX ? sizeof(struct tcp_header) : TCP_BUFFER_BYTES;
}

/* Plans where the next bytes go: the rest of the message in progress, then the buffer. Returns the number of parts. */
static int plan_read(struct tcp_endpoint *tcp, struct iovec parts[2])
{
	int count = 0;
	size_t room = TCP_BUFFER_BYTES;
	if (tcp->is_receiving) {
		assert(buffered_bytes(tcp) == 0); /* else collet_tcp_deliver() would have used it */
		struct collet_transfer *receive = tcp->receives.first;
		const uint64_t left = tcp->arriving.bytes - tcp->received_bytes;
		parts[count++] = (struct iovec){ .iov_base = (uint8_t *)receive->data + tcp->received_bytes,
			.iov_len = left < TCP_PROGRESS_BYTES ? left : TCP_PROGRESS_BYTES };
		if (left > TCP_PROGRESS_BYTES)
			return count;
		room = read_ahead_bytes(receive->next ? receive->next : receive);
	} else if (!tcp->skip_bytes) {
		/* The buffer holds at most a part of a header. */
		memmove(tcp->buffer, tcp->buffer + tcp->buffer_begin, buffered_bytes(tcp));
		tcp->buffer_end = buffered_bytes(tcp);
		tcp->buffer_begin = 0;
		room = read_ahead_bytes(tcp->receives.first) - tcp->buffer_end;
	}
	parts[count++] = (struct iovec){ .iov_base = tcp->buffer + tcp->buffer_end, .iov_len = room };
	return count;
}

/* Makes one read into the planned places. Returns its bytes; 0 if nothing has come or the endpoint has failed, then
 * *completed counts its transfers. *is_full: there may be more. */
static size_t read_some(struct tcp_endpoint *tcp, bool *is_full, uint32_t *completed)
{
	struct iovec parts[2];
	const int count = plan_read(tcp, parts);
	const size_t wanted = parts[0].iov_len + (count > 1 ? parts[1].iov_len : 0);
	ssize_t bytes;
	do {
		tcp->endpoint.stats.system_calls++;
		bytes = count == 1 ? recv(tcp->socket, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT)
			: readv(tcp->socket, parts, count);
	} while (bytes < 0 && errno == EINTR);
	*is_full = bytes == (ssize_t)wanted;
	if (bytes <= 0) {
		if (bytes == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
			*completed += collet_tcp_lose_peer(tcp, "receiving", bytes == 0 ? 0 : errno);
		else
			collet_tcp_delayed_ack_empty_read(tcp, false);
		return 0;
	}
	collet_tcp_delayed_ack_received(tcp);
	size_t into_buffer = (size_t)bytes;
	if (tcp->is_receiving) {
		const size_t direct = into_buffer < parts[0].iov_len ? into_buffer : parts[0].iov_len;
		tcp->received_bytes += direct;
		into_buffer -= direct;
	}
	tcp->buffer_end += (uint32_t)into_buffer;
	return (size_t)bytes;
}

uint32_t collet_tcp_receive(struct tcp_endpoint *tcp, size_t *moved)
{
	uint32_t completed = collet_tcp_deliver(tcp);
	bool is_full = true;
	*moved = 0;
	while (tcp->receives.first && is_full && *moved < TCP_PROGRESS_BYTES) {
		*moved += read_some(tcp, &is_full, &completed);
		completed += collet_tcp_deliver(tcp);
	}
	return completed;
}

bool collet_tcp_is_recv_ready(struct tcp_endpoint *tcp)
{
	uint32_t completed = 0;
	bool is_full;
	assert(!tcp->receives.first);
	if (!read_header(tcp, &completed) && tcp->endpoint.status == COLLET_OK && read_some(tcp, &is_full, &completed))
		read_header(tcp, &completed);
	return tcp->has_header || tcp->endpoint.status != COLLET_OK;
}

bool collet_tcp_peek(struct tcp_endpoint *tcp, struct collet_message *message)
{
	uint32_t completed = 0;
	bool is_full = true;
	assert(!tcp->receives.first);
	while (!read_header(tcp, &completed)) {
		if (tcp->endpoint.status != COLLET_OK || !is_full)
			return false;
		read_some(tcp, &is_full, &completed);
	}
	*message = tcp->arriving;
	return true;
}
