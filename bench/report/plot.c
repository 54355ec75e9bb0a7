#include "plot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gnuplot.h"
#include "sizes.h"

static void put_ticks(FILE *out, const struct bench_plot *plot)
{
	char text[24];
	bool first = true;
	fputs("set xtics rotate by -40 (", out);
	for (size_t i = 0; i < plot->sizes; i++) {
		if (plot->bytes[i] == 0)
			continue;   /* a logarithm has no place for it */
		fprintf(out, "%s\"%s\" %" PRIu64, first ? "" : ", ", bench_bytes_text(plot->bytes[i], text),
			plot->bytes[i]);
		first = false;
	}
	fputs(")\n", out);
}

static bool has_point(const struct bench_plot *plot, const struct bench_curve *curve, size_t size)
{
	return plot->bytes[size] > 0 && curve->time_us[size] > 0;
}

static size_t points(const struct bench_plot *plot, const struct bench_curve *curve)
{
	size_t count = 0;
	for (size_t i = 0; i < plot->sizes; i++)
		count += has_point(plot, curve, i);
	return count;
}

/* bytes, time in us, bus bandwidth in GB/s */
static void put_curve(FILE *out, const struct bench_plot *plot, size_t number)
{
	const struct bench_curve *curve = &plot->curves[number];
	fprintf(out, "$curve%zu << END\n", number);
	for (size_t i = 0; i < plot->sizes; i++)
		if (has_point(plot, curve, i))
			fprintf(out, "%" PRIu64 " %.6g %.6g\n", plot->bytes[i], curve->time_us[i],
				plot->bus_factor * (double)plot->bytes[i] / curve->time_us[i] / 1e3);
	fputs("END\n", out);
}

static void put_half(FILE *out, const struct bench_plot *plot, bool bandwidth)
{
	bool first = true;
	fprintf(out, "set ylabel '%s'\nset key %s left noenhanced\nplot ",
		bandwidth ? "bus bandwidth, GB/s" : "time of one call, microseconds", bandwidth ? "bottom" : "top");
	if (bandwidth)
		fputs("[*:*] [0.001:*] ", out);
	for (size_t c = 0; c < plot->curve_count; c++) {
		if (points(plot, &plot->curves[c]) == 0)
			continue;
		fprintf(out, "%s$curve%zu using 1:%d with linespoints linewidth 2 title ", first ? "" : ", ", c,
			bandwidth ? 3 : 2);
		gnuplot_quote(out, plot->curves[c].name);
		first = false;
	}
	for (size_t l = 0; l < plot->level_count; l++) {
		if (plot->levels[l].is_bandwidth != bandwidth)
			continue;
		fprintf(out, ", %.6g with lines dashtype 2 linecolor 'gray40' title ", plot->levels[l].value);
		gnuplot_quote(out, plot->levels[l].name);
	}
	putc('\n', out);
}

static void put_script(FILE *out, const struct bench_plot *plot)
{
	const bool both = plot->bus_factor > 0;
	gnuplot_begin(out, plot->path, plot->title, both ? 1280 : 800, 560, both ? 2 : 1);
	fputs("set logscale xy\nset xlabel 'bytes'\n", out);
	put_ticks(out, plot);
	for (size_t c = 0; c < plot->curve_count; c++)
		if (points(plot, &plot->curves[c]) > 0)
			put_curve(out, plot, c);
	put_half(out, plot, false);
	if (both)
		put_half(out, plot, true);
	fputs("unset multiplot\n", out);
}

bool bench_plot_is_possible(const char *path)
{
	if (gnuplot_found())
		return true;
	fprintf(stderr,
		"collet-bench: --plot %s: gnuplot is not installed; install it by scripts/install-deps plot, or leave "
		"--plot away\n",
		path);
	return false;
}

bool bench_plot(const struct bench_plot *plot)
{
	size_t all = 0;
	for (size_t c = 0; c < plot->curve_count; c++)
		all += points(plot, &plot->curves[c]);
	if (all == 0) {
		fprintf(stderr, "collet-bench: --plot %s: there is nothing to draw\n", plot->path);
		return false;
	}
	struct gnuplot gnuplot;
	if (!gnuplot_open(&gnuplot)) {
		fprintf(stderr, "collet-bench: --plot %s: %s\n", plot->path, strerror(errno));
		return false;
	}
	put_script(gnuplot.script, plot);
	if (gnuplot_close(&gnuplot))
		return true;
	fprintf(stderr, "collet-bench: --plot %s: gnuplot failed\n", plot->path);
	return false;
}
