/* Tests conformance: every collective by every algorithm, over every transport, between processes, threads and both.
 *
 * There is one list of rows for each world size, drawn by a seed that a run prints. Every world of that size runs
 * it. Each rank draws its own variant: in place or not, memory of collet_mem_alloc or of malloc, blocking or as one
 * of several requests, waited for in any order. Results must equal those of a serial program. Where operands round,
 * all ranks and all worlds must have the same bits. One world is always of processes over shm, so all modes have the
 * same bits. A test is a call and an algorithm in a world ("allreduce_ring/shm/threads/n5"). Its output names its
 * rows.
 *
 * Usage: test_matrix processes|threads|mixed [--through WRAPPER:] [--ranks N] [TEXT]. TEXT selects rows whose name
 * contains it. WRAPPER wraps every transport, as "faulty:"; bits are compared with those without it. N makes one
 * world of so many ranks. COLLET_TEST_SEED repeats a run, COLLET_TEST_FULL draws more rows, COLLET_TEST_SAMPLE
 * selects a share of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "flight.h"
#include "sample.h"

static const uint32_t sizes[] = { 1, 2, 3, 5, 8 };
static const char *const plain_transports[] = { "shm", "tcp" };
static char transports[sizeof(plain_transports) / sizeof(plain_transports[0])][32];  /* as wrapped */
enum {
	SIZES = sizeof(sizes) / sizeof(sizes[0]),
	TRANSPORTS = sizeof(plain_transports) / sizeof(plain_transports[0]),
	PER_ALGORITHM = 3,
	PER_ALGORITHM_OTHERS = 2,    /* of threads, and of both: they compute the same */
	PER_ALGORITHM_FULL = 20,
	LONG_BYTES = 5 << 20,
	LONG_BYTES_SLOW = 1 << 20,
	MANY = 16,                   /* more ranks than these are slow on any machine */
	WINDOW = 4                   /* pending requests */
};

/* The result of one row on one rank. */
struct result {
	enum outcome outcome;
	uint64_t digest;
};

/* The rows for one size, and the results of the first world that ran them. */
struct list {
	struct row *rows;
	size_t count;
	uint32_t size;
	struct result *first;        /* by row, then rank; of processes over shm */
};

/* A world, as the tests of one group use it. */
struct world {
	const struct list *list;
	const char *transport, *mode_name;
	enum ranks_mode mode;
	bool passed;
	bool only_wild;              /* runs only rows whose bits another world must confirm */
	struct result *results;      /* by row, then rank */
};

/* ---- What ranks do ---- */

struct task {
	const struct list *list;
	uint64_t seed;               /* differs from world to world */
	bool only_wild;
};

static struct result *result_of(struct rank *rank, size_t row)
{
	return (struct result *)rank->shared + row * rank->size + rank->rank;
}

static bool finish(struct rank *rank, struct flight *flight)
{
	struct result *result = result_of(rank, flight->number);
	return flight_finish(flight, rank, &result->outcome, &result->digest);
}

/* Finishes requests in an order of this rank's own. */
static bool finish_all(struct rank *rank, struct flight *flights, uint32_t *count, uint64_t random)
{
	while (*count) {
		random = rows_mix(random, *count);
		const uint32_t i = (uint32_t)(random % *count);
		if (!finish(rank, &flights[i]))
			return false;
		flights[i] = flights[--*count];
	}
	return true;
}

static void run_rows(struct rank *rank)
{
	const struct task *task = rank->options->context;
	const struct list *list = task->list;
	struct flight flights[WINDOW];
	uint32_t under_way = 0;
	for (size_t i = 0; i < list->count; i++) {
		if (task->only_wild && list->rows[i].values != VALUES_WILD)
			continue;
		const uint64_t variant = rows_mix(rows_mix(task->seed, rank->rank), i);
		struct flight *flight = &flights[under_way];
		flight->number = i;
		struct result *result = result_of(rank, i);
		if (!flight_start(flight, rank, &list->rows[i], variant, &result->outcome, &result->digest))
			return;
		under_way += flight->request != NULL;
		if ((under_way == WINDOW || variant >> 32 & 1) && !finish_all(rank, flights, &under_way, variant))
			return;
	}
	finish_all(rank, flights, &under_way, task->seed);
}

static void run_world(struct world *world, uint64_t seed, bool progress_thread)
{
	const struct list *list = world->list;
	const struct task task = { list, seed, world->only_wild };
	const struct ranks_options options = {
		.mode = world->mode,
		.size = list->size,
		.transport = world->transport,
		.progress_thread = progress_thread,
		.shared_bytes = list->count * list->size * sizeof(struct result),
		.context = &task,
	};
	struct ranks *ranks = ranks_start(&options, run_rows);
	ranks_wait(ranks);
	world->passed = ranks_all_passed(ranks);
	memcpy(world->results, ranks_shared(ranks), options.shared_bytes);
	ranks_free(&ranks);
}

