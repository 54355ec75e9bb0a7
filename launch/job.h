/* Describes a job. All of it is set before the first process starts, and nothing changes it later. */
#ifndef COLLET_LAUNCH_JOB_H
#define COLLET_LAUNCH_JOB_H

#include <signal.h>
#include <sys/resource.h>

#include "environment.h"
#include "options.h"
#include "placement.h"

struct job {
	struct options options;
	struct placement placement;
	struct bootstrap bootstrap;
	char host_name[256]; /* of this host, for people */
	/* The state that collet-run inherited and changed for itself; the ranks get it back. */
	sigset_t original_mask;
	struct sigaction original_pipe;
	struct rlimit original_files;
};

#endif
