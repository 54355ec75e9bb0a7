/* Creates and destroys a collet_ddp, and answers questions about it. agree.c compares the ranks, bucket_layout.c makes
 * the layout, training_step.c does the steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "ddp/agree.h"
#include "ddp/internal.h"

/* ---- Creation ------------------------------------------------------------------------------------------------- */

static bool copy_string(char **copy, const char *text)
{
	*copy = text ? strdup(text) : NULL;
	return *copy || !text;
}

/* Copies names and shapes: parameters first, buffers behind them. */
static bool copy_parameters(
	collet_ddp *ddp, const collet_ddp_parameter *parameters, const collet_ddp_parameter *buffers)
{
	const size_t all = (size_t)ddp->parameter_count + ddp->buffer_count;
	ddp->parameters = calloc(all + 1, sizeof(*ddp->parameters));
	ddp->shapes = calloc(all + 1, sizeof(*ddp->shapes));
	if (!ddp->parameters || !ddp->shapes)
		return false;
	for (size_t i = 0; i < all; i++) {
		const collet_ddp_parameter *from =
			i < ddp->parameter_count ? &parameters[i] : &buffers[i - ddp->parameter_count];
		char *name;
		if (!copy_string(&name, from->name))
			return false;
		if (from->dimensions > 0)
			memcpy(ddp->shapes[i], from->shape, from->dimensions * sizeof(ddp->shapes[i][0]));
		ddp->parameters[i] = *from;
		ddp->parameters[i].name = name;
		ddp->parameters[i].shape = ddp->shapes[i];
	}
	return true;
}

static bool allocate(collet_ddp *ddp)
{
	const size_t count = (size_t)ddp->parameter_count + 1;
	ddp->order = calloc(count, sizeof(*ddp->order));
	ddp->wait_requests = calloc(count, sizeof(*ddp->wait_requests));
	ddp->any_rank_used = calloc(count, sizeof(*ddp->any_rank_used));
	ddp->active = calloc(collet_comm_size(ddp->comm), sizeof(*ddp->active));
	for (uint32_t i = 0; i < ddp->buffer_count; i++)
		ddp->packed_bytes += collet_ddp_parameter_bytes(&ddp->parameters[ddp->parameter_count + i]);
	ddp->packed_buffers = malloc((size_t)ddp->packed_bytes + 1);
	return ddp->order && ddp->wait_requests && ddp->any_rank_used && ddp->active && ddp->packed_buffers;
}

/* Allocates everything local to this rank, without communication. */
static collet_status ddp_init(collet_ddp *ddp, collet_comm *comm, const collet_ddp_parameter *parameters,
	uint32_t parameter_count, const collet_ddp_options *options)
{
	ddp->comm = comm;
	ddp->options = *options;
	ddp->parameter_count = parameter_count;
	ddp->buffer_count = options->buffer_count;
	ddp->is_sync = true;
	ddp->source_rank = COLLET_DDP_NO_RANK;
	ddp->is_layout_final = options->keep_order;
	ddp->hook = ddp->is_layout_final && options->hook ? options->hook : &collet_ddp_hook_average;
	if (!copy_parameters(ddp, parameters, options->buffers) || !allocate(ddp) ||
		!copy_string(&ddp->algorithm, options->algorithm))
		return collet_fail(
			COLLET_ERR_MEMORY, "collet_ddp_create: no memory for %u parameters", parameter_count);
	memset(ddp->any_rank_used, options->unused == COLLET_DDP_ALL_USED, parameter_count);
	return collet_ddp_layout_create(ddp, NULL);
}

/* Splits one communicator per stage of the hook, and one for collectives whose order must not depend on the buckets.
 * The caller's communicator stays free. */
