/* The tuning file: measured link costs, which replace the built-in ones. */
#ifndef COLLET_SELECTION_TUNING_FILE_H
#define COLLET_SELECTION_TUNING_FILE_H

#include "core/log.h"
#include "selection/tuning.h"

/* Loads the file that COLLET_TUNING names, or the default one. Rank 0 calls it for all ranks. An unusable file is an
 * error if it was named, and a warning if not. *count is 0 if there is no file: use the built-in tuning then. */
collet_status collet_tuning_load(
	const struct collet_log *log, collet_link_cost links[COLLET_TUNING_LINKS], uint32_t *count);

#endif
