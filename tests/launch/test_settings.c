/* What collet-run is told, what it tells the ranks, and what it refuses. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"
#include "tool.h"

static char home[64];

static void a_wrong_command_line_is_named(void **state)
{
	const struct {
		const char *const *arguments;
		const char *sentence;  /* its beginning */
	} rows[] = {
		{ WORDS("true"), "-n: missing" },
		{ WORDS("-n", "2"), "PROGRAM: missing" },
		{ WORDS("-n"), "-n: a value is missing" },
		{ WORDS("-n", "0", "true"), "-n 0: expected a whole number from 1" },
		{ WORDS("-n", "4097", "true"), "-n 4097: expected a whole number from 1 to 4096" },
		{ WORDS("-n", "-1", "true"), "-n -1: expected a number of ranks" },
		{ WORDS("-n", "2x", "true"), "-n 2x: expected a whole number" },
		{ WORDS("-n", "many", "true"), "-n many: expected a number of ranks, 'cores' or 'gpu'" },
		{ WORDS("-n", "gpus", "true"), "-n gpus: expected a number of ranks, 'cores' or 'gpu'" },
		{ WORDS("-x"), "-x: unknown" },
		{ WORDS("--frobnicate", "true"), "--frobnicate: unknown" },
		{ WORDS("--nnodes"), "--nnodes: a value is missing" },
		{ WORDS("--prefix=yes", "-n", "1", "true"), "--prefix yes: expected auto, always or never" },
		{ WORDS("--no-prefix=yes", "-n", "1", "true"), "--no-prefix=yes: this option takes no value" },
		{ WORDS("--nproc_per_node", "0", "true"), "-n 0: expected a whole number from 1" },
		{ WORDS("-n", "1", "--standalone", "--nnodes", "2", "true"), "--standalone: means one host" },
		{ WORDS("-n", "1", "--nnodes", "two", "true"), "--nnodes two: expected a whole number" },
		{ WORDS("-n", "1", "--node-rank", "1", "true"), "--node-rank 1: there are 1 hosts" },
		{ WORDS("-n", "1", "--nnodes", "2", "true"), "--rdzv-endpoint: with --nnodes 2" },
		{ WORDS("-n", "1", "--nnodes", "2", "--rdzv-endpoint", "a:0", "true"),
			"--rdzv-endpoint: with --nnodes 2" },
		{ WORDS("-n", "1", "--rdzv-endpoint", "a", "true"), "--rdzv-endpoint a: expected HOST:PORT" },
		{ WORDS("-n", "1", "--rdzv-endpoint", ":1", "true"), "--rdzv-endpoint :1: expected HOST:PORT" },
		{ WORDS("-n", "1", "--rdzv-endpoint", "a:65536", "true"), "--rdzv-endpoint: port 65536: expected" },
		{ WORDS("-n", "1", "--rdzv-endpoint", "::1:80", "true"),
			"--rdzv-endpoint ::1:80: an IPv6 address needs brackets" },
		{ WORDS("-n", "1", "--rdzv-id", "a b", "true"), "--rdzv-id a b: expected" },
		{ WORDS("-n", "1", "--bind", "socket", "true"), "--bind socket: expected auto, core, share or none" },
		{ WORDS("-n", "1", "--env", "NAME", "true"), "--env NAME: expected NAME=VALUE" },
		{ WORDS("-n", "1", "--env", "=1", "true"), "--env =1: expected NAME=VALUE" },
		{ WORDS("-n", "1", "--grace", "-1", "true"), "--grace -1: expected seconds" },
		{ WORDS("-n", "1", "--timeout", "soon", "true"), "--timeout soon: expected seconds" },
		{ WORDS("-n", "1", "--nnodes", "2", "--rdzv-endpoint",
			"a.host.whose.name.is.longer.than.the.name.of.a.job.may.ever.be.example:80", "true"),
			"--rdzv-id: missing; a.host" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		const int status = tool_run(&tool, rows[i].arguments);
		char expected[256];
		snprintf(expected, sizeof(expected), "collet-run: %s", rows[i].sentence);
		if (status != 2 || strncmp(tool.error.text, expected, strlen(expected)) != 0 || tool.out.bytes != 0)
			fail_msg("expected \"%s...\", got status %d: %s%s", expected, status, tool.out.text,
				tool.error.text);
		tool_deinit(&tool);
	}
}

