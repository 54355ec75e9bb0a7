/* The parent's side of tune: starts the ranks, world by world, reads what they measured, fits, shows and writes. */
#include "tune.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <collet/tools.h>

#include "limits/core_latency.h"
#include "pin.h"
#include "report/output.h"
#include "tune_fit.h"
#include "tune_limits_run.h"
#include "tune_points.h"
#include "tune_start.h"

enum { WORLDS_MAX = 16, REPEATS_MAX = 1024 };

/* One transport with one number of ranks, measured. */
struct world {
	const char *transport;
	uint32_t ranks, cores;
	struct tune_point *points;
	size_t count;
	double repeat_ratios[REPEATS_MAX];     /* of what was measured twice, how far both are apart */
	size_t repeat_count;
	size_t doubts;               /* calls of which the sweep could not make sure what is the fastest */
};

static int complain(const char *what)
{
	bench_progress_clear();
	fprintf(stderr, "collet-bench: tune: %s: %s\n", what, collet_last_error());
	return 1;
}

/* ---- Measuring ---- */

/* Reads the lines that the ranks printed. Points go into world; other lines are shown to the user. */
static int read_points(struct world *world, FILE *printed)
{
	char line[512];
	while (fgets(line, sizeof(line), printed) != NULL) {
		double ratio;
		if (sscanf(line, "cores %u", &world->cores) == 1)
			continue;
		if (strcmp(line, "doubt\n") == 0) {
			world->doubts++;
			continue;
		}
		if (sscanf(line, "again %lf", &ratio) == 1) {
			if (world->repeat_count < REPEATS_MAX && ratio > 0)
				world->repeat_ratios[world->repeat_count++] = fabs(log(ratio));
			continue;
		}
		if (world->count == TUNE_POINTS_MAX) {
			fprintf(stderr, "collet-bench: tune: more than %d points\n", TUNE_POINTS_MAX);
			return 1;
		}
		if (tune_point_read(line, &world->points[world->count]))
			world->count++;
		else
			fputs(line, stderr);
	}
	return world->count == 0 || world->cores == 0;
}

/* One sweep: new ranks measure all points, with this tuning. */
static int sweep(struct world *world, const char *tuning, char **argv)
{
	const struct tune_start start = { .transport = world->transport, .ranks = world->ranks, .tuning = tuning };
	world->points = calloc(TUNE_POINTS_MAX, sizeof(world->points[0]));
	if (world->points == NULL) {
		fprintf(stderr, "collet-bench: tune: %s\n", strerror(errno));
		return 1;
	}
	FILE *printed = tune_start_ranks(&start, argv);
	if (printed == NULL)
		return 1;
	const int failed = read_points(world, printed);
	fclose(printed);
	if (failed)
		fprintf(stderr, "collet-bench: tune: %u ranks over %s: nothing measured\n", world->ranks,
			world->transport);
	return failed;
}

/* Takes in one more sweep; world then has its points alone. */
static void take_in(struct world *world, const struct world *more)
{
	world->cores = more->cores;
	world->doubts += more->doubts;
	for (size_t i = 0; i < more->repeat_count && world->repeat_count < REPEATS_MAX; i++)
		world->repeat_ratios[world->repeat_count++] = more->repeat_ratios[i];
	world->count = tune_merge(world->points, world->count, TUNE_POINTS_MAX, more->points, more->count);
}

/* Ranks of another sweep may lie elsewhere in memory, and the machine be another. */
static int measure(struct world *world, const struct bench_options *options, const char *tuning, char **argv)
{
	world->points = calloc(TUNE_POINTS_MAX, sizeof(world->points[0]));
	if (world->points == NULL) {
		fprintf(stderr, "collet-bench: tune: %s\n", strerror(errno));
		return 1;
	}
	if (options->points != NULL
		&& tune_points_read(
			options->points, world->transport, world->ranks, world->points, &world->count))
		return 1;
	for (uint32_t s = 0; s < options->repeats; s++) {
		struct world more = { .transport = world->transport, .ranks = world->ranks };
		bench_progress("tune: measuring %u ranks over %s, %u of %u", world->ranks, world->transport, s + 1,
			options->repeats);
		int failed = sweep(&more, tuning, argv);
		if (!failed && options->points != NULL)
			failed = tune_points_add(
				options->points, world->transport, world->ranks, more.points, more.count);
		if (!failed)
			take_in(world, &more);
		free(more.points);
		if (failed)
			return 1;
	}
	return 0;
}

