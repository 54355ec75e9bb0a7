#include "runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/tools.h>

#include "threads.h"

enum { WORDS_MOST = 48, LONG_COUNT = 1 << 20 };

struct member {
	struct run *run;
	uint32_t rank;
};

/* How a long call on GPUs' buffers goes; a plan's strings are static. NULL: no driver, or no plan. */
static const char *way_of(collet_comm *comm)
{
	collet_plan plan;
	const collet_status status =
		collet_comm_plan(comm, "allreduce", LONG_COUNT, COLLET_F32, COLLET_SUM, 0, NULL, &plan);
	return status == COLLET_OK ? plan.gpu_path : NULL;
}

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

static bool train(collet_comm *comm, const struct options *given)
{
	struct run *run = (struct run *)(uintptr_t)given;  /* its first member */
	struct member member = { run, collet_comm_rank(comm) };
	const struct trainer_watch watch = { .step = note_step, .epoch = note_epoch, .context = &member };
	const struct options options = run->options;
	run->ways[member.rank] = way_of(comm);
	run->fine[member.rank] = trainer_run(comm, &options, &watch);
	return run->fine[member.rank];
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
	run->options.threads = ranks;
	const bool fine = threads_run(&run->options, train);
	for (uint32_t rank = 0; rank < ranks; rank++)
		assert_int_equal(run->fine[rank], fine);
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
