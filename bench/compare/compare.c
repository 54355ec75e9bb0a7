/* Selects the libraries of a comparison, and runs all collectives and sizes. The ranks of all libraries are started
 * once and wait. */
#include "compare.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "closest_name.h"
#include "comparison_results.h"
#include "names.h"
#include "pin.h"
#include "ranks/host_memory.h"
#include "sizes.h"

/* Prints the library that a misspelt one may mean. Returns false if there is none, or if its variant is misspelt. */
static bool suggest_library(const char *item)
{
	struct bench_names names = { 0 };
	char word[64];
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(item, ",:"), item);
	for (size_t v = 0; v < bench_peer_variant_count; v++)
		if (v == 0 || strcmp(bench_peer_variants[v].library, bench_peer_variants[v - 1].library) != 0)
			bench_names_add(&names, bench_peer_variants[v].library);
	const char *closest = collet_closest_name(word, names.name, names.count);
	if (closest == NULL || strcmp(closest, word) == 0)
		return false;
	fprintf(stderr, " did you mean %s?\n", closest);
	return true;
}

/* --with openmip is a mistake, not a peer that is missing. */
static bool names_are_known(const char *list)
{
	size_t length;
	const char *unknown = bench_peer_unknown(list, &length);
	if (unknown == NULL)
		return true;
	fprintf(stderr, "collet-bench: --with %.*s:", (int)length, unknown);
	if (suggest_library(unknown))
		return false;
	fputs(" known are", stderr);
	for (size_t v = 0; v < bench_peer_variant_count; v++)
		if (v == 0 || strcmp(bench_peer_variants[v].library, bench_peer_variants[v - 1].library) != 0)
			fprintf(stderr, " %s,", bench_peer_variants[v].library);
	fputs(" and their variants (collet-bench list shows them)\n", stderr);
	return false;
}

/* Returns false if the library is not installed, so that its other variants need not be tried. */
static bool add(struct comparison *all, const struct peer_variant *variant)
{
	struct competitor *c = &all->competitors[all->count];
	memset(c, 0, sizeof(*c));
	c->variant = variant;
	c->transport = all->options->transport;
	if (variant == NULL)
		snprintf(c->name, sizeof(c->name), "collet");
	else
		bench_peer_variant_name(variant, c->name);
	bench_progress("starting %s", c->name);
	if (competitor_start(c, &all->bootstrap)) {
		all->count++;
		return true;
	}
	comparison_report_dropped(c->missing ? variant->library : c->name, c->problem);
	return !c->missing;
}

/* Starts collet and every wanted peer that can be had. False: collet itself could not be started. */
static bool start_all(struct comparison *all)
{
	const struct bench_options *o = all->options;
	const struct peer_filter filter = { .with = o->with, .transport = o->transport, .tuned = o->tuned,
		.oversubscribed = all->oversubscribed, .own_memory = o->mode.buffers == BENCH_ALLOC,
		.collectives = o->collectives };
	add(all, NULL);
	if (all->count == 0)
		return false;
	bool any = false, installed = true;   /* of the library at hand */
	for (size_t v = 0; v < bench_peer_variant_count; v++) {
		const struct peer_variant *variant = &bench_peer_variants[v];
		const bool wanted = bench_peer_matches(variant, &filter);
		any = any || wanted;
		if (wanted && installed && all->count < COMPETITORS_MAX)
			installed = add(all, variant);
		const bool last = v + 1 == bench_peer_variant_count
			|| strcmp(bench_peer_variants[v + 1].library, variant->library) != 0;
		if (last && !any && bench_peer_library_named(o->with, variant->library))
			comparison_report_dropped(variant->library, "it has nothing for this transport");
		any = any && !last;
		installed = installed || last;
	}
	return true;
}

static bool compare_size(struct comparison *all, size_t size)
{
	const uint64_t bytes = comparison_bytes(all, size);
	char text[24];
	bench_progress("%s, %s: measuring", bench_collective_name((enum bench_collective)all->work.collective),
		bench_bytes_text(bytes, text));
	comparison_measure(
		all, size, bench_count(&all->work, all->bootstrap.ranks, all->options->sizes.bytes[size]), bytes);
	bench_progress_clear();
	if (all->json != NULL)
		comparison_print_json(all, size);
	return all->options->baseline == NULL || comparison_note_standings(all, size);
}

