/* Tests conversions between f32 and 16-bit and 8-bit floats: widens every code, and narrows the values around every
 * boundary between two codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reduce/convert.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const collet_dtype dtypes[] = { COLLET_F16, COLLET_BF16, COLLET_F8E4M3, COLLET_F8E5M2 };

/* Runs body for every format and available instruction set. */
static void for_each(void (*body)(const struct collet_conversion *c))
{
	for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
		for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
			struct collet_conversion c;
			if (!collet_isa_available(isa))
				continue;
			assert_int_equal(collet_conversion_init(&c, dtypes[d], isa), COLLET_OK);
			body(&c);
		}
	}
}

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static uint32_t code_at(const struct collet_conversion *c, const void *codes, size_t i)
{
	return collet_dtype_bytes(c->dtype) == 1 ? ((const uint8_t *)codes)[i] : ((const uint16_t *)codes)[i];
}

static void every_code_widens_exactly_and_comes_back(const struct collet_conversion *c)
{
	static uint16_t codes[65536], back[65536];
	static float wide[65536];
	const size_t bytes = collet_dtype_bytes(c->dtype), count = bytes == 1 ? 256 : 65536;
	for (size_t i = 0; i < count; i++) {
		if (bytes == 1)
			((uint8_t *)codes)[i] = (uint8_t)i;
		else
			codes[i] = (uint16_t)i;
	}
	collet_widen(c, wide, codes, count);
	collet_narrow(c, back, wide, count);
	for (size_t i = 0; i < count; i++) {
		const double exact = reference_decode(c->dtype, (uint32_t)i);
		assert_int_equal(bits_of(wide[i]), isnan(exact) ? 0x7fc00000u : bits_of((float)exact));
		assert_int_equal(code_at(c, back, i), isnan(exact) ? reference_format(c->dtype)->nan : i);
	}
}

static void codes_widen(void **state)
{
	for_each(every_code_widens_exactly_and_comes_back);
}

enum { AROUND = 7 };

/* Gives the values of code and the next one, the middle between them, and f32 neighbours of these. All are exact in
 * f32. */
static void around(collet_dtype dtype, uint32_t code, float values[AROUND])
{
	const double low = reference_decode(dtype, code), high = reference_decode(dtype, code + 1);
	const float middle = (float)((low + high) / 2);
	const float all[AROUND] = { (float)low, nextafterf((float)low, INFINITY), nextafterf(middle, 0), middle,
		nextafterf(middle, INFINITY), nextafterf((float)high, 0), (float)high };
	memcpy(values, all, sizeof(all));
}

static void boundaries_round_to_even(const struct collet_conversion *c)
{
	static float values[65536 * AROUND];
	static uint16_t codes[65536 * AROUND];
	const struct reference_format *f = reference_format(c->dtype);
	const uint32_t sign = 1u << (f->exponent_bits + f->mantissa_bits);
	size_t count = 0;
	for (uint32_t code = 0; isfinite(reference_decode(c->dtype, code + 1)); code++, count += AROUND)
		around(c->dtype, code, values + count);
	const size_t positive = count;
	for (size_t i = 0; i < positive; i++)
		values[count++] = -values[i];
	collet_narrow(c, codes, values, count);
	for (size_t i = 0; i < positive; i++) {
		const uint32_t low = (uint32_t)(i / AROUND), at = (uint32_t)(i % AROUND);
		const uint32_t nearest = at < 3 ? low : at > 3 ? low + 1 : low + low % 2;
		assert_int_equal(code_at(c, codes, i), nearest);
		assert_int_equal(code_at(c, codes, positive + i), nearest | sign);
	}
}

static void values_round_to_even(void **state)
{
	for_each(boundaries_round_to_even);
}

