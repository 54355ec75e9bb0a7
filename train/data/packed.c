#include "data/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "error.h"

bool packed_open(struct packed *packed, const char *path)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return train_fail("%s: %s", path, strerror(errno));
	gzFile file = gzdopen(fd, "rb");
	if (!file) {
		close(fd);
		return train_fail("%s: no memory to read it", path);
	}
	*packed = (struct packed){ path, file };
	return true;
}

bool packed_read(struct packed *packed, void *buffer, uint64_t bytes, const char *what)
{
	uint8_t *at = buffer;
	while (bytes > 0) {
		const unsigned segment = bytes < 1U << 30 ? (unsigned)bytes : 1U << 30;
		const int got = gzread(packed->file, at, segment);
		if (got < 0) {
			int code;
			return train_fail(
				"%s: damaged in its %s: %s", packed->path, what, gzerror(packed->file, &code));
		}
		if (got == 0)
			return train_fail("%s: ends in its %s, %llu bytes too early", packed->path, what,
				(unsigned long long)bytes);
		at += got;
		bytes -= (unsigned)got;
	}
	return true;
}

/* One more read is also what makes zlib read and check a gzip file's checksum. */
bool packed_end(struct packed *packed)
{
	uint8_t more;
	const int got = gzread(packed->file, &more, 1);
	int code;
	if (got < 0)
		return train_fail("%s: damaged at its end: %s", packed->path, gzerror(packed->file, &code));
	if (got > 0)
		return train_fail("%s: has more bytes than it should", packed->path);
	if (gzerror(packed->file, &code) && code != Z_OK && code != Z_STREAM_END)
		return train_fail("%s: ends before its checksum", packed->path);
	return true;
}

void packed_close(struct packed *packed)
{
	gzclose_r(packed->file);  /* a reader's close has nothing to lose */
	packed->file = NULL;
}

bool packed_find(char *path, size_t capacity, const char *directory, const char *folder, const char *name,
	const char *set)
{
	static const char *const endings[] = { "", ".gz" };
	for (int inside = 0; inside < 2; inside++) {
		for (size_t e = 0; e < 2; e++) {
			const int length = snprintf(path, capacity, "%s/%s%s%s%s", directory, inside ? folder : "",
				inside ? "/" : "", name, endings[e]);
			if (length > 0 && (size_t)length < capacity && access(path, F_OK) == 0)
				return true;
		}
	}
	return train_fail("%s: neither here nor in %s/ is %s (or %s.gz); scripts/get-data %s %s fetches it, "
			  "--dataset digits needs no files",
		directory, folder, name, name, set, directory);
}
