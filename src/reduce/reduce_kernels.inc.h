/* Defines all kernels of one instruction set. The file that includes this one is compiled with the flags of the
 * instruction set, and first defines
 *   COLLET_VECTOR_BYTES  size of a vector: 16 (any machine), 32 (AVX2 and F16C) or 64 (AVX-512 F, BW, DQ)
 *   COLLET_VECTOR_FP16   if the instruction set also has AVX512_FP16
 *   COLLET_KERNELS       name of the table to define
 * Only the table has external linkage.
 *
 * A kernel processes the span in blocks of four accumulators: it loads the block of operand 0, combines those of the
 * other operands with it, and stores the result. All operands of a block are read before it is written, so result may
 * be any operand. There is one pass over memory, and the wide loads of several operands keep the memory busy. */

#include "reduce/reduce_kernels.h"

/* The order matters: each header uses those before it. */
#include "reduce/vector.h"

#include "reduce/narrow_floats.h"

#include "reduce/storage_formats.h"

#include "reduce/lane_operations.h"

#include "reduce/convert_arrays.h"

enum { BLOCK_ACCUMULATORS = 4, NONTEMPORAL_MIN_BYTES = 512 };

/* ---- Blocks ---- */

/* The arguments of a kernel. */
struct kernel_arguments {
	unsigned char *result, *copy;
	bool is_nontemporal;
	const struct collet_operand *operands;
	uint32_t operand_count;
	const struct collet_scaling *scaling;
};

/* Specification of a kernel. It is constant, so that inlining removes the indirect calls. */
struct kernel_spec {
	const struct storage_format *format;
	vec (*combine)(vec left, vec right);
	vec (*scale)(vec v, bool scale, const struct collet_scaling *scaling); /* may be NULL */
	vec (*divide)(vec v, const struct collet_scaling *scaling);            /* may be NULL */
	/* Format and operation for exactly two operands, if others are faster; else NULL. */
	const struct storage_format *pair_format;
	vec (*pair_combine)(vec left, vec right);
	/* Reduces at most one vector, for a format that is not for all codes; else NULL. */
	void (*reduce_any)(const struct kernel_arguments *arguments, size_t offset, size_t bytes);
};

/* Loads one operand's part of a block that begins at offset: all bytes of these accumulators, or for an edge the first
 * edge_bytes of a vector. Sets the topmost bits of bytes in *special where codes are not for the format. is_edge is a
 * constant, so that an edge stays in registers. */
VECTOR_INLINE void load_operand(vec *to, vec *special, const struct collet_operand operand, size_t offset,
	uint32_t accumulators, bool is_edge, size_t edge_bytes, const struct kernel_arguments *arguments,
	const struct kernel_spec spec)
{
	const struct storage_format *const format = spec.format;
	const unsigned char *from = (const unsigned char *)operand.data + offset;
	unsigned char edge[sizeof(vec)];
	if (is_edge) {
		vec_store(edge, vec_load_tail(from, edge_bytes, format->element_bytes));
		from = edge;
	}
	for (uint32_t i = 0; format->special_from && i < accumulators; i += format->accumulators)
		*special |= (vec_load(from + i / format->accumulators * sizeof(vec)) & 0x7f) +
			    (uint8_t)(0x80 - format->special_from);
	format->load(to, from, accumulators);
	for (uint32_t i = 0; spec.scale && i < accumulators; i++)
		to[i] = spec.scale(to[i], operand.is_scaled, arguments->scaling);
}

/* Reduces and packs such a block. Returns false if it has codes that are not for the format. */
VECTOR_INLINE bool reduce_block(vec *block, const struct kernel_arguments *arguments,
	const struct collet_operand *operands, uint32_t operand_count, size_t offset, uint32_t accumulators,
	bool is_edge, size_t edge_bytes, const struct kernel_spec spec)
{
	vec sum[BLOCK_ACCUMULATORS], next[BLOCK_ACCUMULATORS], special = { 0 };
	load_operand(sum, &special, operands[0], offset, accumulators, is_edge, edge_bytes, arguments, spec);
	for (uint32_t k = 1; k < operand_count; k++) {
		load_operand(next, &special, operands[k], offset, accumulators, is_edge, edge_bytes, arguments, spec);
		for (uint32_t i = 0; i < accumulators; i++)
			sum[i] = spec.combine(sum[i], next[i]);
	}
	for (uint32_t i = 0; spec.divide && i < accumulators; i++)
		sum[i] = spec.divide(sum[i], arguments->scaling);
	spec.format->pack(block, sum, accumulators);
	return !spec.format->special_from || !vec_has_top_bits(special);
}

