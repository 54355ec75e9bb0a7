/* Allocating and laying out the measured memory. */
#include "buffers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const kinds[BENCH_BUFFER_KINDS] = {
	[BENCH_MALLOC] = "malloc", [BENCH_ALLOC] = "alloc", [BENCH_HUGE] = "huge",
};
static const char device[] = "device";

/* Buffers start on pages of their own, so that no library profits from where malloc happened to put them. */
static const size_t page_bytes = 4096;
static const size_t huge_page_bytes = (size_t)2 << 20;

const char *bench_buffer_kind_name(enum bench_buffer_kind kind)
{
	return kind == BENCH_DEVICE ? device : (unsigned)kind < BENCH_BUFFER_KINDS ? kinds[kind] : NULL;
}

enum bench_buffer_kind bench_buffer_kind_find(const char *name)
{
	for (int k = 0; k < BENCH_BUFFER_KINDS; k++)
		if (strcmp(kinds[k], name) == 0)
			return (enum bench_buffer_kind)k;
	return BENCH_BUFFER_KINDS;
}

size_t bench_cache_bytes(void)
{
	const long told = sysconf(_SC_LEVEL3_CACHE_SIZE);
	return told > 0 ? (size_t)told : (size_t)64 << 20;
}

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static void lay_out(
	struct bench_buffers *b, const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count)
{
	const size_t element_bytes = collet_dtype_bytes((collet_dtype)work->dtype);
	const size_t send_bytes = bench_send_count(work, rank, ranks, count) * element_bytes;
	const size_t recv_bytes = bench_recv_count(work, rank, ranks, count) * element_bytes;
	if (work->in_place) {
		b->send_offset = bench_in_place_send_offset(work, rank, count) * element_bytes;
		b->recv_offset = bench_in_place_recv_offset(work, rank, count) * element_bytes;
		const size_t send_end = b->send_offset + send_bytes, recv_end = b->recv_offset + recv_bytes;
		b->slot_bytes = round_up(send_end > recv_end ? send_end : recv_end, page_bytes);
	} else {
		b->recv_offset = round_up(send_bytes, page_bytes);
		b->slot_bytes = b->recv_offset + round_up(recv_bytes, page_bytes);
	}
	if (b->slot_bytes == 0)
		b->slot_bytes = page_bytes;
}

/* Each rank cycles through its own slots, so ranks may have different numbers of them. */
static uint32_t slots_to_stay_cold(const struct bench_buffers *b)
{
	const size_t told = b->kind == BENCH_DEVICE ? b->allocator->cache_bytes : 0;
	const size_t slots = 2 * (told > 0 ? told : bench_cache_bytes()) / b->slot_bytes + 2;
	return slots > 65536 ? 65536 : (uint32_t)slots;
}

static const char *allocate(struct bench_buffers *b)
{
	const size_t unit = b->kind == BENCH_HUGE ? huge_page_bytes : page_bytes;
	b->memory_bytes = round_up(b->memory_bytes, unit);
	if (b->kind == BENCH_ALLOC || b->kind == BENCH_DEVICE) {
		void *memory = NULL;
		if (b->allocator == NULL)
			return "this library has no memory of its own to give (--buffers alloc)";
		if (b->allocator->allocate(b->allocator->context, &memory, b->memory_bytes) != 0)
			return b->kind == BENCH_ALLOC ? "the library has no more memory to give (--buffers alloc)"
						      : "the GPU has no more memory to give";
		b->memory = memory;
		return NULL;
	}
	b->memory = aligned_alloc(unit, b->memory_bytes);
	if (b->memory == NULL)
		return "out of memory for the buffers";
	if (b->kind == BENCH_HUGE)
		/* A wish: a kernel without them gives small ones. */
		(void)madvise(b->memory, b->memory_bytes, MADV_HUGEPAGE);
	return NULL;
}

const char *bench_buffers_init(struct bench_buffers *b, enum bench_buffer_kind kind,
	const struct bench_allocator *allocator, const struct bench_work *work, uint32_t rank, uint32_t ranks,
	uint64_t count, bool cold)
{
	memset(b, 0, sizeof(*b));
	b->kind = kind;
	b->allocator = allocator;
	lay_out(b, work, rank, ranks, count);
	b->slots = cold ? slots_to_stay_cold(b) : 1;
	b->memory_bytes = b->slots * b->slot_bytes;
	const char *problem = allocate(b);
	if (problem != NULL) {
		memset(b, 0, sizeof(*b));
		return problem;
	}
	if (kind != BENCH_DEVICE)
		memset(b->memory, 0, b->memory_bytes);   /* touched: no page fault is ever timed */
	return NULL;
}

/* In floating point, as sizes that nobody has would overflow. */
double bench_buffers_need(
	const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, bool cold)
{
	const double element_bytes = (double)collet_dtype_bytes((collet_dtype)work->dtype);
	const double send = (double)bench_send_count(work, rank, ranks, count) * element_bytes;
	const double recv = (double)bench_recv_count(work, rank, ranks, count) * element_bytes;
	const double slot = !work->in_place ? send + recv : send > recv ? send : recv;
	return cold ? 2 * (slot + (double)bench_cache_bytes()) : slot;
}

void bench_buffers_deinit(struct bench_buffers *b)
{
	if (b->memory != NULL && (b->kind == BENCH_ALLOC || b->kind == BENCH_DEVICE))
		b->allocator->release(b->allocator->context, b->memory);
	else
		free(b->memory);
	memset(b, 0, sizeof(*b));
}
