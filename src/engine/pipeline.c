#include "engine/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "engine/remote_iterator.h"

/* ---- Cells ---- */

static uint32_t cells_of(const struct collet_flow *flow, const struct collet_range *side)
{
	return (uint32_t)((side->bytes + flow->cell_bytes - 1) / flow->cell_bytes);
}

struct collet_range collet_flow_cell(const struct collet_flow *flow, const struct collet_range *side, uint32_t cell)
{
	const size_t first = cell * flow->cell_bytes, left = side->bytes - first;
	return (struct collet_range){ side->first + first, left < flow->cell_bytes ? left : flow->cell_bytes };
}

/* The cells of a side that a range touches: from first up to end. */
struct cells {
	uint32_t first, end;
};

static struct cells touched(const struct collet_flow *flow, const struct collet_range *side, struct collet_range range)
{
	const uintptr_t from = (uintptr_t)side->first, to = from + side->bytes;
	uintptr_t first = (uintptr_t)range.first, end = first + range.bytes;
	first = first < from ? from : first;
	end = end > to ? to : end;
	if (first >= end)
		return (struct cells){ 0, 0 };
	return (struct cells){
		(uint32_t)((first - from) / flow->cell_bytes), (uint32_t)((end - 1 - from) / flow->cell_bytes) + 1};
}

/* ---- What an item touches, exactly ---- */

typedef bool visit(struct collet_flow *flow, struct collet_range range);

/* Visits what the item writes, or reads, of this rank's memory, until a visit says no. */
static bool visit_all(struct collet_flow *flow, const struct collet_item *item, bool writes, visit *look)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	if (!step->is_per_peer) {
		if (writes)
			return look(flow, item->writes);
		for (uint32_t i = 0; i < item->read_count; i++)
			if (!look(flow, item->reads[i]))
				return false;
		return true;
	}
	const enum remote_ends ends = writes ? REMOTE_SOURCES : REMOTE_DESTINATIONS;
	for (struct remotes at = remotes_of(request, step, ends); remotes_next_part(&at, item);)
		if (!look(flow, (struct collet_range){ at.place, at.count * request->element_bytes }))
			return false;
	return true;
}

/* ---- Memory ---- */

collet_status collet_flow_init(
	struct collet_flow *flow, struct collet_range in, struct collet_range out, size_t cell_bytes)
{
	*flow = (struct collet_flow){ .in = in, .out = out, .cell_bytes = cell_bytes };
	flow->in_cells = cells_of(flow, &in);
	flow->out_cells = cells_of(flow, &out);
	const size_t ins = flow->in_cells + (size_t)1, outs = flow->out_cells + (size_t)1;
	flow->order = calloc(ins, sizeof(*flow->order));
	flow->here = calloc(ins, sizeof(*flow->here));
	flow->first_use = calloc(ins, sizeof(*flow->first_use));
	flow->writers = calloc(outs, sizeof(*flow->writers));
	flow->left = calloc(outs, sizeof(*flow->left));
	flow->ready = calloc(outs, sizeof(*flow->ready));
	flow->walker = calloc(1, sizeof(*flow->walker));
	if (flow->order && flow->here && flow->first_use && flow->writers && flow->left && flow->ready && flow->walker)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a GPU's buffer of %zu bytes",
		in.bytes > out.bytes ? in.bytes : out.bytes);
}

void collet_flow_deinit(struct collet_flow *flow)
{
	free(flow->order);
	free(flow->here);
	free(flow->first_use);
	free(flow->writers);
	free(flow->left);
	free(flow->ready);
	free(flow->walker);
	*flow = (struct collet_flow){ 0 };
}

/* ---- Planning ---- */

static const uint64_t NOT_USED = UINT64_MAX;

static bool note_use(struct collet_flow *flow, struct collet_range range)
{
	const struct cells cells = touched(flow, &flow->in, range);
	for (uint32_t c = cells.first; c < cells.end; c++)
		if (flow->first_use[c] > flow->walker->next)
			flow->first_use[c] = flow->walker->next;
	return true;
}

static bool note_write(struct collet_flow *flow, struct collet_range range)
{
	const struct cells cells = touched(flow, &flow->out, range);
	for (uint32_t c = cells.first; c < cells.end; c++)
		flow->writers[c]++;
	return note_use(flow, range); /* what it overwrites must have come before */
}

/* All items of all lanes, each lane's in its order. The lanes run side by side, so an item's number in its lane is when
 * it comes. */
