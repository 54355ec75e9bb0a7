/* The layer that kernels are written on: CUDA under nvcc, and plain C17 for the fake driver of the tests. Kernels use
 * nothing else of CUDA.
 *
 * In the host form, each block of a launch is a thread, so that blocks can wait for each other. The threads of one
 * block take turns on that thread. */
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

/* The widest access of the device. */
union pack {
	uint8_t u8[16];
	uint16_t u16[8];
	uint32_t u32[4];
	uint64_t u64[2];
	float f32[4];
	double f64[2];
};

#ifdef __CUDACC__

#define DEVICE static __device__ __forceinline__
/* Not inlined: code that several kernels share is compiled once. */
#define DEVICE_NOINLINE static __device__ __noinline__
#define UNROLL _Pragma("unroll")
/* The arguments stay in constant memory: a copy for each thread would go through its stack. resident: blocks that a
 * multiprocessor runs at a time, at least; more of them leave each thread fewer registers. */
#define KERNEL(name, type, body, resident)                                                                             \
	extern "C" __global__ void __launch_bounds__(COLLET_BLOCK_THREADS, resident)                                   \
		collet_##name(const __grid_constant__ type arguments)                                                  \
	{                                                                                                              \
		body(&arguments);                                                                                      \
	}

/* Memory that the threads of a block share. */
#define SHARED __shared__

DEVICE uint32_t thread_index(void) { return threadIdx.x; }
DEVICE uint32_t thread_count(void) { return blockDim.x; }
DEVICE uint32_t block_index(void) { return blockIdx.x; }
DEVICE uint32_t block_count(void) { return gridDim.x; }
DEVICE uint32_t block_row(void) { return blockIdx.y; }

/* Waits for all threads of the block. What any of them wrote before is visible to all after. */
DEVICE void block_sync(void) { __syncthreads(); }
/* The same; returns whether all threads agree. */
DEVICE bool block_all(bool agrees) { return __syncthreads_and(agrees); }

/* Flags that several GPUs, or the host, read. acquire: what was written before the release store that is read here is
 * visible afterwards. */
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

/* Releases several flags: one fence, then relaxed stores. */
DEVICE void fence_release(void) { asm volatile("fence.acq_rel.sys;" : : : "memory"); }
DEVICE void flag_store_fenced(unsigned char *flag, uint64_t value)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
}

DEVICE uint64_t flag_add(unsigned char *flag, uint64_t amount)
{
	uint64_t before;
	asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
		: "=l"(before) : "l"(flag), "l"(amount) : "memory");
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

/* A clock that all blocks of this GPU share. */
DEVICE uint64_t clock_ns(void)
{
	uint64_t ns;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
	return ns;
}

/* Sleeps for about this time; at most 1 ms. */
DEVICE void sleep_ns(uint32_t ns) { asm volatile("nanosleep.u32 %0;" : : "r"(ns)); }

/* Stores two 8-byte words. Each is atomic; their order is undefined. */
DEVICE void line_store(unsigned char *to, uint64_t first, uint64_t second)
{
	asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" : : "l"(to), "l"(first), "l"(second) : "memory");
}

DEVICE void line_load(const unsigned char *from, uint64_t *first, uint64_t *second)
{
	asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
		: "=l"(*first), "=l"(*second) : "l"(from) : "memory");
}

/* Spins between checks of the abort word, which may be in host memory. */
enum { ABORT_CHECK_INTERVAL = 256 };
/* Spins between checks of what peers were launched for. */
enum { MISMATCH_CHECK_INTERVAL = 1 << 14 };

/* Memory at an address that came from the host. */
DEVICE unsigned char *device_pointer(uint64_t address, uint64_t bytes) { return (unsigned char *)address; }
/* The same for a list of addresses. A thread may use two lists at a time; the last argument says which. */
DEVICE const uint64_t *device_pointers(const uint64_t *addresses, uint32_t count, uint64_t bytes, int slot)
{
	return addresses;
}

