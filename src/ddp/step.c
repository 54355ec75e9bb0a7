/* Steps: which gradients are complete, and what besides the buckets a synchronised step takes. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "ddp/agree.h"
#include "ddp/state.h"

static const char *name_of(const collet_ddp *ddp, uint32_t p)
{
	return ddp->parameters[p].name ? ddp->parameters[p].name : "unnamed";
}

/* ---- Marking -------------------------------------------------------------------------------------------------- */

static void mark(collet_ddp *ddp, uint32_t p)
{
	ddp->slots[p].ready = true;
	ddp->buckets[ddp->slots[p].bucket].missing--;
}

static void zero_gradient(const collet_ddp *ddp, uint32_t p)
{
	const uint64_t bytes = collet_ddp_parameter_bytes(&ddp->parameters[p]);
	if (bytes > 0)
		memset(collet_ddp_slot_gradient(ddp, &ddp->slots[p]), 0, bytes);
}

static void zero_all(const collet_ddp *ddp)
{
	for (uint32_t b = 0; b < ddp->bucket_count; b++)
		if (ddp->buckets[b].bytes > 0)
			memset(ddp->buckets[b].memory, 0, ddp->buckets[b].bytes);
}

/* The first call of a step. What this rank is known not to use need not be waited for. */
static void enter(collet_ddp *ddp)
{
	if (ddp->within)
		return;
	ddp->within = true;
	for (uint32_t p = 0; p < ddp->parameter_count; p++) {
		if (!ddp->slots[p].idle)
			continue;
		if (ddp->sync)
			zero_gradient(ddp, p);
		mark(ddp, p);
	}
}

/* The first call of a synchronised step: who has input? */
static collet_status open_step(collet_ddp *ddp, bool live)
{
	if (ddp->opened)
		return COLLET_OK;
	ddp->opened = true;
	if (!ddp->options.uneven)
		return COLLET_OK;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &ddp->live_request;
	ddp->live_mine = live;
	return collet_allgather(ddp->control, &ddp->live_mine, ddp->live, 1, COLLET_U8, &how);
}

collet_status collet_ddp_ready(collet_ddp *ddp, uint32_t parameter)
{
	if (!ddp || parameter >= ddp->parameter_count)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_ready: there is no parameter %u", parameter);
	struct slot *slot = &ddp->slots[parameter];
	if (slot->idle)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_ready: parameter %u (%s) was not used in the first step, "
			"and options.unused says that this stays so",
			parameter, name_of(ddp, parameter));
	if (slot->ready)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"collet_ddp_ready: parameter %u (%s) is ready twice without collet_ddp_wait", parameter,
			name_of(ddp, parameter));
	enter(ddp);
	mark(ddp, parameter);
	slot->used = true;
	if (!ddp->sync)
		return COLLET_OK;
	if (!ddp->settled)
		ddp->order[ddp->ordered++] = parameter;
	const collet_status status = open_step(ddp, true);
	return status == COLLET_OK ? collet_ddp_travel_on(ddp) : status;
}

/* ---- The end of a step ---------------------------------------------------------------------------------------- */

static collet_status check_marks(const collet_ddp *ddp)
{
	if (ddp->options.unused != COLLET_DDP_ALL_USED)
		return COLLET_OK;
	for (uint32_t p = 0; p < ddp->parameter_count; p++)
		if (!ddp->slots[p].ready)
			return collet_fail(COLLET_ERR_ARGUMENT,
				"collet_ddp_wait: parameter %u (%s) was not marked ready (options.unused allows that)",
				p, name_of(ddp, p));
	return COLLET_OK;
}

static void reset_marks(collet_ddp *ddp)
{
	for (uint32_t p = 0; p < ddp->parameter_count; p++)
		ddp->slots[p].ready = false;
	for (uint32_t b = 0; b < ddp->bucket_count; b++) {
		ddp->buckets[b].missing = ddp->buckets[b].slice_count;
		ddp->buckets[b].stage = 0;
		ddp->buckets[b].done = false;
	}
	memset(ddp->stage_next, 0, sizeof(ddp->stage_next));
	ddp->within = ddp->opened = false;
	ddp->started = 0;
}

