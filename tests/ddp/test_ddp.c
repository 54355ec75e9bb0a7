/* Tests the contract of data-parallel training: equal at the start, averaged every step, and differences are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/ddp.h>

#include "thread_ranks.h"

enum { RANKS = 3, PARAMETERS = 4, ELEMENTS = 1000 };

static const uint64_t shapes[PARAMETERS][2] = { { 10, 7 }, { 1000, 1 }, { 1, 1 }, { 3, 0 } };

/* Describes parameters of these shapes over values (ELEMENTS each). */
static void describe(collet_ddp_parameter *parameters, float *values)
{
	static const char *const names[PARAMETERS] = { "conv.weight", "conv.bias", "scalar", "empty" };
	for (uint32_t p = 0; p < PARAMETERS; p++)
		parameters[p] = (collet_ddp_parameter){ .name = names[p],
			.value = values + p * ELEMENTS,
			.shape = shapes[p],
			.dimensions = p == 2 ? 0 : 2,
			.dtype = COLLET_F32 };
}

static uint64_t count_of(uint32_t p)
{
	return p == 2 ? 1 : shapes[p][0] * shapes[p][1];
}

/* What each rank saw. Only the main thread asserts. */
struct report {
	const collet_ddp_options *options;
	collet_status created[RANKS], stepped[RANKS], destroyed[RANKS];
	float values[RANKS][PARAMETERS * ELEMENTS];
	float gradients[RANKS][2][PARAMETERS * ELEMENTS];
	uint32_t buckets[RANKS];
	bool aligned[RANKS];
	char sentences[RANKS][512];
	void (*spoil)(uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options);
};

static float first_value(uint32_t rank, uint32_t p, uint64_t i)
{
	return (float)(rank * 1000 + p * 100) + (float)i / 3;
}

static float gradient_value(uint32_t rank, uint32_t step, uint32_t p, uint64_t i)
{
	return (float)(rank + 1) / (float)(3 + step) + (float)(i * (p + 1)) / 7;
}

static collet_status step(collet_comm *comm, collet_ddp *ddp, uint32_t s, float *averaged)
{
	const uint32_t rank = collet_comm_rank(comm);
	for (uint32_t k = 0; k < PARAMETERS; k++) {
		/* Each rank computes its gradients in another order. */
		const uint32_t p = (k + rank + s) % PARAMETERS;
		float *gradient = collet_ddp_gradient(ddp, p);
		for (uint64_t i = 0; i < count_of(p); i++)
			gradient[i] = gradient_value(rank, s, p, i);
		collet_status status = collet_ddp_ready(ddp, p);
		if (status != COLLET_OK)
			return status;
	}
	collet_status status = collet_ddp_wait(ddp);
	for (uint32_t p = 0; p < PARAMETERS; p++)
		if (count_of(p) > 0)
			memcpy(averaged + p * ELEMENTS, collet_ddp_gradient(ddp, p), count_of(p) * sizeof(float));
	return status;
}

static void train_two_steps(collet_comm *comm, void *context)
{
	struct report *report = context;
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp_parameter parameters[PARAMETERS];
	collet_ddp *ddp = NULL;
	describe(parameters, report->values[rank]);
	for (uint32_t p = 0; p < PARAMETERS; p++)
		for (uint64_t i = 0; i < count_of(p); i++)
			report->values[rank][p * ELEMENTS + i] = first_value(rank, p, i);
	report->created[rank] = collet_ddp_create(&ddp, comm, parameters, PARAMETERS, report->options);
	if (report->created[rank] != COLLET_OK)
		return;
	report->buckets[rank] = collet_ddp_bucket_count(ddp);
	report->aligned[rank] = true;
	for (uint32_t p = 0; p < PARAMETERS; p++)
		if ((uintptr_t)collet_ddp_gradient(ddp, p) % 64 != 0)
			report->aligned[rank] = false;
	for (uint32_t s = 0; s < 2 && report->stepped[rank] == COLLET_OK; s++)
		report->stepped[rank] = step(comm, ddp, s, report->gradients[rank][s]);
	report->destroyed[rank] = collet_ddp_destroy(&ddp);
}

