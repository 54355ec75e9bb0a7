/* Runs collet-run as two processes, so that killing one leaves the other to clean up. The front is the process the user
 * started, with its process id and its terminal's signals. The supervisor is its child and the parent of the ranks. A
 * pipe joins them: the front writes signals to forward, and its end tells the supervisor that the front has died. If
 * the supervisor dies, the kernel kills the ranks (PR_SET_PDEATHSIG). The front then adopts and kills all that the
 * ranks started. Only if both are killed at once can a process that a rank started outlive the job; the ranks cannot.
 *
 * The front, the supervisor and each rank have process groups of their own. A signal to the front's group (from a
 * terminal, timeout(1) or killpg) therefore reaches each rank exactly once, through the front. Hence rank 0 is not
 * in the terminal's foreground group and may not read from it, so the front reads for it. Rank 0 reads all other
 * input itself. */
#include "front.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "descendants.h"
#include "say.h"
#include "supervise.h"

struct front {
	pid_t supervisor;
	int control_fd;
	int signal_fd;
	int input_fd;     /* to rank 0; -1: rank 0 reads by itself, or has closed it */
	char input[4096]; /* read from the terminal and not yet taken by rank 0 */
	size_t input_first, input_count;
};

static const int forwarded_signals[] = {
	SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGCONT, SIGWINCH,
};

/* Lists the signals the front listens to. A signal that collet-run was started to ignore (nohup) stays ignored. */
static void listened_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	for (size_t i = 0; i < sizeof(forwarded_signals) / sizeof(forwarded_signals[0]); i++) {
		struct sigaction action;
		if (sigaction(forwarded_signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(set, forwarded_signals[i]);
	}
}

/* ---- Signals ------------------------------------------------------------------------------------------------ */

static void forward_signal(const struct front *front, int signal_number)
{
	const unsigned char number = (unsigned char)signal_number;
	/* It fails only if the supervisor is gone, and then SIGCHLD comes. */
	const ssize_t ignored = write(front->control_fd, &number, 1);
	(void)ignored;
	/* After Ctrl-Z the shell expects this process to stop with its job. */
	if (signal_number == SIGTSTP)
		raise(SIGSTOP);
}

/* Returns true if the supervisor has ended, and fills *status. */
static bool read_signals(const struct front *front, int *status)
{
	struct signalfd_siginfo info;
	while (read(front->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGCHLD)
			forward_signal(front, (int)info.ssi_signo);
	}
	return waitpid(front->supervisor, status, WNOHANG) == front->supervisor;
}

/* ---- The terminal's input ----------------------------------------------------------------------------------- */

static void end_input(struct front *front)
{
	close(front->input_fd);
	front->input_fd = -1;
}

/* Reading a terminal from the background would stop this process. */
static bool may_read_terminal(const struct front *front)
{
	return front->input_fd >= 0 && front->input_count == 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void read_terminal(struct front *front)
{
	const ssize_t got = read(STDIN_FILENO, front->input, sizeof(front->input));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		end_input(front);
		return;
	}
	front->input_first = 0;
	front->input_count = (size_t)got;
}

static void write_input(struct front *front)
{
	const ssize_t written = write(front->input_fd, front->input + front->input_first, front->input_count);
	if (written >= 0) {
		front->input_first += (size_t)written;
		front->input_count -= (size_t)written;
	} else if (errno != EAGAIN && errno != EINTR) {
		front->input_count = 0;
		end_input(front);
	}
}

/* ---- The front's life --------------------------------------------------------------------------------------- */

static int wait_for_supervisor(struct front *front)
{
	for (;;) {
		struct pollfd polled[] = {
			{ .fd = front->signal_fd, .events = POLLIN },
			{ .fd = may_read_terminal(front) ? STDIN_FILENO : -1, .events = POLLIN },
			{ .fd = front->input_count > 0 ? front->input_fd : -1, .events = POLLOUT },
		};
		int status;
		if (poll(polled, 3, -1) < 0)
			continue;
		if (polled[0].revents != 0 && read_signals(front, &status))
			return status;
		if (polled[1].revents != 0)
			read_terminal(front);
		if (polled[2].revents != 0)
			write_input(front);
	}
}

/* Cleans up after the supervisor was killed. Its ranks die with it; this process ends what they started. */
static void clean_up(const struct front *front)
{
	enum { CLEAN_UP_S = 10 };
	const time_t started = time(NULL);
	while (time(NULL) - started < CLEAN_UP_S) {
		(void)descendants_signal(SIGKILL);
		pid_t pid;
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			continue;
		if (pid < 0)
			return;
		struct pollfd child = { .fd = front->signal_fd, .events = POLLIN };
		struct signalfd_siginfo info;
		if (poll(&child, 1, 1000) > 0 && read(front->signal_fd, &info, sizeof(info)) < 0)
			return;
	}
}

static int exit_status_of(const struct front *front, int status)
{
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	char name[32];
	say("the process that watched the ranks (pid %d) was killed by signal %d (%s); the ranks are ended",
		front->supervisor, WTERMSIG(status), signal_name(WTERMSIG(status), name, sizeof(name)));
	clean_up(front);
	return EXIT_SIGNAL_BASE + WTERMSIG(status);
}

/* Gives a pipe on standard input to rank 0 alone. Its writer must notice the end of rank 0, not that of collet-run. */
static void leave_stdin(void)
{
	const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (nothing < 0)
		return;
	(void)dup2(nothing, STDIN_FILENO);
	close(nothing);
}

/* Raises the soft limit of descriptors: three pipes per rank can exceed the usual 1024. */
static void allow_many_files(struct job *job)
{
	if (getrlimit(RLIMIT_NOFILE, &job->original_files) != 0)
		return;
	struct rlimit most = job->original_files;
	most.rlim_cur = most.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &most);
}

