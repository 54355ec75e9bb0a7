/* Starts the ranks that measure limits, shows what they found, and sets a link's limits by it. */
#include "tune_limits_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/output.h"
#include "tune.h"
#include "tune_start.h"

static const char *const files[] = { TUNE_FILE_ONCE, TUNE_FILE_OTHERWISE, TUNE_FILE_SWEEP };

bool tune_folder_init(struct tune_folder *folder)
{
	const char *place = getenv("TMPDIR");
	const int length = snprintf(folder->path, sizeof(folder->path), "%s/collet-tune-XXXXXX",
		place != NULL && strlen(place) < 32 ? place : "/tmp");
	if (length < (int)sizeof(folder->path) && mkdtemp(folder->path) != NULL)
		return true;
	fprintf(stderr, "collet-bench: tune: %s: %s\n", folder->path, strerror(errno));
	folder->path[0] = '\0';
	return false;
}

void tune_folder_deinit(struct tune_folder *folder)
{
	char path[96];
	if (folder->path[0] == '\0')
		return;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder->path, files[i]);
		unlink(path);
	}
	rmdir(folder->path);
	folder->path[0] = '\0';
}

bool tune_folder_write(const struct tune_folder *folder, const char *name, const collet_link_cost *links, size_t count,
	char path[96])
{
	snprintf(path, 96, "%s/%s", folder->path, name);
	if (collet_tuning_write(path, links, count) == COLLET_OK)
		return true;
	fprintf(stderr, "collet-bench: tune: %s\n", collet_last_error());
	return false;
}

/* The links with these limits everywhere. */
static bool write_with(
	const struct tune_folder *folder, const char *name, const collet_link_cost *links, size_t count, uint32_t limit)
{
	char path[96];
	collet_link_cost *other = calloc(count + 1, sizeof(*other));
	if (other == NULL) {
		fprintf(stderr, "collet-bench: tune: %s\n", strerror(errno));
		return false;
	}
	memcpy(other, links, count * sizeof(*other));
	for (size_t i = 0; i < count; i++)
		other[i].eager_bytes = other[i].fast_path_bytes = limit;
	const bool good = tune_folder_write(folder, name, other, count, path);
	free(other);
	return good;
}

/* Reads the lines that the ranks printed. Points are kept; other lines are shown to the user. */
static int read_points(struct tune_limits *limits, FILE *printed)
{
	char line[512];
	struct tune_limit_point point;
	size_t there = 0;
	while (fgets(line, sizeof(line), printed) != NULL) {
		if (sscanf(line, "cores %u", &limits->cores) == 1)
			continue;
		if (!tune_limit_read(line, &point)) {
			fputs(line, stderr);
			continue;
		}
		limits->count = tune_limit_merge(limits->points, limits->count, TUNE_LIMIT_POINTS, &point);
		there++;
	}
	return there == 0 || limits->cores == 0;
}

int tune_limits_measure(struct tune_limits *limits, const struct tune_folder *folder, const collet_link_cost *links,
	size_t count, const char *transport, uint32_t ranks, const struct bench_options *options, char **argv)
{
	const struct tune_start start = { .transport = transport, .ranks = ranks, .limits = folder->path };
	if (!write_with(folder, TUNE_FILE_ONCE, links, count, TUNE_LIMIT_MOST)
		|| !write_with(folder, TUNE_FILE_OTHERWISE, links, count, TUNE_LIMIT_NONE))
		return 1;
	for (uint32_t s = 0; s < options->repeats; s++) {
		bench_progress("tune: measuring limits of %u ranks over %s, %u of %u", ranks, transport, s + 1,
			options->repeats);
		FILE *printed = tune_start_ranks(&start, argv);
		if (printed == NULL)
			return 1;
		const int failed = read_points(limits, printed);
		fclose(printed);
		if (failed) {
			fprintf(stderr, "collet-bench: tune: %u ranks over %s: no limits measured\n", ranks, transport);
			return 1;
		}
	}
	return 0;
}

static uint32_t *limit_of(collet_link_cost *link, enum tune_limit limit)
{
	return limit == TUNE_EAGER ? &link->eager_bytes : &link->fast_path_bytes;
}

void tune_limits_show(const struct tune_limits *limits, const collet_link_cost *link)
{
	collet_link_cost now = *link;
	char text[24], other[24];
	printf("%-15s %12s %12s %12s %8s\n", "limits", "bytes", "at once us", "else us", "ratio");
	for (size_t i = 0; i < limits->count; i++) {
		const struct tune_limit_point *p = &limits->points[i];
		printf("%-15s %12s ", p->call, bench_bytes_text(p->bytes, text));
		bench_table_number(stdout, p->once_ns / 1e3, 12);
		putchar(' ');
		bench_table_number(stdout, p->otherwise_ns / 1e3, 12);
		printf(" %8.2f\n", p->once_ns / p->otherwise_ns);
	}
	for (int l = 0; l < TUNE_LIMITS; l++) {
		const enum tune_limit limit = (enum tune_limit)l;
		const uint32_t set = *limit_of(&now, limit), from = set > 0 ? set : TUNE_LIMIT_USUAL,
			       to = tune_limit_choose(limits->points, limits->count, limit);
		printf("# %s %u: %s", tune_limit_name(limit), to,
			limit == TUNE_EAGER ? "messages of up to so many bytes travel at once"
					    : "calls of up to so many bytes are made in one go");
		if (to != from)
			printf("; what lies between that and %s takes %.2f of its time so",
				bench_bytes_text(from, other),
				tune_limit_between(limits->points, limits->count, limit, from, to));
		putchar('\n');
	}
}

void tune_limits_write_json(FILE *json, const struct tune_limits *limits, const char *transport, uint32_t ranks)
{
	for (size_t i = 0; json != NULL && i < limits->count; i++) {
		const struct tune_limit_point *p = &limits->points[i];
		const enum tune_limit limit = tune_limit_has(TUNE_EAGER, p) ? TUNE_EAGER : TUNE_INLINE;
		fprintf(json, "{\"transport\":\"%s\",\"ranks\":%u,\"cores\":%u,\"limit\":\"%s\",\"call\":\"%s\","
			"\"bytes\":%llu,\"once_us\":",
			transport, ranks, limits->cores, tune_limit_name(limit), p->call, (unsigned long long)p->bytes);
		bench_json_number(json, p->once_ns / 1e3);
		fputs(",\"otherwise_us\":", json);
		bench_json_number(json, p->otherwise_ns / 1e3);
		fputs("}\n", json);
	}
}

void tune_limits_set(const struct tune_limits *limits, collet_link_cost *link)
{
	for (int l = 0; l < TUNE_LIMITS; l++)
		*limit_of(link, (enum tune_limit)l) =
			tune_limit_choose(limits->points, limits->count, (enum tune_limit)l);
}
