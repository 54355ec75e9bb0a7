/* Every peer's driver that was built: its results pass the same checker as collet's, it answers the same commands, and
 * it uses no CPU while another is measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare/competitor.h"
#include "compare/load.h"
#include "sample.h"
#include "skip.h"

/* Starts the variant; skips the test if its library is here but this variant does not start. */
static void start(struct competitor *c, struct bootstrap *bootstrap, const struct peer_variant *variant, uint32_t ranks)
{
	memset(c, 0, sizeof(*c));
	c->variant = variant;
	c->transport = variant->transport;
	assert_true(bootstrap_init(bootstrap, ranks, true));
	if (competitor_start(c, bootstrap))
		return;
	bootstrap_deinit(bootstrap);
	skip_because("%s: %s", variant->library, c->problem);
}

static bool ask(struct competitor *c, enum bench_order order, const struct bench_work *work, uint64_t count,
	uint64_t iterations, struct bench_reply *reply)
{
	const struct bench_command command = { .order = order, .work = *work, .count = count, .iterations = iterations,
		.warm_iterations = order == BENCH_BATCH };
	if (competitor_command(c, &command, 60, reply))
		return true;
	print_error("%s, %s: %s\n", bench_collective_name((enum bench_collective)work->collective),
		work->in_place ? "in place" : "out of place", c->problem);
	return false;
}

static void every_collective_that_it_has_is_right(void **state)
{
	const struct peer_variant *variant = *state;
	static const uint64_t counts[] = { 0, 1, 1000, 100000 };
	struct competitor c;
	struct bootstrap bootstrap;
	start(&c, &bootstrap, variant, 3);
	uint32_t offered = 0;
	for (uint32_t collective = 0; collective < BENCH_COLLECTIVES; collective++)
		for (uint32_t in_place = 0; in_place < 2; in_place++)
			for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
				const struct bench_work work = { .collective = collective,
					.dtype = COLLET_F32,
					.op = COLLET_SUM,
					.root = 1,
					.in_place = in_place };
				struct bench_reply reply;
				if (variant->launcher == NULL && counts[n] == 0)
					continue;   /* Gloo refuses empty buffers in places */
				assert_true(ask(&c, BENCH_PREPARE, &work, collective == BENCH_BARRIER ? 0 : counts[n],
					0, &reply));
				offered += reply.answer == BENCH_DONE;
				if (reply.wrong != 0)
					fail_msg("%s in_place=%u count=%llu: %llu wrong",
						bench_collective_name((enum bench_collective)collective), in_place,
						(unsigned long long)counts[n], (unsigned long long)reply.wrong);
			}
	assert_true(offered >= (variant->collectives == 0 ? 20 : 4));
	competitor_stop(&c);
	bootstrap_deinit(&bootstrap);
}

static const struct bench_work allreduce = { .collective = BENCH_ALLREDUCE, .dtype = COLLET_F32, .op = COLLET_SUM };

static void it_times_and_samples(void **state)
{
	const struct peer_variant *variant = *state;
	struct competitor c;
	struct bootstrap bootstrap;
	struct bench_reply reply;
	start(&c, &bootstrap, variant, 2);
	assert_true(ask(&c, BENCH_PREPARE, &allreduce, 256, 0, &reply));
	assert_true(ask(&c, BENCH_BATCH, &allreduce, 256, 100, &reply));
	assert_int_equal(reply.answer, BENCH_DONE);
	assert_true(reply.elapsed_ns > 0 && reply.cpu_ns > 0);
	assert_true(ask(&c, BENCH_SAMPLES, &allreduce, 256, 50, &reply));
	assert_true(reply.p50_ns > 0 && reply.p99_ns >= reply.p50_ns);
	assert_true(ask(&c, BENCH_REWRITTEN, &allreduce, 256, 50, &reply));
	assert_true(reply.p50_ns > 0 && reply.p99_ns >= reply.p50_ns && reply.wrong == 0);
	competitor_stop(&c);
	bootstrap_deinit(&bootstrap);
}

/* CPU time that the library's ranks have used so far. This process waits meanwhile: its own is next to nothing. */
static double cpu_ns(const struct competitor *c)
{
	struct bench_load_mark mark;
	bench_load_read(&mark, c->rank_pids, c->ranks);
	return mark.own_ns;
}

/* Two of the same, one of which is measured for a while: what the other does is what it does in a comparison. */
static void it_sleeps_while_another_is_measured(void **state)
{
	struct competitor measured;
	struct competitor waiting = { .variant = *state, .transport = ((struct peer_variant *)*state)->transport };
	struct bootstrap bootstrap;
	struct bench_reply reply;
	start(&measured, &bootstrap, *state, 2);
	assert_true(competitor_start(&waiting, &bootstrap));
	assert_true(ask(&waiting, BENCH_PREPARE, &allreduce, 256, 0, &reply));
	assert_true(ask(&measured, BENCH_PREPARE, &allreduce, 256, 0, &reply));
	assert_true(ask(&measured, BENCH_BATCH, &allreduce, 256, 100, &reply));
	const uint64_t iterations = bench_iterations_for(0.3, 100, reply.elapsed_ns);
	const double measured_before = cpu_ns(&measured), waiting_before = cpu_ns(&waiting);
	assert_true(ask(&measured, BENCH_BATCH, &allreduce, 256, iterations, &reply));
	const double worked = cpu_ns(&measured) - measured_before, slept = cpu_ns(&waiting) - waiting_before;
	assert_true(worked > 0);
	if (slept > worked / 10)
		fail_msg("the waiting one used %.1f ms, the measured one %.1f ms", slept / 1e6, worked / 1e6);
	competitor_stop(&waiting);
	competitor_stop(&measured);
	bootstrap_deinit(&bootstrap);
}