/* One collective at all sizes. */
static bool compare_collective(struct comparison *all, enum bench_collective collective)
{
	const size_t sizes = bench_collective_takes_bytes(collective) ? all->options->sizes.count : 1;
	bool done = true;
	all->work.collective = collective;
	for (size_t i = 0; done && i < sizes; i++)
		done = compare_size(all, i);
	if (all->table != NULL)
		comparison_print_table(all, sizes);
	if (all->markdown != NULL)
		comparison_print_markdown(all, sizes);
	return done && all->competitors[0].fds != NULL;   /* collet fell out: it has been said why */
}

static bool allocate(struct comparison *all)
{
	const size_t places = COMPETITORS_MAX * all->options->sizes.count;
	all->slow = calloc(places, sizeof(all->slow[0]));
	all->repeats = calloc(places * all->options->repeats, sizeof(all->repeats[0]));
	return all->slow != NULL && all->repeats != NULL;
}

static void release(struct comparison *all)
{
	free(all->repeats);
	free(all->slow);
	bench_baseline_deinit(&all->standings);
	free(all);
}

static bool judge(struct comparison *all)
{
	struct bench_baseline then;
	if (!bench_baseline_read(&then, all->options->baseline))
		return false;
	const int slower = bench_baseline_compare(&then, &all->standings, all->table != NULL ? all->table : stderr);
	bench_baseline_deinit(&then);
	return slower == 0;
}

/* Returns the most that the ranks of all competitors together need at a size. Each keeps its buffers while others are
 * measured. */
static double buffers_need(const struct comparison *all, uint64_t bytes)
{
	double most = 0;
	for (uint32_t c = 0; c < BENCH_COLLECTIVES; c++) {
		struct bench_work work = all->work;
		double need = 0;
		work.collective = c;
		const uint64_t count = bench_count(&work, all->bootstrap.ranks, bytes);
		for (uint32_t r = 0; r < all->bootstrap.ranks; r++)
			need += bench_buffers_need(&work, r, all->bootstrap.ranks, count, all->options->mode.cold);
		if ((all->options->collectives >> c & 1) != 0 && need > most)
			most = need;
	}
	return most * (double)all->count;
}

static bool has_memory(const struct comparison *all)
{
	const struct bench_sizes *sizes = &all->options->sizes;
	const double available = bench_memory_available();
	for (size_t i = 0; i < sizes->count; i++) {
		const double need = buffers_need(all, sizes->bytes[i]);
		if (need <= available)
			continue;
		bench_memory_complain(sizes->bytes[i], all->bootstrap.ranks * (uint32_t)all->count, need, available);
		return false;
	}
	return true;
}

static int run(struct comparison *all)
{
	const struct bench_options *o = all->options;
	if (!allocate(all) || !start_all(all))
		return 1;
	bench_progress_clear();
	if (!has_memory(all))
		return 1;
	for (uint32_t c = 0; c < BENCH_COLLECTIVES; c++)
		if ((o->collectives >> c & 1) != 0 && !compare_collective(all, (enum bench_collective)c))
			return 1;
	bool good = all->wrong == 0 && !all->collet_lied;
	if (o->plot != NULL)
		good = comparison_plot(all) && good;
	if (o->baseline != NULL)
		good = judge(all) && good;
	return good ? 0 : 1;
}

int bench_compare(const struct bench_options *options)
{
	struct comparison *all = calloc(1, sizeof(*all));
	struct bench_options o = *options;
	bool json_failed, markdown_failed;
	int status = 1;
	if (all == NULL || (o.with != NULL && !names_are_known(o.with))) {
		free(all);
		return 2;
	}
	if (o.ranks == 0)
		o.ranks = 2;
	all->options = &o;
	all->work = o.work;
	all->oversubscribed = o.ranks > bench_core_count();
	gethostname(all->host, sizeof(all->host) - 1);
	all->json = bench_json_open(o.json, &json_failed);
	all->markdown = bench_json_open(o.markdown, &markdown_failed);
	all->table = all->json == stdout || all->markdown == stdout ? NULL : stdout;
	if (!json_failed && !markdown_failed && bootstrap_init(&all->bootstrap, o.ranks, o.mode.pin)) {
		status = run(all);
		for (size_t c = 0; c < all->count; c++)
			competitor_stop(&all->competitors[c]);
		bootstrap_deinit(&all->bootstrap);
	}
	if (!bench_json_close(all->json) || !bench_json_close(all->markdown))
		status = 1;
	release(all);
	return status;
}