/* ---- What the tests look at ---- */

struct test {
	struct world *world;
	enum call call;
	const char *algorithm;       /* NULL: chosen */
	char name[100];
};

/* Checks that ranks agree: on refusing the row, and on the bits where all have the same result. */
static bool ranks_agree(const struct world *world, size_t i)
{
	const struct list *list = world->list;
	const struct row *row = &list->rows[i];
	const struct result *results = &world->results[i * list->size], *first = &list->first[i * list->size];
	/* Where the library chooses, its algorithm may depend on the transport. */
	const bool same_bits = row->algorithm || strcmp(world->transport, transports[0]) == 0;
	bool agree = true;
	for (uint32_t r = 0; r < list->size; r++) {
		char name[ROW_NAME_BYTES];
		row_name(row, world->transport, list->size, name);
		if (results[r].outcome != OUTCOME_RIGHT && results[r].outcome != OUTCOME_REFUSED) {
			print_error(
				"row %zu, %s: %s on rank %u\n", i, name, results[r].outcome ? "wrong" : "not run", r);
			agree = false;
		} else if (results[r].outcome != results[0].outcome) {
			print_error("row %zu, %s: refused by rank %u or 0, but not by both\n", i, name, r);
			agree = false;
		} else if (row->call == CALL_ALLREDUCE && results[r].digest != results[0].digest) {
			print_error("row %zu, %s: rank %u has other bits than rank 0\n", i, name, r);
			agree = false;
		} else if (same_bits && first[r].outcome == OUTCOME_RIGHT && results[r].digest != first[r].digest) {
			print_error("row %zu, %s: rank %u has other bits than among processes over shm\n", i, name, r);
			agree = false;
		}
	}
	return agree;
}

/* Checks what the algorithm list promises about operations that do not commute. */
static bool order_is_respected(const struct world *world, size_t i)
{
	const struct row *row = &world->list->rows[i];
	return !row->algorithm || !row->in_order || row->ordered ||
		world->results[i * world->list->size].outcome == OUTCOME_REFUSED;
}

