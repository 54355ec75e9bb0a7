/* Measures one size. Each library prepares, is checked, and finds out how many calls fit into the time. Then every
 * repeat times it, in an order that changes between repeats, so that other load hits all libraries. A time taken
 * while other processes used the cores is taken again. A library far behind after the first repeat is not measured
 * again. One that did not use the requested transport is dropped. */
#include "comparison.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"
#include "sizes.h"
#include "core_latency.h"

/* To fill, check and answer, beside the time that calls are expected to take. */
static const double answer_seconds = 20;
/* A single call that takes longer makes the run last for ever. */
static const double call_seconds = 2;
/* So often a disturbed repeat is taken again, before the least disturbed is kept. */
enum { TRIES = 3 };

enum bench_buffer_kind comparison_buffers(const struct comparison *all, size_t at)
{
	const struct peer_variant *variant = all->competitors[at].variant;
	const enum bench_buffer_kind kind = all->options->mode.buffers;
	return kind == BENCH_ALLOC && variant != NULL && !variant->own_memory_only ? BENCH_MALLOC : kind;
}

void comparison_report_dropped(const char *name, const char *why)
{
	bench_progress_clear();
	fprintf(stderr, "collet-bench: %s is left out: %s\n", name, why);
}

static void drop(struct comparison *all, size_t at, const char *why)
{
	comparison_report_dropped(all->competitors[at].name, why);
	all->cells[at].measured = false;
}

static bool order(struct comparison *all, size_t at, const struct bench_command *command, double expected_seconds,
	struct bench_reply *reply)
{
	struct competitor *c = &all->competitors[at];
	if (c->fds == NULL)
		return false;
	if (competitor_command(c, command, answer_seconds + 10 * expected_seconds, reply))
		return true;
	drop(all, at, c->problem);
	return false;
}

static struct bench_command command_for(const struct comparison *all, size_t at, enum bench_order what, uint64_t count)
{
	const struct bench_options *o = all->options;
	struct bench_command command = { .order = what, .buffers = comparison_buffers(all, at), .cold = o->mode.cold,
		.sync = o->mode.sync, .work = all->work, .count = count };
	return command;
}

/* Returns false if the library drops out, at this size or for good. */
static bool calibrate(struct comparison *all, size_t at, uint64_t count)
{
	struct cell *cell = &all->cells[at];
	const struct bench_mode *mode = &all->options->mode;
	struct bench_command command = command_for(all, at, BENCH_BATCH, count);
	struct bench_calibration calibration = bench_calibration_begin(mode->seconds);
	struct bench_reply reply;
	for (cell->iterations = 0; cell->iterations == 0;) {
		command.iterations = calibration.batch;
		if (!order(all, at, &command, mode->seconds, &reply))
			return false;
		if (at > 0 && (double)reply.elapsed_ns > call_seconds * 1e9 * (double)command.iterations) {
			drop(all, at, "a call takes longer than 2 s");
			return false;
		}
		cell->iterations = bench_calibration_next(&calibration, reply.elapsed_ns);
	}
	if (mode->iterations > 0)
		cell->iterations = mode->iterations;
	return true;
}

/* Not a variant that is for other collectives, nor one that has refused this one. */
static bool takes_part(const struct comparison *all, size_t at)
{
	const struct competitor *c = &all->competitors[at];
	const uint32_t bit = UINT32_C(1) << all->work.collective;
	return (c->refused & bit) == 0
		&& (c->variant == NULL || c->variant->collectives == 0 || (c->variant->collectives & bit) != 0);
}

/* Allocates, checks, and finds how many calls fit into the time. */
static void prepare(struct comparison *all, size_t at, uint64_t count)
{
	struct cell *cell = &all->cells[at];
	if (!takes_part(all, at))
		return;
	struct bench_command command = command_for(all, at, BENCH_PREPARE, count);
	command.segment_bytes = all->options->segment_bytes;
	command.channels = all->options->channels;
	if (at == 0 && all->options->algorithm != NULL)
		snprintf(command.algorithm, sizeof(command.algorithm), "%s", all->options->algorithm);
	if (!order(all, at, &command, 0, &cell->prepared))
		return;
	if (cell->prepared.answer == BENCH_CANNOT) {
		drop(all, at, cell->prepared.text);
		all->competitors[at].refused |= UINT32_C(1) << all->work.collective;
		return;
	}
	all->wrong += cell->prepared.wrong;
	if (cell->prepared.wrong > 0) {
		bench_progress_clear();
		fprintf(stderr, "collet-bench: %s: %" PRIu64 " wrong elements\n", all->competitors[at].name,
			cell->prepared.wrong);
	}
	cell->measured = calibrate(all, at, count);
}

