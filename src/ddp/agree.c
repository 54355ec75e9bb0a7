/* Comparing what the ranks pass to collet_ddp_create(), by small all-gathers of fixed records: every rank learns of a
 * difference and can say whose and which, so no rank is left alone in the next collective. */
#include "ddp/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* Records of u64, since they cross between ranks. */
enum { HEAD_VALID, HEAD_COUNT, HEAD_FIRST_BYTES, HEAD_BYTES, HEAD_WORDS };
enum { FORM_DTYPE, FORM_DIMENSIONS, FORM_SHAPE, FORM_WORDS = FORM_SHAPE + COLLET_DDP_DIMENSIONS };
enum { CLAIM_PARAMETER, CLAIM_FORM, CLAIM_WORDS = CLAIM_FORM + FORM_WORDS };

enum { DEFAULT_FIRST_BYTES = 1 << 20, DEFAULT_BYTES = 25 << 20 };

/* No tensor of a possible program is larger; and sums of 2^32 of them still fit 64 bits with room for padding. */
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

static collet_status check_parameter(const collet_ddp_parameter *parameter, uint32_t p)
{
	const char *wrong = NULL;
	if (!is_float(parameter->dtype)) {
		wrong = "its dtype is no float";
	} else if (parameter->dimensions > COLLET_DDP_DIMENSIONS) {
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
		return collet_fail(
			COLLET_ERR_ARGUMENT, "collet_ddp_create: parameter %u (%s): %s", p, name_of(parameter), wrong);
	return COLLET_OK;
}

static collet_status check_arguments(const collet_ddp_parameter *parameters, uint32_t parameter_count,
	const collet_ddp_options *options)
{
	if (parameter_count > 0 && !parameters)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_create: parameters is NULL");
	for (size_t i = 0; options && i < sizeof(options->reserved) / sizeof(options->reserved[0]); i++)
		if (options->reserved[i])
			return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_create: options.reserved is not zero");
	for (uint32_t p = 0; p < parameter_count; p++) {
		collet_status status = check_parameter(&parameters[p], p);
		if (status != COLLET_OK)
			return status;
	}
	return COLLET_OK;
}

static collet_status no_memory(void)
{
	return collet_fail(COLLET_ERR_MEMORY, "collet_ddp_create: no memory to compare the ranks' parameters");
}

/* Every rank's record of so many words, in rank order; *all must be freed. */
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
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
	collet_status status = gather(comm, &word, 1, &all);
	if (status != COLLET_OK)
		return status;
	if (mine != COLLET_OK)
		status = collet_fail(mine, "%s", sentence);
	for (uint32_t rank = 0; status == COLLET_OK && rank < collet_comm_size(comm); rank++)
		if (all[rank] != COLLET_OK && all[rank] < COLLET_STATUS_COUNT)
			status = collet_fail((collet_status)all[rank], "collet_ddp_create: rank %u failed with %s",
				rank, collet_status_name((collet_status)all[rank]));
	free(all);
	return status;
}

static collet_status compare_heads(const uint64_t *heads, uint32_t ranks)
{
	static const char *const words[HEAD_WORDS] = { [HEAD_COUNT] = "number of parameters",
		[HEAD_FIRST_BYTES] = "first_bucket_bytes", [HEAD_BYTES] = "bucket_bytes" };
	for (uint32_t rank = 0; rank < ranks; rank++)
		if (!heads[(size_t)rank * HEAD_WORDS + HEAD_VALID])
			return collet_fail(COLLET_ERR_ARGUMENT,
				"collet_ddp_create: rank %u refused its own arguments; see there", rank);
	for (uint32_t rank = 1; rank < ranks; rank++)
		for (uint32_t word = HEAD_COUNT; word < HEAD_WORDS; word++)
			if (heads[(size_t)rank * HEAD_WORDS + word] != heads[word])
				return collet_fail(COLLET_ERR_ARGUMENT,
					"collet_ddp_create: %s is %" PRIu64 " on rank %u and %" PRIu64 " on rank 0",
					words[word], heads[(size_t)rank * HEAD_WORDS + word], rank, heads[word]);
	return COLLET_OK;
}

static void describe(const collet_ddp_parameter *parameter, uint64_t *form)
{
	memset(form, 0, FORM_WORDS * sizeof(*form));
	form[FORM_DTYPE] = parameter->dtype;
	form[FORM_DIMENSIONS] = parameter->dimensions;
	for (uint32_t d = 0; d < parameter->dimensions; d++)
		form[FORM_SHAPE + d] = parameter->shape[d];
}

