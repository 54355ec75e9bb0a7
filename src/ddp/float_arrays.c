#include "core/cpu.h"
#include "ddp/internal.h"
#include "reduce/convert.h"

enum { BLOCK = 4096, LANES = 8 };

/* Prepares the conversion of narrow floats, which are processed as f32, block by block. */
static bool init_conversion(collet_dtype dtype, struct collet_conversion *conversion)
{
	return dtype != COLLET_F32 && dtype != COLLET_F64 &&
		collet_conversion_init(conversion, dtype, collet_isa_best()) == COLLET_OK;
}

static void scale_f32(float *x, size_t count, double factor)
{
	for (size_t i = 0; i < count; i++)
		x[i] = (float)(x[i] * factor);
}

static void scale_f64(double *x, size_t count, double factor)
{
	for (size_t i = 0; i < count; i++)
		x[i] *= factor;
}

void collet_ddp_scale(void *elements, uint64_t count, collet_dtype dtype, double factor)
{
	struct collet_conversion conversion;
	if (dtype == COLLET_F32)
		scale_f32(elements, count, factor);
	else if (dtype == COLLET_F64)
		scale_f64(elements, count, factor);
	else if (init_conversion(dtype, &conversion))
		for (uint64_t first = 0; first < count; first += BLOCK) {
			const size_t n = count - first < BLOCK ? (size_t)(count - first) : BLOCK;
			unsigned char *at = (unsigned char *)elements + first * collet_dtype_bytes(dtype);
			float wide[BLOCK];
			collet_widen(&conversion, wide, at, n);
			scale_f32(wide, n, factor);
			collet_narrow(&conversion, at, wide, n);
		}
}

/* Keeps eight partial sums, so that compilers can vectorise without changing the order. */
static double squares_f32(const float *x, size_t count)
{
	double sums[LANES] = { 0 };
	size_t i = 0;
	for (; i + LANES <= count; i += LANES)
		for (size_t lane = 0; lane < LANES; lane++)
			sums[lane] += (double)x[i + lane] * (double)x[i + lane];
	for (size_t lane = 0; i < count; i++, lane++)
		sums[lane] += (double)x[i] * (double)x[i];
	return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static double squares_f64(const double *x, size_t count)
{
	double sums[LANES] = { 0 };
	size_t i = 0;
	for (; i + LANES <= count; i += LANES)
		for (size_t lane = 0; lane < LANES; lane++)
			sums[lane] += x[i + lane] * x[i + lane];
	for (size_t lane = 0; i < count; i++, lane++)
		sums[lane] += x[i] * x[i];
	return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double collet_ddp_sum_of_squares(const void *elements, uint64_t count, collet_dtype dtype)
{
	struct collet_conversion conversion;
	if (dtype == COLLET_F32)
		return squares_f32(elements, count);
	if (dtype == COLLET_F64)
		return squares_f64(elements, count);
	double sum = 0;
	if (init_conversion(dtype, &conversion))
		for (uint64_t first = 0; first < count; first += BLOCK) {
			const size_t n = count - first < BLOCK ? (size_t)(count - first) : BLOCK;
			float wide[BLOCK];
			collet_widen(&conversion, wide,
				(const unsigned char *)elements + first * collet_dtype_bytes(dtype), n);
			sum += squares_f32(wide, n);
		}
	return sum;
}
