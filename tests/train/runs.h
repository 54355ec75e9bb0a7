/* Trainings of ranks that are threads of the test, told in words; and what every rank saw of them. */
#ifndef TESTS_TRAIN_RUNS_H
#define TESTS_TRAIN_RUNS_H

#include "options.h"
#include "trainer.h"

enum { RUN_RANKS = 4, RUN_EPOCHS = 3, RUN_STEPS = 64 };

/* Of the first epochs and steps; only the main thread asserts. */
struct run {
	struct options options;                     /* first */
	const char *ways[RUN_RANKS];                /* collet_plan.gpu of their communicators */
	bool fine[RUN_RANKS];
	struct trainer_epoch epochs[RUN_RANKS][RUN_EPOCHS];
	double losses[RUN_RANKS][RUN_STEPS];
};

/* So many ranks told the words of both lists, the second of which may be NULL. All of them end well, or none;
 * run_words() says which it must be. The caller frees what it gets. */
struct run *run_words(uint32_t ranks, const char *const *words, const char *const *more, bool fine);
struct run *run_words_if_offered(uint32_t ranks, const char *const *words, const char *const *more);

#endif
