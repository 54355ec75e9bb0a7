/* Supervises a job: one loop over all events, which sleeps in poll(). The phases of a job are:
 *
 *   RUNNING      every rank runs by itself. A rank fails -> GRACE; --timeout -> TERMINATING
 *   GRACE        the others can notice and report by themselves -> TERMINATING
 *   TERMINATING  SIGTERM was sent -> KILLING
 *   KILLING      SIGKILL is sent until no descendant is left -> DRAINING
 *   DRAINING     no process is left; their output is passed on, then the job is over
 *
 * Any phase becomes DRAINING once no descendant is left. Then, if a rank has failed and --restarts allows it, the job
 * starts again; so no process of one run meets one of the next. Processes that outlive the last rank get the same
 * grace, SIGTERM and SIGKILL. This process is the subreaper of all that its ranks start, so neither a new session nor
 * a dead parent lets one escape. */
#include "supervise.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "say.h"
#include "supervisor.h"

enum { POLLED_CONTROL, POLLED_CHILD, POLLED_SINKS, POLLED_RANKS = POLLED_SINKS + 2, POLLED_PER_RANK = 3 };

/* ---- What wakes the loop ------------------------------------------------------------------------------------ */

static void read_child_signal(struct supervisor *s)
{
	struct signalfd_siginfo info;
	/* One is enough: signals of one number that wait together are one, and reaping looks at all children. */
	const bool got = read(s->child_fd, &info, sizeof(info)) == sizeof(info);
	supervisor_reap(s, got ? (pid_t)info.ssi_pid : 0);
}

/* Forwards a signal. Those by which a user controls a job go to all that a rank has started. Those that a program
 * defines for itself go to the rank alone, since they would kill a child that does not expect them. */
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
		supervisor_enter(s, PHASE_KILLING);
	else if (ends && s->phase == PHASE_DRAINING)
		s->sinks[0].broken = s->sinks[1].broken = true; /* nobody wants to wait for the rest of the output */
	else
		supervisor_signal(s, signal_number, for_whole_group(signal_number));
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
	/* collet-run has been killed, so the job must end now. */
	close(s->control_fd);
	s->control_fd = -1;
	s->exit_status = EXIT_SIGNAL_BASE + SIGKILL;
	s->final = true;
	s->sinks[0].broken = s->sinks[1].broken = true;
	if (s->phase < PHASE_KILLING)
		supervisor_enter(s, PHASE_KILLING);
}

static void flush_sinks(struct supervisor *s)
{
	for (unsigned i = 0; i < s->sink_count; i++)
		(void)sink_flush(&s->sinks[i]);
}

/* Closes the streams of a sink whose reader has gone. The ranks that write to it then get the same error as from the
 * reader itself. */
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

/* Ends streams in DRAINING: no writer is left, so the pipes hold all that will come. */
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

/* On a terminal, bars on standard error must not be drawn again below the lines that a program prints after them. */
static bool draws_bars(const struct rank *rank)
{
	return rank->error.shown_live && rank->error.sink->terminal;
}

static void drain_rank(struct rank *rank)
{
	const bool is_error_first = draws_bars(rank);
	drain_stream(is_error_first ? &rank->error : &rank->out);
	drain_stream(is_error_first ? &rank->out : &rank->error);
}

