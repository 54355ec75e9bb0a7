/* Gradient buckets: their layout, and their all-reduces. Creation's comparing of ranks is in agree.c. */
#include <collet/ddp.h>

#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "ddp/agree.h"

enum { GRADIENT_ALIGNMENT = 64 };

struct bucket {
	void *memory;
	uint64_t bytes;
	collet_dtype dtype;
	uint32_t first_place, parameter_count;  /* into collet_ddp.order */
	uint32_t missing;                       /* gradients not marked ready in this step */
	collet_request *request;
};

struct slot {
	uint32_t bucket;
	uint64_t offset;    /* bytes */
	bool ready;
	char *name;         /* NULL: it has none */
};

struct collet_ddp {
	collet_comm *comm;
	char *algorithm;
	struct slot *slots;      /* one a parameter */
	uint32_t *order;         /* parameters as the buckets hold them */
	uint32_t slot_count;
	struct bucket *buckets;
	uint32_t bucket_count;
	uint32_t started;        /* buckets whose all-reduce has started in this step: always the first ones */
};

/* ---- Layout ------------------------------------------------------------------------------------------------- */

static void close_bucket(struct bucket *bucket, uint32_t *bucket_count)
{
	bucket->missing = bucket->parameter_count;
	(*bucket_count)++;
}

/* From the last parameter to the first; there are at most as many buckets as parameters. */
static void lay_out(collet_ddp *ddp, const collet_ddp_parameter *parameters, const struct collet_ddp_terms *terms)
{
	for (uint32_t place = 0; place < ddp->slot_count; place++) {
		const uint32_t p = ddp->slot_count - 1 - place;
		struct bucket *bucket = &ddp->buckets[ddp->bucket_count];
		if (bucket->parameter_count > 0 && bucket->dtype != parameters[p].dtype)
			close_bucket(bucket++, &ddp->bucket_count);
		if (bucket->parameter_count == 0) {
			bucket->first_place = place;
			bucket->dtype = parameters[p].dtype;
		}
		ddp->order[place] = p;
		ddp->slots[p].bucket = ddp->bucket_count;
		ddp->slots[p].offset = bucket->bytes;
		const uint64_t bytes = collet_ddp_parameter_bytes(&parameters[p]);
		bucket->bytes += (bytes + GRADIENT_ALIGNMENT - 1) / GRADIENT_ALIGNMENT * GRADIENT_ALIGNMENT;
		bucket->parameter_count++;
		if (bucket->bytes >= (ddp->bucket_count == 0 ? terms->first_bucket_bytes : terms->bucket_bytes))
			close_bucket(bucket, &ddp->bucket_count);
	}
	if (ddp->bucket_count < ddp->slot_count && ddp->buckets[ddp->bucket_count].parameter_count > 0)
		close_bucket(&ddp->buckets[ddp->bucket_count], &ddp->bucket_count);
}

static bool copy_text(char **copy, const char *text)
{
	*copy = text ? strdup(text) : NULL;
	return *copy || !text;
}

/* Everything that is this rank's own: no communication. */
static collet_status ddp_init(collet_ddp *ddp, collet_comm *comm, const collet_ddp_parameter *parameters,
	uint32_t parameter_count, const collet_ddp_options *options, const struct collet_ddp_terms *terms)
{
	ddp->comm = comm;
	ddp->slot_count = parameter_count;
	ddp->slots = calloc((size_t)parameter_count + 1, sizeof(*ddp->slots));
	ddp->order = calloc((size_t)parameter_count + 1, sizeof(*ddp->order));
	ddp->buckets = calloc((size_t)parameter_count + 1, sizeof(*ddp->buckets));
	bool complete = ddp->slots && ddp->order && ddp->buckets &&
			copy_text(&ddp->algorithm, options ? options->algorithm : NULL);
	for (uint32_t p = 0; complete && p < parameter_count; p++)
		complete = copy_text(&ddp->slots[p].name, parameters[p].name);
	if (!complete)
		return collet_fail(
			COLLET_ERR_MEMORY, "collet_ddp_create: no memory for %u parameters", parameter_count);
	lay_out(ddp, parameters, terms);
	for (uint32_t b = 0; b < ddp->bucket_count; b++) {
		if (ddp->buckets[b].bytes == 0)
			continue;
		collet_status status = collet_mem_alloc(comm, &ddp->buckets[b].memory, (size_t)ddp->buckets[b].bytes);
		if (status != COLLET_OK)
			return status;
	}
	return COLLET_OK;
}

static void ddp_free(collet_ddp *ddp)
{
	for (uint32_t b = 0; ddp->buckets && b < ddp->bucket_count; b++)
		collet_mem_free(ddp->comm, ddp->buckets[b].memory);
	for (uint32_t p = 0; ddp->slots && p < ddp->slot_count; p++)
		free(ddp->slots[p].name);
	free(ddp->algorithm);
	free(ddp->buckets);
	free(ddp->order);
	free(ddp->slots);
	free(ddp);
}

static collet_status broadcast_values(
	collet_comm *comm, const collet_ddp_parameter *parameters, uint32_t parameter_count)
{
	for (uint32_t p = 0; p < parameter_count; p++) {
		const uint64_t count =
			collet_ddp_parameter_bytes(&parameters[p]) / collet_dtype_bytes(parameters[p].dtype);
		collet_status status = collet_broadcast(comm, parameters[p].value, parameters[p].value, count,
			parameters[p].dtype, 0, NULL);
		if (status != COLLET_OK)
			return status;
	}
	return COLLET_OK;
}

