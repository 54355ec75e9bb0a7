/* Random numbers that are the same on every machine: splitmix64, and floats drawn from it without libm. */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state;
};

static inline uint64_t random_bits(struct random *random)
{
	uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* An independent stream for each (seed, index): what is drawn for one image or tensor does not shift the next. */
static inline struct random random_stream(uint64_t seed, uint64_t index)
{
	struct random outer = { seed };
	struct random inner = { random_bits(&outer) ^ index };
	return (struct random){ random_bits(&inner) };
}

/* 24 random bits: uniform in [low, high), exact in float. */
static inline float random_between(struct random *random, float low, float high)
{
	return low + (high - low) * ((float)(random_bits(random) >> 40) * 0x1p-24f);
}

#endif
