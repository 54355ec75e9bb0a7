/* Steps: tracks which gradients are complete, and does the parts of a synchronised step besides the buckets. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "ddp/agree.h"
#include "ddp/internal.h"

static const char *name_of(const collet_ddp *ddp, uint32_t p)
{
	return ddp->parameters[p].name ? ddp->parameters[p].name : "unnamed";
}

/* ---- Marking -------------------------------------------------------------------------------------------------- */

static void mark(collet_ddp *ddp, uint32_t p)
{
	ddp->parameter_states[p].is_ready = true;
	ddp->buckets[ddp->parameter_states[p].bucket].unready_count--;
}

static void zero_gradient(const collet_ddp *ddp, uint32_t p)
{
	const uint64_t bytes = collet_ddp_parameter_bytes(&ddp->parameters[p]);
	if (bytes > 0)
		memset(collet_ddp_gradient_at(ddp, &ddp->parameter_states[p]), 0, bytes);
}

static void zero_all(const collet_ddp *ddp)
{
	for (uint32_t b = 0; b < ddp->bucket_count; b++)
		if (ddp->buckets[b].bytes > 0)
			memset(ddp->buckets[b].memory, 0, ddp->buckets[b].bytes);
}

/* Begins a step, at its first call. Parameters that this rank never uses count as ready. */
static void begin_step(collet_ddp *ddp)
{
	if (ddp->is_in_step)
		return;
	ddp->is_in_step = true;
	for (uint32_t p = 0; p < ddp->parameter_count; p++) {
		if (!ddp->parameter_states[p].is_never_used)
			continue;
		if (ddp->is_sync)
			zero_gradient(ddp, p);
		mark(ddp, p);
	}
}

/* Begins a synchronised step, at its first call: starts the exchange of which ranks have input. */
static collet_status begin_sync(collet_ddp *ddp, bool active)
{
	if (ddp->has_sync_begun)
		return COLLET_OK;
	ddp->has_sync_begun = true;
	if (!ddp->options.has_uneven_inputs)
		return COLLET_OK;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &ddp->active_request;
	ddp->own_active = active;
	return collet_allgather(ddp->control_comm, &ddp->own_active, ddp->active, 1, COLLET_U8, &how);
}

collet_status collet_ddp_ready(collet_ddp *ddp, uint32_t parameter)
{
	if (!ddp || parameter >= ddp->parameter_count)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_ready: there is no parameter %u", parameter);
	struct parameter_state *parameter_state = &ddp->parameter_states[parameter];
	if (parameter_state->is_never_used)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_ready: parameter %u (%s) was not used in the first step, "
			"and options.unused says that it never is",
			parameter, name_of(ddp, parameter));
	if (parameter_state->is_ready)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_ready: parameter %u (%s) is ready twice without collet_ddp_wait", parameter,
			name_of(ddp, parameter));
	begin_step(ddp);
	mark(ddp, parameter);
	parameter_state->is_used = true;
	if (!ddp->is_sync)
		return COLLET_OK;
	if (!ddp->is_layout_final)
		ddp->order[ddp->order_count++] = parameter;
	const collet_status status = begin_sync(ddp, true);
	return status == COLLET_OK ? collet_ddp_progress(ddp) : status;
}

/* ---- The end of a step ---------------------------------------------------------------------------------------- */

static collet_status check_marks(const collet_ddp *ddp)
{
	if (ddp->options.unused != COLLET_DDP_ALL_USED)
		return COLLET_OK;
	for (uint32_t p = 0; p < ddp->parameter_count; p++)
		if (!ddp->parameter_states[p].is_ready)
			return collet_fail(COLLET_ERR_ARGUMENT,
				"collet_ddp_wait: parameter %u (%s) was not marked ready (options.unused allows that)",
				p, name_of(ddp, p));
	return COLLET_OK;
}

static void reset_marks(collet_ddp *ddp)
{
	for (uint32_t p = 0; p < ddp->parameter_count; p++)
		ddp->parameter_states[p].is_ready = false;
	for (uint32_t b = 0; b < ddp->bucket_count; b++) {
		ddp->buckets[b].unready_count = ddp->buckets[b].slice_count;
		ddp->buckets[b].next_stage = 0;
		ddp->buckets[b].is_done = false;
	}
	memset(ddp->stage_next_bucket, 0, sizeof(ddp->stage_next_bucket));
	ddp->is_in_step = ddp->has_sync_begun = false;
	ddp->started_count = 0;
}

/* Marks the remaining parameters, whose gradients count as zero. Gradients accumulated without sync stay. */
static void mark_remaining(collet_ddp *ddp)
{
	for (uint32_t p = 0; p < ddp->parameter_count; p++) {
		if (ddp->parameter_states[p].is_ready)
			continue;
		if (!ddp->parameter_states[p].is_used)
			zero_gradient(ddp, p);
		mark(ddp, p);
	}
}

