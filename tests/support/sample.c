#include "sample.h"

#include <stdio.h>
#include <stdlib.h>

struct sample {
	uint64_t taken, of;
	uint64_t seed;
};

static struct sample read_sample(void)
{
	struct sample sample = { 1, 1, 0 };
	const char *share = getenv("COLLET_TEST_SAMPLE"), *seed = getenv("COLLET_TEST_SEED");
	unsigned long long taken, of;
	char more;
	if (!share)
		return sample;
	if (sscanf(share, "%llu/%llu%c", &taken, &of, &more) != 2 || taken == 0 || taken > of) {
		fprintf(stderr, "COLLET_TEST_SAMPLE=%s is not of the form k/n, with k from 1 to n\n", share);
		abort();
	}
	return (struct sample){ taken, of, seed ? strtoull(seed, NULL, 0) : 0 };
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
