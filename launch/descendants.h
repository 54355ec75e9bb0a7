/* Adopts and signals the processes that ranks leave behind. */
#ifndef COLLET_LAUNCH_DESCENDANTS_H
#define COLLET_LAUNCH_DESCENDANTS_H

#include <stdbool.h>

/* Makes this process the subreaper: a descendant whose parent has died becomes its child, whatever its group or
 * session. Returns false if the system refused. */
bool descendants_adopt(void);

/* Sends a signal to every child of this process and returns how many there were. The children have not been waited
 * for, so none of their process ids can have been reused. */
unsigned descendants_signal(int signal_number);

#endif
