/* Device collectives: collectives of ranks that each have a GPU, all accessible to each other, or that share one as
 * threads of a process. Each rank launches one kernel, which executes the rank's steps and writes messages into its
 * peers' windows (cuda/kernels/plan_kernel.h).
 *
 * Kernels on a shared GPU wait for each other. So all their blocks must be resident at the same time, and nothing may
 * make the driver run them one after the other (cuda/peer_gpus/co_resident.h). What can be known is checked when the
 * communicator is created, and tested. If it does not hold, a leader does all calls (cuda/shared_gpu/shared_gpu.h);
 * large ones it does in any case.
 *
 * Windows are allocated, exported to all peers and tested when the communicator is created. From then on a launch needs
 * nothing of other ranks but their launch of the same call: no buffers are exchanged, and nothing is negotiated. So it
 * can be put on an application's stream, or captured, without a thread that waits. Nor is the call path negotiated: all
 * calls that a kernel can do take this one, whatever memory they use.
 *
 * Launches of a rank run in the order of its calls, one after the other, on whatever streams. They continue to count
 * messages where the previous launch stopped. Within a capture, its launches are ordered; the application orders the
 * launches of graphs. */
#ifndef COLLET_CUDA_PEER_GPUS_DEVICE_COMM_H
#define COLLET_CUDA_PEER_GPUS_DEVICE_COMM_H

#include "cuda/driver/device.h"
#include "cuda/peer_gpus/co_resident.h"
#include "cuda/peer_gpus/kernel_plan.h"

struct collet_comm_state;
struct collet_device_comm;

/* If a leader can do calls too, it does those whose messages and blocks exceed this size. Its one launch for all ranks
 * reads and writes each element once, which is the minimum. Through windows everything is read and written twice, by as
 * few blocks as others leave. But a leader must first hear from all ranks through the host, which takes longer than a
 * whole small call. Measured with two threads on an H200: 59 us of 75 at 4 KiB, 89 of 76 at 16 KiB. */
static const uint64_t COLLET_DEVCOLL_MAX_BYTES = UINT64_C(8) << 10;

/* How many channels share a call, from the model of the link between the GPUs (cuda/gpu_cost.h). The same on all
 * ranks. */
struct collet_channel_limits {
	uint32_t max_per_part;       /* per part: enough to saturate the link */
	/* Least bytes of a call for each of them: sending less takes less time than a flag. */
	uint32_t bytes_per_channel;
};

/* All-gathers bytes through the host during setup, by rank. Blocks. */
struct collet_host_exchange {
	collet_status (*run)(void *context, const void *own, void *all, size_t bytes);
	void *context;
};

/* True if these ranks may use device collectives; all compute the same. */
bool collet_device_comm_is_possible(const struct collet_comm_state *state);
/* Sets up a communicator for which they are possible; all ranks call it together. has_leader: a leader does larger
 * calls. If *made is NULL, calls take other paths; all ranks know, and those with the problem have logged why.
 * COLLET_ERR_*: the status of the exchange. */
COLLET_MUST_USE collet_status collet_device_comm_create(struct collet_device_comm **made, struct collet_device *device,
	struct collet_comm_state *state, bool has_leader, struct collet_channel_limits limits,
	const struct collet_host_exchange *exchange);
/* NULL if no ranks share a GPU. */
struct collet_co_resident *collet_device_comm_co_resident(const struct collet_device_comm *device_comm);
/* Makes running kernels end at their next wait, and later ones at once. NULL is allowed. */
void collet_device_comm_abort(struct collet_device_comm *device_comm);
/* Called after an abort, when the communicator is destroyed. As soon as nothing runs here, tells the other ranks'
 * kernels that this rank has left. A launch that is still queued on its stream after a second is not waited for: it
 * ends when it starts. */
void collet_device_comm_leave(struct collet_device_comm *device_comm);
/* Waits until nothing runs. Returns false if something may still run after 10 s, or a fault has broken the context,
 * which then frees nothing. In both cases everything stays allocated, and so does the device. NULL is allowed. */
bool collet_device_comm_destroy(struct collet_device_comm *device_comm);
/* For a forked child. */
void collet_device_comm_atfork_child(struct collet_device_comm *device_comm);

/* One rank's part of a call. The rank's GPU can access the buffers. */
struct collet_devcoll_call {
	const struct collet_program *program;
	struct collet_shape shape;           /* positions are ranks */
	bool is_vector;
	bool is_wide;                        /* an average of narrow floats whose sums are f32: so are messages */
	struct collet_plan_options options;
	collet_dtype dtype;
	collet_op op;                        /* COLLET_OP_COUNT if nothing is combined */
	double scale;
	cu_pointer input, result;
	uint64_t input_bytes, result_bytes;
	int64_t timeout_ns;                  /* limit of the kernel's waits, counted from its start; < 0: none */
	uint64_t signature;                  /* the same on all ranks of the call; 0: not checked */
	uint64_t ticket;                     /* see collet_device_comm_completed(); 0: not reported */
};

/* The stream of a launch. Its context must be current. */
struct collet_launch_target {
	cu_stream stream;
	uint64_t capture;                    /* id of the capture that it is part of; 0: none */
};

/* Says how a call of this many bytes is divided; the same on all ranks. segment_bytes and channels are 0 for the
 * default. */
struct collet_plan_options collet_device_comm_options(const struct collet_device_comm *device_comm,
	const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes, uint64_t bytes,
	uint32_t segment_bytes, uint32_t channels);
/* A kernel plan on the GPU. */
struct collet_device_plan;
/* Keeps the plan until a later launch, or (is_reserved false) no longer. */
void collet_device_plan_reserve(struct collet_device_plan *plan, bool is_reserved);
/* Builds the kernel plan of a call, or finds it, for launching. COLLET_ERR_UNSUPPORTED: no rank's kernel can do this
 * call. COLLET_ERR_MEMORY, COLLET_ERR_SYSTEM. Waits for a short copy to the GPU if the plan is new. */
COLLET_MUST_USE collet_status collet_device_comm_prepare(struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, struct collet_device_plan **plan);
COLLET_MUST_USE collet_status collet_device_comm_launch(struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, struct collet_device_plan *plan,
	const struct collet_launch_target *target);

/* The copy stream whose context all launches use; and a stream there that belongs to no application. */
const struct collet_copy_stream *collet_device_comm_copy_stream(const struct collet_device_comm *device_comm);
cu_stream collet_device_comm_stream(const struct collet_device_comm *device_comm);
/* The highest ticket whose launch has ended; tickets grow from launch to launch. */
uint64_t collet_device_comm_completed(const struct collet_device_comm *device_comm);
/* True if all launches that are not a graph's have ended, or the context is gone. */
bool collet_device_comm_is_idle(struct collet_device_comm *device_comm);
/* COLLET_ERR_SYSTEM: a fault has broken the context, so launches report nothing any more. Queries the driver, which
 * takes a microsecond. */
COLLET_MUST_USE collet_status collet_device_comm_check_fault(struct collet_device_comm *device_comm);
/* What a kernel reports about a rank: it has waited too long for it, the rank was launched for another call, or it has
 * left without the call. */
enum collet_device_error {
	COLLET_DEVICE_OK,
	COLLET_DEVICE_TIMEOUT,
	COLLET_DEVICE_MISMATCH,
	COLLET_DEVICE_PEER_LEFT
};
enum collet_device_error collet_device_comm_async_error(const struct collet_device_comm *device_comm, uint32_t *rank);

#endif
