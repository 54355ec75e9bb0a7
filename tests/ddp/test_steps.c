/* Tests steps that are more than "all ranks, all parameters, every time": accumulation, unused parameters, uneven
 * input, buffers, another layout, clipping. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/ddp.h>

#include "thread_ranks.h"

enum { RANKS = 3, PARAMETERS = 4, ELEMENTS = 50, NOTES = 64 };

/* What a rank saw, in order. Bodies only record it; the main thread asserts. */
struct seen {
	const collet_ddp_options *options;
	collet_status status[RANKS][NOTES];
	double values[RANKS][NOTES];
	uint32_t notes[RANKS], statuses[RANKS];
	char sentence[RANKS][512];
	float values_of[RANKS][PARAMETERS * ELEMENTS];
	int64_t counter[RANKS];
	float running[RANKS][3];
};

static const uint64_t shape = ELEMENTS;

static collet_ddp *create(collet_comm *comm, struct seen *seen)
{
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp_parameter parameters[PARAMETERS];
	static const char *const names[PARAMETERS] = { "a", "b", "c", "d" };
	for (uint32_t p = 0; p < PARAMETERS; p++)
		parameters[p] = (collet_ddp_parameter){ .name = names[p], .value = seen->values_of[rank] + p * ELEMENTS,
			.shape = &shape, .dimensions = 1, .dtype = COLLET_F32 };
	collet_ddp *ddp = NULL;
	seen->status[rank][seen->statuses[rank]++] =
		collet_ddp_create(&ddp, comm, parameters, PARAMETERS, seen->options);
	return ddp;
}

static void note_status(struct seen *seen, uint32_t rank, collet_status status)
{
	if (seen->statuses[rank] < NOTES)
		seen->status[rank][seen->statuses[rank]++] = status;
	if (status != COLLET_OK)
		snprintf(seen->sentence[rank], sizeof(seen->sentence[rank]), "%s", collet_last_error());
}

static void note(struct seen *seen, uint32_t rank, double value)
{
	if (seen->notes[rank] < NOTES)
		seen->values[rank][seen->notes[rank]++] = value;
}

static void put(collet_ddp *ddp, uint32_t p, float value)
{
	float *gradient = collet_ddp_gradient(ddp, p);
	for (uint64_t i = 0; i < ELEMENTS; i++)
		gradient[i] = value;
}

static void add(collet_ddp *ddp, uint32_t p, float value)
{
	float *gradient = collet_ddp_gradient(ddp, p);
	for (uint64_t i = 0; i < ELEMENTS; i++)
		gradient[i] += value;
}

/* Returns the value of all elements; NaN if they differ. */
static float got(const collet_ddp *ddp, uint32_t p)
{
	const float *gradient = collet_ddp_gradient(ddp, p);
	for (uint64_t i = 1; i < ELEMENTS; i++)
		if (gradient[i] != gradient[0])
			return NAN;
	return gradient[0];
}

static void finish(collet_ddp *ddp, struct seen *seen, uint32_t rank)
{
	note_status(seen, rank, collet_ddp_wait(ddp));
	for (uint32_t p = 0; p < PARAMETERS; p++)
		note(seen, rank, got(ddp, p));
}

static struct seen *run(void (*body)(collet_comm *, void *), const collet_ddp_options *options)
{
	struct seen *seen = calloc(1, sizeof(*seen));
	seen->options = options;
	thread_ranks_run(RANKS, body, seen);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		for (uint32_t i = 0; i < seen->statuses[rank]; i++)
			if (seen->status[rank][i] != COLLET_OK)
				fail_msg("rank %u, call %u: %s: %s", rank, i, collet_status_name(seen->status[rank][i]),
					seen->sentence[rank]);
	return seen;
}

static void expect(const struct seen *seen, const double *values, uint32_t count)
{
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		assert_int_equal(seen->notes[rank], count);
		for (uint32_t i = 0; i < count; i++)
			if (!(fabs(seen->values[rank][i] - values[i]) < 1e-5))
				fail_msg("rank %u, note %u: %g, not %g", rank, i, seen->values[rank][i], values[i]);
	}
}

/* ---- Accumulation --------------------------------------------------------------------------------------------- */

