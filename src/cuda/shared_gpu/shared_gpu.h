/* Collectives of ranks that share one GPU: threads of a process, or processes of a host. Also used for processes of
 * which some share one of several GPUs. Of several hosts, it serves the ranks of each host, whatever GPUs they have.
 *
 * No kernel waits for another. Each rank sends its call descriptor, which says where its buffers are, to the first
 * rank, the leader. The leader maps buffers that it has not mapped yet, executes the whole collective in one launch,
 * and sends its decision to the others, which return. So all waiting is the host's: deadlines, lost peers, aborts and
 * mismatches work as they do without a GPU.
 *
 *	follower	sends its descriptor, receives the decision
 *	leader		gathers descriptors, launches, waits for the GPU, sends the decision
 *
 * The decision may also be that the call is staged through the host. This happens if a buffer is host memory, or other
 * processes cannot open it. It also happens if the user named an algorithm that combines operands in another order. No
 * rank knows beforehand, so all calls of such a communicator send descriptors, those on host memory too. Calls behind
 * an undecided one wait in the tasks. A test, when the communicator is created, decides whether the ranks use this at
 * all. It uses memory of each rank, and each rank checks the result.
 *
 * The messages use an internal communicator, point to point. They are matched by call number. So overlapping calls
 * cannot be mixed up, although they are decided in another order than other calls start.
 *
 * If the communicator has several hosts, all of this concerns the ranks of one host. A decision is then about that host
 * alone: whether the GPU executes its ranks' part of a hierarchical algorithm and the leader communicates with other
 * hosts for all of them, or each rank executes its own steps. The messages between hosts are the same.
 *
 * Where ranks have other GPUs than their leader, the leader's GPU accesses their memory over the link between the two.
 *
 * A call on a stream sends its descriptor when the stream reaches it. The stream waits until the call is decided and
 * complete. If all ranks call on streams, the decision only says that the launch is queued, and the GPU itself signals
 * completion (see completion_flags.h). */
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
	COLLET_BUFFER_GPU,           /* on the GPU of the rank, which ranks may share */
	COLLET_BUFFER_UNREACHABLE    /* on another GPU, or not accessible to the leader */
};

/* Describes a buffer of this rank. */
struct collet_buffer_info {
	const void *first;
	uint64_t bytes;
	uint32_t location;
	int32_t ordinal;             /* GPU number in this process */
	uint64_t context;            /* where it was allocated, in this process; 0 if in none */
	struct collet_ipc_handle handle; /* if COLLET_BUFFER_GPU */
};

/* The buffers of one call: the one that is read, and the one that is written. */
struct collet_call_buffers {
	const char *function;        /* for error sentences; static */
	double scale;
	uint32_t flag;               /* completion flag of a call on a stream (see completion_flags.h); 0: none */
	struct collet_buffer_info buffer[2];
};

/* True if no buffer is GPU memory. */
static inline bool collet_call_buffers_are_host(const struct collet_call_buffers *buffers)
{
	return buffers->buffer[0].location <= COLLET_BUFFER_HOST && buffers->buffer[1].location <= COLLET_BUFFER_HOST;
}

struct collet_shared_gpu;

/* Which ranks of a communicator use a shared GPU. */
enum collet_shared_gpu_scope {
	COLLET_SHARED_GPU_NONE,
	COLLET_SHARED_GPU_ALL,       /* all ranks: one host, with one GPU or several */
	COLLET_SHARED_GPU_PER_HOST   /* the ranks of each host, on one GPU or several; there are several hosts */
};

/* The buffers of the local ranks, for the leader of a call between hosts. Valid during the event. */
struct collet_local_ranks {
	const struct collet_kernel_set *kernels;
	struct collet_copy_stream *copy_stream; /* its context can access all the buffers */
	const struct collet_span_plan_rank *ranks; /* by member */
	const uint32_t *members;             /* by member: their ranks in the communicator, ascending */
	uint32_t size;
	uint32_t root;                       /* as a member; size if the root is on another host */
	void *call;                          /* for collet_shared_gpu_host_complete() */
};

/* Callbacks into the communicator. Called with the engine's lock. */
struct collet_shared_gpu_events {
	/* The GPU has completed the request, on one host or on each of several. */
	void (*done)(struct collet_request *request);
	/* The call is staged: gives the request host buffers in place of GPU buffers. */
	collet_status (*stage)(struct collet_request *request, const struct collet_call_buffers *buffers);
	/* Called on the leader of each of several hosts. The request will run on host memory. It fills that memory with
	 * the combined input of the host's ranks, and copies the result to each of them. On failure, the call is
	 * staged. */
	collet_status (*between_hosts)(struct collet_request *request, const struct collet_local_ranks *local);
};

/* Says which ranks may share a GPU; all ranks compute the same. */
enum collet_shared_gpu_scope collet_shared_gpu_scope_of(const struct collet_comm_state *state);
/* The largest number of ranks that share one GPU. */
uint32_t collet_shared_gpu_max_ranks(const struct collet_comm_state *state);
/* True if all members on this rank's host share a GPU. */
bool collet_shared_gpu_has_one_gpu(const struct collet_shared_gpu *shared_gpu);
/* Sets up a communicator whose scope is not NONE. For PER_HOST, the rank must not be alone on its host. Blocks; all
 * ranks of the communicator, or of the host, call it together. If *made is NULL, calls are staged; all members know,
 * and the leader has logged why. Fails with COLLET_ERR_MEMORY, or with what ended the communicator. */
collet_status collet_shared_gpu_create(struct collet_shared_gpu **made, struct collet_device *device,
	struct collet_comm_state *state, const struct collet_shared_gpu_events *events);
/* Tells all leaders that this rank has COLLET_IPC_FD memory, or that it has freed it, so that no call has to. Needs the
 * lock. */
void collet_shared_gpu_notify_leaders(
	struct collet_engine *engine, const struct collet_ipc_handle *handle, bool is_freed);
/* Call after the communicator is torn down. streams: some of this rank's streams may still reach their flags. NULL is
 * allowed. */
void collet_shared_gpu_destroy(struct collet_shared_gpu *shared_gpu, bool streams);
/* For a forked child. */
void collet_shared_gpu_atfork_child(struct collet_shared_gpu *shared_gpu);

/* Finds where the buffers of a call are. The caller fills in first and bytes; 0 bytes: unused. COLLET_ERR_ARGUMENT,
 * COLLET_ERR_SYSTEM: nothing has changed. */
collet_status collet_shared_gpu_locate(struct collet_shared_gpu *shared_gpu, struct collet_call_buffers *buffers);
/* Sends the descriptor of a planned request that has its place in the order of calls. The request is deferred until the
 * decision. If it is not deferred on return, the decision was known, and it continues like any other call. Needs the
 * lock. */
collet_status collet_shared_gpu_start(struct collet_shared_gpu *shared_gpu, struct collet_request *request,
	const struct collet_call_buffers *buffers);
/* Claims a flag for a call on a stream; its index is 0 if none is free. The caller must be inside the communicator. */
void collet_shared_gpu_claim_flag(struct collet_shared_gpu *shared_gpu, struct collet_completion_flag *flag);
void collet_shared_gpu_release_flag(struct collet_shared_gpu *shared_gpu, const struct collet_completion_flag *flag);
/* Call now and then while a stream of this rank waits for its flag: if the GPU has failed, the communicator ends. Needs
 * the lock. */
void collet_shared_gpu_check_fault(struct collet_shared_gpu *shared_gpu);
/* The local part of a call between hosts has ended, for whatever reason. Needs the lock. */
void collet_shared_gpu_host_complete(void *call);

#endif
