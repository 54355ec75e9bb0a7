/* Compares every reduction kernel of every available instruction set with reference.c, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/types.h"
#include "reduce/reduce.h"
#include "reference.h"
#include "skip.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { MOST_OPERANDS = 17, MOST_ELEMENTS = 1003, MARGIN = 64, CANARY = 0xa5 };

static const uint32_t operand_counts[] = { 1, 2, 3, 5, 8, 17 };
static const size_t lengths[] = { 0, 1, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 257, 1003 };
/* Offsets in bytes from a 64-byte boundary, of operands and result: aligned, by an odd element, by an odd byte. */
static const size_t offsets[][2] = { { 0, 0 }, { 8, 40 }, { 1, 3 } };

/* xorshift64*: gives the same elements in every run. */
static uint64_t draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1du;
}

static const uint32_t special_f32[] = {
	0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xffa12345, 0x7fffffff, 1,
	0x80000001,
	0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000,
};
static const uint64_t special_f64[] = {
	0, 0x8000000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000000000,
	0x7ff0000000000001, 0xfff4123456789abc, 1, 0x8000000000000001, 0x000fffffffffffff, 0x7fefffffffffffff,
	0xffefffffffffffff, 0x3ff0000000000000,
};

/* Writes a random element. All bit patterns are equally likely, so floats span their whole range. But half of the
 * floats are near one, so that sums round instead of dropping the smaller operand, and some are special values. */
static void fill_element(collet_dtype dtype, unsigned char *at, uint64_t *seed)
{
	const uint64_t kind = draw(seed) % 16;
	uint64_t bits = draw(seed);
	const double moderate = ldexp((double)(int64_t)bits, -62 + (int)(draw(seed) % 8));
	if (dtype == COLLET_F32) {
		float f = (float)moderate;
		uint32_t narrow = (uint32_t)bits;
		if (kind < 8)
			memcpy(&narrow, &f, sizeof(f));
		else if (kind < 10)
			narrow = special_f32[bits % (sizeof(special_f32) / sizeof(special_f32[0]))];
		bits = narrow;
	} else if (dtype == COLLET_F64) {
		if (kind < 8)
			memcpy(&bits, &moderate, sizeof(bits));
		else if (kind < 10)
			bits = special_f64[bits % (sizeof(special_f64) / sizeof(special_f64[0]))];
	} else if (collet_dtype_is_float(dtype) && kind < 12) {
		bits = reference_encode(dtype, moderate);
	}
	memcpy(at, &bits, collet_dtype_bytes(dtype));
}

static unsigned char inputs[MOST_OPERANDS][MOST_ELEMENTS * 8];
static unsigned char expected[MOST_ELEMENTS * 8];

struct check {
	enum collet_isa isa;
	struct collet_reduction reduction;
	const struct reference_case *c;
	uint64_t roundings; /* expected roundings of each element */
};

/* Runs a reduction in one layout and checks its result. aliased is the operand that is also the result, or the operand
 * count if none is. */
static void check_layout(const struct check *s, size_t length, const size_t offset[2], uint32_t aliased)
{
	static _Alignas(64) unsigned char memory[MOST_OPERANDS + 1][MOST_ELEMENTS * 8 + 2 * MARGIN];
	const size_t bytes = length * collet_dtype_bytes(s->c->dtype);
	struct collet_operand operands[MOST_OPERANDS];
	for (uint32_t k = 0; k < s->c->operand_count; k++) {
		unsigned char *data = memory[k] + offset[0];
		memset(memory[k], CANARY, bytes + 2 * MARGIN);
		memcpy(data, inputs[k], bytes);
		operands[k] = (struct collet_operand){ data, s->c->scaled[k] };
	}
	unsigned char *result = memory[aliased] + offset[0];
	if (aliased == s->c->operand_count) {
		memset(memory[aliased], CANARY, bytes + 2 * MARGIN);
		result = memory[aliased] + offset[1];
	}
	uint64_t roundings = 5;
	collet_reduction_run(&s->reduction, result, operands, s->c->operand_count, length, s->c->finish, &roundings);
	if (memcmp(result, expected, bytes) != 0) {
		size_t i = 0;
		while (result[i] == expected[i])
			i++;
		fail_msg("%s: %s of %u %s, %zu elements, offset %zu, result is operand %u: element %zu differs",
			collet_isa_name(s->isa), collet_op_name(s->c->op), s->c->operand_count,
			collet_dtype_name(s->c->dtype), length, offset[0], aliased,
			i / collet_dtype_bytes(s->c->dtype));
	}
	assert_int_equal(roundings, 5 + s->roundings * length);
	const unsigned char *start = memory[aliased], *end = start + bytes + 2 * MARGIN;
	for (const unsigned char *at = start; at < result; at++)
		assert_int_equal(*at, CANARY);
	for (const unsigned char *at = result + bytes; at < end; at++)
		assert_int_equal(*at, CANARY);
	for (uint32_t k = 0; k < s->c->operand_count; k++)
		if (k != aliased)
			assert_memory_equal(memory[k] + offset[0], inputs[k], bytes);
}

