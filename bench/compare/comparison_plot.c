/* Draws a curve for each library (the best of its variants at each size) and state of the cores, and the limits of the
 * machine. */
#include "comparison_results.h"

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

enum { CURVES_MAX = COMPETITORS_MAX * BENCH_CORES_STATES };

struct curves {
	struct bench_curve curve[CURVES_MAX];
	char names[CURVES_MAX][64];
	double *times_us;   /* [curve][size] */
	size_t count;
};

/* Adds the curve of the library that starts there. */
static void add_curve(const struct comparison *all, size_t first, enum bench_cores cores, struct curves *curves)
{
	const size_t sizes = all->options->sizes.count;
	const bool several = first > 0 && first + 1 < all->count && !comparison_opens_library(all, first + 1);
	const char *state = bench_cores_name(cores);
	char *name = curves->names[curves->count];
	double *times_us = &curves->times_us[curves->count * sizes];
	snprintf(name, sizeof(curves->names[0]), "%.30s%s%s%s",
		first == 0 ? "collet" : all->competitors[first].variant->library, several ? ", its best variant" : "",
		state != NULL ? ", cores " : "", state != NULL ? state : "");
	for (size_t i = 0; i < sizes; i++)
		times_us[i] = comparison_leader_ns(all, i, first, cores) / 1e3;
	curves->curve[curves->count++] = (struct bench_curve){ name, times_us };
}

static void add_curves(const struct comparison *all, struct curves *curves)
{
	for (enum bench_cores cores = 0; cores < BENCH_CORES_STATES; cores++) {
		if (comparison_flags(all, all->options->sizes.count, cores).repeats == 0)
			continue;
		for (size_t c = 0; c < all->count; c++)
			if (comparison_opens_library(all, c))
				add_curve(all, c, cores, curves);
	}
}

bool comparison_plot(const struct comparison *all)
{
	const struct bench_options *o = all->options;
	const enum bench_collective collective = (enum bench_collective)all->work.collective;
	struct curves *curves = calloc(1, sizeof(*curves));
	struct levels levels = { .count = 0 };
	char title[160];
	bool done = false;
	if (curves != NULL)
		curves->times_us = calloc(CURVES_MAX * o->sizes.count, sizeof(curves->times_us[0]));
	if (curves != NULL && curves->times_us != NULL) {
		add_curves(all, curves);
		measure_limits(&levels, o->transport != NULL ? o->transport : "shm");
		snprintf(title, sizeof(title), "%s of %u ranks%s%s, %s buffers", bench_collective_name(collective),
			all->bootstrap.ranks, o->transport != NULL ? " over " : "",
			o->transport != NULL ? o->transport : "", bench_buffer_kind_name(o->mode.buffers));
		const struct bench_plot plot = { .path = o->plot, .title = title, .bytes = o->sizes.bytes,
			.sizes = o->sizes.count, .bus_factor = bench_bus_factor(collective, all->bootstrap.ranks),
			.curves = curves->curve, .curve_count = curves->count, .levels = levels.level,
			.level_count = levels.count };
		done = bench_plot(&plot);
		free(curves->times_us);
	}
	free(curves);
	return done;
}
