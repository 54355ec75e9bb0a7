/* The table: a row a size with the best variant of each library, then every variant at every size. */
#include "comparison.h"

#include <inttypes.h>
#include <string.h>

#include "sizes.h"

bool comparison_opens_library(const struct comparison *all, size_t at)
{
	return at < 2
		|| strcmp(all->competitors[at].variant->library, all->competitors[at - 1].variant->library) != 0;
}

const struct cell *comparison_leader(const struct comparison *all, size_t first)
{
	const struct cell *best = NULL;
	for (size_t c = first; c < all->count && (c == first || !comparison_opens_library(all, c)); c++) {
		const struct cell *cell = &all->cells[c];
		if (cell->measured && (best == NULL || cell->median_ns < best->median_ns))
			best = cell;
	}
	return best;
}

static void print_settings(const struct comparison *all, size_t at)
{
	const struct competitor *c = &all->competitors[at];
	fprintf(all->table, "# %s: %s%s", c->name, c->version, c->pinned ? ", bound to cores" : "");
	if (c->variant != NULL && strcmp(c->variant->name, "default") != 0)
		for (size_t i = 0; i < PEER_SETTINGS_MAX && c->variant->settings[i] != NULL; i++)
			fprintf(all->table, " %s", c->variant->settings[i]);
	putc('\n', all->table);
}

void comparison_print_header(const struct comparison *all)
{
	const struct bench_options *o = all->options;
	fprintf(all->table, "# %s of %u ranks on %s%s%s, %s, %s, %s buffers; medians of %u repeats, taking turns\n",
		bench_collective_name((enum bench_collective)all->work.collective), all->bootstrap.ranks, all->host,
		o->transport != NULL ? " over " : "", o->transport != NULL ? o->transport : "",
		collet_dtype_name((collet_dtype)all->work.dtype), all->work.in_place ? "in place" : "out of place",
		bench_buffer_kind_name(o->mode.buffers), o->repeats);
	for (size_t c = 0; c < all->count; c++)
		print_settings(all, c);
	fputs("# time of one call in us, mean of calls back to back, slowest rank; of each library its best variant\n"
	      "# ratio: collet's to the best peer's; cpu: us of all ranks together in one call, of collet and of the "
	      "best peer\n",
		all->table);
	fprintf(all->table, "%10s", "bytes");
	for (size_t c = 0; c < all->count; c++)
		if (comparison_opens_library(all, c))
			fprintf(all->table, " %11s", c == 0 ? "collet" : all->competitors[c].variant->library);
	fprintf(all->table, "  %-27s %7s  %-16s %10s %10s\n", "best peer", "ratio", "spread", "cpu", "peer's cpu");
	fflush(all->table);
}

void comparison_print_row(const struct comparison *all, uint64_t bytes)
{
	char text[24], spread[40] = "-";
	fprintf(all->table, "%10s", bench_bytes_text(bytes, text));
	for (size_t c = 0; c < all->count; c++) {
		if (!comparison_opens_library(all, c))
			continue;
		const struct cell *best = comparison_leader(all, c);
		bench_table_number(all->table, best != NULL ? best->median_ns / 1e3 : -1, 11);
	}
	const struct bench_ratio *ratio = &all->cells[all->best].ratio;
	if (all->best > 0 && ratio->median > 0) {
		snprintf(spread, sizeof(spread), "(%.2f to %.2f)", ratio->least, ratio->most);
		fprintf(all->table, "  %-27s %7.2f  %-16s", all->competitors[all->best].name, ratio->median, spread);
	} else {
		fprintf(all->table, "  %-27s %7s  %-16s", "-", "-", "-");
	}
	bench_table_number(all->table, all->cells[0].measured ? all->cells[0].cpu_ns / 1e3 : -1, 10);
	bench_table_number(all->table, all->best > 0 ? all->cells[all->best].cpu_ns / 1e3 : -1, 10);
	putc('\n', all->table);
	fflush(all->table);
}

static size_t fastest_peer(const struct comparison *all, size_t size)
{
	const size_t sizes = all->options->sizes.count;
	size_t best = 0;
	for (size_t c = 1; c < all->count; c++) {
		const double mine = all->medians_us[c * sizes + size];
		if (mine >= 0 && (best == 0 || mine < all->medians_us[best * sizes + size]))
			best = c;
	}
	return best;
}

static void print_variants(const struct comparison *all, size_t sizes)
{
	const size_t stride = all->options->sizes.count;
	char text[24];
	fprintf(all->table,
		"# every variant; *: the best peer; >: not measured to the end, "
		"as it took more than %d times as long\n",
		BENCH_SLOW_TIMES);
	fprintf(all->table, "%-27s", "");
	const bool sized = bench_collective_takes_bytes((enum bench_collective)all->work.collective);
	for (size_t i = 0; i < sizes; i++)
		fprintf(all->table, " %10s ", bench_bytes_text(sized ? all->options->sizes.bytes[i] : 0, text));
	putc('\n', all->table);
	for (size_t c = 0; c < all->count; c++) {
		fprintf(all->table, "%-27s", all->competitors[c].name);
		for (size_t i = 0; i < sizes; i++) {
			bench_table_number(all->table, all->medians_us[c * stride + i], 10);
			const bool best = c > 0 && c == fastest_peer(all, i);
			putc(all->slow[c * stride + i] ? '>' : best ? '*' : ' ', all->table);
		}
		putc('\n', all->table);
	}
}

/* More variants than libraries. */
static bool has_variants(const struct comparison *all)
{
	for (size_t c = 0; c < all->count; c++)
		if (!comparison_opens_library(all, c))
			return true;
	return false;
}

void comparison_print_end(const struct comparison *all, size_t sizes)
{
	if (has_variants(all))
		print_variants(all, sizes);
	fprintf(all->table,
		"# %" PRIu64 " times taken, %" PRIu64 " of them again because other processes ran meanwhile; %" PRIu64
		" were kept though disturbed\n",
		all->timed, all->repeated, all->disturbed);
	fflush(all->table);
}