/* Reduces at most one vector. */
VECTOR_INLINE void reduce_edge(const struct kernel_arguments *arguments, uint32_t operand_count, size_t offset,
	size_t bytes, const struct kernel_spec spec)
{
	vec block[1];
	reduce_block(block, arguments, arguments->operands, operand_count, offset, spec.format->accumulators, true,
		bytes, spec);
	vec_store_tail(arguments->result + offset, block[0], bytes, spec.format->element_bytes);
	if (arguments->copy)
		vec_store_tail(arguments->copy + offset, block[0], bytes, spec.format->element_bytes);
}

/* Size of a block of BLOCK_ACCUMULATORS. */
VECTOR_INLINE size_t block_bytes(const struct kernel_spec spec)
{
	return BLOCK_ACCUMULATORS / spec.format->accumulators * sizeof(vec);
}

/* Reduces whole blocks of these accumulators, and returns the offset behind the last one. operand_count is a constant
 * where that helps. */
VECTOR_INLINE size_t reduce_blocks(const struct kernel_arguments *arguments, const struct collet_operand *operands,
	uint32_t operand_count, size_t offset, size_t end, uint32_t accumulators, const struct kernel_spec spec)
{
	const uint32_t vectors = accumulators / spec.format->accumulators;
#pragma GCC unroll 1
	for (; end - offset >= vectors * sizeof(vec); offset += vectors * sizeof(vec)) {
		vec block[BLOCK_ACCUMULATORS];
		const bool is_reduced =
			reduce_block(block, arguments, operands, operand_count, offset, accumulators, false, 0, spec);
		if (__builtin_expect(!is_reduced, false)) {
			for (uint32_t i = 0; i < vectors; i++)
				spec.reduce_any(arguments, offset + i * sizeof(vec), sizeof(vec));
			continue;
		}
		for (uint32_t i = 0; i < vectors; i++) {
			if (arguments->is_nontemporal)
				vec_store_nontemporal(arguments->result + offset + i * sizeof(vec), block[i]);
			else
				vec_store(arguments->result + offset + i * sizeof(vec), block[i]);
		}
		for (uint32_t i = 0; arguments->copy && i < vectors; i++)
			vec_store(arguments->copy + offset + i * sizeof(vec), block[i]);
	}
	return offset;
}

/* Reduces a span: first whole blocks, then what follows them, then what precedes the first aligned block. Two operands
 * have a loop of their own, which keeps their addresses in registers. */
VECTOR_INLINE void reduce_span(const struct kernel_arguments *arguments, size_t count, const struct kernel_spec spec)
{
	size_t end = count * spec.format->element_bytes, head = 0, offset = 0;
	if (end >= block_bytes(spec)) {
		offset = head = arguments->is_nontemporal ? -(uintptr_t)arguments->result % sizeof(vec) : 0;
		if (arguments->operand_count == 2) {
			const struct collet_operand two[2] = { arguments->operands[0], arguments->operands[1] };
			struct kernel_spec pair_spec = spec;
			if (spec.pair_format) {
				pair_spec.format = spec.pair_format;
				pair_spec.combine = spec.pair_combine;
			}
			offset = reduce_blocks(arguments, two, 2, offset, end, BLOCK_ACCUMULATORS, pair_spec);
		} else {
			offset = reduce_blocks(arguments, arguments->operands, arguments->operand_count, offset, end,
				BLOCK_ACCUMULATORS, spec);
		}
	}
	do {
		for (size_t bytes; offset < end; offset += bytes) {
			bytes = end - offset < sizeof(vec) ? end - offset : sizeof(vec);
			if (spec.reduce_any)
				spec.reduce_any(arguments, offset, bytes);
			else
				reduce_edge(arguments, arguments->operand_count, offset, bytes, spec);
		}
		offset = 0;
		end = head;
		head = 0;
	} while (end > 0);
	if (arguments->is_nontemporal)
		vec_nontemporal_fence();
}

/* Reduces two operands of at most a block. Small messages take this path, so it saves no registers and has no loop over
 * operands. It is not unrolled: only its first vectors count. With AVX-512 an edge is as fast as a whole vector. */
VECTOR_INLINE void reduce_small_pair(
	const struct kernel_arguments *arguments, size_t count, const struct kernel_spec spec)
{
	const size_t end = count * spec.format->element_bytes;
	size_t offset = 0;
	if (sizeof(vec) < 64)
		offset = reduce_blocks(arguments, arguments->operands, 2, 0, end, spec.format->accumulators, spec);
#pragma GCC unroll 1
	for (; offset < end; offset += sizeof(vec))
		reduce_edge(arguments, 2, offset, end - offset < sizeof(vec) ? end - offset : sizeof(vec), spec);
}