static void rows_conform(void **state)
{
	const struct test *test = *state;
	const struct world *world = test->world;
	size_t wrong = 0;
	for (size_t i = 0; i < world->list->count; i++) {
		const struct row *row = &world->list->rows[i];
		if (row->call != test->call || row->algorithm != test->algorithm)
			continue;
		if (world->only_wild && row->values != VALUES_WILD)
			continue;
		wrong += !ranks_agree(world, i);
		if (!order_is_respected(world, i)) {
			print_error("row %zu: %s takes an operation that does not commute, but is not ordered\n", i,
				row->algorithm);
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
}

static void ranks_return(void **state)
{
	const struct test *test = *state;
	assert_true(test->world->passed);
}

/* ---- The groups ---- */

static uint32_t list_tests(struct world *world, struct test *tests, struct CMUnitTest *units)
{
	uint32_t count = 0;
	for (int c = 0; c < CALLS; c++) {
		collet_algorithm_info infos[32];
		size_t algorithms;
		assert_int_equal(collet_algorithm_list(call_infos[c].collective, infos, 32, &algorithms), COLLET_OK);
		for (size_t a = 0; a <= algorithms; a++) {
			struct test *test = &tests[count];
			*test = (struct test){ .world = world, .call = (enum call)c };
			test->algorithm = a ? infos[a - 1].name : NULL;
			snprintf(test->name, sizeof(test->name), "%s_%s/%s/%s/n%u", call_infos[c].name,
				a ? infos[a - 1].name : "chosen", world->transport, world->mode_name,
				world->list->size);
			units[count++] = (struct CMUnitTest){ test->name, rows_conform, NULL, NULL, test };
		}
	}
	struct test *last = &tests[count];
	*last = (struct test){ .world = world };
	snprintf(last->name, sizeof(last->name), "ranks_return/%s/%s/n%u", world->transport, world->mode_name,
		world->list->size);
	units[count++] = (struct CMUnitTest){ last->name, ranks_return, NULL, NULL, last };
	return count;
}

static int run_group(struct world *world)
{
	enum { TESTS = 160 };
	static struct test tests[TESTS];
	static struct CMUnitTest units[TESTS];
	const uint32_t count = list_tests(world, tests, units);
	return _cmocka_run_group_tests(world->mode_name, units, count, NULL, NULL);
}

static bool parse_mode(const char *name, enum ranks_mode *mode)
{
	static const char *const names[] = { "processes", "threads", "mixed" };
	for (uint32_t i = 0; i < 3; i++) {
		if (strcmp(name, names[i]) == 0) {
			*mode = (enum ranks_mode)i;
			return true;
		}
	}
	return false;
}

/* Selects rows of the sample whose name contains text. */
static void filter(struct list *list, const char *text)
{
	size_t kept = 0;
	for (size_t i = 0; i < list->count; i++) {
		char name[ROW_NAME_BYTES];
		row_name(&list->rows[i], "*", list->size, name);
		if (sample_has(rows_mix(list->size, i)) && strstr(name, text))
			list->rows[kept++] = list->rows[i];
	}
	list->count = kept;
}

static uint64_t read_seed(void)
{
	const char *given = getenv("COLLET_TEST_SEED");
	return given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
}

/* Runs every world of this size; returns the number of failed tests. */
static int run_size(uint32_t size, enum ranks_mode mode, const char *mode_name, uint64_t seed, const char *text)
{
	const uint32_t most = mode == RANKS_PROCESSES ? PER_ALGORITHM : PER_ALGORITHM_OTHERS;
	const uint32_t per_algorithm = getenv("COLLET_TEST_FULL") ? PER_ALGORITHM_FULL : most;
	struct list list = { .size = size };
	const bool slow = ranks_are_slow() || size > MANY;
	list.rows = rows_make(seed, size, slow ? (per_algorithm + 2) / 3 : per_algorithm,
		slow ? LONG_BYTES_SLOW : LONG_BYTES, &list.count);
	filter(&list, text);
	list.first = calloc(list.count * size, sizeof(*list.first));
	struct result *results = calloc(list.count * size, sizeof(*results));
	if (list.count && (!list.first || !results))
		abort();
	struct world worlds[TRANSPORTS + 1];
	uint32_t count = 0;
	if (mode != RANKS_PROCESSES || strcmp(transports[0], plain_transports[0]) != 0)
		worlds[count++] = (struct world){ .transport = plain_transports[0], .mode = RANKS_PROCESSES,
			.mode_name = "processes", .only_wild = true };
	for (uint32_t t = 0; t < TRANSPORTS; t++)
		worlds[count++] = (struct world){ .transport = transports[t], .mode = mode, .mode_name = mode_name };
	int failed = 0;
	for (uint32_t w = 0; w < count; w++) {
		worlds[w].list = &list;
		worlds[w].results = results;
		run_world(&worlds[w], rows_mix(seed, size * 4 + w), (size + w) % 3 == 2);
		failed += run_group(&worlds[w]);
		if (w == 0)
			memcpy(list.first, results, list.count * size * sizeof(*results));
	}
	free(results);
	free(list.first);
	free(list.rows);
	return failed;
}

/* Arguments of a run. */
struct asked {
	enum ranks_mode mode;
	const char *mode_name, *wrapper, *text;
	uint32_t ranks;  /* 0: all sizes */
};

static bool parse(struct asked *asked, char **argv)
{
	*asked = (struct asked){ .mode_name = *++argv, .wrapper = "", .text = "" };
	if (!*argv || !parse_mode(*argv++, &asked->mode))
		return false;
	for (; argv[0] && argv[1] && argv[0][0] == '-'; argv += 2) {
		if (strcmp(argv[0], "--through") == 0)
			asked->wrapper = argv[1];
		else if (strcmp(argv[0], "--ranks") != 0 || sscanf(argv[1], "%u", &asked->ranks) != 1)
			return false;
	}
	if (*argv)
		asked->text = *argv++;
	return !*argv;
}

int main(int argc, char **argv)
{
	struct asked asked;
	if (argc < 2 || !parse(&asked, argv) || asked.ranks > ROW_RANKS_MOST) {
		fprintf(stderr, "usage: %s processes|threads|mixed [--through WRAPPER:] [--ranks N] [TEXT]\n", argv[0]);
		return 2;
	}
	for (uint32_t t = 0; t < TRANSPORTS; t++)
		snprintf(transports[t], sizeof(transports[t]), "%s%s", asked.wrapper, plain_transports[t]);
	const uint64_t seed = read_seed();
	char faulty_seed[24];
	printf("COLLET_TEST_SEED=%llu\n", (unsigned long long)seed);
	snprintf(faulty_seed, sizeof(faulty_seed), "%llu", (unsigned long long)seed);
	setenv("COLLET_FAULTY_SEED", faulty_seed, 0);
	if (asked.ranks)
		return run_size(asked.ranks, asked.mode, asked.mode_name, seed, asked.text) != 0;
	int failed = 0;
	for (uint32_t s = 0; s < SIZES; s++)
		failed += run_size(sizes[s], asked.mode, asked.mode_name, seed, asked.text);
	return failed != 0;
}
