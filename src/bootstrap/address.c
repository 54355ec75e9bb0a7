#include "bootstrap/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/config.h"
#include "core/status.h"

void collet_address_unix(struct collet_address *address, const char *name)
{
	memset(address, 0, sizeof(*address));
	size_t length = strlen(name);
	assert(length < sizeof(address->local.sun_path));
	address->local.sun_family = AF_UNIX;
	memcpy(address->local.sun_path + 1, name, length);   /* the first byte stays NUL: abstract */
	address->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

bool collet_address_ip(
	struct collet_address *address, int family, const void *ip, uint32_t scope_id, uint16_t port)
{
	memset(address, 0, sizeof(*address));
	switch (family) {
	case AF_INET:
		address->v4.sin_family = AF_INET;
		memcpy(&address->v4.sin_addr, ip, 4);
		address->bytes = sizeof(address->v4);
		break;
	case AF_INET6:
		address->v6.sin6_family = AF_INET6;
		memcpy(&address->v6.sin6_addr, ip, 16);
		address->v6.sin6_scope_id = scope_id;
		address->bytes = sizeof(address->v6);
		break;
	default:
		return false;
	}
	collet_address_set_port(address, port);
	return true;
}

void collet_address_set_port(struct collet_address *address, uint16_t port)
{
	if (address->any.sa_family == AF_INET)
		address->v4.sin_port = htons(port);
	else if (address->any.sa_family == AF_INET6)
		address->v6.sin6_port = htons(port);
}

uint16_t collet_address_port(const struct collet_address *address)
{
	if (address->any.sa_family == AF_INET)
		return ntohs(address->v4.sin_port);
	return address->any.sa_family == AF_INET6 ? ntohs(address->v6.sin6_port) : 0;
}

bool collet_address_is_loopback(const struct collet_address *address)
{
	if (address->any.sa_family == AF_INET)
		return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
	return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

const char *collet_address_print(const struct collet_address *address, char text[COLLET_ADDRESS_TEXT_BYTES])
{
	char host[INET6_ADDRSTRLEN] = "?";
	switch (address->any.sa_family) {
	case AF_UNIX: {
		size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
		int length = address->bytes > head ? (int)(address->bytes - head) : 0;
		snprintf(text, COLLET_ADDRESS_TEXT_BYTES, "unix:%.*s", length, address->local.sun_path + 1);
		break;
	}
	case AF_INET:
		inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
		snprintf(text, COLLET_ADDRESS_TEXT_BYTES, "%s:%u", host, collet_address_port(address));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
		if (address->v6.sin6_scope_id)
			snprintf(text, COLLET_ADDRESS_TEXT_BYTES, "[%s%%%u]:%u", host, address->v6.sin6_scope_id,
				collet_address_port(address));
		else
			snprintf(text, COLLET_ADDRESS_TEXT_BYTES, "[%s]:%u", host, collet_address_port(address));
		break;
	default:
		snprintf(text, COLLET_ADDRESS_TEXT_BYTES, "nowhere");
	}
	return text;
}

bool collet_host_port_parse(const char *text, char *host, size_t host_bytes, uint16_t *port)
{
	const char *colon = strrchr(text, ':');
	const char *first = text, *end = colon;
	uint64_t number;
	if (!colon || !collet_parse_u64(colon + 1, UINT16_MAX, &number) || number == 0)
		return false;
	if (*text == '[') {
		if (colon == text + 1 || colon[-1] != ']')
			return false;
		first++;
		end--;
	} else if (memchr(text, ':', (size_t)(colon - text))) {
		return false;  /* IPv6 without brackets: the port would be ambiguous */
	}
	if (end <= first || (size_t)(end - first) >= host_bytes)
		return false;
	memcpy(host, first, (size_t)(end - first));
	host[end - first] = 0;
	*port = (uint16_t)number;
	return true;
}

bool collet_host_is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return strcmp(host, "localhost") == 0;
}

collet_status collet_host_resolve(const char *host, uint16_t port, struct collet_address *addresses, uint32_t capacity,
	uint32_t *count)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	int error = getaddrinfo(host, NULL, &hints, &found);
	if (error)
		return collet_fail(COLLET_ERR_TRANSPORT, "the host name %s cannot be resolved: %s", host,
			error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
	uint32_t n = 0;
	for (const struct addrinfo *i = found; i && n < capacity; i = i->ai_next) {
		if (i->ai_addrlen > sizeof(struct sockaddr_in6))
			continue;
		struct collet_address *address = &addresses[n++];
		memset(address, 0, sizeof(*address));
		memcpy(&address->any, i->ai_addr, i->ai_addrlen);
		address->bytes = i->ai_addrlen;
		collet_address_set_port(address, port);
	}
	freeaddrinfo(found);
	*count = n;
	return n ? COLLET_OK : collet_fail(COLLET_ERR_TRANSPORT, "the host name %s has no address", host);
}

/* Returns a listening socket, or -1 with errno. */
static int listen_at(struct collet_address *address)
{
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	const bool local = address->any.sa_family == AF_UNIX;
	int one = 1;
	socklen_t bytes = sizeof(address->v6);
	if (!local)  /* connections of an earlier run may still be in TIME_WAIT */
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, &address->any, address->bytes) < 0 || listen(fd, 4096) < 0 ||
	    (!local && getsockname(fd, &address->any, &bytes) < 0)) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

