/* One program, started by everything that starts ranks: it is told nothing but what the launcher sets. Where a launcher
 * cannot be had here, collet-run starts the processes and a shell gives each the variables that the launcher would. */
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"
#include "tool.h"

/* examples/c/allreduce.c's line of a rank: rank r gives (r + 1) * (1 2 3 4). */
static void expect_sums(const struct tool *tool, const char *launcher, unsigned world_size)
{
	const unsigned sum = world_size * (world_size + 1) / 2;
	for (unsigned rank = 0; rank < world_size; rank++) {
		char line[128];
		snprintf(line, sizeof(line), "rank %u of %u: %u %u %u %u\n", rank, world_size, sum, 2 * sum,
			3 * sum, 4 * sum);
		if (occurrences(tool->out.text, line) != 1)
			fail_msg("%s: not one \"%s\" in:\n%s%s", launcher, line, tool->out.text, tool->error.text);
	}
}

static void run_under(const char *launcher, const char *const *arguments, unsigned world_size)
{
	struct tool tool;
	const struct tool_setup setup = { .program = launcher };
	tool_start(&tool, &setup, arguments);
	const int status = tool_finish(&tool);
	if (status != 0)
		fail_msg("%s ended with %d:\n%s%s", launcher == NULL ? "collet-run" : launcher, status,
			tool.out.text, tool.error.text);
	expect_sums(&tool, launcher, world_size);
	tool_deinit(&tool);
}

static void must_be_installed(const char *program)
{
	char command[128];
	snprintf(command, sizeof(command), "command -v %s >/dev/null", program);
	if (system(command) != 0)
		skip_because("%s is not installed", program);
}

static const char *example(void)
{
	return getenv("EXAMPLE_ALLREDUCE");
}

static void open_mpi(void **state)
{
	must_be_installed("mpirun.openmpi");
	/* As root, as in containers, and with more ranks than cores. */
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	run_under("mpirun.openmpi", WORDS("--oversubscribe", "-n", "3", example()), 3);
	run_under("mpirun.openmpi", WORDS("--oversubscribe", "-n", "1", example()), 1);
}

static void mpich(void **state)
{
	must_be_installed("mpirun.mpich");
	run_under("mpirun.mpich", WORDS("-n", "3", example()), 3);
	run_under("mpirun.mpich", WORDS("-n", "1", example()), 1);
}

static void collet_run(void **state)
{
	run_under(NULL, WORDS("-n", "3", example()), 3);
	run_under(NULL, WORDS("-n", "1", example()), 1);
}

/* A variable that means nothing is named by rank 0, once: at any log level under collet-run, else by COLLET_LOG. */
static void an_unknown_variable_is_a_warning(void **state)
{
	static const char listed[] = "; collet(7) lists them\n";
	const struct {
		const char *name, *value, *log;
		bool is_alone;         /* without collet-run */
		const char *warning;   /* NULL: none */
	} rows[] = {
		{ "COLLET_TIMOUT", "5", NULL, false, "COLLET_TIMOUT is not a variable of collet "
			"(did you mean \"COLLET_TIMEOUT\"?)" },
		{ "COLLET_TIMOUT", "5", "none", false, "COLLET_TIMOUT is not a variable of collet " },
		{ "COLLET_TIMOUT", "5", "warn", false, "COLLET_TIMOUT is not a variable of collet " },
		{ "COLLET_ZEBRA", "5", NULL, false, "COLLET_ZEBRA is not a variable of collet; " },
		{ "COLLET_TIMOUT", "", NULL, false, NULL },
		{ "COLLET_TIMEOUT", "5", NULL, false, NULL },
		{ "COLLET_TEST_ANYTHING", "5", NULL, false, NULL },
		{ "COLLET_TIMOUT", "5", NULL, true, NULL },
		{ "COLLET_TIMOUT", "5", "warn", true, "COLLET_TIMOUT is not a variable of collet " },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		const struct tool_setup alone = { .program = example() }, none = { 0 };
		setenv(rows[i].name, rows[i].value, 1);
		if (rows[i].log != NULL)
			setenv("COLLET_LOG", rows[i].log, 1);
		else
			unsetenv("COLLET_LOG");
		tool_start(&tool, rows[i].is_alone ? &alone : &none,
			rows[i].is_alone ? WORDS(NULL) : WORDS("-n", "3", example()));
		assert_int_equal(tool_finish(&tool), 0);
		const size_t expected = rows[i].warning != NULL;
		if (occurrences(tool.error.text, listed) != expected ||
			(expected && occurrences(tool.error.text, rows[i].warning) != 1))
			fail_msg("row %zu, %s: \"%s\"", i, rows[i].name, tool.error.text);
		tool_deinit(&tool);
		unsetenv(rows[i].name);
	}
	unsetenv("COLLET_LOG");
}

