#include "data/idx.h"

#include <stdlib.h>

#include "data/packed.h"
#include "error.h"

/* Larger than any set this program trains on; keeps a mad header from asking for all memory. */
static const uint64_t largest_body = UINT64_C(1) << 31;

static bool read_header(struct packed *file, uint32_t dimensions, uint32_t *shape, uint64_t *body_bytes)
{
	uint8_t header[4 + 4 * IDX_DIMENSIONS];
	if (!packed_read(file, header, 4 + 4 * (uint64_t)dimensions, "header"))
		return false;
	if (header[0] != 0 || header[1] != 0 || header[2] != 8 || header[3] != dimensions)
		return train_fail(
			"%s: starts with %02x%02x%02x%02x, not with 000008%02x as IDX of bytes in %u dimensions does",
			file->path, header[0], header[1], header[2], header[3], dimensions, dimensions);
	*body_bytes = 1;
	for (uint32_t d = 0; d < dimensions; d++) {
		const uint8_t *at = header + 4 + 4 * d;
		shape[d] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
		if (shape[d] == 0 || shape[d] > largest_body / *body_bytes)
			return train_fail("%s: dimension %u is %u, which makes no sense", file->path, d, shape[d]);
		*body_bytes *= shape[d];
	}
	return true;
}

static bool read_open(struct packed *file, uint32_t dimensions, struct idx *idx)
{
	struct idx found = { { 0 }, NULL };
	uint64_t bytes = 0;
	if (!read_header(file, dimensions, found.shape, &bytes))
		return false;
	found.bytes = malloc((size_t)bytes);
	if (!found.bytes)
		return train_fail("%s: no memory for %llu bytes", file->path, (unsigned long long)bytes);
	if (!packed_read(file, found.bytes, bytes, "body") || !packed_end(file)) {
		free(found.bytes);
		return false;
	}
	*idx = found;
	return true;
}

bool idx_read(struct idx *idx, const char *path, uint32_t dimensions)
{
	struct packed file;
	if (!packed_open(&file, path))
		return false;
	const bool complete = read_open(&file, dimensions, idx);
	packed_close(&file);
	return complete;
}
