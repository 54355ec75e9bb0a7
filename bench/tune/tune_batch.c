/* Times a batch of calls, and finds out how many calls are in it.
 *
 * Every point is measured with buffers from collet_mem_alloc too. Ranks must choose alike, and do not know each other's
 * memory, so one choice must serve both kinds. Ordinary buffers count twice, as most callers have them. Example: an
 * all-reduce of 64 KiB, four ranks on two cores, shm. In collet_mem_alloc memory, direct takes half of halves' time; in
 * other memory, twice that.
 *
 * Calls back to back differ from two calls after a pause. With a root, ranks run ahead until rings or sockets are full.
 * Megabytes that wait there have left the cache when they are read. A direct reduce of 4 MiB over tcp, four ranks on
 * two cores, takes 1.6 ms for each of two calls. It takes 2.0 ms for each of 8, 3.4 for each of 32, and 3.9 for each of
 * 100. After a barrier, calls need 8 to 24 ms over tcp (4 to 8 over shm) to reach their final time. When the ranks
 * ahead finish, the others have the cores to themselves, and take half as long for the rest. So these batches are long.
 * As many calls go untimed before and after them, without a barrier, which would empty the sockets.
 *
 * With a barrier after each call, calls with a root take another time, since the last rank is waited for. Counting
 * that time a fifth changed no choice of 36, and made points' times differ from every benchmark. To tcp all memory
 * is alike, so long batches are measured with one kind. */
#include <stdio.h>

#include "report/output.h"
#include "tune_sweep.h"

enum {
	LONG_BYTES = 2 << 20,
	LONG_CALLS = 4,    /* in a batch of long calls, at least; of more than LONGEST_BYTES, half as many */
	LONGEST_BYTES = 8 << 20,
	AHEAD_LENGTHS = 12,   /* where ranks run ahead batches are so much longer, and so is what goes untimed; */
	AHEAD_LENGTHS_SHM = 4 /* over shared memory, where less lies under way and two memories are measured */
};

static const struct tune_kind both_memories[] = {
	{ .buffers = BENCH_MALLOC, .part = 2 / 3. },
	{ .buffers = BENCH_ALLOC, .part = 1 / 3. },
}, any_memory[] = {
	{ .buffers = BENCH_MALLOC, .part = 1 },
};

#define COUNT(kinds) (sizeof(kinds) / sizeof((kinds)[0]))

bool tune_runs_ahead(enum bench_collective collective)
{
	return collective == BENCH_REDUCE || collective == BENCH_BROADCAST || collective == BENCH_GATHER
		|| collective == BENCH_SCATTER;
}

size_t tune_kinds(bool any, const struct tune_kind **kinds)
{
	*kinds = any ? any_memory : both_memories;
	return any ? COUNT(any_memory) : COUNT(both_memories);
}

static int repeat(struct bench_run *run, uint64_t calls)
{
	for (uint64_t i = 0; i < calls; i++) {
		bench_run_next(run);
		if (bench_run_call(run))
			return 1;
	}
	return 0;
}

int tune_run_amid(collet_comm *comm, struct bench_run *run, uint64_t calls, uint64_t *ns)
{
	uint64_t here[2], last[2];
	if (bench_run_barrier(run) || repeat(run, calls))
		return 1;
	here[0] = (uint64_t)bench_clock_ns();
	if (repeat(run, calls))
		return 1;
	here[1] = (uint64_t)bench_clock_ns();
	if (repeat(run, calls) || collet_allreduce(comm, here, last, 2, COLLET_U64, COLLET_MAX, NULL) != COLLET_OK)
		return 1;
	*ns = last[1] - last[0];
	return 0;
}

/* Times so many calls. */
static int run_calls(struct tune_sweep *s, struct bench_run *run, const struct tune_candidate *candidate,
	uint64_t calls, uint64_t *ns)
{
	struct bench_times times = { 0 };
	const bool ahead = tune_runs_ahead((enum bench_collective)run->work.collective);
	if (ahead ? tune_run_amid(s->collet.comm, run, calls, ns) : bench_run_batch(run, calls, &times))
		return tune_complain(s, candidate->algorithm->name);
	if (!ahead)
		*ns = (uint64_t)times.elapsed_ns;
	return 0;
}

