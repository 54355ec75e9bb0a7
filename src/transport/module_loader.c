/* Loads transports from modules: searches the folders, and checks a module's table before it is used. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "closest_name.h"
#include "core/status.h"
#include "core/suggestion.h"
#include "transport/registry.h"
#include "transport/transports-built.h"

static const char file_head[] = "libcollet-transport-", file_tail[] = ".so";

/* The slots that every table must have. */
enum { MIN_TABLE_BYTES = offsetof(struct collet_transport, disarm) + sizeof(void (*)(struct collet_endpoint *)) };

/* ---- Folders and names ---- */

/* Writes the default folder: beside the shared library, so that a relocated installation finds its own modules, else
 * the one given at build time. */
static void default_folder(char *folder, size_t bytes)
{
	Dl_info self;
	snprintf(folder, bytes, "%s", COLLET_MODULE_FOLDER);
	if (!dladdr(&file_head, &self) || !self.dli_fname)
		return;
	const char *slash = strrchr(self.dli_fname, '/');
	if (slash && strncmp(slash + 1, "libcollet.so", strlen("libcollet.so")) == 0)
		snprintf(folder, bytes, "%.*s/collet", (int)(slash - self.dli_fname), self.dli_fname);
}

bool collet_module_folder(uint32_t i, char *folder, size_t bytes)
{
	/* secure_getenv(): a setuid program ignores the path of its unprivileged caller. */
	const char *path = secure_getenv("COLLET_TRANSPORT_PATH");
	while (path && *path) {
		const size_t length = strcspn(path, ":");
		if (length && i-- == 0) {
			snprintf(folder, bytes, "%.*s", (int)length, path);
			return true;
		}
		path += length + (path[length] == ':');
	}
	if (i == 0)
		default_folder(folder, bytes);
	return i == 0;
}

/* Extracts NAME from "libcollet-transport-NAME.so". False if the file name has another form. */
static bool module_name(const char *file, char name[COLLET_TRANSPORT_NAME_BYTES])
{
	const size_t length = strlen(file), head = sizeof(file_head) - 1, tail = sizeof(file_tail) - 1;
	if (length <= head + tail || length - head - tail >= COLLET_TRANSPORT_NAME_BYTES ||
		memcmp(file, file_head, head) != 0 || strcmp(file + length - tail, file_tail) != 0)
		return false;
	snprintf(name, COLLET_TRANSPORT_NAME_BYTES, "%.*s", (int)(length - head - tail), file + head);
	return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(name);
}

static int is_module(const struct dirent *entry)
{
	char name[COLLET_TRANSPORT_NAME_BYTES];
	return module_name(entry->d_name, name);
}

char (*collet_module_names(uint32_t *count))[COLLET_TRANSPORT_NAME_BYTES]
{
	char (*names)[COLLET_TRANSPORT_NAME_BYTES] = NULL;
	char folder[PATH_MAX];
	*count = 0;
	for (uint32_t f = 0; collet_module_folder(f, folder, sizeof(folder)); f++) {
		struct dirent **found;
		const int files = scandir(folder, &found, is_module, alphasort);
		for (int i = 0; i < files; i++) {
			char name[COLLET_TRANSPORT_NAME_BYTES];
			bool known = !module_name(found[i]->d_name, name);
			for (uint32_t n = 0; n < *count && !known; n++)
				known = strcmp(names[n], name) == 0;
			char (*more)[COLLET_TRANSPORT_NAME_BYTES] =
				known ? NULL : realloc(names, (*count + 1) * sizeof(*names));
			if (more) {
				names = more;
				memcpy(names[(*count)++], name, sizeof(name));
			}
			free(found[i]);
		}
		if (files >= 0)
			free(found);
	}
	return names;
}

/* ---- Loading ---- */

/* Returns the first mandatory slot that is missing from the table; NULL if none is. */
static const char *first_missing_slot(const struct collet_transport *table)
{
	if (!table->reaches)
		return "reaches";
	if (!table->open)
		return "open";
	if (!table->open_progress)
		return "open_progress";
	if (!table->close)
		return "close";
	if (!table->post_send)
		return "post_send";
	if (!table->post_recv)
		return "post_recv";
	if (!table->release_view)
		return "release_view";
	if (!table->progress)
		return "progress";
	if (!table->peek)
		return "peek";
	if (!table->arm)
		return "arm";
	if (!table->disarm)
		return "disarm";
	if (!table->device_open != !table->device_close)
		return table->device_open ? "device_close" : "device_open";
	if (!table->memory_register != !table->memory_deregister)
		return table->memory_register ? "memory_deregister" : "memory_register";
	if (!table->try_send != !table->try_recv)
		return table->try_send ? "try_recv" : "try_send";
	if (table->accepts_gpu && !table->memory_register)
		return "memory_register";
	return table->memory_register && !table->device_open ? "device_open" : NULL;
}

