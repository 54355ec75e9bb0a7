/* The communicator, and the checks that every call on one starts with. */
#ifndef COLLET_API_COMM_H
#define COLLET_API_COMM_H

#include "api/context.h"
#include "api/rank_layout.h"

/* How often, and for how many bytes, an algorithm was used. */
struct collet_algorithm_use {
	uint64_t calls, bytes;
};

enum { COLLET_PROGRAMS_MAX = 16 };   /* of one collective; stats.c asserts it */

/* The last call, if it blocked, had nothing special and was planned: one that differs from it in its buffers alone is
 * neither checked nor planned again. Whoever is inside the communicator may touch it. */
struct collet_cached_call {
	struct collet_request *request; /* with the plan; NULL: no such call */
	uint32_t plan_count;         /* that the request had had then, and operations */
	enum collet_collective collective;
	collet_dtype dtype;
	collet_op op;
	uint32_t root;
	uint64_t count;
	uint64_t send_bytes, recv_bytes; /* that this rank uses */
};

struct collet_comm {
	struct collet_context *context;
	struct collet_comm_state state;
	struct collet_choice_inputs inputs;
	struct collet_choice_table table; /* of inputs */
	uint32_t *world_ranks;       /* group.world's memory */
	struct collet_layout by_host;/* hosts' ranks together, in rank order */
	struct collet_layout by_locality; /* and among them those that share packages, NUMA nodes and caches */
	uint32_t local_rank, local_size;
	struct collet_gpu_comm *gpu; /* owned by src/cuda; NULL if no GPU can be used */
	bool has_gpu_leaders;        /* there are several hosts, and all ranks have GPUs, some hosts several ranks */
	uint32_t split_count;        /* so far, to derive ids */
	atomic_bool busy;            /* a thread is inside */
	struct collet_cached_call cached_call;
	/* under the engine's lock */
	struct collet_algorithm_use algorithm_uses[COLLET_COLLECTIVE_COUNT][COLLET_PROGRAMS_MAX];
};

/* Of these world ranks (taken over; NULL: all). */
collet_status collet_comm_make(collet_comm **comm, struct collet_context *context, uint64_t id, uint32_t rank,
	uint32_t size, uint32_t *world);
/* A user-defined operation runs in the middle of a call, and with the engine's lock: what changes something would find
 * that half done, and what waits would wait for itself. */
collet_status collet_refuse_nested(const char *function);
static inline collet_status collet_check_nested(const char *function)
{
	return collet_reduction_in_user_op ? collet_refuse_nested(function) : COLLET_OK;
}
/* Fails with why how.stream cannot be used. Only where comm->gpu is NULL. */
collet_status collet_refuse_stream(const collet_comm *comm, const char *function);
/* The checks that every call starts with: not NULL, not nested, not forked, not ended, nobody else inside. COLLET_OK:
 * the caller is inside, and must leave. */
collet_status collet_comm_enter(collet_comm *comm, const char *function);
void collet_comm_leave(collet_comm *comm);
/* A group's end as this thread's error. */
collet_status collet_comm_ended(const collet_comm *comm);

/* ---- stats.c. Under the engine's lock. */
void collet_comm_count_call(collet_comm *comm, const struct collet_request *request);

#endif
