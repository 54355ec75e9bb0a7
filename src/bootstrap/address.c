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

void collet_endpoint_unix(struct collet_endpoint *endpoint, const char *name)
{
	memset(endpoint, 0, sizeof(*endpoint));
	size_t length = strlen(name);
	assert(length < sizeof(endpoint->local.sun_path));
	endpoint->local.sun_family = AF_UNIX;
	memcpy(endpoint->local.sun_path + 1, name, length);  /* the first byte stays NUL: abstract */
	endpoint->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

bool collet_endpoint_ip(
	struct collet_endpoint *endpoint, int family, const void *address, uint32_t scope_id, uint16_t port)
{
	memset(endpoint, 0, sizeof(*endpoint));
	switch (family) {
	case AF_INET:
		endpoint->v4.sin_family = AF_INET;
		memcpy(&endpoint->v4.sin_addr, address, 4);
		endpoint->bytes = sizeof(endpoint->v4);
		break;
	case AF_INET6:
		endpoint->v6.sin6_family = AF_INET6;
		memcpy(&endpoint->v6.sin6_addr, address, 16);
		endpoint->v6.sin6_scope_id = scope_id;
		endpoint->bytes = sizeof(endpoint->v6);
		break;
	default:
		return false;
	}
	collet_endpoint_set_port(endpoint, port);
	return true;
}

void collet_endpoint_set_port(struct collet_endpoint *endpoint, uint16_t port)
{
	if (endpoint->any.sa_family == AF_INET)
		endpoint->v4.sin_port = htons(port);
	else if (endpoint->any.sa_family == AF_INET6)
		endpoint->v6.sin6_port = htons(port);
}

uint16_t collet_endpoint_port(const struct collet_endpoint *endpoint)
{
	if (endpoint->any.sa_family == AF_INET)
		return ntohs(endpoint->v4.sin_port);
	return endpoint->any.sa_family == AF_INET6 ? ntohs(endpoint->v6.sin6_port) : 0;
}

bool collet_endpoint_is_loopback(const struct collet_endpoint *endpoint)
{
	if (endpoint->any.sa_family == AF_INET)
		return ntohl(endpoint->v4.sin_addr.s_addr) >> 24 == 127;
	return endpoint->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&endpoint->v6.sin6_addr);
}

const char *collet_endpoint_print(const struct collet_endpoint *endpoint, char text[COLLET_ENDPOINT_TEXT])
{
	char host[INET6_ADDRSTRLEN] = "?";
	switch (endpoint->any.sa_family) {
	case AF_UNIX: {
		size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
		int length = endpoint->bytes > head ? (int)(endpoint->bytes - head) : 0;
		snprintf(text, COLLET_ENDPOINT_TEXT, "unix:%.*s", length, endpoint->local.sun_path + 1);
		break;
	}
	case AF_INET:
		inet_ntop(AF_INET, &endpoint->v4.sin_addr, host, sizeof(host));
		snprintf(text, COLLET_ENDPOINT_TEXT, "%s:%u", host, collet_endpoint_port(endpoint));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &endpoint->v6.sin6_addr, host, sizeof(host));
		if (endpoint->v6.sin6_scope_id)
			snprintf(text, COLLET_ENDPOINT_TEXT, "[%s%%%u]:%u", host, endpoint->v6.sin6_scope_id,
				collet_endpoint_port(endpoint));
		else
			snprintf(text, COLLET_ENDPOINT_TEXT, "[%s]:%u", host, collet_endpoint_port(endpoint));
		break;
	default:
		snprintf(text, COLLET_ENDPOINT_TEXT, "nowhere");
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
		return false;  /* IPv6 without brackets: where would the port start? */
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

collet_status collet_host_resolve(const char *host, uint16_t port, struct collet_endpoint *endpoints, uint32_t capacity,
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
		struct collet_endpoint *endpoint = &endpoints[n++];
		memset(endpoint, 0, sizeof(*endpoint));
		memcpy(&endpoint->any, i->ai_addr, i->ai_addrlen);
		endpoint->bytes = i->ai_addrlen;
		collet_endpoint_set_port(endpoint, port);
	}
	freeaddrinfo(found);
	*count = n;
	return n ? COLLET_OK : collet_fail(COLLET_ERR_TRANSPORT, "the host name %s has no address", host);
}

/* A listening socket, or -1 with errno. */
static int listen_at(struct collet_endpoint *endpoint)
{
	int fd = socket(endpoint->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	const bool local = endpoint->any.sa_family == AF_UNIX;
	int one = 1;
	socklen_t bytes = sizeof(endpoint->v6);
	if (!local)  /* connections of an earlier run, in TIME_WAIT, must not keep us out */
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, &endpoint->any, endpoint->bytes) < 0 || listen(fd, 4096) < 0 ||
	    (!local && getsockname(fd, &endpoint->any, &bytes) < 0)) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

collet_status collet_socket_listen(struct collet_endpoint *endpoint, uint16_t port_first, uint16_t port_last, int *out)
{
	char text[COLLET_ENDPOINT_TEXT];
	const bool ranged =
		endpoint->any.sa_family != AF_UNIX && collet_endpoint_port(endpoint) == 0 && port_first != 0;
	int fd = -1;
	/* Each port is bound and listened at before it counts as had: two sockets may be bound to one that nobody
	 * listens at. */
	for (uint32_t port = port_first; ranged && fd < 0 && port <= port_last; port++) {
		collet_endpoint_set_port(endpoint, (uint16_t)port);
		fd = listen_at(endpoint);
		if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
			break;
	}
	if (!ranged)
		fd = listen_at(endpoint);
	if (fd < 0) {
		int error = errno;
		collet_status status = error == EADDRINUSE ? COLLET_ERR_BUSY :
			error == EADDRNOTAVAIL ? COLLET_ERR_UNSUPPORTED : COLLET_ERR_SYSTEM;
		return collet_fail(
			status, "cannot listen on %s: %s", collet_endpoint_print(endpoint, text), strerror(error));
	}
	*out = fd;
	return COLLET_OK;
}

collet_status collet_socket_dial(const struct collet_endpoint *endpoint, int *out)
{
	char text[COLLET_ENDPOINT_TEXT];
	int fd = socket(endpoint->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return collet_fail(COLLET_ERR_TRANSPORT, "socket: %s", strerror(errno));
	if (connect(fd, &endpoint->any, endpoint->bytes) < 0 && errno != EINPROGRESS) {
		int error = errno;
		close(fd);
		return collet_fail(error == EAGAIN ? COLLET_PENDING : COLLET_ERR_TRANSPORT, "cannot connect to %s: %s",
			collet_endpoint_print(endpoint, text), strerror(error));
	}
	collet_socket_tune(fd);
	*out = fd;
	return COLLET_OK;
}

int collet_socket_accept(int listener, struct collet_endpoint *from)
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
	struct pollfd waiting = { .fd = socket, .events = POLLIN };
	return poll(&waiting, 1, 0) == 1;
}

void collet_socket_tune(int socket)
{
	int domain;
	socklen_t bytes = sizeof(domain);
	if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) < 0 || domain == AF_UNIX)
		return;
	/* All best effort. A silent host is given up after idle + interval * count = 25 s. */
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
