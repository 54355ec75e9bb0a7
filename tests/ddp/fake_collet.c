/* A stand-in for the library until it can make communicators: every collective is a meeting of all threads. */
#include "ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAKE_RANKS = 16 };

enum meeting { MEET_ALLREDUCE, MEET_BROADCAST, MEET_ALLGATHER, MEET_BARRIER };

struct post {
	enum meeting meeting;
	const void *send;
	void *recv;
	uint64_t count;
	collet_dtype dtype;
	collet_op op;
};

struct world {
	pthread_mutex_t lock;
	pthread_cond_t met;
	uint32_t ranks, arrived;
	uint64_t meetings;
	struct post posts[FAKE_RANKS];
};

struct collet_comm {
	struct world *world;
	uint32_t rank;
};

static double get(const struct post *post, uint64_t i)
{
	switch (post->dtype) {
	case COLLET_F32: return (double)((const float *)post->send)[i];
	case COLLET_F64: return ((const double *)post->send)[i];
	default: return (double)((const uint64_t *)post->send)[i];
	}
}

/* Left fold in rank order, rounded to the dtype after each addition, then times 1/n. */
static void reduce(struct world *world)
{
	const struct post *first = &world->posts[0];
	const size_t bytes = collet_dtype_bytes(first->dtype);
	char *result = malloc((size_t)first->count * bytes + 1);
	for (uint64_t i = 0; i < first->count; i++) {
		double sum = get(first, i);
		for (uint32_t r = 1; r < world->ranks; r++) {
			sum += get(&world->posts[r], i);
			sum = first->dtype == COLLET_F32 ? (double)(float)sum : sum;
		}
		if (first->dtype == COLLET_F32)
			((float *)(void *)result)[i] = first->op == COLLET_AVERAGE ? (float)sum * (1.0F / (float)world->ranks) : (float)sum;
		else if (first->dtype == COLLET_F64)
			((double *)(void *)result)[i] = first->op == COLLET_AVERAGE ? sum * (1.0 / world->ranks) : sum;
		else
			((uint64_t *)(void *)result)[i] = (uint64_t)sum;
	}
	for (uint32_t r = 0; r < world->ranks; r++)
		if (first->count > 0)
			memcpy(world->posts[r].recv, result, (size_t)first->count * bytes);
	free(result);
}

static void meet(struct world *world)
{
	const size_t bytes = (size_t)world->posts[0].count * collet_dtype_bytes(world->posts[0].dtype);
	if (world->posts[0].meeting == MEET_ALLREDUCE)
		reduce(world);
	for (uint32_t r = 0; world->posts[0].meeting == MEET_BROADCAST && r < world->ranks; r++)
		if (world->posts[r].recv != world->posts[0].send && bytes > 0)
			memcpy(world->posts[r].recv, world->posts[0].send, bytes);
	for (uint32_t r = 0; world->posts[0].meeting == MEET_ALLGATHER && r < world->ranks; r++)
		for (uint32_t from = 0; from < world->ranks; from++)
			memcpy((char *)world->posts[r].recv + from * bytes, world->posts[from].send, bytes);
}

static collet_status arrive(collet_comm *comm, struct post post)
{
	struct world *world = comm->world;
	struct timespec deadline;
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 120;
	pthread_mutex_lock(&world->lock);
	world->posts[comm->rank] = post;
	uint64_t mine = world->meetings;
	if (++world->arrived == world->ranks) {
		meet(world);
		world->arrived = 0;
		world->meetings++;
		pthread_cond_broadcast(&world->met);
	}
	while (world->meetings == mine) {
		if (pthread_cond_timedwait(&world->met, &world->lock, &deadline) != 0) {
			fprintf(stderr, "rank %u: the other ranks have not come\n", comm->rank);
			abort();
		}
	}
	pthread_mutex_unlock(&world->lock);
	return COLLET_OK;
}

collet_status collet_allreduce(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	collet_op op, const collet_how *how)
{
	return arrive(comm, (struct post){ MEET_ALLREDUCE, send, recv, count, dtype, op });
}

collet_status collet_broadcast(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	uint32_t root, const collet_how *how)
{
	return arrive(comm, (struct post){ MEET_BROADCAST, send, recv, count, dtype, COLLET_SUM });
}

collet_status collet_allgather(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	const collet_how *how)
{
	return arrive(comm, (struct post){ MEET_ALLGATHER, send, recv, count, dtype, COLLET_SUM });
}

collet_status collet_barrier(collet_comm *comm, const collet_how *how)
{
	return arrive(comm, (struct post){ MEET_BARRIER, NULL, NULL, 0, COLLET_U8, COLLET_SUM });
}

collet_status collet_request_test(collet_request **request)
{
	return COLLET_OK;
}

collet_status collet_request_wait(collet_request **request)
{
	return COLLET_OK;
}

collet_status collet_mem_alloc(collet_comm *comm, void **memory, size_t bytes)
{
	*memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
	memset(*memory, 0, bytes);
	return COLLET_OK;
}

collet_status collet_mem_free(collet_comm *comm, void *memory)
{
	free(memory);
	return COLLET_OK;
}

uint32_t collet_comm_rank(const collet_comm *comm)
{
	return comm->rank;
}

uint32_t collet_comm_size(const collet_comm *comm)
{
	return comm->world->ranks;
}

struct member {
	collet_comm comm;
	pthread_t thread;
	void (*body)(collet_comm *comm, void *context);
	void *context;
};

static void *run_member(void *argument)
{
	struct member *member = argument;
	member->body(&member->comm, member->context);
	return NULL;
}

void ranks_run(uint32_t ranks, void (*body)(collet_comm *comm, void *context), void *context)
{
	struct world world = { .lock = PTHREAD_MUTEX_INITIALIZER, .met = PTHREAD_COND_INITIALIZER, .ranks = ranks };
	struct member members[FAKE_RANKS];
	for (uint32_t r = 0; r < ranks; r++) {
		members[r] = (struct member){ .comm = { &world, r }, .body = body, .context = context };
		if (pthread_create(&members[r].thread, NULL, run_member, &members[r]) != 0)
			abort();
	}
	for (uint32_t r = 0; r < ranks; r++)
		pthread_join(members[r].thread, NULL);
}
