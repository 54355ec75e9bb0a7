#include "bootstrap/framed_socket.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/status.h"

void collet_framed_socket_init(struct collet_framed_socket *connection, int socket, uint32_t frame_limit)
{
	*connection = (struct collet_framed_socket){
		.socket = socket, .frame_limit = frame_limit, .queue_limit = COLLET_FRAMED_SOCKET_QUEUE_BYTES };
}

void collet_framed_socket_deinit(struct collet_framed_socket *connection)
{
	if (connection->socket >= 0)
		close(connection->socket);
	free(connection->out);
	free(connection->in);
	collet_framed_socket_init(connection, -1, 0);
}

int collet_framed_socket_release(struct collet_framed_socket *connection)
{
	assert(!collet_framed_socket_has_queued(connection));
	int socket = connection->socket;
	connection->socket = -1;
	collet_framed_socket_deinit(connection);
	return socket;
}

static collet_status fail_broken(void)
{
	return collet_fail(COLLET_ERR_TRANSPORT, "the connection broke: %s", strerror(errno));
}

/* Makes room for more bytes at the end of the queue. Moves what is queued only if that is less than what has been sent,
 * so that a long queue costs no more for each frame than a short one. */
static collet_status reserve(struct collet_framed_socket *connection, size_t bytes)
{
	const size_t queued = collet_framed_socket_queued_bytes(connection), limit = connection->queue_limit;
	if (queued && bytes > limit - (queued < limit ? queued : limit))
		return collet_fail(COLLET_ERR_PEER_LOST,
			"it does not read what is sent to it (%zu bytes wait): is it stopped?", queued);
	if (bytes > connection->out_capacity - connection->out_end && connection->out_first >= queued) {
		if (queued)
			memcpy(connection->out, connection->out + connection->out_first, queued);
		connection->out_first = 0;
		connection->out_end = queued;
	}
	if (bytes <= connection->out_capacity - connection->out_end)
		return COLLET_OK;
	size_t capacity = connection->out_capacity ? connection->out_capacity : 2048;
	while (capacity < connection->out_end + bytes)
		capacity *= 2;
	uint8_t *out = realloc(connection->out, capacity);
	if (!out)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for %zu bytes of control messages", capacity);
	connection->out = out;
	connection->out_capacity = capacity;
	return COLLET_OK;
}

collet_status collet_framed_socket_send(
	struct collet_framed_socket *connection, const struct collet_frame *frame, const void *data)
{
	collet_status status = reserve(connection, sizeof(*frame) + frame->bytes);
	if (status)
		return status;
	memcpy(connection->out + connection->out_end, frame, sizeof(*frame));
	if (frame->bytes)
		memcpy(connection->out + connection->out_end + sizeof(*frame), data, frame->bytes);
	connection->out_end += sizeof(*frame) + frame->bytes;
	status = collet_framed_socket_flush(connection);
	return status == COLLET_PENDING ? COLLET_OK : status;
}

collet_status collet_framed_socket_flush(struct collet_framed_socket *connection)
{
	while (connection->out_first < connection->out_end) {
		ssize_t sent = send(connection->socket, connection->out + connection->out_first,
			connection->out_end - connection->out_first, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : fail_broken();
		connection->out_first += (size_t)sent;
	}
	connection->out_first = connection->out_end = 0;
	return COLLET_OK;
}

/* Reads until link->in_bytes is target. */
static collet_status read_until(struct collet_framed_socket *connection, void *start, size_t offset, size_t target)
{
	while (connection->in_bytes < target) {
		ssize_t got = recv(connection->socket, (uint8_t *)start + (connection->in_bytes - offset),
			target - connection->in_bytes, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : fail_broken();
		if (got == 0)
			return collet_fail(COLLET_ERR_TRANSPORT, "the other end closed the connection");
		connection->in_bytes += (size_t)got;
	}
	return COLLET_OK;
}

collet_status collet_framed_socket_read(struct collet_framed_socket *connection)
{
	const size_t head = sizeof(connection->frame);
	if (connection->in_bytes >= head && connection->in_bytes == head + connection->frame.bytes)
		connection->in_bytes = 0; /* the caller is done with that frame */
	collet_status status = read_until(connection, &connection->frame, 0, head);
	if (status)
		return status;
	if (connection->frame.bytes > connection->frame_limit) {
		connection->in_bytes = 0;
		return collet_fail(COLLET_ERR_TRANSPORT, "received a frame of %u bytes, but the limit is %u",
			connection->frame.bytes, connection->frame_limit);
	}
	if (connection->frame.bytes > connection->in_capacity) {
		uint8_t *in = realloc(connection->in, connection->frame.bytes);
		if (!in)
			return collet_fail(
				COLLET_ERR_MEMORY, "no memory for a frame of %u bytes", connection->frame.bytes);
		connection->in = in;
		connection->in_capacity = connection->frame.bytes;
	}
	return read_until(connection, connection->in, head, head + connection->frame.bytes);
}
