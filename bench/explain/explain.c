/* Printing the library's own tables. */
#include "explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <collet/tools.h>

#include "pin.h"
#include "report/output.h"
#include "report/wrap.h"

static int complain(const char *what)
{
	fprintf(stderr, "collet-bench: %s: %s\n", what, collet_last_error());
	return 1;
}

/* All algorithms of a collective (NULL: of all); NULL on failure. Free it. */
static collet_algorithm_info *algorithms(const char *collective, size_t *count)
{
	*count = 0;
	if (collet_algorithm_list(collective, NULL, 0, count) != COLLET_OK)
		return NULL;
	collet_algorithm_info *rows = calloc(*count + 1, sizeof(rows[0]));
	if (rows != NULL && collet_algorithm_list(collective, rows, *count, count) != COLLET_OK) {
		free(rows);
		rows = NULL;
	}
	return rows;
}

static int list_algorithms(void)
{
	size_t count;
	collet_algorithm_info *rows = algorithms(NULL, &count);
	if (rows == NULL)
		return complain("the algorithms");
	printf("%-15s %-18s %s\n", "collective", "algorithm", "");
	for (size_t i = 0; i < count; i++) {
		const bool is_same = i > 0 && strcmp(rows[i].collective, rows[i - 1].collective) == 0;
		const int column = printf("%-15s %-18s ", is_same ? "" : rows[i].collective, rows[i].name);
		bench_wrap(stdout, column, column, rows[i].summary);
		putchar('\n');
	}
	free(rows);
	return 0;
}

static int list_transports(void)
{
	collet_transport_info rows[16];
	size_t count;
	if (collet_transport_list(rows, 16, &count) != COLLET_OK)
		return complain("the transports");
	printf("\n%-15s\n", "transport");
	for (size_t i = 0; i < count && i < 16; i++) {
		const int column = printf("%-15s ", rows[i].name);
		const int at = bench_wrap(stdout, column, column, rows[i].summary);
		bench_wrap(stdout, column, at,
			rows[i].is_module ? rows[i].built ? "(a module, found)" : "(a module, not found)"
			: rows[i].built ? "" : "(not in this build)");
		putchar('\n');
	}
	return 0;
}

int bench_list(const struct bench_options *options)
{
	return list_algorithms() || list_transports();
}

/* The question that explain answers. */
struct question {
	const struct bench_options *options;
	collet_call_shape shape;
	const char *transport;
	collet_algorithm_info *algorithms;
	size_t algorithm_count;
	collet_link_cost links[COLLET_TUNING_LINKS];
	const collet_link_cost *link;   /* of them: the nearest to these ranks and cores */
	const collet_link_cost *cost;   /* link; NULL: the built-in tuning */
	char tuning[4096];              /* where they are from */
};

/* The tuning that a communicator created here would choose by. */
static int find_tuning(struct question *q)
{
	size_t count;
	if (collet_tuning_path(q->tuning, sizeof(q->tuning)) != COLLET_OK)
		return complain("the tuning");
	const bool insisted = getenv("COLLET_TUNING") != NULL && *getenv("COLLET_TUNING") != '\0';
	const bool is_file = q->tuning[0] != '\0' && (insisted || access(q->tuning, F_OK) == 0);
	if (is_file && collet_tuning_read(q->tuning, q->links, COLLET_TUNING_LINKS, &count) != COLLET_OK) {
		if (insisted)
			return complain("the tuning");
		fprintf(stderr, "collet-bench: %s. The built-in tuning is used instead\n", collet_last_error());
	} else if (is_file) {
		q->link = collet_tuning_find(q->links, count, q->transport, q->shape.ranks, q->shape.cores);
	}
	q->cost = q->link;
	if (q->link != NULL)
		return 0;
	strcpy(q->tuning, "built in");
	if (collet_tuning_read(NULL, q->links, COLLET_TUNING_LINKS, &count) != COLLET_OK)
		return complain("the built-in tuning");
	q->link = collet_tuning_find(q->links, count, q->transport, q->shape.ranks, q->shape.cores);
	if (q->link != NULL)
		return 0;
	fprintf(stderr, "collet-bench: --transport %s: explain takes one of self, shm and tcp\n", q->transport);
	return 2;
}

