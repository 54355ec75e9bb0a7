/* IDX, the format of MNIST's files: big-endian, 00 00 08 (bytes), the number of dimensions, each dimension, the body.
 * Plain or gzip, told apart by their first bytes. */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include <stdbool.h>
#include <stdint.h>

enum { IDX_DIMENSIONS = 3 };

struct idx {
	uint32_t shape[IDX_DIMENSIONS];
	uint8_t *bytes;  /* free() */
};

/* Reads a file that must have so many dimensions, and exactly the body its header promises. False, after a line on
 * standard error that says what is wrong with it: *idx is untouched. */
bool idx_read(struct idx *idx, const char *path, uint32_t dimensions);

#endif