/* The command line is right, but this machine cannot do it: another status than that of a mistake. */
static void a_failure_before_the_start_is_status_1(void **state)
{
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("-n", "4096", "--bind", "core", "true")), 1);
	assert_non_null(strstr(tool.error.text, "collet-run: --bind core: 4096 ranks need as many cores"));
	tool_deinit(&tool);
}

static void help_and_version_are_printed(void **state)
{
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("--help")), 0);
	assert_non_null(strstr(tool.out.text, "Usage: collet-run -n N"));
	assert_string_equal(tool.error.text, "");
	tool_deinit(&tool);
	assert_int_equal(tool_run(&tool, WORDS("--version")), 0);
	assert_int_equal(strncmp(tool.out.text, "collet-run ", 11), 0);
	tool_deinit(&tool);
}

/* The program's own options are not collet-run's. */
static void arguments_reach_the_program_unchanged(void **state)
{
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "printf", "%s|", "-n", "--help", "a b", "")), 0);
	assert_string_equal(tool.out.text, "[0] -n|--help|a b||\n");
	tool_deinit(&tool);
}

static const char print_environment[] =
	"echo RANK=$RANK WORLD_SIZE=$WORLD_SIZE LOCAL_RANK=$LOCAL_RANK LOCAL_WORLD_SIZE=$LOCAL_WORLD_SIZE "
	"GROUP_RANK=$GROUP_RANK GROUP_WORLD_SIZE=$GROUP_WORLD_SIZE NODE_RANK=$NODE_RANK ROLE_RANK=$ROLE_RANK "
	"ROLE_WORLD_SIZE=$ROLE_WORLD_SIZE ROLE_NAME=$ROLE_NAME AGENT_STORE=$TORCHELASTIC_USE_AGENT_STORE "
	"RESTARTS=$TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS/$COLLET_RESTART";

static void ranks_on_one_host_are_told_who_they_are(void **state)
{
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", "sh", "-c", print_environment)), 0);
	for (int rank = 0; rank < 2; rank++) {
		char line[512];
		snprintf(line, sizeof(line), "[%d] RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 GROUP_RANK=0 "
			"GROUP_WORLD_SIZE=1 NODE_RANK=0 ROLE_RANK=%d ROLE_WORLD_SIZE=2 ROLE_NAME=default "
			"AGENT_STORE=False RESTARTS=0/0/0\n", rank, rank, rank, rank);
		assert_int_equal(occurrences(tool.out.text, line), 1);
	}
	tool_deinit(&tool);
}

static void torchruns_spelling_is_understood(void **state)
{
	static const char *const options[] = { "-n2", "--nproc-per-node=2", "--nproc_per_node=2" };
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		struct tool tool;
		assert_int_equal(tool_run(&tool, WORDS("--standalone", options[i], "--nnodes=1", "sh", "-c",
			"echo rank $RANK of $WORLD_SIZE")), 0);
		assert_int_equal(occurrences(tool.out.text, "[0] rank 0 of 2\n"), 1);
		assert_int_equal(occurrences(tool.out.text, "[1] rank 1 of 2\n"), 1);
		tool_deinit(&tool);
	}
}

static void the_second_of_two_hosts_counts_on(void **state)
{
	setenv("COLLET_SECRET", "0123456789abcdef0123456789abcdef", 1);
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("--nproc-per-node", "2", "--nnodes", "2", "--node-rank", "1",
		"--rdzv-endpoint", "first.example:29500", "sh", "-c", print_environment)), 0);
	for (int rank = 2; rank < 4; rank++) {
		char line[512];
		snprintf(line, sizeof(line), "[%d] RANK=%d WORLD_SIZE=4 LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 GROUP_RANK=1 "
			"GROUP_WORLD_SIZE=2 NODE_RANK=1 ROLE_RANK=%d ROLE_WORLD_SIZE=4 ROLE_NAME=default "
			"AGENT_STORE=False RESTARTS=0/0/0\n", rank, rank, rank - 2, rank);
		assert_int_equal(occurrences(tool.out.text, line), 1);
	}
	tool_deinit(&tool);
	unsetenv("COLLET_SECRET");
}

