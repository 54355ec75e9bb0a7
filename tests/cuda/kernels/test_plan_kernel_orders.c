/* How the plan kernel ends if it cannot continue, and how its message numbers wrap, whichever block runs first. All
 * ranks are in one launch, whose blocks run one at a time in orders drawn from seeds (fake_driver/schedule.h). In some
 * tests a block's threads take turns as well.
 *
 * Events during a launch (a peer has left, or the host aborts) are caused by the last rank here: the word in which its
 * kernel reports its end is the one that the others poll. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"
#include "sample.h"
#include "kernels/kernel_ranks.h"

enum { RANKS = 3, LAST = RANKS - 1, LAUNCHES = 6, OFTEN = 8, STOPPED = 1 };

/* What the last rank's end tells the others. */
enum news { NONE, HAS_LEFT, IS_OVER };

struct ending {
	const char *name, *program;
	uint64_t last_count;         /* the last rank's call */
	uint64_t count;              /* the other ranks' call; 0: MOST_COUNT */
	enum news news;
	uint32_t launched;           /* number of ranks */
	bool left;                   /* the last rank had left before */
	bool signs, other_call;      /* ranks write launch ids; the last one's is for another call */
	uint64_t timeout_ns;
	uint32_t reason;             /* why they abort; 0: they do not, and have their sums */
	int peer;                    /* for which peer; -1: it depends on the order */
};

static const struct ending endings[] = {
	{ .name = "all is well", .program = "two_shot", .last_count = MOST_COUNT, .launched = RANKS },
	{ .name = "the same call", .program = "two_shot", .last_count = MOST_COUNT, .launched = RANKS, .signs = true },
	{ .name = "who has done its part leaves",
		.program = "two_shot",
		.last_count = MOST_COUNT,
		.launched = RANKS,
		.news = HAS_LEFT },
	{ .name = "who has sent its part leaves",
		.program = "direct",
		.last_count = MOST_COUNT,
		.launched = RANKS,
		.news = HAS_LEFT },
	{ .name = "one has left",
		.program = "two_shot",
		.last_count = MOST_COUNT,
		.launched = LAST,
		.left = true,
		.reason = COLLET_ABORT_PEER_LEFT,
		.peer = LAST },
	{ .name = "one leaves in the middle",
		.program = "direct",
		.last_count = 1,
		.launched = RANKS,
		.news = HAS_LEFT,
		.reason = COLLET_ABORT_PEER_LEFT,
		.peer = LAST },
	{ .name = "it is over in the middle",
		.program = "direct",
		.last_count = 1,
		.launched = RANKS,
		.news = IS_OVER,
		.reason = STOPPED },
	{ .name = "one does not come",
		.program = "two_shot",
		.last_count = MOST_COUNT,
		.launched = LAST,
		.timeout_ns = 20000,
		.reason = COLLET_ABORT_TIMEOUT,
		.peer = -1 },
	/* The second channel does not wait for the last rank, but for the first channel, at a barrier. */
	{ .name = "one does not come, and channels meet",
		.program = "halving_doubling",
		.count = 125,
		.launched = LAST,
		.timeout_ns = 20000,
		.reason = COLLET_ABORT_TIMEOUT,
		.peer = -1 },
	{ .name = "one is late and has left",
		.program = "two_shot",
		.last_count = MOST_COUNT,
		.launched = LAST,
		.left = true,
		.signs = true,
		.timeout_ns = INT64_C(10) * 1000 * 1000 * 1000,
		.reason = COLLET_ABORT_PEER_LEFT,
		.peer = LAST },
	{ .name = "another call, as long",
		.program = "two_shot",
		.last_count = MOST_COUNT,
		.launched = RANKS,
		.signs = true,
		.other_call = true,
		.reason = COLLET_ABORT_MISMATCH,
		.peer = -1 },
	{ .name = "another call, and both wait",
		.program = "two_shot",
		.last_count = 1,
		.launched = RANKS,
		.signs = true,
		.other_call = true,
		.reason = COLLET_ABORT_MISMATCH,
		.peer = -1 },
	{ .name = "another call, shorter",
		.program = "direct",
		.last_count = 1,
		.launched = RANKS,
		.signs = true,
		.other_call = true,
		.reason = COLLET_ABORT_MISMATCH,
		.peer = -1 },
};

/* ---- Launches ---- */

/* What the ranks share, in GPU memory. */
struct table {
	struct gpus gpus;
	struct buffer left, done[RANKS];
	uint32_t values[MOST_COUNT];
};

