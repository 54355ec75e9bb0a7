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
 * and 3.9 for each of a hundred. So the batches of those are long, and more goes before them untimed.
 *
 * Nor is that all that a caller sees of a call with a root. Who needs the result before the next one, or does something
 * with all ranks in between, waits until everybody is done; and where ranks may run ahead, the last of them is not
 * waited for. So such calls are measured in step too, a barrier after each, whose own time is taken off. Back to back
 * counts four times, being what benchmarks and pipelines do: a direct reduce of 64 KiB over tcp, four ranks on two
 * cores, takes 1.8 times as long as a chain there, and a fifth of it in step, where part of it goes on while ranks are
 * in the barrier. To tcp all memory is alike, and so long batches are not spent on both kinds. */
#include <stdio.h>

#include "output.h"
#include "tune_sweep.h"

enum {
	LONG_BYTES = 2 << 20,
	LONG_CALLS = 4,    /* in a batch of long calls, at least; of more than LONGEST_BYTES, half as many */
	LONGEST_BYTES = 8 << 20,
	AHEAD_LENGTHS = 8, /* where ranks run ahead batches are so many times as long, ... */
	AHEAD_LENGTHS_SHM = 3, /* ... or so many times, over shared memory, where little lies under way, ... */
	AHEAD_BYTES = 128 << 20, /* ... after so many bytes or WARM_BATCHES batches untimed */
	WARM_BATCHES = 4
};

static const struct tune_kind alike[] = {
	{ .buffers = BENCH_MALLOC, .part = 2 / 3. },
	{ .buffers = BENCH_ALLOC, .part = 1 / 3. },
}, rooted[] = {
	{ .buffers = BENCH_MALLOC, .part = 8 / 15. },
	{ .buffers = BENCH_ALLOC, .part = 4 / 15. },
	{ .buffers = BENCH_MALLOC, .in_step = true, .part = 1 / 5. },
}, rooted_tcp[] = {
	{ .buffers = BENCH_MALLOC, .part = 4 / 5. },
	{ .buffers = BENCH_MALLOC, .in_step = true, .part = 1 / 5. },
};

#define COUNT(kinds) (sizeof(kinds) / sizeof((kinds)[0]))

static bool has_root(enum bench_collective collective)
{
	return collective == BENCH_REDUCE || collective == BENCH_BROADCAST || collective == BENCH_GATHER
		|| collective == BENCH_SCATTER;
}

size_t tune_kinds(const struct tune_sweep *s, enum bench_collective collective, const struct tune_kind **kinds)
{
	if (!has_root(collective)) {
		*kinds = alike;
		return COUNT(alike);
	}
	*kinds = s->any_memory ? rooted_tcp : rooted;
	return s->any_memory ? COUNT(rooted_tcp) : COUNT(rooted);
}

/* Do ranks come to be ahead of each other? */
static bool runs_ahead(const struct bench_run *run, const struct tune_kind *kind)
{
	return has_root((enum bench_collective)run->work.collective) && !kind->in_step;
}

/* A barrier after each call; what as many barriers take alone is not counted. Near nothing is left of a call that is
 * shorter than what the barrier waits for anyway. */
static int run_in_step(struct bench_run *run, uint64_t calls, uint64_t *ns)
{
	if (bench_run_barrier(run))
		return 1;
	const int64_t begin = bench_clock_ns();
	for (uint64_t i = 0; i < calls; i++)
		if (bench_run_barrier(run))
			return 1;
	const int64_t middle = bench_clock_ns();
	for (uint64_t i = 0; i < calls; i++) {
		bench_run_next(run);
		if (bench_run_call(run) || bench_run_barrier(run))
			return 1;
	}
	const int64_t both = bench_clock_ns() - middle, barriers = middle - begin;
	*ns = (uint64_t)(both - barriers > both / 8 ? both - barriers : both / 8);
	return 0;
}

static int run_calls(struct tune_sweep *s, struct bench_run *run, const struct tune_way *way, bool in_step,
	uint64_t calls, uint64_t *ns)
{
	struct bench_times times = { 0 };
	if (in_step ? run_in_step(run, calls, ns) : bench_run_batch(run, calls, &times))
		return tune_complain(s, way->algorithm->name);
	if (!in_step)
		*ns = (uint64_t)times.elapsed_ns;
	return 0;
}

