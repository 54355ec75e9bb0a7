/* Reads and writes the file of kept sweeps. A line "sweep TRANSPORT RANKS POINTS" precedes a line for each point, as
 * the ranks print it. */
#include "tune_points.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int complain(const char *path, const char *why)
{
	fprintf(stderr, "collet-bench: tune: %s: %s\n", path, why);
	return 1;
}

int tune_points_add(
	const char *path, const char *transport, uint32_t ranks, const struct tune_point *points, size_t count)
{
	FILE *file = fopen(path, "ae");
	if (file == NULL)
		return complain(path, strerror(errno));
	fprintf(file, "sweep %s %u %zu\n", transport, ranks, count);
	for (size_t i = 0; i < count; i++) {
		const struct tune_point *p = &points[i];
		fprintf(file, "point %s %s %u %llu %u %u %.2f %.2f %d\n", p->collective, p->algorithm, p->size,
			(unsigned long long)p->bytes, p->segment_bytes, p->channels, p->ns, p->predicted_ns, p->chosen);
	}
	const int failed = ferror(file);
	return fclose(file) != 0 || failed ? complain(path, "it could not be written") : 0;
}

/* The points of the sweep whose first line was read. */
static bool read_sweep(FILE *file, struct tune_point *points, size_t count)
{
	char line[512];
	for (size_t i = 0; i < count; i++)
		if (fgets(line, sizeof(line), file) == NULL || !tune_point_read(line, &points[i]))
			return false;
	return true;
}

/* False: it is no file of sweeps. */
static bool read_sweeps(FILE *file, const char *transport, uint32_t ranks, struct tune_point *points,
	struct tune_point *more, size_t *count)
{
	char line[512], of[64];
	unsigned number;
	size_t there;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "sweep %63s %u %zu", of, &number, &there) != 3 || there > TUNE_POINTS_MAX
			|| !read_sweep(file, more, there))
			return false;
		if (strcmp(of, transport) == 0 && number == ranks)
			*count = tune_merge(points, *count, TUNE_POINTS_MAX, more, there);
	}
	return true;
}

int tune_points_read(const char *path, const char *transport, uint32_t ranks, struct tune_point *points, size_t *count)
{
	*count = 0;
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return errno == ENOENT ? 0 : complain(path, strerror(errno));
	struct tune_point *more = calloc(TUNE_POINTS_MAX, sizeof(*more));
	int failed = more == NULL ? complain(path, strerror(errno)) : 0;
	if (!failed && !read_sweeps(file, transport, ranks, points, more, count))
		failed = complain(path, "this is no file of sweeps, or it was cut off");
	free(more);
	fclose(file);
	return failed;
}
