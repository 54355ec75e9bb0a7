/* Reads the CPU quota. A container may see 64 cores and be allowed the time of two. A rank for each visible core
 * would then make all ranks wait for each other. */
#include "quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool read_line(const char *directory, const char *name, char *line, size_t bytes)
{
	char path[PATH_MAX];
	const int length = snprintf(path, sizeof(path), "%s/%s", directory, name);
	if (length < 0 || (size_t)length >= sizeof(path))
		return false;
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return false;
	const bool read = fgets(line, (int)bytes, file) != NULL;
	fclose(file);
	return read;
}

/* Version 2: "max 100000" or "150000 100000". Version 1: two files, and a quota of -1 is none. */
static double directory_cpus(const char *directory, bool version_2)
{
	char line[128];
	long long quota, period;
	if (version_2) {
		if (!read_line(directory, "cpu.max", line, sizeof(line)) ||
			sscanf(line, "%lld %lld", &quota, &period) != 2)
			return 0;
	} else {
		if (!read_line(directory, "cpu.cfs_quota_us", line, sizeof(line)) || sscanf(line, "%lld", &quota) != 1)
			return 0;
		if (!read_line(directory, "cpu.cfs_period_us", line, sizeof(line)) ||
			sscanf(line, "%lld", &period) != 1)
			return 0;
	}
	return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

/* Returns the tightest limit from root/path up to root. Inside a container the path is often the host's and absent.
 * The root is then the container's own group, and is still read. */
static double path_cpus(const char *root, const char *path, bool version_2)
{
	char directory[PATH_MAX];
	const int length = snprintf(directory, sizeof(directory), "%s%s", root, path);
	if (length < 0 || (size_t)length >= sizeof(directory))
		return 0;
	const size_t root_length = strlen(root);
	double tightest = 0;
	for (;;) {
		const double cpus = directory_cpus(directory, version_2);
		if (cpus > 0 && (tightest <= 0 || cpus < tightest))
			tightest = cpus;
		char *slash = strrchr(directory, '/');
		if (slash == NULL || (size_t)(slash - directory) < root_length)
			return tightest;
		*slash = '\0';
	}
}

/* Returns true if "cpu" is one of the controllers in "cpu,cpuacct". */
static bool names_cpu(const char *controllers)
{
	for (const char *at = controllers; *at != '\0';) {
		const size_t bytes = strcspn(at, ",");
		if (bytes == 3 && memcmp(at, "cpu", 3) == 0)
			return true;
		at += bytes + (at[bytes] == ',');
	}
	return false;
}

double quota_cpus(const char *membership, const char *mount)
{
	FILE *file = fopen(membership, "re");
	if (file == NULL)
		return 0;
	double tightest = 0;
	char line[PATH_MAX + 128];
	/* "0::/path" for version 2, "4:cpu,cpuacct:/path" for version 1; a host may have both. */
	while (fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		char *controllers = strchr(line, ':');
		char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
		if (path == NULL)
			continue;
		*path++ = '\0';
		controllers++;
		const bool version_2 = controllers[0] == '\0';
		if (!version_2 && !names_cpu(controllers))
			continue;
		char root[PATH_MAX];
		snprintf(root, sizeof(root), version_2 ? "%s" : "%s/cpu", mount);
		const double cpus = path_cpus(root, path, version_2);
		if (cpus > 0 && (tightest <= 0 || cpus < tightest))
			tightest = cpus;
	}
	fclose(file);
	return tightest;
}