static void ranks_are_told_where_to_meet(void **state)
{
	const struct {
		const char *const *arguments;
		const char *expected;
	} rows[] = {
		{ WORDS("-n", "1", "--rdzv-id", "fit-7", "sh", "-c",
			"echo $COLLET_JOB $COLLET_STORE $MASTER_ADDR $TORCHELASTIC_RUN_ID"),
			"[0] fit-7 unix:fit-7 127.0.0.1 fit-7\n" },
		{ WORDS("-n", "1", "--rdzv-endpoint", "there:77", "sh", "-c",
			"echo ${COLLET_STORE%:*} $MASTER_ADDR $MASTER_PORT"),
			"[0] unix there 77\n" },
		{ WORDS("-n", "1", "--nnodes", "2", "--rdzv-endpoint", "there:77", "sh", "-c",
			"echo $COLLET_JOB $COLLET_STORE $MASTER_ADDR $MASTER_PORT"),
			"[0] there-77 tcp://there:77 there 77\n" },
		{ WORDS("-n", "1", "--nnodes", "2", "--rdzv-endpoint", "[fe80::1]:77", "sh", "-c",
			"echo $COLLET_JOB $COLLET_STORE $MASTER_ADDR $MASTER_PORT"),
			"[0] fe80--1-77 tcp://[fe80::1]:77 fe80::1 77\n" },
		{ WORDS("-n", "1", "--env", "A=1=2", "--env", "MASTER_ADDR=x", "sh", "-c", "echo $A $MASTER_ADDR"),
			"[0] 1=2 x\n" },
	};
	setenv("COLLET_SECRET", "0123456789abcdef0123456789abcdef", 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		assert_int_equal(tool_run(&tool, rows[i].arguments), 0);
		assert_string_equal(tool.out.text, rows[i].expected);
		tool_deinit(&tool);
	}
	unsetenv("COLLET_SECRET");
}

/* Two runs at once must not meet, nor one started by a rank of the other. */
static void every_run_has_a_name_of_its_own(void **state)
{
	struct tool tools[2];
	setenv("COLLET_JOB", "outer", 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(tool_run(&tools[i],
			WORDS("-n", "1", "sh", "-c", "echo $COLLET_JOB $COLLET_STORE")), 0);
		char job[64], store[64];
		assert_int_equal(sscanf(tools[i].out.text, "[0] %32[0-9a-f] unix:%32[0-9a-f]\n", job, store), 2);
		assert_int_equal(strlen(job), 32);
		assert_string_equal(job, store);
	}
	assert_string_not_equal(tools[0].out.text, tools[1].out.text);
	tool_deinit(&tools[0]);
	tool_deinit(&tools[1]);
	unsetenv("COLLET_JOB");
}

static bool can_listen(uint16_t port, bool reuse)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int value = reuse;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof(value)), 0);
	const struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port) };
	const bool can = bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0;
	close(fd);
	return can;
}

static void the_port_is_kept_for_the_whole_run(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { .input = "" };
	tool_start(&tool, &setup, WORDS("-n", "1", "sh", "-c", "echo port $MASTER_PORT.; read line"));
	tool_await(&tool, ".\n");
	unsigned port;
	assert_int_equal(sscanf(tool.out.text, "[0] port %u", &port), 1);
	assert_in_range(port, 1, 65535);
	assert_false(can_listen((uint16_t)port, false));
	/* A rank that is to serve there, as torch's store does, still can. */
	assert_true(can_listen((uint16_t)port, true));
	assert_int_equal(write(tool.input, "go\n", 3), 3);
	assert_int_equal(tool_finish(&tool), 0);
	tool_deinit(&tool);
	assert_true(can_listen((uint16_t)port, false));
}

/* ---- Placement ---------------------------------------------------------------------------------------------- */

static unsigned usable_cores(void)
{
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("-n", "cores", "true")), 0);
	tool_deinit(&tool);
	assert_int_equal(tool_run(&tool, WORDS("-n", "cores", "sh", "-c", "echo $WORLD_SIZE ranks")), 0);
	unsigned cores;
	assert_int_equal(sscanf(tool.out.text, "%*s %u ranks", &cores), 1);
	assert_int_equal(occurrences(tool.out.text, " ranks\n"), cores);
	tool_deinit(&tool);
	return cores;
}

static void cores_are_those_of_the_affinity_mask(void **state)
{
	cpu_set_t before, one;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	assert_in_range(usable_cores(), 1, (unsigned)CPU_COUNT(&before));
	size_t cpu = 0;
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	const unsigned cores = usable_cores();
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	assert_int_equal(cores, 1);
}

