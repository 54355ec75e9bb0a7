/* Runs the ranks of `tune limits`. A communicator has the limits of its tuning, so two are created: one with limits
 * above all measured sizes, one with limits below. They take turns, batch by batch, at each call and size, with the
 * library's choice of algorithm. As everywhere in tune, buffers of collet_mem_alloc count besides ordinary ones
 * (tune_batch.c). To tcp all memory is alike. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/output.h"
#include "tune.h"
#include "tune_limits.h"
#include "tune_polish.h"
#include "tune_sweep.h"

enum {
	SIDES = 2,
	TURNS = 8,
	LENGTHS_AHEAD = 4   /* where ranks run ahead of each other batches are so much longer */
};

struct both {
	const struct bench_options *options;
	struct collet_library collet[SIDES];   /* at once; otherwise */
};

static int complain(const struct both *both, const char *what)
{
	fprintf(stderr, "collet-bench: tune: rank %u: %s: %s\n", both->collet[0].library.rank, what,
		collet_last_error());
	return 1;
}

static int connect_ranks(struct both *both, const char *transport, const char *folder)
{
	for (unsigned k = 0; k < SIDES; k++) {
		char tuning[TUNE_PATH_BYTES];
		snprintf(tuning, sizeof(tuning), "%s/%s", folder, k == 0 ? TUNE_FILE_ONCE : TUNE_FILE_OTHERWISE);
		setenv("COLLET_TUNING", tuning, 1);
		if (tune_connect(&both->collet[k], transport, k))
			return 1;
	}
	return 0;
}

static int check(const struct both *both, struct bench_run *run)
{
	uint64_t wrong = 0, first = 0, all;
	const char *name = bench_collective_name((enum bench_collective)run->work.collective);
	if (bench_run_checked(run, &wrong, &first)
		|| collet_allreduce(both->collet[0].comm, &wrong, &all, 1, COLLET_U64, COLLET_SUM, NULL) != COLLET_OK)
		return complain(both, name);
	if (all == 0)
		return 0;
	fprintf(stderr, "collet-bench: tune: %s gave %llu wrong elements\n", name, (unsigned long long)all);
	return 1;
}

/* Finds out how many calls are in a batch, the same for both. */
static int calibrate(const struct both *both, struct bench_run *run, uint64_t *calls)
{
	const double lengths = tune_runs_ahead((enum bench_collective)run->work.collective) ? LENGTHS_AHEAD : 1;
	for (*calls = 1;; *calls *= 2) {
		uint64_t ns;
		if (tune_run_amid(both->collet[0].comm, run, *calls, &ns))
			return complain(both, "a batch");
		const uint64_t fit =
			bench_iterations_for(lengths * both->options->mode.seconds, *calls, (int64_t)ns);
		if (fit > 2 * *calls && *calls < BENCH_ITERATIONS_MAX)
			continue;
		*calls = fit > 2 ? fit : 2;
		return 0;
	}
}

/* Turn by turn; adds what a call takes to the logarithms. */
static int take_turns(const struct both *both, struct bench_run run[SIDES], double part, double logs[SIDES])
{
	uint64_t calls, ns[SIDES];
	double first[TURNS], ratio[TURNS];
	for (int k = 0; k < SIDES; k++)
		if (check(both, &run[k]))
			return 1;
	if (calibrate(both, &run[0], &calls))
		return 1;
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		for (uint32_t i = 0; i < SIDES; i++) {
			const uint32_t k = (i + turn) % SIDES;
			if (tune_run_amid(both->collet[k].comm, &run[k], calls, &ns[k]))
				return complain(both, "a batch");
		}
		first[turn] = log((double)ns[0] / (double)calls);
		ratio[turn] = log((double)ns[1] / (double)ns[0]);
	}
	const double once = tune_median(first, TURNS);
	logs[0] += part * once;
	logs[1] += part * (once + tune_median(ratio, TURNS));
	return 0;
}

static int measure_kind(struct both *both, const struct bench_work *work, uint64_t count, const struct tune_kind *kind,
	double logs[SIDES])
{
	struct bench_run run[SIDES] = { 0 };
	const char *problem = NULL;
	for (int k = 0; k < SIDES && problem == NULL; k++)
		problem = bench_run_init(&run[k], &both->collet[k].library, work, count, kind->buffers, false, NULL);
	if (problem != NULL)
		fprintf(stderr, "collet-bench: tune: %s\n", problem);
	const int failed = problem != NULL || take_turns(both, run, kind->part, logs);
	for (int k = 0; k < SIDES; k++)
		bench_run_deinit(&run[k]);
	return failed;
}

static int measure(struct both *both, enum bench_collective collective, uint64_t bytes)
{
	const struct bench_work work = { .collective = collective, .dtype = COLLET_F32, .op = COLLET_SUM };
	const uint32_t ranks = both->collet[0].library.size;
	const uint64_t count = bench_count(&work, ranks, bytes);
	const struct tune_kind *kinds;
	double logs[SIDES] = { 0 };
	collet_library_plan(&both->collet[0], &work, count, NULL);
	const bool any_memory = strcmp(both->collet[0].plan.transport, "tcp") == 0;
	const size_t kind_count = tune_kinds(any_memory, &kinds);
	if (collective == BENCH_ALLREDUCE && both->collet[0].library.rank == 0)
		printf("cores %u\n", both->collet[0].plan.cores);
	for (size_t i = 0; i < kind_count; i++)
		if (measure_kind(both, &work, count, &kinds[i], logs))
			return 1;
	if (both->collet[0].library.rank == 0)
		printf("limit %s %llu %.2f %.2f\n", bench_collective_name(collective),
			(unsigned long long)bench_bytes(&work, ranks, count), exp(logs[0]), exp(logs[1]));
	return 0;
}

int bench_tune_limits_rank(const struct bench_options *options, const char *transport, const char *folder)
{
	struct both both = { .options = options };
	int failed = connect_ranks(&both, transport, folder);
	for (uint64_t bytes = TUNE_LIMIT_LEAST; !failed && bytes <= TUNE_LIMIT_MOST; bytes *= 2)
		for (uint32_t c = 0; !failed && c < BENCH_COLLECTIVES; c++)
			if (bench_collective_takes_bytes((enum bench_collective)c))
				failed = measure(&both, (enum bench_collective)c, bytes);
	for (int k = 0; k < SIDES; k++)
		collet_library_deinit(&both.collet[k]);
	return failed;
}
