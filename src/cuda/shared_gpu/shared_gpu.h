/* Collectives of ranks that share one GPU: threads of a process, or processes of a host; of processes that share some
 * of several; and, between hosts, of ranks of a host whatever GPUs they have.
 *
 * Nobody's kernel waits for another's. Each rank tells rank 0, the leader, where its buffers are (an offer); the leader
 * maps what it has not mapped yet, does all of the collective in one go, and tells the others, who return (a verdict).
 * So all that waits is the host's: deadlines, lost peers, aborts and disagreement are what they are without a GPU.
 *
 * 	follower	offer ->			<- verdict
 * 	leader		gathers offers, launches, waits for the GPU, tells
 *
 * A verdict may also be that the call goes by way of the host: if some buffer is the host's, or in memory that others
 * cannot open, or if an algorithm was asked for by name whose order of operands is not the launch's. Which way it will
 * be nobody knows before, so all calls of such a communicator are offered, those on host memory too, and calls behind
 * one that is undecided wait in the lanes. That ranks go together at all is settled when the communicator is made, by
 * a test with their own memory whose result each of them checks.
 *
 * Messages travel in a group of their own, the shadow, point to point: they are matched by number, so that calls that
 * overlap, and are decided in another order than others start, cannot cross.
 *
 * Of a communicator of several hosts all of this is for the ranks of one host. A verdict then is about that host alone:
 * whether its ranks' part of a hierarchical algorithm is the GPU's work, and the leader goes between hosts for all of
 * them, or each rank does what the algorithm says by itself. What travels between hosts is the same.
 *
 * Where ranks have another GPU than their leader, that one reads and writes their memory by whatever links the two.
 *
 * A call on a stream is offered when its stream has come to it, and the stream waits until it is decided and done.
 * Where all ranks' are on streams the GPU says that it is done (see completion_flags.h), and the verdict that it is at
 * it. */
#ifndef COLLET_CUDA_SHARED_GPU_SHARED_GPU_H
#define COLLET_CUDA_SHARED_GPU_SHARED_GPU_H

#include "cuda/driver/device.h"
#include "cuda/shared_gpu/completion_flags.h"
#include "cuda/shared_gpu/span_plan.h"

struct collet_comm_state;
struct collet_engine;
struct collet_request;

enum { COLLET_SHARED_GPU_RANKS = COLLET_SPAN_MAX_OPERANDS };

enum collet_buffer_location {
	COLLET_BUFFER_UNUSED,        /* this rank does not use it */
	COLLET_BUFFER_HOST,
	COLLET_BUFFER_GPU,           /* the rank's own, which may be the one that all share */
	COLLET_BUFFER_UNREACHABLE    /* another GPU's, or out of the leader's reach */
};

/* A buffer of this rank's. */
struct collet_buffer_info {
	const void *first;
	uint64_t bytes;
	uint32_t location;
	int32_t ordinal;             /* of the GPU, as this process numbers them */
	uint64_t context;            /* that it was allocated in, as this process knows it; 0: none */
	struct collet_ipc_handle handle; /* COLLET_BUFFER_GPU */
};

/* Of one call: what is read, and what is written. */
struct collet_call_buffers {
	const char *function;        /* for sentences; static */
	double scale;
	uint32_t flag;               /* of a call on a stream (see completion_flags.h); 0: none */
	struct collet_buffer_info buffer[2];
};

/* Is none of it a GPU's? */
static inline bool collet_call_buffers_are_host(const struct collet_call_buffers *buffers)
{
	return buffers->buffer[0].location <= COLLET_BUFFER_HOST && buffers->buffer[1].location <= COLLET_BUFFER_HOST;
}

struct collet_shared_gpu;

/* Which ranks of a group may go together. */
enum collet_shared_gpu_scope {
	COLLET_SHARED_GPU_NONE,
	COLLET_SHARED_GPU_ALL,       /* all of them: there is one host, and they share a GPU, or processes some GPUs */
	COLLET_SHARED_GPU_PER_HOST   /* those of each host, which have one GPU or several; there are several hosts */
};

