/* Computes with arrays in host memory for strategies (backend.h has the contract). Plain loops, the same bits on
 * every rank. */
#ifndef TRAIN_ARITHMETIC_H
#define TRAIN_ARITHMETIC_H

#include <stdint.h>

#include "backend.h"

void arithmetic_add(float *to, const float *a, const float *b, double scale, uint64_t count);
/* Each array as collet_ddp_clip() adds it: eight sums side by side. */
double arithmetic_squares(const struct array *arrays, uint32_t array_count);

#endif
