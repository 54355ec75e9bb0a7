/* Trainings of ranks that are threads, told in words, and the checkpoints that they leave. */
#ifndef TESTS_TRAIN_CHECKPOINTS_H
#define TESTS_TRAIN_CHECKPOINTS_H

#include "options.h"
#include "trainer.h"

enum { RANKS = 4 };

struct run;
/* Rank 0 has done a step; on its thread. */
typedef void run_step(struct run *run, const struct trainer_progress *progress);

/* What every rank saw; only the main thread asserts. */
struct run {
	struct options options;
	bool fine[RANKS];
	run_step *step;
	uint32_t epochs;                  /* that were reported */
	bool went_on;                     /* for the test's own step() */
	struct trainer_epoch last[RANKS];
};

#define TELL(...) ((const char *const[]){ __VA_ARGS__, NULL })
/* 610 images on two ranks: ten steps of 32 an epoch, the last one short. */
#define PLAIN \
	"--dataset", "digits", "--train-samples", "610", "--test-samples", "41", "--batch-size", "32", "--epochs", "3"
#define SHORT PLAIN, "--algorithm", "direct"

/* A folder of the test's own is made, and removed; in it nothing is yet at run_path. For cmocka. */
extern char run_path[64];
int checkpoints_enter(void **state);
int checkpoints_leave(void **state);

/* Tells ranks the words of both lists, either of which may be NULL. */
struct run run_words(uint32_t ranks, const char *const *words, const char *const *more);
struct run run_words_watched(
	uint32_t ranks, const char *const *words, const char *const *more, run_step *step);

/* Both have ended well and alike, bit for bit. */
void expect_alike(const char *what, const struct run *through, const struct run *resumed, uint32_t ranks);

/* What is at run_path: a file, or a folder of them. */
void remove_checkpoints(void);
uint32_t count_checkpoints(void);

#endif
