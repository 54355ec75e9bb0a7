/* Decides for compare: whose turn it is, which times count, which transport was used, what became slower. All
 * functions are pure; measurements come in as numbers. */
#ifndef BENCH_JUDGE_H
#define BENCH_JUDGE_H

#include "work.h"

/* Returns who is measured at a place of a round. Every round is a permutation in which each of count starts equally
 * often. Every other round runs backwards, so that the predecessor changes. */
size_t bench_turn(size_t round, size_t place, size_t count);

/* More than 5 times the best peer's time: not worth measuring again at this size. */
enum { BENCH_SLOW_TIMES = 5 };
bool bench_is_slow(double time_ns, double best_ns);

/* The machine's activity while ranks were timed. */
struct bench_load {
	double window_ns;          /* how long it took */
	uint32_t cpus;             /* of the machine */
	double idle_ns;            /* of all of them; the kernel tells it in steps of tick_ns */
	double tick_ns;
	double own_ns;             /* CPU time of the ranks and of collet-bench */
	bool pinned;               /* each rank has a core of its own, as far as we know */
	double waited_ns;          /* how long the ranks' main threads were ready to run and did not; all together */
	double helpers_ns;         /* CPU time of the ranks' other threads, which explains as much waiting */
	uint64_t starts;           /* how often the main threads were put on a core, each time after a moment */
};

/* CPU time that other processes used, as far as that is sure; never below 0. */
double bench_foreign_ns(const struct bench_load *load);
/* Others used more than 3 % of one core's time: a time measured meanwhile is no library's own. */
bool bench_is_disturbed(const struct bench_load *load);

/* How far apart two cores are, by the time of a flag one way. */
enum bench_cores {
	BENCH_CORES_NEAR,
	BENCH_CORES_FAR,
	BENCH_CORES_UNKNOWN,   /* no flag can be timed: there is one core */
	BENCH_CORES_STATES,
	BENCH_CORES_CHANGED = BENCH_CORES_STATES   /* not the same before and after: neither */
};
/* The state during something, by the flags before and after it (COLLET_FAR_CORES_NS); 0: not known. Flags of one state
 * differ by noise, and those of two states by a factor of 2. So a factor of 1.6 is a change. */
enum bench_cores bench_cores_of(double before_ns, double after_ns);
/* "near", "far"; NULL for the others. */
const char *bench_cores_name(enum bench_cores cores);

/* Returns the least bytes that one call must move between ranks, in total. The definition of the collective asks for
 * them, whatever the algorithm. */
double bench_least_traffic(const struct bench_work *work, uint32_t ranks, uint64_t message_bytes);
/* Returns a sentence if the bytes that crossed lo in a call contradict the requested transport, else NULL. "tcp"
 * carries at least the least traffic; "shm" carries none. Other processes use lo too, so traffic during others'
 * measurements counts as background, and small messages are not judged. */
const char *bench_loopback_contradiction(
	const char *transport, double least_traffic, double loopback_bytes, double background_bytes);

/* A quotient of times, taken repeat by repeat. */
struct bench_ratio {
	double median, least, most;   /* 0: unknown */
};

/* The change of collet's ratio to the same peers between two runs. */
struct bench_change {
	double times;      /* the median over the peers of (ratio now / ratio then): above 1, collet takes longer */
	double noise;      /* what that may differ from 1 without meaning anything */
	size_t peers;
	bool slower, faster;
};
/* then[i] and now[i] are the ratio of collet's time to one peer's. Noise is 10 %, or the spread of one run's ratios
 * if that is larger: (most - least) / median. It takes the larger spread of both runs, and the median over the
 * peers. So one peer that has changed moves no median. */
struct bench_change bench_judge_change(const struct bench_ratio *then, const struct bench_ratio *now, size_t n);

/* The median of n values; sorts them. 0 for none. */
double bench_median(double *values, size_t n);
/* mine[i] / other[i] over all i where both are above 0. */
struct bench_ratio bench_ratios(const double *mine, const double *other, size_t n);

#endif
