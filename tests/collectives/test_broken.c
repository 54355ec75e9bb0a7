/* Tests that the interpreter finds defects: programs with one defect each, and the name by which it must be found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rows.h"

/* ---- Real programs with one defect -------------------------------------------------------------------------- */

static const struct collet_program *real(enum collet_collective c, const char *name)
{
	const struct collet_program *program = collet_program_find(c, name);
	assert_non_null(program);
	return program;
}

static struct collet_step direct_step(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	return real(COLLET_ALLREDUCE, "direct")->step(shape, part, index);
}

static struct collet_step two_shot_step(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	return real(COLLET_ALLREDUCE, "two_shot")->step(shape, part, index);
}

static struct collet_step tree_step(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	return real(COLLET_ALLREDUCE, "tree")->step(shape, part, index);
}

static struct collet_step ring_step(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	return real(COLLET_ALLREDUCE, "ring")->step(shape, part, index);
}

/* "Mine first": each rank starts with its own operand. */
static struct collet_step mine_first(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = direct_step(shape, part, index);
	if (step.is_reduction)
		step.source[0].peers.first = shape->rank;
	return step;
}

/* The same on one rank only, so that all results agree where it matters. */
static struct collet_step swapped(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = two_shot_step(shape, part, index);
	if (step.is_reduction)
		step.source[0].peers.first = 1;
	return step;
}

/* The last rank does not receive what the first one sends it at the end. */
static struct collet_step missing_receive(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = tree_step(shape, part, index);
	if (shape->rank == shape->size - 1 && index == 1)
		return (struct collet_step){ .source_count = 0 };
	return step;
}

static struct collet_step missing_send(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	if (shape->rank == 0 && index == 1)
		return (struct collet_step){ .source_count = 0 };
	return tree_step(shape, part, index);
}

/* Nobody sends or receives the last chunk around the ring. */
static struct collet_step missing_step(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = ring_step(shape, part, index);
	if (index == 2 * (uint64_t)shape->size - 3)
		step.destination_count = 1;
	if (index == 2 * (uint64_t)shape->size - 2)
		step.source_count = 0;
	return step;
}

static struct collet_step too_short(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = direct_step(shape, part, index);
	if (shape->rank == 1 && index == 0)
		step.source[0].span.count = step.destination[0].span.count = shape->count - 1;
	return step;
}

static struct collet_step beyond_the_end(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = direct_step(shape, part, index);
	if (index == 1)
		step.destination[0].span.first = 1;
	return step;
}

static struct collet_step writes_input(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = direct_step(shape, part, index);
	if (index == 1)
		step.destination[0].buffer = COLLET_INPUT;
	return step;
}

static struct collet_step twice(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = direct_step(shape, part, index);
	if (index == 1) {
		step.source[1] = step.source[0];
		step.source[1].peers = (struct collet_peers){ shape->rank, 0, 1, false };
		step.source_count = 2;
	}
	return step;
}

/* Every rank leaves out its own elements. */
static struct collet_step without_own(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = direct_step(shape, part, index);
	if (index == 1) {
		step.source[0].peers.first = shape->rank + 1;
		step.source[0].peers.count = shape->size - 1;
		step.is_final = false;
	}
	return step;
}

static struct collet_step no_last_touch(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = ring_step(shape, part, index);
	step.is_final = false;
	return step;
}

static struct collet_step early_last_touch(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = ring_step(shape, part, index);
	step.is_final = step.is_reduction;
	return step;
}

static struct collet_step wrong_place(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = ring_step(shape, part, index);
	if (shape->rank == 1 && step.is_reduction)
		/* off by one, in either direction */
		step.source[1].span.first += step.source[1].span.first < 2 ? 1 : UINT64_MAX;
	return step;
}

static struct collet_step disagreeing(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = ring_step(shape, part, index);
	if (shape->rank == 1 && index == 0)
		step.destination[0].span.first ^= 1;
	if (index > shape->size && shape->rank == 2)
		step.source[0].span.first += 1;
	return step;
}

static struct collet_step two_values(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = direct_step(shape, part, index);
	step.is_reduction = false;
	return step;
}

/* ---- Programs written with a defect ------------------------------------------------------------------------- */

static uint64_t two_steps(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 2;
}

static struct collet_span all_of(const struct collet_shape *shape)
{
	return (struct collet_span){ 0, shape->count };
}

static struct collet_step move(struct collet_peers from, enum collet_buffer from_buffer, struct collet_peers to,
	enum collet_buffer to_buffer, struct collet_span span)
{
	return (struct collet_step){ .source_count = 1,
		.destination_count = 1,
		.source = {{from, from_buffer, span}},
		.destination = {{to, to_buffer, span}} };
}