/* The set of CPUs in the line of /proc/self/status that a rank has printed, "[0] Cpus_allowed_list: 0,2-3". */
static void read_cpus(const char *output, int rank, cpu_set_t *cpus)
{
	char start[64];
	snprintf(start, sizeof(start), "[%d] Cpus_allowed_list:", rank);
	const char *at = strstr(output, start);
	assert_non_null(at);
	at += strlen(start);
	CPU_ZERO(cpus);
	while (*at != '\n' && *at != '\0') {
		char *end;
		const unsigned long first = strtoul(at, &end, 10);
		const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
		assert_true(end != at);
		for (unsigned long cpu = first; cpu <= last; cpu++)
			CPU_SET(cpu, cpus);
		at = *end == ',' ? end + 1 : end;
	}
}

static void ranks_get_cores_of_their_own_where_there_are_enough(void **state)
{
	if (usable_cores() < 2)
		skip_because("this process may use one core only");
	static const char *const policies[] = { "core", "auto" };
	for (size_t i = 0; i < 2; i++) {
		struct tool tool;
		cpu_set_t first, second, both;
		assert_int_equal(tool_run(&tool,
			WORDS("-n", "2", "--bind", policies[i], "grep", "Cpus_allowed_list:", "/proc/self/status")), 0);
		read_cpus(tool.out.text, 0, &first);
		read_cpus(tool.out.text, 1, &second);
		CPU_AND(&both, &first, &second);
		assert_true(CPU_COUNT(&first) > 0 && CPU_COUNT(&first) == CPU_COUNT(&second));
		assert_int_equal(CPU_COUNT(&both), 0);
		tool_deinit(&tool);
	}
}

static void neighbours_share_a_core_where_there_are_too_few(void **state)
{
	cpu_set_t mask, seen, last, next, common;
	char ranks[16];
	assert_int_equal(sched_getaffinity(0, sizeof(mask), &mask), 0);
	const int count = 2 * CPU_COUNT(&mask);   /* two a core, or more if a core has several CPUs */
	snprintf(ranks, sizeof(ranks), "%d", count);
	struct tool tool;
	assert_int_equal(tool_run(&tool,
		WORDS("-n", ranks, "--bind", "share", "grep", "Cpus_allowed_list:", "/proc/self/status")), 0);
	CPU_ZERO(&seen);
	CPU_ZERO(&last);
	int cores = 0;
	for (int rank = 0; rank < count; rank++) {
		read_cpus(tool.out.text, rank, &next);
		if (!CPU_EQUAL(&next, &last)) {
			CPU_AND(&common, &seen, &next);
			assert_int_equal(CPU_COUNT(&common), 0);
			cores++;
		}
		CPU_OR(&seen, &seen, &next);
		last = next;
	}
	assert_true(CPU_EQUAL(&seen, &mask));
	assert_true(count >= 2 * cores);
	tool_deinit(&tool);
}

static void ranks_are_left_alone_where_there_are_too_few_or_by_request(void **state)
{
	char all[256] = "";
	FILE *file = popen("grep Cpus_allowed: /proc/self/status", "r");
	assert_non_null(file);
	assert_non_null(fgets(all, sizeof(all), file));
	pclose(file);
	char too_many[16];
	snprintf(too_many, sizeof(too_many), "%u", usable_cores() + 1);
	const char *const *rows[] = {
		WORDS("-n", too_many, "grep", "Cpus_allowed:", "/proc/self/status"),
		WORDS("-n", "1", "--bind", "none", "grep", "Cpus_allowed:", "/proc/self/status"),
	};
	for (size_t i = 0; i < 2; i++) {
		struct tool tool;
		assert_int_equal(tool_run(&tool, rows[i]), 0);
		assert_int_equal(occurrences(tool.out.text, all), (size_t)atoi(rows[i][1]));
		tool_deinit(&tool);
	}
}

static void threads_share_the_cores_unless_the_user_says(void **state)
{
	struct tool tool;
	char ranks[16];
	snprintf(ranks, sizeof(ranks), "%u", usable_cores());
	unsetenv("OMP_NUM_THREADS");
	assert_int_equal(tool_run(&tool, WORDS("-n", ranks, "sh", "-c", "echo threads $OMP_NUM_THREADS")), 0);
	assert_int_equal(occurrences(tool.out.text, "] threads 1\n"), (size_t)atoi(ranks));
	tool_deinit(&tool);
	setenv("OMP_NUM_THREADS", "5", 1);
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "sh", "-c", "echo threads $OMP_NUM_THREADS")), 0);
	assert_string_equal(tool.out.text, "[0] threads 5\n");
	tool_deinit(&tool);
	unsetenv("OMP_NUM_THREADS");
}

