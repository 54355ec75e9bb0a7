/* Supervision: one loop over everything that can happen, which sleeps in poll() between. A job goes through phases,
 * each of which says what may end it and when the next one begins:
 *
 *   RUNNING      every rank is on its own. A rank fails -> GRACE; --timeout -> TERMINATING
 *   GRACE        the others can find out and report by themselves -> TERMINATING
 *   TERMINATING  SIGTERM was sent -> KILLING
 *   KILLING      SIGKILL is sent until no descendant is left -> DRAINING
 *   DRAINING     no process is left; their output is passed on, then the job is over
 *
 * Whatever phase it is, it becomes DRAINING once no descendant is left. Then, if a rank has failed and --restarts
 * allows it, all begins again: so no process of one run meets one of the next. What ranks leave running when the last
 * of them has ended gets the same grace, SIGTERM and SIGKILL: this process is the subreaper of all that its ranks
 * start, so nothing escapes by a new session or a dead parent. */
#include "supervise.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "descendants.h"
#include "rank.h"
#include "say.h"

enum phase { PHASE_RUNNING, PHASE_GRACE, PHASE_TERMINATING, PHASE_KILLING, PHASE_DRAINING };

/* What SIGKILL may take; a process that hangs in the kernel for longer is left to it. */
#define KILL_WAIT_S 10.0
#define NEVER INT64_MAX

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

enum { POLLED_CONTROL, POLLED_CHILD, POLLED_SINKS, POLLED_RANKS = POLLED_SINKS + 2, POLLED_PER_RANK = 3 };

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t deadline_in(double seconds)
{
	return now_ns() + (int64_t)(seconds * 1e9);
}

/* Messages take the ranks' way, so that they neither cut a line nor overtake what led to them. */
static void report(struct supervisor *s, const char *sentence)
{
	char line[1280];
	snprintf(line, sizeof(line), "collet-run: %s\n", sentence);
	sink_say(&s->sinks[s->sink_count - 1], line);
}

/* ---- Phases ------------------------------------------------------------------------------------------------- */

static void signal_running(struct supervisor *s, int signal_number, bool whole_group)
{
	for (uint32_t i = 0; i < s->rank_count; i++)
		rank_signal(&s->ranks[i], signal_number, whole_group);
}

static void enter_phase(struct supervisor *s, enum phase phase)
{
	s->phase = phase;
	switch (phase) {
	case PHASE_GRACE:
		s->deadline_ns = deadline_in(s->job->options.grace_s);
		break;
	case PHASE_TERMINATING:
		signal_running(s, SIGTERM, true);
		/* A stopped process learns of it only when it goes on. */
		signal_running(s, SIGCONT, true);
		if (s->running_count == 0) {
			(void)descendants_signal(SIGTERM);
			(void)descendants_signal(SIGCONT);
		}
		s->deadline_ns = deadline_in(s->job->options.grace_s);
		break;
	case PHASE_KILLING:
		signal_running(s, SIGKILL, true);
		(void)descendants_signal(SIGKILL);
		s->deadline_ns = deadline_in(KILL_WAIT_S);
		break;
	default:
		s->deadline_ns = NEVER;
		break;
	}
}

static void check_deadlines(struct supervisor *s)
{
	const int64_t now = now_ns();
	if (s->phase == PHASE_RUNNING && now >= s->timeout_ns) {
		char sentence[128];
		snprintf(sentence, sizeof(sentence), "%u of %u ranks still ran after %g s (--timeout); ending them",
			s->running_count, s->rank_count, s->job->options.timeout_s);
		report(s, sentence);
		s->exit_status = EXIT_TIMED_OUT;
		s->final = true;
		enter_phase(s, PHASE_TERMINATING);
	} else if (now >= s->deadline_ns && s->phase == PHASE_GRACE) {
		enter_phase(s, PHASE_TERMINATING);
	} else if (now >= s->deadline_ns && s->phase == PHASE_TERMINATING) {
		enter_phase(s, PHASE_KILLING);
	} else if (now >= s->deadline_ns && s->phase == PHASE_KILLING) {
		report(s, "some processes have not ended after SIGKILL; they hang in the kernel and are left to it");
		enter_phase(s, PHASE_DRAINING);
	}
}

/* ---- Ranks that end ----------------------------------------------------------------------------------------- */

