/* Conversions of whole arrays, for convert.c. Unlike in the reduction kernels, lanes keep the order of the elements.
 * reduce_kernels.inc.h includes this file after storage_formats.h. */

enum { LANES_PER_VEC = COLLET_VECTOR_BYTES / 4 };

VECTOR_INLINE vec codes_load_16(const unsigned char *from)
{
	vec_half_u16 codes;
	memcpy(&codes, from, sizeof(codes));
	return (vec)__builtin_convertvector(codes, vec_u32);
}

VECTOR_INLINE void codes_store_16(unsigned char *to, vec lanes)
{
	const vec_half_u16 codes = __builtin_convertvector((vec_u32)lanes, vec_half_u16);
	memcpy(to, &codes, sizeof(codes));
}

VECTOR_INLINE vec codes_load_8(const unsigned char *from)
{
	vec_quarter_u8 codes;
	memcpy(&codes, from, sizeof(codes));
	return (vec)__builtin_convertvector(codes, vec_u32);
}

VECTOR_INLINE void codes_store_8(unsigned char *to, vec lanes)
{
	const vec_quarter_u8 codes = __builtin_convertvector((vec_u32)lanes, vec_quarter_u8);
	memcpy(to, &codes, sizeof(codes));
}

VECTOR_INLINE vec bf16_widen_in_order(const unsigned char *from)
{
	return bf16_widen(codes_load_16(from));
}

VECTOR_INLINE void bf16_narrow_in_order(unsigned char *to, vec x)
{
	codes_store_16(to, bf16_narrow(x));
}

#if !defined(VECTOR_F16C)
VECTOR_INLINE vec f16_widen_in_order(const unsigned char *from)
{
	return f16_widen(codes_load_16(from));
}

VECTOR_INLINE void f16_narrow_in_order(unsigned char *to, vec x)
{
	codes_store_16(to, f16_narrow(x));
}
#endif

VECTOR_INLINE vec f8e4m3_widen_in_order(const unsigned char *from)
{
	return narrow_float_widen(codes_load_8(from), f8e4m3_format);
}

VECTOR_INLINE void f8e4m3_narrow_in_order(unsigned char *to, vec x)
{
	codes_store_8(to, narrow_float_narrow(x, f8e4m3_format));
}

VECTOR_INLINE vec f8e5m2_widen_in_order(const unsigned char *from)
{
	return narrow_float_widen(codes_load_8(from), f8e5m2_format);
}

VECTOR_INLINE void f8e5m2_narrow_in_order(unsigned char *to, vec x)
{
	codes_store_8(to, narrow_float_narrow(x, f8e5m2_format));
}

VECTOR_INLINE void widen_array(float *to, const unsigned char *from, size_t count, size_t code_bytes,
	vec (*widen)(const unsigned char *))
{
	size_t i = 0;
	for (; count - i >= LANES_PER_VEC; i += LANES_PER_VEC)
		vec_store(to + i, nan_canonical_f32(widen(from + i * code_bytes)));
	if (i == count)
		return;
	unsigned char codes[2 * LANES_PER_VEC] = { 0 };
	memcpy(codes, from + i * code_bytes, (count - i) * code_bytes);
	const vec lanes = nan_canonical_f32(widen(codes));
	memcpy(to + i, &lanes, (count - i) * sizeof(float));
}

VECTOR_INLINE void narrow_array(unsigned char *to, const float *from, size_t count, size_t code_bytes,
	void (*narrow)(unsigned char *, vec))
{
	size_t i = 0;
	for (; count - i >= LANES_PER_VEC; i += LANES_PER_VEC)
		narrow(to + i * code_bytes, vec_load(from + i));
	if (i == count)
		return;
	vec lanes = { 0 };
	unsigned char codes[2 * LANES_PER_VEC];
	memcpy(&lanes, from + i, (count - i) * sizeof(float));
	narrow(codes, lanes);
	memcpy(to + i * code_bytes, codes, (count - i) * code_bytes);
}

#define DEFINE_CONVERSIONS(name, code_bytes) \
	static void widen_##name(float *to, const void *from, size_t count) \
	{ \
		widen_array(to, from, count, code_bytes, name##_widen_in_order); \
	} \
	static void narrow_##name(void *to, const float *from, size_t count) \
	{ \
		narrow_array(to, from, count, code_bytes, name##_narrow_in_order); \
	}

DEFINE_CONVERSIONS(f16, 2)
DEFINE_CONVERSIONS(bf16, 2)
DEFINE_CONVERSIONS(f8e4m3, 1)
DEFINE_CONVERSIONS(f8e5m2, 1)
