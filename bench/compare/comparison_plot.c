/* Draws a curve a library (the best of its variants at each size), and the limits of the machine. */
#include "comparison.h"

#include <stdlib.h>
#include <string.h>

#include "ranks/process.h"
#include "report/flat_json.h"
#include "report/plot.h"

enum { LEVELS_MAX = 16 };

/* The results of `collet-bench limits` that bound a transport. */
static const struct {
	const char *transport, *limit, *name;
	double bytes;   /* of the measurement to take */
} wanted[] = {
	{ "shm", "flag_ping_pong", "a flag in shared memory, one way", 8 },
	{ "shm", "memcpy", "memcpy", 16777216 },
	{ "shm", "cross_memory_read", "reading the peer's memory", 16777216 },
	{ "tcp", "tcp_ping_pong", "8 bytes over a loopback socket, one way", 8 },
	{ "tcp", "tcp_exchange", "a loopback socket, both ways at once", 16777216 },
};

struct levels {
	struct bench_level level[LEVELS_MAX];
	size_t count;
};

static void take(struct levels *levels, const char *transport, const char *line)
{
	char limit[64], unit[16];
	double bytes, median;
	if (!bench_flat_text(line, "limit", limit, sizeof(limit)) || !bench_flat_text(line, "unit", unit, sizeof(unit))
		|| !bench_flat_number(line, "bytes", &bytes) || !bench_flat_number(line, "median", &median))
		return;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (strcmp(wanted[i].transport, transport) == 0 && strcmp(wanted[i].limit, limit) == 0
			&& wanted[i].bytes == bytes && levels->count < LEVELS_MAX)
			levels->level[levels->count++] = (struct bench_level){ .name = wanted[i].name, .value = median,
				.is_bandwidth = strcmp(unit, "us") != 0 };
}

/* Measured in another process, as that binds itself to a core. Without them the plot is still a plot. */
static void measure_limits(struct levels *levels, const char *transport)
{
	char command[4200], *line = NULL;
	size_t capacity = 0;
	if (bench_own_path() == NULL || strchr(bench_own_path(), '\'') != NULL)
		return;
	snprintf(command, sizeof(command), "'%s' limits --sizes 16M --seconds 0.05 --json -", bench_own_path());
	bench_progress("measuring the machine's limits");
	FILE *limits = popen(command, "re");
	if (limits == NULL)
		return;
	while (getline(&line, &capacity, limits) > 0)
		take(levels, transport, line);
	free(line);
	pclose(limits);
	bench_progress_clear();
}

/* The least of the library's variants at each size. */
static void envelope(const struct comparison *all, size_t first, double *least_us)
{
	const size_t sizes = all->options->sizes.count;
	for (size_t i = 0; i < sizes; i++) {
		least_us[i] = -1;
		for (size_t c = first; c < all->count && (c == first || !comparison_opens_library(all, c)); c++) {
			const double us = all->medians_us[c * sizes + i];
			if (us > 0 && (least_us[i] < 0 || us < least_us[i]))
				least_us[i] = us;
		}
	}
}

bool comparison_plot(const struct comparison *all)
{
	const struct bench_options *o = all->options;
	const enum bench_collective collective = (enum bench_collective)all->work.collective;
	struct bench_curve curves[COMPETITORS_MAX];
	struct levels levels = { .count = 0 };
	double *least_us = calloc(COMPETITORS_MAX * o->sizes.count, sizeof(least_us[0]));
	char title[160], names[COMPETITORS_MAX][64];
	size_t count = 0;
	if (least_us == NULL)
		return false;
	for (size_t c = 0; c < all->count; c++) {
		if (!comparison_opens_library(all, c))
			continue;
		const bool several = c > 0 && c + 1 < all->count && !comparison_opens_library(all, c + 1);
		snprintf(names[count], sizeof(names[count]), "%.40s%s",
			c == 0 ? "collet" : all->competitors[c].variant->library,
			several ? ", its best variant" : "");
		envelope(all, c, &least_us[count * o->sizes.count]);
		curves[count] = (struct bench_curve){ names[count], &least_us[count * o->sizes.count] };
		count++;
	}
	measure_limits(&levels, o->transport != NULL ? o->transport : "shm");
	snprintf(title, sizeof(title), "%s of %u ranks%s%s, %s buffers", bench_collective_name(collective),
		all->bootstrap.ranks, o->transport != NULL ? " over " : "", o->transport != NULL ? o->transport : "",
		bench_buffer_kind_name(o->mode.buffers));
	const struct bench_plot plot = { .path = o->plot, .title = title, .bytes = o->sizes.bytes,
		.sizes = o->sizes.count, .bus_factor = bench_bus_factor(collective, all->bootstrap.ranks),
		.curves = curves, .curve_count = count, .levels = levels.level, .level_count = levels.count };
	const bool done = bench_plot(&plot);
	free(least_us);
	return done;
}
