#include "threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda/choose.h"
#include "error.h"

struct job {
	const struct options *options;
	threads_rank *rank;
	char store[64];
};

struct member {
	const struct job *job;
	uint32_t rank;
	pthread_t thread;
	bool fine;
};

static void connect_and_run(struct member *member)
{
	const struct options *options = member->job->options;
	struct gpu_device gpu;
	const collet_options comm_options = { .explicit_rank = true,
		.rank = member->rank,
		.world_size = options->threads,
		.local_rank = member->rank,
		.store = member->job->store,
		.transport = options->transport };
	collet_comm *comm = NULL;
	if (device_enter(&gpu, options, &comm_options) &&
		train_check(collet_comm_create(&comm, &comm_options), "meeting the other threads")) {
		member->fine = member->job->rank(comm, options);
		if (!member->fine)
			collet_comm_abort(comm);  /* the others may be waiting for this rank */
		collet_comm_destroy(&comm);
	}
	gpu_device_close(&gpu);
}

static void *run_member(void *context)
{
	connect_and_run(context);
	return NULL;
}

bool threads_run(const struct options *options, threads_rank *rank)
{
	struct job job = { .options = options, .rank = rank };
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(job.store, sizeof(job.store), "unix:collet-train-%d-%llx", (int)getpid(),
		(unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec);
	struct member *members = calloc(options->threads, sizeof(*members));
	if (!members)
		return train_fail("no memory for %u threads", options->threads);
	uint32_t started = 0;
	bool fine = true;
	for (; started < options->threads; started++) {
		members[started] = (struct member){ .job = &job, .rank = started };
		const int problem = pthread_create(&members[started].thread, NULL, run_member, &members[started]);
		/* Running threads already wait for the rest, so the process must end. */
		if (problem) {
			train_fail("--threads %u: thread %u: %s", options->threads, started, strerror(problem));
			_exit(EXIT_FAILURE);
		}
	}
	for (uint32_t t = 0; t < started; t++) {
		pthread_join(members[t].thread, NULL);
		fine = fine && members[t].fine;
	}
	free(members);
	return fine;
}
