/* fork, exec, and the end of both. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pin.h"

/* The variables that launchers set. A rank started here must not see another job's. */
static const char *const launcher_variables[] = {
	"RANK",
	"WORLD_SIZE",
	"LOCAL_RANK",
	"LOCAL_WORLD_SIZE",
	"GROUP_RANK",
	"MASTER_ADDR",
	"MASTER_PORT",
	"TORCHELASTIC_USE_AGENT_STORE",
	"OMPI_COMM_WORLD_RANK",
	"OMPI_COMM_WORLD_SIZE",
	"OMPI_COMM_WORLD_LOCAL_RANK",
	"OMPI_COMM_WORLD_LOCAL_SIZE",
	"PMIX_RANK",
	"PMIX_NAMESPACE",
	"PMI_RANK",
	"PMI_SIZE",
	"PMI_FD",
	"MPI_LOCALRANKID",
	"MPI_LOCALNRANKS",
	"SLURM_PROCID",
	"SLURM_NTASKS",
	"SLURM_LOCALID",
	"PAI_TASK_INDEX",
	"COLLET_STORE",
	"COLLET_JOB",
};

static void set_number(const char *name, uint32_t value)
{
	char text[16];
	snprintf(text, sizeof(text), "%u", value);
	setenv(name, text, 1);
}

static void set_environment(const struct bench_program *program, uint32_t rank)
{
	char store[256];
	for (size_t i = 0; i < sizeof(launcher_variables) / sizeof(launcher_variables[0]); i++)
		unsetenv(launcher_variables[i]);
	if (program->ranks > 0) {
		set_number("RANK", rank);
		set_number("WORLD_SIZE", program->ranks);
		set_number("LOCAL_RANK", rank);
		set_number("LOCAL_WORLD_SIZE", program->ranks);
		snprintf(store, sizeof(store), "unix:%s", program->job);
		setenv("COLLET_STORE", store, 1);
		setenv("COLLET_JOB", program->job, 1);
	}
	for (const char *const *variable = program->env; variable != NULL && *variable != NULL; variable++)
		putenv((char *)(uintptr_t)*variable);   /* lives until exec */
}

static void become(const struct bench_program *program, uint32_t rank)
{
	if (program->own_group)
		setpgid(0, 0);
	if (program->output >= 0) {
		dup2(program->output, STDOUT_FILENO);
		dup2(program->output, STDERR_FILENO);
	}
	set_environment(program, rank);
	if (program->pin)
		bench_pin(rank, program->ranks, true);
	execvp(program->argv[0], (char *const *)(uintptr_t)program->argv);
	fprintf(stderr, "cannot run %s: %s\n", program->argv[0], strerror(errno));
	_exit(127);
}

pid_t bench_process_fork(void)
{
	const pid_t parent = getpid();
	fflush(NULL);   /* else a child that fails would print what was buffered here again */
	const pid_t child = fork();
	/* A parent that died before this line will never send the signal. */
	if (child == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
		_exit(127);
	return child;
}

pid_t bench_process_start(const struct bench_program *program, uint32_t rank)
{
	const pid_t child = bench_process_fork();
	if (child == 0)
		become(program, rank);
	if (child > 0 && program->own_group)
		setpgid(child, child);   /* on both sides: whoever is first */
	return child;
}

static void kill_all(const pid_t *pids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
}

static int exit_status(int wait_status)
{
	return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

static double seconds_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* One child that has ended, or 0: by a blocking wait, or within the grace by polling. */
static pid_t reap(bool failed, int *wait_status)
{
	static const struct timespec moment = { .tv_nsec = 10000000 };
	const pid_t pid = waitpid(-1, wait_status, failed ? WNOHANG : 0);
	if (pid == 0)
		nanosleep(&moment, NULL);
	return pid;
}

static int wait_for_all(pid_t *pids, uint32_t count)
{
	uint32_t left = 0;
	int status = 0, wait_status;
	double grace_end = 0;
	for (uint32_t i = 0; i < count; i++)
		left += pids[i] > 0;
	while (left > 0) {
		const pid_t pid = reap(status != 0, &wait_status);
		if (pid < 0 && errno != EINTR)
			break;
		for (uint32_t i = 0; pid > 0 && i < count; i++) {
			if (pids[i] != pid)
				continue;
			pids[i] = 0;
			left--;
			if (status == 0 && exit_status(wait_status) != 0) {
				status = exit_status(wait_status);
				grace_end = seconds_now() + 2;
				if (WIFSIGNALED(wait_status))
					fprintf(stderr, "collet-bench: rank %u was killed by signal %d (%s)\n", i,
						WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
			}
		}
		if (status != 0 && left > 0 && seconds_now() > grace_end)
			kill_all(pids, count);
	}
	return status;
}

int bench_ranks_run(const struct bench_program *program)
{
	pid_t *pids = calloc(program->ranks, sizeof(pids[0]));
	int status = 1;
	if (pids == NULL)
		return status;
	uint32_t started = 0;
	while (started < program->ranks && (pids[started] = bench_process_start(program, started)) > 0)
		started++;
	if (started == program->ranks) {
		status = wait_for_all(pids, started);
	} else {
		fprintf(stderr, "collet-bench: cannot start rank %u: %s\n", started, strerror(errno));
		kill_all(pids, started);
		wait_for_all(pids, started);
	}
	free(pids);
	return status;
}

const char *bench_own_path(void)
{
	static char path[4096];   /* written once, before anything is started */
	const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	if (length <= 0)
		return NULL;
	path[length] = '\0';
	return path;
}

void bench_unique_name(char *into, uint64_t bytes)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(into, bytes, "bench-%d-%llx", (int)getpid(),
		(unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec);
}

uint32_t bench_launcher_size(const char **launcher)
{
	static const struct {
		const char *rank, *size, *launcher;
	} rows[] = {
		{ "RANK", "WORLD_SIZE", "RANK and WORLD_SIZE" },
		{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI" },
		{ "PMI_RANK", "PMI_SIZE", "MPICH" },
		{ "SLURM_PROCID", "SLURM_NTASKS", "Slurm" },
		{ "PAI_TASK_INDEX", "PAI_TASK_ROLE_TASK_COUNT_worker", "OpenPAI" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *rank = getenv(rows[i].rank), *size = getenv(rows[i].size);
		if (rank == NULL || *rank == '\0')
			continue;
		*launcher = rows[i].launcher;
		/* OpenPAI tells the number of tasks in many ways; that this is one of them is all that is needed. */
		return size != NULL && *size != '\0' ? (uint32_t)strtoul(size, NULL, 10) : 1;
	}
	*launcher = NULL;
	return 0;
}
