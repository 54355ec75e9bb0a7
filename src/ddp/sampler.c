/* The distributed sampler: computes torch's permutation and distributes it to the ranks in turn. */
#include <collet/sampler.h>

#include <stdlib.h>

#include "core/status.h"

/* MT19937, as in the paper: 624 words of state, generated together. */
enum { MT_WORDS = 624, MT_MIDDLE = 397 };

struct mersenne_twister {
	uint32_t words[MT_WORDS];
	uint32_t used;
};

static void mt_seed(struct mersenne_twister *mt, uint32_t seed)
{
	mt->words[0] = seed;
	for (uint32_t i = 1; i < MT_WORDS; i++)
		mt->words[i] = UINT32_C(1812433253) * (mt->words[i - 1] ^ (mt->words[i - 1] >> 30)) + i;
	mt->used = MT_WORDS;
}

static void mt_twist(struct mersenne_twister *mt)
{
	for (uint32_t i = 0; i < MT_WORDS; i++) {
		uint32_t next = mt->words[(i + 1) % MT_WORDS];
		uint32_t joined = (mt->words[i] & UINT32_C(0x80000000)) | (next & UINT32_C(0x7fffffff));
		uint32_t twist = next & 1 ? UINT32_C(0x9908b0df) : 0;
		mt->words[i] = mt->words[(i + MT_MIDDLE) % MT_WORDS] ^ (joined >> 1) ^ twist;
	}
	mt->used = 0;
}

static uint32_t mt_draw(struct mersenne_twister *mt)
{
	if (mt->used == MT_WORDS)
		mt_twist(mt);
	uint32_t word = mt->words[mt->used++];
	word ^= word >> 11;
	word ^= (word << 7) & UINT32_C(0x9d2c5680);
	word ^= (word << 15) & UINT32_C(0xefc60000);
	return word ^ (word >> 18);
}

static void shuffle(uint32_t *order, uint32_t count, uint32_t seed)
{
	struct mersenne_twister mt;
	mt_seed(&mt, seed);
	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	for (uint32_t i = 0; i + 1 < count; i++) {
		uint32_t other = i + mt_draw(&mt) % (count - i);
		uint32_t kept = order[i];
		order[i] = order[other];
		order[other] = kept;
	}
}

static const char *find_problem(const collet_sampler *sampler)
{
	if (!sampler)
		return "sampler is NULL";
	if (sampler->world_size == 0 || sampler->rank >= sampler->world_size)
		return "rank is not below world_size";
	if (sampler->sample_count > UINT32_MAX)
		return "more than 2^32 - 1 samples";
	if ((unsigned)sampler->tail > COLLET_SAMPLER_EXACT)
		return "tail is invalid";
	for (size_t i = 0; i < sizeof(sampler->reserved); i++)
		if (sampler->reserved[i])
			return "reserved is not zero";
	return NULL;
}

static uint64_t sample_share(const collet_sampler *sampler)
{
	uint64_t whole = sampler->sample_count / sampler->world_size,
		 rest = sampler->sample_count % sampler->world_size;
	switch (sampler->tail) {
	case COLLET_SAMPLER_PAD: return whole + (rest > 0);
	case COLLET_SAMPLER_DROP: return whole;
	case COLLET_SAMPLER_EXACT: return whole + (sampler->rank < rest);
	}
	return 0;
}

uint64_t collet_sampler_count(const collet_sampler *sampler)
{
	return find_problem(sampler) ? 0 : sample_share(sampler);
}

collet_status collet_sampler_fill(const collet_sampler *sampler, uint64_t epoch, uint64_t *indices)
{
	const char *wrong = find_problem(sampler);
	if (wrong)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_sampler_fill: %s", wrong);
	const uint64_t share = sample_share(sampler);
	if (share > 0 && !indices)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_sampler_fill: indices is NULL");
	const uint32_t count = (uint32_t)sampler->sample_count;
	uint32_t *order = NULL;
	if (!sampler->in_order && share > 0) {
		order = malloc((size_t)count * sizeof(*order));
		if (!order)
			return collet_fail(
				COLLET_ERR_MEMORY, "collet_sampler_fill: no memory to permute %u samples", count);
		shuffle(order, count, (uint32_t)(sampler->seed + epoch));
	}
	for (uint64_t i = 0; i < share; i++) {
		/* Only padding exceeds count; the order then repeats as often as needed. */
		uint64_t place = (sampler->rank + i * sampler->world_size) % count;
		indices[i] = order ? order[place] : place;
	}
	free(order);
	return COLLET_OK;
}
