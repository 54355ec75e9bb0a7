/* Enters the phases of a job and checks their deadlines. supervise.c lists the phases. */
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "descendants.h"
#include "job.h"
#include "say.h"
#include "supervisor.h"

/* The longest wait after SIGKILL; a process that hangs in the kernel for longer is abandoned. */
#define KILL_WAIT_S 10.0

int64_t supervisor_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t supervisor_deadline(double seconds)
{
	return supervisor_now_ns() + (int64_t)(seconds * 1e9);
}

void supervisor_report(struct supervisor *s, const char *sentence)
{
	char line[1280];
	snprintf(line, sizeof(line), "collet-run: %s\n", sentence);
	sink_say(&s->sinks[s->sink_count - 1], line);
}

void supervisor_signal(struct supervisor *s, int signal_number, bool whole_group)
{
	for (uint32_t i = 0; i < s->rank_count; i++)
		rank_signal(&s->ranks[i], signal_number, whole_group);
}

void supervisor_enter(struct supervisor *s, enum phase phase)
{
	s->phase = phase;
	switch (phase) {
	case PHASE_GRACE:
		s->deadline_ns = supervisor_deadline(s->job->options.grace_s);
		break;
	case PHASE_TERMINATING:
		supervisor_signal(s, SIGTERM, true);
		/* A stopped process learns of it only when it goes on. */
		supervisor_signal(s, SIGCONT, true);
		if (s->running_count == 0) {
			(void)descendants_signal(SIGTERM);
			(void)descendants_signal(SIGCONT);
		}
		s->deadline_ns = supervisor_deadline(s->job->options.grace_s);
		break;
	case PHASE_KILLING:
		supervisor_signal(s, SIGKILL, true);
		(void)descendants_signal(SIGKILL);
		s->deadline_ns = supervisor_deadline(KILL_WAIT_S);
		break;
	default:
		s->deadline_ns = SUPERVISOR_NEVER;
		break;
	}
}

void supervisor_check_deadlines(struct supervisor *s)
{
	const int64_t now = supervisor_now_ns();
	if (s->phase == PHASE_RUNNING && now >= s->timeout_ns) {
		char sentence[128];
		snprintf(sentence, sizeof(sentence), "%u of %u ranks still ran after %g s (--timeout); ending them",
			s->running_count, s->rank_count, s->job->options.timeout_s);
		supervisor_report(s, sentence);
		s->exit_status = EXIT_TIMED_OUT;
		s->final = true;
		supervisor_enter(s, PHASE_TERMINATING);
	} else if (now >= s->deadline_ns && s->phase == PHASE_GRACE) {
		supervisor_enter(s, PHASE_TERMINATING);
	} else if (now >= s->deadline_ns && s->phase == PHASE_TERMINATING) {
		supervisor_enter(s, PHASE_KILLING);
	} else if (now >= s->deadline_ns && s->phase == PHASE_KILLING) {
		supervisor_report(
			s, "some processes have not ended after SIGKILL; they hang in the kernel and are left to it");
		supervisor_enter(s, PHASE_DRAINING);
	}
}
