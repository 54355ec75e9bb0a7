/* Derives a link's cost from measured times, by inverting the library's formulas. */
#ifndef BENCH_TUNE_FIT_H
#define BENCH_TUNE_FIT_H

#include <collet/tools.h>

/* One algorithm at one size with one cut. The usual cut comes first. */
struct tune_point {
	char collective[24], algorithm[32];
	uint64_t bytes;              /* of the call */
	uint32_t size;               /* which of the sweep's sizes that is */
	uint32_t segment_bytes;      /* it was cut into these (or less, where there is no room), ... */
	uint32_t channels;           /* ... which went over so many channels */
	double ns;                   /* measured, */
	uint32_t sweeps;             /* so often: the geometric mean */
	double predicted_ns;         /* by the library, as it was when this was measured */
	bool chosen;                 /* by the library, left to itself */
};

/* The error of predictions, and of choices against the best one. */
struct tune_quality {
	double median_error;         /* of |predicted / measured - 1| */
	double worst_error;
	size_t worst_error_at;       /* a point */
	double worst_choice;         /* the chosen algorithm's time / the best one's, where it is largest */
	size_t worst_choice_at;
	size_t choices, bad_choices; /* calls (collective and size); those of them where it is above TUNE_BAD_CHOICE */
};
#define TUNE_BAD_CHOICE 1.10
#define TUNE_GAIN 0.96

/* Fits the numbers of `link` to the points: those that make the median of the relative errors small, none negative. The
 * link's transport, ranks, cores, cuts and sizes are given; its factors are left alone. Where the points do not tell
 * what a byte costs, that stays as it is. COLLET_OK, or why a prediction failed. */
collet_status tune_fit(collet_link_cost *link, const struct tune_point *points, size_t count);

/* Returns the next size of pieces to try, further away from the usual one; 0: there is none, or no room (most). */
uint32_t tune_further_segment(uint32_t segment_bytes, uint32_t most);

/* Sets the range of pieces from which the formulas choose. It spans all that were an algorithm's fastest anywhere,
 * and the usual ones. */
void tune_fit_segments(collet_link_cost *link, const struct tune_point *points, size_t count);

/* Sets what a byte costs over several channels, by the points that have used them beside those that used one. */
collet_status tune_fit_channels(collet_link_cost *link, const struct tune_point *points, size_t count);

/* Sets the factors of `link` to measured / predicted without them. The fastest cut counts; the usual one does unless
 * another takes TUNE_GAIN of its time or less. Sets that cut as well. */
collet_status tune_set_factors(collet_link_cost *link, const struct tune_point *points, size_t count);

/* Sets each point's prediction to the link's, with its factors, and marks those that it would choose. */
collet_status tune_predict(const collet_link_cost *link, struct tune_point *points, size_t count);

/* Judges predictions and marks as they are in the points. Points of one call are neighbours. */
struct tune_quality tune_judge(const struct tune_point *points, size_t count);

/* Takes in the points of one more sweep: a point's time becomes the geometric mean. Sweeps may have tried different
 * ways to cut: of a call that both have measured goes what only one has. Returns how many points there are then, at
 * most `most`. */
size_t tune_merge(struct tune_point *points, size_t count, size_t most, const struct tune_point *more,
	size_t more_count);

/* Reads what rank 0 printed of one point. False: it is no such line. */
bool tune_point_read(const char *line, struct tune_point *point);

#endif
