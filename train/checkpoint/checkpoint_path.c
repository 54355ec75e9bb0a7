/* Names checkpoint files: one file that each checkpoint replaces, or one file each in a folder. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "error.h"

static bool is_folder(const char *path)
{
	struct stat about;
	const size_t length = strlen(path);
	return (length > 0 && path[length - 1] == '/') || (stat(path, &about) == 0 && S_ISDIR(about.st_mode));
}

/* "step-0000012345.safetensors", with the ending behind it; false for every other name. */
static bool parse_name(const char *name, const char *ending, uint32_t *step)
{
	char again[60];
	const unsigned long parsed = strncmp(name, "step-", 5) == 0 ? strtoul(name + 5, NULL, 10) : 0;
	snprintf(again, sizeof(again), "step-%010lu.safetensors%s", parsed, ending);
	*step = (uint32_t)parsed;
	return parsed <= UINT32_MAX && strcmp(name, again) == 0;
}

bool checkpoint_path(const struct options *options, uint32_t step, char *path)
{
	const char *given = options->checkpoint;
	const int length = is_folder(given) ?
		snprintf(path, CHECKPOINT_PATH, "%s/step-%010" PRIu32 ".safetensors", given, step) :
		snprintf(path, CHECKPOINT_PATH, "%s", given);
	return (length > 0 && length < CHECKPOINT_PATH) || train_fail("--checkpoint %s: the name is too long", given);
}

bool checkpoint_newest(const struct options *options, char *path, bool *found)
{
	uint32_t newest = 0, step;
	*found = false;
	if (!is_folder(options->checkpoint)) {
		*found = access(options->checkpoint, F_OK) == 0;
		return checkpoint_path(options, 0, path);
	}
	DIR *folder = opendir(options->checkpoint);
	if (!folder)
		return train_fail("--checkpoint %s: %s", options->checkpoint, strerror(errno));
	const struct dirent *entry;
	while ((entry = readdir(folder)) != NULL) {
		if (!parse_name(entry->d_name, "", &step) || (*found && step < newest))
			continue;
		*found = true;
		newest = step;
	}
	closedir(folder);
	return checkpoint_path(options, newest, path);
}

/* ---- Taking away ----------------------------------------------------------------------------------------------- */

static int earlier(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* The steps before this one of which there are checkpoints, in order; to be freed. NULL: no memory. */
static uint32_t *list_before(DIR *folder, uint32_t step, size_t *count)
{
	size_t capacity = 16;
	uint32_t *steps = malloc(capacity * sizeof(*steps)), other;
	*count = 0;
	rewinddir(folder);
	for (const struct dirent *entry; steps && (entry = readdir(folder)) != NULL;) {
		if (!parse_name(entry->d_name, "", &other) || other >= step)
			continue;
		if (*count == capacity) {
			uint32_t *grown = realloc(steps, (capacity *= 2) * sizeof(*steps));
			if (!grown)
				free(steps);
			steps = grown;
		}
		if (steps)
			steps[(*count)++] = other;
	}
	if (steps)
		qsort(steps, *count, sizeof(*steps), earlier);
	return steps;
}

static void remove_file(DIR *folder, const char *name)
{
	if (unlinkat(dirfd(folder), name, 0) != 0 && errno != ENOENT)
		train_fail("--keep: %s cannot be removed: %s; --keep 0 keeps all", name, strerror(errno));
}

static void remove_old(DIR *folder, uint32_t keep, uint32_t step)
{
	size_t count;
	char name[60];
	uint32_t *steps = list_before(folder, step, &count);
	if (!steps) {
		train_fail("--keep %u: no memory to list what is there", keep);
		return;
	}
	for (size_t i = 0; i + keep <= count; i++) {
		snprintf(name, sizeof(name), "step-%010" PRIu32 ".safetensors", steps[i]);
		remove_file(folder, name);
	}
	free(steps);
}

static void remove_incomplete(DIR *folder, uint32_t step)
{
	uint32_t other;
	rewinddir(folder);
	for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
		if (parse_name(entry->d_name, ".partial", &other) && other < step)
			remove_file(folder, entry->d_name);
}

void checkpoint_prune(const struct options *options, uint32_t step)
{
	DIR *folder = is_folder(options->checkpoint) ? opendir(options->checkpoint) : NULL;
	if (!folder)
		return;
	remove_incomplete(folder, step);
	if (options->keep > 0)
		remove_old(folder, options->keep, step);
	closedir(folder);
}

/* ---- Before training ------------------------------------------------------------------------------------------- */

static bool may_write(const char *given)
{
	char copy[CHECKPOINT_PATH];
	snprintf(copy, sizeof(copy), "%s", given);
	if (is_folder(given) && mkdir(given, 0777) != 0 && errno != EEXIST)
		return train_fail("--checkpoint %s: %s", given, strerror(errno));
	const char *folder = is_folder(given) ? copy : dirname(copy);
	return access(folder, W_OK | X_OK) == 0 ||
	       train_fail("--checkpoint %s: %s: %s", given, folder, strerror(errno));
}

bool checkpoint_begin(const struct trainer *trainer)
{
	const char *given = trainer->options->checkpoint;
	uint8_t fine = 1;
	if (!given)
		return true;
	if (collet_comm_rank(trainer->comm) == 0)
		fine = may_write(given);
	return train_check(collet_broadcast(trainer->comm, &fine, &fine, 1, COLLET_U8, 0, NULL), "--checkpoint") &&
		fine;
}
