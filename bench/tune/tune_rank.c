/* Runs the ranks of tune: times every algorithm of every collective at every size.
 *
 * The machine changes from one second to the next: other load, clocks, cores that share a cache or not. So the
 * algorithms of a size take turns, batch by batch, and the whole sweep runs several times. A point counts by its ratio
 * to the others of its turns (tune_polish.c). The first call of each candidate is checked.
 *
 * The first pass times all algorithms with the usual cut of messages. The second times only plausible choices, with
 * other cuts too. The third times only those close to the best by then, with more turns. From then on, if the best
 * one's pieces are shorter or longer than usual, still shorter or longer ones are tried. The library's choice takes
 * part twice, as two points: their difference shows the noise of the sweep.
 *
 * Further passes time the candidates that may still be best, until each is told apart from the best (tune_verdict.c)
 * or the passes end. At most sizes three passes suffice; at the others two candidates are left. The question is
 * whether another algorithm is faster than the best one by a relevant margin. With --check it is whether one is
 * faster than the library's choice by more than the allowed margin. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/output.h"
#include "tune.h"
#include "tune_verdict.h"
#include "tune_fit.h"
#include "tune_polish.h"
#include "tune_sweep.h"

/* An algorithm this many times slower than the best one is eliminated: first value early, second value late. */
static const double hopeless = 1.3, close_by = 1.15;

/* Two algorithms that differ by less are equally good. */
static const double as_good = 1.04;

int tune_complain(const struct tune_sweep *s, const char *what)
{
	fprintf(stderr, "collet-bench: tune: rank %u: %s: %s\n", s->collet.library.rank, what, collet_last_error());
	return 1;
}

/* Returns how many sizes of it are measured: none, if others were named. */
static size_t sizes_of(const struct tune_sweep *s, enum bench_collective collective)
{
	if ((s->options->collectives >> collective & 1) == 0)
		return 0;
	return bench_collective_takes_bytes(collective) ? s->options->sizes.count : 1;
}

static struct tune_call *call_at(const struct tune_sweep *s, enum bench_collective collective, size_t size)
{
	return &s->calls[(size_t)collective * COLLET_TUNING_SIZES + size];
}

/* Batches of calls with a root are long, and to tcp all memory is alike. */
static size_t kinds_of(
	const struct tune_sweep *s, enum bench_collective collective, const struct tune_kind **kinds)
{
	return tune_kinds(s->any_memory && tune_runs_ahead(collective), kinds);
}

/* Computes each candidate's time from all turns so far. All ranks get the same times. */
static int combine_times(const struct tune_sweep *s, enum bench_collective collective, struct tune_call *call)
{
	uint64_t mine[TUNE_CANDIDATES * TUNE_BATCHES], all[TUNE_CANDIDATES * TUNE_BATCHES];
	double each[TUNE_CANDIDATES * TUNE_BATCHES], ns[TUNE_CANDIDATES];
	const struct tune_kind *kinds;
	const size_t kind_count = kinds_of(s, collective, &kinds);
	for (size_t i = 0; i < call->count; i++)
		call->ns[i] = 1;
	for (size_t kind = 0; kind < kind_count; kind++) {
		for (size_t i = 0; i < call->count; i++)
			memcpy(&mine[i * TUNE_BATCHES], call->candidate[i].ns[kind],
				sizeof(call->candidate[i].ns[kind]));
		if (collet_allreduce(s->collet.comm, mine, all, call->count * TUNE_BATCHES, COLLET_U64, COLLET_MAX,
			    NULL) != COLLET_OK)
			return tune_complain(s, "collecting the times");
		for (size_t i = 0; i < call->count * TUNE_BATCHES; i++)
			each[i] =
				all[i] > 0 ? (double)all[i] / (double)call->candidate[i / TUNE_BATCHES].calls[kind] : 0;
		for (size_t i = 0; i < call->count; i++)
			memcpy(call->candidate[i].ns[kind], &all[i * TUNE_BATCHES],
				sizeof(call->candidate[i].ns[kind]));
		if (!tune_polish(each, call->count, TUNE_BATCHES, ns)) {
			fprintf(stderr, "collet-bench: tune: no memory\n");
			return 1;
		}
		for (size_t i = 0; i < call->count; i++)
			call->ns[i] *= pow(ns[i], kinds[kind].part);
	}
	return 0;
}

/* The fastest of those that take part, but for the double. */
static size_t best_of(const struct tune_call *call)
{
	size_t best = 0;
	for (size_t i = 1; i < call->count; i++)
		if (call->ns[i] < call->ns[best] && !call->candidate[i].repeat)
			best = i;
	return best;
}

/* Eliminates candidates that are too slow; the library's choice and its repetition stay. */
static void drop_slow(struct tune_call *call, double most)
{
	const double best = call->ns[best_of(call)];
	for (size_t i = 0; i < call->count; i++)
		call->candidate[i].eliminated |=
			call->ns[i] > most * best && !call->candidate[i].chosen && !call->candidate[i].repeat;
}