/* ---- Showing ---- */

static void print_quality(const struct world *world, const char *what, struct tune_quality q)
{
	const struct tune_point *error = &world->points[q.worst_error_at], *choice = &world->points[q.worst_choice_at];
	char text[24];
	printf("# %s: median error %.0f %%; the worst %.0f %%: %s %s, %s\n", what, 100 * q.median_error,
		100 * q.worst_error, error->collective, error->algorithm, bench_bytes_text(error->bytes, text));
	printf("# %zu calls, %zu of them chosen more than %.0f %% slower than the best algorithm", q.choices,
		q.bad_choices, 100 * (TUNE_BAD_CHOICE - 1));
	if (q.worst_choice > 1)
		printf("; at worst %.2f times: %s %s, %s", q.worst_choice, choice->collective, choice->algorithm,
			bench_bytes_text(choice->bytes, text));
	putchar('\n');
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Prints the noise within a sweep. */
static void print_noise(struct world *world, const char *question)
{
	if (world->doubts > 0)
		printf("# in %zu calls noise has left it open %s\n", world->doubts, question);
	if (world->repeat_count == 0)
		return;
	qsort(world->repeat_ratios, world->repeat_count, sizeof(world->repeat_ratios[0]), by_value);
	const size_t count = world->repeat_count;
	printf("# the same measured twice, in turns with the others: apart by %.0f %% in the median, by %.0f %% one "
		"time in ten, by %.0f %% at worst\n", 100 * expm1(world->repeat_ratios[count / 2]),
		100 * expm1(world->repeat_ratios[count * 9 / 10]), 100 * expm1(world->repeat_ratios[count - 1]));
}

/* Each point, what was predicted beside what was measured. */
static void print_points(const struct world *world)
{
	printf("%-15s %-18s %12s %10s %2s %12s %12s %8s\n", "collective", "algorithm", "bytes", "pieces", "of",
		"measured us", "predicted us", "error");
	for (size_t i = 0; i < world->count; i++) {
		const struct tune_point *p = &world->points[i];
		char text[24], segment[24];
		printf("%-15s %-18s %12s %10s %2u ", p->collective, p->algorithm, bench_bytes_text(p->bytes, text),
			bench_bytes_text(p->segment_bytes, segment), p->channels);
		bench_table_number(stdout, p->ns / 1e3, 12);
		putchar(' ');
		bench_table_number(stdout, p->predicted_ns / 1e3, 12);
		printf(" %+7.0f%%%s\n", 100 * (p->predicted_ns / p->ns - 1), p->chosen ? " *" : "");
	}
}

static void write_json(FILE *json, const struct world *world)
{
	for (size_t i = 0; json != NULL && i < world->count; i++) {
		const struct tune_point *p = &world->points[i];
		fprintf(json, "{\"transport\":\"%s\",\"ranks\":%u,\"cores\":%u,\"collective\":\"%s\","
			"\"algorithm\":\"%s\",\"bytes\":%llu,\"piece_bytes\":%u,\"channels\":%u,"
			"\"chosen\":%s,\"time_us\":",
			world->transport, world->ranks, world->cores, p->collective, p->algorithm,
			(unsigned long long)p->bytes, p->segment_bytes, p->channels, p->chosen ? "true" : "false");
		bench_json_number(json, p->ns / 1e3);
		fputs(",\"predicted_us\":", json);
		bench_json_number(json, p->predicted_ns / 1e3);
		fputs("}\n", json);
	}
}

static void print_link(const collet_link_cost *l)
{
	char near[24];
	printf("# latency %.0f ns, a message %.0f ns, a further piece of it %.0f ns, a byte %.3f %.3f %.3f %.3f ns, "
	       "one reduced %.3f ns; beyond %s a byte %.3f and %.3f ns more\n",
		l->latency_ns, l->overhead_ns, l->segment_ns, l->byte_ns[0], l->byte_ns[1], l->byte_ns[2],
		l->byte_ns[3], l->reduce_byte_ns, bench_bytes_text(l->cached_bytes, near), l->uncached_byte_ns,
		l->uncached_reduce_byte_ns);
	for (int c = 1; c < COLLET_TUNING_CHANNELS; c++)
		if (l->channel_ratios[c] > 0)
			printf("# over %d channels a byte takes %.2f of the time\n", 1 << c, l->channel_ratios[c]);
}

/* ---- Tuning ---- */

/* A tuning under way: what it starts from, and becomes. */
struct tuning {
	collet_link_cost links[COLLET_TUNING_LINKS];
	size_t count;
	collet_link_cost builtin[COLLET_TUNING_LINKS];   /* what is measured with, but for its limits */
	size_t builtin_count;
	collet_link_cost kept[COLLET_TUNING_LINKS];      /* links, before the world that is being measured */
	size_t kept_count;
	bool is_far;               /* the cores are far from each other while this world is measured */
	struct tune_folder folder;
};

/* The one of these links that is this world's, or a new one, made of the nearest. */
static collet_link_cost *link_of(
	collet_link_cost *links, size_t *count, const char *transport, uint32_t ranks, uint32_t cores, bool is_far)
{
	const collet_link_cost *like = collet_tuning_find(links, *count, transport, ranks, cores);
	for (size_t i = 0; i < *count; i++)
		if (strcmp(links[i].transport, transport) == 0 && links[i].ranks == ranks && links[i].cores == cores
			&& links[i].is_far == is_far)
			return &links[i];
	if (like == NULL || *count == COLLET_TUNING_LINKS) {
		fprintf(stderr, "collet-bench: tune: no place in the tuning for %s\n", transport);
		return NULL;
	}
	collet_link_cost *link = &links[(*count)++];
	*link = *like;
	link->ranks = ranks;
	link->cores = cores;
	link->is_far = is_far;
	return link;
}

static int fit(struct tuning *tuning, struct world *world, const struct bench_options *options)
{
	collet_link_cost *link =
		link_of(tuning->links, &tuning->count, world->transport, world->ranks, world->cores, tuning->is_far);
	if (link == NULL)
		return 1;
	/* Cut as its sweeps will tell. */
	link->size_count = 0;
	memset(link->size_bytes, 0, sizeof(link->size_bytes));
	for (size_t i = 0; i < options->sizes.count; i++)
		link->size_bytes[link->size_count++] = options->sizes.bytes[i];
	memset(link->factor, 0, sizeof(link->factor));
	memset(link->segment_log2, 0, sizeof(link->segment_log2));
	memset(link->channels_log2, 0, sizeof(link->channels_log2));
	printf("# %u ranks on %u cores over %s: %zu points\n", world->ranks, world->cores, world->transport,
		world->count);
	tune_fit_segments(link, world->points, world->count);
	if (tune_fit(link, world->points, world->count) != COLLET_OK
		|| tune_fit_channels(link, world->points, world->count) != COLLET_OK
		|| tune_predict(link, world->points, world->count) != COLLET_OK)
		return complain("the fit");
	print_link(link);
	print_noise(world, "which algorithm is the fastest, or as good");
	print_quality(world, "the formulas alone", tune_judge(world->points, world->count));
	if (tune_set_factors(link, world->points, world->count) != COLLET_OK
		|| tune_predict(link, world->points, world->count) != COLLET_OK)
		return complain("the algorithms' factors");
	print_quality(world, "with each algorithm's factors", tune_judge(world->points, world->count));
	return 0;
}

static int check(struct world *world)
{
	const struct tune_quality q = tune_judge(world->points, world->count);
	printf("# %u ranks on %u cores over %s: %zu points\n", world->ranks, world->cores, world->transport,
		world->count);
	print_points(world);
	print_noise(world, "whether the choice is too slow");
	print_quality(world, "as chosen now", q);
	return 0;
}

/* Returns what is kept of an earlier tuning of this machine, so that worlds can be tuned one by one; else the
 * built-in tuning. */
static int start_from(struct tuning *tuning, const char *path)
{
	if (collet_tuning_read(NULL, tuning->builtin, COLLET_TUNING_LINKS, &tuning->builtin_count) != COLLET_OK)
		return complain("the built-in tuning");
	if (path != NULL && access(path, F_OK) == 0) {
		if (collet_tuning_read(path, tuning->links, COLLET_TUNING_LINKS, &tuning->count) == COLLET_OK)
			return 0;
		fprintf(stderr, "collet-bench: tune: %s. It is replaced\n", collet_last_error());
	}
	memcpy(tuning->links, tuning->builtin, sizeof(tuning->links));
	tuning->count = tuning->builtin_count;
	return 0;
}

/* Measured before all else, since what calls take depends on them. */
static int tune_limits(struct tuning *tuning, const char *transport, uint32_t ranks,
	const struct bench_options *options, char **argv, FILE *json)
{
	struct tune_limits limits = { 0 };
	const collet_link_cost *with = options->check ? tuning->links : tuning->builtin;
	if (tune_limits_measure(&limits, &tuning->folder, with, options->check ? tuning->count : tuning->builtin_count,
		    transport, ranks, options, argv))
		return 1;
	collet_link_cost *link =
		link_of(tuning->links, &tuning->count, transport, ranks, limits.cores, tuning->is_far);
	if (link == NULL)
		return 1;
	printf("# %u ranks on %u cores over %s: %zu calls at once and otherwise\n", ranks, limits.cores, transport,
		limits.count);
	tune_limits_show(&limits, link);
	tune_limits_write_json(json, &limits, transport, ranks);
	if (!options->check)
		tune_limits_set(&limits, link);
	return 0;
}

/* Predicts with the limits that the tuning will have; all else is built in. path "": there are no such limits. */
static int write_for_sweeps(
	const struct tuning *tuning, const char *transport, uint32_t ranks, char path[96])
{
	collet_link_cost *links = calloc(COLLET_TUNING_LINKS, sizeof(*links));
	int failed = links == NULL;
	path[0] = '\0';
	for (size_t i = 0; !failed && i < tuning->count; i++) {
		const collet_link_cost *from = &tuning->links[i];
		size_t count = tuning->builtin_count;
		if (strcmp(from->transport, transport) != 0 || from->ranks != ranks || from->is_far != tuning->is_far
			|| (from->eager_bytes == 0 && from->fast_path_bytes == 0))
			continue;
		memcpy(links, tuning->builtin, count * sizeof(*links));
		collet_link_cost *link = link_of(links, &count, transport, ranks, from->cores, from->is_far);
		if (link == NULL) {
			failed = 1;
			break;
		}
		link->eager_bytes = from->eager_bytes;
		link->fast_path_bytes = from->fast_path_bytes;
		failed = !tune_folder_write(&tuning->folder, TUNE_FILE_SWEEP, links, count, path);
		break;
	}
	free(links);
	return failed;
}

static int tune_algorithms(struct tuning *tuning, const char *transport, uint32_t ranks,
	const struct bench_options *options, char **argv, FILE *json)
{
	struct world world = { .transport = transport, .ranks = ranks };
	char path[96] = "";
	int failed = !options->check && write_for_sweeps(tuning, transport, ranks, path);
	if (!failed)
		failed = measure(&world, options, path[0] != '\0' ? path : NULL, argv);
	if (!failed)
		failed = options->check ? check(&world) : fit(tuning, &world, options);
	if (!failed)
		write_json(json, &world);
	free(world.points);
	return failed;
}

static int measure_world(struct tuning *tuning, const char *transport, uint32_t ranks,
	const struct bench_options *options, char **argv, FILE *json)
{
	int failed = options->limits ? tune_limits(tuning, transport, ranks, options, argv, json) : 0;
	if (!failed && options->collectives != 0)
		failed = tune_algorithms(tuning, transport, ranks, options, argv, json);
	fflush(stdout);
	return failed;
}

/* True if the cores moved while a world was measured: what was found holds for neither distance. */
static bool have_moved(double before_ns, double after_ns)
{
	return before_ns > 0 && after_ns > 0 &&
		(before_ns >= COLLET_FAR_CORES_NS) != (after_ns >= COLLET_FAR_CORES_NS);
}

/* Fills the row for near or for far cores, as they are now. Measures again if they move meanwhile. */
static int tune_world(struct tuning *tuning, const char *transport, uint32_t ranks, const struct bench_options *options,
	char **argv, FILE *json)
{
	enum { TRIES = 3 };
	for (int try = 0; try < TRIES; try++) {
		const double before_ns = bench_core_latency_ns();
		tuning->is_far = before_ns >= COLLET_FAR_CORES_NS;
		tuning->kept_count = tuning->count;
		memcpy(tuning->kept, tuning->links, sizeof(tuning->kept));
		if (measure_world(tuning, transport, ranks, options, argv, json))
			return 1;
		const double after_ns = bench_core_latency_ns();
		if (options->check || !have_moved(before_ns, after_ns)) {
			if (before_ns > 0)
				printf("# cores %s: a flag: %.0f ns\n", tuning->is_far ? "far" : "near", before_ns);
			return 0;
		}
		printf("# measured again, as the cores moved: a flag took %.0f ns one way before, and %.0f after\n",
			before_ns, after_ns);
		tuning->count = tuning->kept_count;
		memcpy(tuning->links, tuning->kept, sizeof(tuning->links));
	}
	fprintf(stderr, "collet-bench: tune: the cores moved whenever %u ranks over %s were measured. Tune again\n",
		ranks, transport);
	return 1;
}

/* Chooses the worlds to measure: that of -n; else two ranks, one a core, and two a core. */
static size_t list_worlds(const struct bench_options *options, uint32_t ranks[3])
{
	const uint32_t cores = bench_core_count(), candidates[3] = { 2, cores, 2 * cores };
	size_t count = 0;
	if (options->ranks > 0) {
		ranks[0] = options->ranks;
		return 1;
	}
	for (size_t i = 0; i < 3; i++)
		if (candidates[i] >= 2 && (count == 0 || candidates[i] > ranks[count - 1]))
			ranks[count++] = candidates[i];
	return count;
}

static int tune_all(struct tuning *tuning, const struct bench_options *options, char **argv, FILE *json)
{
	collet_transport_info transports[16];
	size_t transport_count;
	uint32_t ranks[3];
	const size_t worlds = list_worlds(options, ranks);
	if (collet_transport_list(transports, 16, &transport_count) != COLLET_OK)
		return complain("the transports");
	size_t tuned = 0;
	for (size_t t = 0; t < transport_count && t < 16; t++) {
		const char *name = transports[t].name;
		if (!transports[t].built || strcmp(name, "self") == 0
			|| (options->transport == NULL ? transports[t].is_module
			    : strcmp(options->transport, name) != 0))
			continue;  /* a module may find no device here: it is tuned if it is asked for */
		tuned++;
		for (size_t w = 0; w < worlds; w++)
			if (tune_world(tuning, name, ranks[w], options, argv, json))
				return 1;
	}
	if (tuned == 0)
		fprintf(stderr, "collet-bench: tune: there is no transport \"%s\" to tune\n", options->transport);
	return tuned == 0;
}

bool bench_tune_path(const struct bench_options *options, char path[TUNE_PATH_BYTES])
{
	if (options->output != NULL)
		snprintf(path, TUNE_PATH_BYTES, "%s", options->output);
	else if (collet_tuning_path(path, TUNE_PATH_BYTES) != COLLET_OK)
		path[0] = '\0';
	if (path[0] != '\0' || options->check)
		return true;
	fprintf(stderr, "collet-bench: tune: there is no file to write to; name one with --output\n");
	return false;
}

int bench_tune(const struct bench_options *options, char **argv)
{
	struct tuning *tuning = calloc(1, sizeof(*tuning));
	char path[TUNE_PATH_BYTES];
	bool failed_open;
	int status = 1;
	FILE *json = bench_json_open(options->json, &failed_open);
	if (tuning == NULL || (json == NULL && failed_open))
		goto out;
	if (!bench_tune_path(options, path))
		goto out;
	/* The built-in tuning is measured, so that a bad one does not cut the next one's messages. */
	if (!options->check)
		setenv("COLLET_TUNING", "builtin", 1);
	if (!tune_folder_init(&tuning->folder))
		goto out;
	if (start_from(tuning, path[0] != '\0' ? path : NULL) || tune_all(tuning, options, argv, json))
		goto out;
	if (!options->check) {
		if (collet_tuning_write(path, tuning->links, tuning->count) != COLLET_OK) {
			complain("writing the tuning");
			goto out;
		}
		printf("# written to %s\n", path);
	}
	status = 0;
out:
	if (!bench_json_close(json))
		status = 1;
	if (tuning != NULL)
		tune_folder_deinit(&tuning->folder);
	free(tuning);
	return status;
}