/* The address must be a multiple of 16. */
DEVICE union pack pack_load(const unsigned char *from)
{
	const uint4 words = *(const uint4 *)from;
	union pack pack;
	pack.u32[0] = words.x;
	pack.u32[1] = words.y;
	pack.u32[2] = words.z;
	pack.u32[3] = words.w;
	return pack;
}

DEVICE void pack_store(unsigned char *to, const union pack *pack)
{
	*(uint4 *)to = make_uint4(pack->u32[0], pack->u32[1], pack->u32[2], pack->u32[3]);
}

#else

#define DEVICE static inline __attribute__((always_inline, unused))
#define DEVICE_NOINLINE static __attribute__((unused))
#define UNROLL
#define KERNEL(name, type, body, resident)                                                                             \
	enum { argument_bytes_##name = sizeof(type) };                                                                 \
	static void run_##name(const void *arguments)                                                                  \
	{                                                                                                              \
		body((const type *)arguments);                                                                         \
	}

/* The block and thread that run now; set by whoever runs the block. */
struct host_block {
	uint32_t column, columns, row;
	uint32_t thread, threads;
};
extern _Thread_local struct host_block host_block;
/* Returns where the host can access device memory. Does not return if these bytes are in no allocation. */
unsigned char *host_pointer(uint64_t address, uint64_t bytes);

/* Called before waits and signals: another block, or another thread of this one, may run first. */
void host_pause(void);
/* Waits for all threads of the block, which must arrive at the same line. Returns whether all agree. */
bool host_block_barrier(int line, bool agrees);
/* The GPU's clock, which may run at another speed than the host's. */
uint64_t host_clock_ns(void);

/* All threads of a block are one thread of the system. */
#define SHARED static _Thread_local

DEVICE uint32_t thread_index(void) { return host_block.thread; }
DEVICE uint32_t thread_count(void) { return host_block.threads; }
DEVICE uint32_t block_index(void) { return host_block.column; }
DEVICE uint32_t block_count(void) { return host_block.columns; }
DEVICE uint32_t block_row(void) { return host_block.row; }
#define block_sync() ((void)host_block_barrier(__LINE__, true))
#define block_all(agrees) host_block_barrier(__LINE__, agrees)

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

/* ThreadSanitizer does not understand fences, so each store releases. */
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
	const struct timespec pause = { 0, (long)ns };
	host_pause();
	nanosleep(&pause, NULL);
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
	const uint64_t *addresses, uint32_t count, uint64_t bytes, int slot)
{
	static _Thread_local uint64_t pointers[2][COLLET_SPAN_MAX_OPERANDS];
	for (uint32_t i = 0; i < count; i++)
		pointers[slot][i] = (uintptr_t)host_pointer(addresses[i], bytes);
	return pointers[slot];
}

DEVICE union pack pack_load(const unsigned char *from)
{
	return *(const union pack *)(const void *)from;
}

DEVICE void pack_store(unsigned char *to, const union pack *pack)
{
	*(union pack *)(void *)to = *pack;
}

#endif

/* Loads an element at any address: a GPU faults on unaligned accesses. */
DEVICE void element_load(union pack *to, const unsigned char *from, uint32_t bytes)
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

DEVICE void element_store(unsigned char *to, const union pack *pack, uint32_t bytes)
{
	if (bytes == 8 && (uintptr_t)to % 8 == 0)
		*(uint64_t *)(void *)to = pack->u64[0];
	else if (bytes == 4 && (uintptr_t)to % 4 == 0)
		*(uint32_t *)(void *)to = pack->u32[0];
	else if (bytes == 2 && (uintptr_t)to % 2 == 0)
		*(uint16_t *)(void *)to = pack->u16[0];
	else
		for (uint32_t i = 0; i < bytes; i++)
			to[i] = pack->u8[i];
}

#endif
