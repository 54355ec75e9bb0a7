/* Before ranks rely on each other's kernels: that what a GPU's copies write is there, and that collectives through all
 * lanes give what they should. Nobody's kernel waits for another's for ever: a test has a deadline. */
#include <stdio.h>
#include <stdlib.h>

#include "core/status.h"
#include "cuda/peer_gpus/internal.h"

enum { TEST_PIECE_BYTES = 4 << 10 };
static const int64_t TEST_NS = INT64_C(10) * 1000 * 1000 * 1000;

static uint32_t pattern(uint32_t rank, uint64_t word)
{
	const uint32_t mixed = (rank + 1) * 2654435761u ^ ((uint32_t)word + 1) * 2246822519u;
	return mixed ^ mixed >> 15;
}

static collet_status copy(struct collet_executor *executor, cu_pointer to, const void *from, size_t bytes, bool back)
{
	static const char what[] = "testing a GPU's windows";
	void *memory = (void *)(uintptr_t)to;
	const collet_status status = collet_copier_add(executor->cuda, executor->copier,
		back ? (void *)(uintptr_t)from : memory, back ? memory : from, bytes, what);
	const collet_status waited = collet_copier_wait(executor->cuda, executor->copier, what);
	return status == COLLET_OK ? waited : status;
}

/* A rank's GPU, as nvidia-smi -L has it. */
enum { GPU_NAME_BYTES = sizeof("GPU-01234567-0123-0123-0123-0123456789ab") };
static const char *gpu_of(const struct collet_executor *executor, uint32_t rank, char name[GPU_NAME_BYTES])
{
	const struct collet_comm_state *group = executor->group;
	const uint8_t *uuid = group->engine->peer_infos[collet_comm_state_world_rank(group, rank)].gpu;
	int used = snprintf(name, GPU_NAME_BYTES, "GPU-");
	for (uint32_t i = 0; i < sizeof(((struct collet_peer_info *)0)->gpu); i++)
		used += snprintf(name + used, GPU_NAME_BYTES - (size_t)used, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return name;
}

#define WHAT_TO_TRY "an IOMMU or PCIe ACS may lead it astray: try iommu=pt on the kernel's command line, or ACS off"

/* Always fails. */
static collet_status complain_of(const struct collet_executor *executor, uint32_t from, const char *what)
{
	const uint32_t rank = executor->group->rank;
	char theirs[GPU_NAME_BYTES], own[GPU_NAME_BYTES];
	return collet_fail(COLLET_ERR_SYSTEM, "cuda: what rank %u's GPU (%s) writes to rank %u's (%s) %s; " WHAT_TO_TRY,
		from, gpu_of(executor, from, theirs), rank, gpu_of(executor, rank, own), what);
}

/* Whose words seem not to have come, of those that are wrong: one from whom there are most of these. */
static collet_status check(const struct collet_executor *executor, const uint32_t *words, uint64_t count)
{
	const uint32_t rank = executor->group->rank;
	uint64_t wrong = 0, lost[COLLET_TAPE_RANKS] = { 0 };
	uint32_t from = !rank;
	char what[80], own[GPU_NAME_BYTES];
	for (uint64_t i = 0; i < count; i++) {
		uint32_t difference = words[i];
		for (uint32_t r = 0; r < executor->group->size; r++)
			difference ^= pattern(r, i);
		wrong += difference != 0;
		for (uint32_t r = 0; r < executor->group->size && difference; r++)
			lost[r] += difference == pattern(r, i);
	}
	if (!wrong)
		return COLLET_OK;
	for (uint32_t r = 0; r < executor->group->size; r++)
		from = r != rank && lost[r] > lost[from] ? r : from;
	if (!lost[from])
		return collet_fail(COLLET_ERR_SYSTEM,
			"cuda: of %llu words that GPUs write to rank %u's (%s) %llu are wrong; " WHAT_TO_TRY,
			(unsigned long long)count, rank, gpu_of(executor, rank, own), (unsigned long long)wrong);
	snprintf(what, sizeof(what), "is missing from %llu of %llu words", (unsigned long long)lost[from],
		(unsigned long long)count);
	return complain_of(executor, from, what);
}

/* A kernel's first launch may have to wait for whatever runs on the GPU: before any waits for another's. It does
 * nothing. In the executor's context. */
collet_status collet_executor_warm_up(struct collet_executor *executor)
{
	static const char what[] = "launching a kernel for the first time";
	const struct collet_tape nothing = { .bytes = sizeof(nothing), .size = executor->group->size, .channels = 1 };
	struct collet_program_arguments arguments = { .window = executor->window };
	/* What the window's messages go over later. */
	const cu_pointer at = executor->own.first + collet_window_slot_at(&executor->window, false, 0, 0, 0);
	const collet_status status = copy(executor, at, &nothing, sizeof(nothing), false);
	if (status != COLLET_OK)
		return status;
	arguments.rows[0] = (struct collet_program_row){ .tape = at, .tape_bytes = sizeof(nothing) };
	const collet_status launched =
		collet_kernel_launch(executor->kernels, COLLET_GPU_program, 1, 1, &arguments, executor->stream);
	cu_result result = executor->cuda->cuEventRecord(executor->order, executor->stream);
	const cu_result waited = executor->cuda->cuStreamSynchronize(executor->stream);
	result = result == CU_OK ? waited : result;
	if (launched != COLLET_OK)
		return launched;
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(executor->cuda, result, what);
}

/* A line by the GPU's own copies, into a slot of each peer's window that nothing else has used: what is lost finds out
 * without a kernel that waits for it. In the executor's context. */
static cu_pointer line_of(const struct collet_executor *executor, cu_pointer window, uint32_t from)
{
	return window + collet_window_slot_at(&executor->window, false, 0, from, 1);
}

collet_status collet_executor_write_lines(struct collet_executor *executor)
{
	uint32_t words[COLLET_LINE_BYTES / sizeof(uint32_t)];
	collet_status status = COLLET_OK;
	for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		words[i] = pattern(executor->group->rank, i);
	for (uint32_t r = 0; r < executor->group->size && status == COLLET_OK; r++)
		if (r != executor->group->rank)
			status = copy(executor, line_of(executor, executor->opened[r]->mapped, executor->group->rank),
				words, sizeof(words), false);
	return status;
}

collet_status collet_executor_check_lines(struct collet_executor *executor)
{
	uint32_t words[COLLET_LINE_BYTES / sizeof(uint32_t)];
	for (uint32_t r = 0; r < executor->group->size; r++) {
		if (r == executor->group->rank)
			continue;
		const collet_status status =
			copy(executor, line_of(executor, executor->own.first, r), words, sizeof(words), true);
		if (status != COLLET_OK)
			return status;
		for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (words[i] != pattern(r, i))
				return complain_of(executor, r, "is not there");
	}
	return COLLET_OK;
}

/* All ranks' patterns, combined in place. */
static struct collet_executor_call call_of(const struct collet_executor *executor, const struct executor_test *test)
{
	const uint32_t channels = test->quick ? 1 : executor->channels;
	const uint64_t bytes = test->count * sizeof(uint32_t);
	return (struct collet_executor_call){
		.program = collet_program_find(COLLET_ALLREDUCE, "direct"),
		.shape = collet_shape_of(
			COLLET_ALLREDUCE, executor->group->rank, executor->group->size, 0, test->count),
		.taping = { sizeof(uint32_t), channels, test->quick ? COLLET_QUICK_BYTES : TEST_PIECE_BYTES,
			test->quick },
		.dtype = COLLET_U32,
		.op = COLLET_XOR,
		.input = test->memory,
		.result = test->memory,
		.input_bytes = bytes,
		.result_bytes = bytes,
		.timeout_ns = TEST_NS,
	};
}

collet_status collet_executor_prepare_test(
	struct collet_executor *executor, struct executor_test *test, bool quick)
{
	test->quick = quick;
	test->count = (quick ? COLLET_QUICK_BYTES
			     : (uint64_t)TEST_PIECE_BYTES * executor->channels * COLLET_TAPE_SLOTS) /
		      sizeof(uint32_t);
	for (uint64_t i = 0; i < test->count; i++)
		test->words[i] = pattern(executor->group->rank, i);
	const collet_status status =
		copy(executor, test->memory, test->words, test->count * sizeof(uint32_t), false);
	const struct collet_executor_call call = call_of(executor, test);
	return status == COLLET_OK ? collet_executor_prepare(executor, &call, &test->tape) : status;
}

collet_status collet_executor_launch_test(struct collet_executor *executor, const struct executor_test *test)
{
	const struct collet_executor_call call = call_of(executor, test);
	const struct collet_executor_place place = { .stream = executor->stream };
	return collet_executor_launch(executor, &call, test->tape, &place);
}

collet_status collet_executor_check_test(struct collet_executor *executor, const struct executor_test *test)
{
	uint32_t late;
	const cu_result result = executor->cuda->cuStreamSynchronize(executor->stream);
	if (result != CU_OK)
		return collet_cuda_fail(executor->cuda, result, "testing a GPU's windows");
	if (collet_executor_complains(executor, &late) == COLLET_EXECUTOR_LATE)
		return complain_of(executor, late, "has not come in 10 s");
	const collet_status status =
		copy(executor, test->memory, test->words, test->count * sizeof(uint32_t), true);
	return status == COLLET_OK ? check(executor, test->words, test->count) : status;
}

void collet_executor_stop_test(struct collet_executor *executor)
{
	collet_executor_stop(executor);
	(void)executor->cuda->cuStreamSynchronize(executor->stream);
}

collet_status collet_executor_make_test(const struct collet_executor *executor, struct executor_test *test)
{
	const size_t bytes = (size_t)TEST_PIECE_BYTES * executor->channels * COLLET_TAPE_SLOTS;
	test->words = malloc(bytes);
	if (!test->words)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to test a GPU's windows");
	const cu_result result = executor->cuda->cuMemAlloc(&test->memory, bytes);
	if (result == CU_OK)
		return COLLET_OK;
	test->memory = 0;
	return collet_cuda_fail(executor->cuda, result, "allocating memory to test");
}

void collet_executor_free_test(const struct collet_executor *executor, const struct executor_test *test)
{
	if (test->memory)
		(void)executor->cuda->cuMemFree(test->memory);
	free(test->words);
}
