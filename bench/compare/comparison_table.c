/* The tables: a row a size with the best variant of each library, then every variant at every size; and both again for
 * another state of the cores. */
#include "comparison_results.h"

#include <inttypes.h>
#include <string.h>

#include "sizes.h"

static void print_settings(const struct comparison *all, size_t at)
{
	const struct competitor *c = &all->competitors[at];
	fprintf(all->table, "# %s: %s%s", c->name, c->version, c->pinned ? ", bound to cores" : "");
	if (c->variant != NULL && strcmp(c->variant->name, "default") != 0)
		for (size_t i = 0; i < PEER_SETTINGS_MAX && c->variant->settings[i] != NULL; i++)
			fprintf(all->table, " %s", c->variant->settings[i]);
	putc('\n', all->table);
}

static void print_run(const struct comparison *all)
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
	if (o->mode.rewrite)
		fputs("# rewritten: collet's median of calls whose input was written just before and whose result is "
		      "read after,\n# and its ratio to the best peer's\n",
			all->table);
}

static void print_header(const struct comparison *all, const struct comparison_flags *flags, enum bench_cores cores)
{
	if (bench_cores_name(cores) != NULL)
		fprintf(all->table, "# cores %s: a flag took %.0f ns one way (%.0f to %.0f)\n", bench_cores_name(cores),
			flags->median_ns, flags->least_ns, flags->most_ns);
	fprintf(all->table, "%10s", "bytes");
	for (size_t c = 0; c < all->count; c++)
		if (comparison_opens_library(all, c))
			fprintf(all->table, " %11s", c == 0 ? "collet" : all->competitors[c].variant->library);
	fprintf(all->table, "  %-27s %7s  %-16s %10s %10s", "best peer", "ratio", "spread", "cpu", "peer's cpu");
	if (all->options->mode.rewrite)
		fprintf(all->table, " %10s  %-27s %7s", "rewritten", "best peer", "ratio");
	putc('\n', all->table);
}

static double us(double ns)
{
	return ns > 0 ? ns / 1e3 : -1;
}

static void print_rewritten(const struct comparison *all, size_t size, enum bench_cores cores)
{
	const size_t best = comparison_best_peer(all, size, cores, COMPARISON_REWRITTEN);
	const struct comparison_result mine = comparison_result(all, size, 0, cores, COMPARISON_REWRITTEN),
				       its = comparison_result(all, size, best, cores, COMPARISON_REWRITTEN);
	bench_table_number(all->table, us(mine.median_ns), 10);
	if (best > 0 && its.ratio.median > 0)
		fprintf(all->table, "  %-27s %7.2f", all->competitors[best].name, its.ratio.median);
	else
		fprintf(all->table, "  %-27s %7s", "-", "-");
}

static void print_row(const struct comparison *all, size_t size, enum bench_cores cores)
{
	const size_t best = comparison_best_peer(all, size, cores, COMPARISON_PLAIN);
	const struct comparison_result mine = comparison_result(all, size, 0, cores, COMPARISON_PLAIN),
				       its = comparison_result(all, size, best, cores, COMPARISON_PLAIN);
	char text[24], spread[40] = "-";
	fprintf(all->table, "%10s", bench_bytes_text(comparison_bytes(all, size), text));
	for (size_t c = 0; c < all->count; c++)
		if (comparison_opens_library(all, c))
			bench_table_number(all->table, us(comparison_leader_ns(all, size, c, cores)), 11);
	if (best > 0 && its.ratio.median > 0) {
		snprintf(spread, sizeof(spread), "(%.2f to %.2f)", its.ratio.least, its.ratio.most);
		fprintf(all->table, "  %-27s %7.2f  %-16s", all->competitors[best].name, its.ratio.median, spread);
	} else {
		fprintf(all->table, "  %-27s %7s  %-16s", "-", "-", "-");
	}
	bench_table_number(all->table, us(mine.cpu_ns), 10);
	bench_table_number(all->table, best > 0 ? us(its.cpu_ns) : -1, 10);
	if (all->options->mode.rewrite)
		print_rewritten(all, size, cores);
	putc('\n', all->table);
}

static void print_sizes(const struct comparison *all, size_t sizes)
{
	const bool sized = bench_collective_takes_bytes((enum bench_collective)all->work.collective);
	char text[24];
	fprintf(all->table, "%-27s", "");
	for (size_t i = 0; i < sizes; i++)
		fprintf(all->table, " %10s ", bench_bytes_text(sized ? all->options->sizes.bytes[i] : 0, text));
	putc('\n', all->table);
}

static void print_variants(
	const struct comparison *all, size_t sizes, enum bench_cores cores, enum comparison_calls calls)
{
	const char *name = bench_cores_name(cores);
	fprintf(all->table,
		"# every variant%s%s%s; *: the best peer; >: not measured to the end, "
		"as it took more than %d times as long\n",
		name != NULL ? ", cores " : "", name != NULL ? name : "",
		calls == COMPARISON_REWRITTEN ? ", inputs rewritten" : "", BENCH_SLOW_TIMES);
	print_sizes(all, sizes);
	for (size_t c = 0; c < all->count; c++) {
		fprintf(all->table, "%-27s", all->competitors[c].name);
		for (size_t i = 0; i < sizes; i++) {
			const bool best = c > 0 && c == comparison_best_peer(all, i, cores, calls);
			bench_table_number(all->table, us(comparison_result(all, i, c, cores, calls).median_ns), 10);
			putc(all->slow[i * COMPETITORS_MAX + c] ? '>' : best ? '*' : ' ', all->table);
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

/* The flags around collet's repeats; --json has those of all others. */
static void print_flags(const struct comparison *all, size_t sizes)
{
	char text[24];
	fputs("# ns of a flag one way, mean of before and after each of collet's repeats; ~: not the same, "
	      "so it counts nowhere\n",
		all->table);
	for (size_t i = 0; i < sizes; i++) {
		const struct repeat *repeats = comparison_repeats(all, i, 0);
		fprintf(all->table, "# %8s", bench_bytes_text(comparison_bytes(all, i), text));
		for (uint32_t r = 0; r < all->options->repeats; r++)
			fprintf(all->table, " %4.0f%s", repeats[r].flag_ns,
				repeats[r].cores == BENCH_CORES_CHANGED ? "~" : "");
		putc('\n', all->table);
	}
}

void comparison_print_table(const struct comparison *all, size_t sizes)
{
	print_run(all);
	for (enum bench_cores cores = 0; cores < BENCH_CORES_STATES; cores++) {
		const struct comparison_flags flags = comparison_flags(all, sizes, cores);
		if (flags.repeats == 0)
			continue;
		print_header(all, &flags, cores);
		for (size_t i = 0; i < sizes; i++)
			if (comparison_was_seen(all, i, cores))
				print_row(all, i, cores);
		if (has_variants(all))
			print_variants(all, sizes, cores, COMPARISON_PLAIN);
		if (has_variants(all) && all->options->mode.rewrite)
			print_variants(all, sizes, cores, COMPARISON_REWRITTEN);
	}
	if (comparison_flags(all, sizes, BENCH_CORES_UNKNOWN).repeats == 0)
		print_flags(all, sizes);
	const char *missing = comparison_unseen_cores(all, sizes);
	if (missing != NULL)
		fprintf(all->table, "# cores were never %s meanwhile\n", missing);
	fprintf(all->table,
		"# %" PRIu64 " times taken, %" PRIu64 " of them again because other processes ran meanwhile; %" PRIu64
		" were kept though disturbed\n",
		all->timed, all->repeated, all->disturbed);
	fflush(all->table);
}
