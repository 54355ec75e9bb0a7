/* Parses COLLET_ALGORITHM and similar settings, which force algorithms. */
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "core/suggestion.h"
#include "selection/choice.h"

enum { NAME_BYTES = 32, LIST_BYTES = 512 };

static void append(char list[LIST_BYTES], const char *separator, const char *word)
{
	const size_t used = strlen(list);
	snprintf(list + used, LIST_BYTES - used, "%s%s", used > 0 ? separator : "", word);
}

/* Writes "direct, ring, ...". */
static void list_programs(char list[LIST_BYTES], enum collet_collective collective)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	for (size_t i = 0; i < count; i++)
		append(list, ", ", programs[i]->name);
}

static collet_status unknown_collective(const char *name)
{
	char list[LIST_BYTES] = "";
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++)
		append(list, ", ", collet_collective_name(c));
	return collet_fail(COLLET_ERR_CONFIG,
		"there is no collective \"%s\"%s to choose an algorithm for; there are: %s", name,
		collet_suggest(collet_collective_closest(name)).text, list);
}

static collet_status unknown_algorithm(enum collet_collective collective, const char *name)
{
	char list[LIST_BYTES] = "";
	list_programs(list, collective);
	return collet_fail(COLLET_ERR_CONFIG, "%s has no algorithm \"%s\"%s; it has: %s",
		collet_collective_name(collective), name,
		collet_suggest(collet_program_closest(collective, name)).text, list);
}

static collet_status unknown_everywhere(const char *name)
{
	char list[LIST_BYTES] = "";
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		append(list, "; ", collet_collective_name(c));
		char programs[LIST_BYTES] = "";
		list_programs(programs, c);
		append(list, ": ", programs);
	}
	return collet_fail(COLLET_ERR_CONFIG, "no collective has an algorithm \"%s\"%s; there are: %s", name,
		collet_suggest(collet_program_closest(COLLET_COLLECTIVE_COUNT, name)).text, list);
}

static collet_status force_everywhere(const char *name, const struct collet_program *forced[COLLET_COLLECTIVE_COUNT])
{
	bool found = false;
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		const struct collet_program *program = collet_program_find(c, name);
		if (program)
			forced[c] = program;
		found |= program != NULL;
	}
	return found ? COLLET_OK : unknown_everywhere(name);
}

/* Parses one "ring" or "allreduce:ring". */
static collet_status force(char *word, const struct collet_program *forced[COLLET_COLLECTIVE_COUNT])
{
	char *colon = strchr(word, ':');
	if (!colon)
		return force_everywhere(word, forced);
	*colon = '\0';
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		if (strcmp(collet_collective_name(c), word) != 0)
			continue;
		const struct collet_program *program = collet_program_find(c, colon + 1);
		if (!program)
			return unknown_algorithm(c, colon + 1);
		forced[c] = program;
		return COLLET_OK;
	}
	return unknown_collective(word);
}

collet_status collet_choice_parse_forced(const char *text, const struct collet_program *forced[COLLET_COLLECTIVE_COUNT])
{
	const struct collet_program *parsed[COLLET_COLLECTIVE_COUNT] = {NULL};
	for (const char *from = text; from && *from;) {
		char word[2 * NAME_BYTES];
		const size_t length = strcspn(from, ",");
		if (length >= sizeof word)
			return collet_fail(
				COLLET_ERR_CONFIG, "\"%s\" names no algorithm: a word of it is too long", text);
		memcpy(word, from, length);
		word[length] = '\0';
		const collet_status status = force(word, parsed);
		if (status != COLLET_OK)
			return status;
		from += length + (from[length] == ',');
	}
	memcpy(forced, parsed, sizeof parsed);
	return COLLET_OK;
}
