/* Words the "did you mean" of an error sentence. closest_name.h finds the name. */
#ifndef COLLET_CORE_SUGGESTION_H
#define COLLET_CORE_SUGGESTION_H

struct collet_suggestion {
	char text[96];
};

/* Returns ' (did you mean "NAME"?)', to stand behind a misspelt name; "" if name is NULL. */
struct collet_suggestion collet_suggest(const char *name);

#endif
