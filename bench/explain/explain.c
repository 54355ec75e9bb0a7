/* Explains the choice of algorithms. The ranks of a run choose by what they find out together: the tuning, how many
 * cores they share, how far those are apart, the settings in the environment. So ranks are started and their
 * communicator is asked, and the answer is that of a run. Of a world that is too large for this host, the cost model
 * alone answers. */
#include "explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <collet/tools.h>

#include "list.h"
#include "measure/session.h"
#include "pin.h"
#include "report/output.h"

enum { RANKS_STARTED_MAX = 64, CHOICES_MAX = 64, SIZE_LOG2_MAX = 33 };

static int complain(const char *what)
{
	fprintf(stderr, "collet-bench: %s: %s\n", what, collet_last_error());
	return 1;
}

/* The question that explain answers. */
struct question {
	const struct bench_options *options;
	collet_comm *comm;              /* whom to ask; NULL: the model */
	collet_call_shape shape;
	const char *transport;          /* or several: "shm,tcp" */
	collet_algorithm_info *algorithms;
	size_t algorithm_count;
	collet_link_cost links[COLLET_TUNING_LINKS];
	const collet_link_cost *link;   /* of them: the nearest to these ranks and cores */
	const collet_link_cost *cost;   /* link; NULL: the built-in tuning */
	char tuning[4096];              /* where they are from */
	collet_choice choices[CHOICES_MAX];
	size_t choice_count;
};

/* The tuning that a communicator created here would choose by. Of several transports, the first is that of a host. */
static int find_tuning(struct question *q)
{
	size_t count;
	char transport[sizeof(q->links[0].transport)];
	snprintf(transport, sizeof(transport), "%.*s", (int)strcspn(q->transport, ","), q->transport);
	if (collet_tuning_path(q->tuning, sizeof(q->tuning)) != COLLET_OK)
		return complain("the tuning");
	const bool insisted = getenv("COLLET_TUNING") != NULL && *getenv("COLLET_TUNING") != '\0';
	const bool is_file = q->tuning[0] != '\0' && (insisted || access(q->tuning, F_OK) == 0);
	if (is_file && collet_tuning_read(q->tuning, q->links, COLLET_TUNING_LINKS, &count) != COLLET_OK) {
		if (insisted)
			return complain("the tuning");
		fprintf(stderr, "collet-bench: %s. The built-in tuning is used instead\n", collet_last_error());
	} else if (is_file) {
		q->link = collet_tuning_find(q->links, count, transport, q->shape.ranks, q->shape.cores);
	}
	q->cost = q->link;
	if (q->link != NULL)
		return 0;
	strcpy(q->tuning, "built in");
	if (collet_tuning_read(NULL, q->links, COLLET_TUNING_LINKS, &count) != COLLET_OK)
		return complain("the built-in tuning");
	q->link = collet_tuning_find(q->links, count, transport, q->shape.ranks, q->shape.cores);
	if (q->link != NULL)
		return 0;
	if (q->comm != NULL)
		return 0;   /* the communicator has other numbers: those of a module's transport */
	fprintf(stderr, "collet-bench: --transport %s: explain takes one of self, shm and tcp\n", q->transport);
	return 2;
}

/* ---- The choice ---- */

static uint64_t count_of(const struct question *q, uint64_t bytes)
{
	return bench_count(&q->options->work, q->shape.ranks, bytes);
}

static collet_status plan(const struct question *q, const char *algorithm, uint64_t bytes, collet_plan *planned)
{
	return collet_comm_plan(q->comm, q->shape.collective, count_of(q, bytes), q->shape.dtype, q->shape.op,
		q->shape.root, algorithm, planned);
}

static bool is_same_choice(const collet_choice *a, const collet_choice *b)
{
	return strcmp(a->algorithm, b->algorithm) == 0 && a->segment_bytes == b->segment_bytes &&
		a->channels == b->channels;
}

/* Asks the communicator at each power of two. A choice holds for all sizes above the power before. */
static int ask_for_choices(struct question *q)
{
	for (uint32_t i = 0; i <= SIZE_LOG2_MAX; i++) {
		const uint64_t bytes = UINT64_C(1) << i, first = i == 0 ? 0 : (bytes >> 1) + 1;
		collet_plan at_end, at_first;
		if (plan(q, q->options->algorithm, bytes, &at_end) != COLLET_OK ||
			plan(q, q->options->algorithm, first, &at_first) != COLLET_OK)
			return complain("the choice");
		const collet_choice choice = { .first_bytes = first, .last_bytes = bytes,
			.algorithm = at_end.algorithm, .first_ns = at_first.predicted_ns,
			.segment_bytes = at_end.segment_bytes, .channels = at_end.channels };
		collet_choice *last = q->choice_count > 0 ? &q->choices[q->choice_count - 1] : NULL;
		if (last != NULL && is_same_choice(last, &choice))
			last->last_bytes = bytes;
		else
			q->choices[q->choice_count++] = choice;
	}
	q->choices[q->choice_count - 1].last_bytes = UINT64_MAX;
	return 0;
}

static int find_choices(struct question *q)
{
	if (q->comm != NULL)
		return ask_for_choices(q);
	const collet_status status =
		collet_choice_list(&q->shape, q->transport, q->cost, q->choices, CHOICES_MAX, &q->choice_count);
	return status != COLLET_OK ? complain("the choice") : 0;
}

