/* A rank frees memory, and allocates other memory at the same address. The leader, and receivers of messages, keep
 * peers' memory open, do not confuse the two, and do not keep freed memory for long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/cuda.h>

#include "cuda/gpu_context.h"
#include "gpu.h"

enum { UNIT = 2 << 20, UNITS = 2, ROUNDS = 6, OTHERS = 70 };

/* How a program allocates. */
struct allocator {
	const char *name;
	bool (*get)(struct gpu *gpu, cu_pointer at, struct buffer *buffer);
	bool (*put)(struct gpu *gpu, const struct buffer *buffer);
	bool at_one_address;         /* always at the same address */
	bool grows;                  /* every other allocation is longer */
};

static const struct collet_cuda *cuda_of(const struct gpu *gpu)
{
	return &gpu->rank->comm->context->gpu->cuda;
}

static bool get_allocated(struct gpu *gpu, cu_pointer at, struct buffer *buffer)
{
	return buffer_make(buffer, &gpu->program, true, buffer->bytes);
}

static bool put_allocated(struct gpu *gpu, const struct buffer *buffer)
{
	return gpu->program.cuMemFree_v2((uintptr_t)buffer->first) == CU_OK;
}

static bool get_ours(struct gpu *gpu, cu_pointer at, struct buffer *buffer)
{
	void *memory = NULL;
	const collet_status status = collet_mem_alloc_device(gpu->rank->comm, &memory, buffer->bytes);
	buffer->first = memory;
	return rank_ok(gpu->rank, status, "allocating");
}

static bool put_ours(struct gpu *gpu, const struct buffer *buffer)
{
	return rank_ok(gpu->rank, collet_mem_free(gpu->rank->comm, buffer->first), "freeing");
}

/* As allocators do whose segments shrink and grow: the addresses stay reserved. */
static bool get_mapped(struct gpu *gpu, cu_pointer at, struct buffer *buffer)
{
	const struct collet_cuda *cuda = cuda_of(gpu);
	const cu_memory_properties properties = { CU_ALLOCATION_PINNED, CU_HANDLE_FILE_DESCRIPTOR,
		{ CU_LOCATION_DEVICE, 0 }, NULL, { 0 } };
	const cu_access access = { { CU_LOCATION_DEVICE, 0 }, CU_ACCESS_READ_WRITE };
	cu_mem_handle memory = 0;
	buffer->first = (char *)(uintptr_t)at;
	return cuda->cuMemCreate(&memory, buffer->bytes, &properties, 0) == CU_OK &&
	       cuda->cuMemMap(at, buffer->bytes, 0, memory, 0) == CU_OK &&
	       cuda->cuMemSetAccess(at, buffer->bytes, &access, 1) == CU_OK && cuda->cuMemRelease(memory) == CU_OK;
}

static bool put_mapped(struct gpu *gpu, const struct buffer *buffer)
{
	return cuda_of(gpu)->cuMemUnmap((uintptr_t)buffer->first, buffer->bytes) == CU_OK;
}

static const struct allocator allocators[] = {
	{ "allocated", get_allocated, put_allocated, false, false },
	{ "allocated, of another size", get_allocated, put_allocated, false, true },
	{ "by collet_mem_alloc_device()", get_ours, put_ours, false, false },
	{ "mapped", get_mapped, put_mapped, true, false },
	{ "mapped, of another size", get_mapped, put_mapped, true, true },
};

static void sum_up(struct gpu *gpu, const struct buffer *buffer, uint32_t value)
{
	struct rank *rank = gpu->rank;
	const uint64_t count = buffer->bytes / sizeof(uint32_t);
	uint32_t *values = calloc(count, sizeof(*values));
	for (uint64_t i = 0; i < count; i++)
		values[i] = value + (uint32_t)i;
	rank_check(rank, buffer_write(buffer, values), "writing");
	/* An algorithm that counts only if the host executes it. */
	const collet_how how = { .algorithm = "two_shot" };
	rank_ok(rank, collet_allreduce(rank->comm, buffer->first, buffer->first, count, COLLET_U32, COLLET_SUM, &how),
		"summing");
	rank_check(rank, buffer_read(buffer, values), "reading");
	uint64_t i = 0;
	while (i < count && values[i] == (value + (uint32_t)i) * rank->size)
		i++;
	rank_check(rank, i == count, "element %llu of the sum of %u is %u", (unsigned long long)i, value,
		i < count ? values[i] : 0);
	free(values);
}