/* Nobody has to be measured against himself. */
static void drop_last(struct tune_call *call)
{
	size_t left = 0;
	for (size_t i = 0; i < call->count; i++)
		left += !call->candidate[i].eliminated && !call->candidate[i].repeat;
	for (size_t i = 0; left < 2 && i < call->count; i++)
		call->candidate[i].eliminated = true;
}

/* Returns the standard error of the ratio of two candidates, over all kinds of buffers. */
static double standard_error_of(const struct tune_sweep *s, enum bench_collective collective,
	const struct tune_candidate *a, const struct tune_candidate *b)
{
	const struct tune_kind *kinds;
	const size_t kind_count = kinds_of(s, collective, &kinds);
	double squares = 0, of_a[TUNE_BATCHES], of_b[TUNE_BATCHES];
	for (size_t kind = 0; kind < kind_count; kind++) {
		for (size_t k = 0; k < TUNE_BATCHES; k++) {
			of_a[k] = (double)a->ns[kind][k];
			of_b[k] = (double)b->ns[kind][k];
		}
		const double standard_error = kinds[kind].part * tune_standard_error(of_a, of_b, TUNE_BATCHES);
		squares += standard_error * standard_error;
	}
	return sqrt(squares);
}

/* Returns true while a candidate may be faster than `than` by more than the limit. `than` is the best one, or the
 * choice that is judged. Eliminates the candidates that are decided. */
static void drop_decided(const struct tune_sweep *s, enum bench_collective collective, struct tune_call *call)
{
	const bool judging = s->options->check;
	size_t than = best_of(call);
	for (size_t i = 0; judging && i < call->count; i++)
		than = call->candidate[i].chosen ? i : than;
	const double most = log(judging ? TUNE_BAD_CHOICE : as_good);
	bool wrong = false, open = false;
	for (size_t i = 0; i < call->count; i++) {
		struct tune_candidate *candidate = &call->candidate[i];
		if (i == than || candidate->eliminated)
			continue;
		const enum tune_verdict verdict = tune_verdict(log(call->ns[than] / call->ns[i]),
			standard_error_of(s, collective, candidate, &call->candidate[than]), most);
		wrong |= verdict == TUNE_BEYOND && !candidate->repeat;
		candidate->eliminated = verdict != TUNE_OPEN || candidate->repeat;
		open |= !candidate->eliminated;
	}
	call->undecided = open && !wrong;
	for (size_t i = 0; !call->undecided && i < call->count; i++)
		call->candidate[i].eliminated = true;
}

/* Before a stage's turns: who takes part. All ranks judge alike. */
static int select_candidates(
	struct tune_sweep *s, enum bench_collective collective, struct tune_call *call, uint32_t stage)
{
	if (stage == 0)
		return 0;
	if (combine_times(s, collective, call))
		return 1;
	if (stage < TUNE_PASSES) {
		drop_slow(call, hopeless);
		tune_add_candidates(s, call);
	} else if (stage == TUNE_PASSES) {
		drop_slow(call, close_by);
		drop_last(call);
	} else {
		drop_decided(s, collective, call);
	}
	if (stage >= TUNE_PASSES && stage < TUNE_STAGES)
		tune_extend(call, best_of(call));
	return 0;
}

static int take_turns(struct tune_sweep *s, struct bench_run *run, struct tune_call *call, uint32_t stage, size_t kind)
{
	const size_t turns = tune_turns(s, run, stage >= TUNE_PASSES);
	const size_t before = stage < TUNE_PASSES ? stage * TUNE_TURNS
		: TUNE_PASSES * TUNE_TURNS + (stage - TUNE_PASSES) * TUNE_FINAL_TURNS;
	for (size_t turn = 0; turn < turns; turn++) {
		for (size_t i = 0; i < call->count; i++) {
			/* The order moves on, so that nobody always follows the same one. */
			struct tune_candidate *candidate = &call->candidate[(i + turn + stage) % call->count];
			if (!candidate->eliminated && tune_batch(s, run, candidate, kind, before + turn))
				return 1;
		}
	}
	return 0;
}

static bool is_over(const struct tune_call *call)
{
	for (size_t i = 0; i < call->count; i++)
		if (!call->candidate[i].eliminated)
			return false;
	return true;
}

static int measure_size(
	struct tune_sweep *s, enum bench_collective collective, size_t size, uint32_t stage, size_t kind)
{
	const struct bench_work work = { .collective = collective, .dtype = COLLET_F32, .op = COLLET_SUM };
	const uint64_t count = bench_count(&work, s->collet.library.size, s->options->sizes.bytes[size]);
	struct tune_call *call = call_at(s, collective, size);
	const struct tune_kind *kinds;
	const size_t kind_count = kinds_of(s, collective, &kinds);
	struct bench_run run;
	if (stage == 0 && kind == 0)
		tune_list_candidates(s, &work, count, call);
	if (kind == 0 && select_candidates(s, collective, call, stage))
		return 1;
	if (kind >= kind_count || is_over(call))
		return 0;
	const char *problem =
		bench_run_init(&run, &s->collet.library, &work, count, kinds[kind].buffers, false, NULL);
	if (problem != NULL) {
		fprintf(stderr, "collet-bench: tune: %s\n", problem);
		return 1;
	}
	const int failed = take_turns(s, &run, call, stage, kind);
	bench_run_deinit(&run);
	return failed;
}

