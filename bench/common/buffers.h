/* Allocates the buffers that are sent and received, in the same way for every measured library.
 *
 * One arena is allocated and touched before anything is timed, and cut into slots. A slot holds one send and one
 * receive buffer; in place, one for both. Warm runs reuse one slot. Cold runs cycle through so many slots that the
 * last-level cache no longer holds a slot when it is used again. */
#ifndef BENCH_BUFFERS_H
#define BENCH_BUFFERS_H

#include "work.h"

enum bench_buffer_kind {
	BENCH_MALLOC,
	BENCH_ALLOC,
	BENCH_HUGE,
	BENCH_BUFFER_KINDS,
	BENCH_DEVICE   /* a GPU's memory: --buffers does not take it, --device decides */
};

const char *bench_buffer_kind_name(enum bench_buffer_kind kind);
enum bench_buffer_kind bench_buffer_kind_find(const char *name);

/* Allocates memory of the kinds `alloc` and `device`; only collet has it. Nonzero: failure. */
struct bench_allocator {
	int (*allocate)(void *context, void **memory, size_t bytes);
	void (*release)(void *context, void *memory);
	/* NULL: the host can touch it. Else how its bytes get there, and back. */
	int (*write)(void *context, void *memory, const void *from, size_t bytes);
	int (*read)(void *context, void *to, const void *memory, size_t bytes);
	size_t cache_bytes;   /* of the cache before that memory; 0: the host's */
	void *context;
};

struct bench_buffers {
	enum bench_buffer_kind kind;
	const struct bench_allocator *allocator;
	uint8_t *memory;
	size_t memory_bytes;
	size_t slot_bytes;
	size_t send_offset, recv_offset;  /* in a slot */
	uint32_t slots;
};

/* Fills b with touched memory for one size. NULL on success, else what went wrong (static text); b is then zero. */
const char *bench_buffers_init(struct bench_buffers *b, enum bench_buffer_kind kind,
	const struct bench_allocator *allocator, const struct bench_work *work, uint32_t rank, uint32_t ranks,
	uint64_t count, bool cold);
void bench_buffers_deinit(struct bench_buffers *b);
/* Returns about how many bytes that takes in the host's memory. */
double bench_buffers_need(
	const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, bool cold);

static inline void *bench_buffers_send(const struct bench_buffers *b, uint32_t slot)
{
	return b->memory + slot * b->slot_bytes + b->send_offset;
}

static inline void *bench_buffers_recv(const struct bench_buffers *b, uint32_t slot)
{
	return b->memory + slot * b->slot_bytes + b->recv_offset;
}

/* Bytes of the largest cache of this machine; a guess where the system does not tell. */
size_t bench_cache_bytes(void);

#endif
