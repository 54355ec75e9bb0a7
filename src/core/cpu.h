/* Detects the instruction sets that kernels may use, and wraps a few instructions of the processor. "Plain" is the
 * instruction set that the compiler assumes for all machines it builds for. */
#ifndef COLLET_CORE_CPU_H
#define COLLET_CORE_CPU_H

#include <stdatomic.h>
#include <stdint.h>

#include <collet/collet.h>

enum collet_isa {
	COLLET_ISA_AUTO,        /* the best one available */
	COLLET_ISA_PLAIN,
	COLLET_ISA_AVX2,        /* with F16C */
	COLLET_ISA_AVX512,      /* F, BW, DQ and VL */
	COLLET_ISA_AVX512_FP16, /* the same with FP16 */
	COLLET_ISA_COUNT
};

/* Pauses between two polls of memory that another core is about to write. Polling without a pause slows that core's
 * store down, because each poll takes the cache line away from it. */
static inline void collet_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Prefetches a cache line for writing, which takes it away from other cores. x86-64 processors without the instruction
 * ignore it. __builtin_prefetch() for writing is not enough: without that instruction in its target, the compiler
 * prefetches for reading. */
static inline void collet_cpu_prefetch_write(const void *line)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw (%0)" : : "r"(line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* Waits until all earlier loads have their values. Later instructions execute after that. */
static inline void collet_cpu_wait_for_loads(void)
{
#if defined(__x86_64__)
	__asm__ volatile("lfence" : : : "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb ld\n\tisb" : : : "memory");
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Waits for a chain of dependent multiplications (3 or 4 cycles each). No later load executes before it ends, not even
 * speculatively. Finer than a pause instruction, which takes 10 to 140 cycles. */
static inline void collet_cpu_backoff(uint32_t multiplications)
{
	uint64_t product = 1;
	for (uint32_t i = 0; i < multiplications; i++) {
		product *= 0x9e3779b97f4a7c15;
		__asm__ volatile("" : "+r"(product));
	}
	collet_cpu_wait_for_loads();
}

/* True if this processor writes lines slowly that it wrote last and another core has only read since. AMD's do (2 to 9
 * GB/s where 50 are possible), unless the reader has touched them; Intel's do not (docs/design/shared-memory.md). */
bool collet_cpu_rewrites_slowly(void);

/* True on Intel's processors, where one copy by the kernel is faster than two through shared memory. */
bool collet_cpu_is_intel(void);

/* Returns the size of the last-level cache; 0 if the system does not say. */
uint64_t collet_cpu_cache_bytes(void);

/* Returns "auto", "plain", "avx2", "avx512" or "avx512_fp16"; NULL if isa is out of range. */
const char *collet_isa_name(enum collet_isa isa);
/* Parses such a name. Returns false and leaves *isa unchanged if there is none. */
bool collet_isa_parse(const char *text, enum collet_isa *isa);

/* True if this build, this processor and this operating system (which must save the registers) all support isa. It may
 * execute CPUID, which takes microseconds in a virtual machine: call it once and keep the result. */
bool collet_isa_available(enum collet_isa isa);
/* Returns the last one of the enum that is available, never COLLET_ISA_AUTO. */
enum collet_isa collet_isa_best(void);

/* Reads COLLET_ISA from the environment, else takes the best one; never COLLET_ISA_AUTO. Returns COLLET_ERR_CONFIG for
 * a name that is unknown or not available here. All give the same bits, so ranks need not agree. */
collet_status collet_isa_from_env(enum collet_isa *isa);

#endif
