#include "thread_ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "crash.h"

enum { MOST_RANKS = 16 };

struct member {
	pthread_t thread;
	uint32_t rank, ranks;
	const char *store;
	void (*body)(collet_comm *comm, void *context);
	void *context;
};

/* Ends the process: a rank that cannot join would leave the others waiting, and the test without a report. */
static void check(collet_status status, const struct member *member)
{
	if (status == COLLET_OK)
		return;
	fprintf(stderr, "rank %u: %s: %s\n", member->rank, collet_status_name(status), collet_last_error());
	abort();
}

static void *run_member(void *argument)
{
	struct member *member = argument;
	const collet_options options = { .explicit_rank = true, .rank = member->rank, .world_size = member->ranks,
		.local_rank = member->rank, .store = member->store, .timeout_ns = INT64_C(60000000000),
		.rendezvous_timeout_ns = INT64_C(60000000000) };
	collet_comm *comm = NULL;
	check(collet_comm_create(&comm, &options), member);
	member->body(comm, member->context);
	check(collet_comm_destroy(&comm), member);
	return NULL;
}

void thread_ranks_run(uint32_t ranks, void (*body)(collet_comm *comm, void *context), void *context)
{
	static atomic_uint runs;
	struct member members[MOST_RANKS];
	char store[64];
	crash_tell(NULL);
	/* relaxed: only uniqueness matters. */
	snprintf(store, sizeof(store), "unix:ranks-%d-%u", (int)getpid(),
		atomic_fetch_add_explicit(&runs, 1, memory_order_relaxed));
	for (uint32_t r = 0; r < ranks; r++) {
		members[r] =
			(struct member){ .rank = r, .ranks = ranks, .store = store, .body = body, .context = context };
		if (pthread_create(&members[r].thread, NULL, run_member, &members[r]) != 0)
			abort();
	}
	for (uint32_t r = 0; r < ranks; r++)
		pthread_join(members[r].thread, NULL);
}
