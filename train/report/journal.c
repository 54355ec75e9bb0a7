#include "report/journal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "error.h"

bool journal_open(struct journal *journal, const char *path, uint32_t every, bool append)
{
	*journal = (struct journal){ .path = path, .every = every };
	if (path)
		journal->file = fopen(path, append ? "a+e" : "we");
	return journal->file || !path || train_fail("--log %s: %s", path, strerror(errno));
}

/* Finds the first line that belongs to a later step, or has no end. */
static off_t find_later(FILE *file, uint32_t steps_done)
{
	char *line = NULL;
	size_t capacity = 0;
	off_t place = 0;
	ssize_t length;
	rewind(file);
	while ((length = getline(&line, &capacity, file)) > 0) {
		unsigned step = 0;
		sscanf(line, "{\"time\": %*f, \"epoch\": %*u, \"step\": %u", &step);
		if (step > steps_done || line[length - 1] != '\n')
			break;
		place += length;
	}
	free(line);
	return place;
}

bool journal_cut(struct journal *journal, uint32_t steps_done)
{
	struct stat about;
	if (!journal->file || fstat(fileno(journal->file), &about) != 0 || !S_ISREG(about.st_mode))
		return true;  /* a pipe, say, has been read already */
	const off_t place = find_later(journal->file, steps_done);
	const bool cut = !ferror(journal->file) && ftruncate(fileno(journal->file), place) == 0 &&
		fseeko(journal->file, 0, SEEK_END) == 0;
	return cut || train_fail("--log %s: it cannot be cut back to step %u: %s; without --log the run goes on",
		journal->path, steps_done, strerror(errno));
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
