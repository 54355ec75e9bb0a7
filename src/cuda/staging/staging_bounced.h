/* A staging method for messages: copies a GPU's buffer to or from bounce buffers while the message travels
 * (engine/p2p/bounce_buffer.h). Between ranks of this host that have GPUs it copies from GPU to GPU, if it can
 * (cuda/peer_gpus/ipc_get.h). A call that sends and receives has cells for each buffer, unless that is short. */
#ifndef COLLET_CUDA_STAGING_STAGING_BOUNCED_H
#define COLLET_CUDA_STAGING_STAGING_BOUNCED_H

#include "cuda/staging/staging_method.h"

extern const struct collet_staging_method collet_bounced_staging;

#endif