/* What the ranks of a host have, for the leader of a call between hosts; valid during the event. */
struct collet_local_ranks {
	const struct collet_kernel_set *kernels;
	struct collet_copy_stream *copy_stream; /* all of it is within reach of this context */
	const struct collet_span_plan_rank *ranks; /* by place */
	const uint32_t *members;             /* likewise: ranks of the group, rising */
	uint32_t size;
	uint32_t root;                       /* its place; size: it is not of this host */
	void *call;                          /* for collet_shared_gpu_host_complete() */
};

/* The communicator's part. Under the engine's lock. */
struct collet_shared_gpu_events {
	/* The GPU has done it, of one host or of each of several. */
	void (*done)(struct collet_request *request);
	/* It goes by way of the host: gives the request host buffers in place of the GPU's. */
	collet_status (*stage)(struct collet_request *request, const struct collet_call_buffers *buffers);
	/* Leader, between hosts: the request is going to run on host memory, to which it brings what its host's ranks
	 * have, combined, and from which it takes the result to each. COLLET_ERR_*: it goes by way of the host. */
	collet_status (*between_hosts)(struct collet_request *request, const struct collet_local_ranks *local);
};

/* May these ranks go together? Alike on all of them. */
enum collet_shared_gpu_scope collet_shared_gpu_scope_of(const struct collet_comm_state *state);
/* How many ranks have one GPU, where most do. */
uint32_t collet_shared_gpu_max_ranks(const struct collet_comm_state *state);
/* Do all who go together on this rank's host share a GPU? */
bool collet_shared_gpu_is_single(const struct collet_shared_gpu *shared_gpu);
/* Of a group that does; BY_HOST: of a rank that is not alone on its host. All ranks, or all of a host, make theirs at
 * once; blocks. *made NULL: they go by way of the host, as all of them
 * know, and the leader has logged why. COLLET_ERR_MEMORY, or what ended the group. */
collet_status collet_shared_gpu_create(struct collet_shared_gpu **made, struct collet_device *device,
	struct collet_comm_state *state, const struct collet_shared_gpu_events *events);
/* This rank has memory that is COLLET_IPC_FD, or has it no more: tells all leaders that there are, so that
 * no call has to. Under lock. */
void collet_shared_gpu_notify_leaders(struct collet_engine *engine, const struct collet_ipc_handle *handle, bool gone);
/* The group has been torn down. streams: some of this rank's may come to their words yet. NULL is fine. */
void collet_shared_gpu_destroy(struct collet_shared_gpu *shared_gpu, bool streams);
/* In a forked child. */
void collet_shared_gpu_forget(struct collet_shared_gpu *shared_gpu);

/* Finds out where a call's buffers are; first and bytes are filled in, 0 bytes: unused. COLLET_ERR_ARGUMENT,
 * COLLET_ERR_SYSTEM: nothing has happened. */
collet_status collet_shared_gpu_locate(struct collet_shared_gpu *shared_gpu, struct collet_call_buffers *buffers);
/* Offers a planned request that has its place in the order of calls; it is held until the verdict. Not held: the
 * verdict is known, and it is a call like any other. Under lock. */
collet_status collet_shared_gpu_start(struct collet_shared_gpu *shared_gpu, struct collet_request *request,
	const struct collet_call_buffers *buffers);
/* For a call on a stream; the word's number is 0 where there is none to be had. By whoever is inside the communicator.
 */
void collet_shared_gpu_claim_flag(struct collet_shared_gpu *shared_gpu, struct collet_completion_flag *flag);
void collet_shared_gpu_release_flag(struct collet_shared_gpu *shared_gpu, const struct collet_completion_flag *flag);
/* Now and then while a stream of this rank waits for its word: if the GPU has failed, the group ends. Under lock. */
void collet_shared_gpu_check_fault(struct collet_shared_gpu *shared_gpu);
/* What has been shared is done on this host's GPU, or never will be. Under lock. */
void collet_shared_gpu_host_complete(void *call);

#endif
