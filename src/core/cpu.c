#include "core/cpu.h"

#include "core/config.h"
#include "core/status.h"

#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const names[COLLET_ISA_COUNT] = {
	[COLLET_ISA_AUTO] = "auto",
	[COLLET_ISA_PLAIN] = "plain",
	[COLLET_ISA_AVX2] = "avx2",
	[COLLET_ISA_AVX512] = "avx512",
	[COLLET_ISA_AVX512_FP16] = "avx512_fp16",
};

bool collet_cpu_rewrites_slowly(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_is("amd");
#else
	return false;
#endif
}

bool collet_cpu_is_intel(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_is("intel");
#else
	return false;
#endif
}

uint64_t collet_cpu_cache_bytes(void)
{
#ifdef _SC_LEVEL3_CACHE_SIZE
	const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
	return bytes > 0 ? (uint64_t)bytes : 0;
#else
	return 0;
#endif
}

const char *collet_isa_name(enum collet_isa isa)
{
	return (unsigned)isa < COLLET_ISA_COUNT ? names[isa] : NULL;
}

bool collet_isa_parse(const char *text, enum collet_isa *isa)
{
	for (int i = 0; i < COLLET_ISA_COUNT; i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		*isa = (enum collet_isa)i;
		return true;
	}
	return false;
}

#if defined(__x86_64__)
/* __builtin_cpu_supports() reads results of program start, which include whether the system saves the wide registers
 * (XCR0). Some compilers do not know its "f16c". CPUID is enough for that: it needs no registers beyond AVX. */
static bool have_f16c(void)
{
#if !defined(__clang__) && __GNUC__ >= 11
	return __builtin_cpu_supports("f16c");
#else
	unsigned eax, ebx, ecx, edx;
	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
#endif
}

static bool have_avx2(void)
{
	return __builtin_cpu_supports("avx2") && have_f16c();
}

static bool have_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool have_avx512_fp16(void)
{
	enum { BIT_AVX512FP16 = 1 << 23 }; /* older compilers have no name for it */
	unsigned eax, ebx, ecx, edx;
	return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & BIT_AVX512FP16);
}
#else
static bool have_avx2(void)
{
	return false;
}

static bool have_avx512(void)
{
	return false;
}

static bool have_avx512_fp16(void)
{
	return false;
}
#endif

bool collet_isa_available(enum collet_isa isa)
{
	switch (isa) {
	case COLLET_ISA_AUTO: case COLLET_ISA_PLAIN:
		return true;
	case COLLET_ISA_AVX2:
		return have_avx2();
	case COLLET_ISA_AVX512:
		return have_avx2() && have_avx512();
	case COLLET_ISA_AVX512_FP16:
		return have_avx2() && have_avx512() && have_avx512_fp16();
	case COLLET_ISA_COUNT:
		break;
	}
	return false;
}

enum collet_isa collet_isa_best(void)
{
	int isa = COLLET_ISA_COUNT - 1;
	while (!collet_isa_available((enum collet_isa)isa))
		isa--;  /* ends at PLAIN, which is always available */
	return (enum collet_isa)isa;
}

collet_status collet_isa_from_env(enum collet_isa *isa)
{
	const char *text = collet_env("COLLET_ISA");
	enum collet_isa requested = COLLET_ISA_AUTO;
	if (text && !collet_isa_parse(text, &requested))
		return collet_fail(COLLET_ERR_CONFIG,
			"COLLET_ISA=%s is none of auto, plain, avx2, avx512, avx512_fp16", text);
	if (!collet_isa_available(requested))
		return collet_fail(COLLET_ERR_CONFIG, "COLLET_ISA=%s: not available here; the best one is %s", text,
			collet_isa_name(collet_isa_best()));
	*isa = requested == COLLET_ISA_AUTO ? collet_isa_best() : requested;
	return COLLET_OK;
}