collet_status collet_ddp_create(collet_ddp **ddp, collet_comm *comm, const collet_ddp_parameter *parameters,
	uint32_t parameter_count, const collet_ddp_options *options)
{
	if (!ddp || !comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_create: ddp or comm is NULL");
	struct collet_ddp_terms terms;
	collet_status status = collet_ddp_agree_terms(comm, parameters, parameter_count, options, &terms);
	if (status != COLLET_OK)
		return status;
	collet_ddp *made = calloc(1, sizeof(*made));
	if (made)
		status = ddp_init(made, comm, parameters, parameter_count, options, &terms);
	else
		status = collet_fail(COLLET_ERR_MEMORY, "collet_ddp_create: no memory");
	/* A rank that has failed alone must not leave the others waiting in the broadcast. */
	status = collet_ddp_agree_status(comm, status);
	if (status == COLLET_OK)
		status = broadcast_values(comm, parameters, parameter_count);
	if (status != COLLET_OK) {
		if (made)
			ddp_free(made);
		return status;
	}
	*ddp = made;
	return COLLET_OK;
}

/* ---- Steps -------------------------------------------------------------------------------------------------- */

static uint64_t elements(const struct bucket *bucket)
{
	return bucket->bytes / collet_dtype_bytes(bucket->dtype);
}

static collet_status start(collet_ddp *ddp, struct bucket *bucket)
{
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &bucket->request;
	how.algorithm = ddp->algorithm;
	return collet_allreduce(
		ddp->comm, bucket->memory, bucket->memory, elements(bucket), bucket->dtype, COLLET_AVERAGE, &how);
}

/* Requests move only while their rank is inside the library: backward's calls of ready() give them the chance. */
static collet_status advance(collet_ddp *ddp)
{
	for (uint32_t b = 0; b < ddp->started; b++) {
		if (!ddp->buckets[b].request)
			continue;
		collet_status status = collet_request_test(&ddp->buckets[b].request);
		return status == COLLET_PENDING ? COLLET_OK : status;
	}
	return COLLET_OK;
}

collet_status collet_ddp_ready(collet_ddp *ddp, uint32_t parameter)
{
	if (!ddp || parameter >= ddp->slot_count)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_ready: there is no parameter %u", parameter);
	struct slot *slot = &ddp->slots[parameter];
	if (slot->ready)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_ready: parameter %u (%s) is ready twice without collet_ddp_wait", parameter,
			slot->name ? slot->name : "unnamed");
	slot->ready = true;
	ddp->buckets[slot->bucket].missing--;
	while (ddp->started < ddp->bucket_count && ddp->buckets[ddp->started].missing == 0) {
		collet_status status = start(ddp, &ddp->buckets[ddp->started]);
		if (status != COLLET_OK)
			return status;
		ddp->started++;
	}
	return advance(ddp);
}

/* Waits for all, whatever becomes of one: none of the buckets may still be read or written by the library. */
static collet_status finish(collet_ddp *ddp)
{
	collet_status first = COLLET_OK;
	for (uint32_t b = 0; b < ddp->started; b++) {
		collet_status status = collet_request_wait(&ddp->buckets[b].request);
		if (first == COLLET_OK)
			first = status;
	}
	return first;
}

collet_status collet_ddp_wait(collet_ddp *ddp)
{
	if (!ddp)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_wait: ddp is NULL");
	for (uint32_t p = 0; p < ddp->slot_count; p++)
		if (!ddp->slots[p].ready)
			return collet_fail(COLLET_ERR_ARGUMENT,
				"collet_ddp_wait: parameter %u (%s) was not marked ready", p,
				ddp->slots[p].name ? ddp->slots[p].name : "unnamed");
	collet_status status = finish(ddp);
	if (status != COLLET_OK)
		return status;
	for (uint32_t p = 0; p < ddp->slot_count; p++)
		ddp->slots[p].ready = false;
	for (uint32_t b = 0; b < ddp->bucket_count; b++)
		ddp->buckets[b].missing = ddp->buckets[b].parameter_count;
	ddp->started = 0;
	return COLLET_OK;
}

collet_status collet_ddp_destroy(collet_ddp **ddp)
{
	if (!ddp || !*ddp)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_destroy: ddp is NULL");
	collet_status status = finish(*ddp);
	ddp_free(*ddp);
	*ddp = NULL;
	return status;
}

void *collet_ddp_gradient(const collet_ddp *ddp, uint32_t parameter)
{
	if (!ddp || parameter >= ddp->slot_count)
		return NULL;
	const struct slot *slot = &ddp->slots[parameter];
	char *memory = ddp->buckets[slot->bucket].memory;
	return memory ? memory + slot->offset : NULL;
}

uint32_t collet_ddp_bucket_count(const collet_ddp *ddp)
{
	return ddp ? ddp->bucket_count : 0;
}

collet_status collet_ddp_bucket_get(const collet_ddp *ddp, uint32_t index, collet_ddp_bucket *bucket)
{
	if (!ddp || index >= ddp->bucket_count || !bucket)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_bucket_get: there is no bucket %u", index);
	const struct bucket *found = &ddp->buckets[index];
	*bucket = (collet_ddp_bucket){ .gradients = found->memory, .count = elements(found), .dtype = found->dtype,
		.parameter_count = found->parameter_count, .parameters = &ddp->order[found->first_place] };
	return COLLET_OK;
}
