/* All libraries' ranks are started once and wait. Then, size by size: each prepares and is checked, learns how many
 * calls fit into the time, and is timed in every repeat, the order moving on by one from repeat to repeat, so that no
 * library is always the one after another, and what else happens on the machine hits all of them. What is told is the
 * median over the repeats and, against the best peer, the ratio of times within one repeat with its spread. */
#include "compare.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collet_side.h"
#include "competitor.h"
#include "loopback.h"
#include "output.h"
#include "pin.h"
#include "plot.h"

enum { COMPETITORS_MAX = 64, ANSWER_SECONDS = 60 };

/* One library at one size. */
struct cell {
	bool measured;
	uint64_t iterations;
	double *times_ns;          /* of one call, by repeat */
	double median_ns, cpu_ns;
	double loopback_bytes;     /* of one call, over lo; the least of the repeats, as others use lo too */
	struct bench_reply prepared, sampled;
};

struct comparison {
	const struct bench_options *options;
	struct meeting meeting;
	struct competitor competitors[COMPETITORS_MAX];  /* the first is collet */
	size_t count;
	struct cell cells[COMPETITORS_MAX];              /* of the size at hand */
	double *medians_us;                              /* [competitor][size], for the plot */
	FILE *table, *json;
	char host[65];
	uint64_t wrong;
};

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
	if (n == 0)
		return 0;
	qsort(values, n, sizeof(values[0]), by_value);
	return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- Who takes part ------------------------------------------------------------------------------------------ */

/* --with openmip is a mistake, not a peer that is missing. */
static bool names_are_known(const char *list)
{
	size_t length;
	const char *unknown = bench_peer_unknown(list, &length);
	if (unknown == NULL)
		return true;
	fprintf(stderr, "collet-bench: --with %.*s: known are openmpi, mpich and gloo, and their variants "
		"(collet-bench list shows them)\n", (int)length, unknown);
	return false;
}

/* Also-rans are said on standard error, so that they stay out of the table. */
static void say_skipped(const char *name, const char *why)
{
	bench_progress_clear();
	fprintf(stderr, "collet-bench: %s is left out: %s\n", name, why);
}

static void add(struct comparison *all, const struct peer_variant *variant)
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
	if (competitor_start(c, &all->meeting))
		all->count++;
	else
		say_skipped(c->name, c->problem);
}

/* Starts collet and every wanted peer that can be had. False: collet itself could not be started. */
static bool start_all(struct comparison *all)
{
	const struct bench_options *o = all->options;
	const struct peer_wish wish = { .with = o->with, .transport = o->transport, .tuned = o->tuned,
		.crowded = all->meeting.ranks > bench_core_count(), .own_memory = o->manner.buffers == BENCH_ALLOC,
		.collective = o->work.collective };
	add(all, NULL);
	if (all->count == 0)
		return false;
	bool any = false;   /* of the library at hand */
	for (size_t v = 0; v < bench_peer_variant_count; v++) {
		const struct peer_variant *variant = &bench_peer_variants[v];
		const bool wanted = bench_peer_wanted(variant, &wish);
		any = any || wanted;
		if (wanted && all->count < COMPETITORS_MAX)
			add(all, variant);
		const bool last = v + 1 == bench_peer_variant_count
			|| strcmp(bench_peer_variants[v + 1].library, variant->library) != 0;
		if (last && !any && bench_peer_library_named(o->with, variant->library))
			say_skipped(variant->library, "it has nothing for this transport");
		any = any && !last;
	}
	return true;
}

/* ---- One size ------------------------------------------------------------------------------------------------ */

static bool order(struct comparison *all, size_t at, const struct bench_command *command, double expected_seconds,
	struct bench_reply *reply)
{
	struct competitor *c = &all->competitors[at];
	if (c->fds == NULL)
		return false;
	if (competitor_command(c, command, ANSWER_SECONDS + 10 * expected_seconds, reply))
		return true;
	say_skipped(c->name, c->problem);
	all->cells[at].measured = false;
	return false;
}

/* collet's own memory is compared with a peer's ordinary memory, and with its own where a variant is for that. */
static enum bench_buffer_kind buffers_of(const struct comparison *all, size_t at)
{
	const struct peer_variant *variant = all->competitors[at].variant;
	const enum bench_buffer_kind kind = all->options->manner.buffers;
	return kind == BENCH_ALLOC && variant != NULL && !variant->own_memory_only ? BENCH_MALLOC : kind;
}