/* Checks the elements stored at copy and at the result. copied is the operand that is the copy too, aliased the
 * one that is the result; the operand count if none is. */
static void check_copy(const struct check *s, size_t length, const size_t offset[2], uint32_t copied, uint32_t aliased)
{
	static _Alignas(64) unsigned char memory[MOST_OPERANDS + 2][MOST_ELEMENTS * 8 + 2 * MARGIN];
	const uint32_t count = s->c->operand_count;
	const size_t bytes = length * collet_dtype_bytes(s->c->dtype);
	struct collet_operand operands[MOST_OPERANDS];
	for (uint32_t k = 0; k < count + 2; k++)
		memset(memory[k], CANARY, bytes + 2 * MARGIN);
	for (uint32_t k = 0; k < count; k++) {
		unsigned char *data = memory[k] + offset[0];
		memcpy(data, inputs[k], bytes);
		operands[k] = (struct collet_operand){ data, s->c->scaled[k] };
	}
	const uint32_t places[] = { copied, aliased == count ? count + 1 : aliased };
	unsigned char *copy = memory[places[0]] + offset[copied == count], *result = memory[places[1]] +
		offset[aliased == count];
	uint64_t roundings = 5;
	const struct collet_reduction_target target = { result, copy, .is_nontemporal = length % 2 };
	collet_reduction_run_to(&s->reduction, &target, operands, count, length, s->c->finish, &roundings);
	if (memcmp(result, expected, bytes) != 0 || memcmp(copy, expected, bytes) != 0)
		fail_msg("%s: %s of %u %s, %zu elements, offset %zu, copy is operand %u, result %u: the %s differs",
			collet_isa_name(s->isa), collet_op_name(s->c->op), count, collet_dtype_name(s->c->dtype),
			length, offset[0], copied, aliased, memcmp(copy, expected, bytes) ? "copy" : "result");
	assert_int_equal(roundings, 5 + s->roundings * length);
	for (uint32_t k = 0; k < count + 2; k++) {
		const bool is_written = k == places[0] || k == places[1];
		const unsigned char *data = k == places[0] ? copy : k == places[1] ? result : memory[k] + offset[0];
		assert_true(k >= count || is_written || memcmp(data, inputs[k], bytes) == 0);
		for (const unsigned char *at = memory[k]; at < data; at++)
			assert_int_equal(*at, CANARY);
		for (const unsigned char *at = data + bytes; at < memory[k] + bytes + 2 * MARGIN; at++)
			assert_true(*at == CANARY);
	}
}

/* Checks one of the ways in which copy and result may be operands. All of them take turns. */
static void check_some_copy(const struct check *s, size_t length, const size_t offset[2], size_t turn)
{
	const uint32_t none = s->c->operand_count, last = none - 1;
	const uint32_t ways[][2] = {
		{ none, none }, { 0, none }, { last, none }, { none, 0 }, { last, 0 }, { 0, last } };
	const uint32_t *way = ways[turn % (sizeof(ways) / sizeof(ways[0]))];
	if (way[0] != way[1] || way[0] == none)  /* copy and result are two */
		check_copy(s, length, offset, way[0], way[1]);
}

static void check_case(const struct check *s)
{
	const uint32_t aliases[] = { s->c->operand_count, 0, s->c->operand_count / 2, s->c->operand_count - 1 };
	for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
		for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
			for (size_t a = 0; a < sizeof(aliases) / sizeof(aliases[0]); a++)
				check_layout(s, lengths[l], offsets[o], aliases[a]);
			check_some_copy(s, lengths[l], offsets[o], l + o);
		}
}

static uint64_t roundings_of(const struct reference_case *c)
{
	const bool is_narrow = collet_dtype_bytes(c->dtype) < 4 && collet_dtype_is_float(c->dtype);
	const bool is_scaled = c->op == COLLET_PREMUL_SUM && c->scaled[0],
		   is_divided = c->op == COLLET_AVERAGE && c->finish;
	return is_narrow && (c->operand_count > 1 || is_scaled || is_divided) && c->op != COLLET_MIN &&
	       c->op != COLLET_MAX;
}