/* Sends from GPU to GPU, to the next rank. */
static void pass_on(struct gpu *gpu, const struct buffer *buffer, uint32_t seed)
{
	struct rank *rank = gpu->rank;
	const uint64_t count = buffer->bytes / sizeof(uint32_t);
	const uint32_t next = (rank->rank + 1) % rank->size, before = (rank->rank + rank->size - 1) % rank->size;
	uint32_t *values = calloc(count, sizeof(*values));
	struct buffer got;
	for (uint64_t i = 0; i < count; i++)
		values[i] = seed + rank->rank + (uint32_t)i;
	rank_check(rank, buffer_write(buffer, values), "writing");
	if (!rank_check(rank, buffer_make(&got, &gpu->program, true, buffer->bytes), "a buffer"))
		return;
	rank_ok(rank, collet_sendrecv(rank->comm, buffer->first, count, next, 0, got.first, count, before, 0,
			      COLLET_U32, NULL, NULL), "passing on");
	rank_check(rank, buffer_read(&got, values), "reading");
	uint64_t i = 0;
	while (i < count && values[i] == seed + before + (uint32_t)i)
		i++;
	rank_check(rank, i == count, "element %llu of the message of %u is %u", (unsigned long long)i, seed,
		i < count ? values[i] : 0);
	buffer_free(&got);
	free(values);
}

static void one_after_the_other(struct rank *rank)
{
	const struct allocator *allocator = rank->options->context;
	struct gpu gpu;
	cu_pointer at = 0;
	if (!gpu_start(&gpu, rank) || !rank_create(rank))
		return;
	const struct collet_ipc_cache *opened = &rank->comm->context->gpu->device.ipc_cache;
	rank_check(rank, cuda_of(&gpu)->cuMemAddressReserve(&at, UNITS * UNIT, 0, 0, 0) == CU_OK, "no addresses");
	for (uint32_t round = 0; round < ROUNDS && !rank->report->failed; round++) {
		struct buffer buffer = { .program = &gpu.program, .gpu = true,
			.bytes = allocator->grows && round % 2 ? UNITS * UNIT : UNIT };
		rank_doing(rank, "%s, round %u", allocator->name, round);
		if (!rank_check(rank, allocator->get(&gpu, at, &buffer), "no memory"))
			break;
		sum_up(&gpu, &buffer, 1000 * round);
		pass_on(&gpu, &buffer, 5000 * round);
		/* The leader has all others' memory open, the others that of the rank before them. Each also has the
		 * test buffer of its link. */
		rank_check(rank, !allocator->at_one_address || opened->count == (rank->rank ? 2 : rank->size),
			"%u are open, some of which have been freed", opened->count);
		rank_check(rank, allocator->put(&gpu, &buffer), "freeing");
	}
	rank_check(rank, rank_uses(rank, "two_shot") == 0, "by allocator of the host");
	rank_check(rank, rank_received(rank, "cuda_ipc") == ROUNDS, "messages by allocator of the host");
	rank_check(rank, cuda_of(&gpu)->cuMemAddressFree(at, UNITS * UNIT) == CU_OK, "addresses that are in use");
	gpu_end(&gpu);
}

static void new_memory_is_not_taken_for_freed_memory(void **state)
{
	for (size_t w = 0; w < sizeof(allocators) / sizeof(allocators[0]); w++) {
		const struct ranks_options options = {
			.size = 3, .transport = "shm", .bare = true, .context = &allocators[w] };
		ranks_must_pass(&options, one_after_the_other);
	}
}

/* More allocations than this process remembers: each is distinguished from the others, and from earlier ones at its
 * address. */
static void many_segments(struct rank *rank)
{
	struct gpu gpu;
	cu_pointer at = 0;
	struct buffer allocations[OTHERS];
	if (!gpu_start(&gpu, rank) || !rank_create(rank))
		return;
	rank_check(rank, cuda_of(&gpu)->cuMemAddressReserve(&at, (size_t)OTHERS * UNIT, 0, 0, 0) == CU_OK,
		"no addresses");
	for (uint32_t p = 0; p < OTHERS && !rank->report->failed; p++) {
		rank_doing(rank, "allocation %u", p);
		allocations[p] = (struct buffer){ .program = &gpu.program, .gpu = true, .bytes = UNIT };
		rank_check(rank, get_mapped(&gpu, at + (cu_pointer)p * UNIT, &allocations[p]), "no memory");
		sum_up(&gpu, &(struct buffer){ &gpu.program, true, allocations[p].first, 4096 }, p);
	}
	for (uint32_t p = 0; p < OTHERS && !rank->report->failed; p++) {
		rank_doing(rank, "allocation %u anew", p);
		rank_check(rank, put_mapped(&gpu, &allocations[p]), "unmapping");
		rank_check(rank, get_mapped(&gpu, at + (cu_pointer)p * UNIT, &allocations[p]), "no memory");
		sum_up(&gpu, &(struct buffer){ &gpu.program, true, allocations[p].first, 4096 }, 1000 + p);
	}
	for (uint32_t p = 0; p < OTHERS && !rank->report->failed; p++)
		rank_check(rank, put_mapped(&gpu, &allocations[p]), "unmapping");
	rank_check(rank, cuda_of(&gpu)->cuMemAddressFree(at, (size_t)OTHERS * UNIT) == CU_OK, "addresses in use");
	gpu_end(&gpu);
}

static void many_allocations_are_told_apart(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm", .bare = true };
	ranks_must_pass(&options, many_segments);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_memory_is_not_taken_for_freed_memory),
		cmocka_unit_test(many_allocations_are_told_apart),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
