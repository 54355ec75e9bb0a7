/* A growing queue of bytes: added at the end, taken from the front. */
#ifndef COLLET_LAUNCH_BYTES_H
#define COLLET_LAUNCH_BYTES_H

#include <stdbool.h>
#include <stddef.h>

struct bytes {
	char *memory;
	size_t first; /* where the queue starts in memory */
	size_t count;
	size_t capacity;
};

/* False: out of memory, and nothing was added. */
bool bytes_add(struct bytes *bytes, const void *data, size_t count);
void bytes_take(struct bytes *bytes, size_t count);
void bytes_deinit(struct bytes *bytes);

static inline const char *bytes_front(const struct bytes *bytes)
{
	return bytes->memory + bytes->first;
}

#endif