static void accumulate(collet_comm *comm, void *context)
{
	struct seen *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp *ddp = create(comm, seen);
	collet_ddp_traffic before = { 0 }, after = { 0 };
	note_status(seen, rank, collet_ddp_set_sync(ddp, false));
	note_status(seen, rank, collet_ddp_traffic_get(ddp, &before));
	for (uint32_t step = 0; step < 3; step++) {
		if (step == 2)
			note_status(seen, rank, collet_ddp_set_sync(ddp, true));
		for (uint32_t p = 0; p < PARAMETERS; p++) {
			add(ddp, p, (float)(rank + p));
			note_status(seen, rank, collet_ddp_ready(ddp, p));
		}
		note_status(seen, rank, collet_ddp_wait(ddp));
		note_status(seen, rank, collet_ddp_traffic_get(ddp, &after));
		note(seen, rank, after.bytes_sent > before.bytes_sent);
		note(seen, rank, (double)after.steps);
	}
	for (uint32_t p = 0; p < PARAMETERS; p++)
		note(seen, rank, got(ddp, p));
	note_status(seen, rank, collet_ddp_zero(ddp));
	note(seen, rank, got(ddp, 1));
	note_status(seen, rank, collet_ddp_destroy(&ddp));
}

static void steps_without_sync_only_add_up(void **state)
{
	struct seen *seen = run(accumulate, NULL);
	/* Nothing is sent twice, and then three steps' mean: 3 (1 + p). */
	expect(seen, (double[]){ 0, 0, 0, 0, 1, 1, 3, 6, 9, 12, 0 }, 11);
	free(seen);
}

/* ---- Unused parameters ---------------------------------------------------------------------------------------- */

/* In step s rank r uses parameter 0 always, 1 on rank 1 only, 2 never, 3 in all steps but on rank 2. */
static bool uses(uint32_t rank, uint32_t p)
{
	return p == 0 || (p == 1 && rank == 1) || (p == 3 && rank != 2);
}

static void leave_out(collet_comm *comm, void *context)
{
	struct seen *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp *ddp = create(comm, seen);
	for (uint32_t step = 0; step < 3; step++) {
		for (uint32_t p = PARAMETERS; p-- > 0;) {
			if (!uses(rank, p))
				continue;
			put(ddp, p, (float)(3 * (rank + 1)));
			note_status(seen, rank, collet_ddp_ready(ddp, p));
		}
		finish(ddp, seen, rank);
		for (uint32_t p = 0; p < PARAMETERS; p++)
			note(seen, rank, collet_ddp_used(ddp, p));
	}
	note_status(seen, rank, collet_ddp_destroy(&ddp));
}

static void who_does_not_use_a_parameter_adds_zeros(void **state)
{
	static const collet_ddp_options rows[] = {
		{ .unused = COLLET_DDP_FIND_UNUSED },
		{ .unused = COLLET_DDP_FIND_UNUSED, .first_bucket_bytes = 1, .bucket_bytes = 1 },
		{ .unused = COLLET_DDP_FIND_UNUSED, .keep_order = true, .first_bucket_bytes = 1, .bucket_bytes = 1 },
		{ .unused = COLLET_DDP_STATIC_UNUSED },
		{ .unused = COLLET_DDP_STATIC_UNUSED, .keep_order = true, .first_bucket_bytes = 1, .bucket_bytes = 1 },
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct seen *seen = run(leave_out, &rows[row]);
		expect(seen, (double[]){ 6, 2, 0, 3, 1, 1, 0, 1, 6, 2, 0, 3, 1, 1, 0, 1, 6, 2, 0, 3, 1, 1, 0, 1 }, 24);
		free(seen);
	}
}

static void use_what_was_not(collet_comm *comm, void *context)
{
	struct seen *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp *ddp = create(comm, seen);
	for (uint32_t p = 1; p < PARAMETERS; p++)
		note_status(seen, rank, collet_ddp_ready(ddp, p));
	note_status(seen, rank, collet_ddp_wait(ddp));
	note(seen, rank, collet_ddp_ready(ddp, 0));
	snprintf(seen->sentence[rank], sizeof(seen->sentence[rank]), "%s", collet_last_error());
	note_status(seen, rank, collet_ddp_destroy(&ddp));
}

static void a_static_set_stays_as_it_was(void **state)
{
	static const collet_ddp_options options = { .unused = COLLET_DDP_STATIC_UNUSED };
	struct seen *seen = run(use_what_was_not, &options);
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		assert_int_equal((int)seen->values[rank][0], COLLET_ERR_ARGUMENT);
		assert_non_null(strstr(seen->sentence[rank], "parameter 0 (a) was not used in the first step"));
	}
	free(seen);
}

/* ---- Uneven input --------------------------------------------------------------------------------------------- */

