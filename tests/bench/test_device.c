/* collet-bench --device cuda, on the stand-in for the driver: every collective's results are right in memory that the
 * host cannot touch, and what is missing is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sample.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

struct row {
	const char *before, *arguments;
	int status;
	const char *says;
};

static void run(const struct row *row)
{
	static char text[65536];
	char line[1024];
	snprintf(line, sizeof(line), "%s timeout 60 \"$COLLET_BENCH\" %s 2>&1", row->before, row->arguments);
	FILE *out = popen(line, "r");
	assert_non_null(out);
	text[fread(text, 1, sizeof(text) - 1, out)] = '\0';
	const int ended = pclose(out), status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
	if (status != row->status || strstr(text, row->says) == NULL)
		fail_msg("%s: status %d, not %d with '%s':\n%s", line, status, row->status, row->says, text);
}

static void every_collective_is_measured(void **state)
{
	static const char *const collectives[] = {"allreduce", "reduce", "broadcast", "barrier", "allgather",
		"reduce_scatter", "gather", "scatter", "alltoall", "sendrecv"};
	for (size_t i = 0; i < COUNT(collectives); i++) {
		if (!sample_of(COUNT(collectives), i))
			continue;
		char arguments[128];
		snprintf(arguments, sizeof(arguments), "%s -n 2 --device cuda --sizes 4000 --iters 2 --seconds 0.001",
			collectives[i]);
		run(&(struct row){ "", arguments, 0, "device buffers\n# GPU: a stand-in for a GPU; copies" });
	}
}

static void in_every_mode(void **state)
{
	static const struct row rows[] = {
		{"", "allreduce -n 2 --threads --device cuda --sizes 4,100K --iters 2 --seconds 0.001", 0,
			", threads, device buffers"},
		{"COLLET_LOG=info", "allreduce -n 2 --device cuda --sizes 64K --iters 2 --seconds 0.001", 0,
			"2 ranks share a GPU, whose collectives rank 0 does in one go"},
		{"FAKE_CUDA_DEVICES=2", "allreduce -n 2 --device cuda --in-place --sizes 64K --iters 2 --seconds 0.001",
			0, "in place"},
		{"", "allreduce -n 2 --device cuda --sizes 64K --iters 2 --sync --seconds 0.001 --json -", 0,
			"\"of_copy\":"},
		{"", "allreduce -n 3 --threads --sizes 64K --iters 2 --seconds 0.001 --json -", 0, "\"threads\":true}"},
		{"", "allreduce -n 2 --threads --device cuda --stream --sizes 4,100K --iters 40 --seconds 0.001", 0,
			"# calls on a stream, times by the stream's events"},
		{"", "alltoall -n 3 --device cuda --stream --sizes 9000 --iters 300 --seconds 0.001 --json -", 0,
			"\"calling\":\"stream\",\"host_us\":"},
		{"", "allreduce -n 2 --threads --device cuda --graph --in-place --sizes 8,1M --iters 70 --seconds 0.1",
			0,
			"# calls in a graph that is launched again and again"},
		{"", "sendrecv -n 2 --device cuda --graph --stream --sizes 4000 --iters 3 --seconds 0.001 --json -", 0,
			"\"calling\":\"graph\",\"host_us\":null"},
		{"", "barrier -n 2 --device cuda --stream --iters 3 --seconds 0.001", 0, "calls on a stream"},
		{"", "limits --device cuda --sizes 64K --seconds 0.01", 0, "copy within a GPU's memory"},
		{"", "limits --device cuda --sizes 64K --seconds 0.01 --json -", 0, "\"limit\":\"device_copy\""},
	};
	for (size_t i = 0; i < COUNT(rows); i++)
		if (sample_of(COUNT(rows), i))
			run(&rows[i]);
}

static void a_call_is_explained(void **state)
{
	static const struct row rows[] = {
		{"", "explain allreduce -n 2 --device cuda --sizes 4,4M", 0, "4 MiB shared_gpu   direct"},
		{"", "explain allreduce -n 2 --device cuda --sizes 4M", 0, "not measured\n"},
		{"", "explain allreduce -n 2 --device cuda --sizes 4M --algorithm doubling", 0,
			"4 MiB pipelined    doubling"},
		{"COLLET_CUDA_DIRECT=0", "explain alltoall -n 2 --device cuda --sizes 4K", 0, "4 KiB copied"},
		{"FAKE_CUDA_DEVICES=2", "explain reduce -n 2 --device cuda --sizes 4M", 0, "4 MiB peer_gpus    "},
		{"FAKE_CUDA_DEVICES=4", "explain allreduce -n 4 --device cuda --sizes 64M", 0,
			"64 MiB peer_gpus    two_shot                 661.6 "},
		{"FAKE_CUDA_DEVICES=4", "explain allreduce -n 4 --device cuda --sizes 4M", 0,
			"4 MiB peer_gpus    halving_doubling "},
		{"FAKE_CUDA_DEVICES=4 COLLET_DETERMINISTIC=1", "explain allreduce -n 4 --device cuda --sizes 4M", 0,
			"4 MiB peer_gpus    two_shot "},
		{"FAKE_CUDA_DEVICES=4", "explain allreduce -n 4 --device cuda --sizes 64M", 0, "  not measured\n"},
		/* No launcher says which of its host's ranks it is. */
		{"FAKE_CUDA_DEVICES=2 WORLD_SIZE=2 COLLET_STORE=unix:test-device-$$ "
		 "sh -c 'RANK=1 \"$0\" \"$@\" & RANK=0 \"$0\" \"$@\" && wait'",
			"explain reduce --device cuda --sizes 4M", 0, "4 MiB peer_gpus    "},
		{"", "explain barrier -n 2 --device cuda --sizes 4", 0, "no call that a GPU has buffers of"},
		{"FAKE_CUDA_DEVICES=0", "explain allreduce -n 2 --device cuda", 1, "finds no GPU"},
	};
	for (size_t i = 0; i < COUNT(rows); i++)
		if (sample_of(COUNT(rows), i))
			run(&rows[i]);
}

