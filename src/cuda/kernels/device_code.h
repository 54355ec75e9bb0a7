/* What kernels are written in: under nvcc CUDA, and elsewhere plain C17, for the stand-in driver of the tests. Kernels
 * use this layer and nothing else of CUDA.
 *
 * In the host form the blocks of a launch are threads that run at the same time, so that blocks may wait for each
 * other; a block's own threads, if it has more than one, take turns on that thread. */
#ifndef COLLET_CUDA_KERNELS_DEVICE_CODE_H
#define COLLET_CUDA_KERNELS_DEVICE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifndef __CUDACC__
#include <time.h>
#endif

#include "cuda/kernels/arguments.h"

/* The device's widest access. */
union ll_pack {
	uint8_t u8[16];
	uint16_t u16[8];
	uint32_t u32[4];
	uint64_t u64[2];
	float f32[4];
	double f64[2];
};

#ifdef __CUDACC__

#define DEVICE static __device__ __forceinline__
/* Compiled once, and called: what several kernels have in common. */
#define DEVICE_NOINLINE static __device__ __noinline__
#define UNROLL _Pragma("unroll")
/* The arguments stay where the driver puts them: a copy for each thread would go through its stack. */
#define KERNEL(name, type, body)                                                                                       \
	extern "C" __global__ void __launch_bounds__(COLLET_BLOCK_THREADS)                                             \
		collet_##name(const __grid_constant__ type arguments)                                                  \
	{                                                                                                              \
		body(&arguments);                                                                                      \
	}

/* What a block's threads share. */
#define SHARED __shared__

DEVICE uint32_t thread_index(void) { return threadIdx.x; }
DEVICE uint32_t thread_count(void) { return blockDim.x; }
DEVICE uint32_t block_index(void) { return blockIdx.x; }
DEVICE uint32_t block_count(void) { return gridDim.x; }
DEVICE uint32_t block_row(void) { return blockIdx.y; }

/* All of the block's threads come here; what any wrote before, all see after. */
DEVICE void block_sync(void) { __syncthreads(); }
/* The same: do all of them agree? */
DEVICE bool block_all(bool agreed) { return __syncthreads_and(agreed); }

/* Words that several GPUs, or the host, look at. acquire: what was written before the store that is read here is seen
 * after. */
DEVICE uint64_t flag_acquire(const unsigned char *flag)
{
	uint64_t value;
	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
	return value;
}

DEVICE void flag_release(unsigned char *flag, uint64_t value)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
}

/* The same of several flags: one fence, and then stores. */
DEVICE void fence_release(void) { asm volatile("fence.acq_rel.sys;" : : : "memory"); }
DEVICE void flag_store_fenced(unsigned char *flag, uint64_t value)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
}

DEVICE uint64_t flag_add(unsigned char *flag, uint64_t more)
{
	uint64_t before;
	asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(flag), "l"(more) : "memory");
	return before;
}

DEVICE uint32_t abort_load(const unsigned char *flag)
{
	uint32_t value;
	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
	return value;
}

DEVICE void abort_store(unsigned char *flag, uint32_t value)
{
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

/* Of a clock that all blocks of this GPU have. */
DEVICE uint64_t clock_ns(void)
{
	uint64_t ns;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
	return ns;
}

/* About so long, at most 1 ms. */
DEVICE void sleep_ns(uint32_t ns) { asm volatile("nanosleep.u32 %0;" : : "r"(ns)); }

/* Two words of 8 bytes; each goes as one, the two in no order. */
DEVICE void line_store(unsigned char *to, uint64_t first, uint64_t second)
{
	asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" : : "l"(to), "l"(first), "l"(second) : "memory");
}

DEVICE void line_load(const unsigned char *from, uint64_t *first, uint64_t *second)
{
	asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
		: "=l"(*first), "=l"(*second) : "l"(from) : "memory");
}

/* How many times round between looks at whether to give up: the flag may be in the host's memory. */
enum { ABORT_CHECK_INTERVAL = 256 };
/* And between looks at what others were launched for. */
enum { MISMATCH_CHECK_INTERVAL = 1 << 14 };

/* Memory by an address that came from the host. */
DEVICE unsigned char *device_pointer(uint64_t address, uint64_t bytes) { return (unsigned char *)address; }
/* The same, of a list; slot: which of the two lists that a thread may have at a time. */
DEVICE const uint64_t *device_pointers(const uint64_t *addresses, uint32_t count, uint64_t bytes, int slot_address)
{
	return addresses;
}

/* At an address that is a multiple of 16. */
DEVICE union ll_pack pack_load(const unsigned char *from)
{
	const uint4 words = *(const uint4 *)from;
	union ll_pack ll_pack;
	ll_pack.u32[0] = words.x;
	ll_pack.u32[1] = words.y;
	ll_pack.u32[2] = words.z;
	ll_pack.u32[3] = words.w;
	return ll_pack;
}

DEVICE void pack_store(unsigned char *to, const union ll_pack *ll_pack)
{
	*(uint4 *)to = make_uint4(ll_pack->u32[0], ll_pack->u32[1], ll_pack->u32[2], ll_pack->u32[3]);
}

#else