/* Returns true if ranks must exchange which parameters are used. They need not once the set is final. */
static bool needs_used_exchange(const collet_ddp *ddp)
{
	return ddp->options.unused == COLLET_DDP_FIND_UNUSED ||
		(ddp->options.unused == COLLET_DDP_STATIC_UNUSED && ddp->step == 0);
}

static collet_status start_used_exchange(collet_ddp *ddp)
{
	if (!needs_used_exchange(ddp))
		return COLLET_OK;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &ddp->used_request;
	for (uint32_t p = 0; p < ddp->parameter_count; p++)
		ddp->any_rank_used[p] = ddp->parameter_states[p].is_used;
	return collet_allreduce(ddp->control_comm, ddp->any_rank_used, ddp->any_rank_used, ddp->parameter_count,
		COLLET_U8, COLLET_MAX, &how);
}

/* Waits for the number of ranks with input, and the lowest of them. */
static collet_status wait_active_ranks(collet_ddp *ddp, uint32_t *active)
{
	const uint32_t size = collet_comm_size(ddp->comm);
	*active = size;
	ddp->source_rank = 0;
	if (!ddp->options.has_uneven_inputs)
		return COLLET_OK;
	const collet_status status = ddp->active_request ? collet_request_wait(&ddp->active_request) : COLLET_OK;
	if (status != COLLET_OK)
		return status;
	*active = 0;
	ddp->source_rank = COLLET_DDP_NO_RANK;
	for (uint32_t rank = size; rank-- > 0;) {
		if (!ddp->active[rank])
			continue;
		ddp->source_rank = rank;
		(*active)++;
	}
	return COLLET_OK;
}

/* Corrects the averages, which are over all ranks: a rank without input added zeros. */
static void divide_by_active(const collet_ddp *ddp, uint32_t active)
{
	const uint32_t size = collet_comm_size(ddp->comm);
	if (active == size || ddp->options.divide_by_initial)
		return;
	for (uint32_t b = 0; b < ddp->bucket_count; b++) {
		const collet_ddp_bucket *bucket = &ddp->buckets[b].hook_args.bucket;
		collet_ddp_scale(bucket->gradients, bucket->count, bucket->dtype, (double)size / active);
	}
}

/* Copies the buffers to the packed block, or back (unpack). */
static void pack_buffers(const collet_ddp *ddp, bool unpack)
{
	unsigned char *at = ddp->packed_buffers;
	for (uint32_t i = 0; i < ddp->buffer_count; i++) {
		const collet_ddp_parameter *buffer = &ddp->parameters[ddp->parameter_count + i];
		const uint64_t bytes = collet_ddp_parameter_bytes(buffer);
		if (bytes > 0)
			memcpy(unpack ? buffer->value : at, unpack ? at : buffer->value, bytes);
		at += bytes;
	}
}

/* Broadcasts the source rank's buffers. */
static collet_status broadcast_buffers(const collet_ddp *ddp)
{
	if (ddp->packed_bytes == 0)
		return COLLET_OK;
	const bool is_source = collet_comm_rank(ddp->comm) == ddp->source_rank;
	if (is_source)
		pack_buffers(ddp, false);
	const collet_status status = collet_broadcast(ddp->control_comm, ddp->packed_buffers, ddp->packed_buffers,
		ddp->packed_bytes, COLLET_U8, ddp->source_rank, NULL);
	if (status == COLLET_OK && !is_source)
		pack_buffers(ddp, true);
	return status;
}

/* Completes the source's order of readiness by the parameters it did not mark, last to first. */
static void complete_order(collet_ddp *ddp)
{
	for (uint32_t p = ddp->parameter_count; p-- > 0;) {
		bool is_listed = false;
		for (uint32_t i = 0; i < ddp->order_count && !is_listed; i++)
			is_listed = ddp->order[i] == p;
		if (!is_listed)
			ddp->order[ddp->order_count++] = p;
	}
}

static collet_status finalize_layout(collet_ddp *ddp)
{
	if (ddp->is_layout_final)
		return COLLET_OK;
	complete_order(ddp);
	collet_status status = collet_broadcast(
		ddp->control_comm, ddp->order, ddp->order, ddp->parameter_count, COLLET_U32, ddp->source_rank, NULL);
	bool same = true;
	for (uint32_t at = 0; at < ddp->parameter_count; at++)
		same = same && ddp->slices[at].parameter == ddp->order[at];
	if (status == COLLET_OK && !same)
		status = collet_ddp_layout_replace(ddp, ddp->order);
	if (status != COLLET_OK)
		return status;
	ddp->is_layout_final = true;
	/* Hooks' states are made only now, since a bucket with a state must not move. */
	if (ddp->options.hook) {
		ddp->hook = ddp->options.hook;
		for (uint32_t b = 0; b < ddp->bucket_count; b++)
			ddp->buckets[b].is_open = false;
	}
	return COLLET_OK;
}

