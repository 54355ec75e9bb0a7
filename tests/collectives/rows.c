#include "rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sample.h"

bool rows_all(void)
{
	const char *full = getenv("COLLET_TEST_FULL");
	return full && full[0] == '1';
}

uint64_t rows_seed(void)
{
	const char *seed = getenv("COLLET_TEST_SEED");
	return seed ? strtoull(seed, NULL, 10) : 20240229;
}

/* Draws a segment size: many segments, but in large worlds no more than useful. */
static uint64_t draw_segment(uint32_t size, uint64_t count, bool many, uint64_t *seed)
{
	const uint64_t least = size > 24 ? 1 + count / 8 : 1;
	const uint64_t segment = many ? 1 : 1 + draw(seed, count + 2);
	return segment < least ? least : segment;
}

struct call row_call(
	const struct collet_program *program, uint32_t size, uint64_t count, enum variation variation, uint64_t *seed)
{
	struct call call = { .program = program, .count = program->collective == COLLET_BARRIER ? 0 : count };
	const bool many = variation == VARIATION_SEGMENTS || variation == VARIATION_IN_PLACE;
	call.root = variation == VARIATION_SEGMENTS ? 0 : (uint32_t)draw(seed, size);
	call.cut.segment = variation == VARIATION_WHOLE ? 1 << 20 : draw_segment(size, count, many, seed);
	call.cut.pass_segments =
		variation == VARIATION_SEGMENTS ? COLLET_LOOKAHEAD - 1 : 1 + (uint32_t)draw(seed, COLLET_LOOKAHEAD - 1);
	if (variation == VARIATION_IN_PLACE)
		call.in_place = UINT64_MAX;
	else if (variation != VARIATION_SEGMENTS && draw(seed, 2))
		call.in_place = draw(seed, 0);
	return call;
}

bool row_fits(const struct call *call, uint32_t size)
{
	struct collet_shape shape = collet_shape_of(call->program->collective, 0, size, call->root, call->count);
	shape.order = call->order;
	shape.host_first = call->host_first;
	shape.host_count = call->host_first ? call->hosts : 1;
	shape.leader_is_first = call->first_leads;
	return collet_program_fits(call->program, &shape);
}

void row_prove_all(const struct run *run, const char *what)
{
	static uint64_t rows;
	if (!sample_has(rows++))
		return;
	const struct finding finding = interpret(run);
	if (finding.defect != DEFECT_NONE)
		fail_msg("%s: %s: %s", what, defect_name(finding.defect), finding.text);
}

void row_prove(const struct call *call, uint32_t size, enum transfer_mode mode, uint64_t seed)
{
	char what[160];
	const struct run run = { .size = size,
		.calls = call,
		.call_count = 1,
		.overlap = 1,
		.mode = mode,
		.seed = seed,
		.late_rank = call->program->collective == COLLET_BARRIER ? (uint32_t)(seed % size) : size };
	snprintf(what, sizeof what, "%s_%s/n%u/%llu/root%u/piece%llu/few%u/mode%d/place%llx%s",
		collet_collective_name(call->program->collective), call->program->name, size,
		(unsigned long long)call->count, call->root, (unsigned long long)call->cut.segment,
		call->cut.pass_segments, mode, (unsigned long long)call->in_place, call->is_vector ? "/listed" : "");
	row_prove_all(&run, what);
}
