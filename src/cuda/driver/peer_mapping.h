/* Finds the address of a peer rank's buffer, in a GPU context of this process. */
#ifndef COLLET_CUDA_DRIVER_PEER_MAPPING_H
#define COLLET_CUDA_DRIVER_PEER_MAPPING_H

#include "cuda/shared_gpu/shared_gpu.h"

/* Returns the buffer's address in the copy stream's context, and the mapping to release, if it is not NULL. Returns
 * NULL if there is none: *why is a sentence, valid until the thread's next error. *has_failed: something that should
 * have worked has failed. Needs the engine's lock, with captures relaxed. */
char *collet_device_map_peer_buffer(struct collet_device *device, const struct collet_copy_stream *copy_stream,
	const struct collet_buffer_info *buffer, struct collet_ipc_mapping **mapping, const char **why,
	bool *has_failed);

#endif
