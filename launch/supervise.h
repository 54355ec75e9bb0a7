/* Starts the ranks, watches them, passes their output on and ends them. */
#ifndef COLLET_LAUNCH_SUPERVISE_H
#define COLLET_LAUNCH_SUPERVISE_H

#include "job.h"

/* Runs the job and returns collet-run's exit status. Every byte read from control_fd is a signal number to forward
 * to the ranks; its end means that collet-run was killed. Rank 0 reads stdin_fd, which is closed here. The caller
 * has blocked all signals and ignores SIGPIPE. */
int supervise(const struct job *job, int control_fd, int stdin_fd);

#endif
