/* Warns of environment variables that begin with COLLET_ and mean nothing. */
#ifndef COLLET_API_UNKNOWN_VARIABLES_H
#define COLLET_API_UNKNOWN_VARIABLES_H

#include "core/log.h"

/* Logs a warning for each such variable. In the first run of a job of collet-run, it does so at any level: a user who
 * has misspelt COLLET_LOG too would not learn of either. */
void collet_warn_of_unknown_variables(const struct collet_log *log);

#endif
