/* Checks which items of a task wait for which, by the memory that they read and write. Uses no transport and no
 * thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/step_builder.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"

enum { SIZE = 3, RANK = 1, BLOCK = 100, SEGMENT = 40 };

static char input[SIZE * BLOCK], result[SIZE * BLOCK];

enum kind { RECEIVE_EACH, SEND_EACH, COPY_OWN, RECEIVE_ONE };

/* Returns a step of an all-to-all: receives a part from each other rank, sends one to each, copies its own, or receives
 * one from one rank. */
static struct collet_step step_of(const struct collet_shape *shape, enum kind kind)
{
	const struct collet_span block = { 0, BLOCK }, own = { RANK * BLOCK, BLOCK }, last = { 2 * BLOCK, BLOCK };
	const struct collet_peers others = collet_peers_others(shape), self = collet_peers_self(shape);
	switch (kind) {
	case RECEIVE_EACH: return collet_step_receive_each(shape, others, COLLET_INPUT, block);
	case SEND_EACH: return collet_step_send_each(shape, others, COLLET_INPUT, COLLET_RESULT, block);
	case COPY_OWN: return collet_step_move(self, COLLET_INPUT, own, self, COLLET_RESULT, own);
	case RECEIVE_ONE: break;
	}
	return collet_step_move(collet_peers_one(2), COLLET_INPUT, last, self, COLLET_RESULT, last);
}

struct row {
	const char *name;
	enum kind earlier;
	uint64_t earlier_offset;
	enum kind later;
	uint64_t later_offset;
	bool in_place, waits;
};

static bool waits(const struct row *row)
{
	static struct collet_task task;
	struct collet_request request = { .shape = { .rank = RANK,
						  .size = SIZE,
						  .count = BLOCK,
						  .input = { .kind = COLLET_PARTITION_BLOCKS, .count = BLOCK },
						  .result = { .kind = COLLET_PARTITION_BLOCKS, .count = BLOCK } },
		.input = row->in_place ? result : input,
		.result = result,
		.element_bytes = 1,
		.segment_elements = SEGMENT };
	task = (struct collet_task){ .oldest = 0, .next = 2 };
	for (uint32_t i = 0; i < 2; i++) {
		struct collet_work_item *item = &task.items[i];
		item->request = &request;
		item->own_step = step_of(&request.shape, i ? row->later : row->earlier);
		item->step = &item->own_step;
		item->offset = i ? row->later_offset : row->earlier_offset;
		item->count = BLOCK - item->offset < SEGMENT ? BLOCK - item->offset : SEGMENT;
		collet_work_item_fill_ranges(&request, item);
		if ((i ? row->later : row->earlier) == SEND_EACH) {
			item->sends_pending = 2;
			item->borrowed = item->reads[0];
		}
	}
	return collet_work_item_conflicts(&task, 1, false);
}

static void items_wait_for_those_whose_place_they_want(void **state)
{
	static const struct row rows[] = {
		{ "the next segment from each", RECEIVE_EACH, 0, RECEIVE_EACH, SEGMENT, false, false },
		{ "the last segment from each", RECEIVE_EACH, 0, RECEIVE_EACH, 2 * SEGMENT, true, false },
		{ "the same segment again", RECEIVE_EACH, SEGMENT, RECEIVE_EACH, SEGMENT, false, true },
		{ "one rank's block among all", RECEIVE_EACH, 0, RECEIVE_ONE, 0, false, true },
		{ "all after one rank's block", RECEIVE_ONE, 0, RECEIVE_EACH, SEGMENT, false, true },
		{ "its own block beside the others'", RECEIVE_EACH, 0, COPY_OWN, 0, false, false },
		{ "where nothing is sent from", SEND_EACH, 0, RECEIVE_EACH, 0, false, false },
		{ "where something is sent from", SEND_EACH, 0, RECEIVE_EACH, SEGMENT, true, true },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (waits(&rows[i]) != rows[i].waits)
			fail_msg("%s: %s", rows[i].name, rows[i].waits ? "does not wait" : "waits");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(items_wait_for_those_whose_place_they_want) };
	return cmocka_run_group_tests_name("conflict", tests, NULL, NULL);
}
