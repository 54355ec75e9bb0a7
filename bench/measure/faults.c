/* Kills a rank and measures how long the others take to notice. Each repeat is a new world: ranks are forked, and
 * all-reduce until one of them is killed. Each writes down when its call returned, and with which status. All stay
 * until every rank has been notified, so that nobody notices a survivor's exit instead. Each repeat kills another
 * rank. Nothing of the library that makes threads or descriptors is used before the fork. */
#include "faults.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <collet/tools.h>

#include "compare/judge.h"
#include "loop.h"
#include "ranks/process.h"
#include "report/output.h"

#define SECOND_NS ((int64_t)1000000000)
enum {
	GOOD_CALLS = 3,              /* before anything happens: connections are made by then */
	COUNT = 262144,              /* of f32 in a call: 1 MiB, so that a kill finds bytes on their way */
	TRANSPORTS_MOST = 16
};
static const int64_t start_ns = 60 * SECOND_NS;       /* to meet, and for the good calls */
static const int64_t call_ns = 10 * SECOND_NS;        /* of a call; a survivor that hears nothing ends by this */
static const int64_t notified_ns = 15 * SECOND_NS;        /* and if not even by that, it is found out after this */

/* The activity of the victim when it is killed. */
enum moment { IN_CALLS, BETWEEN_CALLS, MOMENTS };
static const char *const moment_names[] = { "in its calls", "between calls" };
static const char *const moment_words[] = { "in_calls", "between_calls" };

enum phase { AT_WORK, IDLE, NOTIFIED, NO_COMMUNICATOR };

/* The report of each rank, in shared memory. */
struct report {
	_Atomic uint32_t begun;      /* calls */
	_Atomic uint32_t phase;      /* enum phase; released after what belongs to it is written */
	collet_status status;        /* NOTIFIED */
	int64_t returned_ns;         /* NOTIFIED: when the call did, by the clock that all share */
	char problem[512];           /* NO_COMMUNICATOR */
};

/* One world, and who is killed in it. */
struct trial {
	const char *transport;
	enum moment moment;
	uint32_t ranks, victim;
	char job[64];
	struct report *reports;
	pid_t *pids;
};

/* All trials of one transport and moment. */
struct row {
	double *last_ms;             /* of each repeat */
	uint32_t seen[COLLET_STATUS_COUNT];
};

/* ---- A rank ---- */

static void reach(struct report *report, enum phase phase)
{
	atomic_store_explicit(&report->phase, phase, memory_order_release);   /* pairs with has_reached() */
}

/* Calls until it is killed. */
static void stay(void)
{
	for (;;)
		pause();
}

static void be_rank(const struct trial *trial, uint32_t rank)
{
	struct report *report = &trial->reports[rank];
	const bool idles = rank == trial->victim && trial->moment == BETWEEN_CALLS;
	char store[128];
	collet_comm *comm = NULL;
	snprintf(store, sizeof(store), "unix:%s", trial->job);
	const collet_options options = { .explicit_rank = true,
		.rank = rank,
		.world_size = trial->ranks,
		.local_rank = rank,
		.store = store,
		.job = trial->job,
		.transport = trial->transport,
		.timeout_ns = call_ns,
		.rendezvous_timeout_ns = start_ns };
	float *data = calloc(COUNT, sizeof(*data));
	if (data == NULL || collet_comm_create(&comm, &options) != COLLET_OK) {
		snprintf(report->problem, sizeof(report->problem), "%s",
			data != NULL ? collet_last_error() : "no memory");
		reach(report, NO_COMMUNICATOR);
		stay();
	}
	collet_status status = COLLET_OK;
	for (uint32_t call = 0; status == COLLET_OK; call++) {
		if (idles && call == GOOD_CALLS) {
			reach(report, IDLE);
			stay();
		}
		/* A count; nothing hangs on it. */
		atomic_store_explicit(&report->begun, call + 1, memory_order_relaxed);
		status = collet_allreduce(comm, data, data, COUNT, COLLET_F32, COLLET_SUM, NULL);
	}
	report->returned_ns = bench_clock_ns();
	report->status = status;
	reach(report, NOTIFIED);
	stay();
}

/* ---- One trial ---- */

static bool has_reached(const struct trial *trial, uint32_t rank, enum phase phase)
{
	return atomic_load_explicit(&trial->reports[rank].phase, memory_order_acquire) == phase;
}

static bool has_ended(const struct trial *trial, uint32_t rank)
{
	return has_reached(trial, rank, NOTIFIED) || has_reached(trial, rank, NO_COMMUNICATOR);
}