static collet_status split_comms(collet_ddp *ddp)
{
	const collet_ddp_options *options = &ddp->options;
	const uint32_t rank = collet_comm_rank(ddp->comm), stages = options->hook ? options->hook->stages : 1;
	collet_status status = COLLET_OK;
	if (!options->keep_order || options->has_uneven_inputs || options->unused != COLLET_DDP_ALL_USED ||
		ddp->packed_bytes > 0)
		status = collet_comm_split(ddp->comm, 0, rank, &ddp->control_comm);
	for (uint32_t stage = 0; status == COLLET_OK && stage < stages; stage++)
		status = collet_comm_split(ddp->comm, 0, rank, &ddp->stage_comms[stage]);
	return status;
}

static void ddp_free(collet_ddp *ddp)
{
	collet_ddp_layout_free(ddp);
	for (uint32_t stage = 0; stage < COLLET_DDP_STAGES_MAX; stage++)
		if (ddp->stage_comms[stage])
			collet_comm_destroy(&ddp->stage_comms[stage]);
	if (ddp->control_comm)
		collet_comm_destroy(&ddp->control_comm);
	for (size_t i = 0; ddp->parameters && i < (size_t)ddp->parameter_count + ddp->buffer_count; i++)
		free((char *)ddp->parameters[i].name);
	free(ddp->parameters);
	free(ddp->shapes);
	free(ddp->order);
	free(ddp->wait_requests);
	free(ddp->any_rank_used);
	free(ddp->active);
	free(ddp->packed_buffers);
	free(ddp->algorithm);
	free(ddp);
}

