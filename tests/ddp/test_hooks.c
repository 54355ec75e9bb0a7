/* Tests the communication hooks. Every hook leaves the same bits on all ranks, as near the average as its kind allows,
 * with as few bytes as it promises. What a step leaves out comes in later ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/ddp_hook.h>

#include "thread_ranks.h"

enum { RANKS_MOST = 4, PARAMETERS = 3, STEPS_MOST = 40, ELEMENTS = 64 * 900 + 37 + 3 };

static const uint64_t shapes[PARAMETERS][2] = { { 64, 900 }, { 37, 1 }, { 3, 1 } };

static uint64_t count_of(uint32_t p)
{
	return shapes[p][0] * shapes[p][1];
}

/* One run: what every rank did and saw. Only the main thread asserts. */
struct run {
	const char *words;
	uint32_t ranks, steps;
	uint64_t bucket_bytes;
	bool first_to_last;                 /* gradients become ready in this order, and buckets follow it */
	uint32_t layout[RANKS_MOST];
	float (*gradient)(uint32_t rank, uint32_t step, uint64_t i);
	float sums[RANKS_MOST][ELEMENTS];   /* of the results, over the steps */
	float last[RANKS_MOST][ELEMENTS];   /* result of the last step */
	float kept[RANKS_MOST];             /* the largest magnitude found between slices */
	double wire[RANKS_MOST];            /* bytes per step and element of 4 bytes */
	collet_status status[RANKS_MOST];
	char sentence[RANKS_MOST][512];
};

static bool note(struct run *run, uint32_t rank, collet_status status)
{
	run->status[rank] = status;
	if (status != COLLET_OK)
		snprintf(run->sentence[rank], sizeof(run->sentence[rank]), "%s", collet_last_error());
	return status == COLLET_OK;
}

static bool step(struct run *run, uint32_t rank, collet_ddp *ddp, uint32_t s)
{
	for (uint32_t k = 0; k < PARAMETERS; k++) {
		const uint32_t p = run->first_to_last ? k : PARAMETERS - 1 - k;
		float *gradient = collet_ddp_gradient(ddp, p);
		const uint64_t first = p == 0 ? 0 : p == 1 ? count_of(0) : count_of(0) + count_of(1);
		for (uint64_t i = 0; i < count_of(p); i++)
			gradient[i] = run->gradient(rank, s, first + i);
		if (!note(run, rank, collet_ddp_ready(ddp, p)))
			return false;
	}
	return note(run, rank, collet_ddp_wait(ddp));
}

static void look(struct run *run, uint32_t rank, const collet_ddp *ddp)
{
	uint64_t at = 0;
	for (uint32_t p = 0; p < PARAMETERS; p++) {
		const float *gradient = collet_ddp_gradient(ddp, p);
		for (uint64_t i = 0; i < count_of(p); i++, at++) {
			run->sums[rank][at] += gradient[i];
			run->last[rank][at] = gradient[i];
		}
	}
	for (uint32_t b = 0; b < collet_ddp_bucket_count(ddp); b++) {
		collet_ddp_bucket bucket;
		if (!note(run, rank, collet_ddp_bucket_get(ddp, b, &bucket)))
			return;
		for (uint32_t s = 0; s < bucket.slice_count; s++) {
			const uint64_t to = s + 1 < bucket.slice_count ? bucket.slices[s + 1].first : bucket.count;
			for (uint64_t i = bucket.slices[s].first + bucket.slices[s].count; i < to; i++)
				run->kept[rank] = fmaxf(run->kept[rank], fabsf(((float *)bucket.gradients)[i]));
		}
	}
}

static void train(collet_comm *comm, void *context)
{
	struct run *run = context;
	const uint32_t rank = collet_comm_rank(comm);
	static float values[RANKS_MOST][ELEMENTS];
	collet_ddp_parameter parameters[PARAMETERS];
	for (uint32_t p = 0; p < PARAMETERS; p++)
		parameters[p] = (collet_ddp_parameter){ .name = "w", .value = values[rank], .shape = shapes[p],
			.dimensions = p == 0 ? 2 : 1, .dtype = COLLET_F32 };
	collet_ddp_hook *hook = NULL;
	collet_ddp *ddp = NULL;
	if (run->words && !note(run, rank, collet_ddp_hook_create(&hook, run->words, 7)))
		return;
	const collet_ddp_options options = { .hook = hook,
		.keep_order = !run->first_to_last,
		.algorithm = "halving_doubling",
		.first_bucket_bytes = run->bucket_bytes,
		.bucket_bytes = run->bucket_bytes };
	collet_ddp_traffic traffic;
	bool fine = note(run, rank, collet_ddp_create(&ddp, comm, parameters, PARAMETERS, &options));
	for (uint32_t s = 0; fine && s < run->steps; s++) {
		fine = step(run, rank, ddp, s);
		if (fine)
			look(run, rank, ddp);
	}
	if (fine && note(run, rank, collet_ddp_traffic_get(ddp, &traffic)))
		run->wire[rank] = (double)traffic.bytes_sent / (double)traffic.steps / ELEMENTS;
	run->layout[rank] = collet_ddp_layout(ddp);
	if (ddp && fine)
		note(run, rank, collet_ddp_destroy(&ddp));
	if (hook)
		fine = collet_ddp_hook_destroy(&hook) == COLLET_OK;
}

