/* The ranks' side of tune: times every algorithm of every collective at every size.
 *
 * The machine is not the same from one second to the next: other work, clocks, cores that share a cache or do not. So
 * the algorithms of one size take turns, batch by batch; the whole sweep is gone through several times; and what counts
 * of a point is how it compares with the others of its turns (tune_polish.c). The first call of each is checked.
 *
 * Every other pass has buffers from collet_mem_alloc, and a point's time is a geometric mean of both kinds: ranks must
 * choose alike and do not know what each other's memory is, so a choice has to do for both. Ordinary buffers count
 * twice, as most callers have these: an all-reduce of 64 KiB of four ranks on two cores over shared memory takes half
 * of halves' time with direct in collet_mem_alloc memory, and twice that in any other.
 *
 * Calls back to back are another thing than two after a pause. Where there is a root, ranks run ahead until rings or
 * sockets are full, and what lies there in megabytes is no longer in a cache when it is taken out: a direct reduce of 4
 * MiB over tcp, four ranks on two cores, takes 1.6 ms for each of two calls, 2.0 for each of eight, 3.4 for each of 32
 * and 3.9 for each of a hundred. So the batches of those are long, and more goes before them untimed.
 *
 * The first two passes are for all algorithms, their messages cut in the usual way. In the others only those that may
 * be chosen go on, in the other ways to cut their messages too; in the last two only those that are close to the best
 * by then, with more turns. What the library chooses is in all of them twice, as two points: how far these are apart
 * says what the sweep's differences are worth. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collet_side.h"
#include "output.h"
#include "tune.h"
#include "tune_polish.h"

enum {
	KINDS = 2,         /* of buffers: ordinary ones, and the library's */
	PASSES = 4,        /* through the whole sweep; of each kind, one after the other */
	TURNS = 2,         /* of each algorithm, at each size, in a pass; of long calls and batches, one */
	FINALS = KINDS,    /* further passes, of those that are close to the best, */
	FINAL_TURNS = 4,   /* with so many turns each */
	BATCHES = PASSES / KINDS * TURNS + FINAL_TURNS,
	LONG_BYTES = 2 << 20,
	LONG_CALLS = 4,    /* in a batch of long calls, at least; of more than LONGEST_BYTES, half as many */
	LONGEST_BYTES = 8 << 20,
	AHEAD_LENGTHS = 8, /* where there is a root batches are so many times as long, ... */
	AHEAD_LENGTHS_SHM = 3, /* ... or so many times, over shared memory, where little lies under way, ... */
	AHEAD_BYTES = 128 << 20, /* ... after so many bytes or WARM_BATCHES batches untimed */
	WARM_BATCHES = 4,
	ALGORITHMS = 16,   /* of a collective, at most */
	POINTS = 64,       /* of a collective and size: algorithms, each in several ways */
	MOST_CHANNELS = 4,
	CHANNELS_FROM_BYTES = 1 << 20   /* of a call */
};

/* The kinds' parts in a point's time. */
static const double kind_weight[KINDS] = { 2 / 3., 1 / 3. };

/* An algorithm that takes so much longer than the best one is not looked at any further; in the end, so much. */
static const double hopeless = 1.3, close_by = 1.15;

/* One algorithm at one size, cut in one way. */
struct point {
	const collet_algorithm_info *algorithm;
	uint64_t bytes;              /* as the call has them: what divides */
	uint64_t calls;              /* in a batch */
	double predicted_ns;
	uint32_t piece_bytes, channels;
	uint32_t most_piece_bytes;   /* for which there is room */
	bool chosen;                 /* by the library, left to itself */
	bool again;                  /* the same as the chosen one, once more */
	bool hopeless;
	bool checked;
	uint64_t ns[KINDS][BATCHES]; /* of each turn's batch, on this rank; 0: it was not in it */
};

struct call_points {
	struct point point[POINTS];
	size_t count;
	double ns[POINTS];           /* of a call, as far as is known */
};