/* Returns true if all has been passed on. */
static bool drain(struct supervisor *s)
{
	bool drained = true;
	for (uint32_t i = 0; i < s->rank_count; i++) {
		struct rank *rank = &s->ranks[i];
		drain_rank(rank);
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

/* Adds a descriptor to poll. One that is -1, or whose events are not wanted now, is left out: POLLHUP would come
 * even so. */
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
	if (until == SUPERVISOR_NEVER)
		return -1;
	const int64_t left_ns = until - supervisor_now_ns();
	if (left_ns <= 0)
		return 0;
	/* Rounded up, so that the deadline has passed when poll() returns; a long wait is taken in parts. */
	const int64_t left_ms = (left_ns + 999999) / 1000000;
	return left_ms < 1000000 ? (int)left_ms : 1000000;
}

static void read_rank(struct rank *rank, const struct pollfd polled[POLLED_PER_RANK])
{
	if (polled[0].revents != 0)
		rank_read_start(rank);
	if (polled[1].revents != 0 && draws_bars(rank))
		(void)stream_read_after(&rank->out, &rank->error);
	else if (polled[1].revents != 0)
		(void)stream_read(&rank->out);
	if (polled[2].revents != 0 && rank->error.fd >= 0)
		(void)stream_read(&rank->error);
}

static void dispatch(struct supervisor *s)
{
	for (uint32_t i = 0; i < s->rank_count; i++)
		read_rank(&s->ranks[i], s->polled + POLLED_RANKS + (size_t)i * POLLED_PER_RANK);
	/* After the output, so that a dying rank's last words come before the news of its death. */
	if (s->polled[POLLED_CHILD].revents != 0)
		read_child_signal(s);
	if (s->polled[POLLED_CONTROL].revents != 0)
		read_control(s);
	flush_sinks(s);
	end_broken_streams(s);
	supervisor_check_deadlines(s);
}

static void run_loop(struct supervisor *s)
{
	supervisor_reap(s, 0);
	for (;;) {
		if (s->phase == PHASE_DRAINING && drain(s))
			return;
		const int ready = poll(s->polled, fill_polled(s), poll_timeout_ms(s));
		if (ready < 0 && errno != EINTR) {
			/* Out of memory at most; without poll() nothing can be watched, so nothing may be left running.
			 */
			supervisor_enter(s, PHASE_KILLING);
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
		/* Decided by rank, not by who prints: a line must not depend on what comes later. */
		rank->out.is_bare = options->prefix == PREFIX_AUTO && rank->rank == 0 && !isatty(STDOUT_FILENO);
		/* The rank whose unfinished lines the terminal shows. */
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
	s->deadline_ns = SUPERVISOR_NEVER;
	s->timeout_ns = job->options.timeout_s > 0 ? supervisor_deadline(job->options.timeout_s) : SUPERVISOR_NEVER;
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
			s->exit_status = EXIT_FAILURE;
			s->final = true;
			supervisor_enter(s, PHASE_TERMINATING);
			return;
		}
		s->running_count++;
	}
}

/* Returns true if the job may start again. Not if nobody reads its output: a rank's print would fail again. */
static bool may_restart(const struct supervisor *s)
{
	return s->exit_status != 0 && !s->final && !s->children_left && s->restart < s->job->options.restarts &&
		!s->sinks[0].broken && !s->sinks[s->sink_count - 1].broken;
}

static void restart(struct supervisor *s)
{
	char sentence[640];
	s->restart++;
	snprintf(sentence, sizeof(sentence), "restart %u of %u: %s", s->restart, s->job->options.restarts, s->failure);
	supervisor_report(s, sentence);
	deinit_ranks(s);
	init_ranks(s);
	s->exit_status = 0;
	supervisor_enter(s, PHASE_RUNNING);
}

int supervise(const struct job *job, int control_fd, int stdin_fd)
{
	struct supervisor s;
	const bool ready = supervisor_init(&s, job, control_fd);
	bool again = ready;
	while (again) {
		start_ranks(&s, stdin_fd);
		/* Closes this copy of rank 0's input, which would hide the end of rank 0 from its writer. It stays
		 * open while a restarted rank 0 may read on. */
		if (stdin_fd >= 0 && s.restart == job->options.restarts) {
			close(stdin_fd);
			stdin_fd = -1;
		}
		run_loop(&s);
		again = may_restart(&s);
		if (again)
			restart(&s);
	}
	if (stdin_fd >= 0)
		close(stdin_fd);
	const int exit_status = ready ? s.exit_status : EXIT_FAILURE;
	supervisor_deinit(&s);
	return exit_status;
}
