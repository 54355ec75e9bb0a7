/* Times the creation of a communicator. The ranks are forked, not executed, and wait at one gate. The time runs from
 * the gate's opening until the last rank has its communicator. Nothing of the library is used before the fork. */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <collet/collet.h>

#include "loop.h"
#include "ranks/first_failure.h"
#include "ranks/process.h"
#include "report/output.h"

/* The report of each rank, in shared memory. */
struct report {
	int64_t created_ns;                    /* by the clock that all share */
	/* Memory of this process, its own and its share of shared memory: after creation, and the increase by
	 * connections to all ranks. */
	int64_t own_before_kb, own_after_kb, connected_kb;
	_Atomic uint32_t phase;                /* enum phase; released after what belongs to it is written */
	/* Of a rank that failed, written before it exits: when, and why. */
	int64_t gave_up_ns;
	char problem[512];
};

enum phase { STARTING, WEIGHED, CREATED, DONE };

/* The gates: a pipe each, at which ranks block in read() until the parent closes the other end. */
enum gate { GATE_WEIGH, GATE_CREATE, GATE_CONNECT, GATE_END, GATES };

/* This process's proportional set size: shared pages count by their share. -1: the kernel does not tell. */
static int64_t memory_kb(void)
{
	char line[256];
	int64_t kb = -1;
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	if (file == NULL)
		return -1;
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "Pss:", 4) == 0)
			kb = strtoll(line + 4, NULL, 10);
	fclose(file);
	return kb;
}

static void wait_at(int gates[GATES][2], enum gate gate)
{
	char nothing;
	while (read(gates[gate][0], &nothing, 1) < 0 && errno == EINTR)
		;
}

static void reach(struct report *report, enum phase phase)
{
	atomic_store_explicit(&report->phase, phase, memory_order_release);   /* pairs with all_reached() */
}

/* Point-to-point messages have connections of their own: an exchange with each makes one a peer. */
static collet_status connect_all(collet_comm *comm, uint32_t rank, uint32_t ranks)
{
	collet_status status = COLLET_OK;
	uint64_t out = rank, in;
	for (uint32_t step = 1; step < ranks && status == COLLET_OK; step++)
		status = collet_sendrecv(comm, &out, 1, (rank + step) % ranks, 0, &in, 1, (rank + ranks - step) % ranks,
			0, COLLET_U64, NULL, NULL);
	return status;
}

static void give_up(struct report *report)
{
	report->gave_up_ns = bench_clock_ns();
	snprintf(report->problem, sizeof(report->problem), "%s", collet_last_error());
	_exit(1);
}

static void be_rank(
	const struct bench_options *o, uint32_t rank, const char *job, int gates[GATES][2], struct report *report)
{
	char store[128];
	collet_comm *comm = NULL;
	snprintf(store, sizeof(store), "unix:%s", job);
	const collet_options options = { .explicit_rank = true,
		.rank = rank,
		.world_size = o->ranks,
		.local_rank = rank,
		.store = store,
		.job = job,
		.transport = o->transport };
	/* All weigh themselves while all are there: what is shared is divided by as many before as after. */
	wait_at(gates, GATE_WEIGH);
	report->own_before_kb = memory_kb();
	reach(report, WEIGHED);
	wait_at(gates, GATE_CREATE);
	if (collet_comm_create(&comm, &options) != COLLET_OK)
		give_up(report);
	report->created_ns = bench_clock_ns();
	/* A first small collective: what it opens belongs to the price. */
	if (collet_barrier(comm, NULL) != COLLET_OK)
		give_up(report);
	report->own_after_kb = memory_kb();
	reach(report, CREATED);
	wait_at(gates, GATE_CONNECT);   /* others' new connections are not to be weighed as this one's first */
	if (connect_all(comm, rank, o->ranks) != COLLET_OK || collet_barrier(comm, NULL) != COLLET_OK)
		give_up(report);
	report->connected_kb = memory_kb();
	reach(report, DONE);
	wait_at(gates, GATE_END);   /* nobody leaves while another one weighs what they share */
	collet_comm_destroy(&comm);
	_exit(0);
}