struct sweep {
	const struct bench_options *options;
	struct collet_side side;
	collet_algorithm_info algorithms[BENCH_COLLECTIVES][ALGORITHMS];
	size_t algorithm_count[BENCH_COLLECTIVES];
	uint32_t cores;              /* that the ranks have together */
	bool shared_memory;          /* where further channels have nothing to offer: one core copies for all of them */
	struct call_points *calls;   /* collective by collective, size by size */
};

static int complain(const struct sweep *s, const char *what)
{
	fprintf(stderr, "collet-bench: tune: rank %u: %s: %s\n", s->side.library.rank, what, collet_last_error());
	return 1;
}

/* How many sizes of it are measured: none, if others were named. */
static size_t sizes_of(const struct sweep *s, enum bench_collective collective)
{
	const uint32_t named = s->options->collectives;
	if (named != 0 && (named >> collective & 1) == 0)
		return 0;
	return bench_collective_takes_bytes(collective) ? s->options->sizes.count : 1;
}

static struct call_points *points_at(const struct sweep *s, enum bench_collective collective, size_t size)
{
	return &s->calls[(size_t)collective * BENCH_SIZES_MAX + size];
}

static bool runs_ahead(enum bench_collective collective)
{
	return collective == BENCH_REDUCE || collective == BENCH_BROADCAST || collective == BENCH_GATHER
		|| collective == BENCH_SCATTER;
}

/* Doubles a batch until it takes long enough, on the slowest rank. */
static int calibrate(struct sweep *s, struct bench_run *run, struct point *point)
{
	const uint64_t least = point->bytes < LONG_BYTES ? 2 /* a call alone would have its memory to itself */
		: point->bytes < LONGEST_BYTES ? LONG_CALLS : LONG_CALLS / 2;
	const bool ahead = runs_ahead((enum bench_collective)run->work.collective);
	const double wanted = s->options->manner.seconds * 0.7e9
		* (!ahead ? 1 : s->shared_memory ? AHEAD_LENGTHS_SHM : AHEAD_LENGTHS);
	for (uint64_t calls = 1;; calls *= 2) {
		struct bench_times times;
		if (bench_run_batch(run, calls, &times))
			return complain(s, point->algorithm->name);
		const uint64_t mine = (uint64_t)times.elapsed_ns;
		uint64_t all;
		if (collet_allreduce(s->side.comm, &mine, &all, 1, COLLET_U64, COLLET_MAX, NULL) != COLLET_OK)
			return complain(s, "agreeing on the time");
		const bool would_do = (double)all * (double)least / (double)calls >= wanted;
		point->calls = would_do && calls < least ? least : calls;
		if ((would_do || (double)all >= wanted || calls >= BENCH_ITERATIONS_MAX) && point->calls >= least)
			return 0;
	}
}

static int check(struct sweep *s, struct bench_run *run, const struct point *point)
{
	uint64_t wrong = 0, first = 0, all;
	if (bench_run_checked(run, &wrong, &first))
		return complain(s, point->algorithm->name);
	if (collet_allreduce(s->side.comm, &wrong, &all, 1, COLLET_U64, COLLET_SUM, NULL) != COLLET_OK)
		return complain(s, "adding up mistakes");
	if (all == 0)
		return 0;
	fprintf(stderr, "collet-bench: tune: %s gave %llu wrong elements\n", point->algorithm->name,
		(unsigned long long)all);
	return 1;
}

/* The plan for an algorithm (NULL: the library's choice), cut like this (0: as chosen). */
static const void *plan(struct sweep *s, const struct bench_work *work, uint64_t count, const char *algorithm,
	uint32_t piece_bytes, uint32_t channels)
{
	s->side.piece_bytes = piece_bytes;
	s->side.channels = channels;
	return collet_side_plan(&s->side, work, count, algorithm);
}

