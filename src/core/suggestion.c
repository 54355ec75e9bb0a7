#include "core/suggestion.h"

#include <stdio.h>

struct collet_suggestion collet_suggest(const char *name)
{
	struct collet_suggestion suggestion = { "" };
	if (name)
		snprintf(suggestion.text, sizeof(suggestion.text), " (did you mean \"%s\"?)", name);
	return suggestion;
}
