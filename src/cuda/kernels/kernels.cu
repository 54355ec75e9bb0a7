/* What nvcc compiles. */
#include "cuda/kernels/launched.h"