static void print_json(const struct bench_options *o, FILE *json, double create_ns, double kb, double most_kb,
	double peer_kb)
{
	bench_json_begin(json);
	fputs(",\"transport\":", json);
	bench_json_string(json, o->transport);
	fprintf(json, ",\"ranks\":%u,\"create_ms\":", o->ranks);
	bench_json_number(json, create_ns / 1e6);
	fputs(",\"mean_kib\":", json);
	bench_json_number(json, kb);
	fputs(",\"most_kib\":", json);
	bench_json_number(json, most_kb);
	fputs(",\"peer_kib\":", json);
	bench_json_number(json, peer_kb);
	fputs("}\n", json);
}

static int summarise(const struct bench_options *o, struct report *reports, int64_t opened_ns)
{
	int64_t last_ns = 0, sum_kb = 0, most_kb = 0, connected_kb = 0;
	for (uint32_t r = 0; r < o->ranks; r++) {
		const int64_t kb = reports[r].own_after_kb - reports[r].own_before_kb;
		last_ns = reports[r].created_ns > last_ns ? reports[r].created_ns : last_ns;
		most_kb = kb > most_kb ? kb : most_kb;
		sum_kb += kb;
		connected_kb += reports[r].connected_kb - reports[r].own_after_kb;
	}
	const double create_ns = (double)(last_ns - opened_ns), mean_kb = (double)sum_kb / (double)o->ranks;
	const double peers = (double)o->ranks * (o->ranks - 1);
	const double peer_kb = peers > 0 ? (double)connected_kb / peers : 0;
	bool failed;
	FILE *json = bench_json_open(o->json, &failed);
	if (failed)
		return 1;
	if (json != stdout)
		printf("%u ranks: communicator created in %.1f ms (the last rank); memory per rank, a barrier done: "
			"%.2f MiB mean, %.2f MiB most; %.1f KiB for each further connection to a peer\n",
			o->ranks, create_ns / 1e6, mean_kb / 1024, (double)most_kb / 1024, peer_kb);
	if (json != NULL)
		print_json(o, json, create_ns, mean_kb, (double)most_kb, peer_kb);
	return !bench_json_close(json);
}

static bool all_reached(struct report *reports, uint32_t ranks, enum phase phase)
{
	for (uint32_t r = 0; r < ranks; r++)
		if (atomic_load_explicit(&reports[r].phase, memory_order_acquire) < phase)
			return false;
	return true;
}

/* Reaped ranks have pid 0. */
static void kill_ranks(const pid_t *pids, uint32_t ranks)
{
	for (uint32_t r = 0; r < ranks; r++)
		if (pids[r] > 0)
			kill(pids[r], SIGKILL);
}

/* Reaps the ranks that have ended. Returns how many of all are left. */
static uint32_t reap(pid_t *pids, struct bench_end *ends, uint32_t ranks)
{
	uint32_t left = 0;
	for (uint32_t r = 0; r < ranks; r++) {
		if (pids[r] > 0 && waitpid(pids[r], &ends[r].wait_status, WNOHANG) == pids[r]) {
			ends[r].has_ended = true;
			pids[r] = 0;
		}
		left += pids[r] > 0;
	}
	return left;
}

/* "rank 1 on node: rank 2 on node: ..." is what rank 2 told rank 1. */
static bool is_told(const char *problem)
{
	uint32_t self, other;
	return sscanf(problem, "rank %u on %*[^:]: rank %u on ", &self, &other) == 2 && self != other;
}

/* Says which rank failed first, and how. */
static void blame(const struct report *reports, struct bench_end *ends, uint32_t ranks)
{
	for (uint32_t r = 0; r < ranks; r++) {
		ends[r].gave_up_ns = ends[r].has_ended ? reports[r].gave_up_ns : 0;
		ends[r].is_told = ends[r].has_ended && is_told(reports[r].problem);
	}
	const uint32_t first = bench_first_failure(ends, ranks);
	if (first == ranks)
		fputs("collet-bench: init: a rank ended early\n", stderr);
	else if (WIFSIGNALED(ends[first].wait_status))
		fprintf(stderr, "collet-bench: rank %u was killed by signal %d (%s)\n", first,
			WTERMSIG(ends[first].wait_status), strsignal(WTERMSIG(ends[first].wait_status)));
	else if (ends[first].gave_up_ns == 0)
		fprintf(stderr, "collet-bench: rank %u ended early, with exit status %d\n", first,
			WEXITSTATUS(ends[first].wait_status));
	else
		fprintf(stderr, "collet-bench: rank %u: %s\n", first, reports[first].problem);
}

