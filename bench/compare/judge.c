/* Arithmetic only. */
#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <collet/tools.h>

size_t bench_turn(size_t round, size_t place, size_t count)
{
	const size_t first = round % count;
	return round % 2 == 0 ? (first + place) % count : (first + count - place) % count;
}

bool bench_is_slow(double time_ns, double best_ns)
{
	return best_ns > 0 && time_ns > BENCH_SLOW_TIMES * best_ns;
}

/* The longest undisturbed start: waking a sleeping core of a virtual machine. A thread pushed off its core waits a
 * hundred times longer. */
static const double start_ns = 25e3;

double bench_foreign_ns(const struct bench_load *load)
{
	/* Two witnesses, each of whom can only miss something. Who was not idle and not us, coarsely: */
	double foreign = load->window_ns * load->cpus - load->idle_ns - load->tick_ns - load->own_ns;
	/* and who kept a rank off the core that it does not share with another rank. */
	const double kept_off = load->waited_ns - load->helpers_ns - (double)load->starts * start_ns;
	if (load->pinned && kept_off > foreign)
		foreign = kept_off;
	return foreign > 0 ? foreign : 0;
}

bool bench_is_disturbed(const struct bench_load *load)
{
	return bench_foreign_ns(load) > 0.03 * load->window_ns;
}

enum bench_cores bench_cores_of(double before_ns, double after_ns)
{
	const double least = before_ns < after_ns ? before_ns : after_ns;
	const double most = before_ns < after_ns ? after_ns : before_ns;
	if (!(most > 0))
		return BENCH_CORES_UNKNOWN;
	if (!(least > 0) || most >= 1.6 * least || (least < COLLET_FAR_CORES_NS) != (most < COLLET_FAR_CORES_NS))
		return BENCH_CORES_CHANGED;
	return least < COLLET_FAR_CORES_NS ? BENCH_CORES_NEAR : BENCH_CORES_FAR;
}

const char *bench_cores_name(enum bench_cores cores)
{
	return cores == BENCH_CORES_NEAR ? "near" : cores == BENCH_CORES_FAR ? "far" : NULL;
}

double bench_least_traffic(const struct bench_work *work, uint32_t ranks, uint64_t message_bytes)
{
	const double bytes = (double)message_bytes, others = ranks - 1.0;
	switch ((enum bench_collective)work->collective) {
	/* The sum has to be made from all of them, and to come back to all. */
	case BENCH_ALLREDUCE: return 2 * others * bytes;
	case BENCH_REDUCE: case BENCH_BROADCAST: return others * bytes;
	/* Every rank gets all of the result but its own part, or gives all of its input but that. */
	case BENCH_ALLGATHER: case BENCH_REDUCE_SCATTER: case BENCH_ALLTOALL: return others * bytes;
	/* The root alone does. */
	case BENCH_GATHER: case BENCH_SCATTER: return others / ranks * bytes;
	case BENCH_SENDRECV: return ranks > 1 ? ranks * bytes : 0;
	case BENCH_BARRIER: case BENCH_COLLECTIVES: break;
	}
	return 0;
}

/* Allows 2 % for a counter that is read a little early. Other traffic varies, so twice the background may be theirs.
 * A library that sends its messages through lo exceeds that by far. */
const char *bench_loopback_contradiction(
	const char *transport, double least_traffic, double loopback_bytes, double background_bytes)
{
	const double small = 16384;
	if (transport == NULL || least_traffic <= 0)
		return NULL;
	if (strcmp(transport, "tcp") == 0 && loopback_bytes < 0.98 * least_traffic)
		return "told to use tcp, but its bytes did not cross lo";
	if (strcmp(transport, "shm") == 0 && least_traffic >= small
		&& loopback_bytes - 2 * background_bytes >= 0.98 * least_traffic)
		return "told to use shm, but its bytes crossed lo";
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
	if (n == 0)
		return 0;
	qsort(values, n, sizeof(values[0]), by_value);
	return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct bench_ratio bench_ratios(const double *mine, const double *other, size_t n)
{
	struct bench_ratio ratio = { 0 };
	double *quotients = calloc(n > 0 ? n : 1, sizeof(quotients[0]));
	size_t count = 0;
	for (size_t i = 0; quotients != NULL && i < n; i++)
		if (mine[i] > 0 && other[i] > 0)
			quotients[count++] = mine[i] / other[i];
	if (count > 0) {
		ratio.median = bench_median(quotients, count);
		ratio.least = quotients[0];
		ratio.most = quotients[count - 1];
	}
	free(quotients);
	return ratio;
}

static double apart(const struct bench_ratio *ratio)
{
	return ratio->median > 0 ? (ratio->most - ratio->least) / ratio->median : 0;
}

struct bench_change bench_judge_change(const struct bench_ratio *then, const struct bench_ratio *now, size_t n)
{
	struct bench_change change = { .times = 1, .noise = 0.1 };
	double *times = calloc(n + 1, sizeof(times[0])), *noises = calloc(n + 1, sizeof(noises[0]));
	for (size_t i = 0; times != NULL && noises != NULL && i < n; i++) {
		if (!(then[i].median > 0) || !(now[i].median > 0))
			continue;
		const double before = apart(&then[i]), after = apart(&now[i]);
		times[change.peers] = now[i].median / then[i].median;
		noises[change.peers++] = before > after ? before : after;
	}
	if (change.peers > 0) {
		const double noise = bench_median(noises, change.peers);
		change.times = bench_median(times, change.peers);
		change.noise = noise > change.noise ? noise : change.noise;
		change.slower = change.times > 1 + change.noise;
		change.faster = change.times < 1 / (1 + change.noise);
	}
	free(times);
	free(noises);
	return change;
}
