#include "sample.h"

#include <stdio.h>
#include <stdlib.h>

struct sample {
	uint64_t taken, of;
	uint64_t seed;
};

static void take_share(struct sample *sample, const char *name)
{
	const char *share = getenv(name);
	unsigned long long taken, of;
	char more;
	if (!share)
		return;
	if (sscanf(share, "%llu/%llu%c", &taken, &of, &more) != 2 || taken == 0 || taken > of) {
		fprintf(stderr, "%s=%s is not of the form k/n, with k from 1 to n\n", name, share);
		abort();
	}
	sample->taken *= taken;
	sample->of *= of;
}

static struct sample read_sample(void)
{
	const char *seed = getenv("COLLET_TEST_SEED");
	struct sample sample = { 1, 1, seed ? strtoull(seed, NULL, 0) : 0 };
	take_share(&sample, "COLLET_TEST_SAMPLE");
	take_share(&sample, "COLLET_TEST_PART");
	return sample;
}

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t scatter(uint64_t value)
{
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
	value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
	return value ^ (value >> 31);
}

bool sample_has(uint64_t row)
{
	const struct sample sample = read_sample();
	return scatter(scatter(sample.seed) + row * 0x9e3779b97f4a7c15) % sample.of < sample.taken;
}

uint64_t sample_from(uint64_t row)
{
	while (!sample_has(row))
		row++;
	return row;
}

bool sample_of(uint64_t rows, uint64_t row)
{
	return row == sample_from(0) % rows || sample_has(row);
}

uint64_t sample_share(uint64_t rows)
{
	const struct sample sample = read_sample();
	return rows * sample.taken / sample.of;
}
