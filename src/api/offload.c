/* Selects the table of src/cuda, if that was built. No other file depends on this build option. */
#include "api/offload.h"

#ifdef COLLET_CUDA
const struct collet_offload *const collet_offload = &collet_cuda_offload;
#else
const struct collet_offload *const collet_offload = NULL;
#endif
