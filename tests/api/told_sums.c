#include "told_sums.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Guard no sum, but wake who waits for one in sum_await(). */
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;

void sum_note(void *context, collet_status status)
{
	struct sum *sum = context;
	struct rank *rank = sum->rank;
	const float right = (float)(rank->size * (rank->size + 1)) / 2;
	sum->status = status;
	for (uint64_t i = 0; i < sum->count && status == COLLET_OK; i++)
		rank_check(rank, sum->values[i] == right, "element %llu is %g when its end is told",
			(unsigned long long)i, (double)sum->values[i]);
	pthread_mutex_lock(&told_lock);
	atomic_fetch_add(&sum->told, 1);
	pthread_cond_broadcast(&told);
	pthread_mutex_unlock(&told_lock);
}

bool sum_make(struct rank *rank, struct sum *sum, uint64_t count)
{
	*sum = (struct sum){ .rank = rank, .count = count, .values = malloc(count * sizeof(float)) };
	if (!rank_check(rank, sum->values != NULL, "no memory"))
		return false;
	for (uint64_t i = 0; i < count; i++)
		sum->values[i] = (float)(rank->rank + 1);
	return true;
}

collet_status sum_start(collet_comm *comm, struct sum *sum, bool is_owned)
{
	const collet_how how = {
		.on_end = sum_note, .on_end_context = sum, .request = is_owned ? &sum->request : NULL };
	return collet_allreduce(comm, sum->values, sum->values, sum->count, COLLET_F32, COLLET_SUM, &how);
}

bool sum_was_told_once(struct rank *rank, struct sum *sum, collet_status status)
{
	const bool once = rank_check(rank, atomic_load(&sum->told) == 1, "its end was told %u times",
		atomic_load(&sum->told));
	return once && rank_check(rank, sum->status == status, "%s was told, not %s", collet_status_name(sum->status),
			       collet_status_name(status));
}

bool sum_progress(struct rank *rank, struct sum *sum)
{
	while (!atomic_load(&sum->told))
		if (!rank_ok(rank, collet_progress(rank->comm, COLLET_NO_TIMEOUT), "progress"))
			return false;
	return true;
}

bool sum_poll(struct rank *rank, struct sum *sum)
{
	struct pollfd polled = { .events = POLLIN };
	if (!rank_ok(rank, collet_comm_descriptor(rank->comm, &polled.fd), "the descriptor"))
		return false;
	while (!atomic_load(&sum->told)) {
		const collet_status status = collet_progress(rank->comm, 0);
		if (status == COLLET_PENDING ? !rank_check(rank, poll(&polled, 1, SUM_POLL_MS) == 1, "not readable")
					     : !rank_ok(rank, status, "a round"))
			return false;
	}
	return true;
}

bool sum_await(struct rank *rank, struct sum *sum)
{
	struct timespec deadline;
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += SUM_POLL_MS / 1000;
	int error = 0;
	pthread_mutex_lock(&told_lock);
	while (!atomic_load(&sum->told) && !error)
		error = pthread_cond_timedwait(&told, &told_lock, &deadline);
	pthread_mutex_unlock(&told_lock);
	return rank_check(rank, !error, "its end was not told by the progress thread");
}
