/* Sets the floating-point mode that kernels run in: round to nearest even, denormals kept, exceptions masked. A caller,
 * such as a deep learning framework, may have set another mode in its thread. Reading the mode is cheap and writing it
 * is not, so it is written only if it differs. */
#ifndef COLLET_REDUCE_FPMODE_H
#define COLLET_REDUCE_FPMODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

#define COLLET_FPMODE_DEFAULT 0x1f80u /* all exceptions masked, round to nearest, no FTZ, no DAZ */
#define COLLET_FPMODE_FLAGS 0x3fu     /* exception flags, which are no part of the mode */

/* Sets the mode of kernels. Returns the mode to restore, for collet_fpmode_leave(). */
static inline uint64_t collet_fpmode_enter(void)
{
	const uint32_t previous = _mm_getcsr();
	if ((previous & ~COLLET_FPMODE_FLAGS) != COLLET_FPMODE_DEFAULT)
		_mm_setcsr(COLLET_FPMODE_DEFAULT);
	return previous;
}

static inline void collet_fpmode_leave(uint64_t previous)
{
	if (((uint32_t)previous & ~COLLET_FPMODE_FLAGS) != COLLET_FPMODE_DEFAULT)
		_mm_setcsr((uint32_t)previous);
}

#elif defined(__aarch64__)
/* FPCR: zero is exactly the wanted mode. The exception flags are in FPSR. */
static inline uint64_t collet_fpmode_enter(void)
{
	uint64_t previous;
	__asm__ volatile("mrs %0, fpcr" : "=r"(previous));
	if (previous != 0)
		__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
	return previous;
}

static inline void collet_fpmode_leave(uint64_t previous)
{
	if (previous != 0)
		__asm__ volatile("msr fpcr, %0" : : "r"(previous) : "memory");
}

#else
#include <fenv.h>

/* Standard C can set the rounding only. */
static inline uint64_t collet_fpmode_enter(void)
{
	const int previous = fegetround();
	if (previous != FE_TONEAREST)
		fesetround(FE_TONEAREST);
	return (uint64_t)previous;
}

static inline void collet_fpmode_leave(uint64_t previous)
{
	if ((int)previous != FE_TONEAREST)
		fesetround((int)previous);
}
#endif

#endif