/* What is misspelt may be why creation fails. */
static void an_unknown_variable_is_named_when_creation_fails(void **state)
{
	struct tool tool;
	setenv("COLLET_SECERT", "/nowhere", 1);
	setenv("COLLET_TIMEOUT", "five", 1);
	assert_int_not_equal(tool_run(&tool, WORDS("-n", "2", example())), 0);
	unsetenv("COLLET_TIMEOUT");
	unsetenv("COLLET_SECERT");
	if (occurrences(tool.error.text,
		    "COLLET_SECERT is not a variable of collet (did you mean \"COLLET_SECRET\"?)") != 1)
		fail_msg("\"%s\"", tool.error.text);
	tool_deinit(&tool);
}

static void a_restarted_job_does_not_warn_again(void **state)
{
	struct tool tool;
	setenv("COLLET_TIMOUT", "5", 1);
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", "--restarts", "1", "sh", "-c",
		"$EXAMPLE_ALLREDUCE && [ $COLLET_RESTART = 1 ]")), 0);
	unsetenv("COLLET_TIMOUT");
	assert_int_equal(occurrences(tool.error.text, "COLLET_TIMOUT"), 1);
	tool_deinit(&tool);
}

/* A port that stays ours while nobody listens there, and that a rank may listen at: bound with SO_REUSEADDR. */
static int hold_port(uint16_t *port)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int one = 1;
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
	*port = ntohs(address.sin_port);
	return fd;
}

/* Two collet-runs, as on two hosts; the one with rank 0 starts last. */
static void collet_run_on_two_hosts(void **state)
{
	struct tool tools[2];
	uint16_t port;
	const int holder = hold_port(&port);
	char endpoint[64];
	snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", port);
	setenv("COLLET_SECRET", "correct horse battery staple, 32+", 1);
	const struct tool_setup none = { 0 };
	tool_start(&tools[1], &none, WORDS("-n", "2", "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", endpoint,
		"--no-prefix", "--env", "COLLET_HOST_ID=second", example()));
	tool_start(&tools[0], &none, WORDS("-n", "2", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", endpoint,
		"--no-prefix", "--env", "COLLET_HOST_ID=first", example()));
	for (int node = 0; node < 2; node++) {
		const int status = tool_finish(&tools[node]);
		if (status != 0)
			fail_msg("node %d ended with %d: %s%s", node, status, tools[node].out.text,
				tools[node].error.text);
		for (int rank = 2 * node; rank < 2 * node + 2; rank++) {
			char line[64];
			snprintf(line, sizeof(line), "rank %d of 4: 10 20 30 40\n", rank);
			assert_int_equal(occurrences(tools[node].out.text, line), 1);
		}
	}
	for (int node = 0; node < 2; node++)
		tool_deinit(&tools[node]);
	unsetenv("COLLET_SECRET");
	close(holder);
}

static void nobody(void **state)
{
	run_under("env", WORDS("-u", "RANK", "-u", "WORLD_SIZE", example()), 1);
}