static void record_unused(collet_ddp *ddp)
{
	for (uint32_t p = 0; p < ddp->parameter_count; p++) {
		if (ddp->options.unused == COLLET_DDP_STATIC_UNUSED && ddp->step == 0)
			ddp->parameter_states[p].is_never_used = !ddp->parameter_states[p].is_used;
		ddp->parameter_states[p].is_used = false;
	}
}

/* Does everything after the last mark; the same on ranks with and without input. */
static collet_status synchronise(collet_ddp *ddp, bool active)
{
	uint32_t active_count = 0;
	mark_remaining(ddp);
	collet_status status = begin_sync(ddp, active);
	if (status == COLLET_OK)
		status = start_used_exchange(ddp);
	if (status == COLLET_OK)
		status = collet_ddp_progress_all(ddp);
	if (status == COLLET_OK)
		status = wait_active_ranks(ddp, &active_count);
	if (status == COLLET_OK && ddp->used_request)
		status = collet_request_wait(&ddp->used_request);
	if (status == COLLET_OK)
		status = broadcast_buffers(ddp);
	if (status == COLLET_OK)
		divide_by_active(ddp, active_count);
	if (status == COLLET_OK)
		status = finalize_layout(ddp);
	ddp->failed = ddp->failed || status != COLLET_OK;
	if (status != COLLET_OK)
		return status;
	if (active)
		record_unused(ddp);
	ddp->step++;
	reset_marks(ddp);
	return COLLET_OK;
}

collet_status collet_ddp_wait(collet_ddp *ddp)
{
	if (!ddp)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_wait: ddp is NULL");
	begin_step(ddp);
	const collet_status status = check_marks(ddp);
	if (status != COLLET_OK)
		return status;
	if (ddp->is_sync)
		return synchronise(ddp, true);
	reset_marks(ddp);
	return COLLET_OK;
}

/* ---- Between steps -------------------------------------------------------------------------------------------- */

collet_status collet_ddp_check_between_steps(const collet_ddp *ddp, const char *function)
{
	if (!ddp)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: ddp is NULL", function);
	if (ddp->is_in_step)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"%s: a step is in progress: gradients have been marked ready, and collet_ddp_wait has not been "
			"called",
			function);
	return COLLET_OK;
}

collet_status collet_ddp_set_sync(collet_ddp *ddp, bool sync)
{
	const collet_status status = collet_ddp_check_between_steps(ddp, "collet_ddp_set_sync");
	if (status == COLLET_OK)
		ddp->is_sync = sync;
	return status;
}

collet_status collet_ddp_zero(collet_ddp *ddp)
{
	const collet_status status = collet_ddp_check_between_steps(ddp, "collet_ddp_zero");
	if (status == COLLET_OK)
		zero_all(ddp);
	return status;
}

collet_status collet_ddp_join(collet_ddp *ddp, uint64_t *steps)
{
	uint32_t active_count = 0;
	uint64_t taken = 0;
	collet_status status = collet_ddp_check_between_steps(ddp, "collet_ddp_join");
	if (status != COLLET_OK)
		return status;
	if (!ddp->options.has_uneven_inputs)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_join: options.has_uneven_inputs was not set");
	/* Gradients accumulated for a synchronised step are not averaged any more. */
	for (uint32_t p = 0; p < ddp->parameter_count; p++)
		ddp->parameter_states[p].is_used = false;
	for (;;) {
		const uint32_t source = ddp->source_rank;
		status = begin_sync(ddp, false);
		if (status == COLLET_OK)
			status = wait_active_ranks(ddp, &active_count);
		if (status != COLLET_OK)
			break;
		if (active_count == 0) {
			/* There is no step then. */
			ddp->has_sync_begun = false;
			ddp->source_rank = COLLET_DDP_NO_RANK;
			if (source != COLLET_DDP_NO_RANK)
				status = collet_ddp_broadcast_values(
					ddp, ddp->control_comm, ddp->parameter_count, source);
			break;
		}
		zero_all(ddp);
		status = synchronise(ddp, false);
		if (status != COLLET_OK)
			break;
		taken++;
	}
	ddp->failed = ddp->failed || status != COLLET_OK;
	if (steps && status == COLLET_OK)
		*steps = taken;
	return status;
}
