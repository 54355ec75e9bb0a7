/* An object for each library and size. */
#include "comparison.h"

void comparison_print_json(const struct comparison *all, uint64_t count, uint64_t bytes)
{
	const struct bench_options *o = all->options;
	for (size_t c = 0; c < all->count; c++) {
		const struct cell *cell = &all->cells[c];
		const struct competitor *who = &all->competitors[c];
		if (!cell->measured)
			continue;
		const struct bench_measurement m = {
			.library = who->name,
			.version = who->version,
			.host = all->host,
			.algorithm = cell->prepared.algorithm[0] != '\0' ? cell->prepared.algorithm : NULL,
			.transport = cell->prepared.transport[0] != '\0' ? cell->prepared.transport : o->transport,
			.work = all->work,
			.buffers = comparison_buffers(all, c),
			.ranks = all->meeting.ranks,
			.pinned = who->pinned,
			.bytes = bytes,
			.count = count,
			.time_ns = cell->median_ns,
			.p50_ns = cell->slow ? -1 : (double)cell->sampled.p50_ns,
			.p99_ns = cell->slow ? -1 : (double)cell->sampled.p99_ns,
			.cpu_ns = cell->cpu_ns,
			.predicted_ns = cell->prepared.predicted_ns,
			.wrong = cell->prepared.wrong,
		};
		bench_json_measurement(all->json, &m);
	}
}
