/* What another rank of this host has been told at its desk: descriptors of memory, and of which memory there is no
 * more. */
#ifndef COLLET_CUDA_DRIVER_EXPORTED_HANDLES_H
#define COLLET_CUDA_DRIVER_EXPORTED_HANDLES_H

#include "cuda/driver/device.h"

struct collet_exported_handles {
	uint64_t sent[COLLET_RECEIVED_HANDLES]; /* allocations whose descriptors it has been sent */
	uint32_t next_sent;
	uint64_t unsent_freed[COLLET_RECEIVED_HANDLES]; /* some that are no more, which its desk had no room to be
	                                                   told */
	uint32_t notes_sent;         /* sent so far, or tried to */
};

/* All under the engine's lock; to: the other's card. */

/* It must have the descriptor before it is told of what lies there. COLLET_PENDING: it has no room, or no desk. */
collet_status collet_exported_handles_send(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to, const struct collet_ipc_handle *handle);
/* It has lost them, or this one: they will be sent again. */
void collet_exported_handles_resend(struct collet_exported_handles *exported, uint64_t allocation);
void collet_exported_handles_resend_all(struct collet_exported_handles *exported);
/* The allocation is no more. */
void collet_exported_handles_notify_freed(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to, uint64_t allocation);
/* Of those that are no more, what was owed. */
void collet_exported_handles_flush(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to);

/* Has it been sent this one, and not lost it since? */
bool collet_exported_handles_has(const struct collet_exported_handles *exported, uint64_t allocation);

#endif
