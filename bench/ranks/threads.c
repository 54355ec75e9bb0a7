#include "threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pin.h"
#include "process.h"

struct member {
	const struct bench_options *options;
	bench_thread_rank *rank;
	collet_options comm_options;
	pthread_t thread;
	int status;
};

static void *run_member(void *context)
{
	struct member *member = context;
	member->status = member->rank(member->options, &member->comm_options);
	return NULL;
}

int bench_threads_run(const struct bench_options *options, bench_thread_rank *rank)
{
	const uint32_t ranks = options->ranks > 0 ? options->ranks : bench_core_count();
	struct member *members = calloc(ranks, sizeof(*members));
	char name[64], store[80];
	int status = 0;
	if (members == NULL)
		return 1;
	bench_unique_name(name, sizeof(name));
	snprintf(store, sizeof(store), "unix:%s", name);
	for (uint32_t r = 0; r < ranks; r++) {
		members[r] = (struct member){ .options = options, .rank = rank,
			.comm_options = { .explicit_rank = true, .rank = r, .world_size = ranks, .local_rank = r,
				.store = store, .transport = options->transport } };
		const int problem = pthread_create(&members[r].thread, NULL, run_member, &members[r]);
		if (problem != 0) {
			fprintf(stderr, "collet-bench: --threads: thread %u of %u: %s\n", r, ranks, strerror(problem));
			_Exit(1);   /* those that run wait for the rest */
		}
	}
	for (uint32_t r = 0; r < ranks; r++) {
		pthread_join(members[r].thread, NULL);
		status = members[r].status > status ? members[r].status : status;
	}
	free(members);
	return status;
}
