#include "cuda/driver/handle_exchange.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/status.h"

/* What the kernel chooses: a zero and five digits. */
enum { NAME_BYTES = 6 };

collet_status collet_desk_open(struct collet_desk *desk)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t bytes = sizeof(address.sun_family);
	const int yes = 1;
	*desk = (struct collet_desk){ .socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) };
	if (desk->socket >= 0 && bind(desk->socket, (struct sockaddr *)&address, bytes) == 0 &&
		setsockopt(desk->socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0) {
		bytes = sizeof(address);
		if (getsockname(desk->socket, (struct sockaddr *)&address, &bytes) == 0 &&
			bytes == offsetof(struct sockaddr_un, sun_path) + NAME_BYTES) {
			memcpy(desk->name, address.sun_path, NAME_BYTES);
			return COLLET_OK;
		}
	}
	const int error = errno;
	collet_desk_close(desk);
	return collet_fail(COLLET_ERR_SYSTEM, "a socket for descriptors of GPU memory: %s", strerror(error));
}

void collet_desk_close(struct collet_desk *desk)
{
	if (desk->socket >= 0)
		close(desk->socket);
	*desk = (struct collet_desk){ .socket = -1 };
}

collet_status collet_desk_send(
	const struct collet_desk *desk, const char to[8], const struct collet_desk_note *note, int file)
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
	if (file < 0) {
		message.msg_control = NULL;
		message.msg_controllen = 0;
	} else {
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &file, sizeof(file));
	}
	ssize_t sent;
	do {
		sent = sendmsg(desk->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	if (sent == (ssize_t)sizeof(*note))
		return COLLET_OK;
	if (sent < 0 && errno == EAGAIN)
		return COLLET_PENDING;
	return collet_fail(COLLET_ERR_SYSTEM, "sending a descriptor of GPU memory: %s",
		sent < 0 ? strerror(errno) : "half of it has gone");
}

/* One message; -1: none is left. *fine: it is from one who may, and has what belongs to it. */
static ssize_t take_one(const struct collet_desk *desk, struct collet_desk_note *note, int *file, bool *fine)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec part = { note, sizeof(*note) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes) };
	const ssize_t got = recvmsg(desk->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return got;
	struct ucred who = { .uid = (uid_t)-1 };
	*file = -1;
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_CREDENTIALS)
			memcpy(&who, CMSG_DATA(header), sizeof(who));
		else if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
			header->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(file, CMSG_DATA(header), sizeof(*file));
	}
	*fine = got == (ssize_t)sizeof(*note) && !note->gone == (*file >= 0) && who.uid == geteuid();
	if (!*fine && *file >= 0)
		close(*file);
	return got;
}

bool collet_desk_take(const struct collet_desk *desk, struct collet_desk_note *note, int *file)
{
	bool fine = false;
	while (!fine) {
		const ssize_t got = desk->socket < 0 ? -1 : take_one(desk, note, file, &fine);
		if (got < 0 && (desk->socket < 0 || errno != EINTR))
			return false;
	}
	return true;
}
