/* Sends and receives the hellos of an shm connection setup, with their descriptors. See shm_connect.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/status.h"
#include "transport/shm/shm_endpoint.h"

collet_status collet_shm_fail_peer(const struct shm_endpoint *shm, collet_status status, const char *what)
{
	char name[160];
	return collet_fail(status, "shm: opening a connection with %s: %s",
		collet_shm_peer_name(shm, name, sizeof(name)), what);
}

collet_status collet_shm_fail_system(const struct shm_endpoint *shm, const char *what)
{
	char text[128];
	snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));
	return collet_shm_fail_peer(shm, COLLET_ERR_SYSTEM, text);
}

/* Reports an error of the socket. A peer that has closed its end is no error of this host. */
static collet_status fail_socket(const struct shm_endpoint *shm, const char *what)
{
	if (errno == EPIPE || errno == ECONNRESET)
		return collet_shm_fail_peer(shm, COLLET_ERR_PEER_LOST, "it has closed the connection");
	return collet_shm_fail_system(shm, what);
}

collet_status collet_shm_send_hello(const struct shm_endpoint *shm, const struct shm_hello *hello, const int *fds,
	uint32_t count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(SHM_HELLO_DESCRIPTORS * sizeof(int))];
	} control = { 0 };
	struct iovec part = { (void *)(uintptr_t)hello, sizeof(*hello) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, count * sizeof(int));
	}
	const ssize_t sent = sendmsg(shm->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent == (ssize_t)sizeof(*hello))
		return COLLET_OK;
	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		return COLLET_PENDING;
	if (sent < 0)
		return fail_socket(shm, "sending");
	return collet_shm_fail_peer(shm, COLLET_ERR_TRANSPORT, "the socket took only a part of a message");
}

/* Keeps the received descriptors, and closes those beyond the expected number. */
static void keep_descriptors(struct shm_endpoint *shm, struct msghdr *message)
{
	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
			if (shm->inbox_fd_count < SHM_HELLO_DESCRIPTORS)
				shm->inbox_fds[shm->inbox_fd_count++] = fd;
			else
				close(fd);
		}
	}
}

void collet_shm_close_descriptors(struct shm_endpoint *shm)
{
	while (shm->inbox_fd_count > 0) {
		const int fd = shm->inbox_fds[--shm->inbox_fd_count];
		if (fd >= 0)
			close(fd);
	}
}

collet_status collet_shm_receive_hello(struct shm_endpoint *shm)
{
	while (shm->inbox_bytes < sizeof(shm->inbox)) {
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(SHM_HELLO_DESCRIPTORS * sizeof(int))];
		} control;
		struct iovec part = { (char *)&shm->inbox + shm->inbox_bytes, sizeof(shm->inbox) - shm->inbox_bytes };
		struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
			.msg_controllen = sizeof(control.bytes) };
		const ssize_t got = recvmsg(shm->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return COLLET_PENDING;
		if (got < 0)
			return fail_socket(shm, "receiving");
		keep_descriptors(shm, &message);
		if (got == 0)
			return collet_shm_fail_peer(shm, COLLET_ERR_PEER_LOST, "it has closed the connection");
		shm->inbox_bytes += (size_t)got;
	}
	return COLLET_OK;
}

int collet_shm_next_descriptor(struct shm_endpoint *shm, uint32_t *next)
{
	if (*next >= shm->inbox_fd_count)
		return -1;
	const int fd = shm->inbox_fds[*next];
	shm->inbox_fds[(*next)++] = -1;
	return fd;
}