/* ---- The secret --------------------------------------------------------------------------------------------- */

static void one_host_needs_no_secret_and_leaves_none(void **state)
{
	struct tool tool;
	char path[128];
	snprintf(path, sizeof(path), "%s/collet", home);
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "sh", "-c",
		"echo \"<$COLLET_SECRET$COLLET_SECRET_FILE>\"")), 0);
	assert_string_equal(tool.out.text, "[0] <>\n");
	assert_int_equal(access(path, F_OK), -1);
	tool_deinit(&tool);
}

static void several_hosts_need_one_and_it_is_made_once(void **state)
{
	struct tool tool;
	char path[128], expected[256];
	struct stat status;
	snprintf(path, sizeof(path), "%s/collet/secret", home);

	/* Not by a host that could not know what the others have. */
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "a:1",
		"true")), 1);
	assert_non_null(strstr(tool.error.text, path));
	assert_non_null(strstr(tool.error.text, "collet-run --make-secret"));
	tool_deinit(&tool);

	assert_int_equal(tool_run(&tool, WORDS("--make-secret")), 0);
	snprintf(expected, sizeof(expected), "%s\n", path);
	assert_string_equal(tool.out.text, expected);
	tool_deinit(&tool);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	assert_int_equal(status.st_size, 65);
	const ino_t made = status.st_ino;

	assert_int_equal(tool_run(&tool, WORDS("--make-secret")), 0);
	tool_deinit(&tool);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_ino, made);

	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "--nnodes", "2", "--rdzv-endpoint", "a:1", "sh", "-c",
		"echo $COLLET_SECRET_FILE")), 0);
	snprintf(expected, sizeof(expected), "[0] %s\n", path);
	assert_string_equal(tool.out.text, expected);
	tool_deinit(&tool);

	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "--nnodes", "2", "--rdzv-endpoint", "a:1", "true")), 1);
	assert_non_null(strstr(tool.error.text, "others may read the secret (mode 0640)"));
	tool_deinit(&tool);

	/* The first host makes it and says where. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "--nnodes", "2", "--rdzv-endpoint", "a:1", "true")), 0);
	assert_non_null(strstr(tool.error.text, "made the job secret"));
	assert_int_equal(access(path, F_OK), 0);
	tool_deinit(&tool);
}

int main(void)
{
	/* What this test was started with must not reach the ranks. */
	static const char *const names[] = {
		"COLLET_JOB", "COLLET_STORE", "COLLET_SECRET", "COLLET_SECRET_FILE", "RANK" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	make_folder(home);
	setenv("XDG_CONFIG_HOME", home, 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_command_line_is_named),
		cmocka_unit_test(a_failure_before_the_start_is_status_1),
		cmocka_unit_test(help_and_version_are_printed),
		cmocka_unit_test(arguments_reach_the_program_unchanged),
		cmocka_unit_test(ranks_on_one_host_are_told_who_they_are),
		cmocka_unit_test(torchruns_spelling_is_understood),
		cmocka_unit_test(the_second_of_two_hosts_counts_on),
		cmocka_unit_test(ranks_are_told_where_to_meet),
		cmocka_unit_test(every_run_has_a_name_of_its_own),
		cmocka_unit_test(the_port_is_kept_for_the_whole_run),
		cmocka_unit_test(cores_are_those_of_the_affinity_mask),
		cmocka_unit_test(ranks_get_cores_of_their_own_where_there_are_enough),
		cmocka_unit_test(neighbours_share_a_core_where_there_are_too_few),
		cmocka_unit_test(ranks_are_left_alone_where_there_are_too_few_or_by_request),
		cmocka_unit_test(threads_share_the_cores_unless_the_user_says),
		cmocka_unit_test(one_host_needs_no_secret_and_leaves_none),
		cmocka_unit_test(several_hosts_need_one_and_it_is_made_once),
	};
	const int failed = cmocka_run_group_tests_name("launch/settings", tests, NULL, NULL);
	remove_folder(home);
	return failed;
}
