/* Ranks without a launcher: a program that starts them itself, first as processes, then as threads.
 *
 *   cc spawn.c -pthread $(pkg-config --cflags --libs collet) -o spawn
 *   ./spawn [RANKS]
 *
 * What a launcher would put into the environment is given in collet_options instead: rank, world size, and a store,
 * here a Unix socket known by a name. Each rank of a process is a thread with a communicator of its own; nothing is
 * shared. */
#include <collet/collet.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 64, NUMBERS = 1000 };

struct rank {
	uint32_t rank;
	uint32_t world_size;
	const char *store;
	int failed;
};

static int complain(const struct rank *rank, const char *what)
{
	fprintf(stderr, "rank %u: %s: %s\n", rank->rank, what, collet_last_error());
	return 1;
}

/* What every rank does, wherever it runs: 0 if the sum is right. */
static int run_rank(const struct rank *rank)
{
	collet_options options;
	memset(&options, 0, sizeof(options));
	options.explicit_rank = true;
	options.rank = rank->rank;
	options.world_size = rank->world_size;
	options.local_rank = rank->rank;
	options.store = rank->store;

	collet_comm *comm;
	if (collet_comm_create(&comm, &options) != COLLET_OK)
		return complain(rank, "cannot meet the others");

	int64_t numbers[NUMBERS];
	for (int64_t i = 0; i < NUMBERS; i++)
		numbers[i] = i * (rank->rank + 1);
	int failed = 0;
	if (collet_allreduce(comm, numbers, numbers, NUMBERS, COLLET_I64, COLLET_SUM, NULL) != COLLET_OK)
		failed = complain(rank, "all-reduce");

	const int64_t ranks_sum = (int64_t)rank->world_size * (rank->world_size + 1) / 2;
	for (int64_t i = 0; i < NUMBERS && !failed; i++) {
		if (numbers[i] != i * ranks_sum) {
			fprintf(stderr, "rank %u: element %lld is wrong\n", rank->rank, (long long)i);
			failed = 1;
		}
	}
	if (collet_comm_destroy(&comm) != COLLET_OK)
		failed = complain(rank, "destroy");
	return failed;
}

/* ---- As processes ------------------------------------------------------------------------------------------- */

/* Forks before any communicator exists: one that exists does not survive a fork. */
static pid_t start_process(struct rank *rank)
{
	const pid_t parent = getpid();
	const pid_t pid = fork();
	if (pid != 0)
		return pid;
	/* A rank must not outlive the program that started it, even if that is killed. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(1);
	_exit(run_rank(rank));
}

static int run_as_processes(uint32_t world_size, const char *store)
{
	pid_t pids[RANKS_MAX];
	int failed = 0;
	uint32_t started = 0;
	for (; started < world_size && !failed; started++) {
		struct rank rank = { started, world_size, store, 0 };
		pids[started] = start_process(&rank);
		if (pids[started] < 0) {
			fprintf(stderr, "rank %u: fork: %s\n", started, strerror(errno));
			failed = 1;
			break;
		}
	}
	for (uint32_t i = 0; i < started; i++) {
		int status;
		if (failed)
			kill(pids[i], SIGKILL); /* the world will never be complete */
		if (waitpid(pids[i], &status, 0) != pids[i] || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
			failed = 1;
	}
	return failed;
}

/* ---- As threads --------------------------------------------------------------------------------------------- */

static void *run_thread(void *argument)
{
	struct rank *rank = (struct rank *)argument;
	rank->failed = run_rank(rank);
	return NULL;
}

static int run_as_threads(uint32_t world_size, const char *store)
{
	struct rank ranks[RANKS_MAX];
	pthread_t threads[RANKS_MAX];
	int failed = 0;
	for (uint32_t i = 0; i < world_size; i++) {
		ranks[i] = (struct rank){ i, world_size, store, 0 };
		const int error = pthread_create(&threads[i], NULL, run_thread, &ranks[i]);
		if (error != 0) {
			/* The others wait for this rank; ending the program ends them. */
			fprintf(stderr, "rank %u: pthread_create: %s\n", i, strerror(error));
			exit(1);
		}
	}
	for (uint32_t i = 0; i < world_size; i++) {
		pthread_join(threads[i], NULL);
		failed |= ranks[i].failed;
	}
	return failed;
}

int main(int argc, char **argv)
{
	const unsigned long wanted = argc > 1 ? strtoul(argv[1], NULL, 10) : 4;
	if (wanted < 1 || wanted > RANKS_MAX) {
		fprintf(stderr, "usage: %s [RANKS], 1 to %d\n", argv[0], RANKS_MAX);
		return 2;
	}
	const uint32_t world_size = (uint32_t)wanted;

	/* One name a world: ranks of two worlds, or of two runs of this program, must not meet. */
	char store[64];
	snprintf(store, sizeof(store), "unix:spawn-%d-processes", (int)getpid());
	if (run_as_processes(world_size, store) != 0)
		return 1;
	printf("%u processes: the sums are right\n", world_size);
	fflush(stdout);

	snprintf(store, sizeof(store), "unix:spawn-%d-threads", (int)getpid());
	if (run_as_threads(world_size, store) != 0)
		return 1;
	printf("%u threads: the sums are right\n", world_size);
	return 0;
}