static void fail_with(struct supervisor *s, const struct rank *rank, int exit_status)
{
	char how[512], sentence[640];
	rank_describe(rank, s->job, how, sizeof(how));
	/* What cannot be started on one rank cannot on any: no use in waiting for the others. */
	const bool at_start = rank->failure.step != 0;
	const bool others = s->running_count > 0 && s->phase == PHASE_RUNNING && !at_start;
	if (others && s->job->options.grace_s > 0)
		snprintf(sentence, sizeof(sentence), "%s; the others have %g s to end by themselves", how,
			s->job->options.grace_s);
	else
		snprintf(sentence, sizeof(sentence), "%s%s", how, others ? "; ending the others" : "");
	report(s, sentence);
	s->final = s->final || at_start;
	if (s->exit_status == 0) {
		s->exit_status = exit_status;
		snprintf(s->failure, sizeof(s->failure), "%s", how);
	}
	if (s->phase == PHASE_RUNNING)
		enter_phase(s, at_start ? PHASE_TERMINATING : PHASE_GRACE);
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

/* Of ranks found dead together, whose failure is the cause and whose the consequence? SIGCHLD says who was first: of
 * several that wait to be read, the kernel keeps the oldest. Where that is not known, the one killed by a signal comes
 * first, and then it is by rank. */
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

/* Waits for every child that has ended, ranks and adopted ones alike. first_pid: who ended first, 0 if not known. */
static void reap(struct supervisor *s, pid_t first_pid)
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
		enter_phase(s, PHASE_DRAINING);
	else if (s->running_count == 0 && s->phase == PHASE_RUNNING)
		enter_phase(s, PHASE_GRACE);
	else if (s->phase == PHASE_KILLING)
		(void)descendants_signal(SIGKILL); /* those whose parents have just died */
}

/* ---- What wakes the loop ------------------------------------------------------------------------------------ */

static void read_child_signal(struct supervisor *s)
{
	struct signalfd_siginfo info;
	/* One is enough: signals of one number that wait together are one, and reap() looks at all children. */
	const bool got = read(s->child_fd, &info, sizeof(info)) == sizeof(info);
	reap(s, got ? (pid_t)info.ssi_pid : 0);
}

/* Signals by which a user steers a job go to all that a rank has started; those that a program gives a meaning of its
 * own go to the rank alone, since a helper of it that knows nothing of them would be killed. */
static bool for_whole_group(int signal_number)
{
	return signal_number != SIGUSR1 && signal_number != SIGUSR2 && signal_number != SIGWINCH;
}

static void forward(struct supervisor *s, int signal_number)
{
	const bool ends = signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP ||
		signal_number == SIGQUIT;
	s->final = s->final || ends;
	if (ends && s->phase == PHASE_TERMINATING)
		enter_phase(s, PHASE_KILLING);
	else if (ends && s->phase == PHASE_DRAINING)
		s->sinks[0].broken = s->sinks[1].broken = true; /* nobody wants to wait for the rest of the output */
	else
		signal_running(s, signal_number, for_whole_group(signal_number));
}

static void read_control(struct supervisor *s)
{
	unsigned char numbers[64];
	const ssize_t got = read(s->control_fd, numbers, sizeof(numbers));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	for (ssize_t i = 0; i < got; i++)
		forward(s, numbers[i]);
	if (got > 0)
		return;
	/* collet-run has been killed: whoever did that wants the job gone, now. */
	close(s->control_fd);
	s->control_fd = -1;
	s->exit_status = EXIT_SIGNAL_BASE + SIGKILL;
	s->final = true;
	s->sinks[0].broken = s->sinks[1].broken = true;
	if (s->phase < PHASE_KILLING)
		enter_phase(s, PHASE_KILLING);
}

static void flush_sinks(struct supervisor *s)
{
	for (unsigned i = 0; i < s->sink_count; i++)
		(void)sink_flush(&s->sinks[i]);
}

/* A sink whose reader has gone: the ranks that write to it learn so as they would from the reader itself. */
static void end_broken_streams(struct supervisor *s)
{
	for (uint32_t i = 0; i < s->rank_count; i++) {
		struct stream *streams[] = { &s->ranks[i].out, &s->ranks[i].error };
		for (unsigned j = 0; j < 2; j++) {
			if (streams[j]->sink != NULL && streams[j]->sink->broken)
				stream_end(streams[j]);
		}
	}
}

