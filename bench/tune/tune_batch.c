/* How a batch of calls is timed, and how many calls are in it.
 *
 * Every point is measured with buffers from collet_mem_alloc too: ranks must choose alike and do not know what each
 * other's memory is, so a choice has to do for both. Ordinary buffers count twice, as most callers have these: an
 * all-reduce of 64 KiB of four ranks on two cores over shared memory takes half of halves' time with direct in
 * collet_mem_alloc memory, and twice that in any other.
 *
 * Calls back to back are another thing than two after a pause. Where there is a root, ranks run ahead until rings or
 * sockets are full, and what lies there in megabytes is no longer in a cache when it is taken out: a direct reduce of 4
 * MiB over tcp, four ranks on two cores, takes 1.6 ms for each of two calls, 2.0 for each of eight, 3.4 for each of 32
 * and 3.9 for each of a hundred. It takes 8 to 24 ms from a barrier until calls take what they take for ever, over tcp
 * (over shared memory 4 to 8); and when those who are ahead are through with the last call, the others, who have their
 * cores to themselves, take half as long for what is left. So the batches of those are long, and as many calls go
 * untimed before as after, with no barrier between, which would empty the sockets again.
 *
 * In step, a barrier after each, calls with a root take another time, since the last rank is waited for; which one is
 * the fastest there moved no choice of 36 when it counted a fifth, and made of a point's time what no benchmark shows.
 * To tcp all memory is alike, and so long batches are not spent on both kinds. */
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

/* So many calls, timed. */
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

/* How many calls are in a batch: doubled until it is seen how many take long enough, on the slowest rank. */
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

/* Whose connections a way's calls take. What is lent from memory of collet_mem_alloc is lent to that memory's own
 * communicator, and there is nothing to be learnt about it. */
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
	run->call.how = tune_plan(collet, &run->work, run->count, candidate->algorithm->name, candidate->piece_bytes,
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