/* Prints the points on rank 0: algorithm by algorithm, the usual cut first. */
static int report(struct tune_sweep *s, enum bench_collective collective, size_t size)
{
	struct tune_call *call = call_at(s, collective, size);
	double chosen = 0, repeat = 0;
	if (select_candidates(s, collective, call, TUNE_STAGES))
		return 1;
	if (s->collet.library.rank != 0)
		return 0;
	if (call->undecided)
		printf("doubt\n");
	for (size_t i = 0; i < call->count; i++) {
		chosen = call->candidate[i].chosen ? call->ns[i] : chosen;
		repeat = call->candidate[i].repeat ? call->ns[i] : repeat;
	}
	if (chosen > 0 && repeat > 0)
		printf("again %.4f\n", repeat / chosen);
	for (size_t a = 0; a < s->algorithm_count[collective]; a++) {
		for (size_t i = 0; i < call->count; i++) {
			const struct tune_candidate *p = &call->candidate[i];
			if (p->algorithm == &s->algorithms[collective][a] && !p->repeat)
				printf("point %s %s %zu %llu %u %u %.2f %.2f %d\n", bench_collective_name(collective),
					p->algorithm->name, size, (unsigned long long)p->bytes, p->segment_bytes,
					p->channels, call->ns[i], p->predicted_ns, p->chosen);
		}
	}
	return 0;
}

static int run_sweep(struct tune_sweep *s)
{
	for (uint32_t stage = 0; stage < TUNE_STAGES; stage++)
		for (size_t kind = 0; kind < TUNE_KINDS; kind++)
			for (uint32_t c = 0; c < BENCH_SENDRECV; c++)
				for (size_t i = 0; i < sizes_of(s, (enum bench_collective)c); i++)
					if (measure_size(s, (enum bench_collective)c, i, stage, kind))
						return 1;
	if (s->collet.library.rank == 0)
		printf("cores %u\n", s->cores);
	for (uint32_t c = 0; c < BENCH_SENDRECV; c++)
		for (size_t i = 0; i < sizes_of(s, (enum bench_collective)c); i++)
			if (report(s, (enum bench_collective)c, i))
				return 1;
	return 0;
}

int tune_connect(struct collet_library *collet, const char *transport, unsigned number)
{
	const char *job = getenv("COLLET_JOB");
	char store[128], name[112];
	snprintf(name, sizeof(name), "%s-%u", job != NULL ? job : "tune", number);
	snprintf(store, sizeof(store), "unix:%s", name);
	const collet_options options = { .transport = transport, .store = store, .job = name };
	if (collet_library_init_with(collet, &options) == COLLET_OK)
		return 0;
	fprintf(stderr, "collet-bench: tune: creating a communicator: %s\n", collet_last_error());
	return 1;
}

/* Lists what is measured. *most: the largest number of algorithms of a collective. */
static int list_algorithms(struct tune_sweep *s, size_t *most)
{
	*most = 0;
	for (uint32_t c = 0; c < BENCH_SENDRECV; c++) {
		size_t *count = &s->algorithm_count[c];
		if (collet_algorithm_list(bench_collective_name((enum bench_collective)c), s->algorithms[c],
				TUNE_ALGORITHMS, count) != COLLET_OK)
			return tune_complain(s, "listing the algorithms");
		if (*count > TUNE_ALGORITHMS) {
			fprintf(stderr, "collet-bench: tune: there are more than %d algorithms\n", TUNE_ALGORITHMS);
			return 1;
		}
		if (sizes_of(s, (enum bench_collective)c) > 0 && *count > *most)
			*most = *count;
	}
	return 0;
}

static int connect_ranks(struct tune_sweep *s, const char *transport)
{
	size_t most;
	if (tune_connect(&s->collet, transport, 0) || list_algorithms(s, &most))
		return 1;
	while (s->own_count < most) {
		const unsigned number = (unsigned)s->own_count + 1;
		if (tune_connect(&s->own[s->own_count], transport, number))
			return 1;
		s->own_count++;
	}
	return 0;
}

static void part(struct tune_sweep *s)
{
	while (s->own_count > 0)
		collet_library_deinit(&s->own[--s->own_count]);
	collet_library_deinit(&s->collet);
}

int bench_tune_rank(const struct bench_options *options, const char *transport)
{
	struct tune_sweep s = { .options = options };
	s.calls = calloc((size_t)BENCH_SENDRECV * COLLET_TUNING_SIZES, sizeof(s.calls[0]));
	if (s.calls == NULL)
		fprintf(stderr, "collet-bench: tune: no memory\n");
	const int failed = s.calls == NULL || connect_ranks(&s, transport) || run_sweep(&s);
	part(&s);
	free(s.calls);
	return failed;
}