/* Waits until all ranks have reached a phase. If one ends early, the others get a second to notice before they are
 * killed. Returns false then, after saying which rank was the first to fail. */
static bool wait_for(struct report *reports, pid_t *pids, struct bench_end *ends, uint32_t ranks, enum phase phase)
{
	static const struct timespec moment = { .tv_nsec = 2000000 };
	const int64_t second_ns = 1000000000;
	while (!all_reached(reports, ranks, phase)) {
		if (reap(pids, ends, ranks) < ranks) {
			const int64_t end_ns = bench_clock_ns() + second_ns;
			while (reap(pids, ends, ranks) > 0 && bench_clock_ns() < end_ns)
				nanosleep(&moment, NULL);
			kill_ranks(pids, ranks);
			blame(reports, ends, ranks);
			return false;
		}
		nanosleep(&moment, NULL);
	}
	return true;
}

static bool make_gates(int gates[GATES][2])
{
	for (int g = 0; g < GATES; g++)
		if (pipe2(gates[g], O_CLOEXEC) != 0) {
			fprintf(stderr, "collet-bench: no pipe: %s\n", strerror(errno));
			return false;
		}
	return true;
}

/* Forks all ranks; how many there are then. */
static uint32_t fork_ranks(const struct bench_options *o, const char *job, int gates[GATES][2], struct report *reports,
	pid_t *pids)
{
	for (uint32_t r = 0; r < o->ranks; r++) {
		pids[r] = bench_process_fork();
		if (pids[r] < 0)
			return r;
		if (pids[r] > 0)
			continue;
		for (int g = 0; g < GATES; g++)
			close(gates[g][1]);
		be_rank(o, r, job, gates, &reports[r]);
	}
	return o->ranks;
}

/* Opens one gate after the other. Returns false if a rank failed. */
static bool pass_gates(const struct bench_options *o, int gates[GATES][2], struct report *reports, pid_t *pids,
	struct bench_end *ends, int64_t *opened_ns)
{
	static const enum phase phases[] = { [GATE_WEIGH] = WEIGHED, [GATE_CREATE] = CREATED, [GATE_CONNECT] = DONE };
	for (enum gate gate = GATE_WEIGH; gate < GATE_END; gate++) {
		if (gate == GATE_CREATE)
			*opened_ns = bench_clock_ns();
		close(gates[gate][1]);
		if (!wait_for(reports, pids, ends, o->ranks, phases[gate]))
			return false;
	}
	close(gates[GATE_END][1]);
	return true;
}

static int run_ranks(const struct bench_options *o, struct report *reports, pid_t *pids, struct bench_end *ends)
{
	char job[64];
	int gates[GATES][2];
	int64_t opened_ns = 0;
	bench_unique_name(job, sizeof(job));
	if (!make_gates(gates))
		return 1;   /* the process ends: pipes made so far end with it */
	const uint32_t started = fork_ranks(o, job, gates, reports, pids);
	bool complete = started == o->ranks;
	if (complete) {
		complete = pass_gates(o, gates, reports, pids, ends, &opened_ns);
	} else {
		fprintf(stderr, "collet-bench: cannot start rank %u: %s\n", started, strerror(errno));
		kill_ranks(pids, started);
	}
	for (uint32_t r = 0; r < started; r++)
		if (pids[r] > 0)
			waitpid(pids[r], NULL, 0);
	return !complete || summarise(o, reports, opened_ns);
}

int bench_init(const struct bench_options *options)
{
	struct bench_options o = *options;
	if (o.ranks == 0)
		o.ranks = 2;
	struct report *reports =
		mmap(NULL, o.ranks * sizeof(*reports), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t *pids = calloc(o.ranks, sizeof(*pids));
	struct bench_end *ends = calloc(o.ranks, sizeof(*ends));
	int status = 1;
	if (reports != MAP_FAILED && pids != NULL && ends != NULL)
		status = run_ranks(&o, reports, pids, ends);
	free(ends);
	free(pids);
	if (reports != MAP_FAILED)
		munmap(reports, o.ranks * sizeof(*reports));
	return status;
}
