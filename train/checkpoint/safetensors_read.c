#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "error.h"

/* No header that makes sense is longer; the format's first reader draws the line here too. */
enum { HEADER_BYTES_MAX = 100000000 };

/* While a header is read: where each array lies in the body. */
struct place {
	struct tensor tensor;
	uint64_t first, end;
};

/* ---- Bytes --------------------------------------------------------------------------------------------------- */

static bool load(const char *path, uint8_t **bytes, uint64_t *count)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat about;
	if (fd < 0 || fstat(fd, &about) != 0) {
		const int error = errno;
		if (fd >= 0)
			close(fd);
		return train_fail("%s: %s", path, strerror(error));
	}
	*count = (uint64_t)about.st_size;
	*bytes = S_ISREG(about.st_mode) ? malloc((size_t)*count + 1) : NULL;
	uint64_t have = 0;
	ssize_t got = 1;
	while (*bytes && have < *count && (got > 0 || errno == EINTR)) {
		got = read(fd, *bytes + have, (size_t)(*count - have));
		have += got > 0 ? (uint64_t)got : 0;
		if (got == 0)
			break;
	}
	const int error = errno;
	close(fd);
	if (!S_ISREG(about.st_mode))
		return train_fail("%s: is not a file", path);
	if (!*bytes)
		return train_fail("%s: no memory for its %" PRIu64 " bytes", path, *count);
	if (got < 0)
		return train_fail("%s: %s", path, strerror(error));
	return have == *count || train_fail("%s: became shorter while it was read", path);
}

/* Returns where the body begins. */
static bool find_body(const char *path, const uint8_t *bytes, uint64_t count, uint64_t *body)
{
	uint64_t length = 0;
	if (count < SAFETENSORS_LENGTH_BYTES)
		return train_fail("%s: has %" PRIu64 " bytes, which is too short for a safetensors file", path, count);
	for (int i = SAFETENSORS_LENGTH_BYTES; i-- > 0;)
		length = length << 8 | bytes[i];
	if (length > HEADER_BYTES_MAX)
		return train_fail("%s: no safetensors file: its header would have %" PRIu64 " bytes", path, length);
	if (length > count - SAFETENSORS_LENGTH_BYTES)
		return train_fail("%s: truncated: its header has %" PRIu64 " bytes, and only %" PRIu64 " are there",
			path, length, count - SAFETENSORS_LENGTH_BYTES);
	*body = SAFETENSORS_LENGTH_BYTES + length;
	return true;
}

/* ---- The header ---------------------------------------------------------------------------------------------- */

static bool whole_number(const json_t *value, uint64_t *number)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*number = (uint64_t)json_integer_value(value);
	return true;
}

static bool read_shape(const char *path, const char *name, const json_t *shape, struct tensor *tensor)
{
	if (!json_is_array(shape) || json_array_size(shape) > TENSOR_DIMENSIONS)
		return train_fail("%s: tensor %s: its shape is not a list of up to %d numbers", path, name,
			TENSOR_DIMENSIONS);
	tensor->dimensions = (uint32_t)json_array_size(shape);
	for (uint32_t d = 0; d < tensor->dimensions; d++)
		if (!whole_number(json_array_get(shape, d), &tensor->shape[d]))
			return train_fail("%s: tensor %s: dimension %u of its shape is not a whole number", path, name,
				d);
	return true;
}

static bool read_place(const char *path, const char *name, const json_t *value, uint64_t body_bytes,
	struct place *place)
{
	const char *dtype = json_string_value(json_object_get(value, "dtype"));
	const json_t *offsets = json_object_get(value, "data_offsets");
	*place = (struct place){ .tensor.name = name };
	if (!dtype || !safetensors_dtype(dtype, &place->tensor.dtype))
		return train_fail("%s: tensor %s: its dtype (%s) is none that is known here", path, name,
			dtype ? dtype : "missing");
	if (!read_shape(path, name, json_object_get(value, "shape"), &place->tensor))
		return false;
	if (json_array_size(offsets) != 2 || !whole_number(json_array_get(offsets, 0), &place->first) ||
		!whole_number(json_array_get(offsets, 1), &place->end) || place->first > place->end)
		return train_fail("%s: tensor %s: its data_offsets are not a beginning and an end", path, name);
	if (place->end > body_bytes)
		return train_fail("%s: truncated: tensor %s ends at byte %" PRIu64 " of the body, which has %" PRIu64,
			path, name, place->end, body_bytes);
	if (tensor_bytes(&place->tensor) != place->end - place->first)
		return train_fail("%s: tensor %s: has %" PRIu64 " bytes, and its shape and dtype ask for another "
				  "number", path, name, place->end - place->first);
	return true;
}

static bool read_notes(const char *path, json_t *metadata)
{
	const char *name;
	json_t *value;
	if (metadata && !json_is_object(metadata))
		return train_fail("%s: its __metadata__ is not an object", path);
	json_object_foreach(metadata, name, value)
		if (!json_is_string(value))
			return train_fail("%s: __metadata__: %s is not a text", path, name);
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return (x->end > y->end) - (x->end < y->end);
}

