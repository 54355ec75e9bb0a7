/* Sends headers and payloads of the queued messages, gathered into one system call. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "transport/tcp/tcp_endpoint.h"

uint32_t collet_tcp_checksum(const struct collet_message *message)
{
	/* Odd multipliers spread every bit upwards. This detects accidental bytes, not an attacker. */
	uint64_t mixed = message->signature * UINT64_C(0x9e3779b97f4a7c15);
	mixed = (mixed ^ mixed >> 32 ^ message->sequence) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 32 ^ message->bytes) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(mixed >> 32);
}

struct batch {
	uint8_t copied[TCP_BATCH * sizeof(struct tcp_header) + TCP_COPIED_BYTES];  /* headers and small payloads */
	size_t copied_bytes;
	struct iovec parts[2 * TCP_BATCH];
	size_t part_count;
	size_t bytes;
};

static void add_part(struct batch *batch, void *data, size_t bytes)
{
	batch->parts[batch->part_count++] = (struct iovec){ .iov_base = data, .iov_len = bytes };
	batch->bytes += bytes;
}

/* Copies bytes behind those copied before, and extends the last part if they are adjacent. The kernel takes one part
 * faster than two. */
static void add_copy(struct batch *batch, const void *data, size_t bytes)
{
	uint8_t *place = batch->copied + batch->copied_bytes;
	assert(bytes <= sizeof(batch->copied) - batch->copied_bytes);
	memcpy(place, data, bytes);
	batch->copied_bytes += bytes;
	struct iovec *last = batch->part_count ? &batch->parts[batch->part_count - 1] : NULL;
	if (last && (uint8_t *)last->iov_base + last->iov_len == place) {
		last->iov_len += bytes;
		batch->bytes += bytes;
	} else {
		add_part(batch, place, bytes);
	}
}

/* Gathers the rest of the first send, and as many sends after it as fit. */
static void gather(const struct tcp_endpoint *tcp, struct batch *batch)
{
	uint64_t done = tcp->sent_bytes;
	const struct collet_transfer *send = tcp->sends.first;
	batch->copied_bytes = batch->part_count = batch->bytes = 0;
	for (size_t i = 0; i < TCP_BATCH && send && batch->bytes < TCP_PROGRESS_BYTES;
		i++, send = send->next, done = 0) {
		uint64_t payload_done = 0;
		if (done < sizeof(struct tcp_header)) {
			const struct tcp_header header = {
				.magic = tcp->is_burst ? TCP_BURST_MAGIC : TCP_MESSAGE_MAGIC,
				.cpu = tcp->is_local ? (uint16_t)tcp->wake->shared_cpu : 0,
				.checksum = collet_tcp_checksum(&send->message),
				.message = send->message};
			add_copy(batch, (const uint8_t *)&header + done, sizeof(header) - done);
		} else {
			payload_done = done - sizeof(struct tcp_header);
		}
		const uint64_t left = send->message.bytes - payload_done;
		/* Space for the remaining headers stays reserved. */
		const size_t reserved = batch->copied_bytes + (TCP_BATCH - 1 - i) * sizeof(struct tcp_header);
		if (left > TCP_COPIED_MAX || left > sizeof(batch->copied) - reserved)
			add_part(batch, (uint8_t *)send->data + payload_done,
				left < TCP_PROGRESS_BYTES ? left : TCP_PROGRESS_BYTES);
		else if (left)  /* data may be NULL */
			add_copy(batch, (const uint8_t *)send->data + payload_done, left);
	}
}

static ssize_t write_batch(int socket, struct batch *batch)
{
	enum { FLAGS = MSG_DONTWAIT | MSG_NOSIGNAL };
	if (batch->part_count == 1)
		return send(socket, batch->parts[0].iov_base, batch->parts[0].iov_len, FLAGS);
	const struct msghdr message = { .msg_iov = batch->parts, .msg_iovlen = batch->part_count };
	return sendmsg(socket, &message, FLAGS);
}

/* Accounts for `bytes` more sent bytes, and completes the sends that are finished. */
static uint32_t complete_sent(struct tcp_endpoint *tcp, size_t bytes)
{
	struct collet_endpoint *endpoint = &tcp->endpoint;
	uint32_t completed = 0;
	tcp->sent_bytes += bytes;
	while (tcp->sends.first) {
		const uint64_t payload = tcp->sends.first->message.bytes;
		if (tcp->sent_bytes < sizeof(struct tcp_header) ||
			tcp->sent_bytes - sizeof(struct tcp_header) < payload)
			break;
		tcp->sent_bytes -= sizeof(struct tcp_header) + payload;
		endpoint->stats.bytes_sent += payload;
		endpoint->stats.messages_sent++;
		collet_transfer_queue_complete(&tcp->sends, endpoint, COLLET_OK);
		completed++;
	}
	return completed;
}

/* Fails a broken connection after it has read what the peer sent before. A peer that has finished its calls and left
 * did deliver its last messages. */
static uint32_t fail_send(struct tcp_endpoint *tcp, int error)
{
	uint32_t completed = 0;
	size_t moved = 1;
	while (tcp->endpoint.status == COLLET_OK && tcp->receives.first && moved)
		completed += collet_tcp_receive(tcp, &moved);
	if (tcp->endpoint.status == COLLET_OK)
		completed += collet_tcp_lose_peer(tcp, "sending", error);
	return completed;
}

uint32_t collet_tcp_send(struct tcp_endpoint *tcp)
{
	uint32_t completed = 0;
	for (size_t moved = 0; tcp->sends.first && moved < TCP_PROGRESS_BYTES;) {
		struct batch batch;
		if (tcp->sent_bytes == 0)
			collet_tcp_delayed_ack_update(tcp, tcp->sends.first->message.bytes);
		gather(tcp, &batch);
		tcp->endpoint.stats.system_calls++;
		const ssize_t written = write_batch(tcp->socket, &batch);
		if (written < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
				break;
			return completed + fail_send(tcp, errno);
		}
		collet_tcp_delayed_ack_sent(tcp);
		completed += complete_sent(tcp, (size_t)written);
		moved += (size_t)written;
		if ((size_t)written < batch.bytes)  /* the socket is full, and another call would only say so */
			break;
	}
	return completed;
}