static struct bench_command command_for(const struct comparison *all, size_t at, enum bench_order what, uint64_t count)
{
	const struct bench_options *o = all->options;
	struct bench_command command = { .order = what, .buffers = buffers_of(all, at), .cold = o->manner.cold,
		.sync = o->manner.sync, .work = o->work, .count = count };
	return command;
}

/* Allocates, checks, and finds how many calls fit into the time. */
static void prepare(struct comparison *all, size_t at, uint64_t count)
{
	struct cell *cell = &all->cells[at];
	const struct bench_manner *manner = &all->options->manner;
	struct bench_command command = command_for(all, at, BENCH_PREPARE, count);
	struct bench_reply reply;
	if (at == 0 && all->options->algorithm != NULL)
		snprintf(command.algorithm, sizeof(command.algorithm), "%s", all->options->algorithm);
	if (!order(all, at, &command, 0, &cell->prepared))
		return;
	if (cell->prepared.answer == BENCH_CANNOT) {
		say_skipped(all->competitors[at].name, cell->prepared.text);
		return;
	}
	all->wrong += cell->prepared.wrong;
	if (cell->prepared.wrong > 0) {
		bench_progress_clear();
		fprintf(stderr, "collet-bench: %s: %" PRIu64 " wrong elements\n", all->competitors[at].name,
			cell->prepared.wrong);
	}
	command.order = BENCH_BATCH;
	for (command.iterations = 1;; command.iterations *= 2) {
		if (!order(all, at, &command, manner->seconds, &reply))
			return;
		if ((double)reply.elapsed_ns >= manner->seconds * 1e8 || command.iterations >= BENCH_ITERATIONS_MAX)
			break;
	}
	cell->iterations = manner->iterations > 0 ? manner->iterations
		: bench_iterations_for(manner->seconds, command.iterations, reply.elapsed_ns);
	cell->measured = true;
}

static void time_once(struct comparison *all, size_t at, uint64_t count, uint32_t repeat)
{
	struct cell *cell = &all->cells[at];
	struct bench_command command = command_for(all, at, BENCH_BATCH, count);
	struct bench_reply reply;
	if (!cell->measured)
		return;
	command.iterations = cell->iterations;
	const uint64_t loopback_before = bench_loopback_bytes();
	/* The others have been at the caches since: they are filled again, outside the time. */
	command.warm_iterations = 1 + cell->iterations / 20;
	if (!order(all, at, &command, all->options->manner.seconds, &reply))
		return;
	const double loopback = (double)(bench_loopback_bytes() - loopback_before)
		/ (double)(command.warm_iterations + command.iterations);
	if (repeat == 0 || loopback < cell->loopback_bytes)
		cell->loopback_bytes = loopback;
	cell->times_ns[repeat] = (double)reply.elapsed_ns / (double)cell->iterations;
	cell->cpu_ns += (double)reply.cpu_ns / (double)cell->iterations / all->options->repeats;
}

static void sample(struct comparison *all, size_t at, uint64_t count)
{
	struct cell *cell = &all->cells[at];
	struct bench_command command = command_for(all, at, BENCH_SAMPLES, count);
	command.iterations = cell->iterations < BENCH_DRIVER_SAMPLES ? cell->iterations : BENCH_DRIVER_SAMPLES;
	if (cell->measured)
		order(all, at, &command, all->options->manner.seconds, &cell->sampled);
}

static void measure(struct comparison *all, uint64_t count)
{
	const uint32_t repeats = all->options->repeats;
	double *sorted = calloc(repeats, sizeof(sorted[0]));
	for (size_t c = 0; c < all->count; c++)
		prepare(all, c, count);
	for (uint32_t r = 0; r < repeats; r++)
		for (size_t c = 0; c < all->count; c++)
			time_once(all, (c + r) % all->count, count, r);
	for (size_t c = 0; c < all->count; c++) {
		struct cell *cell = &all->cells[c];
		sample(all, c, count);
		if (sorted == NULL || !cell->measured)
			continue;
		memcpy(sorted, cell->times_ns, repeats * sizeof(sorted[0]));
		cell->median_ns = bench_median(sorted, repeats);
	}
	free(sorted);
}

/* ---- What comes out ------------------------------------------------------------------------------------------ */

static size_t best_peer(const struct comparison *all)
{
	size_t best = 0;
	for (size_t c = 1; c < all->count; c++)
		if (all->cells[c].measured && (best == 0 || all->cells[c].median_ns < all->cells[best].median_ns))
			best = c;
	return best;
}

