/* Compares what the ranks pass to collet_ddp_create(), by small all-gathers of fixed records. Every rank learns of a
 * difference and can name it, so no rank is left alone in the next collective. */
#include "ddp/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <collet/ddp_hook.h>

#include "core/status.h"

/* Words of a record; all are u64, since records are sent between ranks. */
enum {
	HEAD_VALID,
	HEAD_COUNT,
	HEAD_BUFFERS,
	HEAD_FIRST_BYTES,
	HEAD_BYTES,
	HEAD_UNUSED,
	HEAD_KEEP_ORDER,
	HEAD_UNEVEN,
	HEAD_DIVIDE,
	HEAD_NUMBERS,
	HEAD_HOOK = HEAD_NUMBERS,  /* its name */
	HOOK_WORDS = 6,
	HEAD_WORDS = HEAD_HOOK + HOOK_WORDS
};
enum { HOOK_BYTES = HOOK_WORDS * sizeof(uint64_t) };
enum { META_DTYPE, META_DIMENSIONS, META_SHAPE, META_WORDS = META_SHAPE + COLLET_DDP_DIMENSIONS_MAX };
enum { DIFFERENCE_TENSOR, DIFFERENCE_META, DIFFERENCE_WORDS = DIFFERENCE_META + META_WORDS };

enum { DEFAULT_FIRST_BYTES = 1 << 20, DEFAULT_BYTES = 25 << 20 };

/* No real tensor is larger, and sums of 2^32 of them still fit 64 bits with room for padding. */
static const uint64_t largest_bytes = UINT64_C(1) << 31 << 16;

static const char *name_of(const collet_ddp_parameter *parameter)
{
	return parameter->name ? parameter->name : "unnamed";
}

uint64_t collet_ddp_parameter_bytes(const collet_ddp_parameter *parameter)
{
	uint64_t bytes = collet_dtype_bytes(parameter->dtype);
	for (uint32_t d = 0; d < parameter->dimensions; d++)
		bytes *= parameter->shape[d];
	return bytes;
}

static bool is_float(collet_dtype dtype)
{
	switch (dtype) {
	case COLLET_F16: case COLLET_BF16: case COLLET_F32: case COLLET_F64: case COLLET_F8E4M3: case COLLET_F8E5M2:
		return true;
	default:
		return false;
	}
}

/* The parameters, followed by the buffers, with the words that error texts use for them. */
struct tensors {
	const collet_ddp_parameter *parameters, *buffers;
	uint32_t parameter_count, buffer_count;
};

static const collet_ddp_parameter *tensor_at(const struct tensors *all, uint32_t i)
{
	return i < all->parameter_count ? &all->parameters[i] : &all->buffers[i - all->parameter_count];
}

static const char *kind_of(const struct tensors *all, uint64_t i)
{
	return i < all->parameter_count ? "parameter" : "buffer";
}

static uint64_t index_of(const struct tensors *all, uint64_t i)
{
	return i < all->parameter_count ? i : i - all->parameter_count;
}

static collet_status check_tensor(const struct tensors *all, uint32_t i)
{
	const collet_ddp_parameter *parameter = tensor_at(all, i);
	const char *wrong = NULL;
	if (collet_dtype_bytes(parameter->dtype) == 0) {
		wrong = "its dtype is invalid";
	} else if (i < all->parameter_count && !is_float(parameter->dtype)) {
		wrong = "its dtype is not a float";
	} else if (parameter->dimensions > COLLET_DDP_DIMENSIONS_MAX) {
		wrong = "it has more than 8 dimensions";
	} else if (parameter->dimensions > 0 && !parameter->shape) {
		wrong = "its shape is NULL";
	} else {
		uint64_t bytes = collet_dtype_bytes(parameter->dtype);
		for (uint32_t d = 0; d < parameter->dimensions && !wrong; d++) {
			if (bytes > 0 && parameter->shape[d] > largest_bytes / bytes)
				wrong = "its shape has too many elements";
			else
				bytes *= parameter->shape[d];
		}
		if (!wrong && bytes > 0 && !parameter->value)
			wrong = "its value is NULL";
	}
	if (wrong)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_create: %s %" PRIu64 " (%s): %s", kind_of(all, i),
			index_of(all, i), name_of(parameter), wrong);
	return COLLET_OK;
}

static collet_status check_options(const collet_ddp_options *options)
{
	const char *wrong = NULL;
	for (size_t i = 0; i < sizeof(options->reserved) / sizeof(options->reserved[0]); i++)
		if (options->reserved[i])
			wrong = "options.reserved is not zero";
	for (size_t i = 0; i < sizeof(options->reserved_bytes); i++)
		if (options->reserved_bytes[i])
			wrong = "options.reserved_bytes is not zero";
	if (options->buffer_count > 0 && !options->buffers)
		wrong = "options.buffers is NULL";
	if ((unsigned)options->unused > COLLET_DDP_STATIC_UNUSED)
		wrong = "options.unused is invalid";
	const collet_ddp_hook *hook = options->hook;
	if (hook && (!hook->name || !hook->start || hook->stages == 0 || hook->stages > COLLET_DDP_STAGES_MAX))
		wrong = "options.hook has no name, no start, or not 1 to 4 stages";
	return wrong ? collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_create: %s", wrong) : COLLET_OK;
}

