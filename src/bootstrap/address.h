/* Addresses and sockets: one struct for Unix, IPv4 and IPv6, and the few things that are done with it. */
#ifndef COLLET_BOOTSTRAP_ADDRESS_H
#define COLLET_BOOTSTRAP_ADDRESS_H

#include <collet/collet.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

struct collet_address {
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t bytes;
};

enum { COLLET_ADDRESS_TEXT_BYTES = 128 };

/* An abstract Unix name: it belongs to the network namespace, not to the file system, and vanishes with its socket. */
void collet_address_unix(struct collet_address *address, const char *name);
/* address: 4 or 16 bytes, port in host byte order. False for another family. */
bool collet_address_ip(
	struct collet_address *address, int family, const void *ip, uint32_t scope_id, uint16_t port);
void collet_address_set_port(struct collet_address *address, uint16_t port);
uint16_t collet_address_port(const struct collet_address *address);
bool collet_address_is_loopback(const struct collet_address *address);
/* "10.0.0.1:4000", "[fe80::1%2]:4000", "unix:NAME". */
const char *collet_address_print(const struct collet_address *address, char text[COLLET_ADDRESS_TEXT_BYTES]);

/* "HOST:PORT", "[IPv6]:PORT" -> its parts. False: not such a thing. */
bool collet_host_port_parse(const char *text, char *host, size_t host_bytes, uint16_t *port);
/* "localhost", "127.0.0.0/8", "::1" as they are written; asks no name server. */
bool collet_host_is_loopback(const char *host);
/* The addresses of a host name, at most capacity. */
collet_status collet_host_resolve(const char *host, uint16_t port, struct collet_address *addresses, uint32_t capacity,
	uint32_t *count);

/* Sockets are non-blocking and closed on exec. Listening takes the first free port from port_first to port_last (0 to
 * 0: the kernel's choice; the endpoint's own port if that is not 0) and writes it back into endpoint. COLLET_ERR_BUSY:
 * taken; COLLET_ERR_UNSUPPORTED: the address is not one of this host's. */
collet_status collet_socket_listen(
	struct collet_address *address, uint16_t port_first, uint16_t port_last, int *socket);
/* Starts to connect; it is done, or has failed, when the socket is writable. COLLET_PENDING: the listener's queue is
 * full, try again. Any other failure is COLLET_ERR_TRANSPORT. */
collet_status collet_socket_dial(const struct collet_address *address, int *socket);
/* One connection, or -1 with errno. */
int collet_socket_accept(int listener, struct collet_address *from);
/* Who holds the other end of a Unix socket (its listener, or who connected)? False: it is no Unix socket. */
bool collet_socket_peer_uid(int socket, uint32_t *uid);
/* Something has come that has not been read, or the other end has closed. */
bool collet_socket_has_input(int socket);
/* For small messages, and to notice a host that has gone silent. Nothing to do on a Unix socket. */
void collet_socket_tune(int socket);

#endif