/* Every rank ends well, with equal results and zeros between the slices. */
static void run_as_told(struct run *run)
{
	const char *words = run->words;
	const uint32_t ranks = run->ranks;
	thread_ranks_run(ranks, train, run);
	for (uint32_t rank = 0; rank < ranks; rank++) {
		if (run->status[rank] != COLLET_OK)
			fail_msg("%s, rank %u: %s", words ? words : "none", rank, run->sentence[rank]);
		assert_memory_equal(run->last[rank], run->last[0], sizeof(run->last[0]));
		assert_true(run->kept[rank] == 0);
	}
}

static struct run *run_alike(const char *words, uint32_t ranks, uint32_t steps, uint64_t bucket_bytes,
	float (*gradient)(uint32_t, uint32_t, uint64_t))
{
	struct run *run = calloc(1, sizeof(*run));
	*run = (struct run){ .words = words, .ranks = ranks, .steps = steps, .bucket_bytes = bucket_bytes,
		.gradient = gradient };
	run_as_told(run);
	return run;
}

static float bits_of(uint32_t x)
{
	x = (x ^ x >> 16) * 0x7feb352dU;
	x = (x ^ x >> 15) * 0x846ca68bU;
	return (float)(int32_t)(x ^ x >> 16) * 0x1p-31F;
}

/* The same in every step; each rank has its own. */
static float noise(uint32_t rank, uint32_t step, uint64_t i)
{
	return bits_of((uint32_t)i * 9 + rank);
}

static float changing_noise(uint32_t rank, uint32_t step, uint64_t i)
{
	return bits_of((uint32_t)i * 9 + rank + 1000003 * step);
}

/* A matrix of rank one, on every rank a multiple of the same, and a vector that is sent whole. */
static float thin(uint32_t rank, uint32_t step, uint64_t i)
{
	const float part = (float)(rank + 1);
	return i < 64 * 900 ? part * bits_of((uint32_t)(i / 900)) * bits_of(1000 + (uint32_t)(i % 900))
			    : part * (float)i;
}

static double exact_mean(const struct run *run, uint32_t step, uint64_t i)
{
	double sum = 0;
	for (uint32_t rank = 0; rank < run->ranks; rank++)
		sum += run->gradient(rank, step, i);
	return sum / run->ranks;
}

/* One step's result is near the mean: within this distance, for gradients in [-1, 1). */
static void one_step_is_near_the_mean(void **state)
{
	static const struct {
		const char *words;
		double most;
	} rows[] = {
		{ NULL, 1e-6 },
		{ "f16", 1e-3 },
		{ "bf16", 8e-3 },
		{ "topk:1", 1e-6 },
		{ "randomk:1", 1e-6 },
		{ "qsgd:8", 2.0 / 127 },     /* rounded twice, each time by less than a level */
		{ "qsgd:4", 2.0 / 7 },
		{ "qsgd:2", 2 },
		{ "powersgd:64", 1e-4 },     /* a matrix of 64 rows, which would not get smaller */
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		for (uint32_t ranks = 1; ranks <= RANKS_MOST; ranks++) {
			struct run *run = run_alike(rows[row].words, ranks, 1, ranks % 2 ? 1 << 20 : 100, noise);
			for (uint64_t i = 0; i < ELEMENTS; i++)
				if (fabs(run->last[0][i] - exact_mean(run, 0, i)) > rows[row].most)
					fail_msg("%s, %u ranks: element %llu is %g, not %g",
						rows[row].words ? rows[row].words : "none", ranks,
						(unsigned long long)i, (double)run->last[0][i], exact_mean(run, 0, i));
			free(run);
		}
	}
}

