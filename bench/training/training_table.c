#include "training_table.h"

#include <errno.h>
#include <string.h>

#include "gnuplot.h"
#include "report/output.h"

static void put_share(FILE *out, double share, int width)
{
	if (share < 0)
		fprintf(out, "%*s", width, "-");
	else
		fprintf(out, "%*.1f %%", width - 2, 100 * share);
}

static double in_kib(double bytes)
{
	return bytes < 0 ? bytes : bytes / 1024;
}

void training_table(FILE *out, const struct training_row *rows, size_t count)
{
	fprintf(out, "%-17s%6s%12s%12s%15s%14s%12s%11s%10s\n", "strategy", "ranks", "images/s", "efficiency",
		"KiB/step,rank", "busiest KiB", "held KiB", "hidden", "accuracy");
	for (size_t r = 0; r < count; r++) {
		const struct training_row *row = &rows[r];
		fprintf(out, "%-17s%6u%12.0f%12.3f", training_strategy_name(row->strategy), row->ranks,
			row->images_per_s, row->efficiency);
		fprintf(out, "%15.1f", in_kib(row->bytes));
		bench_table_number(out, in_kib(row->busiest_bytes), 14);
		bench_table_number(out, in_kib(row->memory_bytes), 12);
		put_share(out, row->hidden, 11);
		put_share(out, row->accuracy, 10);
		if (row->predicted)
			fputs("  predicted", out);
		if (row->staleness >= 0)
			fprintf(out, "  up to %.0f steps ahead", row->staleness);
		if (row->apart >= 0)
			fprintf(out, "  apart by %.2g", row->apart);
		fputs(row->workers < row->ranks ? "  with servers\n" : "\n", out);
	}
	fflush(out);
}

void training_json(FILE *json, const struct training_row *rows, size_t count, const char *transport)
{
	for (size_t r = 0; r < count; r++) {
		const struct training_row *row = &rows[r];
		const struct {
			const char *name;
			double value;
		} members[] = { { "images_per_s", row->images_per_s }, { "efficiency", row->efficiency },
			{ "bytes_per_step", row->bytes }, { "busiest_bytes_per_step", row->busiest_bytes },
			{ "memory_bytes", row->memory_bytes }, { "share_hidden", row->hidden },
			{ "test_accuracy", row->accuracy }, { "staleness_most", row->staleness },
			{ "apart", row->apart } };
		bench_json_begin(json);
		fprintf(json, ",\"strategy\":\"%s\",\"ranks\":%u,\"workers\":%u,\"predicted\":%s,\"transport\":",
			training_strategy_name(row->strategy), row->ranks, row->workers,
			row->predicted ? "true" : "false");
		bench_json_string(json, transport);
		for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
			fprintf(json, ",\"%s\":", members[i].name);
			bench_json_number(json, members[i].value);
		}
		fputs("}\n", json);
	}
}

/* ---- Drawn --------------------------------------------------------------------------------------------------- */

static void put_bars(FILE *script, const struct training_row *rows, size_t count)
{
	fputs("$measured << END\n", script);
	for (size_t r = 0; r < count; r++)
		if (!rows[r].predicted)
			fprintf(script, "\"%s (%u)\" %.9g %.9g %.9g\n", training_strategy_name(rows[r].strategy),
				rows[r].ranks, rows[r].images_per_s, in_kib(rows[r].bytes), 100 * rows[r].accuracy);
	fputs("END\nset style fill solid 0.6\nset boxwidth 0.7\nset xtics rotate by -40 noenhanced\n", script);
	static const char *const labels[] = { "images/s", "KiB sent a step and rank", "test accuracy, %" };
	for (int column = 0; column < 3; column++) {
		fputs("set ylabel ", script);
		gnuplot_quote(script, labels[column]);
		fprintf(script, "\nplot [] [0:] $measured using 0:%d:xtic(1) with boxes notitle\n", column + 2);
	}
}

/* Efficiency against ranks, a curve a strategy. */
static void put_predictions(FILE *script, const struct training_row *rows, size_t count)
{
	bool any[TRAINING_STRATEGIES] = { false };
	for (int s = 0; s < TRAINING_STRATEGIES; s++) {
		fprintf(script, "$predicted%d << END\n", s);
		for (size_t r = 0; r < count; r++) {
			if (!rows[r].predicted || (int)rows[r].strategy != s)
				continue;
			fprintf(script, "%u %.9g\n", rows[r].ranks, rows[r].efficiency);
			any[s] = true;
		}
		fputs("END\n", script);
	}
	fputs("set xlabel 'ranks (predicted)'\nset ylabel 'efficiency'\nset logscale x 2\nset xtics autofreq norotate\n"
	      "set key bottom left noenhanced\nplot [] [0:1.05] ", script);
	bool first = true;
	for (int s = 0; s < TRAINING_STRATEGIES; s++) {
		if (!any[s])
			continue;
		fprintf(script, "%s$predicted%d using 1:2 with linespoints linewidth 2 title ", first ? "" : ", ", s);
		gnuplot_quote(script, training_strategy_name((enum training_strategy)s));
		first = false;
	}
	fputs("\n", script);
}

bool training_draw(const char *path, const char *title, const struct training_row *rows, size_t count)
{
	struct gnuplot gnuplot;
	bool predicted = false;
	for (size_t r = 0; r < count; r++)
		predicted = predicted || rows[r].predicted;
	if (!gnuplot_open(&gnuplot)) {
		fprintf(stderr, "collet-bench: --plot %s: %s\n", path, strerror(errno));
		return false;
	}
	gnuplot_begin(gnuplot.script, path, title, predicted ? 1600 : 1280, 520, predicted ? 4 : 3);
	put_bars(gnuplot.script, rows, count);
	if (predicted)
		put_predictions(gnuplot.script, rows, count);
	fputs("unset multiplot\n", gnuplot.script);
	if (gnuplot_close(&gnuplot))
		return true;
	fprintf(stderr, "collet-bench: --plot %s: gnuplot failed\n", path);
	return false;
}
