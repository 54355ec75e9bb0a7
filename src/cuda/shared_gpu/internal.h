/* Declarations that the files of shared_gpu.h share. */
#ifndef COLLET_CUDA_SHARED_GPU_INTERNAL_H
#define COLLET_CUDA_SHARED_GPU_INTERNAL_H

#include "cuda/driver/exported_handles.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/shared_gpu/span_plan.h"
#include "engine/comm_state.h"
#include "engine/progress_hook.h"

/* What a rank sends about a call, as plain bytes. A v-form's counts and displacements follow: of the input, then of the
 * result, one for each rank of the communicator. They are zeros where the rank has none. */
struct call_descriptor {
	uint64_t signature, sequence;
	uint64_t input_count, result_count;  /* for a v-form, of the rank's own block */
	uint32_t has_input_counts, has_result_counts;
	uint32_t is_ok;              /* while connecting: this rank has found no error */
	uint32_t notes_sent;         /* notes sent to the leader's handle exchange so far */
	uint32_t is_host_only;       /* its buffers are host memory, and it expects no decision */
	uint32_t flag;               /* the flag by which the GPU may signal its stream; 0: its host must */
	double scale;
	struct collet_buffer_info buffer[2];
};

struct call_decision {
	uint32_t is_staged;          /* the call is staged through the host */
	uint32_t resend_handles;     /* the leader lost descriptors; send them again */
	/* the launch is queued, and the GPU signals streams when it is done (see completion_flags.h) */
	uint32_t is_gpu_signaled;
};

/* What is called; the same on all ranks. */
struct call_summary {
	enum collet_collective collective;
	bool is_vector;
	bool between_hosts;          /* the launch executes one host's part of the planned program */
	bool may_reorder;            /* the launch's order of operands is acceptable */
	collet_dtype dtype;
	collet_op op;                /* COLLET_OP_COUNT if nothing is combined */
	uint32_t root;
	uint64_t count;
	uint64_t signature, sequence;
};

enum call_state {
	CALL_GATHERING,              /* leader: descriptors arrive */
	CALL_RUNNING,                /* leader: the GPU executes it */
	CALL_BETWEEN_HOSTS,          /* leader: the hosts exchange data */
	CALL_REPLYING,               /* leader: decisions are sent */
	/* follower: sends its descriptor, and expects a decision unless its buffers are host memory */
	CALL_AWAITING_DECISION,
	CALL_COMPLETE
};

struct shared_call {
	struct shared_call *next;
	struct collet_request *request;      /* NULL while connecting */
	struct call_summary summary;
	struct collet_call_buffers buffers;
	enum call_state state;
	/* between hosts: the request has completed, or runs by itself since the decision */
	bool is_detached;
	bool host_complete;          /* CALL_BETWEEN_HOSTS: this host's part is complete */
	bool fell_back;              /* staged because something has failed */
	bool reported_mismatch;      /* a mismatch has been reported */
	uint32_t launch_number;      /* leader: value of completion_flags.launched after its launch */
	struct call_decision decision;
	struct collet_request **messages;    /* in progress; leader: by member, follower: two */
	char *descriptors;           /* leader: by member, descriptor_bytes each; follower: its own */
	struct collet_ipc_mapping **mappings; /* leader: two for each member */
};

struct collet_shared_gpu {
	struct collet_device *device;
	struct collet_comm_state *state;
	/* The ranks that share, numbered as members in order of rank: all ranks, or those of this rank's host. Member 0
	 * is the leader. */
	uint32_t size, member;
	uint32_t *members;           /* by member: rank in the communicator */
	bool is_per_host;
	struct collet_comm_state internal_comm;
	struct collet_progress_hook hook;    /* in the communicator's list */
	const struct collet_shared_gpu_events *events;
	struct collet_copy_stream *copy_stream; /* the context of all GPU work here */
	const struct collet_kernel_set *kernels; /* leader */
	cu_stream stream;                    /* leader: for its launches */
	size_t descriptor_bytes;     /* maximum size of a descriptor */
	bool has_one_gpu;            /* shared by all members; otherwise each has any GPU */
	bool shares_leader_gpu;      /* same process and GPU as the leader: its memory needs no opening */
	struct shared_call *first, **last; /* undecided, in order */
	struct shared_call *free_calls;
	struct collet_completion_flags completion_flags;
	struct collet_span_plan plan;     /* leader */
	struct collet_span_plan_rank *ranks;      /* leader */
	struct collet_exported_handles exported; /* sent to the leader */
	uint32_t *notes_seen;        /* leader: by member, the number of notes that it has received */
	bool is_connecting;
};

