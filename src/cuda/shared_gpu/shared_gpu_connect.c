/* Before ranks rely on each other's GPU memory: the leader's launch combines a pattern of each of them into memory of
 * each of them, and all must find what they expect. On some machines a mapping reads or writes beside what it should,
 * without any error; then, or where there are no kernels, no memory, or no handles, all go by way of the host. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/lock.h"

enum {
	WORDS = 1024,                /* of the pattern */
	TEST_BYTES = 2 << 20         /* allocated, so that the driver gives a block of its own; ends are used */
};

/* One rank's memory: what is read at its start, what is written at its end. */
struct test {
	struct collet_direct *direct;
	struct call *call;
	cu_pointer memory;
	bool fine;
	char why[COLLET_ERROR_BYTES];
};

static uint32_t pattern(uint32_t rank, uint32_t word)
{
	const uint32_t mixed = (rank + 1) * 2654435761u ^ (word + 1) * 2246822519u;
	return mixed ^ mixed >> 15;
}

static void complain(struct test *test)
{
	if (test->fine)
		strncpy(test->why, collet_last_error(), sizeof(test->why) - 1);
	test->fine = false;
}

static uint32_t *result_of(const struct test *test)
{
	return (uint32_t *)(uintptr_t)(test->memory + TEST_BYTES - WORDS * sizeof(uint32_t));
}

/* Between collet_copier_begin() and end. */
static collet_status copy(const struct test *test, void *to, const void *from)
{
	static const char what[] = "testing a GPU's memory";
	const struct collet_direct *direct = test->direct;
	const collet_status status = collet_copier_add(
		direct->device->cuda, direct->copier, to, from, WORDS * sizeof(uint32_t), what);
	const collet_status waited = collet_copier_wait(direct->device->cuda, direct->copier, what);
	return status == COLLET_OK ? waited : status;
}

static collet_status fill(struct test *test)
{
	const struct collet_direct *direct = test->direct;
	uint32_t words[WORDS];
	const cu_result result = direct->device->cuda->cuMemAlloc(&test->memory, TEST_BYTES);
	if (result != CU_OK) {
		test->memory = 0;
		return collet_cuda_fail(direct->device->cuda, result, "allocating memory to test");
	}
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = pattern(direct->place, i);
	collet_status status = copy(test, (void *)(uintptr_t)test->memory, words);
	memset(words, 0, sizeof(words));
	if (status == COLLET_OK)
		status = copy(test, result_of(test), words);
	return status;
}

static collet_status prepare_leading(struct collet_direct *direct)
{
	collet_status status = collet_span_plan_init(&direct->plan, direct->size);
	if (status != COLLET_OK)
		return status;
	direct->ranks = calloc(direct->size, sizeof(*direct->ranks));
	direct->seen = calloc(direct->size, sizeof(*direct->seen));
	if (!direct->ranks || !direct->seen)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for what %u ranks' GPU does at once",
			direct->size);
	const struct collet_kernel_set *kernels = NULL;
	struct collet_kernel_set *found;
	status = collet_kernel_set_find(&direct->device->kernels, direct->copier, &found);
	if (status != COLLET_OK)
		return status;
	kernels = found;
	status = collet_copier_begin(direct->device->cuda, direct->copier);
	if (status != COLLET_OK)
		return status;
	const cu_result result = collet_cuda_make_stream(direct->device->cuda, &direct->stream);
	collet_copier_end(direct->device->cuda);
	if (result != CU_OK) {
		direct->stream = NULL;
		return collet_cuda_fail(direct->device->cuda, result, "making a stream for ranks that share a GPU");
	}
	direct->kernels = kernels;
	return COLLET_OK;
}

static collet_status prepare(struct test *test)
{
	struct collet_direct *direct = test->direct;
	const struct collet_residence own = {
		.device = true, .ordinal = direct->device->ordinal, .context = direct->device->context };
	collet_status status = collet_copier_find(direct->device->copiers, &own, &direct->copier);
	if (status == COLLET_OK && is_leader(direct))
		status = prepare_leading(direct);
	if (status == COLLET_OK)
		status = collet_copier_begin(direct->device->cuda, direct->copier);
	if (status == COLLET_OK) {
		status = fill(test);
		collet_copier_end(direct->device->cuda);
	}
	return status;
}

