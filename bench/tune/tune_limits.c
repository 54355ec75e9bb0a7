/* Derives limits from the times measured on either side. */
#include "tune_limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tune_fit.h"

const char *tune_limit_name(enum tune_limit limit)
{
	return limit == TUNE_EAGER ? "eager" : "inline";
}

bool tune_limit_read(const char *line, struct tune_limit_point *point)
{
	unsigned long long bytes;
	struct tune_limit_point p = { .runs = 1 };
	if (sscanf(line, "limit %23s %llu %lf %lf", p.call, &bytes, &p.once_ns, &p.otherwise_ns) != 4 || bytes == 0
		|| !(p.once_ns > 0) || !(p.otherwise_ns > 0))
		return false;
	p.bytes = bytes;
	*point = p;
	return true;
}

/* The geometric mean of `runs` values and one more. */
static double mean_with(double mean, uint32_t runs, double value)
{
	return exp((runs * log(mean) + log(value)) / (runs + 1));
}

size_t tune_limit_merge(struct tune_limit_point *points, size_t count, size_t most,
	const struct tune_limit_point *more)
{
	for (size_t i = 0; i < count; i++) {
		struct tune_limit_point *p = &points[i];
		if (p->bytes != more->bytes || strcmp(p->call, more->call) != 0)
			continue;
		p->once_ns = mean_with(p->once_ns, p->runs, more->once_ns);
		p->otherwise_ns = mean_with(p->otherwise_ns, p->runs, more->otherwise_ns);
		p->runs++;
		return count;
	}
	if (count < most)
		points[count++] = *more;
	return count;
}

bool tune_limit_has(enum tune_limit limit, const struct tune_limit_point *point)
{
	return (strcmp(point->call, "sendrecv") == 0) == (limit == TUNE_EAGER);
}

/* A point that differs by more was measured amid others' work, and has no more weight than this. */
static const double believed = 2;

/* The logarithms of what is gained by the limit `to` instead of `from`, added up; and of how many points. */
static double add_up(const struct tune_limit_point *points, size_t count, enum tune_limit limit, uint64_t from,
	uint64_t to, size_t *differ)
{
	const uint64_t low = from < to ? from : to, high = from < to ? to : from;
	double sum = 0;
	*differ = 0;
	for (size_t i = 0; i < count; i++) {
		const struct tune_limit_point *p = &points[i];
		if (!tune_limit_has(limit, p) || p->bytes <= low || p->bytes > high)
			continue;
		const double ratio = p->once_ns / p->otherwise_ns;
		const double once = log(ratio > believed ? believed : ratio < 1 / believed ? 1 / believed : ratio);
		sum += to > from ? once : -once;
		++*differ;
	}
	return sum;
}

double tune_limit_between(
	const struct tune_limit_point *points, size_t count, enum tune_limit limit, uint64_t from, uint64_t to)
{
	size_t differ;
	const double sum = add_up(points, count, limit, from, to, &differ);
	return differ > 0 ? exp(sum / (double)differ) : 1;
}

uint32_t tune_limit_choose(const struct tune_limit_point *points, size_t count, enum tune_limit limit)
{
	uint64_t best = TUNE_LIMIT_USUAL;
	double least = 0;
	size_t differ;
	bool any = false;
	for (size_t i = 0; i < count; i++)
		any |= tune_limit_has(limit, &points[i]);
	if (!any)
		return 0;
	for (uint64_t bytes = TUNE_LIMIT_LEAST / 2; bytes <= TUNE_LIMIT_MOST; bytes *= 2) {
		const double sum = add_up(points, count, limit, TUNE_LIMIT_USUAL, bytes, &differ);
		if (sum >= least)
			continue;
		least = sum;
		best = bytes;
	}
	return tune_limit_between(points, count, limit, TUNE_LIMIT_USUAL, best) <= TUNE_GAIN ? (uint32_t)best
												 : TUNE_LIMIT_USUAL;
}