/* Runs the child's side of the fork. */
static int become_supervisor(const struct job *job, const int control[2], const int input[2])
{
	close(control[1]);
	if (input[1] >= 0)
		close(input[1]);
	(void)setpgid(0, 0);
	/* A name of its own, so that `pkill -9 collet-run` leaves the process that cleans up. */
	(void)prctl(PR_SET_NAME, "collet-keeper");
	if (!descendants_adopt()) {
		say("cannot watch over the ranks' children: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	const int stdin_fd = input[0] >= 0 ? input[0] : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	leave_stdin();
	return supervise(job, control[0], stdin_fd);
}

int front_run(struct job *job)
{
	struct front front = { .control_fd = -1, .signal_fd = -1, .input_fd = -1 };
	int control[2], input[2] = { -1, -1 };
	sigset_t all, listened;
	listened_signals(&listened);
	sigfillset(&all);
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigprocmask(SIG_SETMASK, &all, &job->original_mask);
	sigaction(SIGPIPE, &ignore, &job->original_pipe);
	allow_many_files(job);

	const bool terminal = job->options.rank0_reads_stdin && job->options.node_rank == 0 && isatty(STDIN_FILENO);
	front.signal_fd = signalfd(-1, &listened, SFD_CLOEXEC | SFD_NONBLOCK);
	if (front.signal_fd < 0 || !descendants_adopt() || pipe2(control, O_CLOEXEC) != 0 ||
		(terminal && pipe2(input, O_CLOEXEC) != 0)) {
		say("cannot start: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	front.supervisor = fork();
	if (front.supervisor < 0) {
		say("cannot start: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	if (front.supervisor == 0)
		return become_supervisor(job, control, input);
	close(control[0]);
	front.control_fd = control[1];
	if (terminal) {
		close(input[0]);
		front.input_fd = input[1];
		(void)fcntl(front.input_fd, F_SETFL, O_NONBLOCK);
	} else {
		leave_stdin();
	}
	return exit_status_of(&front, wait_for_supervisor(&front));
}
