/* The table in Markdown, for docs/performance.md and the README. */
#include "comparison.h"

#include <string.h>

#include "sizes.h"

static const char *proper_name(const struct comparison *all, size_t at)
{
	static const struct {
		const char *library, *name;
	} rows[] = { { "openmpi", "Open MPI" }, { "mpich", "MPICH" }, { "gloo", "Gloo" } };
	if (at == 0)
		return "collet";
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].library, all->competitors[at].variant->library) == 0)
			return rows[i].name;
	return all->competitors[at].variant->library;
}

void comparison_markdown_header(const struct comparison *all)
{
	const struct bench_options *o = all->options;
	fprintf(all->markdown, "\n%s of %u ranks%s%s, %s buffers%s, times in µs:\n\n|",
		bench_collective_name((enum bench_collective)all->work.collective), all->bootstrap.ranks,
		o->transport != NULL ? " over " : "", o->transport != NULL ? o->transport : "",
		bench_buffer_kind_name(o->mode.buffers), all->work.in_place ? ", in place" : "");
	fputs(" bytes |", all->markdown);
	for (size_t c = 0; c < all->count; c++)
		if (comparison_opens_library(all, c))
			fprintf(all->markdown, " %s |", proper_name(all, c));
	fputs(" best peer | ratio | spread | CPU | its CPU |\n|---|", all->markdown);
	for (size_t c = 0; c < all->count; c++)
		if (comparison_opens_library(all, c))
			fputs("---|", all->markdown);
	fputs("---|---|---|---|---|\n", all->markdown);
}

static void put_us(FILE *out, double ns)
{
	bench_table_number(out, ns > 0 ? ns / 1e3 : -1, 0);
	fputs(" |", out);
}

void comparison_markdown_row(const struct comparison *all, uint64_t bytes)
{
	FILE *out = all->markdown;
	char text[24];
	fprintf(out, "| %s%s |", bench_bytes_text(bytes, text), bytes < 1024 ? " B" : "");
	for (size_t c = 0; c < all->count; c++) {
		const struct cell *best = comparison_opens_library(all, c) ? comparison_leader(all, c) : NULL;
		if (comparison_opens_library(all, c))
			put_us(out, best != NULL ? best->median_ns : -1);
	}
	const struct bench_ratio *ratio = &all->cells[all->best].ratio;
	if (all->best > 0 && ratio->median > 0)
		fprintf(out, " %s | %.2f | %.2f to %.2f |", all->competitors[all->best].name, ratio->median,
			ratio->least, ratio->most);
	else
		fputs(" - | - | - |", out);
	put_us(out, all->cells[0].measured ? all->cells[0].cpu_ns : -1);
	put_us(out, all->best > 0 ? all->cells[all->best].cpu_ns : -1);
	putc('\n', out);
	fflush(out);
}