/* The names of collet-run's that another launcher would not set. */
#define FORGET_COLLET "unset COLLET_STORE COLLET_JOB; "
#define FORGET_TORCHRUN                                                                                                \
	"unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE NODE_RANK "                     \
	"ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS "                    \
	"TORCHELASTIC_RUN_ID "                                                                                         \
	"TORCHELASTIC_USE_AGENT_STORE; "

static void run_with(const char *variables, unsigned world_size)
{
	char script[1024], ranks[16];
	snprintf(script, sizeof(script), "%s exec \"$EXAMPLE_ALLREDUCE\"", variables);
	snprintf(ranks, sizeof(ranks), "%u", world_size);
	run_under(NULL, WORDS("-n", ranks, "sh", "-c", script), world_size);
}

/* The agent's store holds MASTER_PORT, and it is not for us: it never even answers. */
static void torchrun_with_its_agents_store(void **state)
{
	const int agent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	assert_int_equal(bind(agent, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(agent, 16), 0);
	assert_int_equal(getsockname(agent, (struct sockaddr *)&address, &bytes), 0);
	char variables[256];
	snprintf(variables, sizeof(variables), FORGET_COLLET "export MASTER_ADDR=127.0.0.1 MASTER_PORT=%u "
		"TORCHELASTIC_USE_AGENT_STORE=True;", ntohs(address.sin_port));
	run_with(variables, 3);
	close(agent);
}

static void plain_variables_as_kubernetes_sets_them(void **state)
{
	/* Nothing says that all ranks are on one host, so the job needs a secret. */
	setenv("COLLET_SECRET", "correct horse battery staple, 32+", 1);
	run_with(FORGET_COLLET "r=$RANK n=$WORLD_SIZE; " FORGET_TORCHRUN "export RANK=$r WORLD_SIZE=$n;", 3);
	unsetenv("COLLET_SECRET");
}

static void slurm(void **state)
{
	run_with(FORGET_COLLET
		"export SLURM_PROCID=$RANK SLURM_NTASKS=$WORLD_SIZE SLURM_LOCALID=$LOCAL_RANK "
		"SLURM_NODEID=0 SLURM_NNODES=1 SLURM_JOB_NUM_NODES=1 SLURM_STEP_NODELIST=localhost "
		"SLURM_JOB_NODELIST=localhost "
		"SLURM_JOB_ID=$(($PPID + 1000)) SLURM_STEP_ID=0; unset MASTER_ADDR MASTER_PORT; " FORGET_TORCHRUN,
		3);
}

/* ---- A program that starts its ranks itself ----------------------------------------------------------------- */

/* Again and again, because it ends in a hurry: each rank leaves as soon as it has its sum, while others still work. */
static void ranks_started_by_the_program_itself(void **state)
{
	const struct tool_setup setup = { .program = getenv("EXAMPLE_SPAWN") };
	for (int run = 0; run < 20; run++) {
		struct tool tool;
		tool_start(&tool, &setup, WORDS("4"));
		const int status = tool_finish(&tool);
		if (status != 0)
			fail_msg("run %d, status %d: %s%s", run, status, tool.out.text, tool.error.text);
		assert_string_equal(tool.out.text, "4 processes: the sums are right\n4 threads: the sums are right\n");
		tool_deinit(&tool);
	}
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(collet_run),
		cmocka_unit_test(an_unknown_variable_is_a_warning),
		cmocka_unit_test(an_unknown_variable_is_named_when_creation_fails),
		cmocka_unit_test(a_restarted_job_does_not_warn_again),
		cmocka_unit_test(collet_run_on_two_hosts),
		cmocka_unit_test(nobody),
		cmocka_unit_test(open_mpi),
		cmocka_unit_test(mpich),
		cmocka_unit_test(torchrun_with_its_agents_store),
		cmocka_unit_test(plain_variables_as_kubernetes_sets_them),
		cmocka_unit_test(slurm),
		cmocka_unit_test(ranks_started_by_the_program_itself),
	};
	return cmocka_run_group_tests_name("launch/launchers", tests, NULL, NULL);
}
