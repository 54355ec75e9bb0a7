/* Makes inputs, computes expected results, and compares. */
#include "values.h"

#include <math.h>
#include <string.h>

/* Largest integer up to which all are exact; significand bits with the hidden one; the other sizes of the float
 * formats. */
static const struct {
	int significand_bits, min_exponent;   /* of the smallest normal number, 2^min_exponent */
	double largest;
	int sign_bit, exponent_bias;
	bool saturates;
} floats[COLLET_DTYPE_COUNT] = {
	[COLLET_F16] = { 11, -14, 65504, 15, 15, false },
	[COLLET_BF16] = { 8, -126, 0x1.fep127, 15, 127, false },
	[COLLET_F8E4M3] = { 4, -6, 448, 7, 7, true },
	[COLLET_F8E5M2] = { 3, -14, 57344, 7, 15, true },
	[COLLET_F32] = { 24, 0, 0, 0, 0, false },
	[COLLET_F64] = { 53, 0, 0, 0, 0, false },
};

/* SplitMix64's finaliser: any bit of the input flips each bit of the output half of the time. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t hash(uint32_t rank, uint64_t index)
{
	return mix(((uint64_t)rank << 32 | (index % BENCH_PERIOD)) + 0x9e3779b97f4a7c15u);
}

double bench_scale(uint32_t rank)
{
	return rank % 2 == 0 ? 2 : 1;
}

/* The 8 or 16 bits of a narrow float; value is finite. */
static uint32_t narrow_bits(collet_dtype dtype, double value)
{
	const int fraction_bits = floats[dtype].significand_bits - 1;
	const uint32_t sign = signbit(value) ? 1u << floats[dtype].sign_bit : 0;
	const double magnitude = fabs(value);
	if (magnitude == 0)
		return sign;
	int exponent;
	frexp(magnitude, &exponent);   /* magnitude = [0.5, 1) * 2^exponent */
	int unit = exponent - 1;
	if (unit < floats[dtype].min_exponent)
		unit = floats[dtype].min_exponent;
	/* Counts in units of the last place. rint() rounds to even, and a carry out of the fraction moves into the
	 * exponent. */
	const double units = rint(ldexp(magnitude, fraction_bits - unit));
	if (ldexp(units, unit - fraction_bits) > floats[dtype].largest) {
		const uint32_t top = floats[dtype].saturates ? narrow_bits(dtype, floats[dtype].largest)
			: (1u << floats[dtype].sign_bit) - (1u << fraction_bits);   /* infinity */
		return sign | top;
	}
	const uint32_t base = (uint32_t)(unit + floats[dtype].exponent_bias - 1) << fraction_bits;
	const bool normal = ldexp(units, -fraction_bits) >= 1;
	return sign | (normal ? base + (uint32_t)units : (uint32_t)units);
}

void bench_store(collet_dtype dtype, double value, void *element)
{
	if (dtype == COLLET_F64) {
		memcpy(element, &value, sizeof(value));
	} else if (dtype == COLLET_F32) {
		const float single = (float)value;
		memcpy(element, &single, sizeof(single));
	} else {
		const uint32_t bits = narrow_bits(dtype, value);
		const uint16_t two = (uint16_t)bits;
		const uint8_t one = (uint8_t)bits;
		memcpy(element, collet_dtype_bytes(dtype) == 2 ? (const void *)&two : &one, collet_dtype_bytes(dtype));
	}
}

/* A little-endian host is assumed by collet's wire formats too: the low bytes come first. */
static void store_integer(collet_dtype dtype, uint64_t value, void *element)
{
	memcpy(element, &value, collet_dtype_bytes(dtype));
}

/* Small integers whose sums over all ranks stay where the type counts without gaps, whatever the order. */
static double float_addend(collet_dtype dtype, collet_op op, uint32_t rank, uint32_t ranks, uint64_t index)
{
	const double exact = ldexp(1, floats[dtype].significand_bits) / (op == COLLET_PREMUL_SUM ? 2 : 1);
	const uint64_t limit = exact > 1 << 20 ? 1 << 20 : (uint64_t)exact;
	const uint64_t each = limit / ranks < 1000 ? limit / ranks : 1000;
	const uint64_t bits = hash(rank, index);
	if (each == 0)   /* more ranks than the type can count: some of them, other ones for each element, give 1 */
		return (rank + index % BENCH_PERIOD) % ranks < limit ? 1 : 0;
	const double magnitude = (double)(bits % (each + 1));
	/* No -0: whether it survives depends on the order. */
	return bits >> 63 && magnitude > 0 ? -magnitude : magnitude;
}