/* Short spans are stored as usual, and so are results that no number of elements brings to a vector's boundary. */
VECTOR_INLINE bool may_bypass_caches(
	const struct collet_reduction_target *target, size_t count, const struct kernel_spec spec)
{
	return target->is_nontemporal && count * spec.format->element_bytes >= NONTEMPORAL_MIN_BYTES &&
	       (uintptr_t)target->result % spec.format->element_bytes == 0;
}

/* Selects formats and spans for reduce_small_pair(). Formats with much code for conversions do without it. */
VECTOR_INLINE bool is_small_pair(const struct collet_reduction_target *target, uint32_t operand_count, size_t count,
	const struct kernel_spec spec)
{
#if defined(VECTOR_F16C)
	const uint32_t most_accumulators = 2;
#else
	const uint32_t most_accumulators = 1;
#endif
	return spec.format->accumulators <= most_accumulators && operand_count == 2 && !target->copy &&
	       count * spec.format->element_bytes <= block_bytes(spec);
}

/* Large spans have a function of their own, so that small ones need not save the registers that it uses. */
#define DEFINE_KERNEL(name, ...) \
	static __attribute__((noinline)) void name##_span(const struct collet_reduction_target *target, \
		const struct collet_operand *operands, uint32_t operand_count, size_t count, \
		const struct collet_scaling *scaling) \
	{ \
		const struct kernel_spec spec = { __VA_ARGS__ }; \
		const struct kernel_arguments arguments = { target->result, target->copy, \
			may_bypass_caches(target, count, spec), operands, operand_count, scaling }; \
		reduce_span(&arguments, count, spec); \
	} \
	static void name(const struct collet_reduction_target *target, const struct collet_operand *operands, \
		uint32_t operand_count, size_t count, const struct collet_scaling *scaling) \
	{ \
		const struct kernel_spec spec = { __VA_ARGS__ }; \
		const struct kernel_arguments arguments = { target->result, NULL, false, operands, 2, scaling }; \
		if (is_small_pair(target, operand_count, count, spec)) \
			reduce_small_pair(&arguments, count, spec); \
		else \
			name##_span(target, operands, operand_count, count, scaling); \
	}

/* ---- Kernels. Signed and unsigned integers share those that do not depend on the sign. ---- */

DEFINE_KERNEL(reduce_sum_8, &bytes_1, sum_8)
DEFINE_KERNEL(reduce_sum_16, &bytes_2, sum_16)
DEFINE_KERNEL(reduce_sum_32, &bytes_4, sum_32)
DEFINE_KERNEL(reduce_sum_64, &bytes_8, sum_64)
DEFINE_KERNEL(reduce_product_8, &bytes_1, product_8)
DEFINE_KERNEL(reduce_product_16, &bytes_2, product_16)
DEFINE_KERNEL(reduce_product_32, &bytes_4, product_32)
DEFINE_KERNEL(reduce_product_64, &bytes_8, product_64)
DEFINE_KERNEL(reduce_min_i8, &bytes_1, min_i8)
DEFINE_KERNEL(reduce_min_u8, &bytes_1, min_u8)
DEFINE_KERNEL(reduce_min_i16, &bytes_2, min_i16)
DEFINE_KERNEL(reduce_min_u16, &bytes_2, min_u16)
DEFINE_KERNEL(reduce_min_i32, &bytes_4, min_i32)
DEFINE_KERNEL(reduce_min_u32, &bytes_4, min_u32)
DEFINE_KERNEL(reduce_min_i64, &bytes_8, min_i64)
DEFINE_KERNEL(reduce_min_u64, &bytes_8, min_u64)
DEFINE_KERNEL(reduce_max_i8, &bytes_1, max_i8)
DEFINE_KERNEL(reduce_max_u8, &bytes_1, max_u8)
DEFINE_KERNEL(reduce_max_i16, &bytes_2, max_i16)
DEFINE_KERNEL(reduce_max_u16, &bytes_2, max_u16)
DEFINE_KERNEL(reduce_max_i32, &bytes_4, max_i32)
DEFINE_KERNEL(reduce_max_u32, &bytes_4, max_u32)
DEFINE_KERNEL(reduce_max_i64, &bytes_8, max_i64)
DEFINE_KERNEL(reduce_max_u64, &bytes_8, max_u64)
DEFINE_KERNEL(reduce_and_8, &bytes_1, and_bits)
DEFINE_KERNEL(reduce_and_16, &bytes_2, and_bits)
DEFINE_KERNEL(reduce_and_32, &bytes_4, and_bits)
DEFINE_KERNEL(reduce_and_64, &bytes_8, and_bits)
DEFINE_KERNEL(reduce_or_8, &bytes_1, or_bits)
DEFINE_KERNEL(reduce_or_16, &bytes_2, or_bits)
DEFINE_KERNEL(reduce_or_32, &bytes_4, or_bits)
DEFINE_KERNEL(reduce_or_64, &bytes_8, or_bits)
DEFINE_KERNEL(reduce_xor_8, &bytes_1, xor_bits)
DEFINE_KERNEL(reduce_xor_16, &bytes_2, xor_bits)
DEFINE_KERNEL(reduce_xor_32, &bytes_4, xor_bits)
DEFINE_KERNEL(reduce_xor_64, &bytes_8, xor_bits)
DEFINE_KERNEL(reduce_and_truth, &truth, and_bits)
DEFINE_KERNEL(reduce_or_truth, &truth, or_bits)
DEFINE_KERNEL(reduce_xor_truth, &truth, xor_bits)