static void zero(struct buffer *buffer)
{
	void *blank = calloc(1, buffer->bytes);
	assert_non_null(blank);
	assert_true(buffer_write(buffer, blank));
	free(blank);
}

static void table_open(struct table *table)
{
	const struct program *program = &table->gpus.programs[0];
	assert_true(gpus_open(&table->gpus, RANKS));
	assert_true(buffer_make(&table->left, program, true, sizeof(uint64_t)));
	for (uint32_t r = 0; r < RANKS; r++)
		assert_true(buffer_make(&table->done[r], program, true, sizeof(uint64_t)));
}

static void table_close(struct table *table)
{
	buffer_free(&table->left);
	for (uint32_t r = 0; r < RANKS; r++)
		buffer_free(&table->done[r]);
	assert_true(gpus_close(&table->gpus));
}

/* Resets it as before the first launch. */
static void table_clear(struct table *table, bool left)
{
	const uint64_t bit = left ? UINT64_C(1) << LAST : 0;
	for (uint32_t r = 0; r < RANKS; r++) {
		zero(&table->gpus.members[0][r].window);
		zero(&table->done[r]);
	}
	zero(&table->gpus.abort_word);
	assert_true(buffer_write(&table->left, &bit));
}

static uint32_t value(uint32_t rank, uint64_t launch, uint64_t i)
{
	return (rank + 1) * 2654435761u + (uint32_t)launch * 40503u + (uint32_t)i * 2246822519u;
}

static struct row row_of(const char *program, uint64_t count, bool is_ll, uint32_t channels)
{
	return (struct row){ .program = collet_program_find(COLLET_ALLREDUCE, program), .count = count,
		.dtype = COLLET_U32, .op = COLLET_SUM, .is_ll = is_ll, .channels = channels };
}

/* Sets up one rank of the launch, except for its flags. */
static uint32_t prepare(struct table *table, struct collet_plan_arguments *arguments, const struct row *row,
	uint32_t rank, uint64_t launch)
{
	uint32_t blocks;
	for (uint64_t i = 0; i < row->count; i++)
		table->values[i] = value(rank, launch, i);
	assert_true(kernel_rank_prepare(&table->gpus, &table->gpus.members[0][rank], row, rank, RANKS, table->values,
		&arguments->ranks[rank], &blocks));
	return blocks;
}

static void run(struct table *table, const struct collet_plan_arguments *arguments, uint32_t blocks,
	uint32_t launched, uint64_t seed)
{
	struct kernel_rank *member = &table->gpus.members[0][0];
	set_schedule(seed);
	setenv("FAKE_CUDA_THREADS", seed / OFTEN % 3 ? "1" : "3", 1);
	assert_int_equal(kernel_rank_launch(member, arguments, blocks, launched), COLLET_OK);
	const collet_status status =
		collet_copy_stream_synchronize(&table->gpus.cuda, member->copy_stream, "running a program");
	set_schedule(0);
	if (status != COLLET_OK)
		fail_msg("schedule %llu: %s", (unsigned long long)seed, collet_last_error());
}

static void check_sums(struct table *table, const char *name, uint64_t seed, uint64_t launch, uint64_t count)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		const struct kernel_rank *member = &table->gpus.members[0][r];
		const struct buffer result = { member->program, true, member->result.first, count * sizeof(uint32_t) };
		assert_true(buffer_read(&result, table->values));
		for (uint64_t i = 0; i < count; i++) {
			uint32_t sum = 0;
			for (uint32_t from = 0; from < RANKS; from++)
				sum += value(from, launch, i);
			if (table->values[i] != sum)
				fail_msg("%s, schedule %llu, launch %llu: element %llu of rank %u", name,
					(unsigned long long)seed, (unsigned long long)launch, (unsigned long long)i, r);
		}
	}
}

/* ---- Endings ---- */

static struct collet_plan_arguments arguments_of(const struct table *table)
{
	return (struct collet_plan_arguments){ .op = COLLET_SUM, .divisor = 1, .dtype = COLLET_U32,
		.window = table->gpus.window };
}

