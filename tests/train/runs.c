#include "runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "thread_ranks.h"

enum { WORDS_MOST = 48 };

struct member {
	struct run *run;
	uint32_t rank;
};

static void note_step(void *context, const struct trainer_progress *progress)
{
	const struct member *member = context;
	if (progress->step <= RUN_STEPS)
		member->run->losses[member->rank][progress->step - 1] = progress->loss;
}

static bool note_epoch(void *context, const struct trainer_epoch *epoch)
{
	const struct member *member = context;
	if (epoch->epoch <= RUN_EPOCHS)
		member->run->epochs[member->rank][epoch->epoch - 1] = *epoch;
	return true;
}

static void train(collet_comm *comm, void *context)
{
	struct run *run = context;
	struct member member = { run, collet_comm_rank(comm) };
	const struct trainer_watch watch = { .step = note_step, .epoch = note_epoch, .context = &member };
	const struct options options = run->options;
	run->fine[member.rank] = trainer_run(comm, &options, &watch);
}

struct run *run_words_if_offered(uint32_t ranks, const char *const *words, const char *const *more)
{
	char *arguments[WORDS_MOST] = { strdup("collet-train") };
	int count = 1;
	for (int list = 0; list < 2; list++)
		for (const char *const *word = list ? more : words; word && *word; word++) {
			assert_in_range(count, 1, WORDS_MOST - 1);
			arguments[count++] = strdup(*word);
		}
	struct run *run = calloc(1, sizeof(*run));
	assert_non_null(run);
	assert_int_equal(options_parse(&run->options, count, arguments), OPTIONS_RUN);
	thread_ranks_run(ranks, train, run);
	for (uint32_t rank = 0; rank < ranks; rank++)
		assert_int_equal(run->fine[rank], run->fine[0]);
	while (count-- > 0)
		free(arguments[count]);
	return run;
}

struct run *run_words(uint32_t ranks, const char *const *words, const char *const *more, bool fine)
{
	struct run *run = run_words_if_offered(ranks, words, more);
	assert_int_equal(run->fine[0], fine);
	return run;
}