/* How many calls are in a batch: it is doubled until it takes long enough, on the slowest rank. */
static int calibrate(struct tune_sweep *s, struct bench_run *run, const struct tune_way *way,
	const struct tune_kind *kind, uint64_t *batch)
{
	const uint64_t least = way->bytes < LONG_BYTES ? 2 /* a call alone would have its memory to itself */
		: way->bytes < LONGEST_BYTES ? LONG_CALLS : LONG_CALLS / 2;
	const double wanted = s->options->manner.seconds * 0.7e9
		* (!runs_ahead(run, kind) ? 1 : s->shared_memory ? AHEAD_LENGTHS_SHM : AHEAD_LENGTHS);
	for (uint64_t calls = 1;; calls *= 2) {
		uint64_t mine, all;
		if (run_calls(s, run, way, kind->in_step, calls, &mine))
			return 1;
		if (collet_allreduce(s->side.comm, &mine, &all, 1, COLLET_U64, COLLET_MAX, NULL) != COLLET_OK)
			return tune_complain(s, "agreeing on the time");
		const bool would_do = (double)all * (double)least / (double)calls >= wanted;
		*batch = would_do && calls < least ? least : calls;
		if ((would_do || (double)all >= wanted || calls >= BENCH_ITERATIONS_MAX) && *batch >= least)
			return 0;
	}
}

/* So many calls until ranks are as far ahead as they get, or caches and connections at least in use. */
static uint64_t warm_calls(const struct tune_sweep *s, const struct tune_way *way, uint64_t calls, bool ahead)
{
	const uint64_t full = AHEAD_BYTES / (way->bytes > 0 ? way->bytes : 1);
	if (!ahead || s->shared_memory)
		return ahead ? calls : calls > 4 ? calls / 4 : 1;
	return full < calls ? calls : full < WARM_BATCHES * calls ? full : WARM_BATCHES * calls;
}

static int check(struct tune_sweep *s, struct bench_run *run, const struct tune_way *way)
{
	uint64_t wrong = 0, first = 0, all;
	if (bench_run_checked(run, &wrong, &first))
		return tune_complain(s, way->algorithm->name);
	if (collet_allreduce(s->side.comm, &wrong, &all, 1, COLLET_U64, COLLET_SUM, NULL) != COLLET_OK)
		return tune_complain(s, "adding up mistakes");
	if (all == 0)
		return 0;
	fprintf(stderr, "collet-bench: tune: %s gave %llu wrong elements\n", way->algorithm->name,
		(unsigned long long)all);
	return 1;
}

size_t tune_turns(const struct tune_sweep *s, const struct bench_run *run, size_t kind, bool last)
{
	const struct tune_kind *kinds;
	tune_kinds(s, (enum bench_collective)run->work.collective, &kinds);
	const bool is_long = runs_ahead(run, &kinds[kind])
		|| bench_bytes(&run->work, s->side.library.size, run->count) >= LONG_BYTES;
	const size_t turns = last ? TUNE_FINAL_TURNS : TUNE_TURNS;
	return is_long ? turns / 2 : turns;
}

int tune_batch(struct tune_sweep *s, struct bench_run *run, struct tune_way *way, size_t kind, size_t turn)
{
	const struct tune_kind *kinds;
	tune_kinds(s, (enum bench_collective)run->work.collective, &kinds);
	const bool ahead = runs_ahead(run, &kinds[kind]), in_step = kinds[kind].in_step;
	uint64_t untimed;
	run->call.how = tune_plan(s, &run->work, run->count, way->algorithm->name, way->piece_bytes, way->channels);
	if (!way->checked && check(s, run, way))
		return 1;
	way->checked = true;
	if (way->calls[kind] == 0 && calibrate(s, run, way, &kinds[kind], &way->calls[kind]))
		return 1;
	const uint64_t calls = way->calls[kind];
	return run_calls(s, run, way, in_step, warm_calls(s, way, calls, ahead), &untimed)
		|| run_calls(s, run, way, in_step, calls, &way->ns[kind][turn]);
}
