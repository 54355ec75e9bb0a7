/* Tests GPUs before ranks rely on each other's kernels: that their copies to peers arrive, and that collectives through
 * all channels give the right result. No kernel waits for ever: a test has a deadline. */
#include <stdio.h>
#include <stdlib.h>

#include "core/status.h"
#include "cuda/peer_gpus/internal.h"
#include "engine/comm_state.h"
#include "engine/engine.h"

enum { TEST_SEGMENT_BYTES = 4 << 10 };
static const int64_t TEST_TIMEOUT_NS = INT64_C(10) * 1000 * 1000 * 1000;

static uint32_t pattern(uint32_t rank, uint64_t word)
{
	const uint32_t mixed = (rank + 1) * 2654435761u ^ ((uint32_t)word + 1) * 2246822519u;
	return mixed ^ mixed >> 15;
}

static collet_status copy(
	struct collet_device_comm *device_comm, cu_pointer to, const void *from, size_t bytes, bool to_host)
{
	static const char what[] = "testing a GPU's windows";
	void *memory = (void *)(uintptr_t)to;
	const collet_status status = collet_copy_stream_enqueue(device_comm->cuda, device_comm->copy_stream,
		to_host ? (void *)(uintptr_t)from : memory, to_host ? memory : from, bytes, what);
	const collet_status waited = collet_copy_stream_synchronize(device_comm->cuda, device_comm->copy_stream, what);
	return status == COLLET_OK ? waited : status;
}