static uint32_t fitting(uint32_t piece_bytes, uint32_t most)
{
	return piece_bytes < most ? piece_bytes : most;
}

/* One more way to cut what `like` is; it runs from the next pass on. */
static struct point *add_way(
	struct call_points *call, const struct point *like, uint32_t piece_bytes, uint32_t channels)
{
	if (call->count == POINTS)
		return NULL;
	struct point *point = &call->point[call->count++];
	*point = (struct point){ .algorithm = like->algorithm, .bytes = like->bytes, .calls = like->calls,
		.predicted_ns = like->predicted_ns, .piece_bytes = piece_bytes, .channels = channels,
		.most_piece_bytes = like->most_piece_bytes };
	return point;
}

/* Which algorithms there are for this size, and which the library would take, and how. */
static void look(struct sweep *s, const struct bench_work *work, uint64_t count, struct call_points *call)
{
	const enum bench_collective collective = (enum bench_collective)work->collective;
	plan(s, work, count, NULL, 0, 0);
	const collet_plan chosen = s->side.plan;
	s->cores = chosen.cores;
	s->shared_memory = strcmp(chosen.transport, "shm") == 0;
	call->count = 0;
	for (size_t a = 0; a < s->algorithm_count[collective]; a++) {
		const collet_algorithm_info *info = &s->algorithms[collective][a];
		plan(s, work, count, info->name, 0, 0);
		const collet_plan own = s->side.plan;
		if (own.algorithm == NULL || own.predicted_ns < 0)
			continue;
		const bool is_chosen = chosen.algorithm != NULL && strcmp(chosen.algorithm, info->name) == 0;
		const bool is_usual = own.channels == 1
			&& own.piece_bytes == fitting(TUNE_USUAL_PIECE, own.most_piece_bytes);
		const uint64_t bytes = bench_bytes(work, s->side.library.size, count);
		struct point *usual = &call->point[call->count++];
		*usual = (struct point){ .algorithm = info, .bytes = bytes, .predicted_ns = own.predicted_ns,
			.piece_bytes = TUNE_USUAL_PIECE, .channels = 1, .most_piece_bytes = own.most_piece_bytes };
		const bool is_cut = bytes > TUNE_LEAST_PIECE;
		usual->chosen = is_chosen && (is_usual || !is_cut);
		if (!is_chosen || is_usual || !is_cut)
			continue;
		const bool is_whole = own.piece_bytes == fitting(TUNE_USUAL_PIECE, own.most_piece_bytes);
		struct point *other =
			add_way(call, usual, is_whole ? TUNE_USUAL_PIECE : own.piece_bytes, own.channels);
		if (other != NULL)
			other->chosen = true;
	}
	for (size_t i = 0; i < call->count; i++) {
		if (!call->point[i].chosen || call->count == POINTS)
			continue;
		struct point *again = &call->point[call->count++];
		*again = call->point[i];
		again->chosen = false;
		again->again = true;
		break;
	}
}

/* After the first passes: who goes on, and in which ways. */
static void add_ways(const struct sweep *s, struct call_points *call)
{
	const size_t usual = call->count;
	for (size_t i = 0; i < usual; i++) {
		const struct point *p = &call->point[i];
		/* The library's own way, if it is another, is there already. */
		const struct point *own = i + 1 < usual && p[1].algorithm == p->algorithm && !p[1].again ? p + 1 : NULL;
		if (p->hopeless || p->again || p->piece_bytes != TUNE_USUAL_PIECE || p->channels != 1
			|| p->bytes <= TUNE_LEAST_PIECE)
			continue;
		for (uint32_t piece = TUNE_USUAL_PIECE / 4; piece >= TUNE_LEAST_PIECE; piece /= 4)
			if (piece < p->most_piece_bytes && piece < p->bytes
				&& !(own != NULL && own->piece_bytes == piece && own->channels == 1))
				add_way(call, p, piece, 1);
		for (uint32_t channels = 2; p->algorithm->pieced && !s->shared_memory && channels <= MOST_CHANNELS;
			channels *= 2)
			if (p->bytes >= CHANNELS_FROM_BYTES
				&& !(own != NULL && own->piece_bytes == TUNE_USUAL_PIECE && own->channels == channels))
				add_way(call, p, TUNE_USUAL_PIECE, channels);
	}
}

