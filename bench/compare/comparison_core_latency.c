/* Prints the latency between cores, and ratios by it. The host of a virtual machine may move its cores at any time,
 * so that they share a cache or not. Libraries suffer differently from that, so one ratio for both states would
 * mislead. */
#include "comparison.h"

#include <stdlib.h>

#include "sizes.h"

/* The latencies during one collective, split into two groups. */
struct latency_split {
	double threshold_ns;           /* 0: all took about as long */
	double near_ns, far_ns;      /* medians; with one heap only near */
	size_t near_count, far_count;
};

/* Room for every flag of the collective, and for times of collet and of a competitor. */
struct scratch {
	double *flags_ns, *mine_ns, *its_ns, *sorted_ns;
};

static bool scratch_init(struct scratch *scratch, const struct comparison *all)
{
	const size_t repeats = all->options->repeats;
	scratch->flags_ns = calloc(all->options->sizes.count * COMPETITORS_MAX * repeats, sizeof(scratch->flags_ns[0]));
	scratch->mine_ns = calloc(repeats, sizeof(scratch->mine_ns[0]));
	scratch->its_ns = calloc(repeats, sizeof(scratch->its_ns[0]));
	scratch->sorted_ns = calloc(repeats, sizeof(scratch->sorted_ns[0]));
	return scratch->flags_ns != NULL && scratch->mine_ns != NULL && scratch->its_ns != NULL &&
	       scratch->sorted_ns != NULL;
}

static void scratch_deinit(struct scratch *scratch)
{
	free(scratch->flags_ns);
	free(scratch->mine_ns);
	free(scratch->its_ns);
	free(scratch->sorted_ns);
}

static struct latency_split split_latencies(const struct comparison *all, size_t sizes, const struct scratch *scratch)
{
	const size_t most = sizes * COMPETITORS_MAX * all->options->repeats;
	struct latency_split v = { 0 };
	size_t n = 0;
	for (size_t i = 0; i < most; i++)
		if (all->times_ns[i] > 0 && all->flags_ns[i] > 0)
			scratch->flags_ns[n++] = all->flags_ns[i];
	v.threshold_ns = bench_split_threshold(scratch->flags_ns, n);
	while (v.near_count < n && (v.threshold_ns == 0 || scratch->flags_ns[v.near_count] < v.threshold_ns))
		v.near_count++;
	v.far_count = n - v.near_count;
	v.near_ns = bench_median(scratch->flags_ns, v.near_count);
	v.far_ns = bench_median(scratch->flags_ns + v.near_count, v.far_count);
	return v;
}

/* The repeats in which cores were near, or far; 0 in place of the others. */
static void pick(const struct comparison *all, size_t size, size_t competitor, const struct latency_split *v, bool far,
	double *times_ns)
{
	const size_t from = comparison_times_at(all, size, competitor);
	for (uint32_t r = 0; r < all->options->repeats; r++) {
		const double flag_ns = all->flags_ns[from + r];
		times_ns[r] = flag_ns > 0 && (flag_ns > v->threshold_ns) == far ? all->times_ns[from + r] : 0;
	}
}

static double median_of_picked(const double *times_ns, size_t n, double *sorted_ns)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		if (times_ns[i] > 0)
			sorted_ns[count++] = times_ns[i];
	return bench_median(sorted_ns, count);
}

/* The peer that was best then, and collet's time to its own; NULL: nobody was measured beside collet. */
static const char *stand(const struct comparison *all, size_t size, const struct latency_split *v, bool far,
	const struct scratch *scratch, struct bench_ratio *ratio)
{
	const uint32_t repeats = all->options->repeats;
	const char *best = NULL;
	double least_ns = 0;
	pick(all, size, 0, v, far, scratch->mine_ns);
	for (size_t c = 1; c < all->count; c++) {
		pick(all, size, c, v, far, scratch->its_ns);
		const struct bench_ratio mine = bench_ratios(scratch->mine_ns, scratch->its_ns, repeats);
		const double median_ns = median_of_picked(scratch->its_ns, repeats, scratch->sorted_ns);
		if (!(mine.median > 0) || (best != NULL && median_ns >= least_ns))
			continue;
		best = all->competitors[c].name;
		least_ns = median_ns;
		*ratio = mine;
	}
	return best;
}

static uint64_t bytes_at(const struct comparison *all, size_t size)
{
	if (!bench_collective_takes_bytes((enum bench_collective)all->work.collective))
		return 0;
	const uint32_t ranks = all->bootstrap.ranks;
	return bench_bytes(&all->work, ranks, bench_count(&all->work, ranks, all->options->sizes.bytes[size]));
}

static void print_standing(FILE *out, bool document, const char *best, const struct bench_ratio *ratio)
{
	if (document && best != NULL)
		fprintf(out, " %.2f | %.2f to %.2f | %s |", ratio->median, ratio->least, ratio->most, best);
	else if (document)
		fputs(" - | - | - |", out);
	else if (best != NULL)
		fprintf(out, "  %7.2f  (%.2f to %.2f)  %-27s", ratio->median, ratio->least, ratio->most, best);
	else
		fprintf(out, "  %7s  %-14s  %-27s", "-", "-", "-");
}

static void print_rows(const struct comparison *all, size_t sizes, const struct latency_split *v,
	const struct scratch *scratch, FILE *out, bool document)
{
	char text[24];
	for (size_t i = 0; i < sizes; i++) {
		const uint64_t bytes = bytes_at(all, i);
		if (document)
			fprintf(out, "| %s%s |", bench_bytes_text(bytes, text), bytes < 1024 ? " B" : "");
		else
			fprintf(out, "%10s", bench_bytes_text(bytes, text));
		for (int far = 0; far < 2; far++) {
			struct bench_ratio ratio = { 0 };
			const char *best = stand(all, i, v, far != 0, scratch, &ratio);
			print_standing(out, document, best, &ratio);
		}
		putc('\n', out);
	}
	fflush(out);
}

static void print(const struct comparison *all, size_t sizes, const struct latency_split *v,
	const struct scratch *scratch, FILE *out, bool document)
{
	const double part = 100.0 * (double)v->near_count / (double)(v->near_count + v->far_count);
	if (v->threshold_ns == 0) {
		if (!document)
			fprintf(out, "# a flag took %.0f ns from core to core\n", v->near_ns);
		return;
	}
	if (document)
		fprintf(out,
			"\nA flag took %.0f ns from core to core at %.0f %% of these times, %.0f at the others. "
			"Then, and then:\n\n"
			"| bytes | ratio | spread | best peer | ratio | spread | best peer |\n"
			"|---|---|---|---|---|---|---|\n",
			v->near_ns, part, v->far_ns);
	else
		fprintf(out,
			"# a flag took %.0f ns from core to core at %.0f %% of these times, %.0f at the others; "
			"ratio, spread and best peer then, and then\n",
			v->near_ns, part, v->far_ns);
	print_rows(all, sizes, v, scratch, out, document);
}

void comparison_print_core_latency(const struct comparison *all, size_t sizes)
{
	struct scratch scratch;
	if (scratch_init(&scratch, all)) {
		const struct latency_split v = split_latencies(all, sizes, &scratch);
		if (v.near_count > 0 && all->table != NULL)
			print(all, sizes, &v, &scratch, all->table, false);
		if (v.near_count > 0 && all->markdown != NULL)
			print(all, sizes, &v, &scratch, all->markdown, true);
	}
	scratch_deinit(&scratch);
}