/* A lossless hook gives the velocity's mean: each step's gradient, and half of the previous velocity. */
static void momentum_goes_before_compression(void **state)
{
	static const struct {
		const char *words;
		double most;
	} rows[] = { { "topk:1,momentum:0.5", 1e-6 }, { "randomk:1,momentum:0.5", 1e-6 }, { "f16,momentum:0.5", 3e-3 },
		{ "qsgd:8,momentum:0.5", 4.0 / 127 }, { "powersgd:64,momentum:0.5", 1e-4 } };
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct run *run = run_alike(rows[row].words, 3, 3, row % 2 ? 1 << 20 : 100, noise);
		for (uint64_t i = 0; i < ELEMENTS; i++) {
			const double expected = exact_mean(run, 2, i) + 0.5 * exact_mean(run, 1, i) +
				0.25 * exact_mean(run, 0, i);
			if (fabs(run->last[0][i] - expected) > rows[row].most)
				fail_msg("%s: element %llu is %g, not %g", rows[row].words, (unsigned long long)i,
					(double)run->last[0][i], expected);
		}
		free(run);
	}
}

/* About a tenth of the matrix comes out in a step, and all of the vectors behind it. */
static void random_draws_leave_vectors_whole(void **state)
{
	struct run *run = run_alike("randomk:0.1", 3, 1, 1 << 20, noise);
	uint64_t drawn = 0;
	for (uint64_t i = 0; i < ELEMENTS; i++) {
		const float came = run->last[0][i];
		const bool there = fabs((double)came - exact_mean(run, 0, i)) < 1e-6;
		drawn += i < count_of(0) && there;
		assert_true(there || (came == 0 && i < count_of(0)));
	}
	assert_in_range(drawn, count_of(0) / 11, count_of(0) / 9);
	free(run);
}

/* Everything comes out in the end: the mean over many steps is nearer than that of one. */
static void what_a_step_leaves_out_comes_later(void **state)
{
	static const struct {
		const char *words;
		double most;  /* root of the mean square error of the sum over all steps, in steps */
	} rows[] = { { "topk:0.2", 6 }, { "randomk:0.2", 6 }, { "qsgd:4", 0.3 }, { "qsgd:2", 2 }, { "sign", 6 } };
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct run *run = run_alike(rows[row].words, 3, STEPS_MOST, 1 << 20, noise);
		double squares = 0;
		for (uint64_t i = 0; i < ELEMENTS; i++) {
			const double error = run->sums[0][i] - STEPS_MOST * exact_mean(run, 0, i);
			squares += error * error;
		}
		if (sqrt(squares / ELEMENTS) > rows[row].most)
			fail_msg("%s: %g", rows[row].words, sqrt(squares / ELEMENTS));
		free(run);
	}
}

static void a_matrix_of_low_rank_arrives_whole(void **state)
{
	static const char *const words[] = { "powersgd:1", "powersgd:2", "powersgd:4" };
	for (size_t row = 0; row < 3; row++) {
		for (uint32_t ranks = 1; ranks <= 3; ranks++) {
			struct run *run = run_alike(words[row], ranks, 2, 1 << 20, thin);
			for (uint64_t i = 0; i < ELEMENTS; i++)
				if (!(fabs(run->last[0][i] - exact_mean(run, 1, i)) <
					    1e-4 * fabs(exact_mean(run, 1, i)) + 1e-4))
					fail_msg("%s, %u ranks: element %llu is %g, not %g", words[row], ranks,
						(unsigned long long)i, (double)run->last[0][i], exact_mean(run, 1, i));
			free(run);
		}
	}
}

/* A hook's state of a bucket belongs to the final layout: the first step is averaged without compression. */
static void a_hook_begins_when_the_layout_is_settled(void **state)
{
	static const char *const words[] = { "bf16", "qsgd:8", "topk:1", "powersgd:64" };
	for (size_t row = 0; row < 4; row++) {
		for (uint32_t steps = 1; steps <= 3; steps += 2) {
			struct run *run = calloc(1, sizeof(*run));
			*run = (struct run){ .words = words[row], .ranks = 3, .steps = steps, .bucket_bytes = 100,
				.gradient = changing_noise, .first_to_last = true };
			run_as_told(run);
			assert_int_equal(run->layout[1], 1);
			const double most = steps == 1 ? 1e-6 : 2.0 / 127;
			for (uint64_t i = 0; i < ELEMENTS; i++)
				assert_true(fabs(run->last[0][i] - exact_mean(run, steps - 1, i)) <= most);
			free(run);
		}
	}
}

/* A choice of algorithm may send more bytes to be faster; here all algorithms send the least. */
static void bytes_on_the_wire(void **state)
{
	static const struct {
		const char *words;
		double most;  /* relative to f32 */
	} rows[] = {
		{ "f16", 0.51 },
		{ "bf16", 0.51 },
		{ "qsgd:8", 0.27 },
		{ "qsgd:4", 0.15 },
		{ "qsgd:2", 0.08 },
		{ "sign", 0.05 },
		{ "randomk:0.1", 0.11 },
		{ "topk:0.01", 0.05 },
		{ "powersgd:2", 0.05 },
	};
	setenv("COLLET_ALGORITHM", "allreduce:ring,allgather:ring,alltoall:direct", 1);
	for (uint32_t ranks = 2; ranks <= RANKS_MOST; ranks += 2) {
		struct run *whole = run_alike(NULL, ranks, 4, 1 << 20, changing_noise);
		for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
			struct run *run = run_alike(rows[row].words, ranks, 4, 1 << 20, changing_noise);
			for (uint32_t rank = 0; rank < ranks; rank++)
				if (run->wire[rank] > rows[row].most * whole->wire[rank] || run->wire[rank] <= 0)
					fail_msg("%s, %u ranks: %g bytes an element, f32 %g", rows[row].words, ranks,
						run->wire[rank], whole->wire[rank]);
			free(run);
		}
		free(whole);
	}
	unsetenv("COLLET_ALGORITHM");
}