static void print_ratio(const struct comparison *all)
{
	const uint32_t repeats = all->options->repeats;
	const size_t best = best_peer(all);
	double *ratios = calloc(repeats, sizeof(ratios[0]));
	if (ratios == NULL || best == 0 || !all->cells[0].measured) {
		fprintf(all->table, "  %-14s %7s\n", "-", "-");
	} else {
		for (uint32_t r = 0; r < repeats; r++)
			ratios[r] = all->cells[0].times_ns[r] / all->cells[best].times_ns[r];
		const double median = bench_median(ratios, repeats);
		fprintf(all->table, "  %-14s %7.2f  (%.2f to %.2f)\n", all->competitors[best].name, median, ratios[0],
			ratios[repeats - 1]);
	}
	fflush(all->table);
	free(ratios);
}

static void print_header(const struct comparison *all)
{
	const struct bench_options *o = all->options;
	fprintf(all->table, "# %s of %u ranks on %s%s, %s, %s, %s buffers; medians of %u repeats, taking turns\n",
		bench_collective_name((enum bench_collective)o->work.collective), all->meeting.ranks, all->host,
		all->competitors[0].pinned ? ", bound to cores" : "", collet_dtype_name((collet_dtype)o->work.dtype),
		o->work.in_place ? "in place" : "out of place", bench_buffer_kind_name(o->manner.buffers), o->repeats);
	for (size_t c = 0; c < all->count; c++)
		fprintf(all->table, "# %s: %s%s%s\n", all->competitors[c].name, all->competitors[c].version,
			o->transport != NULL ? ", over " : "", o->transport != NULL ? o->transport : "");
	fputs("# time of one call in us, mean of calls back to back, slowest rank; ratio: collet's to the best peer's\n",
		all->table);
	fprintf(all->table, "%10s", "bytes");
	for (size_t c = 0; c < all->count; c++)
		fprintf(all->table, " %11s", all->competitors[c].name);
	fprintf(all->table, "  %-14s %7s  %s\n", "best peer", "ratio", "spread");
}

static void print_row(const struct comparison *all, uint64_t bytes)
{
	char text[24];
	fprintf(all->table, "%10s", bench_bytes_text(bytes, text));
	for (size_t c = 0; c < all->count; c++)
		bench_table_number(all->table, all->cells[c].measured ? all->cells[c].median_ns / 1e3 : -1, 11);
	print_ratio(all);
}

static void print_json(const struct comparison *all, uint64_t count, uint64_t bytes)
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
			.work = o->work,
			.buffers = buffers_of(all, c),
			.ranks = all->meeting.ranks,
			.pinned = who->pinned,
			.bytes = bytes,
			.count = count,
			.time_ns = cell->median_ns,
			.p50_ns = (double)cell->sampled.p50_ns,
			.p99_ns = (double)cell->sampled.p99_ns,
			.cpu_ns = cell->cpu_ns,
			.predicted_ns = cell->prepared.predicted_ns,
			.wrong = cell->prepared.wrong,
		};
		bench_json_measurement(all->json, &m);
	}
}

/* A time over another transport than the one asked for is no time to compare with. */
static void say_contradictions(const struct comparison *all, uint64_t bytes)
{
	char text[24];
	for (size_t c = 0; c < all->count; c++) {
		const struct cell *cell = &all->cells[c];
		const char *wrong = cell->measured && all->meeting.ranks > 1
			? bench_loopback_contradiction(all->options->transport, bytes, cell->loopback_bytes) : NULL;
		if (wrong != NULL)
			fprintf(stderr, "collet-bench: %s at %s: %s\n", all->competitors[c].name,
				bench_bytes_text(bytes, text), wrong);
	}
}

static void compare_size(struct comparison *all, size_t index)
{
	const struct bench_options *o = all->options;
	const uint64_t count = bench_count(&o->work, all->meeting.ranks, o->sizes.bytes[index]);
	const uint64_t bytes = bench_bytes(&o->work, all->meeting.ranks, count);
	char text[24];
	bench_progress("%s, %s: measuring", bench_collective_name((enum bench_collective)o->work.collective),
		bench_bytes_text(bytes, text));
	for (size_t c = 0; c < all->count; c++) {
		double *times = all->cells[c].times_ns;
		memset(&all->cells[c], 0, sizeof(all->cells[c]));
		all->cells[c].times_ns = times;
	}
	measure(all, count);
	for (size_t c = 0; c < all->count; c++)
		all->medians_us[c * o->sizes.count + index] =
			all->cells[c].measured ? all->cells[c].median_ns / 1e3 : -1;
	bench_progress_clear();
	say_contradictions(all, bytes);
	if (all->table != NULL)
		print_row(all, bytes);
	if (all->json != NULL)
		print_json(all, count, bytes);
}

