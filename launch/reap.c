/* Reaps ranks that have ended, reports the first failure, and decides what happens to the others. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "descendants.h"
#include "job.h"
#include "supervisor.h"

static void fail_with(struct supervisor *s, const struct rank *rank, int exit_status)
{
	char how[512], sentence[640];
	rank_describe(rank, s->job, how, sizeof(how));
	/* A program that one rank cannot start, no rank can; do not wait for the others. */
	const bool at_start = rank->failure.step != 0;
	const bool others = s->running_count > 0 && s->phase == PHASE_RUNNING && !at_start;
	if (others && s->job->options.grace_s > 0)
		snprintf(sentence, sizeof(sentence), "%s; the others have %g s to end by themselves", how,
			s->job->options.grace_s);
	else
		snprintf(sentence, sizeof(sentence), "%s%s", how, others ? "; ending the others" : "");
	supervisor_report(s, sentence);
	s->final = s->final || at_start;
	if (s->exit_status == 0) {
		s->exit_status = exit_status;
		snprintf(s->failure, sizeof(s->failure), "%s", how);
	}
	if (s->phase == PHASE_RUNNING)
		supervisor_enter(s, at_start ? PHASE_TERMINATING : PHASE_GRACE);
}

static struct rank *find_rank(struct supervisor *s, pid_t pid)
{
	for (uint32_t i = 0; i < s->rank_count; i++) {
		if (s->ranks[i].pid == pid)
			return &s->ranks[i];
	}
	return NULL;
}

/* Reports the just ended ranks that failed: all of them, or only those killed by a signal. Once they have been asked to
 * end, how they do is no news. */
static void report_failed(struct supervisor *s, bool *just_ended, bool only_by_signal)
{
	for (uint32_t i = 0; i < s->rank_count; i++) {
		const struct rank *rank = &s->ranks[i];
		int exit_status;
		if (!just_ended[i] || !rank_failed(rank, &exit_status) ||
			(only_by_signal && !WIFSIGNALED(rank->wait_status)))
			continue;
		if (s->phase < PHASE_TERMINATING)
			fail_with(s, rank, exit_status);
		just_ended[i] = false;
	}
}

/* Decides which of several dead ranks failed first. SIGCHLD names the first: the kernel keeps the oldest of pending
 * ones. If that is unknown, ranks killed by a signal come first, then the order of ranks. */
static void report_failures(struct supervisor *s, bool *just_ended, pid_t first_pid)
{
	bool first_only[LOCAL_SIZE_MAX] = { false };
	for (uint32_t i = 0; i < s->rank_count; i++) {
		if (just_ended[i] && s->ranks[i].ended_pid == first_pid) {
			first_only[i] = true;
			just_ended[i] = false;
		}
	}
	report_failed(s, first_only, false);
	report_failed(s, just_ended, true);
	report_failed(s, just_ended, false);
}

void supervisor_reap(struct supervisor *s, pid_t first_pid)
{
	bool just_ended[LOCAL_SIZE_MAX] = { false };
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct rank *rank = find_rank(s, pid);
		if (rank == NULL)
			continue;
		rank_read_start(rank);
		rank->ended = true;
		rank->ended_pid = pid;
		rank->pid = 0;
		rank->wait_status = status;
		just_ended[rank - s->ranks] = true;
		s->running_count--;
	}
	s->children_left = pid == 0;
	report_failures(s, just_ended, first_pid);
	if (!s->children_left && s->phase != PHASE_DRAINING)
		supervisor_enter(s, PHASE_DRAINING);
	else if (s->running_count == 0 && s->phase == PHASE_RUNNING)
		supervisor_enter(s, PHASE_GRACE);
	else if (s->phase == PHASE_KILLING)
		(void)descendants_signal(SIGKILL); /* those whose parents have just died */
}
