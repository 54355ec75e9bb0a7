/* Declares what the library does with GPUs, as a table of functions. src/cuda fills it in, and api reaches GPUs through
 * it alone. A build without src/cuda has no table, and then all memory is the host's.
 *
 * context->gpu and comm->gpu belong to src/cuda, and are opaque to api. They are NULL without a table, without a driver
 * and in a communicator that has not been opened. api calls a function on a context only if context->gpu is set, and
 * one on a communicator only if comm->gpu is. So a call on host memory costs one load and a branch. context_open and
 * comm_open are called whenever there is a table. Every member is set. */
#ifndef COLLET_API_OFFLOAD_H
#define COLLET_API_OFFLOAD_H

#include <collet/tools.h>

#include "collectives/program.h"

struct collet_call_arguments;
struct collet_choice_inputs;
struct collet_choice_table;
struct collet_context;
struct collet_gpu_staging;
struct collet_p2p_op;
struct collet_recorder;
struct collet_segmentation;

/* One buffer of a call: 0 bytes if it is not used. */
struct collet_user_buffer {
	const void *first;
	size_t bytes;
};

enum { COLLET_SEND_BUFFER, COLLET_RECV_BUFFER, COLLET_USER_BUFFERS };

/* A collective whose arguments have been checked. */
struct collet_checked_call {
	struct collet_call_arguments *arguments;
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS];
	const struct collet_partition *vector; /* the only blocks of recv that are written; NULL if all of it is */
	const collet_how *how;                 /* NULL for the default */
};

/* Describes a call, as far as its call path depends on that. */
struct collet_path_query {
	enum collet_collective collective;
	collet_op op; /* COLLET_OP_COUNT if it does not reduce */
	collet_dtype dtype;
	const struct collet_shape *shape;
	const struct collet_program *program; /* that it is planned with */
	bool algorithm_named;                 /* the user named the program */
};

/* Holds the inputs of the choice of an algorithm, the same on all ranks. */
struct collet_choice_basis {
	const struct collet_choice_inputs *inputs;
	struct collet_choice_table *table;
	bool is_device;       /* kernels run the program, for which widening partial sums takes three launches more */
	bool is_hierarchical; /* unless the user names one, it is "hierarchical", by the communicator's inputs */
};

struct collet_offload {
	/* ---- Contexts */

	/* Opens the driver and sets context->gpu, before peer_info is sent. If no GPU can be used, context->gpu stays
	 * NULL and context->no_gpu_reason says why; that is COLLET_OK. */
	collet_status (*context_open)(struct collet_context *context);
	/* Frees context->gpu. Returns false if a GPU may still use memory of the context; nothing has been freed then.
	 * In a forked child it leaves the driver's objects to the parent. */
	bool (*context_close)(struct collet_context *context, bool is_forked);

	/* ---- Communicators. Destroying one calls drain, abort and close, in this order. */

	/* Sets comm->gpu and comm->has_gpu_leaders, as the last step of creating a communicator: blocks until ranks
	 * know what their GPUs can do together. On failure the caller ends the communicator, then calls abort and
	 * close. */
	collet_status (*comm_open)(collet_comm *comm);
	/* Ends the communicator if a kernel has reported an error. Any thread, not under lock. */
	void (*comm_check)(const collet_comm *comm);
	/* Waits until the host knows of all calls that GPUs have completed on streams. Not under lock. */
	void (*comm_drain)(collet_comm *comm);
	/* Starts no call any more and releases streams and kernels that wait. Under the engine's lock. */
	void (*comm_abort)(collet_comm *comm);
	/* Frees comm->gpu, after the communicator's state has been torn down. Returns false if streams may still use
	 * memory of the context, which the caller must not free. Not under lock. */
	bool (*comm_close)(collet_comm *comm);
	/* Frees comm->gpu in a forked child, in place of the three above. */
	void (*comm_atfork_child)(collet_comm *comm);

	/* ---- Calls. The caller is inside the communicator. */

	/* Runs a collective to its end, starts it (how->request, on_end) or enqueues it (how->stream), wherever its
	 * buffers are. May change the arguments and buffers of *call. */
	collet_status (*collective)(collet_comm *comm, struct collet_checked_call *call);
	/* Enqueues checked messages on how->stream. If that is NULL, waits until earlier calls on streams have started,
	 * and stages the buffers in GPU memory. ops then use host memory, and *staging must be handed to their request.
	 * *staging is NULL if nothing is staged. */
	collet_status (*p2p)(collet_comm *comm, const char *function, struct collet_p2p_op *ops, uint32_t count,
		collet_dtype dtype, const collet_how *how, struct collet_gpu_staging **staging);
	/* Stops a request's staging when the request has ended, or never starts. The request still exists. Under the
	 * engine's lock. */
	void (*staging_stop)(const struct collet_gpu_staging *staging);
	/* Frees staging, after staging_stop if there was a request; on COLLET_OK first copies the result to the GPU and
	 * waits for that. Returns status, or what the copy failed with. Under lock only with an error. */
	collet_status (*staging_end)(struct collet_gpu_staging *staging, collet_status status);

	/* ---- Planning */

	/* Returns the inputs of the choice of an algorithm. Pure. is_vector: a v-form. query->program is not read. */
	struct collet_choice_basis (*choice_basis)(
		collet_comm *comm, const struct collet_path_query *query, bool is_vector);
	/* Fills the gpu members of a plan. */
	void (*plan)(collet_comm *comm, const struct collet_path_query *query,
		struct collet_segmentation segmentation, collet_plan *plan);
	/* Returns the recorder of calls that are numbered out of band; NULL if there are none. */
	const struct collet_recorder *(*recorder)(const collet_comm *comm);

	/* ---- Memory */

	/* Allocates memory of the current GPU that ranks of this host can map. */
	collet_status (*mem_alloc)(struct collet_context *context, void **memory, size_t bytes);
	/* Frees memory of mem_alloc and sets *status. Returns false if it is other memory; nothing has happened then.
	 */
	bool (*mem_free)(struct collet_context *context, const void *memory, collet_status *status);
	/* Finds whether the memory is a GPU's, and then tells transports of it; that none can use it is no error.
	 * COLLET_ERR_ARGUMENT if it reaches past the end of its allocation. */
	collet_status (*mem_register)(struct collet_context *context, void *memory, size_t bytes, bool *is_gpu);
};

/* NULL in a build without src/cuda. */
extern const struct collet_offload *const collet_offload;
/* Of cuda/cuda_offload.c; only offload.c names it. */
extern const struct collet_offload collet_cuda_offload;

#endif