/* What is measured of a GPU is what its calls are then explained by; the host's links stay as they were. */
static void a_gpus_links_are_tuned(void **state)
{
	char file[] = "/tmp/collet-tuning-XXXXXX", with[64], apart[96];
	const int made = mkstemp(file);
	assert_true(made >= 0);
	close(made);
	unlink(file);
	snprintf(with, sizeof(with), "COLLET_TUNING=%s", file);
	snprintf(apart, sizeof(apart), "FAKE_CUDA_DEVICES=4 COLLET_TUNING=%s", file);
	const struct row rows[] = {
		{with, "tune --device cuda --check", 0, "# a copy to page-locked memory: "},
		{with, "tune --device cuda", 0, "# written to /tmp/collet-tuning-"},
		{with, "explain allreduce -n 2 --device cuda --sizes 4M", 0, "  measured\n"},
		{with, "explain allreduce -n 2 --sizes 4M", 0, "tuning: /tmp/collet-tuning-"},
		{"COLLET_TUNING=builtin", "tune --device cuda", 1, "no file to write to"},
		{"FAKE_CUDA_FAIL=cuMemHostRegister:1:2", "tune --device cuda --check", 1, "page-locking memory"},
	};
	for (size_t i = 0; i < COUNT(rows); i++)
		run(&rows[i]);
	/* Where a flag takes long to be seen, kernels send fewer messages one after the other. */
	FILE *tuned = fopen(file, "r+");
	assert_non_null(tuned);
	assert_int_equal(fseek(tuned, -(long)strlen("end\n"), SEEK_END), 0);
	fputs("link cuda_ipc 4 4\nlatency 1000000\nmessage 300\npiece 300\nbyte 0.005 0.005 0.005 0.005\nfar_byte 0\n"
	      "reduce_byte 0.001\nfar_reduce_byte 0\nnear 1000000000\npieces 4096 4194304\nchannels 1 0 0 0\nend\n",
		tuned);
	fclose(tuned);
	run(&(struct row){ apart, "explain allreduce -n 4 --device cuda --sizes 4M", 0, "4 MiB peer_gpus    direct " });
	run(&(struct row){ apart, "explain allreduce -n 4 --device cuda --sizes 4M", 0, "  measured\n" });
	unlink(file);
}

/* Where one rank cannot go on, no other is left behind, threads included. */
static void what_is_missing_is_said(void **state)
{
	static const struct row rows[] = {
		{"FAKE_CUDA_DEVICES=0", "allreduce -n 2 --device cuda --sizes 4", 1,
			"cuda: the CUDA driver finds no GPU"},
		{"FAKE_CUDA_DEVICES=0", "allreduce -n 2 --threads --device cuda --sizes 4", 1, "finds no GPU"},
		{"FAKE_CUDA_WITHOUT=cuEventCreate", "limits --device cuda", 1, "is too old: it has no cuEventCreate"},
		{"FAKE_CUDA_FAIL=cuMemAlloc:0:2", "allreduce -n 2 --threads --device cuda --sizes 4", 1,
			"out of memory"},
		{"FAKE_CUDA_FAIL=cuGraphInstantiate:2:2",
			"allreduce -n 2 --threads --device cuda --graph --sizes 4 --iters 2", 1,
			"instantiating a graph: CUDA_ERROR_OUT_OF_MEMORY"},
		{"FAKE_CUDA_FAIL=cuMemAlloc:1:2", "limits --device cuda --sizes 64K", 1,
			"memory to copy in: CUDA_ERROR_"},
	};
	for (size_t i = 0; i < COUNT(rows); i++)
		if (sample_of(COUNT(rows), i))
			run(&rows[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_collective_is_measured),
		cmocka_unit_test(in_every_mode),
		cmocka_unit_test(a_call_is_explained),
		cmocka_unit_test(a_gpus_links_are_tuned),
		cmocka_unit_test(what_is_missing_is_said),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