/* In DRAINING: no process is left that could write, so what the pipes hold is all there will be. */
static void drain_stream(struct stream *stream)
{
	while (stream->fd >= 0 && stream->sink->queue.count < SINK_BYTES_HIGH) {
		struct pollfd readable = { .fd = stream->fd, .events = POLLIN };
		if (poll(&readable, 1, 0) <= 0)
			stream_end(stream);
		else
			(void)stream_read(stream);
	}
}

/* True: all has been passed on. */
static bool drain(struct supervisor *s)
{
	bool drained = true;
	for (uint32_t i = 0; i < s->rank_count; i++) {
		struct rank *rank = &s->ranks[i];
		drain_stream(&rank->out);
		drain_stream(&rank->error);
		drained = drained && rank->out.fd < 0 && rank->error.fd < 0;
	}
	flush_sinks(s);
	for (unsigned i = 0; i < s->sink_count; i++)
		drained = drained && (s->sinks[i].queue.count == 0 || s->sinks[i].broken);
	return drained;
}

/* ---- The loop ----------------------------------------------------------------------------------------------- */

static short stream_events(const struct stream *stream)
{
	return stream->fd >= 0 && stream->sink->queue.count < SINK_BYTES_HIGH ? POLLIN : 0;
}

/* A descriptor that is -1, or whose events are not wanted now (a POLLHUP would come even so), is left out. */
static struct pollfd poll_for(int fd, short events)
{
	return (struct pollfd){ .fd = events != 0 ? fd : -1, .events = events };
}

static nfds_t fill_polled(struct supervisor *s)
{
	s->polled[POLLED_CONTROL] = poll_for(s->control_fd, POLLIN);
	s->polled[POLLED_CHILD] = poll_for(s->child_fd, POLLIN);
	for (unsigned i = 0; i < 2; i++)
		s->polled[POLLED_SINKS + i] = poll_for(s->sinks[i].fd, s->sinks[i].queue.count > 0 ? POLLOUT : 0);
	for (uint32_t i = 0; i < s->rank_count; i++) {
		const struct rank *rank = &s->ranks[i];
		struct pollfd *polled = s->polled + POLLED_RANKS + (size_t)i * POLLED_PER_RANK;
		polled[0] = poll_for(rank->start_fd, POLLIN);
		polled[1] = poll_for(rank->out.fd, stream_events(&rank->out));
		polled[2] = poll_for(rank->error.fd, stream_events(&rank->error));
	}
	return POLLED_RANKS + (nfds_t)s->rank_count * POLLED_PER_RANK;
}

static int poll_timeout_ms(const struct supervisor *s)
{
	int64_t until = s->deadline_ns;
	if (s->phase == PHASE_RUNNING && s->timeout_ns < until)
		until = s->timeout_ns;
	if (until == NEVER)
		return -1;
	const int64_t left_ns = until - now_ns();
	if (left_ns <= 0)
		return 0;
	/* Rounded up, so that the deadline has passed when poll() returns; a long wait is taken in parts. */
	const int64_t left_ms = (left_ns + 999999) / 1000000;
	return left_ms < 1000000 ? (int)left_ms : 1000000;
}

static void dispatch(struct supervisor *s)
{
	for (uint32_t i = 0; i < s->rank_count; i++) {
		const struct pollfd *polled = s->polled + POLLED_RANKS + (size_t)i * POLLED_PER_RANK;
		if (polled[0].revents != 0)
			rank_read_start(&s->ranks[i]);
		if (polled[1].revents != 0)
			(void)stream_read(&s->ranks[i].out);
		if (polled[2].revents != 0)
			(void)stream_read(&s->ranks[i].error);
	}
	/* After the output, so that a dying rank's last words come before the news of its death. */
	if (s->polled[POLLED_CHILD].revents != 0)
		read_child_signal(s);
	if (s->polled[POLLED_CONTROL].revents != 0)
		read_control(s);
	flush_sinks(s);
	end_broken_streams(s);
	check_deadlines(s);
}

static void run_loop(struct supervisor *s)
{
	reap(s, 0);
	for (;;) {
		if (s->phase == PHASE_DRAINING && drain(s))
			return;
		const int ready = poll(s->polled, fill_polled(s), poll_timeout_ms(s));
		if (ready < 0 && errno != EINTR) {
			/* Out of memory at most; without poll() nothing can be watched, so nothing may be left running.
			 */
			enter_phase(s, PHASE_KILLING);
			return;
		}
		if (ready < 0)
			continue;
		dispatch(s);
	}
}

