/* What is settled before the first process is started; nothing changes it later. */
#ifndef COLLET_LAUNCH_JOB_H
#define COLLET_LAUNCH_JOB_H

#include <signal.h>

#include "environment.h"
#include "options.h"
#include "placement.h"

struct job {
	struct options options;
	struct placement placement;
	struct meeting meeting;
	char host_name[256];             /* of this host, for people */
	sigset_t original_mask;          /* what the ranks get back: */
	struct sigaction original_pipe;  /* the mask and the SIGPIPE that collet-run was started with */
};

#endif
