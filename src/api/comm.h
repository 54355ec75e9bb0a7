/* The communicator and its context: what the public API is made of.
 *
 * A context is what one rank has in one process: engine, control plane, arena, cards. It is made by
 * collet_comm_create() and shared by the communicators split from that one; the last to be destroyed takes it along. */
#ifndef COLLET_API_COMM_H
#define COLLET_API_COMM_H

#include <stdatomic.h>

#include "bootstrap/bootstrap.h"
#include "cuda/driver/copy_stream.h"
#include "cuda/driver/device.h"
#include "cuda/staging/pinned.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "reduce/reduce.h"
#include "selection/choice.h"
#include "transport/arena.h"

/* What rank 0 decides for all, beside the cards. */
struct collet_agreement {
	uint64_t session;            /* id of the first communicator; others' are derived */
	uint32_t link_count;         /* of rank 0's tuning, which follow; 0: the built-in ones */
	uint32_t reserved0;
};

/* The user's own registered memory. */
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
	collet_link_cost *links;     /* the tuning: link_count of them */
	uint32_t link_count;
	collet_link_cost fixed_link; /* what a deterministic choice is made by */
	struct collet_arena arena;
	struct collet_transport_set transports;
	struct collet_registry registry;
	struct collet_cuda cuda;     /* and what goes with it, where there is a driver; else zeroed */
	struct collet_copy_streams copy_streams;
	struct collet_pinned_pool pinned;
	struct collet_device device;
	struct collet_streams *streams; /* of all its communicators; under the engine's lock */
	struct collet_peer_info peer_info; /* this rank's own, until the table is there */
	atomic_uint users;           /* communicators */
	atomic_bool is_leaked;       /* streams may use its memory when they are gone, */
	struct collet_device_collectives *leaked_device_collectives; /* and what these have; under the engine's lock */
	struct collet_context *next_leaked;
	const unsigned char *fork_mark; /* 1; 0 in a forked child: one page that a fork wipes */
	bool deterministic;
	enum collet_isa isa;
	char transport[64], algorithm[256];
	const struct collet_program *forced[COLLET_COLLECTIVE_COUNT];
};

/* How often, and for how many bytes, an algorithm was used. */
struct collet_algorithm_use {
	uint64_t calls, bytes;
};

enum { COLLET_PROGRAMS_MAX = 16 };   /* of one collective; stats.c asserts it */

/* Ranks in an order, and where this one stands in it. */
struct collet_layout {
	uint32_t *order, *host_first;/* as in struct collet_shape; order NULL: positions are ranks */
	uint32_t *position;          /* by rank; NULL: likewise */
	uint32_t host_count;
};

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
	struct collet_shared_gpu
		*shared_gpu; /* NULL: its ranks, or those of this host, have no GPU, or cannot go together */
	struct collet_device_collectives *device_collectives; /* see device_collective.h; NULL: its ranks' GPUs do
	                                                         not reach each other */
	bool has_gpudirect;          /* transports of all its pairs take GPU memory, as far as cards tell */
	bool has_gpu_leaders;        /* there are several hosts, and all ranks have GPUs, some hosts several ranks */
	uint32_t ranks_per_gpu;      /* that have one GPU, where most do; 1: or none */
	uint32_t split_count;        /* so far, to derive ids */
	struct collet_streams *streams; /* see stream_call.h; NULL: no call has been made on a stream */
	atomic_bool busy;            /* a thread is inside */
	struct collet_cached_call cached_call;
	/* under the engine's lock */
	struct collet_algorithm_use algorithm_uses[COLLET_COLLECTIVE_COUNT][COLLET_PROGRAMS_MAX];
};

/* ---- context.c */
collet_status collet_context_create(struct collet_context **context, const collet_options *options);
/* By what the ranks of one host talk: shared memory, if rank 0 may. */
const char *collet_local_transport(const struct collet_context *context);
/* One user less. */
void collet_context_release(struct collet_context *context);
static inline bool collet_context_forked(const struct collet_context *context)
{
	return !*(const volatile unsigned char *)context->fork_mark;
}

/* ---- comm.c */
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
/* The checks that every call starts with: not NULL, not nested, not forked, not ended, nobody else inside. COLLET_OK:
 * the caller is inside, and must leave. */
collet_status collet_comm_enter(collet_comm *comm, const char *function);
void collet_comm_leave(collet_comm *comm);
/* A group's end as this thread's error. */
collet_status collet_comm_ended(const collet_comm *comm);

/* ---- stats.c. Under the engine's lock. */
void collet_comm_count_call(collet_comm *comm, const struct collet_request *request);

