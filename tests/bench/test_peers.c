/* Every peer's driver that was built: its results pass the same checker as collet's, it answers the same commands, and
 * it uses no CPU while another library is measured. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "competitor.h"

/* Starts the variant; false (after cmocka's skip) when it cannot be had here. */
static bool start(struct competitor *c, struct meeting *meeting, const struct peer_variant *variant, uint32_t ranks)
{
	memset(c, 0, sizeof(*c));
	c->variant = variant;
	c->transport = variant->transport;
	if (!meeting_init(meeting, ranks, true))
		return false;
	if (competitor_start(c, meeting))
		return true;
	print_message("%s: %s\n", variant->library, c->problem);
	meeting_deinit(meeting);
	return false;
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

/* CPU time of one process in clock ticks, if it is this driver; 0 otherwise. */
static unsigned long long ticks_of_process(const char *pid, const char *program)
{
	unsigned long long user, system;
	char path[300], words[64] = "";
	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	FILE *comm = fopen(path, "r");
	const bool named =
		comm != NULL && fgets(words, sizeof(words), comm) != NULL && strncmp(words, program, 15) == 0;
	if (comm != NULL)
		fclose(comm);
	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	FILE *stat = named ? fopen(path, "r") : NULL;
	if (stat == NULL)
		return 0;
	const bool read =
		fscanf(stat, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) == 2;
	fclose(stat);
	return read ? user + system : 0;
}

/* Of all processes that run the driver. The kernel keeps 15 letters of a name: enough, as only one kind runs at a time.
 */
static unsigned long long ticks_of(const struct competitor *c)
{
	unsigned long long sum = 0;
	DIR *processes = opendir("/proc");
	assert_non_null(processes);
	for (struct dirent *entry; (entry = readdir(processes)) != NULL;)
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
			sum += ticks_of_process(entry->d_name, c->variant->program);
	closedir(processes);
	return sum;
}

static void every_collective_that_it_has_is_right(void **state)
{
	const struct peer_variant *variant = *state;
	static const uint64_t counts[] = { 0, 1, 1000, 100000 };
	struct competitor c;
	struct meeting meeting;
	if (!start(&c, &meeting, variant, 3))
		skip();
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
	meeting_deinit(&meeting);
}

static void it_times_and_samples_and_is_idle_between(void **state)
{
	const struct peer_variant *variant = *state;
	const struct bench_work work = { .collective = BENCH_ALLREDUCE, .dtype = COLLET_F32, .op = COLLET_SUM };
	struct competitor c;
	struct meeting meeting;
	struct bench_reply reply;
	if (!start(&c, &meeting, variant, 2))
		skip();
	assert_true(ask(&c, BENCH_PREPARE, &work, 256, 0, &reply));
	assert_true(ask(&c, BENCH_BATCH, &work, 256, 100, &reply));
	assert_int_equal(reply.answer, BENCH_DONE);
	assert_true(reply.elapsed_ns > 0 && reply.cpu_ns > 0);
	assert_true(ask(&c, BENCH_SAMPLES, &work, 256, 50, &reply));
	assert_true(reply.p50_ns > 0 && reply.p99_ns >= reply.p50_ns);
	const unsigned long long before = ticks_of(&c);
	assert_true(before > 0
		|| variant->launcher == NULL); /* starting an MPI takes more than a tick: the counting works */
	usleep(500000);   /* what is measured is what happens in a stretch of time */
	/* Fewer than before: a helper process of the launcher's has ended meanwhile, and took its count along. */
	const unsigned long long after = ticks_of(&c);
	if (after > before && after - before > (unsigned long long)sysconf(_SC_CLK_TCK) / 10)
		fail_msg("an idle driver used %llu ticks in half a second", after - before);
	competitor_stop(&c);
	meeting_deinit(&meeting);
}

static void a_driver_that_is_not_there_is_said_so(void **state)
{
	static const struct peer_variant missing = {
		.library = "nobody", .name = "default", .program = "collet-peer-nobody"
	};
	struct competitor c = { .variant = &missing };
	struct meeting meeting;
	assert_true(meeting_init(&meeting, 2, true));
	assert_false(competitor_start(&c, &meeting));
	assert_non_null(strstr(c.problem, "not built"));
	meeting_deinit(&meeting);
}

static void a_driver_that_fails_to_start_tells_its_last_line(void **state)
{
	static const struct peer_variant broken = { .library = "broken", .name = "default", .program = "sh",
		.launcher = "sh", .arguments = { "-c", "echo first; echo the reason; exit 3" } };
	struct competitor c = { .variant = &broken };
	struct meeting meeting;
	setenv("COLLET_BENCH_PEERS", "/bin", 1);
	assert_true(meeting_init(&meeting, 2, true));
	assert_false(competitor_start(&c, &meeting));
	assert_non_null(strstr(c.problem, "the reason"));
	meeting_deinit(&meeting);
	unsetenv("COLLET_BENCH_PEERS");
}

int main(void)
{
	static struct CMUnitTest tests[256];
	static char names[256][64];
	size_t count = 0;
	tests[count++] = (struct CMUnitTest)cmocka_unit_test(a_driver_that_is_not_there_is_said_so);
	tests[count++] = (struct CMUnitTest)cmocka_unit_test(a_driver_that_fails_to_start_tells_its_last_line);
	/* After the two that set or need no folder: the build says where the drivers are. */
	const char *folder = getenv("BENCH_TEST_PEERS");
	for (size_t v = 0; v < bench_peer_variant_count && folder != NULL; v++) {
		const struct peer_variant *variant = &bench_peer_variants[v];
		if (variant->transport == NULL)
			continue;   /* the same drivers again */
		char name[64];
		bench_peer_variant_name(variant, name);
		snprintf(names[count], sizeof(names[count]), "%.40s/%s/results", name, variant->transport);
		tests[count] = (struct CMUnitTest){ names[count], every_collective_that_it_has_is_right, NULL, NULL,
			(void *)(uintptr_t)variant };
		count++;
		if (strcmp(variant->name, "default") != 0)
			continue;
		snprintf(names[count], sizeof(names[count]), "%s/%s/idle", variant->library, variant->transport);
		tests[count] = (struct CMUnitTest){ names[count], it_times_and_samples_and_is_idle_between, NULL, NULL,
			(void *)(uintptr_t)variant };
		count++;
	}
	int failed = _cmocka_run_group_tests("drivers", tests, 2, NULL, NULL);
	if (folder != NULL)
		setenv("COLLET_BENCH_PEERS", folder, 1);
	return failed + _cmocka_run_group_tests("peers", tests + 2, count - 2, NULL, NULL);
}
