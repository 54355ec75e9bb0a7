#include "idx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "error.h"

/* Larger than any set this program trains on; keeps a mad header from asking for all memory. */
static const uint64_t largest_body = UINT64_C(1) << 31;

/* Reads exactly so many bytes; what: for the error. */
static bool read_exactly(gzFile file, const char *path, void *buffer, uint64_t bytes, const char *what)
{
	uint8_t *at = buffer;
	while (bytes > 0) {
		const unsigned piece = bytes < 1U << 30 ? (unsigned)bytes : 1U << 30;
		const int got = gzread(file, at, piece);
		if (got < 0) {
			int code;
			return train_fail("%s: damaged in its %s: %s", path, what, gzerror(file, &code));
		}
		if (got == 0)
			return train_fail(
				"%s: ends in its %s, %llu bytes too early", path, what, (unsigned long long)bytes);
		at += got;
		bytes -= (unsigned)got;
	}
	return true;
}

static bool read_header(gzFile file, const char *path, uint32_t dimensions, uint32_t *shape, uint64_t *body_bytes)
{
	uint8_t header[4 + 4 * IDX_DIMENSIONS];
	if (!read_exactly(file, path, header, 4 + 4 * (uint64_t)dimensions, "header"))
		return false;
	if (header[0] != 0 || header[1] != 0 || header[2] != 8 || header[3] != dimensions)
		return train_fail(
			"%s: starts with %02x%02x%02x%02x, not with 000008%02x as IDX of bytes in %u dimensions does",
			path, header[0], header[1], header[2], header[3], dimensions, dimensions);
	*body_bytes = 1;
	for (uint32_t d = 0; d < dimensions; d++) {
		const uint8_t *at = header + 4 + 4 * d;
		shape[d] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
		if (shape[d] == 0 || shape[d] > largest_body / *body_bytes)
			return train_fail("%s: dimension %u is %u, which makes no sense", path, d, shape[d]);
		*body_bytes *= shape[d];
	}
	return true;
}

static bool read_open(gzFile file, const char *path, uint32_t dimensions, struct idx *idx)
{
	struct idx found = { { 0 }, NULL };
	uint64_t bytes = 0;
	if (!read_header(file, path, dimensions, found.shape, &bytes))
		return false;
	found.bytes = malloc((size_t)bytes);
	if (!found.bytes)
		return train_fail("%s: no memory for %llu bytes", path, (unsigned long long)bytes);
	bool complete = read_exactly(file, path, found.bytes, bytes, "body");
	if (complete) {
		/* Also what makes zlib read and check a gzip file's checksum. */
		uint8_t more;
		const int got = gzread(file, &more, 1);
		int code;
		if (got < 0)
			complete = train_fail("%s: damaged at its end: %s", path, gzerror(file, &code));
		else if (got > 0)
			complete = train_fail("%s: has more bytes than its header promises", path);
		else if (gzerror(file, &code) && code != Z_OK && code != Z_STREAM_END)
			complete = train_fail("%s: ends before its checksum", path);
	}
	if (!complete) {
		free(found.bytes);
		return false;
	}
	*idx = found;
	return true;
}

bool idx_read(struct idx *idx, const char *path, uint32_t dimensions)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return train_fail("%s: %s", path, strerror(errno));
	gzFile file = gzdopen(fd, "rb");
	if (!file) {
		close(fd);
		return train_fail("%s: no memory to read it", path);
	}
	const bool complete = read_open(file, path, dimensions, idx);
	gzclose_r(file);  /* a reader's close has nothing to lose */
	return complete;
}