static void what_is_missing_is_said_with_its_command(void **state)
{
	static const struct {
		struct peer_variant variant;
		const char *problem;
	} rows[] = {
		{ { .library = "nobody", .name = "default", .program = "collet-peer-nobody", .group = "peers-new" },
			"its driver was not built: scripts/install-deps peers-new; then meson setup" },
		{ { .library = "nobody", .name = "default", .program = "sh", .launcher = "/nowhere/mpiexec",
			  .group = "peers-new" },
			"its launcher is not installed: scripts/install-deps peers-new" },
		{ { .library = "nobody", .name = "default", .program = "sh", .launcher = "no-such-launcher",
			  .group = "peers" },
			"its launcher is not installed: scripts/install-deps peers" },
	};
	setenv("COLLET_BENCH_PEERS", "/bin", 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct competitor c = { .variant = &rows[i].variant };
		struct bootstrap bootstrap;
		assert_true(bootstrap_init(&bootstrap, 2, true));
		assert_false(competitor_start(&c, &bootstrap));
		assert_true(c.missing);
		if (strncmp(c.problem, rows[i].problem, strlen(rows[i].problem)) != 0)
			fail_msg("%s", c.problem);
		bootstrap_deinit(&bootstrap);
	}
	unsetenv("COLLET_BENCH_PEERS");
}

static void a_driver_that_fails_to_start_tells_its_last_line(void **state)
{
	static const struct peer_variant broken = { .library = "broken", .name = "default", .program = "sh",
		.launcher = "sh", .arguments = { "-c", "echo first; echo the reason; exit 3" } };
	struct competitor c = { .variant = &broken };
	struct bootstrap bootstrap;
	setenv("COLLET_BENCH_PEERS", "/bin", 1);
	assert_true(bootstrap_init(&bootstrap, 2, true));
	assert_false(competitor_start(&c, &bootstrap));
	assert_non_null(strstr(c.problem, "the reason"));
	assert_false(c.missing);
	bootstrap_deinit(&bootstrap);
	unsetenv("COLLET_BENCH_PEERS");
}

/* Starts a variant once. False, with a line that says why, if its library's driver or launcher is not here. */
static bool has_library(const struct peer_variant *variant)
{
	struct competitor c = { .variant = variant, .transport = variant->transport };
	struct bootstrap bootstrap;
	if (!bootstrap_init(&bootstrap, 2, true))
		return true;   /* the rows fail, too */
	if (competitor_start(&c, &bootstrap))
		competitor_stop(&c);
	else if (c.missing)
		print_message("%s: %s\n", variant->library, c.problem);
	bootstrap_deinit(&bootstrap);
	return !c.missing;
}

enum { ROWS_MOST = 256 };

struct rows {
	struct CMUnitTest tests[ROWS_MOST];
	char names[ROWS_MOST][64];
	size_t count;
};

static void add(struct rows *rows, const struct peer_variant *variant, const char *what, CMUnitTestFunction run)
{
	char name[64];
	assert_true(rows->count < ROWS_MOST);
	bench_peer_variant_name(variant, name);
	snprintf(rows->names[rows->count], sizeof(rows->names[0]), "%.40s/%s/%s", name, variant->transport, what);
	rows->tests[rows->count] = (struct CMUnitTest){ .name = rows->names[rows->count], .test_func = run,
		.initial_state = (void *)(uintptr_t)variant };
	rows->count++;
}

int main(void)
{
	static struct rows rows;
	const struct CMUnitTest drivers[] = {
		cmocka_unit_test(what_is_missing_is_said_with_its_command),
		cmocka_unit_test(a_driver_that_fails_to_start_tells_its_last_line),
	};
	const int failed = cmocka_run_group_tests(drivers, NULL, NULL);
	/* After these two, which set and unset the folder: the build says where the drivers are. */
	const char *folder = getenv("BENCH_TEST_PEERS"), *library = "";
	if (folder == NULL)
		return failed;
	setenv("COLLET_BENCH_PEERS", folder, 1);
	bool is_here = false;
	for (size_t v = 0; v < bench_peer_variant_count; v++) {
		const struct peer_variant *variant = &bench_peer_variants[v];
		if (strcmp(variant->library, library) != 0)
			is_here = has_library(variant);
		library = variant->library;
		if (!is_here || variant->transport == NULL)   /* without a transport: the same drivers again */
			continue;
		const bool is_default = strcmp(variant->name, "default") == 0;
		if (is_default || sample_has(v))
			add(&rows, variant, "results", every_collective_that_it_has_is_right);
		if (!is_default)
			continue;
		add(&rows, variant, "times", it_times_and_samples);
		add(&rows, variant, "sleeps", it_sleeps_while_another_is_measured);
	}
	return failed + _cmocka_run_group_tests("peers", rows.tests, rows.count, NULL, NULL);
}