static collet_status check_arguments(const struct tensors *all, const collet_ddp_options *options)
{
	if (all->parameter_count > 0 && !all->parameters)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_create: parameters is NULL");
	collet_status status = options ? check_options(options) : COLLET_OK;
	for (uint32_t i = 0; status == COLLET_OK && i < all->parameter_count + all->buffer_count; i++)
		status = check_tensor(all, i);
	return status;
}

static collet_status no_memory(void)
{
	return collet_fail(COLLET_ERR_MEMORY, "collet_ddp_create: no memory to compare the ranks' parameters");
}

/* Gathers every rank's record of this many words, in rank order; the caller frees *all. */
static collet_status gather(collet_comm *comm, const uint64_t *mine, uint32_t words, uint64_t **all)
{
	uint64_t *gathered = calloc((size_t)collet_comm_size(comm) * words, sizeof(*gathered));
	if (!gathered)
		return no_memory();
	collet_status status = collet_allgather(comm, mine, gathered, words, COLLET_U64, NULL);
	if (status == COLLET_OK)
		*all = gathered;
	else
		free(gathered);
	return status;
}

collet_status collet_ddp_agree_status(collet_comm *comm, collet_status mine)
{
	const uint64_t word = (uint64_t)mine;
	uint64_t *all = NULL;
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
	collet_status status = gather(comm, &word, 1, &all);
	if (status != COLLET_OK)
		return status;
	if (mine != COLLET_OK)
		status = collet_fail(mine, "%s", error_text);
	for (uint32_t rank = 0; status == COLLET_OK && rank < collet_comm_size(comm); rank++)
		if (all[rank] != COLLET_OK && all[rank] < COLLET_STATUS_COUNT)
			status = collet_fail((collet_status)all[rank], "collet_ddp_create: rank %u failed with %s",
				rank, collet_status_name((collet_status)all[rank]));
	free(all);
	return status;
}

static collet_status compare_heads(const uint64_t *heads, uint32_t ranks)
{
	static const char *const words[HEAD_NUMBERS] = {[HEAD_COUNT] = "number of parameters",
		[HEAD_BUFFERS] = "number of buffers",
		[HEAD_FIRST_BYTES] = "first_bucket_bytes",
		[HEAD_BYTES] = "bucket_bytes",
		[HEAD_UNUSED] = "options.unused",
		[HEAD_KEEP_ORDER] = "options.keep_order",
		[HEAD_UNEVEN] = "options.has_uneven_inputs",
		[HEAD_DIVIDE] = "options.divide_by_initial"};
	for (uint32_t rank = 0; rank < ranks; rank++)
		if (!heads[(size_t)rank * HEAD_WORDS + HEAD_VALID])
			return collet_fail(COLLET_ERR_ARGUMENT,
				"collet_ddp_create: the arguments of rank %u are invalid; see its error", rank);
	for (uint32_t rank = 1; rank < ranks; rank++)
		for (uint32_t word = HEAD_COUNT; word < HEAD_NUMBERS; word++)
			if (heads[(size_t)rank * HEAD_WORDS + word] != heads[word])
				return collet_fail(COLLET_ERR_ARGUMENT,
					"collet_ddp_create: %s is %" PRIu64 " on rank %u and %" PRIu64 " on rank 0",
					words[word], heads[(size_t)rank * HEAD_WORDS + word], rank, heads[word]);
	for (uint32_t rank = 1; rank < ranks; rank++) {
		const char *theirs = (const char *)&heads[(size_t)rank * HEAD_WORDS + HEAD_HOOK];
		const char *roots = (const char *)&heads[HEAD_HOOK];
		if (memcmp(theirs, roots, HOOK_BYTES) != 0)
			return collet_fail(COLLET_ERR_ARGUMENT,
				"collet_ddp_create: the hook is '%.48s' on rank %u and '%.48s' on rank 0", theirs, rank,
				roots);
	}
	return COLLET_OK;
}

static void fill_meta(const collet_ddp_parameter *parameter, uint64_t *meta)
{
	memset(meta, 0, META_WORDS * sizeof(*meta));
	meta[META_DTYPE] = parameter->dtype;
	meta[META_DIMENSIONS] = parameter->dimensions;
	for (uint32_t d = 0; d < parameter->dimensions; d++)
		meta[META_SHAPE + d] = parameter->shape[d];
}

