#include "bootstrap/framed_socket.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/status.h"

void collet_link_init(struct collet_link *link, int socket, uint32_t frame_limit)
{
	*link = (struct collet_link){ .socket = socket, .frame_limit = frame_limit };
}

void collet_link_deinit(struct collet_link *link)
{
	if (link->socket >= 0)
		close(link->socket);
	free(link->out);
	free(link->in);
	collet_link_init(link, -1, 0);
}

int collet_link_release(struct collet_link *link)
{
	assert(!collet_link_has_queued(link));
	int socket = link->socket;
	link->socket = -1;
	collet_link_deinit(link);
	return socket;
}

static collet_status fail_broken(void)
{
	return collet_fail(COLLET_ERR_TRANSPORT, "the connection broke: %s", strerror(errno));
}

/* Makes room for more bytes at the end of the queue. */
static collet_status reserve(struct collet_link *link, size_t bytes)
{
	if (link->out_first) {
		memmove(link->out, link->out + link->out_first, link->out_end - link->out_first);
		link->out_end -= link->out_first;
		link->out_first = 0;
	}
	if (bytes <= link->out_capacity - link->out_end)
		return COLLET_OK;
	if (link->out_end &&
		bytes > COLLET_LINK_QUEUE_BYTES -
				(link->out_end < COLLET_LINK_QUEUE_BYTES ? link->out_end : COLLET_LINK_QUEUE_BYTES))
		return collet_fail(COLLET_ERR_PEER_LOST,
			"it does not read what is sent to it (%zu bytes wait): is it stopped?", link->out_end);
	size_t capacity = link->out_capacity ? link->out_capacity : 2048;
	while (capacity < link->out_end + bytes)
		capacity *= 2;
	uint8_t *out = realloc(link->out, capacity);
	if (!out)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for %zu bytes of control messages", capacity);
	link->out = out;
	link->out_capacity = capacity;
	return COLLET_OK;
}

collet_status collet_link_send(struct collet_link *link, const struct collet_frame *frame, const void *data)
{
	collet_status status = reserve(link, sizeof(*frame) + frame->bytes);
	if (status)
		return status;
	memcpy(link->out + link->out_end, frame, sizeof(*frame));
	if (frame->bytes)
		memcpy(link->out + link->out_end + sizeof(*frame), data, frame->bytes);
	link->out_end += sizeof(*frame) + frame->bytes;
	status = collet_link_flush(link);
	return status == COLLET_PENDING ? COLLET_OK : status;
}

collet_status collet_link_flush(struct collet_link *link)
{
	while (link->out_first < link->out_end) {
		ssize_t sent =
			send(link->socket, link->out + link->out_first, link->out_end - link->out_first, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : fail_broken();
		link->out_first += (size_t)sent;
	}
	link->out_first = link->out_end = 0;
	return COLLET_OK;
}

/* Reads until link->in_bytes is target. */
static collet_status read_until(struct collet_link *link, void *start, size_t offset, size_t target)
{
	while (link->in_bytes < target) {
		ssize_t got =
			recv(link->socket, (uint8_t *)start + (link->in_bytes - offset), target - link->in_bytes, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : fail_broken();
		if (got == 0)
			return collet_fail(COLLET_ERR_TRANSPORT, "the other end closed the connection");
		link->in_bytes += (size_t)got;
	}
	return COLLET_OK;
}

collet_status collet_link_read(struct collet_link *link)
{
	const size_t head = sizeof(link->frame);
	if (link->in_bytes >= head && link->in_bytes == head + link->frame.bytes)
		link->in_bytes = 0;  /* the caller is done with that frame */
	collet_status status = read_until(link, &link->frame, 0, head);
	if (status)
		return status;
	if (link->frame.bytes > link->frame_limit) {
		link->in_bytes = 0;
		return collet_fail(COLLET_ERR_TRANSPORT, "received a frame of %u bytes, but the limit is %u",
			link->frame.bytes, link->frame_limit);
	}
	if (link->frame.bytes > link->in_capacity) {
		uint8_t *in = realloc(link->in, link->frame.bytes);
		if (!in)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a frame of %u bytes", link->frame.bytes);
		link->in = in;
		link->in_capacity = link->frame.bytes;
	}
	return read_until(link, link->in, head, head + link->frame.bytes);
}
