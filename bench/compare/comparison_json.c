/* An object for each library and size; and the same for --baseline. */
#include "comparison.h"

#include <string.h>

static void put_settings(const struct peer_variant *variant, char *into, size_t bytes)
{
	into[0] = '\0';
	for (size_t i = 0; variant != NULL && i < PEER_SETTINGS_MAX && variant->settings[i] != NULL; i++) {
		const size_t used = strlen(into);
		snprintf(into + used, bytes - used, "%s%s", i > 0 ? " " : "", variant->settings[i]);
	}
}

static void print(const struct comparison *all, size_t at, uint64_t count, uint64_t bytes)
{
	const struct cell *cell = &all->cells[at];
	const struct competitor *who = &all->competitors[at];
	char settings[2048];
	put_settings(who->variant, settings, sizeof(settings));
	const bool known = at > 0 && cell->ratio.median > 0;
	const struct bench_beside beside = {
		.settings = settings,
		.collet_buffers = comparison_buffers(all, 0),
		.repeats = cell->taken,
		.ratio = known ? cell->ratio.median : -1,
		.ratio_least = known ? cell->ratio.least : -1,
		.ratio_most = known ? cell->ratio.most : -1,
		.best = at > 0 && at == all->best,
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
		.bytes = bytes,
		.count = count,
		.time_ns = cell->median_ns,
		.p50_ns = cell->slow ? -1 : (double)cell->sampled.p50_ns,
		.p99_ns = cell->slow ? -1 : (double)cell->sampled.p99_ns,
		.rewritten_ns = -1,
		.cpu_ns = cell->cpu_ns,
		.page_faults = -1,
		.switches = -1,
		.predicted_ns = cell->prepared.predicted_ns,
		.wrong = cell->prepared.wrong,
		.beside = &beside,
	};
	bench_json_measurement(all->json, &m);
}

void comparison_print_json(const struct comparison *all, uint64_t count, uint64_t bytes)
{
	for (size_t c = 0; c < all->count; c++)
		if (all->cells[c].measured)
			print(all, c, count, bytes);
}

bool comparison_note_standings(struct comparison *all, uint64_t bytes)
{
	struct bench_standing standing = { .at = { .ranks = all->bootstrap.ranks, .bytes = bytes,
		.in_place = all->work.in_place != 0 } };
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
	for (size_t c = 1; done && c < all->count; c++) {
		if (!all->cells[c].measured || !(all->cells[c].ratio.median > 0))
			continue;
		snprintf(standing.peer, sizeof(standing.peer), "%s", all->competitors[c].name);
		standing.ratio = all->cells[c].ratio;
		done = bench_baseline_add(&all->standings, &standing);
	}
	return done;
}
