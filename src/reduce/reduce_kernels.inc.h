/* Every kernel of one instruction set. The file that includes this defines
 *   COLLET_VECTOR_BYTES  how wide a vector is: 16 (any machine), 32 (AVX2 and F16C) or 64 (AVX-512 F, BW, DQ)
 *   COLLET_VECTOR_BF16   if it has AVX512_BF16 too
 *   COLLET_KERNELS       the name of the table to define
 * and is compiled with the flags of its instruction set. Nothing here has external linkage but the table.
 *
 * A kernel walks the span in blocks of four accumulators: loads the block of operand 0, combines those of the
 * others into it, stores. A block is read from every operand before it is written, so the result may be any of
 * them. Wide loads of many operands at a time keep the memory busy; one pass is all there is. */

#include "reduce/reduce_kernels.h"

/* In this order: each uses those before it. */
#include "reduce/vector.h"

#include "reduce/narrow_floats.h"

#include "reduce/storage_formats.h"

#include "reduce/lane_operations.h"

#include "reduce/convert_arrays.h"

enum { WIDE = 4 };

/* ---- The walk ---- */

/* What one kernel does. All of it constant, so that inlining leaves none of the indirection. */
struct recipe {
	const struct format *format;
	vec (*combine)(vec left, vec right);
	vec (*first)(vec v, bool scale, const struct collet_factors *factors); /* may be NULL */
	vec (*last)(vec v, const struct collet_factors *factors);              /* may be NULL */
};

/* The arguments of a kernel, by one name. */
struct job {
	unsigned char *result;
	const struct collet_operand *operands;
	uint32_t operand_count;
	const struct collet_factors *factors;
};

/* One operand's part of a block: bytes [at, at + accumulators' worth), or only `part` of them if that is not 0. */
VECTOR_INLINE void take(vec *to, const struct collet_operand *operand, size_t at, uint32_t accumulators, size_t part,
	const struct job *job, const struct recipe recipe)
{
	const unsigned char *from = (const unsigned char *)operand->data + at;
	unsigned char edge[sizeof(vec)];
	if (part) {
		vec_store(edge, vec_load_part(from, part));
		from = edge;
	}
	recipe.format->load(to, from, accumulators);
	for (uint32_t i = 0; recipe.first && i < accumulators; i++)
		to[i] = recipe.first(to[i], operand->scale, job->factors);
}

VECTOR_INLINE void block(const struct job *job, size_t at, uint32_t accumulators, size_t part,
	const struct recipe recipe)
{
	vec sum[WIDE], next[WIDE];
	take(sum, &job->operands[0], at, accumulators, part, job, recipe);
	for (uint32_t k = 1; k < job->operand_count; k++) {
		take(next, &job->operands[k], at, accumulators, part, job, recipe);
		for (uint32_t i = 0; i < accumulators; i++)
			sum[i] = recipe.combine(sum[i], next[i]);
	}
	for (uint32_t i = 0; recipe.last && i < accumulators; i++)
		sum[i] = recipe.last(sum[i], job->factors);
	if (part) {
		unsigned char edge[sizeof(vec)];
		recipe.format->store(edge, sum, accumulators);
		vec_store_part(job->result + at, vec_load(edge), part);
	} else {
		recipe.format->store(job->result + at, sum, accumulators);
	}
}

/* Wide blocks, then single vectors of storage, then what is left of one. */
VECTOR_INLINE void walk(const struct job *job, size_t count, const struct recipe recipe)
{
	const uint32_t spread = recipe.format->spread;
	const size_t bytes = count * recipe.format->element_bytes, wide_bytes = WIDE / spread * sizeof(vec);
	size_t at = 0;
	for (; bytes - at >= wide_bytes; at += wide_bytes)
		block(job, at, WIDE, 0, recipe);
	for (; bytes - at >= sizeof(vec); at += sizeof(vec))
		block(job, at, spread, 0, recipe);
	if (at < bytes)
		block(job, at, spread, bytes - at, recipe);
}

#define KERNEL(name, ...) \
	static void name(void *result, const struct collet_operand *operands, uint32_t operand_count, size_t count, \
		const struct collet_factors *factors) \
	{ \
		const struct job job = { result, operands, operand_count, factors }; \
		walk(&job, count, (struct recipe){ __VA_ARGS__ }); \
	}

/* ---- The kernels. Signed and unsigned integers share what does not care. ---- */