/* Is everybody where the victim may be killed? */
static bool all_ready(const struct trial *trial, uint32_t *laggard)
{
	for (*laggard = 0; *laggard < trial->ranks; ++*laggard)
		if (has_ended(trial, *laggard))
			return false;
	for (uint32_t r = 0; r < trial->ranks; r++) {
		*laggard = r;
		if (r == trial->victim && trial->moment == BETWEEN_CALLS) {
			if (!has_reached(trial, r, IDLE))
				return false;
		} else if (atomic_load_explicit(&trial->reports[r].begun, memory_order_relaxed) <= GOOD_CALLS) {
			return false;
		}
	}
	return true;
}

static bool all_notified(const struct trial *trial, uint32_t *laggard)
{
	for (uint32_t r = 0; r < trial->ranks; r++) {
		*laggard = r;
		if (r != trial->victim && !has_reached(trial, r, NOTIFIED))
			return false;
	}
	return true;
}

/* Returns false at the deadline, or once it can no longer become true. *laggard is then a rank that did not reach
 * it. */
static bool await(const struct trial *trial, bool (*is)(const struct trial *, uint32_t *), int64_t within_ns,
	uint32_t *laggard)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };
	const int64_t deadline = bench_clock_ns() + within_ns;
	while (!is(trial, laggard)) {
		if (bench_clock_ns() > deadline || has_ended(trial, *laggard))
			return false;
		nanosleep(&moment, NULL);
	}
	return true;
}

static bool start(struct trial *trial, uint32_t *started)
{
	for (*started = 0; *started < trial->ranks; ++*started) {
		trial->pids[*started] = bench_process_fork();
		if (trial->pids[*started] == 0)
			be_rank(trial, *started);
		if (trial->pids[*started] < 0) {
			fprintf(stderr, "collet-bench: cannot start rank %u: %s\n", *started, strerror(errno));
			return false;
		}
	}
	return true;
}

static bool begin(const struct trial *trial)
{
	uint32_t laggard;
	if (await(trial, all_ready, start_ns, &laggard))
		return true;
	const struct report *report = &trial->reports[laggard];
	if (has_reached(trial, laggard, NO_COMMUNICATOR))
		fprintf(stderr, "collet-bench: rank %u: %s\n", laggard, report->problem);
	else if (has_reached(trial, laggard, NOTIFIED))
		fprintf(stderr, "collet-bench: rank %u: %s before any rank was killed\n", laggard,
			collet_status_name(report->status));
	else
		fprintf(stderr, "collet-bench: rank %u did not finish its first calls\n", laggard);
	return false;
}

/* Kills the victim and waits until all others are notified; *killed_ns is just before. */
static bool kill_victim(const struct trial *trial, uint32_t repeat, int64_t *killed_ns)
{
	/* Not always at the same point of the same call. */
	const struct timespec moment = { .tv_nsec = 1000000 + repeat * 1234567 % 10000000 };
	uint32_t laggard;
	nanosleep(&moment, NULL);
	*killed_ns = bench_clock_ns();
	kill(trial->pids[trial->victim], SIGKILL);
	if (await(trial, all_notified, notified_ns, &laggard))
		return true;
	fprintf(stderr, "collet-bench: over %s, rank %u had no error %lld s after rank %u was killed %s\n",
		trial->transport, laggard, (long long)(notified_ns / SECOND_NS), trial->victim,
		moment_names[trial->moment]);
	return false;
}

static bool run_trial(struct trial *trial, uint32_t repeat, struct row *row)
{
	uint32_t started;
	int64_t killed_ns = 0, last_ns = 0;
	bench_unique_name(trial->job, sizeof(trial->job));
	memset(trial->reports, 0, trial->ranks * sizeof(*trial->reports));
	trial->victim = repeat % trial->ranks;
	const bool notified = start(trial, &started) && begin(trial) && kill_victim(trial, repeat, &killed_ns);
	for (uint32_t r = 0; r < started; r++)
		kill(trial->pids[r], SIGKILL);
	for (uint32_t r = 0; r < started; r++)
		waitpid(trial->pids[r], NULL, 0);
	for (uint32_t r = 0; notified && r < trial->ranks; r++) {
		const struct report *report = &trial->reports[r];
		if (r == trial->victim)
			continue;
		row->seen[report->status]++;
		last_ns = report->returned_ns > last_ns ? report->returned_ns : last_ns;
	}
	row->last_ms[repeat] = (double)(last_ns - killed_ns) / 1e6;
	return notified;
}

/* ---- What comes out ---- */

static void print_header(const struct bench_options *o)
{
	char host[65] = "";
	gethostname(host, sizeof(host) - 1);
	printf("# kill -9 of one of %u ranks on %s until the last survivor's all-reduce returned; %u repeats\n",
		o->ranks, host, o->repeats);
	printf("%-10s %-14s %10s %10s %10s  %s\n", "transport", "killed", "least ms", "median ms", "most ms",
		"survivors' status");
}

