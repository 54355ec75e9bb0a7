/* A range of bytes in this process's memory. */
#ifndef COLLET_ENGINE_BYTE_RANGE_H
#define COLLET_ENGINE_BYTE_RANGE_H

#include <stdbool.h>
#include <stddef.h>

struct collet_byte_range {
	const char *first;
	size_t bytes;
};

bool collet_ranges_overlap(struct collet_byte_range a, struct collet_byte_range b);

#endif