KERNEL(reduce_sum_8, &bytes_1, sum_8)
KERNEL(reduce_sum_32, &bytes_4, sum_32)
KERNEL(reduce_sum_64, &bytes_8, sum_64)
KERNEL(reduce_product_8, &bytes_1, product_8)
KERNEL(reduce_product_32, &bytes_4, product_32)
KERNEL(reduce_product_64, &bytes_8, product_64)
KERNEL(reduce_min_i8, &bytes_1, min_i8)
KERNEL(reduce_min_u8, &bytes_1, min_u8)
KERNEL(reduce_min_i32, &bytes_4, min_i32)
KERNEL(reduce_min_u32, &bytes_4, min_u32)
KERNEL(reduce_min_i64, &bytes_8, min_i64)
KERNEL(reduce_min_u64, &bytes_8, min_u64)
KERNEL(reduce_max_i8, &bytes_1, max_i8)
KERNEL(reduce_max_u8, &bytes_1, max_u8)
KERNEL(reduce_max_i32, &bytes_4, max_i32)
KERNEL(reduce_max_u32, &bytes_4, max_u32)
KERNEL(reduce_max_i64, &bytes_8, max_i64)
KERNEL(reduce_max_u64, &bytes_8, max_u64)
KERNEL(reduce_and_8, &bytes_1, and_bits)
KERNEL(reduce_and_32, &bytes_4, and_bits)
KERNEL(reduce_and_64, &bytes_8, and_bits)
KERNEL(reduce_or_8, &bytes_1, or_bits)
KERNEL(reduce_or_32, &bytes_4, or_bits)
KERNEL(reduce_or_64, &bytes_8, or_bits)
KERNEL(reduce_xor_8, &bytes_1, xor_bits)
KERNEL(reduce_xor_32, &bytes_4, xor_bits)
KERNEL(reduce_xor_64, &bytes_8, xor_bits)

/* lanes: what they are combined in, f32 or f64. */
#define FLOAT_KERNELS(name, lanes) \
	KERNEL(reduce_sum_##name, &name, sum_##lanes) \
	KERNEL(reduce_product_##name, &name, product_##lanes) \
	KERNEL(reduce_min_##name, &name, min_##lanes) \
	KERNEL(reduce_max_##name, &name, max_##lanes) \
	KERNEL(reduce_average_##name, &name, sum_##lanes, NULL, divide_##lanes) \
	KERNEL(reduce_premul_##name, &name, sum_##lanes, scale_##lanes)

FLOAT_KERNELS(f16, f32)
FLOAT_KERNELS(bf16, f32)
FLOAT_KERNELS(f32, f32)
FLOAT_KERNELS(f64, f64)
FLOAT_KERNELS(f8e4m3, f32)
FLOAT_KERNELS(f8e5m2, f32)

/* ---- The table ---- */

/* Until its last touch an average is a sum, and integers are divided elsewhere, so theirs is the sum's. */
#define INTEGER_ROW(name, bits) \
	{ \
		[COLLET_SUM] = reduce_sum_##bits, [COLLET_PRODUCT] = reduce_product_##bits, \
		[COLLET_MIN] = reduce_min_##name, [COLLET_MAX] = reduce_max_##name, \
			[COLLET_AVERAGE] = reduce_sum_##bits, \
		[COLLET_AND] = reduce_and_##bits, [COLLET_OR] = reduce_or_##bits, [COLLET_XOR] = reduce_xor_##bits, \
	}
#define FLOAT_ROW(name) \
	{ \
		[COLLET_SUM] = reduce_sum_##name, [COLLET_PRODUCT] = reduce_product_##name, \
		[COLLET_MIN] = reduce_min_##name, [COLLET_MAX] = reduce_max_##name, \
		[COLLET_AVERAGE] = reduce_average_##name, [COLLET_PREMUL_SUM] = reduce_premul_##name, \
	}

const struct collet_kernels COLLET_KERNELS = {
	.reduce = {
		[COLLET_I8] = INTEGER_ROW(i8, 8),
		[COLLET_U8] = INTEGER_ROW(u8, 8),
		[COLLET_I32] = INTEGER_ROW(i32, 32),
		[COLLET_U32] = INTEGER_ROW(u32, 32),
		[COLLET_I64] = INTEGER_ROW(i64, 64),
		[COLLET_U64] = INTEGER_ROW(u64, 64),
		[COLLET_F16] = FLOAT_ROW(f16),
		[COLLET_BF16] = FLOAT_ROW(bf16),
		[COLLET_F32] = FLOAT_ROW(f32),
		[COLLET_F64] = FLOAT_ROW(f64),
		[COLLET_F8E4M3] = FLOAT_ROW(f8e4m3),
		[COLLET_F8E5M2] = FLOAT_ROW(f8e5m2),
	},
	.widen = {
		[COLLET_F16] = widen_f16, [COLLET_BF16] = widen_bf16,
		[COLLET_F8E4M3] = widen_f8e4m3, [COLLET_F8E5M2] = widen_f8e5m2,
	},
	.narrow = {
		[COLLET_F16] = narrow_f16, [COLLET_BF16] = narrow_bf16,
		[COLLET_F8E4M3] = narrow_f8e4m3, [COLLET_F8E5M2] = narrow_f8e5m2,
	},
};
