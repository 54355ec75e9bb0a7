#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "error.h"

/* The body begins there, so that whoever maps the file finds its arrays aligned. */
enum { BODY_ALIGNMENT = 64 };

static const struct {
	collet_dtype dtype;
	const char *name;
} dtypes[] = {
	{ COLLET_F64, "F64" }, { COLLET_F32, "F32" }, { COLLET_F16, "F16" }, { COLLET_BF16, "BF16" },
	{ COLLET_F8E4M3, "F8_E4M3" }, { COLLET_F8E5M2, "F8_E5M2" }, { COLLET_I64, "I64" }, { COLLET_U64, "U64" },
	{ COLLET_I32, "I32" }, { COLLET_U32, "U32" }, { COLLET_I16, "I16" }, { COLLET_U16, "U16" },
	{ COLLET_I8, "I8" }, { COLLET_U8, "U8" }, { COLLET_BOOL, "BOOL" },
};

const char *safetensors_dtype_name(collet_dtype dtype)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (dtypes[i].dtype == dtype)
			return dtypes[i].name;
	return NULL;
}

bool safetensors_dtype(const char *name, collet_dtype *dtype)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (strcmp(dtypes[i].name, name) != 0)
			continue;
		*dtype = dtypes[i].dtype;
		return true;
	}
	return false;
}

uint64_t tensor_bytes(const struct tensor *tensor)
{
	uint64_t bytes = collet_dtype_bytes(tensor->dtype);
	for (uint32_t d = 0; d < tensor->dimensions; d++)
		if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes))
			return UINT64_MAX;
	return bytes;
}

/* ---- The header ---------------------------------------------------------------------------------------------- */

/* Wide elements first: then each array is aligned, though nothing lies between two of them. */
static int wider(const void *a, const void *b)
{
	const struct tensor *const *x = a, *const *y = b;
	const size_t bytes[] = { collet_dtype_bytes((*x)->dtype), collet_dtype_bytes((*y)->dtype) };
	if (bytes[0] != bytes[1])
		return bytes[0] < bytes[1] ? 1 : -1;
	return (*x > *y) - (*x < *y);  /* else as the caller has them */
}

static json_t *describe(const struct tensor *tensor, uint64_t first)
{
	json_t *shape = json_array();
	for (uint32_t d = 0; d < tensor->dimensions; d++)
		json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d]));
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtype_name(tensor->dtype), "shape", shape,
		"data_offsets", (json_int_t)first, (json_int_t)(first + tensor_bytes(tensor)));
}

static json_t *describe_all(const struct tensor *const *order, uint32_t tensor_count, const struct tensor_note *notes,
	uint32_t note_count)
{
	json_t *header = json_object(), *metadata = json_object();
	bool complete = json_object_set_new(header, "__metadata__", metadata) == 0 &&
		json_object_set_new(metadata, "crc32", json_string("00000000")) == 0;
	for (uint32_t i = 0; complete && i < note_count; i++)
		complete = json_object_set_new(metadata, notes[i].name, json_string(notes[i].text)) == 0;
	uint64_t first = 0;
	for (uint32_t t = 0; complete && t < tensor_count; t++) {
		complete = json_object_set_new(header, order[t]->name, describe(order[t], first)) == 0;
		first += tensor_bytes(order[t]);
	}
	if (complete)
		return header;
	json_decref(header);
	return NULL;
}

/* The length and the header, padded with spaces as the format asks for. */
static uint8_t *make_head(const struct tensor *const *order, uint32_t tensor_count, const struct tensor_note *notes,
	uint32_t note_count, size_t *head_bytes)
{
	json_t *header = describe_all(order, tensor_count, notes, note_count);
	char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
	json_decref(header);
	const size_t used = text ? SAFETENSORS_LENGTH_BYTES + strlen(text) : 0;
	*head_bytes = (used + BODY_ALIGNMENT - 1) / BODY_ALIGNMENT * BODY_ALIGNMENT;
	uint8_t *head = text ? malloc(*head_bytes) : NULL;
	if (head) {
		memset(head, ' ', *head_bytes);
		for (size_t i = 0; i < SAFETENSORS_LENGTH_BYTES; i++)
			head[i] = (uint8_t)((*head_bytes - SAFETENSORS_LENGTH_BYTES) >> (8 * i));
		memcpy(head + SAFETENSORS_LENGTH_BYTES, text, used - SAFETENSORS_LENGTH_BYTES);
	}
	free(text);
	return head;
}