static void check(struct test *test)
{
	const struct collet_direct *direct = test->direct;
	uint32_t words[WORDS], wrong = 0;
	collet_status status = collet_copier_begin(direct->device->cuda, direct->copier);
	if (status == COLLET_OK) {
		status = copy(test, words, result_of(test));
		collet_copier_end(direct->device->cuda);
	}
	for (uint32_t i = 0; i < WORDS && status == COLLET_OK; i++) {
		uint32_t expected = 0;
		for (uint32_t r = 0; r < direct->size; r++)
			expected ^= pattern(r, i);
		wrong += words[i] != expected;
	}
	if (wrong)
		status = collet_fail(COLLET_ERR_SYSTEM,
			"cuda: of %d words that the leader wrote to this rank's memory %u are wrong; is an IOMMU in "
			"the way?",
			WORDS, wrong);
	if (status != COLLET_OK)
		complain(test);
}

/* ---- Rounds ---- */

static bool is_over(void *context)
{
	const struct test *test = context;
	return test->call->stage == OVER ||
	       atomic_load_explicit(&test->direct->group->end_status, memory_order_acquire) != COLLET_OK ||
	       atomic_load_explicit(&test->direct->shadow.end_status, memory_order_acquire) != COLLET_OK;
}

static collet_status end_of(const struct collet_direct *direct)
{
	const struct collet_comm_state *group = direct->group;
	int status = atomic_load_explicit(&group->end_status, memory_order_acquire);
	if (status == COLLET_OK) {
		group = &direct->shadow;
		status = atomic_load_explicit(&group->end_status, memory_order_acquire);
	}
	return status == COLLET_OK ? COLLET_OK : collet_fail_copy((enum collet_status)status, group->sentence);
}

/* *passed: all were fine, and, with sides, the leader has done its work. */
static collet_status run_round(struct test *test, uint64_t number, const struct collet_direct_side *sides, bool *passed)
{
	struct collet_direct *direct = test->direct;
	struct collet_engine *engine = direct->group->engine;
	struct call *call;
	*passed = false;
	collet_engine_lock(engine);
	test->call = call = collet_direct_new(direct);
	if (!call) {
		collet_engine_unlock(engine);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for ranks that share a GPU");
	}
	call->request = NULL;
	call->surprising = true;
	call->sides.function = direct->one_gpu ? "collectives of ranks that share a GPU go"
					       : "collectives of this host's ranks, on several GPUs, go";
	call->job = (struct job){ .collective = COLLET_ALLREDUCE, .any_order = true, .dtype = COLLET_U32,
		.op = COLLET_XOR, .count = sides ? WORDS : 0, .sequence = (uint64_t)-2 + number };
	struct offer *offer = offer_of(direct, call, 0);
	*offer = (struct offer){ .sequence = call->job.sequence, .fine = test->fine };
	if (sides)
		memcpy(offer->side, sides, sizeof(offer->side));
	collet_status status = collet_direct_offer(direct, call, sizeof(*offer));
	collet_engine_unlock(engine);
	if (status == COLLET_OK)
		collet_engine_wait(engine, is_over, test);
	collet_engine_lock(engine);
	if (status == COLLET_OK && call->stage == OVER)
		*passed = !call->verdict.staged;
	else if (status == COLLET_OK)
		status = end_of(direct);
	if (call->stage == OVER)
		collet_direct_put(direct, call);
	collet_engine_unlock(engine);
	return status;
}

static void describe(struct test *test, struct collet_direct_side sides[2])
{
	struct collet_direct_sides located = { .function = "testing", .side = {
		{ .first = (void *)(uintptr_t)test->memory, .bytes = WORDS * sizeof(uint32_t) },
		{ .first = result_of(test), .bytes = WORDS * sizeof(uint32_t) } } };
	if (collet_direct_locate(test->direct, &located) != COLLET_OK)
		complain(test);
	memcpy(sides, located.side, sizeof(located.side));
}

static void release(struct test *test)
{
	const struct collet_direct *direct = test->direct;
	const struct collet_cuda *cuda = direct->device->cuda;
	if (test->memory && collet_cuda_enter(cuda, direct->copier->context) == CU_OK) {
		(void)cuda->cuMemFree(test->memory);
		collet_cuda_leave(cuda);
	}
}

collet_status collet_direct_connect(struct collet_direct *direct, bool *fine)
{
	struct test test = { .direct = direct, .fine = true };
	struct collet_direct_side sides[2] = { { .first = NULL }, { .first = NULL } };
	direct->connecting = true;
	if (prepare(&test) != COLLET_OK)
		complain(&test);
	if (test.fine)
		describe(&test, sides);
	collet_status status = run_round(&test, 0, sides, fine);
	if (status == COLLET_OK && *fine) {
		check(&test);
		if (is_leader(direct))
			collet_order_offer(direct);
		status = run_round(&test, 1, NULL, fine);
	}
	if (status == COLLET_OK && *fine && !is_leader(direct))
		collet_order_take(direct);
	if (!test.fine)
		collet_log(direct->device->log, COLLET_LOG_WARN, "%s", test.why);
	release(&test);
	direct->connecting = false;
	return status;
}
