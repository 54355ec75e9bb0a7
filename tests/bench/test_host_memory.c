/* The memory that is left is the least of what the host has and what each cgroup leaves. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "ranks/host_memory.h"

struct file {
	const char *path, *text;   /* below the test's folder */
};

struct row {
	const char *name;
	struct file files[8];
	double available;
};

static const struct row rows[] = {
	{ "nothing is known", { { "other", "" } }, INFINITY },
	{ "the host's", { { "meminfo", "MemTotal: 9 kB\nMemAvailable:    100 kB\n" } }, 102400 },
	{ "a group without a limit",
		{ { "meminfo", "MemAvailable: 100 kB\n" }, { "groups", "0::/\n" }, { "root/memory.max", "max\n" },
			{ "root/memory.current", "4096\n" } },
		102400 },
	{ "a group with a limit",
		{ { "meminfo", "MemAvailable: 100 kB\n" }, { "groups", "0::/\n" }, { "root/memory.max", "50000\n" },
			{ "root/memory.current", "40000\n" }, { "root/memory.stat", "anon 3\ninactive_file 5000\n" } },
		15000 },
	{ "the group above",
		{ { "meminfo", "MemAvailable: 100 kB\n" }, { "groups", "0::/a/b\n" },
			{ "root/a/b/memory.max", "50000\n" }, { "root/a/b/memory.current", "10000\n" },
			{ "root/a/memory.max", "30000\n" }, { "root/a/memory.current", "10000\n" } },
		20000 },
	{ "a full group",
		{ { "groups", "0::/\n" }, { "root/memory.max", "50000\n" }, { "root/memory.current", "50001\n" } }, 0 },
	{ "version 1",
		{ { "groups", "4:cpu,cpuacct:/c\n3:hugetlb,memory:/c\n" },
			{ "root/memory/c/memory.limit_in_bytes", "50000\n" },
			{ "root/memory/c/memory.usage_in_bytes", "40000\n" },
			{ "root/memory/c/memory.stat", "total_inactive_file 1000\n" } },
		11000 },
};

static void write_file(const char *folder, const struct file *file)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", folder, file->path);
	for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	FILE *written = fopen(path, "we");
	assert_non_null(written);
	fputs(file->text, written);
	assert_int_equal(fclose(written), 0);
}

static void the_least_is_what_is_left(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char folder[] = "/tmp/collet-test-XXXXXX", meminfo[64], root[64], groups[64], command[64];
		assert_non_null(mkdtemp(folder));
		for (size_t f = 0; f < 8 && rows[i].files[f].path != NULL; f++)
			write_file(folder, &rows[i].files[f]);
		snprintf(meminfo, sizeof(meminfo), "%s/meminfo", folder);
		snprintf(root, sizeof(root), "%s/root", folder);
		snprintf(groups, sizeof(groups), "%s/groups", folder);
		const double available = bench_memory_available_at(meminfo, root, groups);
		snprintf(command, sizeof(command), "rm -rf %s", folder);
		assert_int_equal(system(command), 0);
		if (available != rows[i].available)
			fail_msg("%s: %g bytes, not %g", rows[i].name, available, rows[i].available);
	}
}

static void this_host_has_some(void **state)
{
	assert_true(bench_memory_available() > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_is_what_is_left),
		cmocka_unit_test(this_host_has_some),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
