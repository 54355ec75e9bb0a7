/* Reads /proc/meminfo, and the limits of the memory cgroup and of all above it, of version 1 or 2. */
#include "host_memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sizes.h"

/* The files of a version of cgroups. */
struct version {
	const char *folder;   /* below the mount point */
	const char *limit, *usage;
	const char *reclaimable;   /* a member of memory.stat */
};

static const struct version first_version = { "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	"total_inactive_file" };
static const struct version second_version = { "", "memory.max", "memory.current", "inactive_file" };

/* Reads the number behind a key at the start of a line; a key of "" takes the first line. Negative: there is none. */
static double read_number(const char *path, const char *key)
{
	char line[256];
	double value = -1;
	const size_t length = strlen(key);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, key, length) == 0 && sscanf(line + length, " %lf", &value) != 1)
			value = -1;
	fclose(file);
	return value;
}

static double read_member(const char *folder, const char *name, const char *key)
{
	char path[4400];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return read_number(path, key);
}

/* Returns what a group leaves; infinite without a limit. */
static double left_in(const char *folder, const struct version *version)
{
	const double limit = read_member(folder, version->limit, "");
	const double usage = read_member(folder, version->usage, "");
	const double reclaimable = read_member(folder, "memory.stat", version->reclaimable);
	if (limit < 0 || usage < 0)
		return INFINITY;
	const double left = limit - usage + (reclaimable > 0 ? reclaimable : 0);
	return left > 0 ? left : 0;
}

/* Returns the least that a group and those above it leave. */
static double left_in_path(const char *root, char *group, const struct version *version)
{
	double least = INFINITY;
	for (;;) {
		char folder[4200];
		snprintf(folder, sizeof(folder), "%s%s%s", root, version->folder, group);
		const double left = left_in(folder, version);
		least = left < least ? left : least;
		char *slash = strrchr(group, '/');
		if (slash == NULL)
			return least;
		*slash = '\0';
	}
}

/* Splits "ID:CONTROLLERS:PATH". Returns the version that limits memory by this line; NULL: none. */
static const struct version *read_group(char *line, char **group)
{
	char *controllers = strchr(line, ':');
	char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
	if (path == NULL)
		return NULL;
	*path = '\0';
	*group = path + 1;
	(*group)[strcspn(*group, "\n")] = '\0';
	if (strcmp(line, "0:") == 0)
		return &second_version;
	for (const char *name = controllers + 1; name[0] != '\0'; name += strcspn(name, ",")) {
		name += name[0] == ',';
		if (strcspn(name, ",") == strlen("memory") && strncmp(name, "memory", strlen("memory")) == 0)
			return &first_version;
	}
	return NULL;
}

double bench_memory_available_at(const char *meminfo, const char *root, const char *groups)
{
	char line[4096];
	const double host_kib = read_number(meminfo, "MemAvailable:");
	double least = host_kib >= 0 ? host_kib * 1024 : INFINITY;
	FILE *file = fopen(groups, "re");
	if (file == NULL)
		return least;
	while (fgets(line, sizeof(line), file) != NULL) {
		char *group;
		const struct version *version = read_group(line, &group);
		const double left = version != NULL ? left_in_path(root, group, version) : INFINITY;
		least = left < least ? left : least;
	}
	fclose(file);
	return least;
}

double bench_memory_available(void)
{
	return bench_memory_available_at("/proc/meminfo", "/sys/fs/cgroup", "/proc/self/cgroup");
}

void bench_memory_complain(uint64_t message_bytes, uint32_t ranks, double needed, double available)
{
	const double gib = 1 << 30;
	char text[24];
	fprintf(stderr,
		"collet-bench: %s: the buffers of %u ranks of this host need %.1f GiB of memory, and %.1f GiB are "
		"available\n",
		bench_bytes_text(message_bytes, text), ranks, needed / gib, available / gib);
}