/* Computes the expected result once, then checks every instruction set in every layout. */
static void check_pair(collet_dtype dtype, collet_op op, uint32_t operand_count, bool finish)
{
	const size_t bytes = collet_dtype_bytes(dtype);
	bool scaled[MOST_OPERANDS];
	const void *elements[MOST_OPERANDS];
	struct reference_case c = { dtype, op, operand_count, elements, scaled, -0.7182818284, 17, finish };
	for (uint32_t k = 0; k < operand_count; k++)
		scaled[k] = (k + finish) % 2 == 0;
	for (size_t i = 0; i < MOST_ELEMENTS; i++) {
		for (uint32_t k = 0; k < operand_count; k++)
			elements[k] = inputs[k] + i * bytes;
		reference_reduce(&c, expected + i * bytes);
	}
	for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
		if (!collet_isa_available(isa))
			continue;
		struct check s = { .isa = isa, .c = &c, .roundings = roundings_of(&c) };
		assert_int_equal(collet_reduction_init(&s.reduction, dtype, op, NULL, c.scale, c.world_size, isa),
			COLLET_OK);
		check_case(&s);
	}
}

static void check_dtype(collet_dtype dtype)
{
	uint64_t seed = 0x9e3779b97f4a7c15u + (uint64_t)dtype;
	for (uint32_t k = 0; k < MOST_OPERANDS; k++)
		for (size_t i = 0; i < MOST_ELEMENTS; i++)
			fill_element(dtype, inputs[k] + i * collet_dtype_bytes(dtype), &seed);
	for (int op = 0; op < COLLET_USER; op++) {
		if (!collet_op_supports((collet_op)op, dtype))
			continue;
		for (size_t n = 0; n < sizeof(operand_counts) / sizeof(operand_counts[0]); n++)
			for (int finish = 0; finish < 2; finish++)
				check_pair(dtype, (collet_op)op, operand_counts[n], finish);
	}
}

static void integers_match_the_reference(void **state)
{
	for (int d = 0; d < COLLET_DTYPE_COUNT; d++)
		if (collet_dtype_is_integer((collet_dtype)d))
			check_dtype((collet_dtype)d);
}

static void floats_match_the_reference(void **state)
{
	for (int d = 0; d < COLLET_DTYPE_COUNT; d++)
		if (collet_dtype_is_float((collet_dtype)d))
			check_dtype((collet_dtype)d);
}

static void truth_matches_the_reference(void **state)
{
	check_dtype(COLLET_BOOL);
}

/* ---- Examples of the rules ---- */

static float reduce_two(enum collet_isa isa, collet_op op, uint32_t a, uint32_t b)
{
	struct collet_reduction r;
	float result;
	assert_int_equal(collet_reduction_init(&r, COLLET_F32, op, NULL, 1, 2, isa), COLLET_OK);
	collet_reduction_run(&r, &result, (struct collet_operand[]){ { &a, false }, { &b, false } }, 2, 1, false, NULL);
	return result;
}

static void nan_and_zero_obey_one_rule(void **state)
{
	static const struct {
		collet_op op;
		uint32_t a, b, result;
	} rows[] = {
		{ COLLET_MIN, 0x00000000, 0x80000000, 0x80000000 }, { COLLET_MIN, 0x80000000, 0x00000000, 0x80000000 },
		{ COLLET_MAX, 0x00000000, 0x80000000, 0x00000000 }, { COLLET_MAX, 0x80000000, 0x00000000, 0x00000000 },
		{ COLLET_MAX, 0x80000000, 0x80000000, 0x80000000 }, { COLLET_MIN, 0xffa00001, 0x3f800000, 0x7fc00000 },
		{ COLLET_MIN, 0x3f800000, 0xffffffff, 0x7fc00000 }, { COLLET_MAX, 0x3f800000, 0xff800001, 0x7fc00000 },
		{ COLLET_MAX, 0x7f800001, 0xff800000, 0x7fc00000 }, { COLLET_SUM, 0xffc00001, 0x7fc00002, 0x7fc00000 },
		{ COLLET_SUM, 0x7fc00002, 0xffc00001, 0x7fc00000 }, { COLLET_SUM, 0x7f800000, 0xff800000, 0x7fc00000 },
		{ COLLET_PRODUCT, 0x7f800000, 0x80000000, 0x7fc00000 },
		{ COLLET_SUM, 0x80000000, 0x80000000, 0x80000000 },
		{ COLLET_SUM, 0x00000001, 0x00000001, 0x00000002 }, { COLLET_MIN, 0x80000001, 0x00000000, 0x80000001 },
	};
	for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
		for (size_t i = 0; collet_isa_available(isa) && i < sizeof(rows) / sizeof(rows[0]); i++) {
			const float result = reduce_two(isa, rows[i].op, rows[i].a, rows[i].b);
			uint32_t bits;
			memcpy(&bits, &result, sizeof(bits));
			assert_int_equal(bits, rows[i].result);
		}
	}
}

