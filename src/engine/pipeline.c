#include "engine/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/step.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/cursor.h"
#include "engine/engine.h"
#include "engine/remote_iterator.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"

/* ---- Cells ---- */

static uint32_t cell_count(const struct collet_pipeline *pipeline, const struct collet_byte_range *side)
{
	return (uint32_t)((side->bytes + pipeline->cell_bytes - 1) / pipeline->cell_bytes);
}

struct collet_byte_range collet_pipeline_cell(
	const struct collet_pipeline *pipeline, const struct collet_byte_range *side, uint32_t cell)
{
	const size_t first = cell * pipeline->cell_bytes, left = side->bytes - first;
	return (struct collet_byte_range){ side->first + first,
		left < pipeline->cell_bytes ? left : pipeline->cell_bytes };
}

/* The cells that a range touches: from first up to, not including, end. */
struct cell_range {
	uint32_t first, end;
};

static struct cell_range cells_touched(
	const struct collet_pipeline *pipeline, const struct collet_byte_range *side, struct collet_byte_range range)
{
	const uintptr_t from = (uintptr_t)side->first, to = from + side->bytes;
	uintptr_t first = (uintptr_t)range.first, end = first + range.bytes;
	first = first < from ? from : first;
	end = end > to ? to : end;
	if (first >= end)
		return (struct cell_range){ 0, 0 };
	return (struct cell_range){ (uint32_t)((first - from) / pipeline->cell_bytes),
		(uint32_t)((end - 1 - from) / pipeline->cell_bytes) + 1 };
}

/* ---- Accesses of an item ---- */

typedef bool range_visitor(struct collet_pipeline *pipeline, struct collet_byte_range range);

/* Visits the exact ranges of this rank's memory that the item writes, or reads, until a visit returns false. */
static bool visit_ranges(
	struct collet_pipeline *pipeline, const struct collet_work_item *item, bool writes, range_visitor *visitor)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	if (!step->is_per_peer) {
		if (writes)
			return visitor(pipeline, item->writes);
		for (uint32_t i = 0; i < item->read_count; i++)
			if (!visitor(pipeline, item->reads[i]))
				return false;
		return true;
	}
	const enum remote_side ends = writes ? REMOTE_SOURCES : REMOTE_DESTINATIONS;
	for (struct remote_iterator at = remote_iterator_of(request, step, ends);
		remote_iterator_next_message(&at, item);)
		if (!visitor(pipeline, (struct collet_byte_range){ at.place, at.count * request->element_bytes }))
			return false;
	return true;
}

/* ---- Memory ---- */

collet_status collet_pipeline_init(
	struct collet_pipeline *pipeline, struct collet_byte_range in, struct collet_byte_range out, size_t cell_bytes)
{
	*pipeline = (struct collet_pipeline){ .in = in, .out = out, .cell_bytes = cell_bytes };
	pipeline->in_cell_count = cell_count(pipeline, &in);
	pipeline->out_cell_count = cell_count(pipeline, &out);
	const size_t ins = pipeline->in_cell_count + (size_t)1, outs = pipeline->out_cell_count + (size_t)1;
	pipeline->copy_in_order = calloc(ins, sizeof(*pipeline->copy_in_order));
	pipeline->is_copied_in = calloc(ins, sizeof(*pipeline->is_copied_in));
	pipeline->first_use = calloc(ins, sizeof(*pipeline->first_use));
	pipeline->writer_counts = calloc(outs, sizeof(*pipeline->writer_counts));
	pipeline->writers_left = calloc(outs, sizeof(*pipeline->writers_left));
	pipeline->copy_out_order = calloc(outs, sizeof(*pipeline->copy_out_order));
	pipeline->dry_run_task = calloc(1, sizeof(*pipeline->dry_run_task));
	if (pipeline->copy_in_order && pipeline->is_copied_in && pipeline->first_use && pipeline->writer_counts &&
		pipeline->writers_left && pipeline->copy_out_order && pipeline->dry_run_task)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a GPU's buffer of %zu bytes",
		in.bytes > out.bytes ? in.bytes : out.bytes);
}

void collet_pipeline_deinit(struct collet_pipeline *pipeline)
{
	free(pipeline->copy_in_order);
	free(pipeline->is_copied_in);
	free(pipeline->first_use);
	free(pipeline->writer_counts);
	free(pipeline->writers_left);
	free(pipeline->copy_out_order);
	free(pipeline->dry_run_task);
	*pipeline = (struct collet_pipeline){ 0 };
}

/* ---- Planning ---- */

static const uint64_t NOT_USED = UINT64_MAX;

static bool note_use(struct collet_pipeline *pipeline, struct collet_byte_range range)
{
	const struct cell_range cells = cells_touched(pipeline, &pipeline->in, range);
	for (uint32_t c = cells.first; c < cells.end; c++)
		if (pipeline->first_use[c] > pipeline->dry_run_task->next)
			pipeline->first_use[c] = pipeline->dry_run_task->next;
	return true;
}

static bool note_write(struct collet_pipeline *pipeline, struct collet_byte_range range)
{
	const struct cell_range cells = cells_touched(pipeline, &pipeline->out, range);
	for (uint32_t c = cells.first; c < cells.end; c++)
		pipeline->writer_counts[c]++;
	return note_use(pipeline, range); /* the copy in must come before the write */
}

/* Walks all items of all tasks. Tasks run in parallel, so an item's number in its task stands for its time. */
static void count_accesses(struct collet_pipeline *pipeline, struct collet_request *request)
{
	struct collet_task *task = pipeline->dry_run_task;
	struct collet_work_item *item = &task->items[0];
	for (uint32_t channel = 0; channel < request->task_count; channel++) {
		task->first_request = request;
		task->channel = channel;
		task->next = 0;
		collet_cursor_begin(task);
		while (collet_cursor_next(task, item)) {
			item->request = request;
			collet_work_item_fill_ranges(request, item);
			(void)visit_ranges(pipeline, item, false, note_use);
			(void)visit_ranges(pipeline, item, true, note_write);
			task->next++;
		}
	}
}

