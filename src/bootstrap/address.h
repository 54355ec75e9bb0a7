/* Handles socket addresses: one struct for Unix, IPv4 and IPv6, and the functions that parse, print, listen and
 * connect. */
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

/* Makes an abstract Unix address. Its name belongs to the network namespace, not to the file system, and disappears
 * with its socket. */
void collet_address_unix(struct collet_address *address, const char *name);
/* Makes an IP address. ip has 4 or 16 bytes; port is in host byte order. Returns false for another family. */
bool collet_address_ip(
	struct collet_address *address, int family, const void *ip, uint32_t scope_id, uint16_t port);
void collet_address_set_port(struct collet_address *address, uint16_t port);
uint16_t collet_address_port(const struct collet_address *address);
bool collet_address_is_loopback(const struct collet_address *address);
/* Writes "10.0.0.1:4000", "[fe80::1%2]:4000" or "unix:NAME". Returns text. */
const char *collet_address_print(const struct collet_address *address, char text[COLLET_ADDRESS_TEXT_BYTES]);

/* Splits "HOST:PORT" or "[IPv6]:PORT". Returns false if text has neither form. */
bool collet_host_port_parse(const char *text, char *host, size_t host_bytes, uint16_t *port);
/* True for "localhost", for addresses of 127.0.0.0/8 and for "::1". Compares the text and asks no name server. */
bool collet_host_is_loopback(const char *host);
/* Resolves a host name to at most capacity addresses. */
collet_status collet_host_resolve(const char *host, uint16_t port, struct collet_address *addresses, uint32_t capacity,
	uint32_t *count);

/* All sockets of this file are non-blocking and close on exec. */

/* Listens on the address. If its port is 0, takes the first free port from port_first to port_last, or any port if
 * these are 0. Writes the port into address. Returns COLLET_ERR_BUSY if the port is in use, and
 * COLLET_ERR_UNSUPPORTED if the address is not one of this host. */
collet_status collet_socket_listen(
	struct collet_address *address, uint16_t port_first, uint16_t port_last, int *socket);
/* Starts to connect. When the socket is writable, the connection exists or has failed. Returns COLLET_PENDING if the
 * listener's queue is full: try again. Any other failure is COLLET_ERR_TRANSPORT. */
collet_status collet_socket_dial(const struct collet_address *address, int *socket);
/* Accepts one connection. Returns its socket, or -1 with errno. */
int collet_socket_accept(int listener, struct collet_address *from);
/* Reads the user of the process at the other end of a Unix socket. Returns false for other sockets. */
bool collet_socket_peer_uid(int socket, uint32_t *uid);
/* True if there is unread input, or if the other end has closed. */
bool collet_socket_has_input(int socket);
/* Sets the options for small messages and for detecting a silent host. Does nothing on a Unix socket. */
void collet_socket_tune(int socket);
/* Lets a live peer read as slowly as it likes: the kernel no longer ends the connection after 25 s without room there.
 * The owner looks for silent hosts instead. Returns false, and does nothing, for other sockets than TCP. */
bool collet_socket_tolerate_slow_peer(int socket);

#endif
