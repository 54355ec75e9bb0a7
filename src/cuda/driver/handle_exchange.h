/* Passes file descriptors of GPU memory between ranks of one host. Each rank receives on one Unix datagram socket. A
 * descriptor arrives before any later message from its sender on another connection, and stays queued until it is
 * received.
 *
 * Only processes of the same user are accepted, as checked by the kernel's credentials. The kernel chooses the socket's
 * abstract name, so no file is left behind. */
#ifndef COLLET_CUDA_DRIVER_HANDLE_EXCHANGE_H
#define COLLET_CUDA_DRIVER_HANDLE_EXCHANGE_H

#include <collet/collet.h>

#include <stdbool.h>
#include <stdint.h>

/* Names the allocation, as struct collet_ipc_handle does. A descriptor comes with it unless the memory was freed. */
struct collet_handle_note {
	uint64_t process, allocation;
	uint32_t freed;              /* The memory was freed; no descriptor follows. */
	uint32_t reserved0;
};

struct collet_handle_exchange {
	int socket;                  /* -1 if closed */
	char address[8];             /* where peers send to; all zeros if closed */
};

collet_status collet_handle_exchange_open(struct collet_handle_exchange *exchange);
void collet_handle_exchange_close(struct collet_handle_exchange *exchange);
/* Sends a note, with a descriptor that stays the caller's. fd is -1 if the memory was freed. COLLET_PENDING: no room
 * for now. */
collet_status collet_handle_exchange_send(
	const struct collet_handle_exchange *exchange, const char to[8], const struct collet_handle_note *note, int fd);
/* Receives the next note. The caller owns its descriptor, if it has one. Returns false if none is left. */
bool collet_handle_exchange_receive(
	const struct collet_handle_exchange *exchange, struct collet_handle_note *note, int *fd);

#endif
