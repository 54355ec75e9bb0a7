/* Where descriptors of GPU memory are handed in: a socket of each rank's own, which others of its host send to. They
 * are in before whatever the sender says next by other ways, and wait there until they are asked for.
 *
 * Who may: the same user, as the kernel says. The socket has a name that the kernel has chosen, and no file. */
#ifndef COLLET_CUDA_DRIVER_HANDLE_EXCHANGE_H
#define COLLET_CUDA_DRIVER_HANDLE_EXCHANGE_H

#include <collet/collet.h>

#include <stdbool.h>
#include <stdint.h>

/* What comes with a descriptor, or with none: whose it is, as in struct collet_shared. */
struct collet_handle_note {
	uint64_t process, allocation;
	uint32_t freed;              /* it is no more; no descriptor */
	uint32_t reserved0;
};

struct collet_handle_exchange {
	int socket;                  /* -1: there is none */
	char address[8];             /* for others to send to; all zeros: none */
};

collet_status collet_handle_exchange_open(struct collet_handle_exchange *exchange);
void collet_handle_exchange_close(struct collet_handle_exchange *exchange);
/* The descriptor stays the caller's; -1: the note says that it is gone. COLLET_PENDING: there is no room, for now. */
collet_status collet_handle_exchange_send(
	const struct collet_handle_exchange *exchange, const char to[8], const struct collet_handle_note *note, int fd);
/* The next that has come; its descriptor, if it has one, is the caller's. false: none is left. */
bool collet_handle_exchange_receive(
	const struct collet_handle_exchange *exchange, struct collet_handle_note *note, int *fd);

#endif