/* At most three ranks give a 2, so that the product fits every type; the others 1 or -1. */
static int factor(uint32_t rank, uint32_t ranks, uint64_t index)
{
	if ((rank + index % BENCH_PERIOD) % ranks < 3)
		return 2;
	return hash(rank, index) >> 63 ? -1 : 1;
}

static double float_input(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t index)
{
	switch ((collet_op)work->op) {
	case COLLET_PRODUCT:
		return factor(rank, ranks, index);
	case COLLET_MIN: case COLLET_MAX:
		return (double)(hash(rank, index) % 15) - 7;   /* 7: the three bits that the narrowest type has */
	default:
		return float_addend((collet_dtype)work->dtype, (collet_op)work->op, rank, ranks, index);
	}
}

static uint64_t integer_input(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t index)
{
	if (work->dtype == COLLET_BOOL) /* true is any byte but 0: half of the ranks' first bit, or rarely false */
		return hash(rank, index) & (hash(0, index) % 3 ? 0x81 : 0xff);
	if (work->op == COLLET_PRODUCT)
		return (uint64_t)(int64_t)factor(rank, ranks, index);
	return hash(rank, index);
}

void bench_input_element(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t index, void *element)
{
	const collet_dtype dtype = (collet_dtype)work->dtype;
	if (!bench_collective_combines((enum bench_collective)work->collective) || !bench_dtype_is_float(dtype))
		store_integer(dtype, bench_collective_combines((enum bench_collective)work->collective)
			? integer_input(work, rank, ranks, index) : hash(rank, index), element);
	else
		bench_store(dtype, float_input(work, rank, ranks, index), element);
}

/* Averages as the library does: the finished sum times 1/n in f32 (f64: in f64), before the one rounding. */
static double average(collet_dtype dtype, double sum, uint32_t ranks)
{
	if (dtype == COLLET_F64)
		return sum * (1.0 / (double)ranks);
	return (double)((float)sum * (1.0f / (float)ranks));
}

static void combined_floats(const struct bench_work *work, uint32_t ranks, uint64_t index, void *element)
{
	const collet_op op = (collet_op)work->op;
	double result = 0;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		double value = float_input(work, rank, ranks, index);
		if (op == COLLET_PREMUL_SUM)
			value *= bench_scale(rank);
		if (rank == 0)
			result = value;
		else if (op == COLLET_PRODUCT)
			result *= value;
		else if (op == COLLET_MIN)
			result = fmin(result, value);
		else if (op == COLLET_MAX)
			result = fmax(result, value);
		else
			result += value;
	}
	if (op == COLLET_AVERAGE)
		result = average((collet_dtype)work->dtype, result, ranks);
	bench_store((collet_dtype)work->dtype, result, element);
}

static bool is_signed(collet_dtype dtype)
{
	return dtype == COLLET_I8 || dtype == COLLET_I16 || dtype == COLLET_I32 || dtype == COLLET_I64;
}

/* The value of the low bits as the type reads them, in 64 bits. */
static uint64_t widened(collet_dtype dtype, uint64_t value)
{
	const unsigned unused = 64 - 8 * (unsigned)collet_dtype_bytes(dtype);
	const uint64_t shifted = value << unused;
	return is_signed(dtype) ? (uint64_t)((int64_t)shifted >> unused) : shifted >> unused;
}

static bool less(collet_dtype dtype, uint64_t a, uint64_t b)
{
	return is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

/* What the operation is for elements that are 0 or 1. */
static collet_op truth_op(collet_op op)
{
	return op == COLLET_PRODUCT || op == COLLET_MIN ? COLLET_AND :
		op == COLLET_SUM || op == COLLET_MAX    ? COLLET_OR : op;
}

static void combined_integers(const struct bench_work *work, uint32_t ranks, uint64_t index, void *element)
{
	const collet_dtype dtype = (collet_dtype)work->dtype;
	const bool is_truth = dtype == COLLET_BOOL;
	const collet_op op = is_truth ? truth_op((collet_op)work->op) : (collet_op)work->op;
	uint64_t result = 0;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		const uint64_t input = widened(dtype, integer_input(work, rank, ranks, index));
		const uint64_t value = is_truth ? input != 0 : input;
		switch (rank == 0 ? COLLET_OP_COUNT : op) {
		case COLLET_OP_COUNT: result = value; break;
		case COLLET_PRODUCT: result *= value; break;
		case COLLET_MIN: result = less(dtype, value, result) ? value : result; break;
		case COLLET_MAX: result = less(dtype, result, value) ? value : result; break;
		case COLLET_AND: result &= value; break;
		case COLLET_OR: result |= value; break;
		case COLLET_XOR: result ^= value; break;
		default: result += value; break;
		}
	}
	if (work->op == COLLET_AVERAGE) {
		result = widened(dtype, result);
		result = is_signed(dtype) ? (uint64_t)((int64_t)result / (int64_t)ranks) : result / ranks;
	}
	store_integer(dtype, result, element);
}

