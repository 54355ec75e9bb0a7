/* Prints an object for each library, size and state of the cores, and keeps the same for --baseline. */
#include "comparison_results.h"

#include <string.h>

static void put_settings(const struct peer_variant *variant, char *into, size_t bytes)
{
	into[0] = '\0';
	for (size_t i = 0; variant != NULL && i < PEER_SETTINGS_MAX && variant->settings[i] != NULL; i++) {
		const size_t used = strlen(into);
		snprintf(into + used, bytes - used, "%s%s", i > 0 ? " " : "", variant->settings[i]);
	}
}

static void print(const struct comparison *all, size_t size, size_t at, enum bench_cores cores)
{
	const struct cell *cell = &all->cells[at];
	const struct competitor *who = &all->competitors[at];
	const struct comparison_result result = comparison_result(all, size, at, cores, COMPARISON_PLAIN),
				       rewritten = comparison_result(all, size, at, cores, COMPARISON_REWRITTEN);
	const struct repeat *repeats = comparison_repeats(all, size, at);
	double times_us[BENCH_REPEATS_MAX], flags_ns[BENCH_REPEATS_MAX];
	char settings[2048];
	uint32_t n = 0;
	put_settings(who->variant, settings, sizeof(settings));
	for (uint32_t r = 0; r < all->options->repeats; r++)
		if (repeats[r].time_ns > 0 && repeats[r].cores == cores) {
			times_us[n] = repeats[r].time_ns / 1e3;
			flags_ns[n++] = repeats[r].flag_ns;
		}
	const bool known = result.ratio.median > 0, sampled = !cell->slow && cell->sampled_cores == cores;
	const struct bench_beside beside = {
		.settings = settings,
		.collet_buffers = comparison_buffers(all, 0),
		.cores = bench_cores_name(cores),
		.repeats = result.repeats,
		.times_us = times_us,
		.flags_ns = flags_ns,
		.ratio = known ? result.ratio.median : -1,
		.ratio_least = known ? result.ratio.least : -1,
		.ratio_most = known ? result.ratio.most : -1,
		.rewritten_ratio = rewritten.ratio.median > 0 ? rewritten.ratio.median : -1,
		.best = at > 0 && at == comparison_best_peer(all, size, cores, COMPARISON_PLAIN),
	};
	const struct bench_measurement m = {
		.library = who->name,
		.version = who->version,
		.host = all->host,
		.algorithm = cell->prepared.algorithm[0] != '\0' ? cell->prepared.algorithm : NULL,
		.transport = cell->prepared.transport[0] != '\0' ? cell->prepared.transport : all->options->transport,
		.work = all->work,
		.buffers = comparison_buffers(all, at),
		.ranks = all->bootstrap.ranks,
		.pinned = who->pinned,
		.bytes = comparison_bytes(all, size),
		.time_ns = result.median_ns,
		.p50_ns = sampled ? (double)cell->sampled.p50_ns : -1,
		.p99_ns = sampled ? (double)cell->sampled.p99_ns : -1,
		.rewritten_ns = all->options->mode.rewrite ? rewritten.median_ns : -1,
		.cpu_ns = result.cpu_ns,
		.page_faults = -1,
		.switches = -1,
		.predicted_ns = cell->prepared.predicted_ns,
		.wrong = cell->prepared.wrong,
		.beside = &beside,
	};
	bench_json_measurement(all->json, &m);
}

void comparison_print_json(const struct comparison *all, size_t size)
{
	for (enum bench_cores cores = 0; cores < BENCH_CORES_STATES; cores++)
		for (size_t c = 0; c < all->count; c++)
			if (comparison_result(all, size, c, cores, COMPARISON_PLAIN).repeats > 0)
				print(all, size, c, cores);
}

static bool note_state(struct comparison *all, size_t size, enum bench_cores cores, struct bench_standing *standing)
{
	const char *name = bench_cores_name(cores);
	bool done = true;
	snprintf(standing->at.cores, sizeof(standing->at.cores), "%s", name != NULL ? name : "");
	for (size_t c = 1; done && c < all->count; c++) {
		standing->ratio = comparison_result(all, size, c, cores, COMPARISON_PLAIN).ratio;
		snprintf(standing->peer, sizeof(standing->peer), "%s", all->competitors[c].name);
		done = !(standing->ratio.median > 0) || bench_baseline_add(&all->standings, standing);
	}
	return done;
}

bool comparison_note_standings(struct comparison *all, size_t size)
{
	struct bench_standing standing = { .at = { .ranks = all->bootstrap.ranks,
		.bytes = comparison_bytes(all, size), .in_place = all->work.in_place != 0 } };
	struct bench_case *at = &standing.at;
	const enum bench_collective collective = (enum bench_collective)all->work.collective;
	bool done = true;
	snprintf(at->collective, sizeof(at->collective), "%s", bench_collective_name(collective));
	snprintf(at->transport, sizeof(at->transport), "%s",
		all->options->transport != NULL ? all->options->transport : "");
	snprintf(at->dtype, sizeof(at->dtype), "%s", collet_dtype_name((collet_dtype)all->work.dtype));
	snprintf(at->op, sizeof(at->op), "%s",
		bench_collective_combines(collective) ? collet_op_name((collet_op)all->work.op) : "none");
	snprintf(at->buffers, sizeof(at->buffers), "%s", bench_buffer_kind_name(comparison_buffers(all, 0)));
	for (enum bench_cores cores = 0; done && cores < BENCH_CORES_STATES; cores++)
		done = note_state(all, size, cores, &standing);
	return done;
}