static void launch_ending(
	struct table *table, const struct ending *ending, const struct row *row, uint64_t launch, uint64_t seed)
{
	struct collet_plan_arguments arguments = arguments_of(table);
	uint32_t blocks = 0;
	for (uint32_t r = 0; r < ending->launched; r++) {
		struct row own = *row;
		struct collet_plan_rank *rank_arguments = &arguments.ranks[r];
		own.count = r == LAST ? ending->last_count : row->count;
		const uint32_t these = prepare(table, &arguments, &own, r, launch);
		blocks = these > blocks ? these : blocks;
		rank_arguments->left_ranks = (uintptr_t)table->left.first;
		rank_arguments->timeout_ns = ending->timeout_ns;
		rank_arguments->signature = !ending->signs ? 0 : ending->other_call && r == LAST ? 8 : 7;
		rank_arguments->done = (uintptr_t)table->done[r].first;
		rank_arguments->ticket = launch + 1;
		if (r == LAST && ending->news != NONE) {
			rank_arguments->done =
				ending->news == HAS_LEFT ? rank_arguments->left_ranks : rank_arguments->abort;
			rank_arguments->ticket = ending->news == HAS_LEFT ? UINT64_C(1) << LAST : STOPPED;
		}
	}
	run(table, &arguments, blocks, ending->launched, seed);
}

static void check_reason(const struct table *table, const struct ending *ending, uint64_t seed)
{
	const uint32_t reasons = COLLET_ABORT_TIMEOUT | COLLET_ABORT_MISMATCH | COLLET_ABORT_PEER_LEFT;
	uint64_t read;
	assert_true(buffer_read(&table->gpus.abort_word, &read));
	const uint32_t word = (uint32_t)read;
	const uint32_t reason = word & reasons ? word & reasons : word, peer = word & ~reasons;
	const bool named = ending->peer < 0 ? peer < RANKS : peer == (uint32_t)ending->peer;
	if (reason != ending->reason || (word & reasons && !named))
		fail_msg("%s, schedule %llu: the abort word is %#x", ending->name, (unsigned long long)seed, word);
}

/* However it ended, launches are counted, and the host is told. */
static void check_counts(const struct table *table, const struct ending *ending, uint64_t launches)
{
	const struct collet_window *window = &table->gpus.window;
	for (uint32_t r = 0; r < ending->launched; r++) {
		const struct kernel_rank *member = &table->gpus.members[0][r];
		uint64_t told, word[2];
		for (int i = 0; i < 2; i++) {
			const uint64_t at = collet_window_word_at(
				window, i ? COLLET_WINDOW_ENDED_CHANNELS : COLLET_WINDOW_LAUNCHES, 0, 0);
			const struct buffer part = { member->program, true, member->window.first + at,
				sizeof(word[i]) };
			assert_true(buffer_read(&part, &word[i]));
		}
		assert_int_equal(word[0], launches);
		assert_int_equal(word[1], 0);
		assert_true(buffer_read(&table->done[r], &told));
		assert_int_equal(told, r == LAST && ending->news != NONE ? 0 : launches);
	}
}

static void end_once(struct table *table, const struct ending *ending, const struct row *row, uint64_t seed)
{
	/* Ranks that have no error continue, for more launches than launch ids are kept. Others end at once again. In
	 * few of the orders in which a rank leaves could a message that has arrived be taken for lost, so more are
	 * tried. */
	const uint64_t launches = ending->reason ? 2 : ending->news != NONE ? OFTEN : LAUNCHES, nobody = 0;
	table_clear(table, ending->left);
	for (uint64_t launch = 0; launch < launches; launch++) {
		if (!ending->left)
			assert_true(buffer_write(&table->left, &nobody));
		launch_ending(table, ending, row, launch, seed + launch);
		check_reason(table, ending, seed);
		check_counts(table, ending, launch + 1);
		if (!ending->reason)
			check_sums(table, ending->name, seed, launch, row->count);
	}
}

static uint64_t first_seed(void)
{
	const char *text = getenv("COLLET_TEST_SEED");
	return 1 + (text ? strtoull(text, NULL, 10) & 0xffffffff : 0);
}

/* For each row. A sanitizer takes half a minute for each; it looks for other mistakes than orders bring to light. */
static uint64_t seed_count(void)
{
	const uint64_t share = sample_share(!getenv("COLLET_TEST_FULL") ? 3 : ranks_are_slow() ? 10 : 200);
	return share ? share : 1;
}

static void who_cannot_go_on_ends_and_says_why(void **state)
{
	static struct table table;
	table_open(&table);
	for (size_t e = 0; e < sizeof(endings) / sizeof(endings[0]); e++)
		for (uint32_t way = 0; way < 4; way++) {
			const uint64_t count = endings[e].count ? endings[e].count : MOST_COUNT;
			const struct row row = row_of(endings[e].program, count, way & 1, way & 2 ? CHANNELS : 1);
			for (uint64_t s = 0; s < seed_count(); s++)
				end_once(&table, &endings[e], &row, first_seed() + 1000 * (4 * e + way) + OFTEN * s);
		}
	table_close(&table);
}

/* The root of a broadcast, and a rank that was launched for another call. One of its threads notices, when all is done,
 * and another reports the end to the host. Here both use the same word. */