static void put_checksum(uint8_t *head, size_t head_bytes, const struct tensor *const *order, uint32_t tensor_count)
{
	uLong crc = crc32_z(crc32_z(0, NULL, 0), head, head_bytes);
	for (uint32_t t = 0; t < tensor_count; t++)
		if (tensor_bytes(order[t]) > 0)
			crc = crc32_z(crc, order[t]->data, (size_t)tensor_bytes(order[t]));
	char digits[SAFETENSORS_CHECKSUM_DIGITS + 1];
	snprintf(digits, sizeof(digits), "%08x", (unsigned)crc);
	memcpy(head + SAFETENSORS_CHECKSUM_AT, digits, SAFETENSORS_CHECKSUM_DIGITS);
}

/* ---- Onto the disk ------------------------------------------------------------------------------------------- */

static bool put(int fd, const void *bytes, uint64_t count)
{
	const uint8_t *at = bytes;
	while (count > 0) {
		const ssize_t written = write(fd, at, count < 1U << 30 ? (size_t)count : 1U << 30);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return false;
		at += written;
		count -= (uint64_t)written;
	}
	return true;
}

static bool put_all(const char *path, const uint8_t *head, size_t head_bytes, const struct tensor *const *order,
	uint32_t tensor_count)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return train_fail("%s: %s", path, strerror(errno));
	bool complete = put(fd, head, head_bytes);
	for (uint32_t t = 0; complete && t < tensor_count; t++)
		complete = put(fd, order[t]->data, tensor_bytes(order[t]));
	complete = complete && fsync(fd) == 0;
	const int error = errno;
	if (close(fd) != 0 && complete)
		return train_fail("%s: %s", path, strerror(errno));
	return complete || train_fail("%s: %s", path, strerror(error));
}

/* A name is on the disk when its folder is. */
static bool sync_folder(const char *path)
{
	char copy[PATH_MAX];
	snprintf(copy, sizeof(copy), "%s", path);
	const char *folder = dirname(copy);
	const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Some file systems cannot, and say EINVAL: there it is as good as it gets. */
	const bool synced = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
	const int error = errno;
	if (fd >= 0)
		close(fd);
	return synced || train_fail("%s: %s", folder, strerror(error));
}

static bool put_whole(const char *path, const uint8_t *head, size_t head_bytes, const struct tensor *const *order,
	uint32_t tensor_count)
{
	char partial[PATH_MAX];
	const int length = snprintf(partial, sizeof(partial), "%s.partial", path);
	if (length < 0 || (size_t)length >= sizeof(partial))
		return train_fail("%s: the name is too long", path);
	if (!put_all(partial, head, head_bytes, order, tensor_count)) {
		unlink(partial);
		return false;
	}
	if (rename(partial, path) != 0) {
		train_fail("%s: cannot be named %s: %s", partial, path, strerror(errno));
		unlink(partial);
		return false;
	}
	return sync_folder(path);
}

bool safetensors_write(const char *path, const struct tensor *tensors, uint32_t tensor_count,
	const struct tensor_note *notes, uint32_t note_count)
{
	size_t head_bytes = 0;
	uint8_t *head = NULL;
	if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
		return train_fail("%s: safetensors is little-endian, and this machine is not", path);
	const struct tensor **order = calloc((size_t)tensor_count + 1, sizeof(*order));
	if (order) {
		for (uint32_t t = 0; t < tensor_count; t++)
			order[t] = &tensors[t];
		qsort(order, tensor_count, sizeof(*order), wider);
		head = make_head(order, tensor_count, notes, note_count, &head_bytes);
	}
	bool written = head || train_fail("%s: no memory for its header", path);
	if (head) {
		put_checksum(head, head_bytes, order, tensor_count);
		written = put_whole(path, head, head_bytes, order, tensor_count);
	}
	free(head);
	free(order);
	return written;
}