static void print_row(const struct trial *trial, const struct row *row, uint32_t repeats, double median_ms)
{
	printf("%-10s %-14s %10.1f %10.1f %10.1f ", trial->transport, moment_names[trial->moment], row->last_ms[0],
		median_ms, row->last_ms[repeats - 1]);
	for (uint32_t s = 0; s < COLLET_STATUS_COUNT; s++)
		if (row->seen[s] > 0)
			printf(" %s x%u", collet_status_name((collet_status)s), row->seen[s]);
	putchar('\n');
	fflush(stdout);
}

static void print_json(FILE *json, const struct trial *trial, const struct row *row, uint32_t repeats, double median_ms)
{
	const char *separator = "";
	bench_json_begin(json);
	fputs(",\"transport\":", json);
	bench_json_string(json, trial->transport);
	fprintf(json, ",\"killed\":\"%s\",\"ranks\":%u,\"repeats\":%u,\"least_ms\":", moment_words[trial->moment],
		trial->ranks, repeats);
	bench_json_number(json, row->last_ms[0]);
	fputs(",\"median_ms\":", json);
	bench_json_number(json, median_ms);
	fputs(",\"most_ms\":", json);
	bench_json_number(json, row->last_ms[repeats - 1]);
	fputs(",\"statuses\":{", json);
	for (uint32_t s = 0; s < COLLET_STATUS_COUNT; s++) {
		if (row->seen[s] == 0)
			continue;
		fprintf(json, "%s\"%s\":%u", separator, collet_status_name((collet_status)s), row->seen[s]);
		separator = ",";
	}
	fputs("}}\n", json);
	fflush(json);
}

/* ---- All of it ---- */

static bool run_row(const struct bench_options *o, struct trial *trial, struct row *row, FILE *json)
{
	memset(row->seen, 0, sizeof(row->seen));
	for (uint32_t repeat = 0; repeat < o->repeats; repeat++) {
		bench_progress("%s, killed %s: %u of %u", trial->transport, moment_names[trial->moment], repeat + 1,
			o->repeats);
		const bool notified = run_trial(trial, repeat, row);
		bench_progress_clear();
		if (!notified)
			return false;
	}
	const double median_ms = bench_median(row->last_ms, o->repeats);   /* sorts them */
	if (json != stdout)
		print_row(trial, row, o->repeats, median_ms);
	if (json != NULL)
		print_json(json, trial, row, o->repeats, median_ms);
	return true;
}

/* The one that was asked for, or every one that can lose a peer. */
static size_t find_transports(const char *asked, const char *found[TRANSPORTS_MOST])
{
	collet_transport_info rows[TRANSPORTS_MOST];
	size_t count = 0, n = 0;
	if (asked != NULL) {
		found[n++] = asked;
		return n;
	}
	if (collet_transport_list(rows, TRANSPORTS_MOST, &count) != COLLET_OK)
		return 0;
	for (size_t i = 0; i < count && i < TRANSPORTS_MOST; i++)
		if (rows[i].built && !rows[i].is_module && strcmp(rows[i].name, "self") != 0)
			found[n++] = rows[i].name;
	return n;
}

static int run_all(const struct bench_options *o, struct trial *trial, struct row *row)
{
	const char *transports[TRANSPORTS_MOST];
	bool failed, notified = true;
	FILE *json = bench_json_open(o->json, &failed);
	if (failed)
		return 1;
	const size_t count = find_transports(o->transport, transports);
	if (json != stdout)
		print_header(o);
	for (size_t t = 0; t < count && notified; t++) {
		trial->transport = transports[t];
		for (int moment = 0; moment < MOMENTS && notified; moment++) {
			trial->moment = (enum moment)moment;
			notified = run_row(o, trial, row, json);
		}
	}
	return !bench_json_close(json) || !notified || count == 0;
}

int bench_faults(const struct bench_options *options)
{
	struct bench_options o = *options;
	if (o.ranks == 0)
		o.ranks = 3;
	struct report *reports =
		mmap(NULL, o.ranks * sizeof(*reports), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct trial trial = { .ranks = o.ranks, .reports = reports, .pids = calloc(o.ranks, sizeof(*trial.pids)) };
	struct row row = { .last_ms = calloc(o.repeats, sizeof(*row.last_ms)) };
	int status = 1;
	if (reports != MAP_FAILED && trial.pids != NULL && row.last_ms != NULL)
		status = run_all(&o, &trial, &row);
	else
		fprintf(stderr, "collet-bench: no memory for the reports of %u ranks\n", o.ranks);
	free(row.last_ms);
	free(trial.pids);
	if (reports != MAP_FAILED)
		munmap(reports, o.ranks * sizeof(*reports));
	return status;
}