/* For any size of buckets, values are rank 0's, gradients the average, and all ranks have the same bits. */
static void ranks_start_equal_and_gradients_are_averaged(void **state)
{
	static const struct {
		collet_ddp_options options;
		uint32_t buckets;
	} rows[] = {
		{ { 0 }, 1 },
		{ { .first_bucket_bytes = 1, .bucket_bytes = 1 }, 3 },  /* an empty gradient fills nothing */
		{ { .first_bucket_bytes = 1, .bucket_bytes = 1 << 20 }, 2 },
		{ { .first_bucket_bytes = 65, .bucket_bytes = 1 }, 2 },
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct report *report = calloc(1, sizeof(*report));
		report->options = row > 0 ? &rows[row].options : NULL;
		thread_ranks_run(RANKS, train_two_steps, report);
		for (uint32_t rank = 0; rank < RANKS; rank++) {
			assert_int_equal(report->created[rank], COLLET_OK);
			assert_int_equal(report->stepped[rank], COLLET_OK);
			assert_int_equal(report->destroyed[rank], COLLET_OK);
			assert_true(report->aligned[rank]);
			assert_memory_equal(
				report->gradients[rank], report->gradients[0], sizeof(report->gradients[0]));
			for (uint32_t p = 0; p < PARAMETERS; p++) {
				for (uint64_t i = 0; i < count_of(p); i++) {
					const float value = report->values[rank][p * ELEMENTS + i];
					assert_true(value == first_value(0, p, i));
					for (uint32_t s = 0; s < 2; s++) {
						float exact = gradient_value(0, s, p, i) + gradient_value(1, s, p, i) +
							gradient_value(2, s, p, i);
						assert_float_equal(report->gradients[rank][s][p * ELEMENTS + i],
							exact / 3, 1e-4F * (exact + 1));
					}
				}
			}
			assert_int_equal(report->buckets[rank], rows[row].buckets);
		}
		free(report);
	}
}

static void other_shape(uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options)
{
	static const uint64_t wrong[2] = { 7, 10 };
	if (rank == 2)
		parameters[0].shape = wrong;
}

static void other_dtype(uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options)
{
	if (rank == 1)
		parameters[1].dtype = COLLET_F64;
}

static void fewer_dimensions(
	uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options)
{
	if (rank == 1)
		parameters[1].dimensions = 1;
}

static void fewer_parameters(
	uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options)
{
	if (rank == 1)
		*count = 3;
}

static void other_buckets(uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options)
{
	if (rank == 2)
		options->bucket_bytes = 4096;
}

static void integer_gradient(
	uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options)
{
	if (rank == 1)
		parameters[1].dtype = COLLET_I32;
}

static void no_value(uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options)
{
	if (rank == 1)
		parameters[1].value = NULL;
}

static void endless_shape(uint32_t rank, collet_ddp_parameter *parameters, uint32_t *count, collet_ddp_options *options)
{
	static const uint64_t wrong[2] = { UINT64_C(1) << 63, 2 };
	if (rank == 1)
		parameters[1].shape = wrong;
}

static void create_poisoned(collet_comm *comm, void *context)
{
	struct report *report = context;
	const uint32_t rank = collet_comm_rank(comm);
	collet_ddp_parameter parameters[PARAMETERS];
	uint32_t count = PARAMETERS;
	collet_ddp_options options = { 0 };
	collet_ddp *ddp = NULL;
	describe(parameters, report->values[rank]);
	report->values[rank][0] = (float)rank;
	report->spoil(rank, parameters, &count, &options);
	report->created[rank] = collet_ddp_create(&ddp, comm, parameters, count, &options);
	snprintf(report->sentences[rank], sizeof(report->sentences[rank]), "%s", collet_last_error());
	/* The communicator works on. */
	report->stepped[rank] = ddp ? COLLET_ERR_ARGUMENT : collet_barrier(comm, NULL);
}