static void extremes_saturate_or_overflow(void **state)
{
	static const struct {
		collet_dtype dtype;
		uint32_t f32, code;
	} rows[] = {
		{ COLLET_F16, 0x477fefff, 0x7bff }, /* just under 65520 */
		{ COLLET_F16, 0x477ff000, 0x7c00 }, /* 65520, halfway to 65536 */
		{ COLLET_F16, 0x47800000, 0x7c00 }, { COLLET_F16, 0xff7fffff, 0xfc00 },
		{ COLLET_F16, 0xff800000, 0xfc00 },
		{ COLLET_F16, 0x33000000, 0x0000 }, /* 2^-25, halfway to the least denormal */
		{ COLLET_F16, 0x33000001, 0x0001 },
		{ COLLET_F16, 0xffabcdef, 0x7e00 },
		{ COLLET_BF16, 0x7f7f7fff, 0x7f7f }, { COLLET_BF16, 0x7f7f8000, 0x7f80 },
		{ COLLET_BF16, 0xff800000, 0xff80 },
		{ COLLET_BF16, 0x7fffffff, 0x7fc0 }, { COLLET_BF16, 0xff800001, 0x7fc0 },
		{ COLLET_BF16, 0x00008001, 0x0001 },
		{ COLLET_F8E4M3, 0x43e80000, 0x7e }, /* 464, halfway to what 480 would be */
		{ COLLET_F8E4M3, 0x7f7fffff, 0x7e }, { COLLET_F8E4M3, 0x7f800000, 0x7e },
		{ COLLET_F8E4M3, 0xff800000, 0xfe },
		{ COLLET_F8E4M3, 0xffc00000, 0x7f }, { COLLET_F8E4M3, 0x3a800000, 0x00 },
		{ COLLET_F8E4M3, 0xba800001, 0x81 },
		{ COLLET_F8E5M2, 0x47700000, 0x7b }, /* 61440, halfway to what 65536 would be */
		{ COLLET_F8E5M2, 0xff7fffff, 0xfb }, { COLLET_F8E5M2, 0x7f800000, 0x7c },
		{ COLLET_F8E5M2, 0xff800000, 0xfc },
		{ COLLET_F8E5M2, 0x7f800001, 0x7e },
		{ COLLET_F8E5M2, 0x80000001, 0x80 },
	};
	for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
		for (size_t i = 0; collet_isa_available(isa) && i < sizeof(rows) / sizeof(rows[0]); i++) {
			struct collet_conversion c;
			float value;
			uint16_t code = 0;
			memcpy(&value, &rows[i].f32, sizeof(value));
			assert_int_equal(collet_conversion_init(&c, rows[i].dtype, isa), COLLET_OK);
			collet_narrow(&c, &code, &value, 1);
			assert_int_equal(code, rows[i].code);
			assert_int_equal(reference_encode(rows[i].dtype, (double)value), rows[i].code);
		}
	}
}

/* Converts every length up to several vectors at an odd address, and checks that the bytes behind stay untouched. */
static void ends_stay_inside(const struct collet_conversion *c)
{
	enum { MOST = 70 };
	const size_t bytes = collet_dtype_bytes(c->dtype);
	for (size_t count = 0; count <= MOST; count++) {
		unsigned char codes[2 * MOST + 2], again[2 * MOST + 2];
		float wide[MOST + 1];
		memset(codes, 0x35, sizeof(codes));
		memset(again, 0xee, sizeof(again));
		wide[count] = 77;
		collet_widen(c, wide, codes + 1, count);
		assert_true(wide[count] == 77);
		collet_narrow(c, again + 1, wide, count);
		assert_memory_equal(again + 1, codes + 1, count * bytes);
		assert_int_equal(again[0], 0xee);
		assert_int_equal(again[1 + count * bytes], 0xee);
	}
}

static void lengths_are_respected(void **state)
{
	for_each(ends_stay_inside);
}

static void other_types_are_refused(void **state)
{
	struct collet_conversion c;
	assert_int_equal(collet_conversion_init(&c, COLLET_F32, COLLET_ISA_AUTO), COLLET_ERR_UNSUPPORTED);
	assert_int_equal(collet_conversion_init(&c, (collet_dtype)-1, COLLET_ISA_AUTO), COLLET_ERR_UNSUPPORTED);
	assert_int_equal(collet_conversion_init(&c, COLLET_F16, (enum collet_isa)77), COLLET_ERR_UNSUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_widen),
		cmocka_unit_test(values_round_to_even),
		cmocka_unit_test(extremes_saturate_or_overflow),
		cmocka_unit_test(lengths_are_respected),
		cmocka_unit_test(other_types_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