/* Rank r has 4 - r steps in the first epoch and 2 + r in the second; the "optimiser" subtracts the gradient. */
static void run_out(collet_comm *comm, void *context)
{
	struct seen *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp *ddp = create(comm, seen);
	for (uint32_t epoch = 0; epoch < 2; epoch++) {
		const uint32_t steps = epoch == 0 ? 4 - rank : 2 + rank;
		uint64_t taken = 99;
		for (uint32_t step = 0; step < steps; step++) {
			for (uint32_t p = PARAMETERS; p-- > 0;) {
				put(ddp, p, (float)(6 * (rank + 1)));
				note_status(seen, rank, collet_ddp_ready(ddp, p));
			}
			note_status(seen, rank, collet_ddp_wait(ddp));
			for (uint32_t i = 0; i < PARAMETERS * ELEMENTS; i++)
				seen->values_of[rank][i] -= *(float *)collet_ddp_gradient(ddp, 0);
		}
		note_status(seen, rank, collet_ddp_join(ddp, &taken));
		note(seen, rank, (double)(taken + steps));
		note(seen, rank, seen->values_of[rank][0]);
		note(seen, rank, seen->values_of[rank][PARAMETERS * ELEMENTS - 1]);
	}
	note_status(seen, rank, collet_ddp_destroy(&ddp));
}

static void ranks_may_run_out_of_input(void **state)
{
	/* Divided by ranks with input: 12, 12, 9 (ranks 0, 1), 6 (rank 0); then 12, 12, 15 (ranks 1, 2), 18 (rank
	 * 2). */
	static const collet_ddp_options by_live[] = {
		{ .has_uneven_inputs = true },
		{ .has_uneven_inputs = true, .keep_order = true, .first_bucket_bytes = 1, .bucket_bytes = 1 },
		{ .has_uneven_inputs = true, .unused = COLLET_DDP_FIND_UNUSED },
		{ .has_uneven_inputs = true, .unused = COLLET_DDP_STATIC_UNUSED },
	};
	for (size_t row = 0; row < sizeof(by_live) / sizeof(by_live[0]); row++) {
		struct seen *seen = run(run_out, &by_live[row]);
		expect(seen, (double[]){ 4, -39, -39, 4, -96, -96 }, 6);
		free(seen);
	}
	/* Divided by all ranks: 12, 12, 6, 2; then 12, 12, 10, 6. */
	static const collet_ddp_options by_all = { .has_uneven_inputs = true, .divide_by_initial = true };
	struct seen *seen = run(run_out, &by_all);
	expect(seen, (double[]){ 4, -32, -32, 4, -72, -72 }, 6);
	free(seen);
}

static void join_at_once(collet_comm *comm, void *context)
{
	struct seen *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp *ddp = create(comm, seen);
	uint64_t taken = 99;
	note_status(seen, rank, collet_ddp_join(ddp, &taken));
	note(seen, rank, (double)taken);
	note_status(seen, rank, collet_ddp_join(ddp, NULL));
	note_status(seen, rank, collet_ddp_destroy(&ddp));
}

static void nobody_has_input(void **state)
{
	static const collet_ddp_options options = { .has_uneven_inputs = true };
	struct seen *seen = run(join_at_once, &options);
	expect(seen, (double[]){ 0 }, 1);
	free(seen);
}

/* ---- Buffers -------------------------------------------------------------------------------------------------- */

static void keep_buffers(collet_comm *comm, void *context)
{
	struct seen *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	static const uint64_t three = 3;
	const collet_ddp_parameter buffers[] = {
		{ .name = "running",
			.value = seen->running[rank],
			.shape = &three,
			.dimensions = 1,
			.dtype = COLLET_F32 },
		{ .name = "counter", .value = &seen->counter[rank], .dtype = COLLET_I64 },
	};
	collet_ddp_options options = { .has_uneven_inputs = true, .buffers = buffers, .buffer_count = 2 };
	const uint64_t wide = ELEMENTS;
	const collet_ddp_parameter parameter = {
		.name = "a", .value = seen->values_of[rank], .shape = &wide, .dimensions = 1, .dtype = COLLET_F32 };
	collet_ddp *ddp = NULL;
	seen->counter[rank] = 10 + rank;
	note_status(seen, rank, collet_ddp_create(&ddp, comm, &parameter, 1, &options));
	note(seen, rank, (double)seen->counter[rank]);
	/* Rank 0 runs out after one step; the buffers are rank 1's then. */
	for (uint32_t step = 0; step < 1 + (rank > 0); step++) {
		seen->counter[rank] += 100 * (rank + 1);
		seen->running[rank][2] = (float)(rank + step);
		note_status(seen, rank, collet_ddp_ready(ddp, 0));
		note_status(seen, rank, collet_ddp_wait(ddp));
	}
	note_status(seen, rank, collet_ddp_join(ddp, NULL));
	note(seen, rank, (double)seen->counter[rank]);
	note(seen, rank, seen->running[rank][2]);
	note_status(seen, rank, collet_ddp_destroy(&ddp));
}

static void buffers_are_those_of_the_lowest_rank_that_lives(void **state)
{
	struct seen *seen = run(keep_buffers, NULL);
	expect(seen, (double[]){ 10, 110 + 200, 2 }, 3);
	free(seen);
}

