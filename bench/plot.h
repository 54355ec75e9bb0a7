/* Time against bytes, drawn by gnuplot. */
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

/* Writes an SVG. False: said why. */
bool bench_plot(const char *path, const char *title, const uint64_t *bytes, size_t sizes,
	const struct bench_curve *curves, size_t count);

#endif