static void what_differs_between_ranks_is_refused_by_name(void **state)
{
	static const struct {
		void (*spoil)(uint32_t, collet_ddp_parameter *, uint32_t *, collet_ddp_options *);
		const char *everywhere;
	} rows[] = {
		{ other_shape, "parameter 0 (conv.weight) is f32[7,10] on rank 2 and f32[10,7] on rank 0" },
		{ other_dtype, "parameter 1 (conv.bias) is f64[1000,1] on rank 1 and f32[1000,1] on rank 0" },
		{ fewer_dimensions, "parameter 1 (conv.bias) is f32[1000] on rank 1 and f32[1000,1] on rank 0" },
		{ fewer_parameters, "number of parameters is 3 on rank 1 and 4 on rank 0" },
		{ other_buckets, "bucket_bytes is 4096 on rank 2 and 26214400 on rank 0" },
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct report *report = calloc(1, sizeof(*report));
		report->spoil = rows[row].spoil;
		thread_ranks_run(RANKS, create_poisoned, report);
		for (uint32_t rank = 0; rank < RANKS; rank++) {
			assert_int_equal(report->created[rank], COLLET_ERR_ARGUMENT);
			assert_non_null(strstr(report->sentences[rank], rows[row].everywhere));
			assert_int_equal(report->stepped[rank], COLLET_OK);
			assert_true(report->values[rank][0] == (float)rank);
		}
		free(report);
	}
}

static void one_rank_that_makes_no_sense_holds_up_nobody(void **state)
{
	static const struct {
		void (*spoil)(uint32_t, collet_ddp_parameter *, uint32_t *, collet_ddp_options *);
		const char *there;
	} rows[] = {
		{ integer_gradient, "parameter 1 (conv.bias): its dtype is not a float" },
		{ no_value, "parameter 1 (conv.bias): its value is NULL" },
		{ endless_shape, "parameter 1 (conv.bias): its shape has too many elements" },
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct report *report = calloc(1, sizeof(*report));
		report->spoil = rows[row].spoil;
		thread_ranks_run(RANKS, create_poisoned, report);
		for (uint32_t rank = 0; rank < RANKS; rank++) {
			assert_int_equal(report->created[rank], COLLET_ERR_ARGUMENT);
			assert_non_null(strstr(report->sentences[rank],
				rank == 1 ? rows[row].there : "the arguments of rank 1 are invalid"));
			assert_int_equal(report->stepped[rank], COLLET_OK);
		}
		free(report);
	}
}

/* One rank is enough for the rules of marking. */
static void misuse(collet_comm *comm, void *context)
{
	collet_status *seen = context;
	static float values[PARAMETERS * ELEMENTS];
	collet_ddp_parameter parameters[PARAMETERS];
	collet_ddp *ddp = NULL;
	describe(parameters, values);
	const collet_ddp_options options = { .keep_order = true };
	seen[0] = collet_ddp_create(&ddp, comm, parameters, PARAMETERS, &options);
	seen[1] = collet_ddp_ready(ddp, 0);
	seen[2] = collet_ddp_ready(ddp, 0);
	seen[3] = collet_ddp_ready(ddp, PARAMETERS);
	seen[4] = collet_ddp_wait(ddp);
	for (uint32_t p = 1; p < PARAMETERS; p++)
		seen[5] = collet_ddp_ready(ddp, p);
	seen[6] = collet_ddp_wait(ddp);
	collet_ddp_bucket bucket;
	seen[7] = collet_ddp_bucket_get(ddp, 0, &bucket);
	/* From the last parameter to the first, each at a multiple of 64 bytes. */
	if (bucket.slice_count != PARAMETERS || bucket.slices[0].parameter != 3 || bucket.slices[3].parameter != 0 ||
		bucket.count != 16 + 1008 + 80 || collet_ddp_gradient(ddp, 0) != (float *)bucket.gradients + 16 + 1008)
		seen[7] = COLLET_PENDING;
	seen[8] = collet_ddp_bucket_get(ddp, 1, &bucket);
	seen[9] = collet_ddp_destroy(&ddp);
	seen[10] = collet_ddp_destroy(&ddp);
}

static void marking_twice_or_not_at_all_is_refused(void **state)
{
	static const collet_status expected[11] = {COLLET_OK, COLLET_OK, COLLET_ERR_ARGUMENT, COLLET_ERR_ARGUMENT,
		COLLET_ERR_ARGUMENT, COLLET_OK, COLLET_OK, COLLET_OK, COLLET_ERR_ARGUMENT, COLLET_OK,
		COLLET_ERR_ARGUMENT};
	collet_status seen[11];
	thread_ranks_run(1, misuse, seen);
	for (size_t i = 0; i < 11; i++)
		assert_int_equal(seen[i], expected[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_start_equal_and_gradients_are_averaged),
		cmocka_unit_test(what_differs_between_ranks_is_refused_by_name),
		cmocka_unit_test(one_rank_that_makes_no_sense_holds_up_nobody),
		cmocka_unit_test(marking_twice_or_not_at_all_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
