/* Where checkpoints are: in one file, which each replaces, or in a folder, each in its own. */
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

/* "step-0000012345.safetensors"; false for every other name. */
static bool parse_name(const char *name, uint32_t *step)
{
	char again[40];
	const unsigned long parsed = strncmp(name, "step-", 5) == 0 ? strtoul(name + 5, NULL, 10) : 0;
	snprintf(again, sizeof(again), "step-%010lu.safetensors", parsed);
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
		if (!parse_name(entry->d_name, &step) || (*found && step < newest))
			continue;
		*found = true;
		newest = step;
	}
	closedir(folder);
	return checkpoint_path(options, newest, path);
}

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
