/* The ranks' side of tune: times every algorithm of every collective at every size.
 *
 * The machine is not the same from one second to the next: other work, clocks, cores that share a cache or do not. So
 * the algorithms of one size take turns, batch by batch; the whole sweep is gone through several times; and what counts
 * of a point is the lower quartile of all its batches: of a machine that has two speeds the median is now the one, now
 * the other, and what else runs only ever makes it slower. The first call of each is checked.
 *
 * Every other pass has buffers from collet_mem_alloc, and a point's time is the geometric mean of both kinds: ranks
 * must choose alike and do not know what each other's memory is, so a choice has to do for both. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collet_side.h"
#include "output.h"
#include "tune.h"

enum {
	KINDS = 2,         /* of buffers: ordinary ones, and the library's */
	PASSES = 6,        /* through the whole sweep; of each kind, one after the other */
	TURNS = 2,         /* of each algorithm, at each size, in a pass; of long calls, one */
	BATCHES = PASSES / KINDS * TURNS,
	LONG_BYTES = 2 << 20,
	ALGORITHMS = 16    /* of a collective, at most */
};

/* One algorithm at one size. */
struct point {
	const char *algorithm;
	uint64_t bytes;              /* as the call has them: what divides */
	uint64_t calls;              /* in a batch; 0: it cannot do this call */
	double predicted_ns;
	uint32_t piece_bytes;
	bool chosen;                 /* by the library, left to itself */
	uint32_t batches[KINDS];
	uint64_t ns[KINDS][BATCHES]; /* of a batch, on this rank; at the end, on the slowest */
};

struct sweep {
	const struct bench_options *options;
	struct collet_side side;
	collet_algorithm_info algorithms[BENCH_COLLECTIVES][ALGORITHMS];
	size_t algorithm_count[BENCH_COLLECTIVES];
	uint32_t cores;              /* that the ranks have together */
	struct point *points;        /* collective by collective, size by size, algorithm by algorithm */
};

static int complain(const struct sweep *s, const char *what)
{
	fprintf(stderr, "collet-bench: tune: rank %u: %s: %s\n", s->side.library.rank, what, collet_last_error());
	return 1;
}

static size_t sizes_of(const struct sweep *s, enum bench_collective collective)
{
	return bench_collective_takes_bytes(collective) ? s->options->sizes.count : 1;
}

static struct point *points_at(const struct sweep *s, enum bench_collective collective, size_t size)
{
	return &s->points[((size_t)collective * BENCH_SIZES_MAX + size) * ALGORITHMS];
}

/* Doubles a batch until it takes long enough, on the slowest rank. The first call is checked. */
static int calibrate(struct sweep *s, struct bench_run *run, struct point *point)
{
	uint64_t wrong = 0, first = 0, all;
	if (bench_run_checked(run, &wrong, &first))
		return complain(s, point->algorithm);
	if (collet_allreduce(s->side.comm, &wrong, &all, 1, COLLET_U64, COLLET_SUM, NULL) != COLLET_OK)
		return complain(s, "adding up mistakes");
	if (all > 0) {
		fprintf(stderr, "collet-bench: tune: %s gave %llu wrong elements\n", point->algorithm,
			(unsigned long long)all);
		return 1;
	}
	for (uint64_t calls = 1;; calls *= 2) {
		struct bench_times times;
		if (bench_run_batch(run, calls, &times))
			return complain(s, point->algorithm);
		const uint64_t mine = (uint64_t)times.elapsed_ns;
		if (collet_allreduce(s->side.comm, &mine, &all, 1, COLLET_U64, COLLET_MAX, NULL) != COLLET_OK)
			return complain(s, "agreeing on the time");
		point->calls = calls;
		/* At least two: a call alone would have its memory to itself. */
		if (calls > 1 && ((double)all >= s->options->manner.seconds * 0.7e9 || calls >= BENCH_ITERATIONS_MAX))
			return 0;
	}
}

/* Which algorithms there are for this size, and which the library would take. */
static void look(struct sweep *s, const struct bench_work *work, uint64_t count, struct point *points)
{
	const enum bench_collective collective = (enum bench_collective)work->collective;
	collet_side_plan(&s->side, work, count, NULL);
	s->cores = s->side.plan.cores;
	const char *chosen = s->side.plan.algorithm;
	for (size_t a = 0; a < s->algorithm_count[collective]; a++) {
		const char *name = s->algorithms[collective][a].name;
		collet_side_plan(&s->side, work, count, name);
		points[a].algorithm = name;
		points[a].bytes = bench_bytes(work, s->side.library.size, count);
		points[a].predicted_ns = s->side.plan.predicted_ns;
		points[a].piece_bytes = s->side.plan.piece_bytes;
		points[a].chosen = chosen != NULL && strcmp(chosen, name) == 0;
	}
}