/* The result of one try. */
struct try {
	double time_ns, cpu_ns, loopback_bytes;
	double flag_ns;    /* between two cores; 0: unknown, or not the same before and after */
	double foreign;    /* part of a core that others used */
	bool disturbed;
};

/* Returns the flag latency if it was the same before and after a measurement, else 0. */
static double stable_flag_ns(double before_ns, double after_ns)
{
	const double least = before_ns < after_ns ? before_ns : after_ns;
	return least > 0 && before_ns + after_ns < 2.6 * least ? (before_ns + after_ns) / 2 : 0;
}

static bool try_once(struct comparison *all, size_t at, uint64_t count, struct try *try)
{
	const struct cell *cell = &all->cells[at];
	const struct competitor *c = &all->competitors[at];
	struct bench_command command = command_for(all, at, BENCH_BATCH, count);
	struct bench_load_mark before, after;
	struct bench_reply reply;
	command.iterations = cell->iterations;
	command.warm_iterations = bench_warm_iterations(cell->iterations);
	const double flag_ns = bench_core_latency_ns();
	bench_load_read(&before, c->rank_pids, c->ranks);
	if (!order(all, at, &command, all->options->mode.seconds, &reply))
		return false;
	bench_load_read(&after, c->rank_pids, c->ranks);
	try->flag_ns = stable_flag_ns(flag_ns, bench_core_latency_ns());
	const struct bench_load load = bench_load_between(&before, &after, c->pinned && !all->oversubscribed);
	try->time_ns = (double)reply.elapsed_ns / (double)cell->iterations;
	try->cpu_ns = (double)reply.cpu_ns / (double)cell->iterations;
	try->loopback_bytes = (double)(after.loopback_bytes - before.loopback_bytes)
		/ (double)(command.warm_iterations + command.iterations);
	try->foreign = bench_foreign_ns(&load) / load.window_ns;
	try->disturbed = bench_is_disturbed(&load);
	return true;
}

static void time_repeat(struct comparison *all, size_t at, uint64_t count, uint32_t repeat)
{
	struct cell *cell = &all->cells[at];
	struct try kept = { 0 };
	if (!cell->measured || cell->slow)
		return;
	for (int tries = 0; tries < TRIES; tries++) {
		struct try try;
		if (!try_once(all, at, count, &try))
			return;
		all->timed++;
		all->repeated += tries > 0;
		/* Others can only add to what crosses lo: the least is nearest to the truth. */
		if (cell->least_ns == 0 || try.loopback_bytes < cell->loopback_bytes)
			cell->loopback_bytes = try.loopback_bytes;
		if (cell->least_ns == 0 || try.time_ns < cell->least_ns)
			cell->least_ns = try.time_ns;
		cell->tries++;
		cell->undisturbed += !try.disturbed;
		if (tries == 0 || try.foreign < kept.foreign)
			kept = try;
		if (!try.disturbed)
			break;
	}
	all->disturbed += kept.disturbed;
	cell->times_ns[repeat] = kept.time_ns;
	cell->flags_ns[repeat] = kept.flag_ns;
	cell->cpu_ns += kept.cpu_ns;
	cell->taken++;
}

/* By the least times so far. One that was only disturbed gets a second chance. */
static void drop_slow(struct comparison *all)
{
	double best_ns = 0;
	for (size_t c = 1; c < all->count; c++)
		if (all->cells[c].measured && (best_ns == 0 || all->cells[c].least_ns < best_ns))
			best_ns = all->cells[c].least_ns;
	for (size_t c = 1; c < all->count; c++) {
		struct cell *cell = &all->cells[c];
		if (cell->measured && (cell->undisturbed > 0 || cell->taken > 1))
			cell->slow = cell->slow || bench_is_slow(cell->least_ns, best_ns);
	}
}

/* Returns the bytes that cross lo in the time of one call of this library while others are measured; the least of
 * them. */