/* ---- Beginning and end -------------------------------------------------------------------------------------- */

static void init_ranks(struct supervisor *s)
{
	const struct options *options = &s->job->options;
	for (uint32_t i = 0; i < s->rank_count; i++) {
		struct rank *rank = &s->ranks[i];
		*rank = (struct rank){ .local_rank = i, .rank = options->node_rank * options->local_size + i,
			.restart = s->restart, .start_fd = -1 };
		rank->out = (struct stream){ .fd = -1, .rank = rank->rank, .sink = &s->sinks[0] };
		rank->error = (struct stream){ .fd = -1, .rank = rank->rank, .sink = &s->sinks[s->sink_count - 1] };
		/* Where the terminal shows the unfinished lines of. */
		rank->out.shown_live = rank->error.shown_live = options->node_rank == 0 ? rank->rank == 0 : i == 0;
	}
}

static void deinit_ranks(struct supervisor *s)
{
	for (uint32_t i = 0; s->ranks != NULL && i < s->rank_count; i++) {
		stream_end(&s->ranks[i].out);
		stream_end(&s->ranks[i].error);
		if (s->ranks[i].start_fd >= 0)
			close(s->ranks[i].start_fd);
	}
}

static bool supervisor_init(struct supervisor *s, const struct job *job, int control_fd)
{
	memset(s, 0, sizeof(*s));
	s->job = job;
	s->control_fd = control_fd;
	s->deadline_ns = NEVER;
	s->timeout_ns = job->options.timeout_s > 0 ? deadline_in(job->options.timeout_s) : NEVER;
	s->rank_count = job->options.local_size;
	s->sink_count = sinks_init(s->sinks);
	s->ranks = calloc(s->rank_count, sizeof(*s->ranks));
	s->polled = calloc(POLLED_RANKS + (size_t)s->rank_count * POLLED_PER_RANK, sizeof(*s->polled));
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	s->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->ranks == NULL || s->polled == NULL || s->child_fd < 0) {
		say("cannot start: %s", strerror(errno));
		return false;
	}
	init_ranks(s);
	return true;
}

static void supervisor_deinit(struct supervisor *s)
{
	deinit_ranks(s);
	for (unsigned i = 0; i < s->sink_count; i++)
		sink_deinit(&s->sinks[i]);
	if (s->child_fd >= 0)
		close(s->child_fd);
	free(s->ranks);
	free(s->polled);
}

static void start_ranks(struct supervisor *s, int stdin_fd)
{
	for (uint32_t i = 0; i < s->rank_count; i++) {
		if (!rank_start(&s->ranks[i], s->job, stdin_fd)) {
			s->exit_status = EXIT_CANNOT_EXECUTE;
			s->final = true;
			enter_phase(s, PHASE_TERMINATING);
			return;
		}
		s->running_count++;
	}
}

/* Nobody reads any more what a rank would print: then it would fail again. */
static bool may_start_again(const struct supervisor *s)
{
	return s->exit_status != 0 && !s->final && !s->children_left && s->restart < s->job->options.restarts &&
		!s->sinks[0].broken && !s->sinks[s->sink_count - 1].broken;
}

static void start_again(struct supervisor *s)
{
	char sentence[640];
	s->restart++;
	snprintf(sentence, sizeof(sentence), "restart %u of %u: %s", s->restart, s->job->options.restarts, s->failure);
	report(s, sentence);
	deinit_ranks(s);
	init_ranks(s);
	s->exit_status = 0;
	enter_phase(s, PHASE_RUNNING);
}

int supervise(const struct job *job, int control_fd, int stdin_fd)
{
	struct supervisor s;
	const bool ready = supervisor_init(&s, job, control_fd);
	bool again = ready;
	while (again) {
		start_ranks(&s, stdin_fd);
		/* Whatever still holds the ends that are rank 0's would keep it from seeing their end, and their writer
		 * from seeing its; but another rank 0 may have to read on. */
		if (stdin_fd >= 0 && s.restart == job->options.restarts) {
			close(stdin_fd);
			stdin_fd = -1;
		}
		run_loop(&s);
		again = may_start_again(&s);
		if (again)
			start_again(&s);
	}
	if (stdin_fd >= 0)
		close(stdin_fd);
	const int exit_status = ready ? s.exit_status : EXIT_CANNOT_EXECUTE;
	supervisor_deinit(&s);
	return exit_status;
}