/* Returns the algorithm that a call of so many bytes takes. */
static const char *chosen_at(const struct question *q, uint64_t bytes)
{
	collet_plan chosen;
	if (q->comm != NULL)
		return plan(q, q->options->algorithm, bytes, &chosen) == COLLET_OK ? chosen.algorithm : "";
	size_t i = 0;
	while (i + 1 < q->choice_count && q->choices[i].last_bytes < bytes)
		i++;
	return q->choices[i].algorithm;
}

/* Returns the predicted time; negative: the algorithm cannot do this call. */
static double predict(const struct question *q, const char *algorithm, uint64_t bytes)
{
	collet_plan planned;
	double ns;
	if (q->comm != NULL)
		return plan(q, algorithm, bytes, &planned) == COLLET_OK ? planned.predicted_ns : -1;
	return collet_cost_predict(&q->shape, algorithm, q->transport, q->cost, bytes, &ns) == COLLET_OK ? ns : -1;
}

/* ---- Printing ---- */

static void print_range(uint64_t first, uint64_t last)
{
	char from[24], to[24];
	bench_bytes_text(first, from);
	if (last == UINT64_MAX)
		printf("  %14s and more       ", from);
	else
		printf("  %14s to %-14s", from, bench_bytes_text(last, to));
}

static void print_choices(const struct question *q)
{
	printf("# %s of %u ranks on %u cores over %s: chosen by size%s\n", q->shape.collective, q->shape.ranks,
		q->shape.cores, q->transport,
		q->comm != NULL ? "" : ", by the cost model: so many ranks were not started");
	printf("# tuning: %s", q->tuning);
	if (q->link != NULL)
		printf(", measured with %u ranks on %u cores", q->link->ranks, q->link->cores);
	putchar('\n');
	for (size_t i = 0; i < q->choice_count && i < CHOICES_MAX; i++) {
		const collet_choice *row = &q->choices[i];
		char segment[24], us[24];
		print_range(row->first_bytes, row->last_bytes);
		snprintf(us, sizeof(us), "%.4g", row->first_ns / 1e3);
		printf(" %-18s %10s us at its least; pieces of %s", row->algorithm, us,
			bench_bytes_text(row->segment_bytes, segment));
		if (row->channels > 1)
			printf(" over %u channels", row->channels);
		putchar('\n');
	}
}

/* The model's time of every algorithm at one size, the chosen one marked. */
static void print_costs(const struct question *q, uint64_t bytes)
{
	char text[24];
	const char *chosen = chosen_at(q, bytes);
	printf("  %12s", bench_bytes_text(bytes, text));
	for (size_t a = 0; a < q->algorithm_count; a++) {
		const char *name = q->algorithms[a].name;
		const int width = (int)strlen(name);
		bench_table_number(stdout, predict(q, name, bytes) / 1e3, width < 9 ? 9 : width);
		putchar(strcmp(name, chosen) == 0 ? '*' : ' ');
	}
	putchar('\n');
}

static void print_table(const struct question *q)
{
	printf("# the model's time of each algorithm in us, the chosen one marked; -: it cannot do this call\n  %12s",
		"bytes");
	for (size_t a = 0; a < q->algorithm_count; a++) {
		const int width = (int)strlen(q->algorithms[a].name);
		printf(" %*s ", width < 9 ? 9 : width, q->algorithms[a].name);
	}
	putchar('\n');
	for (size_t i = 0; i < q->options->sizes.count; i++)
		print_costs(q, q->options->sizes.bytes[i]);
}

/* Answers a question whose ranks, cores and transport are known. */
static int answer(struct question *q)
{
	int status = find_tuning(q);
	if (status != 0)
		return status;
	q->algorithms = bench_list_algorithms(q->shape.collective, &q->algorithm_count);
	if (q->algorithms == NULL)
		return complain(q->shape.collective);
	status = find_choices(q);
	if (status == 0) {
		print_choices(q);
		print_table(q);
	}
	free(q->algorithms);
	return status;
}

static struct question question_of(const struct bench_options *options, uint32_t ranks)
{
	return (struct question){
		.options = options,
		.shape = {
			.collective = bench_collective_name((enum bench_collective)options->work.collective),
			.ranks = ranks,
			.root = options->work.root,
			.dtype = (collet_dtype)options->work.dtype,
			.op = (collet_op)options->work.op,
		},
	};
}

bool bench_explain_starts_ranks(const struct bench_options *options)
{
	return options->ranks <= RANKS_STARTED_MAX || options->ranks <= bench_core_count();
}

int bench_explain(const struct bench_options *options)
{
	struct question q = question_of(options, options->ranks);
	q.transport = options->transport != NULL ? options->transport : "shm";
	q.shape.cores = bench_core_count() < q.shape.ranks ? bench_core_count() : q.shape.ranks;
	return answer(&q);
}

/* Only rank 0 answers: all ranks choose alike. */
static int answer_as_rank(struct bench_session *session)
{
	struct question q = question_of(session->options, session->collet.library.size);
	collet_plan any;
	if (session->collet.library.rank != 0)
		return 0;
	q.comm = session->collet.comm;
	if (plan(&q, NULL, 0, &any) != COLLET_OK)
		return complain("a plan");
	q.transport = any.transport;
	q.shape.cores = any.cores < q.shape.ranks ? any.cores : q.shape.ranks;
	return answer(&q);
}

int bench_explain_as_rank(const struct bench_options *options)
{
	struct bench_session session = { 0 };
	const int status = bench_session_begin(&session, options, 0);
	return status != 0 ? status : bench_session_end(&session, answer_as_rank(&session));
}
