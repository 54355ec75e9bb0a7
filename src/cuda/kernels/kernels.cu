/* The source that nvcc compiles. */
#include "cuda/kernels/entry_points.h"
