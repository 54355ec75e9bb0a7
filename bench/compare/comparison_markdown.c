/* The tables in Markdown, for docs/performance.md. */
#include "comparison_results.h"

#include <string.h>

#include "sizes.h"

static const char *proper_name(const struct comparison *all, size_t at)
{
	static const struct {
		const char *library, *name;
	} rows[] = { { "openmpi", "Open MPI" }, { "mpich", "MPICH" }, { "gloo", "Gloo" }, { "impi", "Intel MPI" },
		{ "openmpi5", "Open MPI 5" }, { "mpich5", "MPICH 5" } };
	if (at == 0)
		return "collet";
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].library, all->competitors[at].variant->library) == 0)
			return rows[i].name;
	return all->competitors[at].variant->library;
}

static void put_header(const struct comparison *all, const struct comparison_flags *flags, enum bench_cores cores)
{
	const struct bench_options *o = all->options;
	FILE *out = all->markdown;
	fprintf(out, "\n%s of %u ranks%s%s, %s buffers%s, times in µs",
		bench_collective_name((enum bench_collective)all->work.collective), all->bootstrap.ranks,
		o->transport != NULL ? " over " : "", o->transport != NULL ? o->transport : "",
		bench_buffer_kind_name(o->mode.buffers), all->work.in_place ? ", in place" : "");
	if (bench_cores_name(cores) != NULL)
		fprintf(out, ", %s cores (a flag takes %.0f ns one way)", bench_cores_name(cores), flags->median_ns);
	fputs(":\n\n| bytes |", out);
	for (size_t c = 0; c < all->count; c++)
		if (comparison_opens_library(all, c))
			fprintf(out, " %s |", proper_name(all, c));
	fputs(" best peer | ratio | spread | CPU | its CPU |", out);
	fputs(o->mode.rewrite ? " rewritten | best peer | ratio |\n|---|" : "\n|---|", out);
	for (size_t c = 0; c < all->count; c++)
		if (comparison_opens_library(all, c))
			fputs("---|", out);
	fputs(o->mode.rewrite ? "---|---|---|---|---|---|---|---|\n" : "---|---|---|---|---|\n", out);
}

static void put_us(FILE *out, double ns)
{
	bench_table_number(out, ns > 0 ? ns / 1e3 : -1, 0);
	fputs(" |", out);
}

static void put_rewritten(const struct comparison *all, size_t size, enum bench_cores cores)
{
	const size_t best = comparison_best_peer(all, size, cores, COMPARISON_REWRITTEN);
	const struct comparison_result mine = comparison_result(all, size, 0, cores, COMPARISON_REWRITTEN),
				       its = comparison_result(all, size, best, cores, COMPARISON_REWRITTEN);
	put_us(all->markdown, mine.median_ns);
	if (best > 0 && its.ratio.median > 0)
		fprintf(all->markdown, " %s | %.2f |", all->competitors[best].name, its.ratio.median);
	else
		fputs(" - | - |", all->markdown);
}

static void put_row(const struct comparison *all, size_t size, enum bench_cores cores)
{
	FILE *out = all->markdown;
	const uint64_t bytes = comparison_bytes(all, size);
	const size_t best = comparison_best_peer(all, size, cores, COMPARISON_PLAIN);
	const struct comparison_result mine = comparison_result(all, size, 0, cores, COMPARISON_PLAIN),
				       its = comparison_result(all, size, best, cores, COMPARISON_PLAIN);
	char text[24];
	fprintf(out, "| %s%s |", bench_bytes_text(bytes, text), bytes < 1024 ? " B" : "");
	for (size_t c = 0; c < all->count; c++)
		if (comparison_opens_library(all, c))
			put_us(out, comparison_leader_ns(all, size, c, cores));
	if (best > 0 && its.ratio.median > 0)
		fprintf(out, " %s | %.2f | %.2f to %.2f |", all->competitors[best].name, its.ratio.median,
			its.ratio.least, its.ratio.most);
	else
		fputs(" - | - | - |", out);
	put_us(out, mine.cpu_ns);
	put_us(out, best > 0 ? its.cpu_ns : -1);
	if (all->options->mode.rewrite)
		put_rewritten(all, size, cores);
	putc('\n', out);
}

void comparison_print_markdown(const struct comparison *all, size_t sizes)
{
	for (enum bench_cores cores = 0; cores < BENCH_CORES_STATES; cores++) {
		const struct comparison_flags flags = comparison_flags(all, sizes, cores);
		if (flags.repeats > 0)
			put_header(all, &flags, cores);
		for (size_t i = 0; flags.repeats > 0 && i < sizes; i++)
			if (comparison_was_seen(all, i, cores))
				put_row(all, i, cores);
	}
	const char *missing = comparison_unseen_cores(all, sizes);
	if (missing != NULL)
		fprintf(all->markdown, "\nCores were never %s meanwhile.\n", missing);
	fflush(all->markdown);
}
