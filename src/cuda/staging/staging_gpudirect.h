/* A call's buffers on a GPU that transports reach themselves: a carrier, the owner of engine/gdr.h. */
#ifndef COLLET_CUDA_STAGING_STAGING_GPUDIRECT_H
#define COLLET_CUDA_STAGING_STAGING_GPUDIRECT_H

#include "cuda/staging/staging_method.h"

extern const struct collet_staging_method collet_gpudirect_staging;

/* Would the connections to all other ranks of the group take GPU memory, as far as their cards tell? */
bool collet_gpudirect_reaches_all(const struct collet_comm_state *state);

#endif
