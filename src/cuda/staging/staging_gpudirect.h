/* A staging method for buffers that transports read and write on the GPU (engine/gdr.h). */
#ifndef COLLET_CUDA_STAGING_STAGING_GPUDIRECT_H
#define COLLET_CUDA_STAGING_STAGING_GPUDIRECT_H

#include "cuda/staging/staging_method.h"

extern const struct collet_staging_method collet_gpudirect_staging;

/* True if connections to all other ranks would take GPU memory, as far as peer_infos tell. */
bool collet_gpudirect_reaches_all(const struct collet_comm_state *state);

#endif