/* Each rank passes on to its right only what it received from the left: nobody starts. */
static struct collet_step nobody_starts(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers left = collet_peers_one(collet_position_at(shape, -1));
	const struct collet_peers right = collet_peers_one(collet_position_at(shape, 1)),
				  self = collet_peers_one(shape->rank);
	return index == 0 ? move(left, COLLET_RESULT, self, COLLET_RESULT, all_of(shape))
			  : move(self, COLLET_RESULT, right, COLLET_RESULT, all_of(shape));
}

/* Every rank sends all its segments before it receives any: right for few, not for more than the look-ahead. */
static struct collet_step sends_first(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = direct_step(shape, part, index);
	step.is_paired = false;
	return step;
}

static uint32_t two_parts(const struct collet_shape *shape)
{
	(void)shape;
	return 2;
}

/* One part sends RESULT to the right; the other, which waits for nothing of the first, writes there meanwhile. */
static struct collet_step writes_what_is_sent(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	const struct collet_peers left = collet_peers_one(collet_position_at(shape, -1));
	const struct collet_peers right = collet_peers_one(collet_position_at(shape, 1)),
				  self = collet_peers_one(shape->rank);
	const struct collet_span all = all_of(shape);
	if (index == 0)
		return part == 0 ? move(self, COLLET_RESULT, right, COLLET_SCRATCH, all)
				 : move(self, COLLET_INPUT, right, COLLET_RESULT, all);
	return part == 0 ? move(left, COLLET_RESULT, self, COLLET_SCRATCH, all)
			 : move(left, COLLET_INPUT, self, COLLET_RESULT, all);
}

static uint64_t scratch_for_all(const struct collet_shape *shape)
{
	return shape->count;
}

/* Each rank tells the next one; no rank hears from all. */
static struct collet_step hasty_barrier(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	const struct collet_span nothing = {0, 0};
	(void)part;
	return index == 0 ? move(collet_peers_one(shape->rank), COLLET_INPUT,
				    collet_peers_one(collet_position_at(shape, 1)), COLLET_RESULT, nothing)
			  : move(collet_peers_one(collet_position_at(shape, -1)), COLLET_INPUT,
				    collet_peers_one(shape->rank), COLLET_RESULT, nothing);
}

/* Every rank sends to the left what is meant for the right. */
static struct collet_step misdelivered(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = real(COLLET_ALLGATHER, "direct")->step(shape, part, index);
	if (index == 0)
		step.source[0].buffer = COLLET_INPUT;
	else
		step.source_count = 0;
	if (index == 0)
		step.destination_count = 1, step.destination[0].span.first = 0;
	return step;
}

/* ---- Rows ---------------------------------------------------------------------------------------------------------
 */

struct row {
	const char *name;
	enum collet_collective collective;
	const char *base; /* base program for step count and flags; NULL: two steps, one pass */
	struct collet_step (*step)(const struct collet_shape *shape, uint32_t part, uint64_t index);
	uint64_t count, segment;
	enum transfer_mode mode;
	enum defect defect;
};

static const struct row rows[] = {
	{"mine first", COLLET_ALLREDUCE, "direct", mine_first, 4, 9, 0, DEFECT_OUT_OF_ORDER},
	{"swapped operands", COLLET_ALLREDUCE, "two_shot", swapped, 4, 9, 0, DEFECT_OUT_OF_ORDER},
	{"a receive missing", COLLET_ALLREDUCE, "tree", missing_receive, 4, 9, 0, DEFECT_UNMATCHED_SEND},
	{"a send missing", COLLET_ALLREDUCE, "tree", missing_send, 4, 9, 0, DEFECT_UNMATCHED_RECEIVE},
	{"a step missing", COLLET_ALLREDUCE, "ring", missing_step, 8, 9, 0, DEFECT_MISSING},
	{"a message too short", COLLET_ALLREDUCE, "direct", too_short, 4, 9, 0, DEFECT_UNEQUAL_LENGTHS},
	{"beyond the end", COLLET_ALLREDUCE, "direct", beyond_the_end, 4, 9, 0, DEFECT_OUT_OF_BOUNDS},
	{"INPUT written", COLLET_ALLREDUCE, "direct", writes_input, 4, 9, 0, DEFECT_INPUT_WRITTEN},
	{"own operand twice", COLLET_ALLREDUCE, "direct", twice, 4, 9, 0, DEFECT_TWICE},
	{"own operand left out", COLLET_ALLREDUCE, "direct", without_own, 4, 9, 0, DEFECT_MISSING},
	{"no last touch", COLLET_ALLREDUCE, "ring", no_last_touch, 8, 9, 0, DEFECT_UNFINISHED},
	{"last touch too early", COLLET_ALLREDUCE, "ring", early_last_touch, 8, 9, 0, DEFECT_FINISHED_EARLY},
	{"operand from the wrong place", COLLET_ALLREDUCE, "ring", wrong_place, 8, 9, 0, DEFECT_ELEMENTS_MIXED},
	{"ends that disagree", COLLET_ALLREDUCE, "ring", disagreeing, 8, 9, 0, DEFECT_ENDS_DISAGREE},
	{"several values, none combined", COLLET_ALLREDUCE, "direct", two_values, 4, 9, 0, DEFECT_MALFORMED},
	{"nobody starts", COLLET_BROADCAST, NULL, nobody_starts, 1, 9, TRANSFER_ONE_SLOT, DEFECT_STUCK},
	{"all send first", COLLET_ALLREDUCE, NULL, sends_first, 9, 1, 0, DEFECT_STUCK},
	{"a lent span overwritten", COLLET_ALLREDUCE, "lent", writes_what_is_sent, 4, 1, TRANSFER_REMOTE_READ,
		DEFECT_SENT_OVERWRITTEN},
	{"a barrier left early", COLLET_BARRIER, NULL, hasty_barrier, 0, 9, 0, DEFECT_LEFT_EARLY},
	{"blocks in the wrong place", COLLET_ALLGATHER, NULL, misdelivered, 1, 9, 0, DEFECT_MISSING},
};