#define DEVICE static inline __attribute__((always_inline, unused))
#define DEVICE_NOINLINE static __attribute__((unused))
#define UNROLL
#define KERNEL(name, type, body)                                                                                       \
	enum { argument_bytes_##name = sizeof(type) };                                                                 \
	static void run_##name(const void *arguments)                                                                  \
	{                                                                                                              \
		body((const type *)arguments);                                                                         \
	}

/* Whose turn it is; set by who runs the block. */
struct host_block {
	uint32_t column, columns, row;
	uint32_t thread, threads;
};
extern _Thread_local struct host_block host_block;
/* Where the host finds the device's memory. Does not return if these bytes are in no allocation. */
unsigned char *host_pointer(uint64_t address, uint64_t bytes);

/* Somebody waits, or is about to signal: another block, or thread of this one, may go on first. */
void host_pause(void);
/* Waits for all of the block's threads, which must come to the same place in the text. Do all of them agree? */
bool host_block_barrier(int line, bool agreed);
/* The GPU's clock, which need not go as fast as the host's. */
uint64_t host_clock_ns(void);

/* All of the block's threads are one thread of the system. */
#define SHARED static _Thread_local

DEVICE uint32_t thread_index(void) { return host_block.thread; }
DEVICE uint32_t thread_count(void) { return host_block.threads; }
DEVICE uint32_t block_index(void) { return host_block.column; }
DEVICE uint32_t block_count(void) { return host_block.columns; }
DEVICE uint32_t block_row(void) { return host_block.row; }
#define block_sync() ((void)host_block_barrier(__LINE__, true))
#define block_all(agreed) host_block_barrier(__LINE__, agreed)

DEVICE uint64_t flag_acquire(const unsigned char *flag)
{
	host_pause();
	return __atomic_load_n((const uint64_t *)(const void *)flag, __ATOMIC_ACQUIRE);
}

DEVICE void flag_release(unsigned char *flag, uint64_t value)
{
	host_pause();
	__atomic_store_n((uint64_t *)(void *)flag, value, __ATOMIC_RELEASE);
}

/* ThreadSanitizer knows no fences: each of the stores releases. */
DEVICE void fence_release(void) {}
DEVICE void flag_store_fenced(unsigned char *flag, uint64_t value) { flag_release(flag, value); }

DEVICE uint64_t flag_add(unsigned char *flag, uint64_t amount)
{
	host_pause();
	return __atomic_fetch_add((uint64_t *)(void *)flag, amount, __ATOMIC_ACQ_REL);
}

DEVICE uint32_t abort_load(const unsigned char *flag)
{
	host_pause();
	return __atomic_load_n((const uint32_t *)(const void *)flag, __ATOMIC_RELAXED);
}

DEVICE void abort_store(unsigned char *flag, uint32_t value)
{
	host_pause();
	__atomic_store_n((uint32_t *)(void *)flag, value, __ATOMIC_RELAXED);
}

DEVICE uint64_t clock_ns(void) { return host_clock_ns(); }

DEVICE void sleep_ns(uint32_t ns)
{
	const struct timespec some = { 0, (long)ns };
	host_pause();
	nanosleep(&some, NULL);
}

DEVICE void line_store(unsigned char *to, uint64_t first, uint64_t second)
{
	host_pause();
	__atomic_store_n((uint64_t *)(void *)to + 1, second, __ATOMIC_RELAXED);
	host_pause();
	__atomic_store_n((uint64_t *)(void *)to, first, __ATOMIC_RELAXED);
}

DEVICE void line_load(const unsigned char *from, uint64_t *first, uint64_t *second)
{
	host_pause();
	*first = __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_RELAXED);
	*second = __atomic_load_n((const uint64_t *)(const void *)from + 1, __ATOMIC_RELAXED);
}

enum { ABORT_CHECK_INTERVAL = 1, MISMATCH_CHECK_INTERVAL = 1 << 10 };

DEVICE unsigned char *device_pointer(uint64_t address, uint64_t bytes) { return host_pointer(address, bytes); }

static inline const uint64_t *device_pointers(
	const uint64_t *addresses, uint32_t count, uint64_t bytes, int slot_address)
{
	static _Thread_local uint64_t reached[2][COLLET_SPAN_MAX_OPERANDS];
	for (uint32_t i = 0; i < count; i++)
		reached[slot_address][i] = (uintptr_t)host_pointer(addresses[i], bytes);
	return reached[slot_address];
}

DEVICE union ll_pack pack_load(const unsigned char *from)
{
	return *(const union ll_pack *)(const void *)from;
}

DEVICE void pack_store(unsigned char *to, const union ll_pack *ll_pack)
{
	*(union ll_pack *)(void *)to = *ll_pack;
}

#endif

/* One element of so many bytes, at any address: a device faults where an access is not aligned. */
DEVICE void element_load(union ll_pack *to, const unsigned char *from, uint32_t bytes)
{
	if (bytes == 8 && (uintptr_t)from % 8 == 0)
		to->u64[0] = *(const uint64_t *)(const void *)from;
	else if (bytes == 4 && (uintptr_t)from % 4 == 0)
		to->u32[0] = *(const uint32_t *)(const void *)from;
	else if (bytes == 2 && (uintptr_t)from % 2 == 0)
		to->u16[0] = *(const uint16_t *)(const void *)from;
	else
		for (uint32_t i = 0; i < bytes; i++)
			to->u8[i] = from[i];
}

DEVICE void element_store(unsigned char *to, const union ll_pack *ll_pack, uint32_t bytes)
{
	if (bytes == 8 && (uintptr_t)to % 8 == 0)
		*(uint64_t *)(void *)to = ll_pack->u64[0];
	else if (bytes == 4 && (uintptr_t)to % 4 == 0)
		*(uint32_t *)(void *)to = ll_pack->u32[0];
	else if (bytes == 2 && (uintptr_t)to % 2 == 0)
		*(uint16_t *)(void *)to = ll_pack->u16[0];
	else
		for (uint32_t i = 0; i < bytes; i++)
			to[i] = ll_pack->u8[i];
}

#endif