/* The UUID of a rank's GPU, as nvidia-smi -L prints it. */
enum { GPU_NAME_BYTES = sizeof("GPU-01234567-0123-0123-0123-0123456789ab") };
static const char *gpu_name(const struct collet_device_comm *device_comm, uint32_t rank, char name[GPU_NAME_BYTES])
{
	const struct collet_comm_state *state = device_comm->state;
	const uint8_t *uuid = state->engine->peer_infos[collet_comm_state_world_rank(state, rank)].gpu;
	int used = snprintf(name, GPU_NAME_BYTES, "GPU-");
	for (uint32_t i = 0; i < sizeof(((struct collet_peer_info *)0)->gpu); i++)
		used += snprintf(name + used, GPU_NAME_BYTES - (size_t)used, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return name;
}

#define IOMMU_HINT "an IOMMU or PCIe ACS may misdirect writes: try iommu=pt on the kernel's command line, or ACS off"

/* Always fails. */
static collet_status report_peer(const struct collet_device_comm *device_comm, uint32_t from, const char *what)
{
	const uint32_t rank = device_comm->state->rank;
	char theirs[GPU_NAME_BYTES], own[GPU_NAME_BYTES];
	return collet_fail(COLLET_ERR_SYSTEM, "cuda: what rank %u's GPU (%s) writes to rank %u's (%s) %s; " IOMMU_HINT,
		from, gpu_name(device_comm, from, theirs), rank, gpu_name(device_comm, rank, own), what);
}

/* Checks the sums. For wrong words, finds the rank whose pattern is missing most often. */
static collet_status check(const struct collet_device_comm *device_comm, const uint32_t *words, uint64_t count)
{
	const uint32_t rank = device_comm->state->rank;
	uint64_t wrong = 0, lost[COLLET_PLAN_RANKS] = { 0 };
	uint32_t from = !rank;
	char what[80], own[GPU_NAME_BYTES];
	for (uint64_t i = 0; i < count; i++) {
		uint32_t difference = words[i];
		for (uint32_t r = 0; r < device_comm->state->size; r++)
			difference ^= pattern(r, i);
		wrong += difference != 0;
		for (uint32_t r = 0; r < device_comm->state->size && difference; r++)
			lost[r] += difference == pattern(r, i);
	}
	if (!wrong)
		return COLLET_OK;
	for (uint32_t r = 0; r < device_comm->state->size; r++)
		from = r != rank && lost[r] > lost[from] ? r : from;
	if (!lost[from])
		return collet_fail(COLLET_ERR_SYSTEM,
			"cuda: of %llu words that GPUs write to rank %u's (%s) %llu are wrong; " IOMMU_HINT,
			(unsigned long long)count, rank, gpu_name(device_comm, rank, own), (unsigned long long)wrong);
	snprintf(what, sizeof(what), "is missing from %llu of %llu words", (unsigned long long)lost[from],
		(unsigned long long)count);
	return report_peer(device_comm, from, what);
}

/* A kernel's first launch may wait for all work on the GPU, so this launch comes before any kernel waits for another.
 * It does nothing. Needs the copy stream's context. */
collet_status collet_device_comm_warm_up(struct collet_device_comm *device_comm)
{
	static const char what[] = "launching a kernel for the first time";
	const struct collet_plan_arguments arguments = { .window = device_comm->window };
	const collet_status launched =
		collet_kernel_launch(device_comm->kernels, COLLET_GPU_plan, 1, 1, &arguments, device_comm->stream);
	cu_result result = device_comm->cuda->cuEventRecord(device_comm->last_launch_event, device_comm->stream);
	const cu_result waited = device_comm->cuda->cuStreamSynchronize(device_comm->stream);
	result = result == CU_OK ? waited : result;
	if (launched != COLLET_OK)
		return launched;
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(device_comm->cuda, result, what);
}

/* Each GPU copies a line into a slot of each peer's window that nothing else has used yet. So lost writes are found
 * without a kernel that waits for them. Needs the copy stream's context. */
static cu_pointer probe_address(const struct collet_device_comm *device_comm, cu_pointer window, uint32_t from)
{
	return window + collet_window_slot_at(&device_comm->window, false, 0, from, 1);
}

collet_status collet_device_comm_write_probes(struct collet_device_comm *device_comm)
{
	uint32_t words[COLLET_FLAG_STRIDE_BYTES / sizeof(uint32_t)];
	collet_status status = COLLET_OK;
	for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		words[i] = pattern(device_comm->state->rank, i);
	for (uint32_t r = 0; r < device_comm->state->size && status == COLLET_OK; r++)
		if (r != device_comm->state->rank)
			status = copy(device_comm,
				probe_address(
					device_comm, device_comm->peer_windows[r]->address, device_comm->state->rank),
				words, sizeof(words), false);
	return status;
}

collet_status collet_device_comm_check_probes(struct collet_device_comm *device_comm)
{
	uint32_t words[COLLET_FLAG_STRIDE_BYTES / sizeof(uint32_t)];
	for (uint32_t r = 0; r < device_comm->state->size; r++) {
		if (r == device_comm->state->rank)
			continue;
		const collet_status status = copy(device_comm,
			probe_address(device_comm, device_comm->window_memory.address, r), words, sizeof(words), true);
		if (status != COLLET_OK)
			return status;
		for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (words[i] != pattern(r, i))
				return report_peer(device_comm, r, "is not there");
	}
	return COLLET_OK;
}

/* An all-reduce of all ranks' patterns, in place. */
static struct collet_devcoll_call call_of(
	const struct collet_device_comm *device_comm, const struct device_comm_test *test)
{
	const uint64_t bytes = test->count * sizeof(uint32_t);
	return (struct collet_devcoll_call){
		.program = collet_program_find(COLLET_ALLREDUCE, "direct"),
		.shape = collet_shape_of(
			COLLET_ALLREDUCE, device_comm->state->rank, device_comm->state->size, 0, test->count),
		.options = { sizeof(uint32_t), device_comm->channels_per_part,
			test->is_ll ? COLLET_LL_BYTES : TEST_SEGMENT_BYTES, test->is_ll },
		.dtype = COLLET_U32,
		.op = COLLET_XOR,
		.input = test->memory,
		.result = test->memory,
		.input_bytes = bytes,
		.result_bytes = bytes,
		.timeout_ns = TEST_TIMEOUT_NS,
	};
}

collet_status collet_device_comm_prepare_test(
	struct collet_device_comm *device_comm, struct device_comm_test *test, bool is_ll)
{
	test->is_ll = is_ll;
	test->count = (uint64_t)(is_ll ? COLLET_LL_BYTES : TEST_SEGMENT_BYTES * COLLET_WINDOW_SLOTS) *
		      device_comm->channels_per_part / sizeof(uint32_t);
	for (uint64_t i = 0; i < test->count; i++)
		test->words[i] = pattern(device_comm->state->rank, i);
	const collet_status status =
		copy(device_comm, test->memory, test->words, test->count * sizeof(uint32_t), false);
	const struct collet_devcoll_call call = call_of(device_comm, test);
	return status == COLLET_OK ? collet_device_comm_prepare(device_comm, &call, &test->plan) : status;
}

collet_status collet_device_comm_launch_test(
	struct collet_device_comm *device_comm, const struct device_comm_test *test)
{
	const struct collet_devcoll_call call = call_of(device_comm, test);
	const struct collet_launch_target target = { .stream = device_comm->stream };
	return collet_device_comm_launch(device_comm, &call, test->plan, &target);
}

collet_status collet_device_comm_check_test_end(struct collet_device_comm *device_comm)
{
	uint32_t late_rank;
	const collet_status status = collet_device_comm_check_fault(device_comm);
	if (status == COLLET_OK && collet_device_comm_async_error(device_comm, &late_rank) == COLLET_DEVICE_TIMEOUT)
		return report_peer(device_comm, late_rank, "has not come in 10 s");
	return status;
}

collet_status collet_device_comm_check_test(struct collet_device_comm *device_comm, const struct device_comm_test *test)
{
	const cu_result result = device_comm->cuda->cuStreamSynchronize(device_comm->stream);
	if (result != CU_OK)
		return collet_cuda_fail(device_comm->cuda, result, "testing a GPU's windows");
	const collet_status status =
		copy(device_comm, test->memory, test->words, test->count * sizeof(uint32_t), true);
	return status == COLLET_OK ? check(device_comm, test->words, test->count) : status;
}

void collet_device_comm_abort_test(struct collet_device_comm *device_comm)
{
	collet_device_comm_abort(device_comm);
	(void)device_comm->cuda->cuStreamSynchronize(device_comm->stream);
}

collet_status collet_device_comm_create_test(
	const struct collet_device_comm *device_comm, struct device_comm_test *test)
{
	const size_t bytes = (size_t)TEST_SEGMENT_BYTES * device_comm->channels_per_part * COLLET_WINDOW_SLOTS;
	test->words = malloc(bytes);
	if (!test->words)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to test a GPU's windows");
	const cu_result result = device_comm->cuda->cuMemAlloc(&test->memory, bytes);
	if (result == CU_OK)
		return COLLET_OK;
	test->memory = 0;
	return collet_cuda_fail(device_comm->cuda, result, "allocating memory to test");
}

void collet_device_comm_destroy_test(const struct collet_device_comm *device_comm, const struct device_comm_test *test)
{
	if (test->memory)
		(void)device_comm->cuda->cuMemFree(test->memory);
	free(test->words);
}
