/* Defines the context: what one rank has in one process.
 *
 * It owns the engine, the control plane, the arena and the transports. collet_comm_create() makes it, and the
 * communicators split from that one share it. The last of them to be destroyed releases it. */
#ifndef COLLET_API_CONTEXT_H
#define COLLET_API_CONTEXT_H

#include <stdatomic.h>

#include <collet/tools.h>

#include "bootstrap/bootstrap.h"
#include "collectives/program.h"
#include "engine/engine.h"
#include "reduce/reduce.h"
#include "transport/arena.h"
#include "transport/registry.h"

/* What rank 0 decides for all ranks. It is sent with the table of peer_infos. */
struct collet_agreement {
	uint64_t session;    /* id of the first communicator, from which others are derived */
	uint32_t link_count; /* links of rank 0's tuning, which follow; 0 for the built-in ones */
	uint32_t are_cores_far; /* 1: rank 0 has found the cores of its host far from each other */
};

/* Memory that the user has registered. */
struct collet_registration {
	const char *first;
	size_t bytes;
};

struct collet_registry {
	pthread_mutex_t lock;
	struct collet_registration *entries;
	size_t count;
};

struct collet_context {
	struct collet_engine engine;
	struct collet_launch launch;
	struct collet_bootstrap bootstrap;
	struct collet_agreement agreement;
	collet_link_cost *links; /* the tuning, link_count of them */
	uint32_t link_count;
	collet_link_cost fixed_link; /* the link of a deterministic choice */
	struct collet_arena arena;
	struct collet_transport_set transports;
	struct collet_registry registry;
	struct collet_gpu_context *gpu;    /* owned by src/cuda (offload.h); NULL if no GPU can be used */
	char no_gpu_reason[160];           /* why gpu is NULL, for people */
	struct collet_peer_info peer_info; /* this rank's own, for bootstrap to send */
	atomic_uint users;                 /* number of communicators */
	atomic_bool is_leaked;             /* GPUs may still use its memory when they are gone */
	struct collet_context *next_leaked;
	const unsigned char *fork_mark; /* 1, on a page that a fork wipes; 0 in a forked child */
	bool deterministic;
	bool thread_multiple;
	enum collet_isa isa;
	char transport[64], algorithm[256];
	const struct collet_program *forced[COLLET_COLLECTIVE_COUNT];
};

collet_status collet_context_create(struct collet_context **context, const collet_options *options);
/* Returns the transport between ranks of one host: "shm" if rank 0 offers it. */
const char *collet_local_transport(const struct collet_context *context);
/* Drops one user. The last one frees the context. */
void collet_context_release(struct collet_context *context);
static inline bool collet_context_forked(const struct collet_context *context)
{
	return !*(const volatile unsigned char *)context->fork_mark;
}

#endif
