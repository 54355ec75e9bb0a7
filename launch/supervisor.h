/* Shared by the files that supervise a job: supervise.c (the loop), phases.c and reap.c. */
#ifndef COLLET_RUN_SUPERVISOR_H
#define COLLET_RUN_SUPERVISOR_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "output.h"
#include "rank.h"

/* See supervise.c. */
enum phase { PHASE_RUNNING, PHASE_GRACE, PHASE_TERMINATING, PHASE_KILLING, PHASE_DRAINING };

#define SUPERVISOR_NEVER INT64_MAX

struct supervisor {
	const struct job *job;
	int control_fd; /* -1 once it has ended */
	int child_fd;   /* a signalfd for SIGCHLD */
	enum phase phase;
	int64_t deadline_ns; /* of the phase */
	int64_t timeout_ns;  /* of the run */
	int exit_status;     /* of the first failure; 0 so far */
	bool final;          /* it ends by its user, --timeout, or since it cannot start: no use in another try */
	uint32_t restart;    /* how often the ranks have been started before */
	char failure[512];   /* the first rank that failed, and how */
	bool children_left;  /* as of the last look */
	uint32_t rank_count;
	uint32_t running_count;
	struct rank *ranks;
	struct sink sinks[2];
	unsigned sink_count;
	struct pollfd *polled; /* control, child, sinks, then three for each rank */
};

/* ---- phases.c */
int64_t supervisor_now_ns(void);
int64_t supervisor_deadline(double seconds);
/* Prints a message through the ranks' queue, so that it neither cuts a line nor overtakes earlier output. */
void supervisor_report(struct supervisor *s, const char *sentence);
void supervisor_signal(struct supervisor *s, int signal_number, bool whole_group);
void supervisor_enter(struct supervisor *s, enum phase phase);
/* Checks the deadline of the phase, and --timeout. */
void supervisor_check_deadlines(struct supervisor *s);

/* ---- reap.c */
/* Waits for every child that has ended, ranks and adopted ones alike. first_pid: the first to end, 0 if unknown. */
void supervisor_reap(struct supervisor *s, pid_t first_pid);

#endif
