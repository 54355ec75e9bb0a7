#include "api/unknown_variables.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config.h"
#include "core/suggestion.h"
#include "core/variables.h"
#include "transport/registry.h"

static const char head[] = "COLLET_";

/* Returns true for COLLET_NAME_..., where a module libcollet-transport-NAME.so is found. */
static bool belongs_to_module(const char *variable)
{
	uint32_t count;
	bool found = false;
	char (*modules)[COLLET_TRANSPORT_NAME_BYTES] = collet_module_names(&count);
	for (uint32_t m = 0; m < count && !found; m++) {
		char prefix[sizeof(head) + COLLET_TRANSPORT_NAME_BYTES + 1];
		const int length = snprintf(prefix, sizeof(prefix), "%s%s_", head, modules[m]);
		for (char *at = prefix; *at; at++)
			*at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
		found = strncmp(variable, prefix, (size_t)length) == 0;
	}
	free(modules);
	return found;
}

static bool is_first_run_of_collet_run(void)
{
	const char *restart = collet_env("COLLET_RESTART");
	return restart && strcmp(restart, "0") == 0;
}

void collet_warn_of_unknown_variables(const struct collet_log *log)
{
	struct collet_log used = *log;
	if (used.level < COLLET_LOG_WARN && is_first_run_of_collet_run())
		used.level = COLLET_LOG_WARN;
	for (char **entry = environ; used.level >= COLLET_LOG_WARN && entry && *entry; entry++) {
		char name[128];
		const size_t length = strcspn(*entry, "=");
		if (strncmp(*entry, head, sizeof(head) - 1) != 0 || length >= sizeof(name) || !(*entry)[length] ||
			!(*entry)[length + 1])
			continue;
		memcpy(name, *entry, length);
		name[length] = '\0';
		if (!collet_variable_is_known(name) && !belongs_to_module(name))
			collet_log(&used, COLLET_LOG_WARN, "%s is not a variable of collet%s; collet(7) lists them",
				name, collet_suggest(collet_variable_closest(name)).text);
	}
}
