/* Picks up the GPU room, if it is built: the only file that a build option decides about. */
#include "api/offload.h"

#ifdef COLLET_CUDA
const struct collet_offload *const collet_offload = &collet_cuda_offload;
#else
const struct collet_offload *const collet_offload = NULL;
#endif