static struct finding run_row(const struct row *row, uint64_t seed)
{
	const bool borrowed = row->base && row->base[0] == 'l';
	struct collet_program program = { .name = row->name, .collective = row->collective, .step_count = two_steps };
	if (borrowed)
		program.part_count = two_parts, program.scratch = scratch_for_all;
	else if (row->base)
		program = *real(row->collective, row->base);
	program.step = row->step;
	const struct call call = {
		.program = &program, .count = row->count, .cut = { row->segment, COLLET_LOOKAHEAD - 1 }
	};
	const struct run run = { .size = 4,
		.calls = &call,
		.call_count = 1,
		.overlap = 1,
		.mode = row->mode,
		.seed = seed,
		.late_rank = row->collective == COLLET_BARRIER ? 0 : 4 };
	return interpret(&run);
}

static void found_by_name(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct finding finding = { .defect = DEFECT_NONE };
		/* What memory holds when it is read depends on the order of events: some seed shows the defect. */
		for (uint64_t seed = 1; seed <= (rows[i].mode == TRANSFER_REMOTE_READ ? 20 : 1); seed++)
			if (finding.defect != rows[i].defect)
				finding = run_row(&rows[i], seed);
		if (finding.defect != rows[i].defect)
			fail_msg("%s: found \"%s\" (%s), not \"%s\"", rows[i].name, defect_name(finding.defect),
				finding.text, defect_name(rows[i].defect));
	}
}

/* A program that says that it reduces once sends no partial sums. */
static void partial_sum(void **state)
{
	(void)state;
	struct collet_program program = *real(COLLET_ALLREDUCE, "tree");
	const struct call call = { .program = &program, .count = 9, .cut = { 4, COLLET_LOOKAHEAD - 1 } };
	const struct run run = { .size = 4, .calls = &call, .call_count = 1, .overlap = 1, .late_rank = 4 };
	assert_int_equal(interpret(&run).defect, DEFECT_NONE);
	program.reduces_once = true;
	assert_int_equal(interpret(&run).defect, DEFECT_PARTIAL_SUM);
}

/* If order does not matter, "mine first" is found by comparing ranks' results. */
static void results_differ(void **state)
{
	(void)state;
	struct collet_program program = *real(COLLET_ALLREDUCE, "direct");
	program.step = mine_first;
	program.rank_ordered = false;
	const struct call call = { .program = &program, .count = 3, .cut = {9, 1}};
	const struct run run = { .size = 3, .calls = &call, .call_count = 1, .overlap = 1, .seed = 1, .late_rank = 3 };
	assert_int_equal(interpret(&run).defect, DEFECT_RESULTS_DIFFER);
}

/* A barrier whose rounds pass on nothing lets ranks run ahead. This is why the real one has scratch. */
static struct collet_step empty_rounds(const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	struct collet_step step = real(COLLET_BARRIER, "dissemination")->step(shape, part, index);
	step.source[0].span.count = step.source[1].span.count = step.destination[0].span.count = 0;
	return step;
}

static void a_barrier_needs_its_scratch(void **state)
{
	(void)state;
	struct collet_program program = *real(COLLET_BARRIER, "dissemination");
	program.step = empty_rounds;
	uint32_t early = 0;
	for (uint32_t late = 0; late < 8; late++) {
		const struct call call = { .program = &program, .cut = {9, 1}};
		const struct run run = {
			.size = 8, .calls = &call, .call_count = 1, .overlap = 1, .seed = 1, .late_rank = late};
		early += interpret(&run).defect == DEFECT_LEFT_EARLY;
	}
	assert_true(early > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(found_by_name),
		cmocka_unit_test(partial_sum),
		cmocka_unit_test(results_differ),
		cmocka_unit_test(a_barrier_needs_its_scratch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