/* ---- Refusals ------------------------------------------------------------------------------------------------- */

static void words_that_make_no_sense_are_refused(void **state)
{
	static const char *const words[] = {"", "f8", "sign,", "sign,momentum:1", "sign,momentum:x", ",momentum:0.9",
		"topk", "topk:0", "topk:1.5", "topk:x", "randomk:-1", "qsgd:3", "qsgd:16", "powersgd:0", "powersgd:1.5",
		"sign:1", "topk:nan"};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		collet_ddp_hook *hook = NULL;
		assert_int_equal(collet_ddp_hook_create(&hook, words[i], 0), COLLET_ERR_ARGUMENT);
		assert_null(hook);
		assert_non_null(strstr(collet_last_error(), "qsgd:BITS"));
	}
	assert_int_equal(collet_ddp_hook_create(NULL, "f16", 0), COLLET_ERR_ARGUMENT);
	assert_int_equal(collet_ddp_hook_destroy(NULL), COLLET_ERR_ARGUMENT);
}

struct refused {
	const char *words[2];
	collet_status created[2], ready[2];
	char sentence[2][512];
};

static void try_to_train(collet_comm *comm, void *context)
{
	struct refused *seen = context;
	const uint32_t rank = collet_comm_rank(comm);
	static double values[2][16];
	const uint64_t shape = 16;
	const collet_ddp_parameter parameter = {
		.name = "w", .value = values[rank], .shape = &shape, .dimensions = 1, .dtype = COLLET_F64 };
	collet_ddp_hook *hook = NULL;
	collet_ddp *ddp = NULL;
	seen->created[rank] = collet_ddp_hook_create(&hook, seen->words[rank], 0);
	const collet_ddp_options options = { .hook = hook, .keep_order = true };
	if (seen->created[rank] == COLLET_OK)
		seen->created[rank] = collet_ddp_create(&ddp, comm, &parameter, 1, &options);
	if (seen->created[rank] == COLLET_OK)
		seen->ready[rank] = collet_ddp_ready(ddp, 0);
	snprintf(seen->sentence[rank], sizeof(seen->sentence[rank]), "%s", collet_last_error());
	if (ddp)
		(void)collet_ddp_destroy(&ddp);
	(void)collet_ddp_hook_destroy(&hook);
}

static void a_dtype_that_a_hook_does_not_take_is_named(void **state)
{
	static const char *const words[] = { "f16", "bf16", "topk:0.5", "randomk:0.5", "qsgd:8", "sign", "powersgd:1" };
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct refused seen = { .words = { words[i], words[i] } };
		thread_ranks_run(2, try_to_train, &seen);
		for (uint32_t rank = 0; rank < 2; rank++) {
			assert_int_equal(seen.created[rank], COLLET_OK);
			assert_int_equal(seen.ready[rank], COLLET_ERR_UNSUPPORTED);
			assert_non_null(
				strstr(seen.sentence[rank], "supports f32 gradients only, and bucket 0 has f64"));
		}
	}
}

static void another_hook_on_another_rank_is_refused(void **state)
{
	struct refused seen = { .words = { "qsgd:8", "qsgd:4" } };
	thread_ranks_run(2, try_to_train, &seen);
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_int_equal(seen.created[rank], COLLET_ERR_ARGUMENT);
		assert_non_null(strstr(seen.sentence[rank], "the hook is 'qsgd:4"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_step_is_near_the_mean),
		cmocka_unit_test(momentum_goes_before_compression),
		cmocka_unit_test(random_draws_leave_vectors_whole),
		cmocka_unit_test(what_a_step_leaves_out_comes_later),
		cmocka_unit_test(a_matrix_of_low_rank_arrives_whole),
		cmocka_unit_test(a_hook_begins_when_the_layout_is_settled),
		cmocka_unit_test(bytes_on_the_wire),
		cmocka_unit_test(words_that_make_no_sense_are_refused),
		cmocka_unit_test(a_dtype_that_a_hook_does_not_take_is_named),
		cmocka_unit_test(another_hook_on_another_rank_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
