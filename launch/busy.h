/* Detects whether other processes use this machine's cores. */
#ifndef COLLET_LAUNCH_BUSY_H
#define COLLET_LAUNCH_BUSY_H

#include <stdbool.h>

/* Returns true if other threads ran or waited for a core during the few milliseconds of sampling, or if that cannot
 * be read. loadavg is /proc/loadavg; tests pass another file. */
bool busy_others(const char *loadavg);

#endif
