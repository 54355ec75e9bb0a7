/* Values as the trainer's kernels keep them. */
#ifndef TESTS_TRAIN_HOST_ROUND_H
#define TESTS_TRAIN_HOST_ROUND_H

#include "cuda/cudnn/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* KERNELS_F16 or KERNELS_BF16. */
void host_round(enum kernels_type type, uint16_t *codes, const float *values, uint32_t count);
void host_widen(enum kernels_type type, float *values, const uint16_t *codes, uint32_t count);

#ifdef __cplusplus
}
#endif

#endif
