#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoints.h"
#include "thread_ranks.h"

enum { WORDS_MOST = 40 };

char run_path[64];
static char folder[] = "/tmp/collet-checkpoint-XXXXXX";

struct member {
	struct run *run;
	uint32_t rank;
};

static bool note_epoch(void *context, const struct trainer_epoch *epoch)
{
	struct member *member = context;
	member->run->last[member->rank] = *epoch;
	if (member->rank == 0)
		member->run->epochs++;
	return true;
}

static void note_step(void *context, const struct trainer_progress *progress)
{
	const struct member *member = context;
	if (member->run->step && member->rank == 0)
		member->run->step(member->run, progress);
}

static void train(collet_comm *comm, void *context)
{
	struct run *run = context;
	struct member member = { run, collet_comm_rank(comm) };
	const struct trainer_watch watch = {
		.step = note_step, .epoch = note_epoch, .context = &member };
	const struct options options = run->options;
	run->fine[member.rank] = trainer_run(comm, &options, &watch);
	if (!run->fine[member.rank])
		collet_comm_abort(comm);
}

struct run run_words_watched(
	uint32_t ranks, const char *const *words, const char *const *more, run_step *step)
{
	char *arguments[WORDS_MOST] = { strdup("collet-train") };
	int count = 1;
	for (int list = 0; list < 2; list++)
		for (const char *const *word = list ? more : words; word && *word; word++)
			arguments[count++] = strdup(*word);
	struct run run = { .step = step };
	assert_int_equal(options_parse(&run.options, count, arguments), OPTIONS_RUN);
	thread_ranks_run(ranks, train, &run);
	while (count-- > 0)
		free(arguments[count]);
	return run;
}

struct run run_words(uint32_t ranks, const char *const *words, const char *const *more)
{
	return run_words_watched(ranks, words, more, NULL);
}

void expect_alike(const char *what, const struct run *through, const struct run *resumed, uint32_t ranks)
{
	for (uint32_t rank = 0; rank < ranks; rank++) {
		if (!through->fine[rank] || !resumed->fine[rank])
			fail_msg("%s: rank %u failed", what, rank);
		const struct trainer_epoch *a = &through->last[rank], *b = &resumed->last[rank];
		if (a->checksum != b->checksum || a->epoch != b->epoch || a->loss != b->loss ||
			a->test_accuracy != b->test_accuracy)
			fail_msg("%s: rank %u ends elsewhere: loss %.9g and %.9g", what, rank, a->loss, b->loss);
	}
}

void remove_checkpoints(void)
{
	char each[400];
	DIR *entries = opendir(run_path);
	for (const struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
		snprintf(each, sizeof(each), "%s/%s", run_path, entry->d_name);
		if (entry->d_name[0] != '.')
			unlink(each);
	}
	if (entries)
		closedir(entries);
	remove(run_path);
}

uint32_t count_checkpoints(void)
{
	uint32_t count = 0;
	DIR *entries = opendir(run_path);
	for (const struct dirent *entry; entries && (entry = readdir(entries)) != NULL;)
		count += entry->d_name[0] != '.';
	if (entries)
		closedir(entries);
	return count;
}

int checkpoints_enter(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(run_path, sizeof(run_path), "%s/run", folder);
	return 0;
}

int checkpoints_leave(void **state)
{
	remove_checkpoints();
	return rmdir(folder);
}
