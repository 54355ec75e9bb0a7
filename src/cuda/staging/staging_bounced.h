/* A message's buffers on a GPU, copied to bounce cells or from them while it travels: a carrier, the owner of
 * engine/p2p/bounce_buffer.h. Where the other rank is one of this host's with a GPU, it goes from GPU to GPU, if it can
 * (cuda/peer_gpus/ipc_get.h). Of a call that sends and receives each side has cells of its own, unless it is short. */
#ifndef COLLET_CUDA_STAGING_STAGING_BOUNCED_H
#define COLLET_CUDA_STAGING_STAGING_BOUNCED_H

#include "cuda/staging/staging_method.h"

extern const struct collet_staging_method collet_bounced_staging;

#endif