static inline bool is_leader(const struct collet_shared_gpu *shared_gpu)
{
	return shared_gpu->member == 0;
}

static inline struct call_descriptor *descriptor_of(
	const struct collet_shared_gpu *shared_gpu, const struct shared_call *call, uint32_t rank)
{
	return (struct call_descriptor *)(void *)(call->descriptors + rank * shared_gpu->descriptor_bytes);
}

/* ---- shared_gpu_call.c. Needs the lock. ---- */
/* Returns an object for a call of this rank; NULL if out of memory. */
struct shared_call *collet_shared_call_get(struct collet_shared_gpu *shared_gpu);
void collet_shared_call_put(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
/* Sends the descriptor, or receives those of others. Summary, buffers and own descriptor must be filled in.
 * COLLET_ERR_MEMORY. */
collet_status collet_shared_call_post(struct collet_shared_gpu *shared_gpu, struct shared_call *call, size_t bytes);
/* The tag of the call's descriptors; that of its decisions is one more. */
uint32_t collet_shared_call_tag(const struct shared_call *call);
/* Posts a message to or from a member. Returns NULL if that ended the communicator. */
struct collet_request *collet_shared_gpu_post_message(
	struct collet_shared_gpu *shared_gpu, bool sends, uint32_t member, uint32_t tag, void *buffer, size_t bytes);
/* True if all messages of the call have been sent or received. */
bool collet_shared_call_messages_done(const struct collet_shared_gpu *shared_gpu, const struct shared_call *call);
/* NULL is allowed. */
void collet_shared_call_free(struct shared_call *call);

/* ---- shared_gpu_progress.c ---- */
extern const struct collet_progress_hook_ops collet_shared_gpu_hooks;

/* ---- members.c ---- */
/* Fills in members, size, member, and what they have in common. COLLET_ERR_MEMORY. */
collet_status collet_shared_gpu_find_members(struct collet_shared_gpu *shared_gpu);

/* ---- export_to_leader.c. Needs the lock. ---- */
/* Sends a descriptor of memory, which the leader needs before the call descriptor. COLLET_PENDING: no room. */
collet_status collet_shared_gpu_export(struct collet_shared_gpu *shared_gpu, const struct collet_ipc_handle *handle);
/* Sends notes of freed memory that found no room before. */
void collet_shared_gpu_flush_freed(struct collet_shared_gpu *shared_gpu);

/* ---- leader.c. Needs the lock. ---- */
/* Checks, when all descriptors have arrived, that they are for the same call. If not, the communicator will end. */
bool collet_leader_check_mismatch(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
/* Decides the call, when all descriptors have arrived. Returns false if it cannot continue: ranks disagree, and the
 * communicator will end. */
bool collet_leader_decide(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
/* True if the GPU has completed the call. If the GPU has failed, ends the communicator. */
bool collet_leader_is_complete(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
/* Releases the call's mappings. */
void collet_leader_release(struct collet_shared_gpu *shared_gpu, struct shared_call *call);

/* ---- shared_gpu_connect.c ---- */
/* Tests whether every rank gets the right result from the leader's launch. *ok false: no, and the leader has logged
 * why. Blocks. COLLET_ERR_*: the communicator has ended. */
collet_status collet_shared_gpu_connect(struct collet_shared_gpu *shared_gpu, bool *ok);

#endif
