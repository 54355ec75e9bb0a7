/* Lists the settings that a run's course depends on, as text. A checkpoint stores them, and a resumed run is
 * compared with them. */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include "options.h"

struct setting {
	const char *name;          /* the option's, without -- */
	char text[64];             /* "" for one that is not given */
	bool binding;              /* what was learnt is worth nothing with another one */
};

enum { SETTINGS = 32 };

/* Fills rows (SETTINGS of them) and returns how many there are. */
uint32_t settings_list(const struct options *options, struct setting *rows);

#endif
