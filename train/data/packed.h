/* Reads plain or gzip files, told apart by their first bytes, whose unpacked length is known. Every function that
 * returns false has printed why. */
#ifndef TRAIN_PACKED_H
#define TRAIN_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct packed {
	const char *path;  /* the caller's; for the errors */
	void *file;
};

bool packed_open(struct packed *packed, const char *path);
/* Reads exactly so many bytes; what: the part of the file, for the error. */
bool packed_read(struct packed *packed, void *buffer, uint64_t bytes, const char *what);
/* There must be nothing more, and a gzip file's checksum must be right. */
bool packed_end(struct packed *packed);
void packed_close(struct packed *packed);

/* Writes where the file is: DIRECTORY/ or DIRECTORY/FOLDER/, with or without .gz. set: its name for scripts/get-data.
 */
bool packed_find(char *path, size_t capacity, const char *directory, const char *folder, const char *name,
	const char *set);

#endif
