#include "report/journal.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "error.h"

bool journal_open(struct journal *journal, const char *path, uint32_t every, bool append)
{
	*journal = (struct journal){ .path = path, .every = every };
	if (path)
		journal->file = fopen(path, append ? "ae" : "we");
	return journal->file || !path || train_fail("--log %s: %s", path, strerror(errno));
}

/* JSON has no word for what is not a number. */
static void put_number(struct journal *journal, const char *name, double value)
{
	if (isfinite(value))
		fprintf(journal->file, ", \"%s\": %.9g", name, value);
	else
		fprintf(journal->file, ", \"%s\": null", name);
}

static void begin_line(struct journal *journal, uint32_t epoch, uint32_t steps)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	fprintf(journal->file, "{\"time\": %lld.%03ld, \"epoch\": %u, \"step\": %u", (long long)now.tv_sec,
		now.tv_nsec / 1000000, epoch, steps);
}

static bool end_line(struct journal *journal)
{
	fputs("}\n", journal->file);
	return fflush(journal->file) == 0 || train_fail("--log %s: %s", journal->path, strerror(errno));
}

static void begin_means(struct journal *journal)
{
	journal->loss = journal->accuracy = 0;
	journal->count = 0;
}

bool journal_step(struct journal *journal, const struct trainer_progress *progress)
{
	if (!journal->file)
		return true;
	journal->loss += progress->loss;
	journal->accuracy += progress->accuracy;
	journal->count++;
	if (progress->steps_done % journal->every != 0)
		return true;
	begin_line(journal, progress->epoch, progress->steps_done);
	put_number(journal, "loss", journal->loss / journal->count);
	put_number(journal, "accuracy", journal->accuracy / journal->count);
	put_number(journal, "images_per_s", progress->images_per_s);
	put_number(journal, "rate", progress->rate);
	begin_means(journal);
	return end_line(journal);
}

bool journal_epoch(struct journal *journal, const struct trainer_epoch *epoch)
{
	if (!journal->file)
		return true;
	begin_means(journal);
	begin_line(journal, epoch->epoch, epoch->steps_done);
	put_number(journal, "loss", epoch->loss);
	put_number(journal, "test_accuracy", epoch->test_accuracy);
	put_number(journal, "images_per_s", epoch->images_per_s);
	put_number(journal, "rate", epoch->rate);
	return end_line(journal);
}

bool journal_close(struct journal *journal)
{
	const bool arrived = !journal->file || fclose(journal->file) == 0;
	journal->file = NULL;
	return arrived || train_fail("--log %s: %s", journal->path, strerror(errno));
}