/* Handles memory that is copied in and out. The copy in counts as a writer. It is made even if no item reads the cell,
 * since the cell may hold a result and other bytes beside it. */
static void join_overlapping(struct collet_pipeline *pipeline)
{
	const struct cell_range shared = cells_touched(pipeline, &pipeline->in, pipeline->out);
	for (uint32_t c = shared.first; c < shared.end; c++) {
		if (pipeline->first_use[c] == NOT_USED)
			pipeline->first_use[c] = NOT_USED - 1;
		const struct cell_range cells =
			cells_touched(pipeline, &pipeline->out, collet_pipeline_cell(pipeline, &pipeline->in, c));
		for (uint32_t o = cells.first; o < cells.end; o++)
			if (pipeline->writer_counts[o])
				pipeline->writer_counts[o]++;
	}
}

/* Sorts the cells by first use, then by address. Insertion sort: they are few, and mostly in order. */
static void sort_by_first_use(struct collet_pipeline *pipeline)
{
	pipeline->copy_in_count = 0;
	for (uint32_t c = 0; c < pipeline->in_cell_count; c++) {
		if (pipeline->first_use[c] == NOT_USED)
			continue;
		uint32_t at = pipeline->copy_in_count++;
		for (; at > 0 && pipeline->first_use[pipeline->copy_in_order[at - 1]] > pipeline->first_use[c]; at--)
			pipeline->copy_in_order[at] = pipeline->copy_in_order[at - 1];
		pipeline->copy_in_order[at] = c;
	}
}

static void plan_copies(struct collet_pipeline *pipeline, struct collet_request *request)
{
	for (uint32_t c = 0; c < pipeline->in_cell_count; c++)
		pipeline->first_use[c] = NOT_USED;
	memset(pipeline->writer_counts, 0, pipeline->out_cell_count * sizeof(*pipeline->writer_counts));
	count_accesses(pipeline, request);
	join_overlapping(pipeline);
	sort_by_first_use(pipeline);
	pipeline->copy_out_count = 0;
	for (uint32_t c = 0; c < pipeline->out_cell_count; c++)
		pipeline->copy_out_count += pipeline->writer_counts[c] != 0;
	pipeline->planned = true;
}

/* ---- Running ---- */

void collet_pipeline_start(struct collet_pipeline *pipeline, struct collet_request *request)
{
	struct collet_engine *engine = request->state->engine;
	assert(!pipeline->request && !request->pipeline);
	if (!pipeline->planned && !pipeline->gdr)
		plan_copies(pipeline, request);
	for (uint32_t c = 0; c < pipeline->in_cell_count; c++)
		pipeline->is_copied_in[c] = pipeline->first_use[c] == NOT_USED;
	memcpy(pipeline->writers_left, pipeline->writer_counts,
		pipeline->out_cell_count * sizeof(*pipeline->writers_left));
	pipeline->copied_in_count = pipeline->copy_out_ready = pipeline->copied_out_count = 0;
	pipeline->request = request;
	request->pipeline = pipeline;
	pipeline->next = engine->pipelines;
	engine->pipelines = pipeline;
}

void collet_pipeline_stop(struct collet_pipeline *pipeline)
{
	if (!pipeline->request)
		return;
	struct collet_pipeline **at = &pipeline->request->state->engine->pipelines;
	while (*at != pipeline)
		at = &(*at)->next;
	*at = pipeline->next;
	pipeline->request->pipeline = NULL;
	pipeline->request = NULL;
}

static bool range_is_copied_in(struct collet_pipeline *pipeline, struct collet_byte_range range)
{
	const struct cell_range cells = cells_touched(pipeline, &pipeline->in, range);
	for (uint32_t c = cells.first; c < cells.end; c++)
		if (!pipeline->is_copied_in[c])
			return false;
	return true;
}

bool collet_pipeline_allows(struct collet_pipeline *pipeline, const struct collet_work_item *item, bool with_reads)
{
	if (pipeline->copied_in_count == pipeline->copy_in_count)
		return true;
	return visit_ranges(pipeline, item, true, range_is_copied_in) &&
	       (!with_reads || visit_ranges(pipeline, item, false, range_is_copied_in));
}

static bool count_write(struct collet_pipeline *pipeline, struct collet_byte_range range)
{
	const struct cell_range cells = cells_touched(pipeline, &pipeline->out, range);
	for (uint32_t c = cells.first; c < cells.end; c++)
		if (pipeline->writers_left[c] && --pipeline->writers_left[c] == 0)
			pipeline->copy_out_order[pipeline->copy_out_ready++] = c;
	return true;
}

void collet_pipeline_item_written(struct collet_pipeline *pipeline, const struct collet_work_item *item)
{
	(void)visit_ranges(pipeline, item, true, count_write);
}

void collet_pipeline_copied_in(struct collet_pipeline *pipeline)
{
	const uint32_t cell = pipeline->copy_in_order[pipeline->copied_in_count++];
	pipeline->is_copied_in[cell] = true;
	(void)count_write(pipeline, collet_pipeline_cell(pipeline, &pipeline->in, cell));
	pipeline->request->state->tasks_need_progress = true;
	collet_request_end_if_done(pipeline->request);
}

void collet_pipeline_copied_out(struct collet_pipeline *pipeline)
{
	pipeline->copied_out_count++;
	collet_request_end_if_done(pipeline->request);
}
