/* The process that starts the ranks, watches them, passes their output on and ends them. */
#ifndef COLLET_LAUNCH_SUPERVISE_H
#define COLLET_LAUNCH_SUPERVISE_H

#include "job.h"

/* Runs the job and returns collet-run's exit status. Every byte read from control_fd is a signal's number to forward to
 * the ranks; its end means that collet-run has been killed. stdin_fd is what rank 0 reads; it is closed here.
 * All signals are blocked when this is called, and SIGPIPE is ignored. */
int supervise(const struct job *job, int control_fd, int stdin_fd);

#endif