/* Finds out how many calls are in a batch: doubles it until it takes long enough on the slowest rank. */
static int calibrate(
	struct tune_sweep *s, struct bench_run *run, const struct tune_candidate *candidate, uint64_t *batch)
{
	const uint64_t least = candidate->bytes < LONG_BYTES ? 2 /* a call alone would have its memory to itself */
		: candidate->bytes < LONGEST_BYTES ? LONG_CALLS : LONG_CALLS / 2;
	const double lengths = !tune_runs_ahead((enum bench_collective)run->work.collective) ? 1
		: s->shared_memory ? AHEAD_LENGTHS_SHM : AHEAD_LENGTHS;
	for (uint64_t calls = 1;; calls *= 2) {
		uint64_t mine, all;
		if (run_calls(s, run, candidate, calls, &mine))
			return 1;
		if (collet_allreduce(s->collet.comm, &mine, &all, 1, COLLET_U64, COLLET_MAX, NULL) != COLLET_OK)
			return tune_complain(s, "agreeing on the time");
		const uint64_t fit =
			bench_iterations_for(0.7 * lengths * s->options->mode.seconds, calls, (int64_t)all);
		if (fit > 2 * calls && fit > least && calls < BENCH_ITERATIONS_MAX)
			continue;
		*batch = fit > least ? fit : least;
		return 0;
	}
}

static int check(struct tune_sweep *s, struct bench_run *run, const struct tune_candidate *candidate)
{
	uint64_t wrong = 0, first = 0, all;
	if (bench_run_checked(run, &wrong, &first))
		return tune_complain(s, candidate->algorithm->name);
	if (collet_allreduce(s->collet.comm, &wrong, &all, 1, COLLET_U64, COLLET_SUM, NULL) != COLLET_OK)
		return tune_complain(s, "adding up mistakes");
	if (all == 0)
		return 0;
	fprintf(stderr, "collet-bench: tune: %s gave %llu wrong elements\n", candidate->algorithm->name,
		(unsigned long long)all);
	return 1;
}

size_t tune_turns(const struct tune_sweep *s, const struct bench_run *run, bool last)
{
	const bool is_long = tune_runs_ahead((enum bench_collective)run->work.collective)
		|| bench_bytes(&run->work, s->collet.library.size, run->count) >= LONG_BYTES;
	const size_t turns = last ? TUNE_FINAL_TURNS : TUNE_TURNS;
	return is_long ? turns / 2 : turns;
}

/* Returns the library whose connections a candidate's calls use. Transfers from collet_mem_alloc memory use that
 * memory's own communicator, where connections have nothing to learn. */
static struct collet_library *library_of(
	struct tune_sweep *s, const struct bench_run *run, const struct tune_candidate *candidate)
{
	if (run->buffers.kind != BENCH_MALLOC)
		return &s->collet;
	return &s->own[candidate->algorithm - s->algorithms[run->work.collective]];
}

int tune_batch(struct tune_sweep *s, struct bench_run *run, struct tune_candidate *candidate, size_t kind, size_t turn)
{
	uint64_t untimed;
	struct collet_library *collet = library_of(s, run, candidate);
	run->library = &collet->library;
	run->call.how = tune_plan(collet, &run->work, run->count, candidate->algorithm->name, candidate->segment_bytes,
		candidate->channels);
	if (!candidate->checked && check(s, run, candidate))
		return 1;
	candidate->checked = true;
	if (candidate->calls[kind] == 0 && calibrate(s, run, candidate, &candidate->calls[kind]))
		return 1;
	const uint64_t calls = candidate->calls[kind];
	/* Caches and connections are in use by then. */
	if (!tune_runs_ahead((enum bench_collective)run->work.collective)
		&& run_calls(s, run, candidate, calls > 4 ? calls / 4 : 1, &untimed))
		return 1;
	return run_calls(s, run, candidate, calls, &candidate->ns[kind][turn]);
}
