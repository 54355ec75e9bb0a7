/* Finds, reads and writes tuning files. */
#include "selection/tuning_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/config.h"
#include "core/status.h"

enum { FILE_BYTES = COLLET_TUNING_LINKS * (16 << 10), PATH_BYTES = 4096, MACHINE_BYTES = 128 };

/* Names the machine that a tuning holds for, like "2 cores, AMD EPYC". Counts all cores, not those of this process. */
static void describe_machine(char machine[MACHINE_BYTES])
{
	char line[256], model[96] = "";
	FILE *file = fopen("/proc/cpuinfo", "re");
	while (file && !model[0] && fgets(line, sizeof(line), file)) {
		const char *colon = strchr(line, ':');
		if (colon && (strncmp(line, "model name", 10) == 0 || strncmp(line, "CPU part", 8) == 0))
			snprintf(model, sizeof(model), "%.*s", (int)strcspn(colon + 1 + (colon[1] == ' '), "\n"),
				colon + 1 + (colon[1] == ' '));
	}
	if (file)
		fclose(file);
	struct utsname kernel;
	if (!model[0] && uname(&kernel) == 0)
		snprintf(model, sizeof(model), "%.64s", kernel.machine);
	snprintf(machine, MACHINE_BYTES, "%ld cores, %s", sysconf(_SC_NPROCESSORS_ONLN), model);
}

/* Finds the path: COLLET_TUNING, or the default one. *insisted: the user named it. path is empty if there is none. */
static collet_status find_path(char path[PATH_BYTES], bool *is_named_by_user)
{
	const char *named = collet_env("COLLET_TUNING"), *folder = collet_env("XDG_CONFIG_HOME"),
		   *home = collet_env("HOME");
	int bytes = 0;
	*is_named_by_user = named && strcmp(named, "builtin") != 0;
	path[0] = '\0';
	if (*is_named_by_user)
		bytes = snprintf(path, PATH_BYTES, "%s", named);
	else if (!named && folder)
		bytes = snprintf(path, PATH_BYTES, "%s/collet/tuning", folder);
	else if (!named && home)
		bytes = snprintf(path, PATH_BYTES, "%s/.config/collet/tuning", home);
	if (bytes >= PATH_BYTES)
		return collet_fail(
			COLLET_ERR_CONFIG, "the path of the tuning is longer than %d characters", PATH_BYTES - 1);
	return COLLET_OK;
}

/* Reads the whole file and ends it with a 0. The caller frees *text. */
static collet_status read_all(const char *path, char **text)
{
	FILE *file = fopen(path, "re");
	if (!file)
		return collet_fail(
			COLLET_ERR_SYSTEM, "%s: %s; collet-bench tune writes a tuning", path, strerror(errno));
	*text = malloc(FILE_BYTES);
	const size_t bytes = *text ? fread(*text, 1, FILE_BYTES, file) : 0;
	const bool failed = ferror(file);
	fclose(file);
	if (*text && !failed && bytes < FILE_BYTES && !memchr(*text, '\0', bytes)) {
		(*text)[bytes] = '\0';
		return COLLET_OK;
	}
	const bool no_memory = !*text;
	free(*text);
	if (no_memory)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to read %s", path);
	if (failed)
		return collet_fail(COLLET_ERR_SYSTEM, "%s: it cannot be read", path);
	return collet_fail(COLLET_ERR_CONFIG, "%s:1: this is no tuning: it is too long, or no text", path);
}

static collet_status read_file(const char *path, collet_link_cost links[COLLET_TUNING_LINKS], uint32_t *count)
{
	char machine[MACHINE_BYTES], *text = NULL;
	collet_status status = read_all(path, &text);
	if (status != COLLET_OK)
		return status;
	describe_machine(machine);
	status = collet_tuning_parse(text, path, machine, links, count);
	free(text);
	return status;
}

collet_status collet_tuning_load(
	const struct collet_log *log, collet_link_cost links[COLLET_TUNING_LINKS], uint32_t *count)
{
	char path[PATH_BYTES];
	bool is_named_by_user;
	*count = 0;
	collet_status status = find_path(path, &is_named_by_user);
	if (status != COLLET_OK || !path[0] || (!is_named_by_user && access(path, F_OK) != 0))
		return status;
	status = read_file(path, links, count);
	if (status == COLLET_OK || is_named_by_user)
		return status;
	*count = 0;
	collet_log(log, COLLET_LOG_WARN, "%s. The built-in tuning is used instead", collet_last_error());
	return COLLET_OK;
}

/* ---- Public ---- */

collet_status collet_tuning_path(char *path, size_t capacity)
{
	char found[PATH_BYTES];
	bool is_named_by_user;
	if (!path)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_tuning_path: path is NULL");
	const collet_status status = find_path(found, &is_named_by_user);
	if (status != COLLET_OK)
		return status;
	if (strlen(found) >= capacity)
		return collet_fail(COLLET_ERR_CONFIG,
			"collet_tuning_path: the path has %zu characters, more than there is room for", strlen(found));
	strcpy(path, found);
	return COLLET_OK;
}

collet_status collet_tuning_read(const char *path, collet_link_cost *rows, size_t capacity, size_t *count)
{
	if (!count || (!rows && capacity))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_tuning_read: an argument is NULL");
	*count = 0;
	collet_link_cost *links = calloc(COLLET_TUNING_LINKS, sizeof(*links));
	if (!links)
		return collet_fail(COLLET_ERR_MEMORY, "collet_tuning_read: no memory");
	uint32_t found_count = 0;
	collet_status status = COLLET_OK;
	if (path)
		status = read_file(path, links, &found_count);
	else
		found_count = collet_tuning_builtin(links);
	if (status == COLLET_OK) {
		*count = found_count;
		memcpy(rows, links, (found_count < capacity ? found_count : capacity) * sizeof(*rows));
	}
	free(links);
	return status;
}

/* Creates the missing folders of the path. */
static void make_directories(const char *path)
{
	char folder[PATH_BYTES];
	snprintf(folder, sizeof(folder), "%s", path);
	for (char *slash = folder; (slash = strchr(slash + 1, '/')); *slash = '/') {
		*slash = '\0';
		mkdir(folder, 0777);  /* if this fails, opening the file fails and says why */
	}
}

collet_status collet_tuning_write(const char *path, const collet_link_cost *rows, size_t count)
{
	char machine[MACHINE_BYTES], temporary_path[PATH_BYTES];
	if (!path || !rows || !count || count > COLLET_TUNING_LINKS)
		return collet_fail(
			COLLET_ERR_ARGUMENT, "collet_tuning_write: no path, or not 1 to %d rows", COLLET_TUNING_LINKS);
	for (size_t i = 0; i < count; i++) {
		const collet_status status = collet_tuning_check(&rows[i]);
		if (status != COLLET_OK)
			return status;
	}
	if (snprintf(temporary_path, sizeof(temporary_path), "%s.%ld", path, (long)getpid()) >=
		(int)sizeof(temporary_path))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_tuning_write: the path is too long");
	describe_machine(machine);
	make_directories(path);
	FILE *file = fopen(temporary_path, "we");
	if (!file)
		return collet_fail(COLLET_ERR_SYSTEM, "%s: %s", temporary_path, strerror(errno));
	collet_tuning_format(file, machine, rows, count);
	const bool written = fflush(file) == 0 && fsync(fileno(file)) == 0;
	if (fclose(file) == 0 && written && rename(temporary_path, path) == 0)
		return COLLET_OK;
	const int error = errno;
	unlink(temporary_path);
	return collet_fail(COLLET_ERR_SYSTEM, "%s: %s", path, strerror(error));
}