/* Formats a record as "f32[16,1,5,5]". */
static void format_meta(const uint64_t *meta, char *text, size_t capacity)
{
	const char *name =
		meta[META_DTYPE] < COLLET_DTYPE_COUNT ? collet_dtype_name((collet_dtype)meta[META_DTYPE]) : "?";
	size_t used = (size_t)snprintf(text, capacity, "%s[", name);
	for (uint64_t d = 0; d < meta[META_DIMENSIONS] && d < COLLET_DDP_DIMENSIONS_MAX; d++)
		used += (size_t)snprintf(
			text + used, capacity - used, "%s%" PRIu64, d > 0 ? "," : "", meta[META_SHAPE + d]);
	snprintf(text + used, capacity - used, "]");
}

/* Reports differences. claims: each rank's record of the first tensor in which it differs from rank 0. */
static collet_status report_differences(
	const uint64_t *differences, uint32_t ranks, const uint64_t *root_metas, const struct tensors *all)
{
	for (uint32_t rank = 0; rank < ranks; rank++) {
		const uint64_t *difference = differences + (size_t)rank * DIFFERENCE_WORDS;
		const uint64_t i = difference[DIFFERENCE_TENSOR];
		if (i >= (uint64_t)all->parameter_count + all->buffer_count)
			continue;
		char theirs[256], roots[256];
		format_meta(difference + DIFFERENCE_META, theirs, sizeof(theirs));
		format_meta(root_metas + i * META_WORDS, roots, sizeof(roots));
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_create: %s %" PRIu64 " (%s) is %s on rank %u and %s on rank 0", kind_of(all, i),
			index_of(all, i), name_of(tensor_at(all, (uint32_t)i)), theirs, rank, roots);
	}
	return COLLET_OK;
}

static collet_status compare_tensors(collet_comm *comm, const struct tensors *all)
{
	const uint32_t count = all->parameter_count + all->buffer_count;
	const size_t words = (size_t)count * META_WORDS;
	uint64_t *mine = calloc(words + 1, sizeof(*mine)), *roots = calloc(words + 1, sizeof(*roots)),
		 *differences = NULL;
	collet_status status = mine && roots ? COLLET_OK : no_memory();
	if (status == COLLET_OK) {
		for (uint32_t i = 0; i < count; i++)
			fill_meta(tensor_at(all, i), mine + (size_t)i * META_WORDS);
		status = collet_broadcast(comm, mine, roots, words, COLLET_U64, 0, NULL);
	}
	if (status == COLLET_OK) {
		uint64_t difference[DIFFERENCE_WORDS] = { [DIFFERENCE_TENSOR] = UINT64_MAX };
		for (uint32_t i = 0; i < count; i++) {
			const size_t at = (size_t)i * META_WORDS;
			if (memcmp(mine + at, roots + at, META_WORDS * sizeof(*mine)) == 0)
				continue;
			difference[DIFFERENCE_TENSOR] = i;
			memcpy(difference + DIFFERENCE_META, mine + at, META_WORDS * sizeof(*mine));
			break;
		}
		status = gather(comm, difference, DIFFERENCE_WORDS, &differences);
	}
	if (status == COLLET_OK)
		status = report_differences(differences, collet_comm_size(comm), roots, all);
	free(differences);
	free(roots);
	free(mine);
	return status;
}

collet_status collet_ddp_agree_options(collet_comm *comm, const collet_ddp_parameter *parameters,
	uint32_t parameter_count, const collet_ddp_options *options, collet_ddp_options *agreed)
{
	*agreed = options ? *options : (collet_ddp_options){ 0 };
	if (agreed->first_bucket_bytes == 0)
		agreed->first_bucket_bytes = DEFAULT_FIRST_BYTES;
	if (agreed->bucket_bytes == 0)
		agreed->bucket_bytes = DEFAULT_BYTES;
	const struct tensors all = { parameters, agreed->buffers, parameter_count, agreed->buffer_count };
	const collet_status mine = check_arguments(&all, options);
	uint64_t head[HEAD_WORDS] = { [HEAD_VALID] = mine == COLLET_OK, [HEAD_COUNT] = parameter_count,
		[HEAD_BUFFERS] = agreed->buffer_count, [HEAD_FIRST_BYTES] = agreed->first_bucket_bytes,
		[HEAD_BYTES] = agreed->bucket_bytes, [HEAD_UNUSED] = (uint64_t)agreed->unused,
		[HEAD_KEEP_ORDER] = agreed->keep_order, [HEAD_UNEVEN] = agreed->has_uneven_inputs,
		[HEAD_DIVIDE] = agreed->divide_by_initial };
	if (mine == COLLET_OK)
		snprintf((char *)&head[HEAD_HOOK], HOOK_BYTES, "%s", agreed->hook ? agreed->hook->name : "none");
	uint64_t *heads = NULL;
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
	collet_status status = gather(comm, head, HEAD_WORDS, &heads);
	if (status != COLLET_OK)
		return status;
	status = mine != COLLET_OK ? collet_fail(mine, "%s", error_text) : compare_heads(heads, collet_comm_size(comm));
	free(heads);
	return status == COLLET_OK ? compare_tensors(comm, &all) : status;
}