static void walk(struct collet_flow *flow, struct collet_request *request)
{
	struct collet_lane *walker = flow->walker;
	struct collet_item *item = &walker->items[0];
	for (uint32_t channel = 0; channel < request->lanes; channel++) {
		walker->first = request;
		walker->channel = channel;
		walker->next = 0;
		collet_cursor_begin(walker);
		while (collet_cursor_next(walker, item)) {
			item->request = request;
			collet_item_fill_ranges(request, item);
			(void)visit_all(flow, item, false, note_use);
			(void)visit_all(flow, item, true, note_write);
			walker->next++;
		}
	}
}

/* What is brought to where results are taken from is a writer of it too, and is brought even if nobody reads it: it may
 * lie beside a result, in the same cell. */
static void join_overlap(struct collet_flow *flow)
{
	const struct cells shared = touched(flow, &flow->in, flow->out);
	for (uint32_t c = shared.first; c < shared.end; c++) {
		if (flow->first_use[c] == NOT_USED)
			flow->first_use[c] = NOT_USED - 1;
		const struct cells cells = touched(flow, &flow->out, collet_flow_cell(flow, &flow->in, c));
		for (uint32_t o = cells.first; o < cells.end; o++)
			if (flow->writers[o])
				flow->writers[o]++;
	}
}

/* By first use; cells of the same one as they lie. Few of them, and mostly in order. */
static void sort(struct collet_flow *flow)
{
	flow->order_count = 0;
	for (uint32_t c = 0; c < flow->in_cells; c++) {
		if (flow->first_use[c] == NOT_USED)
			continue;
		uint32_t at = flow->order_count++;
		for (; at > 0 && flow->first_use[flow->order[at - 1]] > flow->first_use[c]; at--)
			flow->order[at] = flow->order[at - 1];
		flow->order[at] = c;
	}
}

static void plan(struct collet_flow *flow, struct collet_request *request)
{
	for (uint32_t c = 0; c < flow->in_cells; c++)
		flow->first_use[c] = NOT_USED;
	memset(flow->writers, 0, flow->out_cells * sizeof(*flow->writers));
	walk(flow, request);
	join_overlap(flow);
	sort(flow);
	flow->written_count = 0;
	for (uint32_t c = 0; c < flow->out_cells; c++)
		flow->written_count += flow->writers[c] != 0;
	flow->planned = true;
}

/* ---- Running ---- */

void collet_flow_start(struct collet_flow *flow, struct collet_request *request)
{
	struct collet_engine *engine = request->group->engine;
	assert(!flow->request && !request->flow);
	if (!flow->planned && !flow->reach)
		plan(flow, request);
	for (uint32_t c = 0; c < flow->in_cells; c++)
		flow->here[c] = flow->first_use[c] == NOT_USED;
	memcpy(flow->left, flow->writers, flow->out_cells * sizeof(*flow->left));
	flow->arrived = flow->ready_count = flow->taken = 0;
	flow->request = request;
	request->flow = flow;
	flow->next = engine->flows;
	engine->flows = flow;
}

void collet_flow_stop(struct collet_flow *flow)
{
	if (!flow->request)
		return;
	struct collet_flow **at = &flow->request->group->engine->flows;
	while (*at != flow)
		at = &(*at)->next;
	*at = flow->next;
	flow->request->flow = NULL;
	flow->request = NULL;
}

static bool is_here(struct collet_flow *flow, struct collet_range range)
{
	const struct cells cells = touched(flow, &flow->in, range);
	for (uint32_t c = cells.first; c < cells.end; c++)
		if (!flow->here[c])
			return false;
	return true;
}

bool collet_flow_lets(struct collet_flow *flow, const struct collet_item *item, bool reads_too)
{
	if (flow->arrived == flow->order_count)
		return true;
	return visit_all(flow, item, true, is_here) && (!reads_too || visit_all(flow, item, false, is_here));
}

static bool count_write(struct collet_flow *flow, struct collet_range range)
{
	const struct cells cells = touched(flow, &flow->out, range);
	for (uint32_t c = cells.first; c < cells.end; c++)
		if (flow->left[c] && --flow->left[c] == 0)
			flow->ready[flow->ready_count++] = c;
	return true;
}

void collet_flow_wrote(struct collet_flow *flow, const struct collet_item *item)
{
	(void)visit_all(flow, item, true, count_write);
}

void collet_flow_arrived(struct collet_flow *flow)
{
	const uint32_t cell = flow->order[flow->arrived++];
	flow->here[cell] = true;
	(void)count_write(flow, collet_flow_cell(flow, &flow->in, cell));
	flow->request->group->lanes_dirty = true;
	collet_request_finish_if_done(flow->request);
}

void collet_flow_taken(struct collet_flow *flow)
{
	flow->taken++;
	collet_request_finish_if_done(flow->request);
}
