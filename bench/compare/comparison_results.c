/* The host of a virtual machine may move its cores at any time, so that they share a cache or not. Libraries suffer
 * differently from that, so a median over both states would mislead. */
#include "comparison_results.h"

#include <stdlib.h>
#include <string.h>

uint64_t comparison_bytes(const struct comparison *all, size_t size)
{
	const uint32_t ranks = all->bootstrap.ranks;
	return bench_bytes(&all->work, ranks, bench_count(&all->work, ranks, all->options->sizes.bytes[size]));
}

/* The times of one competitor in one state, 0 for repeats in another one. */
static size_t pick(const struct comparison *all, size_t size, size_t competitor, enum bench_cores cores,
	enum comparison_calls calls, double times_ns[BENCH_REPEATS_MAX])
{
	const struct repeat *repeats = comparison_repeats(all, size, competitor);
	size_t count = 0;
	for (uint32_t r = 0; r < all->options->repeats; r++) {
		const double time_ns = calls == COMPARISON_PLAIN ? repeats[r].time_ns : repeats[r].rewritten_ns;
		times_ns[r] = repeats[r].cores == cores ? time_ns : 0;
		count += times_ns[r] > 0;
	}
	return count;
}

static double median_of_known(const double *values, size_t n)
{
	double known[BENCH_REPEATS_MAX];
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		if (values[i] > 0)
			known[count++] = values[i];
	return bench_median(known, count);
}

static double mean_cpu_ns(const struct comparison *all, size_t size, size_t competitor, enum bench_cores cores)
{
	const struct repeat *repeats = comparison_repeats(all, size, competitor);
	double sum = 0;
	size_t count = 0;
	for (uint32_t r = 0; r < all->options->repeats; r++)
		if (repeats[r].time_ns > 0 && repeats[r].cores == cores) {
			sum += repeats[r].cpu_ns;
			count++;
		}
	return count > 0 ? sum / (double)count : 0;
}

struct comparison_result comparison_result(const struct comparison *all, size_t size, size_t competitor,
	enum bench_cores cores, enum comparison_calls calls)
{
	const uint32_t repeats = all->options->repeats;
	double mine_ns[BENCH_REPEATS_MAX], its_ns[BENCH_REPEATS_MAX];
	struct comparison_result result = { 0 };
	pick(all, size, 0, cores, calls, mine_ns);
	result.repeats = (uint32_t)pick(all, size, competitor, cores, calls, its_ns);
	result.median_ns = median_of_known(its_ns, repeats);
	result.cpu_ns = mean_cpu_ns(all, size, competitor, cores);
	if (competitor > 0)
		result.ratio = bench_ratios(mine_ns, its_ns, repeats);
	return result;
}

size_t comparison_best_peer(
	const struct comparison *all, size_t size, enum bench_cores cores, enum comparison_calls calls)
{
	struct comparison_result best = { 0 };
	size_t at = 0;
	for (size_t c = 1; c < all->count; c++) {
		const struct comparison_result its = comparison_result(all, size, c, cores, calls);
		if (its.repeats == 0)
			continue;
		const bool beside = its.ratio.median > 0, best_beside = best.ratio.median > 0;
		if (at == 0 || (beside != best_beside ? beside : its.median_ns < best.median_ns)) {
			best = its;
			at = c;
		}
	}
	return at;
}

bool comparison_was_seen(const struct comparison *all, size_t size, enum bench_cores cores)
{
	return comparison_result(all, size, 0, cores, COMPARISON_PLAIN).repeats > 0 ||
		comparison_best_peer(all, size, cores, COMPARISON_PLAIN) > 0;
}

bool comparison_opens_library(const struct comparison *all, size_t at)
{
	return at < 2 || strcmp(all->competitors[at].variant->library, all->competitors[at - 1].variant->library) != 0;
}

double comparison_leader_ns(const struct comparison *all, size_t size, size_t first, enum bench_cores cores)
{
	double least_ns = -1;
	for (size_t c = first; c < all->count && (c == first || !comparison_opens_library(all, c)); c++) {
		const struct comparison_result its = comparison_result(all, size, c, cores, COMPARISON_PLAIN);
		if (its.repeats > 0 && (least_ns < 0 || its.median_ns < least_ns))
			least_ns = its.median_ns;
	}
	return least_ns;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct comparison_flags comparison_flags(const struct comparison *all, size_t sizes, enum bench_cores cores)
{
	const size_t most = sizes * COMPETITORS_MAX * all->options->repeats;
	struct comparison_flags flags = { 0 };
	double *sorted_ns = calloc(most + 1, sizeof(sorted_ns[0]));
	for (size_t i = 0; sorted_ns != NULL && i < most; i++)
		if (all->repeats[i].time_ns > 0 && all->repeats[i].cores == cores)
			sorted_ns[flags.repeats++] = all->repeats[i].flag_ns;
	if (flags.repeats > 0) {
		qsort(sorted_ns, flags.repeats, sizeof(sorted_ns[0]), by_value);
		flags.median_ns = sorted_ns[flags.repeats / 2];
		flags.least_ns = sorted_ns[0];
		flags.most_ns = sorted_ns[flags.repeats - 1];
	}
	free(sorted_ns);
	return flags;
}

const char *comparison_unseen_cores(const struct comparison *all, size_t sizes)
{
	const bool near = comparison_flags(all, sizes, BENCH_CORES_NEAR).repeats > 0;
	const bool far = comparison_flags(all, sizes, BENCH_CORES_FAR).repeats > 0;
	return near == far ? NULL : bench_cores_name(near ? BENCH_CORES_FAR : BENCH_CORES_NEAR);
}