/* Computes 1 + 2^-8 + 2^-8 in bf16. Both halves of the last place are lost if each sum is rounded, and none if all are
 * summed first. */
static void many_operands_round_once(void **state)
{
	const uint16_t one = 0x3f80, half_place = 0x3b80;
	const struct collet_operand operands[] = { { &one, false }, { &half_place, false }, { &half_place, false } };
	for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
		struct collet_reduction r;
		uint16_t at_once = 0, in_two_steps = 0;
		uint64_t roundings = 0;
		if (!collet_isa_available(isa))
			continue;
		assert_int_equal(collet_reduction_init(&r, COLLET_BF16, COLLET_SUM, NULL, 0, 1, isa), COLLET_OK);
		collet_reduction_run(&r, &at_once, operands, 3, 1, false, &roundings);
		assert_int_equal(roundings, 1);
		collet_reduction_run(&r, &in_two_steps, operands, 2, 1, false, &roundings);
		collet_reduction_run(&r, &in_two_steps,
			(struct collet_operand[]){ { &in_two_steps, false }, operands[2] }, 2, 1, false, &roundings);
		assert_int_equal(roundings, 3);
		assert_int_equal(at_once, 0x3f81);
		assert_int_equal(in_two_steps, 0x3f80);
	}
}

/* Adds every code to a few others: denormals, values that round to the next exponent or to infinity, NaN. */
static void check_every_16_bit_code(collet_dtype dtype, const uint16_t *others, size_t others_count)
{
	enum { CODES = 65536 };
	uint16_t *const codes = calloc(4, CODES * sizeof(*codes)), *const other = codes + CODES,
		 *const plain = other + CODES, *const sums = plain + CODES;
	for (uint32_t i = 0; i < CODES; i++)
		codes[i] = (uint16_t)i;
	for (size_t o = 0; o < others_count; o++) {
		for (uint32_t i = 0; i < CODES; i++)
			other[i] = others[o];
		for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
			struct collet_reduction r;
			const struct collet_operand both[] = { { codes, false }, { other, false } };
			uint16_t *const into = isa == COLLET_ISA_PLAIN ? plain : sums;
			if (!collet_isa_available(isa))
				continue;
			assert_int_equal(collet_reduction_init(&r, dtype, COLLET_SUM, NULL, 0, 1, isa), COLLET_OK);
			collet_reduction_run(&r, into, both, 2, CODES, false, NULL);
			assert_memory_equal(into, plain, CODES * sizeof(*plain));
		}
	}
	free(codes);
}

static void every_16_bit_float_is_rounded_alike(void **state)
{
	static const uint16_t bf16[] = { 0, 0x0001, 0x807f, 0x0080, 0x3f80, 0xbf81, 0x7f7f, 0xff7f, 0x7f80, 0x7fc1 };
	static const uint16_t f16[] = { 0, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xbc01, 0x1001, 0x7bff, 0xfbff, 0x4c00,
		0x7c00, 0x7e01 };
	check_every_16_bit_code(COLLET_BF16, bf16, sizeof(bf16) / sizeof(bf16[0]));
	check_every_16_bit_code(COLLET_F16, f16, sizeof(f16) / sizeof(f16[0]));
}

/* Adds every code to every other. Blocks without infinities and NaNs use other formats, so pairs that have one come
 * last: the order is by the greater of the two magnitudes. */
