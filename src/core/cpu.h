/* Which instruction sets the kernels may use here. "Plain" is what the compiler assumes of every machine it builds
 * for. */
#ifndef COLLET_CORE_CPU_H
#define COLLET_CORE_CPU_H

#include <stdatomic.h>
#include <stdint.h>

#include <collet/collet.h>

enum collet_isa {
	COLLET_ISA_AUTO,   /* the best one available */
	COLLET_ISA_PLAIN,
	COLLET_ISA_AVX2,   /* with F16C */
	COLLET_ISA_AVX512, /* F, BW, DQ and VL */
	COLLET_ISA_AVX512_BF16, /* and that */
	COLLET_ISA_COUNT
};

/* Between two looks at memory that another core is about to write. Looking again at once makes that core's store
 * slower: each look takes the line away from it. */
static inline void collet_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* A line that this core is going to write soon is fetched, and taken away from others, meanwhile. A hint, which x86
 * processors of 64 bits without the instruction pass over; a compiler's prefetch for writing is only one for reading
 * unless it may assume that instruction. */
static inline void collet_cpu_prefetch_write(const void *line)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw (%0)" : : "r"(line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* A moment passes, of so many multiplications one after the other (3 or 4 cycles each), before anything that comes
 * after it is read, ahead of its turn or not. Not as coarse as a pause, which takes from 10 to 140 cycles. */
static inline void collet_cpu_backoff(uint32_t multiplications)
{
	uint64_t product = 1;
	for (uint32_t i = 0; i < multiplications; i++) {
		product *= 0x9e3779b97f4a7c15;
		__asm__ volatile("" : "+r"(product));
	}
#if defined(__x86_64__)
	__asm__ volatile("lfence" : : : "memory");
#elif defined(__aarch64__)
	__asm__ volatile("isb" : : : "memory");
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* "auto", "plain", "avx2", "avx512", "avx512_bf16"; NULL for a value that names none. */
const char *collet_isa_name(enum collet_isa isa);
/* False: not such a name; *isa is left alone. */
bool collet_isa_parse(const char *text, enum collet_isa *isa);

/* Do this build, this processor and this operating system (which must save the registers) all have it? May ask the
 * processor, which takes microseconds in a virtual machine: ask once and keep the answer. */
bool collet_isa_available(enum collet_isa isa);
/* The last one in the enum that is available; never COLLET_ISA_AUTO. */
enum collet_isa collet_isa_best(void);

/* COLLET_ISA from the environment, else the best one; never COLLET_ISA_AUTO. COLLET_ERR_CONFIG for a name that is
 * unknown or not available here. All give the same bits, so ranks need not agree. */
collet_status collet_isa_from_env(enum collet_isa *isa);

#endif
