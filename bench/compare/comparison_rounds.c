/* Measures one size. Each library prepares, is checked, and finds out how many calls fit into the time. Then every
 * repeat times it, in an order that changes between repeats, so that other load hits all libraries. A time taken
 * while other processes used the cores is taken again. A library far behind after the first repeat is not measured
 * again. One that did not use the requested transport is dropped. */
#include "comparison.h"

#include <inttypes.h>
#include <string.h>

#include "limits/core_latency.h"
#include "load.h"
#include "sizes.h"

/* To fill, check and answer, beside the time that calls are expected to take. */
static const double answer_seconds = 20;
/* A single call that takes longer makes the run last for ever, and so does one that takes that many times as long as
 * collet's, unless it is short: a library that never yields takes time slices where ranks share cores. */
static const double call_seconds = 2, short_call_seconds = 0.005;
enum { MOST_TIMES_COLLET = 20 };
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

/* Drops a peer whose calls take too long to be measured. call_ns: of the last batch. collet has been calibrated. A
 * single batch may be slow because others used the machine, so the least of several counts. */
static bool takes_too_long(struct comparison *all, size_t at, double call_ns, uint64_t batches)
{
	const double least_ns = all->cells[at].calibrated_ns, collet_ns = all->cells[0].calibrated_ns;
	if (at > 0 && call_ns > call_seconds * 1e9)
		drop(all, at, "a call takes longer than 2 s");
	else if (at > 0 && batches >= TRIES && least_ns > short_call_seconds * 1e9 && collet_ns > 0 &&
		 least_ns > MOST_TIMES_COLLET * collet_ns)
		drop(all, at, "a call takes more than 20 times as long as collet's");
	else
		return false;
	return true;
}

/* Returns false if the library drops out, at this size or for good. */
static bool calibrate(struct comparison *all, size_t at, uint64_t count)
{
	struct cell *cell = &all->cells[at];
	const struct bench_mode *mode = &all->options->mode;
	struct bench_command command = command_for(all, at, BENCH_BATCH, count);
	struct bench_calibration calibration = bench_calibration_begin(mode->seconds);
	struct bench_reply reply;
	uint64_t batches = 0;
	for (cell->iterations = 0; cell->iterations == 0;) {
		command.iterations = calibration.batch;
		if (!order(all, at, &command, mode->seconds, &reply))
			return false;
		const double call_ns = (double)reply.elapsed_ns / (double)command.iterations;
		cell->calibrated_ns = batches++ == 0 || call_ns < cell->calibrated_ns ? call_ns : cell->calibrated_ns;
		if (takes_too_long(all, at, call_ns, batches))
			return false;
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

/* Counts and reports wrong elements. */
static void note_wrong(struct comparison *all, size_t at, uint64_t wrong)
{
	all->wrong += wrong;
	if (wrong == 0)
		return;
	bench_progress_clear();
	fprintf(stderr, "collet-bench: %s: %" PRIu64 " wrong elements\n", all->competitors[at].name, wrong);
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
	note_wrong(all, at, cell->prepared.wrong);
	cell->measured = calibrate(all, at, count);
}

/* The result of one try. */
struct try {
	struct repeat repeat;
	double loopback_bytes;
	double foreign;    /* part of a core that others used */
	bool disturbed;
};

/* Finds how many calls with rewritten inputs fit into the time. Each has a barrier before it. Where ranks share cores,
 * a library that never yields takes time slices for it, so that the time of calls back to back says nothing. */
static bool count_rewritten(struct comparison *all, size_t at, uint64_t count)
{
	enum { TRIED = 8 };
	struct cell *cell = &all->cells[at];
	const double seconds = all->options->mode.seconds;
	const uint64_t most = bench_rewritten_iterations(cell->iterations);
	struct bench_command command = command_for(all, at, BENCH_REWRITTEN, count);
	struct bench_reply reply;
	command.iterations = most < TRIED ? most : TRIED;
	const int64_t before_ns = bench_clock_ns();
	if (!order(all, at, &command, seconds, &reply))
		return false;
	const uint64_t fit = bench_iterations_for(seconds, command.iterations, bench_clock_ns() - before_ns);
	cell->rewritten_iterations = fit < most ? fit : most;
	return true;
}

static bool try_rewritten(struct comparison *all, size_t at, uint64_t count, struct repeat *repeat)
{
	struct bench_command command = command_for(all, at, BENCH_REWRITTEN, count);
	struct bench_reply reply;
	if (all->cells[at].rewritten_iterations == 0 && !count_rewritten(all, at, count))
		return false;
	command.iterations = all->cells[at].rewritten_iterations;
	if (!order(all, at, &command, all->options->mode.seconds, &reply))
		return false;
	note_wrong(all, at, reply.wrong);
	repeat->rewritten_ns = (double)reply.p50_ns;
	return true;
}

/* True if it takes so long, compared with the best so far, that its time with rewritten inputs does not matter. */
static bool is_hopeless(const struct comparison *all, size_t at, double time_ns)
{
	double best_ns = 0;
	for (size_t c = 0; c < all->count; c++) {
		const struct cell *cell = &all->cells[c];
		if (c != at && cell->measured && cell->least_ns > 0 && (best_ns == 0 || cell->least_ns < best_ns))
			best_ns = cell->least_ns;
	}
	return bench_is_slow(time_ns, best_ns);
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
	const double flag_before_ns = bench_core_latency_ns();
	bench_load_read(&before, c->rank_pids, c->ranks);
	if (!order(all, at, &command, all->options->mode.seconds, &reply))
		return false;
	bench_load_read(&after, c->rank_pids, c->ranks);
	const struct bench_load load = bench_load_between(&before, &after, c->pinned && !all->oversubscribed);
	try->repeat = (struct repeat){
		.time_ns = (double)reply.elapsed_ns / (double)cell->iterations,
		.cpu_ns = (double)reply.cpu_ns / (double)cell->iterations,
	};
	if (all->options->mode.rewrite && !is_hopeless(all, at, try->repeat.time_ns) &&
		!try_rewritten(all, at, count, &try->repeat))
		return false;
	const double flag_after_ns = bench_core_latency_ns();
	try->repeat.flag_ns = (flag_before_ns + flag_after_ns) / 2;
	try->repeat.cores = bench_cores_of(flag_before_ns, flag_after_ns);
	try->loopback_bytes = (double)(after.loopback_bytes - before.loopback_bytes)
		/ (double)(command.warm_iterations + command.iterations);
	try->foreign = bench_foreign_ns(&load) / load.window_ns;
	try->disturbed = bench_is_disturbed(&load);
	return true;
}

static void time_repeat(struct comparison *all, size_t at, uint64_t count, struct repeat *repeat)
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
		if (cell->least_ns == 0 || try.repeat.time_ns < cell->least_ns)
			cell->least_ns = try.repeat.time_ns;
		cell->tries++;
		cell->undisturbed += !try.disturbed;
		if (tries == 0 || try.foreign < kept.foreign)
			kept = try;
		if (!try.disturbed)
			break;
	}
	all->disturbed += kept.disturbed;
	*repeat = kept.repeat;
	cell->taken++;
}

