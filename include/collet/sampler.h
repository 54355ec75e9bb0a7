/* collet: the distributed sampler, which tells which samples of a data set a rank trains on.
 *
 * Every rank computes the same order of the whole set from (seed, epoch) and takes every world_size-th sample of it. No
 * communication is needed. The order is, index for index, that of PyTorch's torch.utils.data.DistributedSampler, so a
 * run can be compared with PyTorch's on the same samples in the same batches. (This holds for sets of fewer than 2^32 /
 * 20 samples; newer PyTorch versions order larger ones differently.)
 *
 * The functions are pure: they keep no state between calls, any thread may call them at any time, and the same
 * arguments give the same indices on every machine. To continue in the middle of an epoch, skip the indices that were
 * used. */
#ifndef COLLET_SAMPLER_H
#define COLLET_SAMPLER_H

#include <collet/collet.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How samples that do not divide evenly among the ranks are treated. */
typedef enum collet_sampler_tail {
	COLLET_SAMPLER_PAD = 0,  /* the first samples of the order are used again, until every rank has as many */
	COLLET_SAMPLER_DROP,     /* the last samples of the order are left out, so that every rank has as many */
	COLLET_SAMPLER_EXACT     /* each sample goes to one rank; low ranks may have one more (for evaluation) */
} collet_sampler_tail;

/* Fields that are zero are valid values, not defaults. reserved must be zero. */
typedef struct collet_sampler {
	uint64_t sample_count;     /* of the whole set; at most 2^32 - 1, the range of torch's draws */
	uint32_t rank;             /* 0 .. world_size - 1 */
	uint32_t world_size;       /* number of ranks */
	uint64_t seed;             /* the same on every rank; as in torch, seed + epoch counts modulo 2^32 */
	collet_sampler_tail tail;  /* what happens if samples do not divide evenly */
	bool in_order;             /* 0, 1, 2, ... instead of a new permutation each epoch */
	uint8_t reserved[11];
} collet_sampler;

/* Returns how many indices collet_sampler_fill() writes for this rank. It is the same in every epoch, and the same on
 * every rank unless tail is COLLET_SAMPLER_EXACT. 0 for a sampler that fill() would refuse. */
COLLET_API uint64_t collet_sampler_count(const collet_sampler *sampler);

/* Writes this rank's indices of an epoch (counted from 0) to indices, in the order of use. The caller's array has
 * collet_sampler_count() elements. Allocates sample_count * 4 bytes while it runs, unless in_order.
 *
 * Order: MT19937 seeded with (seed + epoch) mod 2^32 shuffles r = 0 .. n-1 by exchanging, for i = 0 .. n-2, r[i] with
 * r[i + draw % (n - i)]. This rank takes r[rank], r[rank + world_size], ... (Matsumoto and Nishimura, "Mersenne
 * Twister", 1998; Fisher and Yates.)
 *
 * COLLET_ERR_ARGUMENT: NULL, rank not below world_size, too many samples, unknown tail, or reserved not zero; indices
 * are untouched. COLLET_ERR_MEMORY. */
COLLET_MUST_USE COLLET_API collet_status collet_sampler_fill(
	const collet_sampler *sampler, uint64_t epoch, uint64_t *indices);

#ifdef __cplusplus
}
#endif
#endif