/* Parameters that this rank has not marked count as zero; what steps without sync have gathered stays. */
static void mark_the_rest(collet_ddp *ddp)
{
	for (uint32_t p = 0; p < ddp->parameter_count; p++) {
		if (ddp->slots[p].ready)
			continue;
		if (!ddp->slots[p].used)
			zero_gradient(ddp, p);
		mark(ddp, p);
	}
}

/* Once the set is known for good, nobody is asked again. */
static bool asks_who_uses(const collet_ddp *ddp)
{
	return ddp->options.unused == COLLET_DDP_FIND_UNUSED ||
		(ddp->options.unused == COLLET_DDP_STATIC_UNUSED && ddp->step == 0);
}

static collet_status ask_who_uses(collet_ddp *ddp)
{
	if (!asks_who_uses(ddp))
		return COLLET_OK;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &ddp->used_request;
	for (uint32_t p = 0; p < ddp->parameter_count; p++)
		ddp->used[p] = ddp->slots[p].used;
	return collet_allreduce(ddp->control, ddp->used, ddp->used, ddp->parameter_count, COLLET_U8, COLLET_MAX, &how);
}

/* How many ranks had input, and the lowest of them. */
static collet_status hear_who_lives(collet_ddp *ddp, uint32_t *live)
{
	const uint32_t size = collet_comm_size(ddp->comm);
	*live = size;
	ddp->source = 0;
	if (!ddp->options.uneven)
		return COLLET_OK;
	const collet_status status = ddp->live_request ? collet_request_wait(&ddp->live_request) : COLLET_OK;
	if (status != COLLET_OK)
		return status;
	*live = 0;
	ddp->source = COLLET_DDP_NOBODY;
	for (uint32_t rank = size; rank-- > 0;) {
		if (!ddp->live[rank])
			continue;
		ddp->source = rank;
		(*live)++;
	}
	return COLLET_OK;
}

/* Averages are over all ranks so far; a rank without input added zeros. */
static void divide_by_live(const collet_ddp *ddp, uint32_t live)
{
	const uint32_t size = collet_comm_size(ddp->comm);
	if (live == size || ddp->options.divide_by_initial)
		return;
	for (uint32_t b = 0; b < ddp->bucket_count; b++) {
		const collet_ddp_bucket *bucket = &ddp->buckets[b].task.bucket;
		collet_ddp_scale(bucket->gradients, bucket->count, bucket->dtype, (double)size / live);
	}
}

/* Between the buffers and where they stand one after the other. */
static void pack_buffers(const collet_ddp *ddp, bool unpack)
{
	unsigned char *at = ddp->packed;
	for (uint32_t i = 0; i < ddp->buffer_count; i++) {
		const collet_ddp_parameter *buffer = &ddp->parameters[ddp->parameter_count + i];
		const uint64_t bytes = collet_ddp_parameter_bytes(buffer);
		if (bytes > 0)
			memcpy(unpack ? buffer->value : at, unpack ? at : buffer->value, bytes);
		at += bytes;
	}
}

/* Every rank gets the source's. */
static collet_status share_buffers(const collet_ddp *ddp)
{
	if (ddp->packed_bytes == 0)
		return COLLET_OK;
	const bool gives = collet_comm_rank(ddp->comm) == ddp->source;
	if (gives)
		pack_buffers(ddp, false);
	const collet_status status = collet_broadcast(
		ddp->control, ddp->packed, ddp->packed, ddp->packed_bytes, COLLET_U8, ddp->source, NULL);
	if (status == COLLET_OK && !gives)
		pack_buffers(ddp, true);
	return status;
}

/* The source's order of readiness, then what it did not mark, last to first. */
static void complete_order(collet_ddp *ddp)
{
	for (uint32_t p = ddp->parameter_count; p-- > 0;) {
		bool there = false;
		for (uint32_t i = 0; i < ddp->ordered && !there; i++)
			there = ddp->order[i] == p;
		if (!there)
			ddp->order[ddp->ordered++] = p;
	}
}