collet_status collet_ddp_broadcast_values(const collet_ddp *ddp, collet_comm *comm, uint32_t count, uint32_t from)
{
	for (uint32_t p = 0; p < count; p++) {
		const collet_ddp_parameter *parameter = &ddp->parameters[p];
		const uint64_t elements =
			collet_ddp_parameter_bytes(parameter) / collet_dtype_bytes(parameter->dtype);
		const collet_status status = collet_broadcast(
			comm, parameter->value, parameter->value, elements, parameter->dtype, from, NULL);
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
	collet_ddp_options agreed;
	collet_status status = collet_ddp_agree_options(comm, parameters, parameter_count, options, &agreed);
	if (status != COLLET_OK)
		return status;
	collet_ddp *created = calloc(1, sizeof(*created));
	if (created)
		status = ddp_init(created, comm, parameters, parameter_count, &agreed);
	else
		status = collet_fail(COLLET_ERR_MEMORY, "collet_ddp_create: no memory");
	/* A rank that failed alone must not leave the others waiting in what follows. */
	status = collet_ddp_agree_status(comm, status);
	if (status == COLLET_OK)
		status = split_comms(created);
	if (status == COLLET_OK)
		status = collet_ddp_broadcast_values(created, comm, parameter_count + created->buffer_count, 0);
	if (status != COLLET_OK) {
		if (created)
			ddp_free(created);
		return status;
	}
	*ddp = created;
	return COLLET_OK;
}

collet_status collet_ddp_destroy(collet_ddp **ddp)
{
	if (!ddp || !*ddp)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_destroy: ddp is NULL");
	const collet_status status = collet_ddp_drain(*ddp);
	ddp_free(*ddp);
	*ddp = NULL;
	return status;
}

/* ---- Queries ------------------------------------------------------------------------------------------------ */

void *collet_ddp_gradient(const collet_ddp *ddp, uint32_t parameter)
{
	return ddp && parameter < ddp->parameter_count ? collet_ddp_gradient_at(ddp, &ddp->parameter_states[parameter])
						       : NULL;
}

uint32_t collet_ddp_layout(const collet_ddp *ddp)
{
	return ddp ? ddp->layout_changes : 0;
}

bool collet_ddp_used(const collet_ddp *ddp, uint32_t parameter)
{
	return ddp && parameter < ddp->parameter_count && ddp->any_rank_used[parameter];
}

uint32_t collet_ddp_bucket_count(const collet_ddp *ddp)
{
	return ddp ? ddp->bucket_count : 0;
}

collet_status collet_ddp_bucket_get(const collet_ddp *ddp, uint32_t index, collet_ddp_bucket *bucket)
{
	if (!ddp || index >= ddp->bucket_count || !bucket)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_bucket_get: there is no bucket %u", index);
	*bucket = ddp->buckets[index].hook_args.bucket;
	return COLLET_OK;
}

collet_status collet_ddp_last_travel(const collet_ddp *ddp, uint32_t index, collet_ddp_interval *interval)
{
	if (!ddp || index >= ddp->bucket_count || !interval)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_last_travel: there is no bucket %u", index);
	if (!ddp->buckets[index].interval.ended_ns)
		return collet_fail(
			COLLET_ERR_ARGUMENT, "collet_ddp_last_travel: no bucket has been exchanged yet in this layout");
	*interval = ddp->buckets[index].interval;
	return COLLET_OK;
}

static collet_status add_traffic(collet_comm *comm, collet_ddp_traffic *traffic)
{
	collet_stat *rows = NULL;
	size_t capacity = 0, count = 0;
	if (!comm)
		return COLLET_OK;
	collet_status status;
	while ((status = collet_comm_stats(comm, rows, capacity, &count)) == COLLET_OK && count > capacity) {
		free(rows);
		capacity = count + 8;
		rows = calloc(capacity, sizeof(*rows));
		if (!rows)
			return collet_fail(COLLET_ERR_MEMORY, "collet_ddp_traffic: no memory for %zu rows", capacity);
	}
	for (size_t i = 0; status == COLLET_OK && i < count; i++) {
		if (rows[i].kind != COLLET_STAT_TRANSPORT)
			continue;
		traffic->bytes_sent += rows[i].bytes_sent;
		traffic->bytes_received += rows[i].bytes_received;
		traffic->messages_sent += rows[i].messages_sent;
	}
	free(rows);
	return status;
}

collet_status collet_ddp_traffic_get(collet_ddp *ddp, collet_ddp_traffic *traffic)
{
	if (!ddp || !traffic)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_traffic_get: ddp or traffic is NULL");
	collet_ddp_traffic sum = { .steps = ddp->step };
	collet_status status = add_traffic(ddp->control_comm, &sum);
	for (uint32_t stage = 0; status == COLLET_OK && stage < COLLET_DDP_STAGES_MAX; stage++)
		status = add_traffic(ddp->stage_comms[stage], &sum);
	if (status == COLLET_OK)
		*traffic = sum;
	return status;
}

/* ---- Over all gradients --------------------------------------------------------------------------------------- */

/* Adds up in the parameters' order, which no layout changes. */
static double norm_of(const collet_ddp *ddp)
{
	double sum = 0;
	for (uint32_t p = 0; p < ddp->parameter_count; p++) {
		const collet_ddp_parameter *parameter = &ddp->parameters[p];
		const uint64_t count = collet_ddp_parameter_bytes(parameter) / collet_dtype_bytes(parameter->dtype);
		if (count > 0)
			sum += collet_ddp_sum_of_squares(
				collet_ddp_gradient_at(ddp, &ddp->parameter_states[p]), count, parameter->dtype);
	}
	return sqrt(sum);
}

collet_status collet_ddp_clip(collet_ddp *ddp, double max_norm, double *norm)
{
	if (!ddp || !norm || !(max_norm > 0))
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_clip: ddp or norm is NULL, or max_norm (%g) is not positive", max_norm);
	if (ddp->is_in_step)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_clip: call it after collet_ddp_wait");
	*norm = norm_of(ddp);
	if (!isfinite(*norm) || *norm <= max_norm)
		return COLLET_OK;
	for (uint32_t b = 0; b < ddp->bucket_count; b++) {
		const collet_ddp_bucket *bucket = &ddp->buckets[b].hook_args.bucket;
		collet_ddp_scale(bucket->gradients, bucket->count, bucket->dtype, max_norm / *norm);
	}
	return COLLET_OK;
}