/* Every byte of the body belongs to one array. */
static bool check_cover(const char *path, const struct place *places, uint32_t count, uint64_t body_bytes)
{
	uint64_t covered = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (places[i].first < covered)
			return train_fail("%s: tensors %s and %s overlap at byte %" PRIu64 " of the body", path,
				places[i - 1].tensor.name, places[i].tensor.name, places[i].first);
		if (places[i].first > covered)
			return train_fail("%s: bytes %" PRIu64 " to %" PRIu64 " of the body belong to no tensor", path,
				covered, places[i].first);
		covered = places[i].end;
	}
	return covered == body_bytes ||
		train_fail("%s: %" PRIu64 " bytes at its end belong to no tensor", path, body_bytes - covered);
}

static bool read_header(struct tensor_file *file, uint64_t body, uint64_t body_bytes)
{
	json_error_t error;
	file->header = json_loadb((const char *)file->bytes + SAFETENSORS_LENGTH_BYTES,
		(size_t)(body - SAFETENSORS_LENGTH_BYTES), JSON_REJECT_DUPLICATES, &error);
	if (!file->header)
		return train_fail("%s: its header is damaged at byte %d: %s", file->path,
			SAFETENSORS_LENGTH_BYTES + error.position, error.text);
	json_t *const notes = json_object_get(file->header, "__metadata__");
	if (!json_is_object((json_t *)file->header))
		return train_fail("%s: its header is not a JSON object", file->path);
	if (!read_notes(file->path, notes))
		return false;
	const size_t most = json_object_size(file->header);
	struct place *places = calloc(most + 1, sizeof(*places));
	file->tensors = calloc(most + 1, sizeof(*file->tensors));
	bool fine = (places && file->tensors) || train_fail("%s: no memory for its header", file->path);
	const char *name;
	json_t *value;
	uint32_t count = 0;
	json_object_foreach(file->header, name, value) {
		if (!fine || value == notes)
			continue;
		fine = read_place(file->path, name, value, body_bytes, &places[count]);
		count += fine;
	}
	if (fine)
		qsort(places, count, sizeof(*places), by_place);
	fine = fine && check_cover(file->path, places, count, body_bytes);
	for (uint32_t t = 0; fine && t < count; t++) {
		file->tensors[t] = places[t].tensor;
		file->tensors[t].data = file->bytes + body + places[t].first;
	}
	file->tensor_count = fine ? count : 0;
	free(places);
	return fine;
}

/* ---- The checksum -------------------------------------------------------------------------------------------- */

static bool check_sum(struct tensor_file *file, uint64_t count)
{
	static const uint8_t zeros[SAFETENSORS_CHECKSUM_DIGITS] = { '0', '0', '0', '0', '0', '0', '0', '0' };
	static const char beginning[] = SAFETENSORS_BEGINNING;
	const size_t at = SAFETENSORS_CHECKSUM_AT, behind = at + SAFETENSORS_CHECKSUM_DIGITS;
	if (count < behind || memcmp(file->bytes + SAFETENSORS_LENGTH_BYTES, beginning, sizeof(beginning) - 1) != 0)
		return true;
	char said[SAFETENSORS_CHECKSUM_DIGITS + 1] = "", is[SAFETENSORS_CHECKSUM_DIGITS + 1];
	memcpy(said, file->bytes + at, SAFETENSORS_CHECKSUM_DIGITS);
	uLong crc = crc32_z(crc32_z(0, NULL, 0), file->bytes, at);
	crc = crc32_z(crc, zeros, sizeof(zeros));
	crc = crc32_z(crc, file->bytes + behind, (size_t)count - behind);
	snprintf(is, sizeof(is), "%08x", (unsigned)crc);
	file->checked = strcmp(said, is) == 0;
	return file->checked || train_fail("%s: damaged: its checksum is %s, and it says %s", file->path, is, said);
}

bool safetensors_read(struct tensor_file *file, const char *path)
{
	*file = (struct tensor_file){ .path = path };
	uint64_t count = 0, body = 0;
	if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
		return train_fail("%s: safetensors is little-endian, and this machine is not", path);
	return load(path, &file->bytes, &count) && find_body(path, file->bytes, count, &body) &&
		read_header(file, body, count - body) && check_sum(file, count);
}

void safetensors_deinit(struct tensor_file *file)
{
	json_decref(file->header);
	free(file->tensors);
	free(file->bytes);
	*file = (struct tensor_file){ 0 };
}

const struct tensor *safetensors_tensor(const struct tensor_file *file, const char *name)
{
	for (uint32_t t = 0; t < file->tensor_count; t++)
		if (strcmp(file->tensors[t].name, name) == 0)
			return &file->tensors[t];
	return NULL;
}

const char *safetensors_note(const struct tensor_file *file, const char *name)
{
	return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), name));
}
