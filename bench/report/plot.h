/* Time against bytes and bus bandwidth against bytes, drawn by gnuplot. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One line of the plot: a value for each size, < 0 where there is none. */
struct bench_curve {
	const char *name;
	const double *time_us;
};

/* A limit of the machine: a level line in one of both halves. */
struct bench_level {
	const char *name;
	double value;
	bool is_bandwidth;   /* GB/s; else us */
};

struct bench_plot {
	const char *path, *title;
	const uint64_t *bytes;
	size_t sizes;
	double bus_factor;   /* bus bandwidth = factor * bytes / time; 0: only times are drawn */
	const struct bench_curve *curves;
	size_t curve_count;
	const struct bench_level *levels;
	size_t level_count;
};

/* Returns true if a plot can be drawn. Else it prints what is missing, and how to install it. For before measuring. */
bool bench_plot_is_possible(const char *path);

/* Writes an SVG. Returns false after printing the reason. */
bool bench_plot(const struct bench_plot *plot);

#endif