static void print_range(uint64_t first, uint64_t last)
{
	char from[24], to[24];
	bench_bytes_text(first, from);
	if (last == UINT64_MAX)
		printf("  %14s and more       ", from);
	else
		printf("  %14s to %-14s", from, bench_bytes_text(last, to));
}

static int print_choices(const struct question *q)
{
	collet_choice rows[64];
	size_t count;
	if (collet_choice_list(&q->shape, q->transport, q->cost, rows, 64, &count) != COLLET_OK)
		return complain("the choice");
	printf("# %s of %u ranks on %u cores over %s: chosen by size\n", q->shape.collective, q->shape.ranks,
		q->shape.cores, q->transport);
	printf("# tuning: %s, measured with %u ranks on %u cores\n", q->tuning, q->link->ranks, q->link->cores);
	for (size_t i = 0; i < count && i < 64; i++) {
		char segment[24], us[24];
		print_range(rows[i].first_bytes, rows[i].last_bytes);
		snprintf(us, sizeof(us), "%.4g", rows[i].first_ns / 1e3);
		printf(" %-18s %10s us at its least; pieces of %s", rows[i].algorithm, us,
			bench_bytes_text(rows[i].segment_bytes, segment));
		if (rows[i].channels > 1)
			printf(" over %u channels", rows[i].channels);
		printf(" (%s)\n", rows[i].measured ? "measured" : "by the formulas");
	}
	return 0;
}

/* The model's time of every algorithm at one size, the cheapest marked. */
static void print_costs(const struct question *q, uint64_t bytes)
{
	char text[24];
	size_t best = q->algorithm_count;
	double *ns = calloc(q->algorithm_count, sizeof(ns[0]));
	if (ns == NULL)
		return;
	for (size_t a = 0; a < q->algorithm_count; a++) {
		if (collet_cost_predict(&q->shape, q->algorithms[a].name, q->transport, q->cost, bytes, &ns[a])
			!= COLLET_OK)
			ns[a] = -1;
		else if (best == q->algorithm_count || ns[a] < ns[best])
			best = a;
	}
	printf("  %12s", bench_bytes_text(bytes, text));
	for (size_t a = 0; a < q->algorithm_count; a++) {
		const int width = (int)strlen(q->algorithms[a].name);
		bench_table_number(stdout, ns[a] / 1e3, width < 9 ? 9 : width);
		putchar(a == best ? '*' : ' ');
	}
	putchar('\n');
	free(ns);
}

static int print_table(const struct question *q)
{
	printf("# the model's time of each algorithm in us, the least marked; -: it cannot do this call\n  %12s",
		"bytes");
	for (size_t a = 0; a < q->algorithm_count; a++) {
		const int width = (int)strlen(q->algorithms[a].name);
		printf(" %*s ", width < 9 ? 9 : width, q->algorithms[a].name);
	}
	putchar('\n');
	for (size_t i = 0; i < q->options->sizes.count; i++)
		print_costs(q, q->options->sizes.bytes[i]);
	return 0;
}

int bench_explain(const struct bench_options *options)
{
	struct question q = {
		.options = options,
		.shape = {
			.collective = bench_collective_name((enum bench_collective)options->work.collective),
			.ranks = options->ranks > 0 ? options->ranks : bench_core_count(),
			.root = options->work.root,
			.dtype = (collet_dtype)options->work.dtype,
			.op = (collet_op)options->work.op,
		},
		.transport = options->transport != NULL ? options->transport : "shm",
	};
	q.shape.cores = bench_core_count() < q.shape.ranks ? bench_core_count() : q.shape.ranks;
	int status = find_tuning(&q);
	if (status != 0)
		return status;
	q.algorithms = algorithms(q.shape.collective, &q.algorithm_count);
	if (q.algorithms == NULL)
		return complain(q.shape.collective);
	status = print_choices(&q) || print_table(&q);
	free(q.algorithms);
	return status;
}