static void a_complaint_comes_before_the_end(void **state)
{
	const struct row row = { .program = collet_program_find(COLLET_BROADCAST, "direct"), .count = 8,
		.dtype = COLLET_U32, .op = COLLET_SUM, .channels = 1 };
	const uint32_t order[] = { row_root(RANKS), 0 };
	static struct table table;
	uint64_t word;
	table_open(&table);
	for (uint64_t s = 0; s < 4 * seed_count(); s++) {
		table_clear(&table, false);
		for (uint32_t i = 0; i < 2; i++) {
			struct collet_plan_arguments arguments = arguments_of(&table);
			const uint32_t blocks = prepare(&table, &arguments, &row, order[i], 0);
			struct collet_plan_rank *rank_arguments = &arguments.ranks[0];
			*rank_arguments = arguments.ranks[order[i]];
			rank_arguments->signature = 7 + i;
			rank_arguments->done = i ? rank_arguments->abort : 0;
			rank_arguments->ticket = STOPPED;
			run(&table, &arguments, blocks, 1, first_seed() + OFTEN * s + i);
		}
		assert_true(buffer_read(&table.gpus.abort_word, &word));
		if (word != STOPPED)
			fail_msg("order %llu: the abort word is %#llx", (unsigned long long)s,
				(unsigned long long)word);
	}
	table_close(&table);
}

/* ---- Message numbers of the LL protocol, of which 32 bits are sent ---- */

/* As if so many messages had been sent between any two ranks, and all had arrived. */
static void set_numbers(struct table *table, uint64_t number)
{
	static const enum collet_window_word words[] = { COLLET_WINDOW_FULL, COLLET_WINDOW_FREE, COLLET_WINDOW_SENT,
		COLLET_WINDOW_RECEIVED };
	const struct collet_window *window = &table->gpus.window;
	for (uint32_t i = 0; i < 4 * RANKS * window->channels; i++)
		for (uint32_t r = 0; r < RANKS; r++) {
			const struct kernel_rank *member = &table->gpus.members[0][r];
			const uint64_t at = collet_window_word_at(
				window, words[i % 4], i / 4 / RANKS, i / 4 % RANKS);
			const struct buffer word = { member->program, true, member->window.first + at, sizeof(number) };
			assert_true(buffer_write(&word, &number));
		}
}

static uint64_t sent_number(const struct table *table)
{
	const struct kernel_rank *member = &table->gpus.members[0][0];
	const uint64_t at = collet_window_word_at(&table->gpus.window, COLLET_WINDOW_SENT, 0, 1);
	uint64_t number;
	const struct buffer word = { member->program, true, member->window.first + at, sizeof(number) };
	assert_true(buffer_read(&word, &number));
	return number;
}

static void sum_often(struct table *table, uint64_t count, uint64_t launches, uint64_t seed)
{
	const struct row row = row_of("direct", count, true, 1);
	for (uint64_t launch = 0; launch < launches; launch++) {
		struct collet_plan_arguments arguments = arguments_of(table);
		uint32_t blocks = 0;
		for (uint32_t r = 0; r < RANKS; r++)
			blocks = prepare(table, &arguments, &row, r, launch + count);
		run(table, &arguments, blocks, RANKS, seed + launch);
		check_sums(table, "numbers", seed, launch + count, count);
	}
}

/* Of 2^32 messages, those are sent here that leave something which a later one could be taken for. These are the first
 * ones (or none: zeros), short ones that must write all words, and long ones where numbers wrap. */
static void numbers_come_round(void **state)
{
	enum { LONG = 128, AROUND = 8 };
	static const uint64_t first[] = { 0, COLLET_WINDOW_SLOTS };
	static struct table table;
	table_open(&table);
	for (uint64_t s = 0; s < 4 * seed_count(); s++) {
		const uint64_t seed = first_seed() + 100 * s;
		table_clear(&table, false);
		sum_often(&table, LONG, first[s % 2], seed);
		set_numbers(&table, (UINT64_C(1) << 32) - (1 << 20) - 3);
		sum_often(&table, 1, AROUND, seed + 20);
		set_numbers(&table, (UINT64_C(1) << 32) - 3);
		sum_often(&table, LONG, AROUND, seed + 40);
		assert_true(sent_number(&table) == (UINT64_C(1) << 32) - 3 + AROUND);
	}
	table_close(&table);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_cannot_go_on_ends_and_says_why),
		cmocka_unit_test(a_complaint_comes_before_the_end),
		cmocka_unit_test(numbers_come_round),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
