/* Reads and writes safetensors: named arrays in one file, which PyTorch, JAX and others open. Eight bytes,
 * little-endian, hold the length of the header. The header is a JSON object. It maps each name to dtype, shape and
 * position in the body, and "__metadata__" to texts by name. The body holds the arrays, dense and little-endian, one
 * after the other.
 *
 * Files written here carry a CRC-32 of all their bytes in the metadata, so that one flipped bit is found. Every
 * function that returns false has printed why. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <collet/collet.h>

enum { TENSOR_DIMENSIONS = 8 };

struct tensor {
	const char *name;
	collet_dtype dtype;
	uint32_t dimensions;                  /* 0: one element */
	uint64_t shape[TENSOR_DIMENSIONS];
	const void *data;                     /* dense, row by row */
};

/* Bytes of its elements; UINT64_MAX: more than 64 bits can say. */
uint64_t tensor_bytes(const struct tensor *tensor);

/* A line of the metadata. */
struct tensor_note {
	const char *name, *text;
};

/* Writes a file atomically: after a crash it is either whole or what it was before. PATH.partial reaches the disk
 * before it is renamed, and the rename reaches the disk before this returns. */
bool safetensors_write(const char *path, const struct tensor *tensors, uint32_t tensor_count,
	const struct tensor_note *notes, uint32_t note_count);

/* A file that has been read. Names, data and notes live until deinit. */
struct tensor_file {
	const char *path;                     /* the caller's */
	uint8_t *bytes;
	struct tensor *tensors;               /* as they lie in the file */
	uint32_t tensor_count;
	bool checked;                         /* it has a checksum (which is right); files of others have none */
	void *header;
};

/* Reads all of it, and validates everything. Arrays must lie inside the body, cover it without gap or overlap, and
 * match their shapes. A checksum, if there is one, must be right. deinit accepts a zeroed file, and the remains of a
 * failure. */
bool safetensors_read(struct tensor_file *file, const char *path);
void safetensors_deinit(struct tensor_file *file);

/* NULL: there is none of this name. */
const struct tensor *safetensors_tensor(const struct tensor_file *file, const char *name);
const char *safetensors_note(const struct tensor_file *file, const char *name);

/* ---- Between the writer and the reader ----------------------------------------------------------------------- */

/* Every file of ours begins so, behind the length; then come the checksum's digits, which count as zeros. */
#define SAFETENSORS_BEGINNING "{\"__metadata__\":{\"crc32\":\""
enum { SAFETENSORS_LENGTH_BYTES = 8, SAFETENSORS_CHECKSUM_DIGITS = 8 };
#define SAFETENSORS_CHECKSUM_AT (SAFETENSORS_LENGTH_BYTES + sizeof(SAFETENSORS_BEGINNING) - 1)

/* Types by the format's names; NULL for one that it does not have. false: there is no such type, or collet has none
 * like it. */
const char *safetensors_dtype_name(collet_dtype dtype);
bool safetensors_dtype(const char *name, collet_dtype *dtype);

#endif