/* ---- Another layout ------------------------------------------------------------------------------------------- */

static void ready_in_some_order(collet_comm *comm, void *context)
{
	struct seen *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	static const uint32_t orders[RANKS][PARAMETERS] = { { 1, 3, 0, 2 }, { 0, 1, 2, 3 }, { 3, 2, 1, 0 } };
	collet_ddp *ddp = create(comm, seen);
	for (uint32_t step = 0; step < 3; step++) {
		note(seen, rank, collet_ddp_layout(ddp));
		for (uint32_t k = 0; k < PARAMETERS; k++) {
			const uint32_t p = orders[rank][k];
			put(ddp, p, (float)((rank + 1) * (p + 1)));
			note_status(seen, rank, collet_ddp_ready(ddp, p));
		}
		finish(ddp, seen, rank);
	}
	for (uint32_t b = 0; b < collet_ddp_bucket_count(ddp); b++) {
		collet_ddp_bucket bucket;
		collet_ddp_interval travel;
		note_status(seen, rank, collet_ddp_bucket_get(ddp, b, &bucket));
		note(seen, rank, bucket.slices[0].parameter);
		note_status(seen, rank, collet_ddp_last_travel(ddp, b, &travel));
		note(seen, rank, travel.began_ns > 0 && travel.ended_ns >= travel.began_ns);
	}
	note_status(seen, rank, collet_ddp_destroy(&ddp));
}

static void buckets_are_laid_out_as_gradients_become_ready_on_rank_0(void **state)
{
	static const collet_ddp_options moves = { .first_bucket_bytes = 1, .bucket_bytes = 1 };
	struct seen *seen = run(ready_in_some_order, &moves);
	expect(seen, (double[]){ 0, 2, 4, 6, 8, 1, 2, 4, 6, 8, 1, 2, 4, 6, 8, 1, 1, 3, 1, 0, 1, 2, 1 }, 23);
	free(seen);
	static const collet_ddp_options stays = { .first_bucket_bytes = 1, .bucket_bytes = 1, .keep_order = true };
	seen = run(ready_in_some_order, &stays);
	expect(seen, (double[]){ 0, 2, 4, 6, 8, 0, 2, 4, 6, 8, 0, 2, 4, 6, 8, 3, 1, 2, 1, 1, 1, 0, 1 }, 23);
	free(seen);
}

/* ---- Clipping ------------------------------------------------------------------------------------------------- */

static void clip(collet_comm *comm, void *context)
{
	struct seen *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp *ddp = create(comm, seen);
	double norm;
	for (uint32_t p = PARAMETERS; p-- > 0;) {
		put(ddp, p, p == 0 ? 3 : p == 1 ? 4 : 0);
		note_status(seen, rank, collet_ddp_ready(ddp, p));
	}
	note(seen, rank, collet_ddp_clip(ddp, 1, &norm));
	note_status(seen, rank, collet_ddp_wait(ddp));
	note_status(seen, rank, collet_ddp_clip(ddp, INFINITY, &norm));
	note(seen, rank, norm / sqrt(ELEMENTS));
	note(seen, rank, got(ddp, 0));
	note_status(seen, rank, collet_ddp_clip(ddp, sqrt(ELEMENTS), &norm));
	note(seen, rank, norm / sqrt(ELEMENTS));
	note(seen, rank, got(ddp, 0));
	note(seen, rank, got(ddp, 1));
	put(ddp, 2, INFINITY);
	note_status(seen, rank, collet_ddp_clip(ddp, 1, &norm));
	note(seen, rank, isinf(norm));
	note(seen, rank, got(ddp, 1));
	note(seen, rank, collet_ddp_clip(ddp, 0, &norm));
	note(seen, rank, collet_ddp_clip(ddp, NAN, &norm));
	note_status(seen, rank, collet_ddp_destroy(&ddp));
}

static void gradients_are_clipped_by_their_global_norm(void **state)
{
	struct seen *seen = run(clip, NULL);
	expect(seen,
		(double[]){COLLET_ERR_ARGUMENT, 5, 3, 5, 0.6, 0.8, 1, 0.8, COLLET_ERR_ARGUMENT, COLLET_ERR_ARGUMENT},
		10);
	free(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_without_sync_only_add_up),
		cmocka_unit_test(who_does_not_use_a_parameter_adds_zeros),
		cmocka_unit_test(a_static_set_stays_as_it_was),
		cmocka_unit_test(ranks_may_run_out_of_input),
		cmocka_unit_test(nobody_has_input),
		cmocka_unit_test(buffers_are_those_of_the_lowest_rank_that_lives),
		cmocka_unit_test(buckets_are_laid_out_as_gradients_become_ready_on_rank_0),
		cmocka_unit_test(gradients_are_clipped_by_their_global_norm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
