/* Where a buffer of another rank of this host is for a GPU's context of this one. */
#ifndef COLLET_CUDA_DRIVER_PEER_MAPPING_H
#define COLLET_CUDA_DRIVER_PEER_MAPPING_H

#include "cuda/shared_gpu/shared_gpu.h"

/* Its address there; *opened, if that is not NULL then, is in use until it is put back. NULL: it has none, and *why is
 * a sentence that stays until the thread's next error; *refused: something that should have gone has failed. Under the
 * engine's lock, with captures relaxed. */
char *collet_device_map_peer_buffer(struct collet_device *device, const struct collet_copy_stream *copy_stream,
	const struct collet_buffer_info *buffer, struct collet_ipc_mapping **mapping, const char **why,
	bool *has_failed);

#endif