/* ---- rank_layout.c */
/* Both layouts, local_rank and local_size. On failure what is there is left for deinit. */
collet_status collet_layouts_find(struct collet_comm *comm);
void collet_layouts_deinit(struct collet_comm *comm);
/* Positions follow hosts where the result may depend on them (see docs/design.md, Same inputs, same bits). */
void collet_layout_by_host(const struct collet_comm *comm, struct collet_shape *shape, bool commutes);
/* Once the program is chosen: positions follow caches too, where that changes no bit and the program can. */
void collet_layout_by_locality(const struct collet_comm *comm, struct collet_shape *shape,
	const struct collet_program *program, collet_dtype dtype, collet_op op);

/* ---- call_plan.c */
struct collet_call_arguments;
collet_status collet_call_check_how(const struct collet_call_arguments *call, const collet_how *how);
/* Plans the request, which may come from the pool: its plan is then good for the same call again, as those of its
 * arguments say that a plan depends on, and that have been checked when it was made. Under lock. */
collet_status collet_call_plan(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request *request);

/* ---- call.c */
struct collet_gpu_staging;
struct collet_call_arguments {
	const char *function;                /* for sentences */
	enum collet_collective collective;
	const void *send;
	void *recv;
	uint64_t count;
	collet_dtype dtype;
	collet_op op;                        /* COLLET_OP_COUNT: it combines nothing */
	uint32_t root;
	const struct collet_partition *input, *result; /* v-forms: LISTED (or an own block); else NULL */
	const struct collet_call_buffers
		*gpu_buffers; /* to be offered to the leader first (see cuda/shared_gpu/shared_gpu.h); else NULL */
	struct collet_gpu_staging *staging;  /* the buffers', with a flow: collet_call_start() takes it over, however
						it ends; else NULL */
};
collet_status collet_call_start(collet_comm *comm, const struct collet_call_arguments *arguments,
	const collet_how *how);
/* The call that comm->again knows, with other buffers, blocking. False: nothing has happened, since its plan is in use
 * or something else is under way. Not under lock. */
bool collet_call_run_cached(collet_comm *comm, const void *send, void *recv, collet_status *status);
/* The same in two steps, for a call that is started later, perhaps again and again: all checks, and a request, which is
 * the caller's to free; under lock, its start (it has not been started, or has ended). */
collet_status collet_call_prepare(collet_comm *comm, const struct collet_call_arguments *arguments,
	const collet_how *how, struct collet_request **request);
/* sides: to be offered to the leader first, as in the arguments; else NULL. flow: its buffers'; else NULL. */
void collet_call_start_prepared(collet_comm *comm, struct collet_request *request,
	const struct collet_call_buffers *gpu_buffers, struct collet_pipeline *pipeline);
/* Of a prepared request that is done by other means than lanes: it has its place in the order of calls, or, with this
 * number, in an order of its own, that is recorded apart; it counts, and whoever does it ends it. Under lock. */
void collet_call_start_offloaded(
	collet_comm *comm, struct collet_request *request, struct collet_recorder *out_of_band, uint64_t sequence);
/* How it has ended, with a sentence if it failed. Under lock. */
collet_status collet_call_failure(const struct collet_request *request);
static inline collet_status collet_call_outcome(const struct collet_request *request)
{
	return request->status == COLLET_OK ? COLLET_OK : collet_call_failure(request);
}
/* Of its collective's programs. */
uint32_t collet_call_program_index(const struct collet_program *program);
/* The call's own, or the communicator's; < 0: none. */
int64_t collet_call_timeout(const collet_comm *comm, const collet_how *how);
/* collet_call_start() has returned this status for a call on staged buffers (NULL: on the caller's own): ends it, or
 * leaves that to whoever settles the request. */
collet_status collet_call_attach_staging(
	struct collet_gpu_staging *staging, collet_status status, const collet_how *how);
/* Takes the status of a request that has ended, frees it and sets *request to NULL. */
collet_status collet_call_complete(struct collet_request **request);
/* The same under lock, which it lets go of. */
collet_status collet_call_complete_and_unlock(struct collet_request **request);
/* Blocks until it has ended, then settles it. */
collet_status collet_call_wait(struct collet_request **request);
/* One round of progress; COLLET_PENDING, or settled. */
collet_status collet_call_poll(struct collet_request **request);

/* ---- point_to_point.c */
/* A send or a receive. */
struct collet_p2p_op {
	bool is_send;
	void *buffer;
	uint64_t count;
	uint32_t peer, tag;
	collet_received *received;
	struct collet_bounce_buffer *bounce_buffer; /* see engine/p2p/bounce_buffer.h; NULL: none */
};
/* Starts them, as one request if they are several. Only for want of memory it cannot, which ends the communicator;
 * NULL: nothing has been started. Under lock. */
struct collet_request *collet_p2p_ops_start(
	collet_comm *comm, const struct collet_p2p_op *ops, uint32_t count, collet_dtype dtype, int64_t timeout_ns);

#endif
