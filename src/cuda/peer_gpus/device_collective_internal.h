/* What device_collective.c and device_collective_buffers.c know of each other. */
#ifndef COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_INTERNAL_H
#define COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_INTERNAL_H

#include <stdatomic.h>

#include "api/comm.h"
#include "cuda/peer_gpus/device_collective.h"
#include "cuda/peer_gpus/device_comm.h"

/* A buffer of a call. */
struct executed_side {
	char *first;
	size_t bytes;                       /* 0: the rank does not use it */
	bool away;                          /* the GPU does not reach it: `pinned` stands for it */
	const struct collet_copier *copier; /* away: another GPU's; NULL: the host's */
	char *pinned;
	cu_pointer gpu; /* where the kernel has it */
};

struct executed_part {
	size_t offset, bytes;
};

/* A call of which something is left to be done, or kept. */
struct executed {
	struct executed *next;
	struct collet_executions *executions;
	struct collet_request *request; /* NULL: it is on a stream, or has ended */
	struct collet_executor_call call;
	struct collet_executor_tape *tape;
	uint64_t ticket; /* 0: it is on a stream, or has not been launched */
	uint64_t number; /* among those that this rank, and all others, has made; see cuda/peer_gpus/co_resident.h */
	struct executed_side sides[COLLET_SIDES];
	struct collet_pinned *blocks[COLLET_SIDES];
	struct executed_part *parts; /* of what is written, v-forms; NULL: all of it is */
	uint32_t part_count;
	bool captured;      /* it stays */
	bool lost;          /* likewise: the driver failed twice, and nobody will say that the stream has passed */
	atomic_bool passed; /* by the stream, which uses nothing of it any more */
};

/* A communicator's. */
struct collet_executions {
	collet_comm *comm;
	struct collet_context *context; /* which outlives it where streams have not passed, */
	struct collet_executions *next_kept; /* and has this then */
	struct collet_progress_hook hook;
	struct collet_executor *executor;
	struct collet_together *together; /* NULL: no ranks share a GPU */
	/* A leader does larger calls. Of those that are ranged by when their streams come to them nobody knows how they
	 * lie among these, which are by when they are made: so these have no number in the communicator, but among
	 * themselves. */
	bool led;
	struct collet_choice_inputs inputs; /* what calls that are done here are chosen by */
	struct collet_choice_table table;
	struct collet_recorder apart; /* of these, by their own numbers; where there is a leader */
	uint64_t tickets;		  /* given out */
	bool asked;			  /* who disagrees; under the engine's lock */
	uint32_t looks;			  /* at what is pending; likewise */
	struct executed *pending, **last; /* requests, in order; under the engine's lock */
	struct executed *passing;         /* of streams, whose memory they may use */
};

/* ---- device_collective.c */
/* It has its place among the communicator's calls, or its own; number: what collet_together_call() has given it, if
 * there is that. Under the engine's lock. */
void executed_begin(struct collet_executions *executions, struct collet_request *request, uint64_t number);

/* ---- device_collective_request.c */
extern const struct collet_progress_hooks executed_hooks;
/* Its call, tape and sides are there. *followed: it has taken both over. */
collet_status executed_run_own(struct collet_executions *executions, struct executed *executed,
	struct collet_request *request, const collet_how *how, bool *followed);
/* Whatever waits for its turn does so no more. */
void executed_launch_all(struct collet_executions *executions);

/* ---- device_collective_stream.c */
/* Where a call is made: the executor's context is the thread's until it leaves, and what is made meanwhile spoils
 * nobody's capture. stream NULL: on none. */
struct executed_place {
	const struct collet_cuda *cuda;
	struct collet_executor_place at;
	int mode; /* the thread's, of capturing, before */
};
collet_status executed_enter(struct collet_executions *executions, void *stream, struct executed_place *place);
void executed_leave(struct executed_place *place);
/* Takes both over. */
collet_status executed_run_on_stream(struct collet_executions *executions, struct executed *executed,
	struct collet_request *request, const struct executed_place *place);
/* The memory of what streams have passed, of which graphs' stays until the end; all: this is it, and nothing runs. */
void executed_reap(struct collet_executions *executions, bool all);
void executed_keep(struct collet_executions *executions, struct executed *executed);

/* ---- device_collective_buffers.c */
/* Where the buffers are; those away get page-locked memory. In the executor's context. */
collet_status executed_find(
	struct executed *executed, const char *function, const struct collet_side sides[COLLET_SIDES]);
/* The result's blocks alone are written. COLLET_ERR_MEMORY. */
collet_status executed_list(
	struct executed *executed, size_t element_bytes, uint32_t size, const struct collet_partition *cut);
bool executed_is_away(const struct executed *executed);
/* At once. */
collet_status executed_copy_in(const struct executed *executed);
collet_status executed_copy_out(const struct executed *executed);
/* By a stream, whose context is current. */
collet_status executed_enqueue_in(struct executed *executed, cu_stream stream);
collet_status executed_enqueue_out(struct executed *executed, cu_stream stream);
/* In place of the rest, which the driver has refused: that the stream has passed what it has. */
collet_status executed_enqueue_passed(struct executed *executed, cu_stream stream);
/* Nothing uses its memory any more. */
void executed_free(struct executed *executed);

#endif