/* Finds the origin of a moved element: the sender's rank and the index there. */
static void moved_from(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, uint64_t index,
	uint32_t *source, uint64_t *source_index)
{
	*source = work->root;
	*source_index = index;
	switch (work->collective) {
	case BENCH_ALLGATHER: case BENCH_GATHER:
		*source = (uint32_t)(index / count);
		*source_index = index % count;
		break;
	case BENCH_ALLTOALL:
		*source = (uint32_t)(index / count);
		*source_index = rank * count + index % count;
		break;
	case BENCH_SCATTER:
		*source_index = rank * count + index;
		break;
	case BENCH_SENDRECV:
		*source = (rank + ranks - 1) % ranks;
		break;
	default:
		break;
	}
}

void bench_expected_element(
	const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, uint64_t index, void *element)
{
	if (bench_collective_combines((enum bench_collective)work->collective)) {
		const uint64_t at = work->collective == BENCH_REDUCE_SCATTER ? rank * count + index : index;
		if (!bench_dtype_is_float((collet_dtype)work->dtype))
			combined_integers(work, ranks, at, element);
		else
			combined_floats(work, ranks, at, element);
		return;
	}
	uint32_t source;
	uint64_t source_index;
	moved_from(work, rank, ranks, count, index, &source, &source_index);
	bench_input_element(work, source, ranks, source_index, element);
}

/* One period of inputs, of all that repeats. */
struct period {
	uint8_t bytes[BENCH_PERIOD * 8];
	size_t element_bytes;
};

void bench_fill(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, void *send)
{
	const size_t element_bytes = collet_dtype_bytes((collet_dtype)work->dtype);
	const uint64_t total = bench_send_count(work, rank, ranks, count);
	struct period period;
	for (uint64_t i = 0; i < BENCH_PERIOD && i < total; i++)
		bench_input_element(work, rank, ranks, i, period.bytes + i * element_bytes);
	uint8_t *to = send;
	for (uint64_t done = 0; done < total; done += BENCH_PERIOD) {
		const uint64_t part = total - done < BENCH_PERIOD ? total - done : BENCH_PERIOD;
		memcpy(to + done * element_bytes, period.bytes, part * element_bytes);
	}
}

void bench_poison(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, void *recv)
{
	const size_t element_bytes = collet_dtype_bytes((collet_dtype)work->dtype);
	const uint64_t total = bench_recv_count(work, rank, ranks, count);
	if (total > 0)
		memset(recv, 0xa5, total * element_bytes);
}

/* Elements of two stretches that differ; *first is the first one. */
static uint64_t differing(
	const uint8_t *got, const uint8_t *want, uint64_t count, size_t element_bytes, uint64_t *first)
{
	uint64_t wrong = 0;
	for (uint64_t i = 0; i < count; i++)
		if (memcmp(got + i * element_bytes, want + i * element_bytes, element_bytes) != 0 && wrong++ == 0)
			*first = i;
	return wrong;
}

/* One block of recv that comes from one place, or is combined, and so repeats with the period. */
static uint64_t check_block(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count,
	uint64_t start, uint64_t block, const uint8_t *recv, uint64_t *first)
{
	const size_t element_bytes = collet_dtype_bytes((collet_dtype)work->dtype);
	struct period period;
	uint64_t wrong = 0;
	for (uint64_t i = 0; i < BENCH_PERIOD && i < block; i++)
		bench_expected_element(work, rank, ranks, count, start + i, period.bytes + i * element_bytes);
	for (uint64_t done = 0; done < block; done += BENCH_PERIOD) {
		const uint64_t part = block - done < BENCH_PERIOD ? block - done : BENCH_PERIOD;
		const uint8_t *got = recv + (start + done) * element_bytes;
		if (memcmp(got, period.bytes, part * element_bytes) == 0)
			continue;
		uint64_t first_here = 0;
		const uint64_t here = differing(got, period.bytes, part, element_bytes, &first_here);
		if (wrong == 0)
			*first = start + done + first_here;
		wrong += here;
	}
	return wrong;
}

uint64_t bench_check(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, const void *recv,
	uint64_t *first)
{
	const uint64_t total = bench_recv_count(work, rank, ranks, count);
	uint64_t wrong = 0;
	for (uint64_t start = 0; start < total; start += count) {
		uint64_t first_here = 0;
		const uint64_t here = check_block(work, rank, ranks, count, start, count, recv, &first_here);
		if (wrong == 0 && here > 0)
			*first = first_here;
		wrong += here;
	}
	return wrong;
}