static bool draw(const struct comparison *all)
{
	const struct bench_options *o = all->options;
	struct bench_curve curves[COMPETITORS_MAX];
	char title[160];
	snprintf(title, sizeof(title), "%s of %u ranks%s%s",
		bench_collective_name((enum bench_collective)o->work.collective), all->meeting.ranks,
		o->transport != NULL ? " over " : "", o->transport != NULL ? o->transport : "");
	for (size_t c = 0; c < all->count; c++)
		curves[c] = (struct bench_curve){ all->competitors[c].name, &all->medians_us[c * o->sizes.count] };
	return bench_plot(o->plot, title, o->sizes.bytes, o->sizes.count, curves, all->count);
}

static bool allocate(struct comparison *all)
{
	all->medians_us = calloc(COMPETITORS_MAX * all->options->sizes.count, sizeof(all->medians_us[0]));
	bool done = all->medians_us != NULL;
	for (size_t c = 0; c < COMPETITORS_MAX; c++) {
		all->cells[c].times_ns = calloc(all->options->repeats, sizeof(double));
		done = done && all->cells[c].times_ns != NULL;
	}
	return done;
}

static int run(struct comparison *all)
{
	const size_t sizes = bench_collective_takes_bytes((enum bench_collective)all->options->work.collective)
		? all->options->sizes.count : 1;
	if (!allocate(all) || !start_all(all))
		return 1;
	bench_progress_clear();
	if (all->table != NULL)
		print_header(all);
	for (size_t i = 0; i < sizes; i++)
		compare_size(all, i);
	if (all->competitors[0].fds == NULL)
		return 1;   /* collet fell out; it has been said why */
	if (all->options->plot != NULL && !draw(all))
		return 1;
	return all->wrong > 0;
}

int bench_compare(const struct bench_options *options)
{
	struct comparison *all = calloc(1, sizeof(*all));
	struct bench_options o = *options;
	bool json_failed;
	int status = 1;
	if (all == NULL || (o.with != NULL && !names_are_known(o.with))) {
		free(all);
		return 2;
	}
	if (o.ranks == 0)
		o.ranks = 2;
	all->options = &o;
	gethostname(all->host, sizeof(all->host) - 1);
	all->json = bench_json_open(o.json, &json_failed);
	all->table = all->json == stdout ? NULL : stdout;
	if (!json_failed && meeting_init(&all->meeting, o.ranks, o.manner.pin)) {
		status = run(all);
		for (size_t c = 0; c < all->count; c++)
			competitor_stop(&all->competitors[c]);
		meeting_deinit(&all->meeting);
	}
	if (!json_failed && !bench_json_close(all->json))
		status = 1;
	for (size_t c = 0; c < COMPETITORS_MAX; c++)
		free(all->cells[c].times_ns);
	free(all->medians_us);
	free(all);
	return status;
}

/* ---- collet's own driver ------------------------------------------------------------------------------------- */

static const void *plan(void *context, const struct bench_work *work, uint64_t count, const char *algorithm,
	struct bench_reply *reply)
{
	struct collet_side *side = context;
	const void *how = collet_side_plan(side, work, count, algorithm);
	if (side->plan.algorithm != NULL)
		snprintf(reply->algorithm, sizeof(reply->algorithm), "%s", side->plan.algorithm);
	snprintf(reply->transport, sizeof(reply->transport), "%s", side->plan.transport);
	reply->predicted_ns = side->plan.predicted_ns;
	return how;
}

int bench_collet_driver(const struct bench_options *options)
{
	static const char *const rank[] = { "LOCAL_RANK", NULL }, *const size[] = { "LOCAL_WORLD_SIZE", NULL };
	struct collet_side side;
	bench_pin(bench_env_u32(rank, 0), bench_env_u32(size, 1));
	if (collet_side_init(&side, options->transport) != COLLET_OK) {
		fprintf(stderr, "%s\n", collet_last_error());
		return 1;
	}
	const struct bench_driver driver = { .library = side.library, .version = collet_version(), .plan = plan };
	const int status = bench_driver_serve(&driver);
	collet_side_deinit(&side);
	return status;
}
