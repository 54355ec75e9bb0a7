/* collet-bench as it is typed: every command runs, says what it should, and ends with the right status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sample.h"
#include "skip.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* What a command printed, both streams, and its exit status. */
struct outcome {
	int status;
	char text[65536];
};

static void run(struct outcome *outcome, const char *before, const char *arguments, const char *after)
{
	char line[2048];
	snprintf(line, sizeof(line), "{ %s %s %s; } 2>&1", before, arguments, after);
	FILE *out = popen(line, "r");
	assert_non_null(out);
	const size_t bytes = fread(outcome->text, 1, sizeof(outcome->text) - 1, out);
	outcome->text[bytes] = '\0';
	const int status = pclose(out);
	outcome->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void bench(struct outcome *outcome, const char *arguments)
{
	run(outcome, "timeout 60 \"$COLLET_BENCH\"", arguments, "");
}

static void every_command_runs(void **state)
{
	static const struct {
		const char *arguments;
		int status;
		const char *says;
	} rows[] = {
		{ "--help", 0, "collet-bench limits" },
		{ "help", 0, "collet-bench limits" },
		{ "help overlap", 0, "Usage: collet-bench overlap COLLECTIVE" },
		{ "help allreduce", 0, "--in-place" },
		{ "help explian", 2, "did you mean explain?" },
		{ "--version", 0, "collet-bench 0." },
		{ "", 2, "which collective" },
		{ "allreduce --sizes nonsense", 2, "--sizes nonsense" },
		{ "allreduce -n 1 --sizes 0,4,1000 --seconds 0.01", 0, "1000          250     f32        sum" },
		{ "allreduce -n 2 --sizes 0,4,1023 --seconds 0.01", 0, "1020          255     f32        sum" },
		{ "allreduce -n 2 --sizes 64K --iters 20 --in-place --dtype f16 --op max --cold", 0, "in place" },
		{ "allreduce -n 2 --sizes 64K --iters 5 --buffers alloc --sync", 0, "alloc buffers" },
		{ "allreduce -n 3 --sizes 4,64K --iters 20 --rewrite", 0, "   wrong  rewritten" },
		{ "allreduce -n 2 --sizes 64K --iters 5 --buffers huge --dtype bf16 --op average", 0, "average" },
		{ "allreduce -n 3 --sizes 4096 --iters 5 --op premul_sum", 0, "premul_sum" },
		{ "reduce -n 3 --root 2 --sizes 4096 --iters 5 --dtype i8 --op product", 0, "product" },
		{ "broadcast -n 3 --root 1 --sizes 4096 --iters 5", 0, "none" },
		{ "barrier -n 3 --iters 5 --sizes 4,8", 0, "none" },
		{ "allgather -n 3 --sizes 4096 --iters 5 --in-place", 0, "4092          341" },
		{ "reduce_scatter -n 3 --sizes 4096 --iters 5 --dtype u64 --op xor", 0, "4080          170" },
		{ "gather -n 3 --sizes 4096 --iters 5 --root 1", 0, "4092          341" },
		{ "scatter -n 3 --sizes 4096 --iters 5 --root 1 --in-place", 0, "4092          341" },
		{ "alltoall -n 3 --sizes 4096 --iters 5", 0, "4092          341" },
		{ "sendrecv -n 3 --sizes 4096 --iters 5", 0, "4096         1024" },
		{ "allreduce -n 2 --sizes 4 --iters 5 --algorithm no_such_algorithm", 2, "no_such_algorithm" },
		{ "allreduce -n 2 --sizes 4 --iters 5 --algorithm ring", 2, "collet-bench: 4: --algorithm ring: " },
		{ "request allreduce -n 2 --sizes 4 --algorithm ring", 2, "collet-bench: 4: --algorithm ring: " },
		{ "allreduce -n 2 --sizes 4 --iters 5 --json /nowhere/at/all", 1, "/nowhere/at/all" },
		{ "limits --sizes 1M --seconds 0.01", 0, "a flag in shared memory" },
		{ "limits --transport tcp --sizes 1M --seconds 0.01", 0, "loopback TCP, spinning" },
		{ "limits --transport pigeon", 2, "there are limits of shm, tcp and verbs" },
		{ "init -n 4", 0, "4 ranks: communicator created in" },
		{ "init -n 3", 0, "KiB for each further connection to a peer" },
		{ "faults -n 3 --repeats 1 --transport shm", 0, "COLLET_ERR_PEER_LOST x2" },
		{ "faults -n 2 --repeats 2 --transport tcp", 0, "COLLET_ERR_PEER_LOST x2" },
		{ "faults --repeats 1 --transport pigeon", 2, "pigeon" },
		{ "allreduce -n 2 --transport pigeon", 2, "collet-bench: --transport pigeon: " },
		{ "compare allreduce -n 2 --with gloo --transport smh", 2, "collet-bench: --transport smh: " },
		{ "overlap allreduce -n 2 --sizes 64K,1M --repeats 2", 0, "1048576" },
		{ "overlap broadcast -n 2 --sizes 1M --repeats 2 --transport tcp --json -", 0, "\"compute_hidden\":" },
		{ "overlap allreduce -n 2 --sizes 1M --repeats 2", 0, "share a core, so computing hides only" },
		{ "overlap allreduce -n 2 --repeats 1001", 2, "1 to 1000" },
		{ "request allreduce -n 2 --repeats 2 --seconds 0.01", 0, " ns" },
		{ "request broadcast -n 2 --repeats 2 --seconds 0.01 --transport tcp --json -", 0, "\"more_ns\":" },
		{ "request allreduce -n 2 --repeats 2 --seconds 0.01 --in-flight 3 --json -", 0, "\"rate_ratio\":" },
		{ "request allreduce -n 2 --in-flight 0", 2, "--in-flight" },
		{ "waiting allreduce -n 3 --sizes 4,1M --repeats 2", 0, "3 ranks, one of them 100 ms late" },
		{ "waiting barrier -n 2 --repeats 1 --transport tcp --json -", 0, "\"core_median\":" },
		{ "waiting allreduce -n 1", 2, "needs two ranks" },
		{ "list", 0, "allreduce" },
		{ "list", 0, "openmpi:ucx" },
		{ "explain allreduce -n 8 --sizes 4,1M", 0, "1 MiB" },
		{ "explain allreduce -n 3 --transport pigeons", 2, "collet-bench: --transport pigeons: " },
		{ "explain allreduce -n 65537", 2, "--ranks 65537" },
		{ "explain allreduce -n 3000 --sizes 4", 0, "by the cost model: so many ranks were not started" },
		{ "explain allreduce -n 3000 --transport pigeons", 2, "takes one of self, shm and tcp" },
		{ "explain broadcast -n 3 --root 3", 2, "--root 3: the ranks are 0 to 2" },
		{ "tune allreduce,gather -n 2 --transport shm --sizes 8,64K --seconds 0.0002 "
			"--output \"$CLI_TEST_FOLDER/tuning\"",
			0, "/tuning" },
		{ "tune --check allgather -n 2 --transport shm --sizes 8 --seconds 0.0002", 0, "chosen now: median" },
		{ "tune --check barrier,reduce -n 2 --transport shm --sizes 8 --seconds 0.0002", 0, "2 calls" },
		{ "tune --check limits -n 2 --transport tcp --seconds 0.0001", 0, "# inline " },
		{ "tune -n 1", 2, "nothing to tune" },
		{ "tune sendrecv -n 2", 2, "no algorithms" },
		{ "tune allreduce broadcast -n 2", 2, "do not know what to do" },
		{ "tune --transport pigeons --output \"$CLI_TEST_FOLDER/tuning\"", 2, "there are shm, verbs and tcp" },
		{ "tune --transport smh --output \"$CLI_TEST_FOLDER/tuning\"", 2, "did you mean shm?" },
		{ "broadcast --root 99 --sizes 4 --iters 5", 2, "--root 99: the ranks are 0 to " },
		{ "request broadcast --root 99 --sizes 4", 2, "--root 99: the ranks are 0 to " },
		{ "allreduce -n 2 --sizes 4,100000G --iters 5", 1,
			"100000 GiB: the buffers of 2 ranks of this host need 400000.0 GiB of memory, and " },
		{ "compare allreduce -n 2 --with gloo --sizes 4,100000G", 1, " GiB are available" },
		{ "overlap alltoall -n 2 --sizes 100000G", 1, "100000 GiB: the buffers of 2 ranks of this host need" },
		{ "request allreduce -n 2 --sizes 100000G", 1, " GiB are available" },
		{ "tune -n 2 --sizes 1:8192:x2", 2, "up to 12" },
		{ "allreduce --check", 2, "--check is for tune" },
		{ "compare allreduce -n 2 --with nobody", 2, "known are openmpi, mpich, impi, openmpi5," },
		{ "compare allreduce -n 2 --with gloo,openmip", 2, "--with openmip: did you mean openmpi?" },
		{ "training -n 2 --strategies allredcue", 2, "'allredcue'; did you mean allreduce?" },
		{ "compare allreduce -n 2 --with mpich,openmpi:fastest", 2, "--with openmpi:fastest" },
		{ "compare allreduce -n 2 --with gloo --algorithm tree --sizes 4 --repeats 2 --seconds 0.01 --json -",
			0, "\"algorithm\":\"tree\",\"transport\":\"shm\"" },
		{ "compare allreduce -n 2 --with gloo --rewrite --sizes 4 --repeats 2 --seconds 0.01 --json -", 0,
			"\"rewritten_us\":" },
		{ "compare allreduce -n 2 --with gloo --transport shm --sizes 4 --repeats 1 --seconds 0.01", 0,
			"gloo is left out" },
	};
	for (size_t i = 0; i < COUNT(rows); i++) {
		if (!sample_of(COUNT(rows), i))
			continue;
		static struct outcome outcome;
		bench(&outcome, rows[i].arguments);
		if (outcome.status != rows[i].status || strstr(outcome.text, rows[i].says) == NULL)
			fail_msg("collet-bench %s: status %d, not %d with '%s':\n%s", rows[i].arguments, outcome.status,
				rows[i].status, rows[i].says, outcome.text);
	}
}

/* A tuning made in a hurry is a tuning: choices are explained by it, and one that is broken is not used in silence. */
static void a_tuning_is_used(void **state)
{
	static const struct {
		const char *before, *arguments;
		int status;
		const char *says;
	} rows[] = {
		{ "", "tune -n 2 --transport shm --sizes 8,64K --seconds 0.0001", 0, "median error" },
		{ "", "explain allreduce -n 2 --sizes 8", 0, "$CLI_TEST_FOLDER/tuning, measured with 2 ranks" },
		{ "sed -n '/^link shm 2 2/,/^sizes/p' \"$COLLET_TUNING\" | grep -cx '\\(eager\\|inline\\) [0-9]*'; :",
			"", 0, "2\n" },
		{ "", "allreduce -n 2 --sizes 64K --iters 5", 0, "allreduce of 2 ranks" },
		{ "", "tune --check allreduce -n 2 --transport shm --sizes 8 --seconds 0.0002", 0, "as chosen now" },
		{ "sed -i s/latency/lateness/ \"$COLLET_TUNING\";", "explain allreduce -n 2 --sizes 8", 1,
			"\"lateness\" means nothing" },
		{ "", "allreduce -n 2 --sizes 8 --iters 5", 1, "\"lateness\" means nothing" },
		{ "", "tune allreduce -n 2 --transport shm --sizes 8 --seconds 0.0002", 0, "It is replaced" },
		{ "", "allreduce -n 2 --sizes 8 --iters 5", 0, "allreduce of 2 ranks" },
		{ "export COLLET_TUNING=builtin;", "explain allreduce -n 2 --sizes 8", 0, "tuning: built in" },
	};
	for (size_t i = 0; i < COUNT(rows); i++) {
		static struct outcome outcome;
		char before[512], says[512];
		const char *folder = getenv("CLI_TEST_FOLDER");
		snprintf(before, sizeof(before),
			"export COLLET_TUNING=\"$CLI_TEST_FOLDER/tuning\"; %s timeout 60 \"$COLLET_BENCH\"",
			rows[i].before);
		run(&outcome, before, rows[i].arguments, "");
		const char *rest = strchr(rows[i].says, '/');
		snprintf(says, sizeof(says), "%s%s", rows[i].says[0] == '$' ? folder : "",
			rows[i].says[0] == '$' ? rest : rows[i].says);
		if (outcome.status != rows[i].status || strstr(outcome.text, says) == NULL)
			fail_msg("collet-bench %s: status %d, not %d with '%s':\n%s", rows[i].arguments, outcome.status,
				rows[i].status, says, outcome.text);
	}
}

static void a_peer_that_is_missing_is_said_so_and_no_failure(void **state)
{
	static struct outcome outcome;
	run(&outcome, "COLLET_BENCH_PEERS=/nowhere timeout 60 \"$COLLET_BENCH\"",
		"compare allreduce -n 2 --with impi,gloo --sizes 4,64K --repeats 2 --seconds 0.01", "");
	assert_int_equal(outcome.status, 0);
	const char *said = strstr(outcome.text, "impi is left out: its driver was not built: "
						"scripts/install-deps peers-new; then meson setup --reconfigure");
	assert_non_null(said);
	assert_null(strstr(said + 1, "impi"));   /* once, and not for each variant */
	assert_non_null(strstr(outcome.text, "gloo is left out: its driver was not built: scripts/install-deps peers"));
	assert_non_null(strstr(outcome.text, "64 KiB"));
}

/* Real runs, as short as can be, with every library that is installed. */
static void each_peer_is_compared_with(void **state)
{
	static const struct {
		const char *peers, *transport;
	} rows[] = { { "openmpi:default,openmpi:ucx", "shm" }, { "openmpi:default,openmpi:links", "tcp" },
		{ "mpich:default,mpich:doubling", "shm" }, { "mpich:default,mpich:segments", "tcp" },
		{ "gloo:default,gloo:halving-sync", "tcp" }, { "impi:default,impi:adjust13", "tcp" },
		{ "openmpi5:sm,openmpi5:ucx", "shm" }, { "mpich5:default,mpich5:ucx", "tcp" } };
	static struct outcome first, second;
	for (size_t i = 0; i < COUNT(rows); i++) {
		if (!sample_of(COUNT(rows), i))
			continue;
		char folder[] = "/tmp/collet-test-XXXXXX", arguments[512], json[64];
		assert_non_null(mkdtemp(folder));
		snprintf(json, sizeof(json), "%s/run.json", folder);
		snprintf(arguments, sizeof(arguments),
			"compare allreduce,barrier -n 2 --with %s --transport %s --sizes 4,64K --repeats 2 "
			"--seconds 0.01 --json %s",
			rows[i].peers, rows[i].transport, json);
		bench(&first, arguments);
		snprintf(arguments, sizeof(arguments),
			"compare allreduce -n 2 --with %s --transport %s --sizes 4,64K --repeats 2 "
			"--seconds 0.01 --markdown - --baseline %s",
			rows[i].peers, rows[i].transport, json);
		bench(&second, arguments);
		unlink(json);
		rmdir(folder);
		if (strstr(first.text, "was not built") != NULL || strstr(first.text, "is not installed") != NULL) {
			print_message("%s: not on this machine\n", rows[i].peers);
			continue;
		}
		if (first.status != 0 || strstr(first.text, "# barrier of 2 ranks") == NULL
			|| strstr(first.text, "# every variant") == NULL || strstr(first.text, "is left out") != NULL)
			fail_msg("%s over %s: status %d:\n%s", rows[i].peers, rows[i].transport, first.status,
				first.text);
		/* So short a run may well be slower than the other, or see the cores elsewhere; it must only say so. */
		if (second.status > 1 || strstr(second.text, "| bytes | collet |") == NULL
			|| (strstr(second.text, "times as long as then") == NULL
				&& strstr(second.text, "no case and peer in common") == NULL))
			fail_msg("%s over %s: status %d:\n%s", rows[i].peers, rows[i].transport, second.status,
				second.text);
	}
}

static void json_is_valid_and_nothing_else_is_printed(void **state)
{
	static const char *const rows[] = {
		"allreduce -n 2 --sizes 0,4,1K --seconds 0.01 --json -",
		"reduce -n 2 --sizes 4 --seconds 0.01 --rewrite --json -", "barrier -n 2 --iters 5 --json -",
		"limits --sizes 1M --seconds 0.01 --json -", "init -n 2 --json -",
		"faults -n 2 --repeats 1 --transport shm --json -",
		"compare allreduce -n 2 --sizes 4,64K --repeats 1 --seconds 0.01 --transport tcp --json -",
	};
	static struct outcome outcome;
	if (system("python3 -c 'import json' 2>/dev/null") != 0)
		skip_because("there is no python3");
	for (size_t i = 0; i < COUNT(rows); i++) {
		if (!sample_of(COUNT(rows), i))
			continue;
		run(&outcome, "timeout 60 \"$COLLET_BENCH\"", rows[i],
			"2>/dev/null | python3 -c 'import json, sys\n"
			"n = len([json.loads(line) for line in sys.stdin])\nassert n > 0'");
		if (outcome.status != 0)
			fail_msg("collet-bench %s: %s", rows[i], outcome.text);
	}
}

static void a_launchers_ranks_are_joined(void **state)
{
	static struct outcome outcome;
	/* Two processes with torchrun's variables, as a launcher would start them. */
	run(&outcome, "export WORLD_SIZE=2 COLLET_STORE=unix:cli-test-$$ COLLET_JOB=cli-test-$$;",
		"RANK=1 LOCAL_RANK=1 timeout 60 \"$COLLET_BENCH\" allreduce --sizes 4 --iters 5 & "
		"RANK=0 LOCAL_RANK=0 timeout 60 \"$COLLET_BENCH\" allreduce --sizes 4 --iters 5",
		"&& wait $!");
	if (outcome.status != 0 || strstr(outcome.text, "allreduce of 2 ranks") == NULL)
		fail_msg("status %d: %s", outcome.status, outcome.text);
	run(&outcome, "RANK=0 WORLD_SIZE=2 timeout 60 \"$COLLET_BENCH\"", "allreduce -n 4", "");
	assert_int_equal(outcome.status, 2);
	assert_non_null(strstr(outcome.text, "leave -n 4 away"));
}

/* Copies the name that ends in a table's head where the row of a size has its star. */
static void starred(const char *text, const char *size, char name[32])
{
	const char *head = strstr(text, "\n         bytes");
	assert_non_null(head);
	const char *row = strstr(head, size);
	assert_non_null(row);
	while (row[-1] != '\n')
		row--;
	const size_t mark = strcspn(row, "*\n");
	assert_int_equal(row[mark], '*');
	const char *end = head + 1 + mark, *start = end;
	while (start[-1] != ' ')
		start--;
	snprintf(name, 32, "%.*s", (int)(end - start), start);
}

static void explain_names_the_algorithm_that_a_run_takes(void **state)
{
	static const char *const rows[] = { "allreduce -n 2", "allreduce -n 5", "broadcast -n 8 --transport tcp",
		"alltoall -n 3", "allreduce -n 4 --no-pin" };
	static const char *const sizes[] = { "8 KiB", "768 KiB" };
	static struct outcome explained, measured;
	for (size_t i = 0; i < COUNT(rows); i++) {
		if (!sample_of(COUNT(rows), i))
			continue;
		char line[256], name[32], expected[64];
		snprintf(line, sizeof(line), "explain %s --sizes 8K,768K", rows[i]);
		bench(&explained, line);
		snprintf(line, sizeof(line), "%s --sizes 8K,768K --iters 2 --json -", rows[i]);
		bench(&measured, line);
		const char *object = measured.text;
		for (size_t s = 0; s < 2; s++) {
			starred(explained.text, sizes[s], name);
			snprintf(expected, sizeof(expected), "\"algorithm\":\"%s\"", name);
			const char *algorithm = strstr(object, "\"algorithm\":");
			assert_non_null(algorithm);
			if (strncmp(algorithm, expected, strlen(expected)) != 0)
				fail_msg("%s: %s is not what ran:\n%s%s", rows[i], expected, explained.text,
					measured.text);
			object = algorithm + 1;
		}
	}
}

/* As many processes that never sleep as there are cores leave none to the ranks alone, wherever they run. */
static void a_row_that_others_disturbed_is_marked(void **state)
{
	static const struct {
		const char *arguments, *says;
	} rows[] = {
		{ "allreduce -n 2 --sizes 4 --seconds 0.3", " *\n# *: other processes used more than 3 % of a core" },
		{ "allreduce -n 2 --sizes 4 --seconds 0.3 --json -", "\"disturbed\":true" },
		{ "allreduce -n 2 --sizes 4 --seconds 0.3 --threads --json -", "\"disturbed\":true" },
		{ "overlap allreduce -n 2 --sizes 1M", " *\n# *: other processes used" },
	};
	static struct outcome outcome;
	for (size_t i = 0; i < COUNT(rows); i++) {
		if (!sample_of(COUNT(rows), i))
			continue;
		run(&outcome, "for core in $(seq $(nproc)); do while :; do :; done & busy=\"$busy $!\"; done; "
			"timeout 60 \"$COLLET_BENCH\"", rows[i].arguments, "; status=$?; kill $busy; exit $status");
		if (outcome.status != 0 || strstr(outcome.text, rows[i].says) == NULL)
			fail_msg("collet-bench %s: status %d: %s", rows[i].arguments, outcome.status, outcome.text);
	}
}

static void the_list_fits_into_100_columns(void **state)
{
	static struct outcome outcome;
	char *rest = outcome.text;
	bench(&outcome, "list");
	assert_int_equal(outcome.status, 0);
	for (char *line; (line = strsep(&rest, "\n")) != NULL;)
		if (strlen(line) > 100)
			fail_msg("more than 100 columns: %s", line);
}

static void a_plot_without_gnuplot_is_refused_before_measuring(void **state)
{
	static const char *const rows[] = { "compare allreduce -n 2 --plot p.svg", "training -n 2 --plot p.svg" };
	static struct outcome outcome;
	for (size_t i = 0; i < COUNT(rows); i++) {
		run(&outcome, "timeout 60 env PATH=/nowhere \"$COLLET_BENCH\"", rows[i], "");
		assert_int_equal(outcome.status, 1);
		assert_string_equal(outcome.text, "collet-bench: --plot p.svg: gnuplot is not installed; install it by "
			"scripts/install-deps plot, or leave --plot away\n");
	}
}

static void a_program_that_cannot_be_run_is_a_failure(void **state)
{
	static struct outcome outcome;
	/* A copy of collet-bench has no collet-train beside it. */
	run(&outcome, "d=$(mktemp -d) && cp \"$COLLET_BENCH\" $d && timeout 60 env PATH=/nowhere "
		"LD_LIBRARY_PATH=\"$(dirname \"$COLLET_BENCH\")/../src\" $d/collet-bench", "training -n 2",
		"; s=$?; rm -r $d; exit $s");
	if (outcome.status != 1 || strstr(outcome.text, "cannot run collet-train") == NULL)
		fail_msg("status %d: %s", outcome.status, outcome.text);
}

static void init_blames_the_rank_that_failed(void **state)
{
	static struct outcome outcome;
	run(&outcome, "export COLLET_FAULTY=fail=1,rank=2; timeout 60 \"$COLLET_BENCH\"",
		"init -n 3 --transport faulty:shm", "");
	if (outcome.status != 1 || strstr(outcome.text, "collet-bench: rank 2: ") == NULL)
		fail_msg("status %d: %s", outcome.status, outcome.text);
}

/* For tunings: a folder of the tests' own, and no tuning of the user's. */
static int make_folder(void **state)
{
	char folder[] = "/tmp/collet-test-XXXXXX";
	return mkdtemp(folder) == NULL || setenv("CLI_TEST_FOLDER", folder, 1) != 0
		|| setenv("XDG_CONFIG_HOME", folder, 1) != 0;
}

static int remove_folder(void **state)
{
	return system("rm -rf \"$CLI_TEST_FOLDER\"");
}

int main(void)
{
	static const char *const names[] = { "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
		"PAI_TASK_INDEX" };
	if (getenv("COLLET_BENCH") == NULL) {
		print_message("COLLET_BENCH does not say where collet-bench is\n");
		return 77;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);   /* the tests may run inside a job */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_command_runs),
		cmocka_unit_test(a_tuning_is_used),
		cmocka_unit_test(a_peer_that_is_missing_is_said_so_and_no_failure),
		cmocka_unit_test(each_peer_is_compared_with),
		cmocka_unit_test(json_is_valid_and_nothing_else_is_printed),
		cmocka_unit_test(a_launchers_ranks_are_joined),
		cmocka_unit_test(explain_names_the_algorithm_that_a_run_takes),
		cmocka_unit_test(a_row_that_others_disturbed_is_marked),
		cmocka_unit_test(the_list_fits_into_100_columns),
		cmocka_unit_test(a_plot_without_gnuplot_is_refused_before_measuring),
		cmocka_unit_test(a_program_that_cannot_be_run_is_a_failure),
		cmocka_unit_test(init_blames_the_rank_that_failed),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
