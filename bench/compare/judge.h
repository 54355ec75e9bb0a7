/* What compare decides by: whose turn it is, which times count, who used which transport, what became slower. Pure: all
 * that is measured comes in as numbers. */
#ifndef BENCH_JUDGE_H
#define BENCH_JUDGE_H

#include "work.h"

/* Who is measured at a place of a round: every round is a permutation; each of count starts equally often, and every
 * other round goes backwards, so that nobody has always the same one before him. */
size_t bench_turn(size_t round, size_t place, size_t count);

/* More than 5 times the best peer's time: not worth measuring again at this size. */
enum { BENCH_SLOW_TIMES = 5 };
bool bench_is_slow(double time_ns, double best_ns);

/* What happened on the machine while ranks were timed. */
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

/* The least bytes that must go from rank to rank in one call, of all ranks together: what the definition of the
 * collective asks for, whatever the algorithm. */
double bench_least_traffic(const struct bench_work *work, uint32_t ranks, uint64_t message_bytes);
/* Does what crossed lo in a call contradict the transport that was asked for? "tcp" carries at least the least traffic.
 * "shm" does not; as strangers use lo too, what crossed it in as long a time while others were measured is background,
 * and small messages are not accused. Anything else proves nothing. What is wrong, or NULL. */
const char *bench_loopback_contradiction(
	const char *transport, double least_traffic, double loopback_bytes, double background_bytes);

/* A quotient of times, taken repeat by repeat. */
struct bench_ratio {
	double median, least, most;   /* 0: unknown */
};

/* How collet's standing to the same peers has changed between two runs. */
struct bench_change {
	double times;      /* the median over the peers of (ratio now / ratio then): above 1, collet takes longer */
	double noise;      /* what that may differ from 1 without meaning anything */
	size_t peers;
	bool slower, faster;
};
/* then[i] and now[i] are collet's time to one peer's. Noise is 10 %, or how far the ratios of one run lie apart if that
 * is more: (most - least) / median, of the two runs the larger, the median over the peers. One peer that has changed
 * moves no median. */
struct bench_change bench_judge_change(const struct bench_ratio *then, const struct bench_ratio *now, size_t n);

/* The median of n values; sorts them. 0 for none. */
double bench_median(double *values, size_t n);
/* Where values above 0 fall into two heaps, what lies between: no two neighbours are further apart, by a factor of 1.6
 * at least, and a tenth of them is on either side. Sorts them. 0: it is one heap. */
double bench_split_threshold(double *values, size_t n);
/* mine[i] / other[i] over all i where both are above 0. */
struct bench_ratio bench_ratios(const double *mine, const double *other, size_t n);

#endif
