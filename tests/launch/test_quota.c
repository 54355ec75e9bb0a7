/* The CPU quota, read from folders made to look like both versions of cgroups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "quota.h"
#include "tool.h"

static void write_file(const char *root, const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(path, 0700);
		*slash = '/';
	}
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

struct row {
	const char *name;
	const char *membership;
	const char *files[4][2];  /* name, text */
	double cpus;
};

static const struct row rows[] = {
	{ "no limit", "0::/a\n", { { "a/cpu.max", "max 100000\n" } }, 0 },
	{ "one and a half", "0::/a\n", { { "a/cpu.max", "150000 100000\n" } }, 1.5 },
	{ "the tightest of the parents", "0::/a/b\n",
		{ { "a/cpu.max", "200000 100000\n" }, { "a/b/cpu.max", "max 100000\n" } }, 2 },
	{ "the tightest is its own", "0::/a/b\n",
		{ { "a/cpu.max", "400000 100000\n" }, { "a/b/cpu.max", "50000 100000\n" } }, 0.5 },
	{ "a container sees its own group as the root", "0::/on/the/host\n", { { "cpu.max", "300000 100000\n" } }, 3 },
	{ "version 1", "5:cpuset:/x\n4:cpu,cpuacct:/a\n",
		{ { "cpu/a/cpu.cfs_quota_us", "250000\n" }, { "cpu/a/cpu.cfs_period_us", "100000\n" } }, 2.5 },
	{ "version 1, no limit", "4:cpu:/a\n",
		{ { "cpu/a/cpu.cfs_quota_us", "-1\n" }, { "cpu/a/cpu.cfs_period_us", "100000\n" } }, 0 },
	{ "version 1, another controller", "4:cpuset:/a\n",
		{ { "cpu/a/cpu.cfs_quota_us", "250000\n" }, { "cpu/a/cpu.cfs_period_us", "100000\n" } }, 0 },
	{ "both versions", "4:cpu:/a\n0::/a\n",
		{ { "cpu/a/cpu.cfs_quota_us", "250000\n" }, { "cpu/a/cpu.cfs_period_us", "100000\n" },
			{ "a/cpu.max", "100000 100000\n" } },
		1 },
	{ "nonsense", "what\n0::/a\n", { { "a/cpu.max", "lots\n" } }, 0 },
	{ "nothing there", "0::/a\n", { { NULL, NULL } }, 0 },
};

static void the_tightest_limit_counts(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char root[64], membership[128];
		make_folder(root);
		write_file(root, "membership", rows[i].membership);
		for (size_t j = 0; j < 4 && rows[i].files[j][0] != NULL; j++)
			write_file(root, rows[i].files[j][0], rows[i].files[j][1]);
		snprintf(membership, sizeof(membership), "%s/membership", root);
		const double cpus = quota_cpus(membership, root);
		remove_folder(root);
		if (cpus < rows[i].cpus || cpus > rows[i].cpus)
			fail_msg("%s: expected %g, got %g", rows[i].name, rows[i].cpus, cpus);
	}
}

static void a_missing_membership_is_no_limit(void **state)
{
	const double cpus = quota_cpus("/nowhere/at/all", "/nowhere/at/all");
	assert_true(cpus >= 0 && cpus <= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_tightest_limit_counts),
		cmocka_unit_test(a_missing_membership_is_no_limit),
	};
	return cmocka_run_group_tests_name("launch/quota", tests, NULL, NULL);
}
