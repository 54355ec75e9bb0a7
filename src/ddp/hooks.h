/* What collet's own hooks share. Each hook has a file. */
#ifndef COLLET_DDP_HOOKS_H
#define COLLET_DDP_HOOKS_H

#include <string.h>

#include <collet/ddp_hook.h>

/* A parsed specification; it is the context of a hook. */
struct collet_ddp_hook_spec {
	collet_dtype dtype;    /* f16, bf16 */
	double fraction;       /* topk, randomk */
	uint32_t bits;         /* qsgd; sign: 1 */
	uint32_t rank;         /* powersgd */
	float momentum;        /* of the velocity that replaces gradients; 0: none */
	uint64_t seed;
};

extern const collet_ddp_hook collet_ddp_hook_half, collet_ddp_hook_topk, collet_ddp_hook_randomk,
	collet_ddp_hook_quantize, collet_ddp_hook_powersgd;
/* Wraps another hook, which is its context. */
extern const collet_ddp_hook collet_ddp_hook_momentum;

/* Returns COLLET_ERR_UNSUPPORTED unless the bucket has f32 elements. */
collet_status collet_ddp_hook_check_f32(const collet_ddp_hook *hook, const collet_ddp_hook_args *args);
/* Returns COLLET_ERR_MEMORY and sets the error text. */
collet_status collet_ddp_hook_no_memory(const collet_ddp_hook *hook, const collet_ddp_hook_args *args);

/* Sets the elements between slices to zero. */
void collet_ddp_zero_gaps(const collet_ddp_hook_args *args);

static inline collet_how collet_ddp_hook_how(const collet_ddp_hook_args *args, collet_request **request)
{
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = request;
	how.algorithm = args->algorithm;
	return how;
}

/* A random stream that depends on (seed, step, bucket, element) alone: the finaliser of MurmurHash3 (Appleby), which
 * compilers can vectorise. */
static inline uint32_t collet_ddp_mix32(uint32_t x)
{
	x = (x ^ x >> 16) * 0x85ebca6bU;
	x = (x ^ x >> 13) * 0xc2b2ae35U;
	return x ^ x >> 16;
}

static inline uint32_t collet_ddp_rng_key(uint64_t seed, uint64_t step, uint32_t bucket, uint32_t salt)
{
	uint32_t x = collet_ddp_mix32((uint32_t)seed ^ collet_ddp_mix32((uint32_t)(seed >> 32) + 0x9e3779b9U));
	x = collet_ddp_mix32(x ^ collet_ddp_mix32((uint32_t)step + 0x7f4a7c15U));
	x = collet_ddp_mix32(x ^ collet_ddp_mix32((uint32_t)(step >> 32) + 0x165667b1U));
	return collet_ddp_mix32(x ^ collet_ddp_mix32(bucket * 2654435761U + salt));
}

/* Returns the bits of element i of a stream. */
static inline uint32_t collet_ddp_rng_draw(uint32_t rng_key, uint32_t i)
{
	return collet_ddp_mix32(rng_key + i * 0x9e3779b9U);
}

#endif
