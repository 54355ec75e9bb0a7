/* What the files that shared_gpu.h is about know of each other: shared_gpu.c (a communicator's part), members.c,
 * shared_gpu_connect.c, shared_gpu_call.c, call_descriptor.c, export_to_leader.c, leader.c, shared_gpu_progress.c. */
#ifndef COLLET_CUDA_SHARED_GPU_INTERNAL_H
#define COLLET_CUDA_SHARED_GPU_INTERNAL_H

#include "cuda/driver/exported_handles.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/shared_gpu/span_plan.h"
#include "engine/comm_state.h"
#include "engine/progress_hook.h"

/* What a rank offers; travels as it is. A v-form's counts and displacements follow: of the input, then of the result,
 * one for each rank of the group, zeros where it knows none. */
struct call_descriptor {
	uint64_t signature, sequence;
	uint64_t input_count, result_count;  /* a v-form: of the own block */
	uint32_t has_input_counts, has_result_counts;
	uint32_t is_ok;              /* connecting: it has no complaint */
	uint32_t notes_sent;         /* that it has sent to the leader's desk so far, or tried to */
	uint32_t is_host_only;       /* its buffers are the host's: it awaits no verdict */
	uint32_t flag;               /* by which the GPU may tell its stream that it is done; 0: its host must */
	double scale;
	struct collet_buffer_info buffer[2];
};

struct call_decision {
	uint32_t is_staged;          /* it goes by way of the host */
	uint32_t resend_handles;     /* descriptors that have been sent are to be sent again */
	uint32_t is_gpu_signaled;    /* the GPU is at it, and tells streams when it is done (see completion_flags.h) */
};

/* What is called, of which all ranks know the same. */
struct call_summary {
	enum collet_collective collective;
	bool is_vector;
	bool between_hosts;          /* the launch does one host's part of the program that was planned */
	bool may_reorder;            /* the launch's order of operands will do */
	collet_dtype dtype;
	collet_op op;                /* COLLET_OP_COUNT: it combines nothing */
	uint32_t root;
	uint64_t count;
	uint64_t signature, sequence;
};

enum call_state {
	CALL_GATHERING,              /* leader: offers come */
	CALL_RUNNING,                /* leader: the GPU works */
	CALL_BETWEEN_HOSTS,          /* leader: so do other hosts */
	CALL_REPLYING,               /* leader: verdicts leave */
	CALL_AWAITING_DECISION,      /* follower: its offer leaves, and, unless it declines, a verdict comes */
	CALL_COMPLETE
};

struct shared_call {
	struct shared_call *next;
	struct collet_request *request;      /* NULL: connecting */
	struct call_summary summary;
	struct collet_call_buffers buffers;
	enum call_state state;
	bool is_detached;            /* between hosts: its request is done with, or on its own, since it was decided */
	bool host_complete;          /* SHARING: this host's part of it is */
	bool fell_back;              /* that it goes by way of the host: something has failed */
	bool reported_mismatch;      /* a disagreement has been reported */
	uint32_t launch_number;      /* leader: its number among the ordered */
	struct call_decision decision;
	struct collet_request **messages;    /* under way; leader: by rank, follower: two */
	char *descriptors;           /* leader: by rank, direct->offer_bytes each; follower: its own */
	struct collet_ipc_mapping **mappings; /* leader: two a rank */
};

struct collet_shared_gpu {
	struct collet_device *device;
	struct collet_comm_state *state;
	/* Those who go together, by their places among them: all of the group, or those of this rank's host, in order
	 * of rank. The first leads. */
	uint32_t size, member;
	uint32_t *members;           /* by place: rank in the group */
	bool is_per_host;
	struct collet_comm_state internal;
	struct collet_progress_hook hook;    /* in the group's list */
	const struct collet_shared_gpu_events *events;
	struct collet_copy_stream *copy_stream; /* of the context that all is done in */
	const struct collet_kernel_set *kernels; /* leader */
	cu_stream stream;                    /* leader: its launches' own */
	size_t descriptor_bytes;     /* at most */
	bool has_one_gpu;            /* which all of them share; else each has whichever it has */
	bool shares_leader_gpu;      /* in its process, on its GPU: nothing of this rank's has to be opened */
	struct shared_call *first, **last; /* undecided, in order */
	struct shared_call *free_calls;
	struct collet_completion_flags completion_flags;
	struct collet_span_plan plan;     /* leader */
	struct collet_span_plan_rank *ranks;      /* leader */
	struct collet_exported_handles exported; /* to the leader */
	uint32_t *notes_seen;        /* leader: by rank, the notes of which it has looked at its desk */
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

/* ---- shared_gpu_call.c. Under lock. */
/* One for a call of this rank's; NULL: no memory. */
struct shared_call *collet_shared_call_get(struct collet_shared_gpu *shared_gpu);
void collet_shared_call_put(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
/* Its job, sides and own offer are filled in. COLLET_ERR_MEMORY. */
collet_status collet_shared_call_post(struct collet_shared_gpu *shared_gpu, struct shared_call *call, size_t bytes);
/* The tag of the call's offers; that of its verdicts is one more. */
uint32_t collet_shared_call_tag(const struct shared_call *call);
/* A message with the member in that place; NULL: the group has ended. */
struct collet_request *collet_shared_gpu_post_message(
	struct collet_shared_gpu *shared_gpu, bool sends, uint32_t place, uint32_t tag, void *buffer, size_t bytes);
/* Have all messages of the call arrived, or left? */
bool collet_shared_call_messages_done(const struct collet_shared_gpu *shared_gpu, const struct shared_call *call);
/* NULL is fine. */
void collet_shared_call_free(struct shared_call *call);

/* ---- shared_gpu_progress.c */
extern const struct collet_progress_hooks collet_shared_gpu_hooks;

/* ---- members.c */
/* Fills in members, size, place and what they have in common. COLLET_ERR_MEMORY. */
collet_status collet_shared_gpu_find_members(struct collet_shared_gpu *shared_gpu);

/* ---- export_to_leader.c. Under lock. */
/* The leader must have a descriptor before it gets the offer. COLLET_PENDING: it has no room. */
collet_status collet_shared_gpu_export(struct collet_shared_gpu *shared_gpu, const struct collet_ipc_handle *handle);
/* What is no more, and was owed. */
void collet_shared_gpu_flush_freed(struct collet_shared_gpu *shared_gpu);

/* ---- leader.c. Under lock. */
/* All offers have come. Are they for the same call? If not, the group will end for it. */
bool collet_leader_check_mismatch(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
/* Likewise. false: the call cannot go on (ranks disagree, and the group will end for it). */
bool collet_leader_decide(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
/* Has the GPU done it? If it has failed, the group has ended. */
bool collet_leader_is_complete(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
/* Nothing of it is in use any more. */
void collet_leader_release(struct collet_shared_gpu *shared_gpu, struct shared_call *call);

/* ---- shared_gpu_connect.c */
/* Do all ranks find what the leader's launch makes of their memory right? *fine false: no, and the leader has said why.
 * Blocks. COLLET_ERR_*: the group has ended. */
collet_status collet_shared_gpu_connect(struct collet_shared_gpu *shared_gpu, bool *ok);

#endif
