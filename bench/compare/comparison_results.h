/* Evaluates the repeats of a comparison, for each state of the cores by itself. All functions are pure. */
#ifndef BENCH_COMPARISON_RESULTS_H
#define BENCH_COMPARISON_RESULTS_H

#include "comparison.h"

/* Returns the bytes of a size as the collective at hand counts them. */
uint64_t comparison_bytes(const struct comparison *all, size_t size);

/* The calls that are looked at: back to back on the same input, or with --rewrite. */
enum comparison_calls { COMPARISON_PLAIN, COMPARISON_REWRITTEN, COMPARISON_CALLS };

/* One library at one size while cores were in one state. */
struct comparison_result {
	uint32_t repeats;           /* in that state; 0: all else is 0 too */
	double median_ns, cpu_ns;   /* cpu: of plain calls */
	struct bench_ratio ratio;   /* collet's time to this one's */
};
struct comparison_result comparison_result(const struct comparison *all, size_t size, size_t competitor,
	enum bench_cores cores, enum comparison_calls calls);

/* Returns the peer with the least median among those that were measured in the same repeats as collet. Where there is
 * none, all peers count. 0: nobody was measured. */
size_t comparison_best_peer(
	const struct comparison *all, size_t size, enum bench_cores cores, enum comparison_calls calls);

/* Was anybody measured at that size in that state? */
bool comparison_was_seen(const struct comparison *all, size_t size, enum bench_cores cores);

/* Is the competitor the first of its library? A library's column starts there. */
bool comparison_opens_library(const struct comparison *all, size_t at);
/* Returns the median of plain calls of the best variant of the library that starts there; -1: it has no time. */
double comparison_leader_ns(const struct comparison *all, size_t size, size_t first, enum bench_cores cores);

/* The flags of all repeats in one state. */
struct comparison_flags {
	size_t repeats;                      /* 0: the state was not seen */
	double median_ns, least_ns, most_ns;
};
struct comparison_flags comparison_flags(const struct comparison *all, size_t sizes, enum bench_cores cores);
/* Returns the name of the state that was not seen where the other one was; NULL: there is none. */
const char *comparison_unseen_cores(const struct comparison *all, size_t sizes);

#endif
