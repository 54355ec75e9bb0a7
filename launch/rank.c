/* Starts the process of one rank. Any function may be called between fork and exec: the forking process has one
 * thread, so no lock can be held. */
#include "rank.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

/* The child's ends of its pipes; -1: it has what collet-run has. */
struct child_ends {
	int start_fd;
	int out_fd;
	int error_fd;
};

static _Noreturn void fail_start(const struct child_ends *ends, enum start_step step)
{
	const int error = errno;
	const struct start_failure failure = { .step = (int32_t)step, .error = error };
	/* A pipe takes so few bytes in one piece. */
	const ssize_t ignored = write(ends->start_fd, &failure, sizeof(failure));
	(void)ignored;
	if (step != START_EXECUTE)
		_exit(EXIT_FAILURE);
	_exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE);
}

static bool attach_files(const struct rank *rank, const struct child_ends *ends, const struct job *job, int stdin_fd)
{
	int input = stdin_fd;
	if (rank->rank != 0 || !job->options.rank0_reads_stdin)
		input = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* dup2() onto itself would keep the close-on-exec flag, but descriptors 0 to 2 are taken and have none. */
	return input >= 0 && dup2(input, STDIN_FILENO) >= 0 &&
		(ends->out_fd < 0 || dup2(ends->out_fd, STDOUT_FILENO) >= 0) &&
		(ends->error_fd < 0 || dup2(ends->error_fd, STDERR_FILENO) >= 0);
}

/* Returns the columns that a line of this rank may fill after its prefix, if its unfinished lines are shown; else 0. */
static uint32_t shown_columns(const struct rank *rank, const struct job *job)
{
	if (job->options.prefix == PREFIX_NEVER || !rank->error.shown_live)
		return 0;
	const uint32_t prefix = (uint32_t)snprintf(NULL, 0, "[%u] ", rank->rank);
	const uint32_t columns = sink_columns(rank->error.sink);
	return columns > prefix ? columns - prefix : 0;
}

static _Noreturn void become_rank(
	const struct rank *rank, const struct child_ends *ends, const struct job *job, int stdin_fd, pid_t parent)
{
	/* If the parent has died before it could be asked for, the signal never comes: look. */
	if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		fail_start(ends, START_OTHER);
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
	if (!placement_bind(&job->placement, rank->local_rank) && job->options.bind == BIND_CORE)
		fail_start(ends, START_BIND);
	const uint32_t threads = placement_threads(&job->placement, job->options.local_size);
	if (!environment_set(&job->options, &job->bootstrap, rank->local_rank, rank->restart, threads,
		    shown_columns(rank, job)) ||
		!attach_files(rank, ends, job, stdin_fd))
		fail_start(ends, START_OTHER);
	/* A signal forwarded meanwhile has waited, and meets the program. */
	sigaction(SIGPIPE, &job->original_pipe, NULL);
	setrlimit(RLIMIT_NOFILE, &job->original_files);
	sigprocmask(SIG_SETMASK, &job->original_mask, NULL);
	execvp(job->options.program[0], job->options.program);
	fail_start(ends, START_EXECUTE);
}

/* A pipe whose reading end does not block; the rank's end does, as programs expect. */
static bool open_pipe(int *read_fd, int *write_fd)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0)
		return false;
	*read_fd = ends[0];
	*write_fd = ends[1];
	return fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

static void close_ends(const struct child_ends *ends)
{
	const int fds[] = { ends->start_fd, ends->out_fd, ends->error_fd };
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

bool rank_start(struct rank *rank, const struct job *job, int stdin_fd)
{
	struct child_ends ends = { -1, -1, -1 };
	const pid_t parent = getpid();
	pid_t pid = -1;
	if (open_pipe(&rank->start_fd, &ends.start_fd) &&
		(job->options.prefix == PREFIX_NEVER ||
			(open_pipe(&rank->out.fd, &ends.out_fd) && open_pipe(&rank->error.fd, &ends.error_fd))))
		pid = fork();
	if (pid == 0)
		become_rank(rank, &ends, job, stdin_fd, parent);
	const int error = errno;
	close_ends(&ends);
	if (pid < 0) {
		say("rank %u (host %s) cannot be started: %s", rank->rank, job->host_name, strerror(error));
		return false;
	}
	/* The child does this too; whoever comes second changes nothing. Without it here a signal sent at once would
	 * find no group. */
	(void)setpgid(pid, pid);
	rank->pid = pid;
	return true;
}

void rank_read_start(struct rank *rank)
{
	if (rank->start_fd < 0)
		return;
	struct start_failure failure;
	const ssize_t got = read(rank->start_fd, &failure, sizeof(failure));
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got == sizeof(failure))
		rank->failure = failure;
	close(rank->start_fd);
	rank->start_fd = -1;
}

void rank_signal(const struct rank *rank, int signal_number, bool whole_group)
{
	if (rank->pid > 0)
		(void)kill(whole_group ? -rank->pid : rank->pid, signal_number);
}

bool rank_failed(const struct rank *rank, int *exit_status)
{
	if (!rank->ended || (WIFEXITED(rank->wait_status) && WEXITSTATUS(rank->wait_status) == 0))
		return false;
	if (WIFSIGNALED(rank->wait_status))
		*exit_status = EXIT_SIGNAL_BASE + WTERMSIG(rank->wait_status);
	else
		*exit_status = WEXITSTATUS(rank->wait_status);
	return true;
}

void rank_describe(const struct rank *rank, const struct job *job, char *text, size_t bytes)
{
	char name[32];
	const int status = rank->wait_status;
	if (rank->failure.step == START_EXECUTE)
		snprintf(text, bytes, "rank %u (host %s): cannot run %s: %s", rank->rank, job->host_name,
			job->options.program[0], strerror(rank->failure.error));
	else if (rank->failure.step != 0)
		snprintf(text, bytes, "rank %u (host %s): cannot %s: %s", rank->rank, job->host_name,
			rank->failure.step == START_BIND ? "be bound to its core" : "be prepared",
			strerror(rank->failure.error));
	else if (WIFSIGNALED(status))
		snprintf(text, bytes, "rank %u (host %s, pid %d) was killed by signal %d (%s)%s", rank->rank,
			job->host_name, rank->ended_pid, WTERMSIG(status),
			signal_name(WTERMSIG(status), name, sizeof(name)), WCOREDUMP(status) ? ", core dumped" : "");
	else
		snprintf(text, bytes, "rank %u (host %s, pid %d) exited with status %d", rank->rank, job->host_name,
			rank->ended_pid, WEXITSTATUS(status));
}
