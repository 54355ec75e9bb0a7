/* Does anything else want this machine's cores? */
#ifndef COLLET_LAUNCH_BUSY_H
#define COLLET_LAUNCH_BUSY_H

#include <stdbool.h>

/* True: other threads than the caller's own have been running, or waiting for a core, for some milliseconds, which is
 * how long this looks; or it cannot be told. loadavg is /proc/loadavg, but for tests. */
bool busy_others(const char *loadavg);

#endif
