#include "agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/settings.h"
#include "error.h"

enum { ROWS = SETTINGS + 9, NAME = 24, TEXT = 64 };

/* One option as all ranks see it. */
struct said {
	char name[NAME], text[TEXT];
};

static void say(struct said *row, const char *name, const char *text)
{
	snprintf(row->name, NAME, "%s", name);
	snprintf(row->text, TEXT, "%s", text);
}

static void say_number(struct said *row, const char *name, uint64_t value)
{
	snprintf(row->name, NAME, "%s", name);
	snprintf(row->text, TEXT, "%" PRIu64, value);
}

/* The settings that the course of a run depends on, and those of collective work besides. Unused rows are zero. */
static void say_all(const struct options *options, struct said *rows)
{
	struct setting settings[SETTINGS];
	const uint32_t count = settings_list(options, settings);
	for (uint32_t i = 0; i < count; i++)
		say(&rows[i], settings[i].name, settings[i].text);
	struct said *more = rows + count;
	say_number(more++, "epochs", options->epochs);
	say_number(more++, "steps", options->steps);
	say_number(more++, "test-samples", options->test_samples);
	say_number(more++, "checkpoint-every", options->checkpoint_every);
	say(more++, "checkpoint", options->checkpoint ? "given" : "");
	say(more++, "resume", options->resume ? "given" : "");
	say(more++, "device", options->device == DEVICE_CPU ? "cpu" : options->device == DEVICE_CUDA ? "cuda" : "auto");
	say(more++, "tf32", options->tf32 ? "given" : "");
	say(more++, "trace", options->trace ? "given" : "");
}

static const char *or_not(const char *text)
{
	return *text ? text : "not given";
}

/* Earlier options decide which later ones exist, so the first difference is one of values. */
static bool compare(const struct said *first, const struct said *other, uint32_t rank)
{
	for (uint32_t i = 0; i < ROWS; i++)
		if (memcmp(&first[i], &other[i], sizeof(*first)) != 0)
			return train_fail("--%s is %s on rank %u and %s on rank 0", first[i].name,
				or_not(other[i].text), rank, or_not(first[i].text));
	return true;
}

bool agree_on_options(collet_comm *comm, const struct options *options)
{
	const uint32_t size = collet_comm_size(comm);
	struct said mine[ROWS] = { 0 };
	say_all(options, mine);
	struct said *all = calloc(size, sizeof(mine));
	if (!all)
		return train_fail("no memory for the options of %u ranks", size);
	bool equal =
		train_check(collet_allgather(comm, mine, all, sizeof(mine), COLLET_U8, NULL), "comparing the options");
	for (uint32_t rank = 1; equal && rank < size; rank++)
		equal = compare(all, all + (size_t)rank * ROWS, rank);
	free(all);
	return equal;
}
