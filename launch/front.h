/* Runs the process that the user sees. It forwards signals and the terminal's input. */
#ifndef COLLET_LAUNCH_FRONT_H
#define COLLET_LAUNCH_FRONT_H

#include "job.h"

/* Starts the supervisor, waits for it, and returns the exit status of the run. */
int front_run(struct job *job);

#endif
