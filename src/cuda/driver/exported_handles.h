/* Tracks what one peer rank of this host was sent over its handle exchange: descriptors of memory, and notes that
 * memory was freed. A peer must have a descriptor before a message refers to its memory. */
#ifndef COLLET_CUDA_DRIVER_EXPORTED_HANDLES_H
#define COLLET_CUDA_DRIVER_EXPORTED_HANDLES_H

#include "cuda/driver/device.h"

struct collet_exported_handles {
	uint64_t sent[COLLET_RECEIVED_HANDLES]; /* allocations whose descriptors were sent */
	uint32_t next_sent;
	/* Freed allocations that the peer has not been told of, because its socket was full. */
	uint64_t unsent_freed[COLLET_RECEIVED_HANDLES];
	uint32_t notes_sent;         /* sent, or tried to send */
};

/* All functions need the engine's lock. `to` is the peer that receives. */

/* Sends the descriptor of an allocation, unless the peer has it. COLLET_PENDING: the peer's socket is full, or it has
 * none. */
collet_status collet_exported_handles_send(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to, const struct collet_ipc_handle *handle);
/* Forgets that one allocation, or all, was sent. The peer lost the descriptors and gets them again. */
void collet_exported_handles_resend(struct collet_exported_handles *exported, uint64_t allocation);
void collet_exported_handles_resend_all(struct collet_exported_handles *exported);
/* Tells the peer that the allocation was freed. */
void collet_exported_handles_notify_freed(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to, uint64_t allocation);
/* Sends notes of freed memory that found no room before. */
void collet_exported_handles_flush(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to);

/* True if the peer has the descriptor and has not lost it. */
bool collet_exported_handles_has(const struct collet_exported_handles *exported, uint64_t allocation);

#endif