collet_status collet_socket_listen(struct collet_address *address, uint16_t port_first, uint16_t port_last, int *out)
{
	char text[COLLET_ADDRESS_TEXT_BYTES];
	const bool ranged =
		address->any.sa_family != AF_UNIX && collet_address_port(address) == 0 && port_first != 0;
	int fd = -1;
	/* Binding is not enough to own a port: two sockets may be bound to one port while neither listens. */
	for (uint32_t port = port_first; ranged && fd < 0 && port <= port_last; port++) {
		collet_address_set_port(address, (uint16_t)port);
		fd = listen_at(address);
		if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
			break;
	}
	if (!ranged)
		fd = listen_at(address);
	if (fd < 0) {
		int error = errno;
		collet_status status = error == EADDRINUSE ? COLLET_ERR_BUSY :
			error == EADDRNOTAVAIL ? COLLET_ERR_UNSUPPORTED : COLLET_ERR_SYSTEM;
		return collet_fail(
			status, "cannot listen on %s: %s", collet_address_print(address, text), strerror(error));
	}
	*out = fd;
	return COLLET_OK;
}

collet_status collet_socket_dial(const struct collet_address *address, int *out)
{
	char text[COLLET_ADDRESS_TEXT_BYTES];
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return collet_fail(COLLET_ERR_TRANSPORT, "socket: %s", strerror(errno));
	if (connect(fd, &address->any, address->bytes) < 0 && errno != EINPROGRESS) {
		int error = errno;
		close(fd);
		return collet_fail(error == EAGAIN ? COLLET_PENDING : COLLET_ERR_TRANSPORT, "cannot connect to %s: %s",
			collet_address_print(address, text), strerror(error));
	}
	collet_socket_tune(fd);
	*out = fd;
	return COLLET_OK;
}

int collet_socket_accept(int listener, struct collet_address *from)
{
	memset(from, 0, sizeof(*from));
	from->bytes = sizeof(struct sockaddr_un);
	int fd = accept4(listener, &from->any, &from->bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		collet_socket_tune(fd);
	return fd;
}

bool collet_socket_peer_uid(int socket, uint32_t *uid)
{
	struct ucred who;
	socklen_t bytes = sizeof(who);
	int domain;
	socklen_t domain_bytes = sizeof(domain);
	if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) < 0 || domain != AF_UNIX)
		return false;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) < 0)
		return false;
	*uid = who.uid;
	return true;
}

bool collet_socket_has_input(int socket)
{
	struct pollfd item = { .fd = socket, .events = POLLIN };
	return poll(&item, 1, 0) == 1;
}

void collet_socket_tune(int socket)
{
	int domain;
	socklen_t bytes = sizeof(domain);
	if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) < 0 || domain == AF_UNIX)
		return;
	/* Failures do not matter. A silent host counts as lost after idle + interval * count = 25 s. */
	const struct { int level, name, value;
	} options[] = {
		{IPPROTO_TCP, TCP_NODELAY, 1},
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, 10},
		{IPPROTO_TCP, TCP_KEEPINTVL, 3},
		{IPPROTO_TCP, TCP_KEEPCNT, 5},
		{IPPROTO_TCP, TCP_USER_TIMEOUT, 25000},
	};
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		setsockopt(socket, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}

bool collet_socket_tolerate_slow_peer(int socket)
{
	const int never = 0;
	return setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof(never)) == 0;
}