static int take_turns(struct sweep *s, struct bench_run *run, struct point *points, uint32_t pass)
{
	const uint32_t kind = pass % KINDS;
	const enum bench_collective collective = (enum bench_collective)run->work.collective;
	const size_t count = s->algorithm_count[collective];
	const size_t turns = bench_bytes(&run->work, s->side.library.size, run->count) < LONG_BYTES ? TURNS : 1;
	for (size_t turn = 0; turn < turns; turn++) {
		for (size_t i = 0; i < count; i++) {
			/* The order moves on, so that nobody always follows the same one. */
			struct point *point = &points[(i + turn) % count];
			struct bench_times times;
			run->call.how = collet_side_plan(&s->side, &run->work, run->count, point->algorithm);
			if (s->side.plan.algorithm == NULL || s->side.plan.predicted_ns < 0)
				continue;
			if (pass == 0 && turn == 0 && calibrate(s, run, point))
				return 1;
			if (bench_run_batch(run, point->calls, &times))
				return complain(s, point->algorithm);
			point->ns[kind][point->batches[kind]++] = (uint64_t)times.elapsed_ns;
		}
	}
	return 0;
}

static int measure_size(struct sweep *s, enum bench_collective collective, size_t size, uint32_t pass)
{
	const enum bench_buffer_kind kinds[KINDS] = { BENCH_MALLOC, BENCH_ALLOC };
	const struct bench_work work = { .collective = collective, .dtype = COLLET_F32, .op = COLLET_SUM };
	const uint64_t count = bench_count(&work, s->side.library.size, s->options->sizes.bytes[size]);
	struct point *points = points_at(s, collective, size);
	struct bench_run run;
	if (pass == 0)
		look(s, &work, count, points);
	const char *problem = bench_run_init(&run, &s->side.library, &work, count, kinds[pass % KINDS], false, NULL);
	if (problem != NULL) {
		fprintf(stderr, "collet-bench: tune: %s\n", problem);
		return 1;
	}
	const int failed = take_turns(s, &run, points, pass);
	bench_run_deinit(&run);
	return failed;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The slowest rank's batches of a kind, then their lower quartile. */
static int quartile(struct sweep *s, struct point *p, uint32_t kind, uint64_t *ns)
{
	uint64_t slowest[BATCHES];
	if (collet_allreduce(s->side.comm, p->ns[kind], slowest, p->batches[kind], COLLET_U64, COLLET_MAX, NULL)
		!= COLLET_OK)
		return complain(s, "collecting the times");
	qsort(slowest, p->batches[kind], sizeof(slowest[0]), by_value);
	*ns = slowest[p->batches[kind] / 4];
	return 0;
}

/* Rank 0 prints. */
static int report(struct sweep *s, enum bench_collective collective, size_t size)
{
	struct point *points = points_at(s, collective, size);
	for (size_t a = 0; a < s->algorithm_count[collective]; a++) {
		struct point *p = &points[a];
		uint64_t ns[KINDS];
		if (p->batches[0] == 0)
			continue;
		for (uint32_t kind = 0; kind < KINDS; kind++)
			if (quartile(s, p, kind, &ns[kind]))
				return 1;
		if (s->side.library.rank == 0)
			printf("point %s %s %zu %llu %u %.2f %.2f %d\n", bench_collective_name(collective),
				p->algorithm, size, (unsigned long long)p->bytes, p->piece_bytes,
				sqrt((double)ns[0] * (double)ns[1]) / (double)p->calls, p->predicted_ns, p->chosen);
	}
	return 0;
}

static int run_sweep(struct sweep *s)
{
	for (uint32_t pass = 0; pass < PASSES; pass++)
		for (uint32_t c = 0; c < BENCH_SENDRECV; c++)
			for (size_t i = 0; i < sizes_of(s, (enum bench_collective)c); i++)
				if (measure_size(s, (enum bench_collective)c, i, pass))
					return 1;
	if (s->side.library.rank == 0)
		printf("cores %u\n", s->cores);
	for (uint32_t c = 0; c < BENCH_SENDRECV; c++)
		for (size_t i = 0; i < sizes_of(s, (enum bench_collective)c); i++)
			if (report(s, (enum bench_collective)c, i))
				return 1;
	return 0;
}

int bench_tune_rank(const struct bench_options *options, const char *transport)
{
	struct sweep s = { .options = options };
	int status = 1;
	if (collet_side_init(&s.side, transport) != COLLET_OK) {
		fprintf(stderr, "collet-bench: tune: creating the communicator: %s\n", collet_last_error());
		return 1;
	}
	for (uint32_t c = 0; c < BENCH_SENDRECV; c++)
		if (collet_algorithm_list(bench_collective_name((enum bench_collective)c), s.algorithms[c], ALGORITHMS,
				&s.algorithm_count[c]) != COLLET_OK || s.algorithm_count[c] > ALGORITHMS)
			goto out;
	s.points = calloc((size_t)BENCH_SENDRECV * BENCH_SIZES_MAX * ALGORITHMS, sizeof(s.points[0]));
	if (s.points != NULL)
		status = run_sweep(&s);
	free(s.points);
out:
	collet_side_deinit(&s.side);
	return status;
}
