/* The script is piped to gnuplot, data and all, so that nothing else is left on the disk. */
#include "plot.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "sizes.h"

/* In gnuplot's single quotes only the quote itself means something; doubled, it is a quote. */
static void put_quoted(FILE *out, const char *text)
{
	putc('\'', out);
	for (; *text != '\0'; text++) {
		if (*text == '\'')
			putc('\'', out);
		putc(*text, out);
	}
	putc('\'', out);
}

static void put_ticks(FILE *out, const uint64_t *bytes, size_t sizes)
{
	char text[24];
	bool first = true;
	fputs("set xtics rotate by -40 (", out);
	for (size_t i = 0; i < sizes; i++) {
		if (bytes[i] == 0)
			continue;   /* a logarithm has no place for it */
		fprintf(out, "%s\"%s\" %" PRIu64, first ? "" : ", ", bench_bytes_text(bytes[i], text), bytes[i]);
		first = false;
	}
	fputs(")\n", out);
}

static void put_curve(FILE *out, size_t number, const struct bench_curve *curve, const uint64_t *bytes, size_t sizes)
{
	fprintf(out, "$curve%zu << END\n", number);
	for (size_t i = 0; i < sizes; i++)
		if (bytes[i] > 0 && curve->time_us[i] > 0)
			fprintf(out, "%" PRIu64 " %.6g\n", bytes[i], curve->time_us[i]);
	fputs("END\n", out);
}

static size_t points(const struct bench_curve *curve, const uint64_t *bytes, size_t sizes)
{
	size_t count = 0;
	for (size_t i = 0; i < sizes; i++)
		count += bytes[i] > 0 && curve->time_us[i] > 0;
	return count;
}

static void put_script(FILE *out, const char *path, const char *title, const uint64_t *bytes, size_t sizes,
	const struct bench_curve *curves, size_t count)
{
	bool first = true;
	fputs("set terminal svg size 900,600 background 'white'\nset output ", out);
	put_quoted(out, path);
	fputs("\nset title ", out);
	put_quoted(out, title);
	fputs(" noenhanced\nset logscale xy\nset xlabel 'bytes'\nset ylabel 'time of one call, microseconds'\nset "
	      "grid\n"
	      "set key top left noenhanced\nset format y '%g'\n",
		out);
	put_ticks(out, bytes, sizes);
	for (size_t c = 0; c < count; c++)
		if (points(&curves[c], bytes, sizes) > 0)
			put_curve(out, c, &curves[c], bytes, sizes);
	fputs("plot ", out);
	for (size_t c = 0; c < count; c++) {
		if (points(&curves[c], bytes, sizes) == 0)
			continue;
		fprintf(out, "%s$curve%zu with linespoints linewidth 2 title ", first ? "" : ", ", c);
		put_quoted(out, curves[c].name);
		first = false;
	}
	putc('\n', out);
}

bool bench_plot(const char *path, const char *title, const uint64_t *bytes, size_t sizes,
	const struct bench_curve *curves, size_t count)
{
	size_t all = 0;
	for (size_t c = 0; c < count; c++)
		all += points(&curves[c], bytes, sizes);
	if (all == 0) {
		fprintf(stderr, "collet-bench: --plot %s: there is nothing to draw\n", path);
		return false;
	}
	FILE *gnuplot = popen("gnuplot", "we");
	if (gnuplot == NULL) {
		fprintf(stderr, "collet-bench: --plot %s: %s\n", path, strerror(errno));
		return false;
	}
	/* A shell that finds no gnuplot closes its end: that is told by pclose(), not by a signal. */
	void (*before)(int) = signal(SIGPIPE, SIG_IGN);
	put_script(gnuplot, path, title, bytes, sizes, curves, count);
	const int status = pclose(gnuplot);
	signal(SIGPIPE, before);
	if (status == 0)
		return true;
	fprintf(stderr, "collet-bench: --plot %s: gnuplot failed (is it installed?)\n", path);
	return false;
}