static double background(const struct comparison *all, size_t at)
{
	double least = -1;
	for (size_t c = 0; c < all->count; c++) {
		const struct cell *cell = &all->cells[c];
		const double rate = cell->least_ns > 0 ? cell->loopback_bytes / cell->least_ns : -1;
		if (c != at && rate >= 0 && (least < 0 || rate < least))
			least = rate;
	}
	return least > 0 ? least * all->cells[at].least_ns : 0;
}

/* Out for good: it would lie at other sizes too. */
static void drop_contradicted(struct comparison *all, uint64_t bytes)
{
	const double least = bench_least_traffic(&all->work, all->bootstrap.ranks, bytes);
	char text[160], size[24];
	for (size_t c = 0; c < all->count; c++) {
		const struct cell *cell = &all->cells[c];
		const char *wrong = cell->measured ? bench_loopback_contradiction(all->options->transport, least,
			cell->loopback_bytes, background(all, c)) : NULL;
		/* Too few bytes are proof. Too many are, if nobody else was at work who could have sent them. */
		if (wrong == NULL || (cell->loopback_bytes >= least && cell->undisturbed < cell->tries))
			continue;
		snprintf(text, sizeof(text), "%s (%s: %.0f bytes of a call, which moves at least %.0f)", wrong,
			bench_bytes_text(bytes, size), cell->loopback_bytes, least);
		drop(all, c, text);
		if (c == 0)
			all->collet_lied = true;
		else
			competitor_stop(&all->competitors[c]);
	}
}

static void sample(struct comparison *all, size_t at, uint64_t count)
{
	struct cell *cell = &all->cells[at];
	struct bench_command command = command_for(all, at, BENCH_SAMPLES, count);
	command.iterations = cell->iterations < BENCH_DRIVER_SAMPLES ? cell->iterations : BENCH_DRIVER_SAMPLES;
	order(all, at, &command, all->options->mode.seconds, &cell->sampled);
}

static void evaluate(struct comparison *all)
{
	const uint32_t repeats = all->options->repeats;
	double *sorted = calloc(repeats, sizeof(sorted[0]));
	all->best = 0;
	for (size_t c = 0; sorted != NULL && c < all->count; c++) {
		struct cell *cell = &all->cells[c];
		size_t n = 0;
		for (uint32_t r = 0; r < repeats; r++)
			if (cell->times_ns[r] > 0)
				sorted[n++] = cell->times_ns[r];
		cell->measured = cell->measured && n > 0;
		if (!cell->measured) {   /* what it has been left out for counts nowhere */
			memset(cell->times_ns, 0, repeats * sizeof(cell->times_ns[0]));
			continue;
		}
		cell->median_ns = bench_median(sorted, n);
		cell->cpu_ns /= (double)n;
		if (c > 0 && (all->best == 0 || cell->median_ns < all->cells[all->best].median_ns))
			all->best = c;
	}
	free(sorted);
	for (size_t c = 1; all->cells[0].measured && c < all->count; c++)
		if (all->cells[c].measured)
			all->cells[c].ratio = bench_ratios(all->cells[0].times_ns, all->cells[c].times_ns, repeats);
}

static void clear(struct comparison *all, size_t size)
{
	for (size_t c = 0; c < all->count; c++) {
		const size_t from = comparison_times_at(all, size, c), bytes = all->options->repeats * sizeof(double);
		all->cells[c] = (struct cell){ .times_ns = &all->times_ns[from], .flags_ns = &all->flags_ns[from] };
		memset(all->cells[c].times_ns, 0, bytes);
		memset(all->cells[c].flags_ns, 0, bytes);
	}
}

void comparison_measure(struct comparison *all, size_t size, uint64_t count, uint64_t bytes)
{
	clear(all, size);
	for (size_t c = 0; c < all->count; c++)
		prepare(all, c, count);
	for (uint32_t r = 0; r < all->options->repeats; r++) {
		for (size_t place = 0; place < all->count; place++)
			time_repeat(all, bench_turn(r, place, all->count), count, r);
		drop_slow(all);
	}
	drop_contradicted(all, bytes);
	for (size_t c = 0; all->json != NULL && c < all->count; c++)
		if (all->cells[c].measured && !all->cells[c].slow)
			sample(all, c, count);
	evaluate(all);
}