/* What each point takes by all turns so far. All ranks come to the same. */
static int settle(const struct sweep *s, struct call_points *call)
{
	uint64_t mine[KINDS][POINTS * BATCHES], all[KINDS][POINTS * BATCHES];
	double each[POINTS * BATCHES], ns[POINTS];
	for (uint32_t kind = 0; kind < KINDS; kind++)
		for (size_t i = 0; i < call->count; i++)
			memcpy(&mine[kind][i * BATCHES], call->point[i].ns[kind], sizeof(call->point[i].ns[kind]));
	for (size_t i = 0; i < call->count; i++)
		call->ns[i] = 1;
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		if (collet_allreduce(s->side.comm, mine[kind], all[kind], call->count * BATCHES, COLLET_U64, COLLET_MAX,
				NULL) != COLLET_OK)
			return complain(s, "collecting the times");
		for (size_t i = 0; i < call->count * BATCHES; i++)
			each[i] = (double)all[kind][i] / (double)call->point[i / BATCHES].calls;
		if (!tune_polish(each, call->count, BATCHES, ns)) {
			fprintf(stderr, "collet-bench: tune: no memory\n");
			return 1;
		}
		for (size_t i = 0; i < call->count; i++)
			call->ns[i] *= pow(ns[i], kind_weight[kind]);
	}
	return 0;
}

static double best_of(const struct call_points *call)
{
	double best = INFINITY;
	for (size_t i = 0; i < call->count; i++)
		best = call->ns[i] < best ? call->ns[i] : best;
	return best;
}

/* After the first passes: whose times are beyond hope. All ranks judge alike. */
static int narrow(struct sweep *s, struct call_points *call)
{
	if (settle(s, call))
		return 1;
	for (size_t i = 0; i < call->count; i++) {
		struct point *p = &call->point[i];
		p->hopeless = call->ns[i] > hopeless * best_of(call) && !p->chosen && !p->again;
	}
	add_ways(s, call);
	return 0;
}

/* Before the last passes: who is close to the best, or the library's choice; nobody if that is one alone. */
static int pick_finalists(struct sweep *s, struct call_points *call)
{
	size_t finalists = 0;
	if (settle(s, call))
		return 1;
	for (size_t i = 0; i < call->count; i++) {
		struct point *p = &call->point[i];
		p->hopeless |= call->ns[i] > close_by * best_of(call) && !p->chosen && !p->again;
		finalists += !p->hopeless && !p->again;
	}
	for (size_t i = 0; finalists < 2 && i < call->count; i++)
		call->point[i].hopeless = true;
	return 0;
}

/* So many calls until ranks are as far ahead as they get, or caches and connections at least in use. */
static uint64_t warm_calls(const struct sweep *s, const struct point *point, bool ahead)
{
	const uint64_t full = AHEAD_BYTES / (point->bytes > 0 ? point->bytes : 1);
	if (!ahead || s->shared_memory)
		return ahead ? point->calls : point->calls > 4 ? point->calls / 4 : 1;
	return full < point->calls ? point->calls
		: full < WARM_BATCHES * point->calls ? full : WARM_BATCHES * point->calls;
}

