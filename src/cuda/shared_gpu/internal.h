/* What the files that shared_gpu.h is about know of each other: shared_gpu.c (a communicator's part), members.c,
 * shared_gpu_connect.c, shared_gpu_call.c, call_descriptor.c, export_to_leader.c, leader.c, shared_gpu_progress.c. */
#ifndef COLLET_CUDA_SHARED_GPU_INTERNAL_H
#define COLLET_CUDA_SHARED_GPU_INTERNAL_H

#include "cuda/driver/exported_handles.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/shared_gpu/span_plan.h"

/* What a rank offers; travels as it is. A v-form's counts and displacements follow: of the input, then of the result,
 * one for each rank of the group, zeros where it knows none. */
struct offer {
	uint64_t signature, sequence;
	uint64_t input_count, result_count;  /* a v-form: of the own block */
	uint32_t input_listed, result_listed;
	uint32_t fine;               /* connecting: it has no complaint */
	uint32_t notes;              /* that it has sent to the leader's desk so far, or tried to */
	uint32_t declined;           /* its buffers are the host's: it awaits no verdict */
	uint32_t word;               /* by which the GPU may tell its stream that it is done; 0: its host must */
	double scale;
	struct collet_direct_side side[2];
};

struct verdict {
	uint32_t staged;             /* it goes by way of the host */
	uint32_t again;              /* descriptors that have been sent are to be sent again */
	uint32_t ordered;            /* the GPU is at it, and tells streams when it is done (see completion_flags.h) */
};

/* What is called, of which all ranks know the same. */
struct job {
	enum collet_collective collective;
	bool listed;
	bool between_hosts;          /* the launch does one host's part of the program that was planned */
	bool any_order;              /* the launch's order of operands will do */
	collet_dtype dtype;
	collet_op op;                /* COLLET_OP_COUNT: it combines nothing */
	uint32_t root;
	uint64_t count;
	uint64_t signature, sequence;
};

enum stage {
	GATHERING,                   /* leader: offers come */
	RUNNING,                     /* leader: the GPU works */
	SHARING,                     /* leader: so do other hosts */
	TELLING,                     /* leader: verdicts leave */
	WAITING,                     /* follower: its offer leaves, and, unless it declines, a verdict comes */
	OVER
};

struct call {
	struct call *next;
	struct collet_request *request;      /* NULL: connecting */
	struct job job;
	struct collet_direct_sides sides;
	enum stage stage;
	bool shared;                 /* between hosts: its request is done with, or on its own, since it was decided */
	bool over;                   /* SHARING: this host's part of it is */
	bool surprising;             /* that it goes by way of the host: something has failed */
	bool suspected;              /* a disagreement has been reported */
	uint32_t launch;             /* leader: its number among the ordered */
	struct verdict verdict;
	struct collet_request **messages;    /* under way; leader: by rank, follower: two */
	char *offers;                /* leader: by rank, direct->offer_bytes each; follower: its own */
	struct collet_opened **opened;       /* leader: two a rank */
};

struct collet_direct {
	struct collet_device *device;
	struct collet_comm_state *group;
	/* Those who go together, by their places among them: all of the group, or those of this rank's host, in order
	 * of rank. The first leads. */
	uint32_t size, place;
	uint32_t *members;           /* by place: rank in the group */
	bool by_host;
	struct collet_comm_state shadow;
	struct collet_progress_hook hook;    /* in the group's list */
	const struct collet_direct_events *events;
	struct collet_copier *copier;        /* of the context that all is done in */
	const struct collet_kernel_set *kernels; /* leader */
	cu_stream stream;                    /* leader: its launches' own */
	size_t offer_bytes;          /* at most */
	bool one_gpu;                /* which all of them share; else each has whichever it has */
	bool beside_leader;          /* in its process, on its GPU: nothing of this rank's has to be opened */
	struct call *first, **last;  /* undecided, in order */
	struct call *spare;
	struct collet_order order;
	struct collet_span_plan plan;     /* leader */
	struct collet_span_plan_rank *ranks;      /* leader */
	struct collet_shown shown;           /* to the leader */
	uint32_t *seen;              /* leader: by rank, the notes of which it has looked at its desk */
	bool connecting;
};

static inline bool is_leader(const struct collet_direct *direct)
{
	return direct->place == 0;
}

static inline struct offer *offer_of(const struct collet_direct *direct, const struct call *call, uint32_t rank)
{
	return (struct offer *)(void *)(call->offers + rank * direct->offer_bytes);
}

/* ---- shared_gpu_call.c. Under lock. */
/* One for a call of this rank's; NULL: no memory. */
struct call *collet_direct_new(struct collet_direct *direct);
void collet_direct_put(struct collet_direct *direct, struct call *call);
/* Its job, sides and own offer are filled in. COLLET_ERR_MEMORY. */
collet_status collet_direct_offer(struct collet_direct *direct, struct call *call, size_t bytes);
/* The tag of the call's offers; that of its verdicts is one more. */
uint32_t collet_direct_tag(const struct call *call);
/* A message with the member in that place; NULL: the group has ended. */
struct collet_request *collet_direct_post(
	struct collet_direct *direct, bool sends, uint32_t place, uint32_t tag, void *buffer, size_t bytes);
/* Have all messages of the call arrived, or left? */
bool collet_direct_messages_ended(const struct collet_direct *direct, const struct call *call);
/* NULL is fine. */
void collet_direct_free_call(struct call *call);

/* ---- shared_gpu_progress.c */
extern const struct collet_progress_hooks collet_direct_hooks;

/* ---- members.c */
/* Fills in members, size, place and what they have in common. COLLET_ERR_MEMORY. */
collet_status collet_direct_find_members(struct collet_direct *direct);

/* ---- export_to_leader.c. Under lock. */
/* The leader must have a descriptor before it gets the offer. COLLET_PENDING: it has no room. */
collet_status collet_direct_show(struct collet_direct *direct, const struct collet_shared *shared);
/* What is no more, and was owed. */
void collet_direct_tell_owed(struct collet_direct *direct);

/* ---- leader.c. Under lock. */
/* All offers have come. Are they for the same call? If not, the group will end for it. */
bool collet_leader_agrees(struct collet_direct *direct, struct call *call);
/* Likewise. false: the call cannot go on (ranks disagree, and the group will end for it). */
bool collet_leader_decide(struct collet_direct *direct, struct call *call);
/* Has the GPU done it? If it has failed, the group has ended. */
bool collet_leader_finished(struct collet_direct *direct, struct call *call);
/* Nothing of it is in use any more. */
void collet_leader_release(struct collet_direct *direct, struct call *call);

/* ---- shared_gpu_connect.c */
/* Do all ranks find what the leader's launch makes of their memory right? *fine false: no, and the leader has said why.
 * Blocks. COLLET_ERR_*: the group has ended. */
collet_status collet_direct_connect(struct collet_direct *direct, bool *fine);

#endif