/* Copies the table that a module exports, if it is usable. */
static collet_status copy_table(struct collet_transport *copy, const struct collet_transport *table, const char *name,
	const char *file)
{
	/* For another version only the version field is known. */
	if (table->version != COLLET_TRANSPORT_VERSION)
		return collet_fail(COLLET_ERR_CONFIG,
			"%s is for version %u of the transport contract, this library has version %d; one of the two "
			"must be rebuilt",
			file, table->version, COLLET_TRANSPORT_VERSION);
	if (table->bytes < MIN_TABLE_BYTES)
		return collet_fail(COLLET_ERR_CONFIG, "%s is broken: its table has %u bytes, less than %d", file,
			table->bytes, MIN_TABLE_BYTES);
	memset(copy, 0, sizeof(*copy));
	memcpy(copy, table, table->bytes < sizeof(*copy) ? table->bytes : sizeof(*copy));
	if (!copy->name || strcmp(copy->name, name) != 0)
		return collet_fail(COLLET_ERR_CONFIG, "%s is broken: its table is named \"%s\"", file,
			copy->name ? copy->name : "");
	if (copy->endpoint_bytes < sizeof(struct collet_endpoint))
		return collet_fail(COLLET_ERR_CONFIG,
			"%s is broken: its endpoints have %zu bytes, less than struct collet_endpoint (%zu)", file,
			copy->endpoint_bytes, sizeof(struct collet_endpoint));
	const char *gap = first_missing_slot(copy);
	if (gap)
		return collet_fail(COLLET_ERR_CONFIG, "%s is broken: %s is missing", file, gap);
	return COLLET_OK;
}

static collet_status load_file(struct collet_transport_instance *instance, const char *name, const char *file)
{
	(void)dlerror();
	void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!module) {
		const char *why = dlerror();
		return collet_fail(COLLET_ERR_CONFIG, "%s cannot be loaded: %s", file, why ? why : "no reason given");
	}
	const struct collet_transport *table = dlsym(module, COLLET_TRANSPORT_SYMBOL);
	const collet_status status = table ? copy_table(&instance->table, table, name, file) :
		collet_fail(COLLET_ERR_CONFIG, "%s is no transport module: it does not export " COLLET_TRANSPORT_SYMBOL,
			file);
	if (status == COLLET_OK)
		instance->module = module;
	else
		dlclose(module);
	return status;
}

/* Returns the transport that a misspelt name was meant to be, built in or a module; "" if none is close. */
static struct collet_suggestion suggest_transport(const char *name)
{
	uint32_t module_count, count = 0;
	char (*modules)[COLLET_TRANSPORT_NAME_BYTES] = collet_module_names(&module_count);
	const char *names[64];
	for (uint32_t i = 0; collet_transports[i] && count < 64; i++)
		names[count++] = collet_transports[i]->name;
	for (uint32_t i = 0; i < module_count && count < 64; i++)
		names[count++] = modules[i];
	const struct collet_suggestion suggestion = collet_suggest(collet_closest_name(name, names, count));
	free(modules);
	return suggestion;
}

/* Fails because no folder has the module. */
static collet_status fail_not_found(const char *name)
{
	char folders[512] = "", built[128] = "", folder[PATH_MAX];
	for (uint32_t f = 0; collet_module_folder(f, folder, sizeof(folder)); f++) {
		strncat(folders, f ? ", " : "", sizeof(folders) - strlen(folders) - 1);
		strncat(folders, folder, sizeof(folders) - strlen(folders) - 1);
	}
	for (uint32_t i = 0; collet_transports[i]; i++) {
		strncat(built, i ? ", " : "", sizeof(built) - strlen(built) - 1);
		strncat(built, collet_transports[i]->name, sizeof(built) - strlen(built) - 1);
	}
	return collet_fail(COLLET_ERR_CONFIG,
		"there is no transport \"%s\"%s: this build has %s, and no %s%s%s is in %s; see COLLET_TRANSPORT_PATH",
		name, suggest_transport(name).text, built, file_head, name, file_tail, folders);
}

collet_status collet_module_load(
	struct collet_transport_instance *instance, const char *name, const struct collet_log *log)
{
	char folder[PATH_MAX], file[PATH_MAX + 64], first[COLLET_ERROR_BYTES] = "";
	for (uint32_t f = 0; collet_module_folder(f, folder, sizeof(folder)); f++) {
		char checked[COLLET_TRANSPORT_NAME_BYTES];
		snprintf(file, sizeof(file), "%s/%s%s%s", folder, file_head, name, file_tail);
		if (!module_name(file + strlen(folder) + 1, checked))
			break;  /* not a module's name; a '/' must not lead to another folder */
		if (access(file, F_OK) != 0)
			continue;
		if (load_file(instance, name, file) == COLLET_OK) {
			collet_log(log, COLLET_LOG_DEBUG, "transport %s is %s", name, file);
			return COLLET_OK;
		}
		collet_log(log, COLLET_LOG_INFO, "%s", collet_last_error());
		if (!first[0])
			snprintf(first, sizeof(first), "%s", collet_last_error());
	}
	return first[0] ? collet_fail_copy(COLLET_ERR_CONFIG, first) : fail_not_found(name);
}
