#include "cuda/driver/handle_exchange.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/status.h"

/* Length of an abstract name that the kernel chooses: a zero byte and five digits. */
enum { NAME_BYTES = 6 };

collet_status collet_handle_exchange_open(struct collet_handle_exchange *exchange)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t bytes = sizeof(address.sun_family);
	const int yes = 1;
	*exchange = (struct collet_handle_exchange){
		.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) };
	if (exchange->socket >= 0 && bind(exchange->socket, (struct sockaddr *)&address, bytes) == 0 &&
		setsockopt(exchange->socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0) {
		bytes = sizeof(address);
		if (getsockname(exchange->socket, (struct sockaddr *)&address, &bytes) == 0 &&
			bytes == offsetof(struct sockaddr_un, sun_path) + NAME_BYTES) {
			memcpy(exchange->address, address.sun_path, NAME_BYTES);
			return COLLET_OK;
		}
	}
	const int error = errno;
	collet_handle_exchange_close(exchange);
	return collet_fail(COLLET_ERR_SYSTEM, "a socket for descriptors of GPU memory: %s", strerror(error));
}

void collet_handle_exchange_close(struct collet_handle_exchange *exchange)
{
	if (exchange->socket >= 0)
		close(exchange->socket);
	*exchange = (struct collet_handle_exchange){ .socket = -1 };
}

collet_status collet_handle_exchange_send(
	const struct collet_handle_exchange *exchange, const char to[8], const struct collet_handle_note *note, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct iovec part = { (void *)(uintptr_t)note, sizeof(*note) };
	struct msghdr message = { .msg_name = &address,
		.msg_namelen = offsetof(struct sockaddr_un, sun_path) + NAME_BYTES, .msg_iov = &part, .msg_iovlen = 1,
		.msg_control = control.bytes, .msg_controllen = sizeof(control.bytes) };
	memcpy(address.sun_path, to, NAME_BYTES);
	if (fd < 0) {
		message.msg_control = NULL;
		message.msg_controllen = 0;
	} else {
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	ssize_t sent;
	do {
		sent = sendmsg(exchange->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	if (sent == (ssize_t)sizeof(*note))
		return COLLET_OK;
	if (sent < 0 && errno == EAGAIN)
		return COLLET_PENDING;
	return collet_fail(COLLET_ERR_SYSTEM, "sending a descriptor of GPU memory: %s",
		sent < 0 ? strerror(errno) : "the message was truncated");
}

/* Receives one message; returns -1 if none is left. *is_valid: the sender's user is right, and the descriptor matches
 * the note. */
static ssize_t receive_one(
	const struct collet_handle_exchange *exchange, struct collet_handle_note *note, int *fd, bool *is_valid)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec part = { note, sizeof(*note) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes) };
	const ssize_t got = recvmsg(exchange->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return got;
	struct ucred who = { .uid = (uid_t)-1 };
	*fd = -1;
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_CREDENTIALS)
			memcpy(&who, CMSG_DATA(header), sizeof(who));
		else if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
			header->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	}
	*is_valid = got == (ssize_t)sizeof(*note) && !note->freed == (*fd >= 0) && who.uid == geteuid();
	if (!*is_valid && *fd >= 0)
		close(*fd);
	return got;
}

bool collet_handle_exchange_receive(
	const struct collet_handle_exchange *exchange, struct collet_handle_note *note, int *fd)
{
	bool is_valid = false;
	while (!is_valid) {
		const ssize_t got = exchange->socket < 0 ? -1 : receive_one(exchange, note, fd, &is_valid);
		if (got < 0 && (exchange->socket < 0 || errno != EINTR))
			return false;
	}
	return true;
}