static void check_every_8_bit_pair(collet_dtype dtype)
{
	enum { PAIRS = 65536 };
	uint8_t *const left = calloc(4, PAIRS), *const right = left + PAIRS, *const want = right + PAIRS,
		*const sums = want + PAIRS;
	const bool unscaled[2] = { false, false };
	size_t count = 0;
	for (uint32_t most = 0; most < 128; most++)
		for (uint32_t pair = 0; pair < PAIRS; pair++) {
			const uint32_t a = pair & 0x7f, b = pair >> 8 & 0x7f;
			if ((a > b ? a : b) != most)
				continue;
			left[count] = (uint8_t)pair;
			right[count++] = (uint8_t)(pair >> 8);
		}
	assert_int_equal(count, PAIRS);
	for (size_t i = 0; i < PAIRS; i++) {
		const void *const operands[2] = { left + i, right + i };
		const struct reference_case c = { dtype, COLLET_SUM, 2, operands, unscaled, 1, 1, false };
		reference_reduce(&c, want + i);
	}
	for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
		struct collet_reduction r;
		const struct collet_operand both[] = { { left, false }, { right, false } };
		if (!collet_isa_available(isa))
			continue;
		assert_int_equal(collet_reduction_init(&r, dtype, COLLET_SUM, NULL, 0, 1, isa), COLLET_OK);
		collet_reduction_run(&r, sums, both, 2, PAIRS, false, NULL);
		assert_memory_equal(sums, want, PAIRS);
	}
	free(left);
}

static void every_sum_of_two_8_bit_floats_is_right(void **state)
{
	check_every_8_bit_pair(COLLET_F8E4M3);
	check_every_8_bit_pair(COLLET_F8E5M2);
}

/* ---- The caller's floating-point mode ---- */

#if defined(__x86_64__)
static void the_callers_mode_is_neither_used_nor_lost(void **state)
{
	const uint32_t modes[] = {
		0x1f80 | _MM_FLUSH_ZERO_ON | 0x40, /* FTZ and DAZ, as frameworks set them */
		0x1f80 | _MM_ROUND_TOWARD_ZERO,
		0x1f80 | _MM_ROUND_UP | _MM_FLUSH_ZERO_ON,
		0x0000, /* every exception traps */
	};
	/* denormal + denormal; a tie; 1 + a tiny value; infinity - infinity; overflow */
	const float left[] = { 1e-41f, 1.0f, 1.0f, INFINITY, 3e38f };
	const float right[] = { 2e-41f, 0x1p-24f, 0x1p-40f, -INFINITY, 3e38f };
	enum { COUNT = sizeof(left) / sizeof(left[0]) };
	const struct collet_operand operands[] = { { left, true }, { right, false } };
	const uint32_t saved_mode = _mm_getcsr();
	for (enum collet_isa isa = COLLET_ISA_PLAIN; isa < COLLET_ISA_COUNT; isa++) {
		for (int op = COLLET_SUM; collet_isa_available(isa) && op <= COLLET_PREMUL_SUM; op++) {
			struct collet_reduction r;
			float usual[COUNT], odd[COUNT];
			assert_int_equal(collet_reduction_init(&r, COLLET_F32, (collet_op)op, NULL, 1.1, 3, isa),
				COLLET_OK);
			collet_reduction_run(&r, usual, operands, 2, COUNT, true, NULL);
			for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
				collet_status status;
				_mm_setcsr(modes[m]);
				status = collet_reduction_init(&r, COLLET_F32, (collet_op)op, NULL, 1.1, 3, isa);
				collet_reduction_run(&r, odd, operands, 2, COUNT, true, NULL);
				const uint32_t mode_after = _mm_getcsr();
				_mm_setcsr(saved_mode);
				assert_int_equal(status, COLLET_OK);
				assert_int_equal(mode_after, modes[m]);
				assert_memory_equal(usual, odd, sizeof(usual));
			}
		}
	}
}
#else
static void the_callers_mode_is_neither_used_nor_lost(void **state)
{
	skip_because("the test only knows the mode register of x86-64");
}
#endif

/* ---- User-defined operations ---- */

/* A user-defined operation that is associative and not commutative. */
static void first_not_zero(void *result, const void *left, const void *right, size_t count, collet_dtype dtype,
	void *context)
{
	int32_t *to = result;
	const int32_t *a = left, *b = right;
	assert_int_equal(dtype, COLLET_I32);
	for (size_t i = 0; i < count; i++)
		to[i] = a[i] ? a[i] : b[i];
	*(uint64_t *)context += count;
}

