/* A growing queue of bytes. Memory in front of the queue is used again before more is asked for. */
#include "bytes.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool bytes_add(struct bytes *bytes, const void *data, size_t count)
{
	if (count == 0)
		return true;
	if (count > SIZE_MAX / 4 - bytes->count)
		return false;
	if (bytes->first + bytes->count + count > bytes->capacity) {
		const size_t needed = bytes->count + count;
		if (needed > bytes->capacity / 2) {
			const size_t capacity = 2 * needed > 4096 ? 2 * needed : 4096;
			char *memory = malloc(capacity);
			if (memory == NULL)
				return false;
			if (bytes->count > 0)
				memcpy(memory, bytes_front(bytes), bytes->count);
			free(bytes->memory);
			bytes->memory = memory;
			bytes->capacity = capacity;
		} else {
			memmove(bytes->memory, bytes_front(bytes), bytes->count);
		}
		bytes->first = 0;
	}
	memcpy(bytes->memory + bytes->first + bytes->count, data, count);
	bytes->count += count;
	return true;
}

void bytes_take(struct bytes *bytes, size_t count)
{
	assert(count <= bytes->count);
	bytes->first += count;
	bytes->count -= count;
	if (bytes->count == 0)
		bytes->first = 0;
}

void bytes_deinit(struct bytes *bytes)
{
	free(bytes->memory);
	memset(bytes, 0, sizeof(*bytes));
}