/* lanes is the type in which elements are reduced: f32 or f64. shrink and divide belong to the average. What follows
 * them belongs to the sum's specification. */
#define DEFINE_FLOAT_KERNELS(name, lanes, shrink, divide, ...) \
	DEFINE_KERNEL(reduce_sum_##name, &name, sum_##lanes, __VA_ARGS__) \
	DEFINE_KERNEL(reduce_product_##name, &name, product_##lanes) \
	DEFINE_KERNEL(reduce_min_##name, &name, min_##lanes) \
	DEFINE_KERNEL(reduce_max_##name, &name, max_##lanes) \
	DEFINE_KERNEL(reduce_average_##name, &name, sum_##lanes, shrink, divide) \
	DEFINE_KERNEL(reduce_premul_##name, &name, sum_##lanes, scale_##lanes)

#if defined(VECTOR_FP16)
#define PAIR_IN_F16(format) .pair_format = &format, .pair_combine = sum_f16
#else
#define PAIR_IN_F16(format) .pair_format = NULL
#endif

DEFINE_FLOAT_KERNELS(f16, f32, NULL, divide_f32, PAIR_IN_F16(f16_lanes))
DEFINE_FLOAT_KERNELS(bf16, f32, shrink_bf16, divide_shrunk, NULL)
DEFINE_FLOAT_KERNELS(f32, f32, NULL, divide_f32, NULL)
DEFINE_FLOAT_KERNELS(f64, f64, NULL, divide_f64, NULL)

/* Infinities, NaNs and the ends of a span are few. They share one function of the general format, not inlined. */
#define DEFINE_F8_KERNEL(name, format_name, operation, ...) \
	static __attribute__((noinline)) void name##_any( \
		const struct kernel_arguments *arguments, size_t offset, size_t bytes) \
	{ \
		reduce_edge(arguments, arguments->operand_count, offset, bytes, \
			(struct kernel_spec){ &format_name, operation }); \
	} \
	DEFINE_KERNEL(name, &format_name##_in_f32, operation, .reduce_any = name##_any, __VA_ARGS__)
#define DEFINE_F8_KERNELS(name) \
	DEFINE_F8_KERNEL(reduce_sum_##name, name, sum_f32, PAIR_IN_F16(name##_in_f16)) \
	DEFINE_F8_KERNEL(reduce_min_##name, name, min_f32, .pair_format = NULL) \
	DEFINE_F8_KERNEL(reduce_max_##name, name, max_f32, .pair_format = NULL) \
	DEFINE_KERNEL(reduce_product_##name, &name, product_f32) \
	DEFINE_KERNEL(reduce_average_##name, &name, sum_f32, NULL, divide_f32) \
	DEFINE_KERNEL(reduce_premul_##name, &name, sum_f32, scale_f32)

DEFINE_F8_KERNELS(f8e4m3)
DEFINE_F8_KERNELS(f8e5m2)

/* ---- Table ---- */

/* The average of integers uses the kernel of the sum, because reduce.c divides them. */
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
		[COLLET_I16] = INTEGER_ROW(i16, 16),
		[COLLET_U16] = INTEGER_ROW(u16, 16),
		[COLLET_BOOL] = {
			[COLLET_SUM] = reduce_or_truth, [COLLET_PRODUCT] = reduce_and_truth,
			[COLLET_MIN] = reduce_and_truth, [COLLET_MAX] = reduce_or_truth,
			[COLLET_AND] = reduce_and_truth, [COLLET_OR] = reduce_or_truth,
			[COLLET_XOR] = reduce_xor_truth,
		},
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
