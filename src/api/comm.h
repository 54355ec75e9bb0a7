/* Defines the communicator, and the checks that every call on one starts with. */
#ifndef COLLET_API_COMM_H
#define COLLET_API_COMM_H

#include "api/context.h"
#include "api/rank_layout.h"
#include "engine/comm_state.h"
#include "selection/choice.h"

/* Counts how often an algorithm was used, and for how many bytes. */
struct collet_algorithm_use {
	uint64_t calls, bytes;
};

enum { COLLET_PROGRAMS_MAX = 16 };   /* of one collective; stats.c asserts it */

/* Describes an earlier call, if it was planned and its how had no more than a request. A call that differs from it in
 * its buffers alone is neither checked nor planned again. Belongs to the thread that is inside the communicator. */
struct collet_cached_call {
	struct collet_request *request; /* has the plan; NULL if there is no such call */
	uint32_t plan_generation;       /* the request's then; if it differs, the plan is another */
	enum collet_collective collective;
	collet_dtype dtype;
	collet_op op;
	uint32_t root;
	uint64_t count;
	uint64_t send_bytes, recv_bytes; /* of the buffers that this rank uses */
};

/* Counts the groups that were created of the same ranks, in the same order and with the same tag. */
struct collet_group_count {
	uint64_t key;                /* derived from these */
	uint64_t count;
};

struct collet_group_counts {
	pthread_mutex_t lock;
	struct collet_group_count *counts;
	size_t size;
};

struct collet_comm {
	struct collet_context *context;
	struct collet_comm_state state;
	struct collet_choice_inputs inputs;
	struct collet_choice_table table; /* computed from inputs */
	uint32_t *world_ranks;            /* owns the memory of state.world_ranks */
	struct collet_layout by_host;     /* groups ranks by host, each group in rank order */
	struct collet_layout by_locality; /* groups them by package, NUMA node and cache too */
	uint32_t local_rank, local_size;
	struct collet_gpu_comm *gpu; /* owned by src/cuda; NULL if no GPU can be used */
	bool has_gpu_leaders;        /* several hosts, some with several ranks, and every rank has a GPU */
	uint32_t split_count;        /* splits so far; ids are derived from it */
	struct collet_group_counts group_counts; /* groups so far; likewise */
	atomic_bool busy;            /* a thread is inside the communicator */
	uint32_t nested_calls;       /* calls that on_end() is in, while the thread inside blocks. That thread's own */
	struct collet_cached_call cached_calls[COLLET_PLAN_SLOTS]; /* by the slot of their plan */
	/* Under the engine's lock. */
	struct collet_algorithm_use algorithm_uses[COLLET_COLLECTIVE_COUNT][COLLET_PROGRAMS_MAX];
};

/* Returns the place in the cache for a call. What is there may be another call. */
static inline struct collet_cached_call *collet_cached_call(
	collet_comm *comm, enum collet_collective collective, uint64_t count, uint32_t root)
{
	return &comm->cached_calls[collet_plan_slot(collective, count, root)];
}

/* Creates a communicator of these world ranks; NULL is all. Takes ownership of world, even if it fails. */
collet_status collet_comm_make(collet_comm **comm, struct collet_context *context, uint64_t id, uint32_t rank,
	uint32_t size, uint32_t *world);
/* Refuses a call from a user-defined operation. Such an operation runs in the middle of a call and under the engine's
 * lock: a call would see half-changed state, or wait for itself. */
collet_status collet_refuse_nested(const char *function);
static inline collet_status collet_check_nested(const char *function)
{
	return collet_reduction_in_user_op ? collet_refuse_nested(function) : COLLET_OK;
}
/* Refuses a call of a forked child, in which threads and connections of the communicator do not exist. */
collet_status collet_comm_check_fork(const collet_comm *comm, const char *function);
/* Fails with the reason that how.stream cannot be used. Only if comm->gpu is NULL. */
collet_status collet_refuse_stream(const collet_comm *comm, const char *function);
/* Makes the checks that every call starts with: not NULL, not nested, not forked, not ended, no other thread inside. On
 * COLLET_OK the caller is inside, and must leave. */
collet_status collet_comm_enter(collet_comm *comm, const char *function);
/* The communicator in which this thread is, while it waits there. NULL: none. */
extern _Thread_local const struct collet_comm_state *collet_blocking_comm
	__attribute__((visibility("hidden"), tls_model("initial-exec")));
void collet_comm_leave(collet_comm *comm);
/* Returns how the communicator has ended, as this thread's error; COLLET_OK if it has not. */
collet_status collet_comm_ended(const collet_comm *comm);

/* Counts a call that starts, for collet_comm_stats() (stats.c). Under the engine's lock. */
void collet_comm_count_call(collet_comm *comm, const struct collet_request *request);

#endif