static void user_operations_fold_from_the_left(void **state)
{
	enum { COUNT = 3000 };
	uint64_t combined = 0;
	const collet_user_op op = { .combine = first_not_zero, .context = &combined };
	struct collet_reduction r;
	assert_int_equal(collet_reduction_init(&r, COLLET_I32, COLLET_USER, &op, 0, 1, COLLET_ISA_AUTO), COLLET_OK);
	for (uint32_t n = 1; n <= 6; n++) {
		for (uint32_t aliased = 0; aliased <= n; aliased++) {
			static int32_t data[7][COUNT], copy[COUNT];
			struct collet_operand operands[6];
			for (uint32_t k = 0; k < n; k++) {
				for (int i = 0; i < COUNT; i++)
					data[k][i] = (uint32_t)i % (n + 1) <= k ? 10 * i + (int)k + 1 : 0;
				operands[k] = (struct collet_operand){ data[k], false };
			}
			combined = 0;
			const struct collet_reduction_target target = { data[aliased], copy, false };
			collet_reduction_run_to(&r, &target, operands, n, COUNT, true, NULL);
			assert_int_equal(combined, (n - 1) * COUNT);
			for (int i = 0; i < COUNT; i++)
				assert_int_equal(data[aliased][i],
					(uint32_t)i % (n + 1) < n ? 10 * i + i % (int)(n + 1) + 1 : 0);
			assert_memory_equal(copy, data[aliased], sizeof(copy));
		}
	}
}

/* ---- Refusals ---- */

static void what_does_not_exist_is_refused(void **state)
{
	const collet_user_op empty = { 0 };
	struct collet_reduction r;
	for (int d = 0; d < COLLET_DTYPE_COUNT; d++) {
		for (int op = 0; op < COLLET_USER; op++) {
			const bool exists = collet_op_supports((collet_op)op, (collet_dtype)d);
			assert_int_equal(collet_reduction_init(&r, (collet_dtype)d, (collet_op)op, NULL, 1, 2,
				COLLET_ISA_AUTO),
				exists ? COLLET_OK : COLLET_ERR_UNSUPPORTED);
			if (!exists)
				assert_non_null(strstr(collet_last_error(), collet_dtype_name((collet_dtype)d)));
		}
	}
	assert_int_equal(collet_reduction_init(&r, COLLET_F32, (collet_op)99, NULL, 1, 2, COLLET_ISA_AUTO),
		COLLET_ERR_UNSUPPORTED);
	assert_int_equal(collet_reduction_init(&r, (collet_dtype)-1, COLLET_SUM, NULL, 1, 2, COLLET_ISA_AUTO),
		COLLET_ERR_UNSUPPORTED);
	assert_int_equal(collet_reduction_init(&r, COLLET_F32, COLLET_SUM, NULL, 1, 2, COLLET_ISA_COUNT),
		COLLET_ERR_UNSUPPORTED);
	assert_int_equal(collet_reduction_init(&r, COLLET_F32, COLLET_USER, NULL, 1, 2, COLLET_ISA_AUTO),
		COLLET_ERR_ARGUMENT);
	assert_int_equal(collet_reduction_init(&r, COLLET_F32, COLLET_USER, &empty, 1, 2, COLLET_ISA_AUTO),
		COLLET_ERR_ARGUMENT);
}

static void the_instruction_set_can_be_chosen(void **state)
{
	enum collet_isa isa = COLLET_ISA_AUTO;
	setenv("COLLET_ISA", "plain", 1);
	assert_int_equal(collet_isa_from_env(&isa), COLLET_OK);
	assert_int_equal(isa, COLLET_ISA_PLAIN);
	setenv("COLLET_ISA", "sse9", 1);
	assert_int_equal(collet_isa_from_env(&isa), COLLET_ERR_CONFIG);
	assert_non_null(strstr(collet_last_error(), "COLLET_ISA=sse9"));
	assert_int_equal(isa, COLLET_ISA_PLAIN);
	unsetenv("COLLET_ISA");
	assert_int_equal(collet_isa_from_env(&isa), COLLET_OK);
	assert_int_equal(isa, collet_isa_best());
	assert_true(collet_isa_available(isa));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_match_the_reference),
		cmocka_unit_test(floats_match_the_reference),
		cmocka_unit_test(truth_matches_the_reference),
		cmocka_unit_test(nan_and_zero_obey_one_rule),
		cmocka_unit_test(many_operands_round_once),
		cmocka_unit_test(every_16_bit_float_is_rounded_alike),
		cmocka_unit_test(every_sum_of_two_8_bit_floats_is_right),
		cmocka_unit_test(the_callers_mode_is_neither_used_nor_lost),
		cmocka_unit_test(user_operations_fold_from_the_left),
		cmocka_unit_test(what_does_not_exist_is_refused),
		cmocka_unit_test(the_instruction_set_can_be_chosen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