static collet_status settle_layout(collet_ddp *ddp)
{
	if (ddp->settled)
		return COLLET_OK;
	complete_order(ddp);
	collet_status status = collet_broadcast(ddp->control, ddp->order, ddp->order, ddp->parameter_count, COLLET_U32,
		ddp->source, NULL);
	bool same = true;
	for (uint32_t at = 0; at < ddp->parameter_count; at++)
		same = same && ddp->slices[at].parameter == ddp->order[at];
	if (status == COLLET_OK && !same)
		status = collet_ddp_lay_out_again(ddp, ddp->order);
	if (status != COLLET_OK)
		return status;
	ddp->settled = true;
	/* Only now: what a hook remembers of a bucket must not move. */
	if (ddp->options.hook) {
		ddp->hook = ddp->options.hook;
		for (uint32_t b = 0; b < ddp->bucket_count; b++)
			ddp->buckets[b].open = false;
	}
	return COLLET_OK;
}

static void note_idle(collet_ddp *ddp)
{
	for (uint32_t p = 0; p < ddp->parameter_count; p++) {
		if (ddp->options.unused == COLLET_DDP_STATIC_UNUSED && ddp->step == 0)
			ddp->slots[p].idle = !ddp->slots[p].used;
		ddp->slots[p].used = false;
	}
}

/* Everything from the last mark on, the same on ranks with and without input. */
static collet_status synchronise(collet_ddp *ddp, bool live)
{
	uint32_t living = 0;
	mark_the_rest(ddp);
	collet_status status = open_step(ddp, live);
	if (status == COLLET_OK)
		status = ask_who_uses(ddp);
	if (status == COLLET_OK)
		status = collet_ddp_travel_to_the_end(ddp);
	if (status == COLLET_OK)
		status = hear_who_lives(ddp, &living);
	if (status == COLLET_OK && ddp->used_request)
		status = collet_request_wait(&ddp->used_request);
	if (status == COLLET_OK)
		status = share_buffers(ddp);
	if (status == COLLET_OK)
		divide_by_live(ddp, living);
	if (status == COLLET_OK)
		status = settle_layout(ddp);
	ddp->failed = ddp->failed || status != COLLET_OK;
	if (status != COLLET_OK)
		return status;
	if (live)
		note_idle(ddp);
	ddp->step++;
	reset_marks(ddp);
	return COLLET_OK;
}

collet_status collet_ddp_wait(collet_ddp *ddp)
{
	if (!ddp)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_wait: ddp is NULL");
	enter(ddp);
	const collet_status status = check_marks(ddp);
	if (status != COLLET_OK)
		return status;
	if (ddp->sync)
		return synchronise(ddp, true);
	reset_marks(ddp);
	return COLLET_OK;
}

/* ---- Between steps -------------------------------------------------------------------------------------------- */

collet_status collet_ddp_between_steps(const collet_ddp *ddp, const char *function)
{
	if (!ddp)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: ddp is NULL", function);
	if (ddp->within)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"%s: a step is under way: gradients have been marked ready, and collet_ddp_wait has not been "
			"called",
			function);
	return COLLET_OK;
}

collet_status collet_ddp_set_sync(collet_ddp *ddp, bool sync)
{
	const collet_status status = collet_ddp_between_steps(ddp, "collet_ddp_set_sync");
	if (status == COLLET_OK)
		ddp->sync = sync;
	return status;
}

collet_status collet_ddp_zero(collet_ddp *ddp)
{
	const collet_status status = collet_ddp_between_steps(ddp, "collet_ddp_zero");
	if (status == COLLET_OK)
		zero_all(ddp);
	return status;
}

collet_status collet_ddp_join(collet_ddp *ddp, uint64_t *steps)
{
	uint32_t living = 0;
	uint64_t taken = 0;
	collet_status status = collet_ddp_between_steps(ddp, "collet_ddp_join");
	if (status != COLLET_OK)
		return status;
	if (!ddp->options.uneven)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp_join: options.uneven was not set");
	/* What steps without sync have left for one with it is not averaged any more. */
	for (uint32_t p = 0; p < ddp->parameter_count; p++)
		ddp->slots[p].used = false;
	for (;;) {
		const uint32_t source = ddp->source;
		status = open_step(ddp, false);
		if (status == COLLET_OK)
			status = hear_who_lives(ddp, &living);
		if (status != COLLET_OK)
			break;
		if (living == 0) {
			/* No step, then. */
			ddp->opened = false;
			ddp->source = COLLET_DDP_NOBODY;
			if (source != COLLET_DDP_NOBODY)
				status = collet_ddp_share_values(ddp, ddp->control, ddp->parameter_count, source);
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