/* "f32[16,1,5,5]" */
static void form_text(const uint64_t *form, char *text, size_t capacity)
{
	const char *name =
		form[FORM_DTYPE] < COLLET_DTYPE_COUNT ? collet_dtype_name((collet_dtype)form[FORM_DTYPE]) : "?";
	size_t used = (size_t)snprintf(text, capacity, "%s[", name);
	for (uint64_t d = 0; d < form[FORM_DIMENSIONS] && d < COLLET_DDP_DIMENSIONS; d++)
		used += (size_t)snprintf(
			text + used, capacity - used, "%s%" PRIu64, d > 0 ? "," : "", form[FORM_SHAPE + d]);
	snprintf(text + used, capacity - used, "]");
}

/* claims: what each rank has for the first parameter in which it differs from rank 0. */
static collet_status compare_claims(const uint64_t *claims, uint32_t ranks, const uint64_t *root_forms,
	const collet_ddp_parameter *parameters, uint32_t parameter_count)
{
	for (uint32_t rank = 0; rank < ranks; rank++) {
		const uint64_t *claim = claims + (size_t)rank * CLAIM_WORDS;
		const uint64_t p = claim[CLAIM_PARAMETER];
		if (p >= parameter_count)
			continue;
		char theirs[256], roots[256];
		form_text(claim + CLAIM_FORM, theirs, sizeof(theirs));
		form_text(root_forms + p * FORM_WORDS, roots, sizeof(roots));
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_create: parameter %" PRIu64 " (%s) is %s on rank %u and %s on rank 0", p,
			name_of(&parameters[p]), theirs, rank, roots);
	}
	return COLLET_OK;
}

static collet_status compare_forms(collet_comm *comm, const collet_ddp_parameter *parameters, uint32_t parameter_count)
{
	const size_t words = (size_t)parameter_count * FORM_WORDS;
	uint64_t *mine = calloc(words + 1, sizeof(*mine)), *roots = calloc(words + 1, sizeof(*roots)), *claims = NULL;
	collet_status status = mine && roots ? COLLET_OK : no_memory();
	if (status == COLLET_OK) {
		for (uint32_t p = 0; p < parameter_count; p++)
			describe(&parameters[p], mine + (size_t)p * FORM_WORDS);
		status = collet_broadcast(comm, mine, roots, words, COLLET_U64, 0, NULL);
	}
	if (status == COLLET_OK) {
		uint64_t claim[CLAIM_WORDS] = { [CLAIM_PARAMETER] = UINT64_MAX };
		for (uint32_t p = 0; p < parameter_count; p++) {
			const size_t at = (size_t)p * FORM_WORDS;
			if (memcmp(mine + at, roots + at, FORM_WORDS * sizeof(*mine)) == 0)
				continue;
			claim[CLAIM_PARAMETER] = p;
			memcpy(claim + CLAIM_FORM, mine + at, FORM_WORDS * sizeof(*mine));
			break;
		}
		status = gather(comm, claim, CLAIM_WORDS, &claims);
	}
	if (status == COLLET_OK)
		status = compare_claims(claims, collet_comm_size(comm), roots, parameters, parameter_count);
	free(claims);
	free(roots);
	free(mine);
	return status;
}

collet_status collet_ddp_agree_terms(collet_comm *comm, const collet_ddp_parameter *parameters,
	uint32_t parameter_count, const collet_ddp_options *options, struct collet_ddp_terms *terms)
{
	const uint64_t first = options ? options->first_bucket_bytes : 0, later = options ? options->bucket_bytes : 0;
	*terms = (struct collet_ddp_terms){
		.first_bucket_bytes = first > 0 ? first : DEFAULT_FIRST_BYTES,
		.bucket_bytes = later > 0 ? later : DEFAULT_BYTES,
	};
	collet_status mine = check_arguments(parameters, parameter_count, options);
	const uint64_t head[HEAD_WORDS] = { [HEAD_VALID] = mine == COLLET_OK, [HEAD_COUNT] = parameter_count,
		[HEAD_FIRST_BYTES] = terms->first_bucket_bytes, [HEAD_BYTES] = terms->bucket_bytes };
	uint64_t *heads = NULL;
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
	collet_status status = gather(comm, head, HEAD_WORDS, &heads);
	if (status != COLLET_OK)
		return status;
	status = mine != COLLET_OK ? collet_fail(mine, "%s", sentence) : compare_heads(heads, collet_comm_size(comm));
	free(heads);
	return status == COLLET_OK ? compare_forms(comm, parameters, parameter_count) : status;
}