/* The least time so far in one state of the cores; 0: none. */
static double least_ns(const struct comparison *all, size_t size, size_t at, enum bench_cores cores)
{
	const struct repeat *repeats = comparison_repeats(all, size, at);
	double least = 0;
	for (uint32_t r = 0; r < all->options->repeats; r++)
		if (repeats[r].cores == cores && repeats[r].time_ns > 0 && (least == 0 || repeats[r].time_ns < least))
			least = repeats[r].time_ns;
	return least;
}

/* Slow in every state of the cores in which it was measured. */
static bool is_slow(const struct comparison *all, size_t size, size_t at, const double best_ns[BENCH_CORES_STATES])
{
	bool slow = false, fair = false;
	for (enum bench_cores cores = 0; cores < BENCH_CORES_STATES; cores++) {
		const double least = least_ns(all, size, at, cores);
		slow = slow || bench_is_slow(least, best_ns[cores]);
		fair = fair || (least > 0 && !bench_is_slow(least, best_ns[cores]));
	}
	return slow && !fair;
}

/* By the least times so far. One that was only disturbed gets a second chance. */
static void drop_slow(struct comparison *all, size_t size)
{
	double best_ns[BENCH_CORES_STATES] = { 0 };
	for (enum bench_cores cores = 0; cores < BENCH_CORES_STATES; cores++)
		for (size_t c = 1; c < all->count; c++) {
			const double least = all->cells[c].measured ? least_ns(all, size, c, cores) : 0;
			if (least > 0 && (best_ns[cores] == 0 || least < best_ns[cores]))
				best_ns[cores] = least;
		}
	for (size_t c = 1; c < all->count; c++) {
		struct cell *cell = &all->cells[c];
		if (cell->measured && (cell->undisturbed > 0 || cell->taken > 1))
			cell->slow = cell->slow || is_slow(all, size, c, best_ns);
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
	const double flag_ns = bench_core_latency_ns();
	order(all, at, &command, all->options->mode.seconds, &cell->sampled);
	cell->sampled_cores = bench_cores_of(flag_ns, bench_core_latency_ns());
}

void comparison_measure(struct comparison *all, size_t size, uint64_t count, uint64_t bytes)
{
	const size_t repeats_bytes = all->options->repeats * sizeof(struct repeat);
	for (size_t c = 0; c < all->count; c++) {
		all->cells[c] = (struct cell){ .sampled_cores = BENCH_CORES_CHANGED };
		memset(comparison_repeats(all, size, c), 0, repeats_bytes);
		prepare(all, c, count);
	}
	for (uint32_t r = 0; r < all->options->repeats; r++) {
		for (size_t place = 0; place < all->count; place++) {
			const size_t c = bench_turn(r, place, all->count);
			time_repeat(all, c, count, &comparison_repeats(all, size, c)[r]);
		}
		drop_slow(all, size);
	}
	drop_contradicted(all, bytes);
	for (size_t c = 0; c < all->count; c++) {
		const struct cell *cell = &all->cells[c];
		if (all->json != NULL && cell->measured && !cell->slow)
			sample(all, c, count);
		/* What it has been left out for counts nowhere. */
		if (!cell->measured)
			memset(comparison_repeats(all, size, c), 0, repeats_bytes);
		all->slow[size * COMPETITORS_MAX + c] = cell->slow;
	}
}
