/* The processes that ranks leave behind. */
#ifndef COLLET_LAUNCH_DESCENDANTS_H
#define COLLET_LAUNCH_DESCENDANTS_H

#include <stdbool.h>

/* From now on, descendants of this process whose parents have died become its children, whatever group or session they
 * have put themselves into. False: the system refused. */
bool descendants_adopt(void);

/* Sends a signal to every child of this process; returns how many there were. Being this process's own children, not
 * yet waited for, none of the process ids can mean somebody else. */
unsigned descendants_signal(int signal_number);

#endif