static int take_turns(struct sweep *s, struct bench_run *run, struct call_points *call, uint32_t pass)
{
	const uint32_t kind = pass % KINDS;
	const bool ahead = runs_ahead((enum bench_collective)run->work.collective);
	const bool is_long = bench_bytes(&run->work, s->side.library.size, run->count) >= LONG_BYTES;
	const size_t turns = pass >= PASSES ? FINAL_TURNS : ahead || is_long ? 1 : TURNS;
	const size_t before = (pass < PASSES ? pass : PASSES) / KINDS * TURNS;
	for (size_t turn = 0; turn < turns; turn++) {
		for (size_t i = 0; i < call->count; i++) {
			/* The order moves on, so that nobody always follows the same one. */
			struct point *point = &call->point[(i + turn + pass) % call->count];
			struct bench_times times;
			if (point->hopeless)
				continue;
			run->call.how = plan(s, &run->work, run->count, point->algorithm->name, point->piece_bytes,
				point->channels);
			if (!point->checked && check(s, run, point))
				return 1;
			point->checked = true;
			if (point->calls == 0 && calibrate(s, run, point))
				return 1;
			if (bench_run_batch(run, warm_calls(s, point, ahead), &times)
				|| bench_run_batch(run, point->calls, &times))
				return complain(s, point->algorithm->name);
			point->ns[kind][before + turn] = (uint64_t)times.elapsed_ns;
		}
	}
	return 0;
}

static bool is_over(const struct call_points *call)
{
	for (size_t i = 0; i < call->count; i++)
		if (!call->point[i].hopeless)
			return false;
	return true;
}

static int measure_size(struct sweep *s, enum bench_collective collective, size_t size, uint32_t pass)
{
	const enum bench_buffer_kind kinds[KINDS] = { BENCH_MALLOC, BENCH_ALLOC };
	const struct bench_work work = { .collective = collective, .dtype = COLLET_F32, .op = COLLET_SUM };
	const uint64_t count = bench_count(&work, s->side.library.size, s->options->sizes.bytes[size]);
	struct call_points *call = points_at(s, collective, size);
	struct bench_run run;
	if (pass == 0)
		look(s, &work, count, call);
	if ((pass == KINDS && narrow(s, call)) || (pass == PASSES && pick_finalists(s, call)))
		return 1;
	if (is_over(call))
		return 0;
	const char *problem = bench_run_init(&run, &s->side.library, &work, count, kinds[pass % KINDS], false, NULL);
	if (problem != NULL) {
		fprintf(stderr, "collet-bench: tune: %s\n", problem);
		return 1;
	}
	const int failed = take_turns(s, &run, call, pass);
	bench_run_deinit(&run);
	return failed;
}

/* Rank 0 prints: algorithm by algorithm, the usual way first. */
static int report(struct sweep *s, enum bench_collective collective, size_t size)
{
	struct call_points *call = points_at(s, collective, size);
	double chosen = 0, again = 0;
	if (settle(s, call))
		return 1;
	if (s->side.library.rank != 0)
		return 0;
	for (size_t i = 0; i < call->count; i++) {
		chosen = call->point[i].chosen ? call->ns[i] : chosen;
		again = call->point[i].again ? call->ns[i] : again;
	}
	if (chosen > 0 && again > 0)
		printf("again %.4f\n", again / chosen);
	for (size_t a = 0; a < s->algorithm_count[collective]; a++) {
		for (size_t i = 0; i < call->count; i++) {
			const struct point *p = &call->point[i];
			if (p->algorithm == &s->algorithms[collective][a] && !p->again)
				printf("point %s %s %zu %llu %u %u %.2f %.2f %d\n", bench_collective_name(collective),
					p->algorithm->name, size, (unsigned long long)p->bytes, p->piece_bytes,
					p->channels, call->ns[i], p->predicted_ns, p->chosen);
		}
	}
	return 0;
}

static int run_sweep(struct sweep *s)
{
	for (uint32_t pass = 0; pass < PASSES + FINALS; pass++)
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
	s.calls = calloc((size_t)BENCH_SENDRECV * BENCH_SIZES_MAX, sizeof(s.calls[0]));
	if (s.calls != NULL)
		status = run_sweep(&s);
	free(s.calls);
out:
	collet_side_deinit(&s.side);
	return status;
}
