/* Collectives of ranks that each have a GPU of their own, within reach of each other, or share one as threads of a
 * process: every rank launches one kernel, which runs the rank's steps and pushes its messages into the windows of the
 * others (cuda/kernels/plan_kernel.h).
 *
 * On a GPU that is shared kernels wait for each other, so there must be room for all of their blocks at the same time,
 * and nothing that has the driver run one after the other (cuda/peer_gpus/co_resident.h). What can be known of that is
 * looked at when the communicator is made, and tested; then a leader does small calls only where it does not hold
 * (cuda/shared_gpu/shared_gpu.h), and the large ones in any case.
 *
 * Windows are made and shown to all when the communicator is, and tested. From then on a launch needs nothing of any
 * other rank but its own launch of the same call: no buffer is exchanged and nothing is agreed on. So it may be put on
 * a program's stream, or captured, without a thread that waits for anybody; and which way a call goes is nobody's to
 * decide: all of the communicator's calls that a kernel can do go this way, whatever memory they are on.
 *
 * Launches of a rank are in the order of its calls, each after the last one's end, on whatever streams: they go on
 * counting messages where the last one stopped. In a capture, those of the same capture are; launches of graphs, the
 * program orders. */
#ifndef COLLET_CUDA_PEER_GPUS_DEVICE_COMM_H
#define COLLET_CUDA_PEER_GPUS_DEVICE_COMM_H

#include "cuda/driver/device.h"
#include "cuda/peer_gpus/co_resident.h"
#include "cuda/peer_gpus/kernel_plan.h"

struct collet_comm_state;
struct collet_device_comm;

/* Where a leader can do calls, too, it does those of more bytes, of messages and blocks. One launch for all ranks reads
 * and writes each rank's elements once, which is the least there is; what goes by way of windows is read and written
 * twice, by as few blocks as others leave room for. A leader must first hear of all ranks, though, by way of the host,
 * and that takes longer than all of a small call. */
static const uint64_t COLLET_DEVCOLL_MAX_BYTES = UINT64_C(256) << 10;

/* How many lanes share a call of the kernels, by what the model knows of the link between them (cuda/gpu_cost.h). Alike
 * on all ranks. */
struct collet_channel_limits {
	uint32_t max_per_part;       /* of a part: they carry what the link does */
	uint32_t bytes_per_channel;  /* of a call, for each of them: less is under way for a shorter time than a flag */
};

/* How ranks tell each other while theirs are made: bytes of each, to all, by rank. Blocks. */
struct collet_host_exchange {
	collet_status (*run)(void *context, const void *own, void *all, size_t bytes);
	void *context;
};

/* May these ranks go this way? Alike on all of them. */
bool collet_device_comm_is_possible(const struct collet_comm_state *state);
/* Of a group that does; all ranks at once. led: larger calls go by a leader. *made NULL: they go other ways, as all of
 * them know, and whoever it is for has logged why. COLLET_ERR_*: what the exchange came to. */
COLLET_MUST_USE collet_status collet_device_comm_create(struct collet_device_comm **made, struct collet_device *device,
	struct collet_comm_state *state, bool has_leader, struct collet_channel_limits limits,
	const struct collet_host_exchange *exchange);
/* Of ranks some of which share a GPU; else NULL. */
struct collet_co_resident *collet_device_comm_co_resident(const struct collet_device_comm *device_comm);
/* What is launched leaves as soon as it waits, and what is launched later at once. NULL is fine. */
void collet_device_comm_abort(struct collet_device_comm *device_comm);
/* It has been stopped because its communicator is destroyed: tells the others' kernels, which wait for this rank, as
 * soon as nothing runs here any more. What is still behind something else on its stream after a second leaves when it
 * begins: that is not waited for. */
void collet_device_comm_leave(struct collet_device_comm *device_comm);
/* Waits until nothing runs any more. false: after 10 s something may, or a fault has broken its context, which frees
 * nothing any more: what it uses stays, and the device is kept. NULL is fine. */
bool collet_device_comm_destroy(struct collet_device_comm *device_comm);
/* In a forked child. */
void collet_device_comm_forget(struct collet_device_comm *device_comm);

/* One rank's part of a call. Buffers are within the reach of its GPU. */
struct collet_devcoll_call {
	const struct collet_program *program;
	struct collet_shape shape;           /* positions are ranks */
	bool is_vector;                      /* a v-form */
	struct collet_plan_options options;
	collet_dtype dtype;
	collet_op op;                        /* COLLET_OP_COUNT: it combines nothing */
	double scale;
	cu_pointer input, result;
	uint64_t input_bytes, result_bytes;
	int64_t timeout_ns;                  /* of the kernel's waits, from its beginning; < 0: none */
	uint64_t signature;                  /* that all ranks' of the call have; 0: nobody looks */
	uint64_t ticket;                     /* see collet_device_comm_completed(); 0: nobody asks */
};

/* The stream that a launch is put on, whose context is current. */
struct collet_launch_target {
	cu_stream stream;
	uint64_t capture;                    /* that it is part of; 0: none */
};

/* How a call of this many bytes is cut, alike on all ranks; piece_bytes and channels 0: as this likes. */
struct collet_plan_options collet_device_comm_options(const struct collet_device_comm *device_comm,
	const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes, uint64_t bytes,
	uint32_t segment_bytes, uint32_t channels);
/* Could it be launched? COLLET_ERR_UNSUPPORTED: no kernel can do it, on any rank. Else its tape is laid down and there
 * to be launched; COLLET_ERR_MEMORY, COLLET_ERR_SYSTEM. Waits for a short copy to the GPU if it is the first of its
 * kind. */
struct collet_device_plan;
/* Of a launch that comes later: the tape is kept until then. */
void collet_device_plan_reserve(struct collet_device_plan *plan, bool is_reserved);
COLLET_MUST_USE collet_status collet_device_comm_prepare(struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, struct collet_device_plan **plan);
COLLET_MUST_USE collet_status collet_device_comm_launch(struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, struct collet_device_plan *plan,
	const struct collet_launch_target *target);

/* In whose context all is launched; and a stream there, of no program's. */
const struct collet_copy_stream *collet_device_comm_copy_stream(const struct collet_device_comm *device_comm);
cu_stream collet_device_comm_stream(const struct collet_device_comm *device_comm);
/* The highest ticket whose launch has ended; tickets rise from launch to launch. */
uint64_t collet_device_comm_completed(const struct collet_device_comm *device_comm);
/* Have all launches ended that are not a graph's, or the context with them? */
bool collet_device_comm_is_idle(struct collet_device_comm *device_comm);
/* COLLET_ERR_SYSTEM: a fault has broken the context, and no launch says anything any more. It asks the driver, which
 * takes a microsecond. */
COLLET_MUST_USE collet_status collet_device_comm_check_fault(struct collet_device_comm *device_comm);
/* What a kernel has left to be told, and of which rank: it has waited too long for it, or that one was launched for
 * another call, or has left without the call. */
enum collet_device_error {
	COLLET_DEVICE_OK,
	COLLET_DEVICE_TIMEOUT,
	COLLET_DEVICE_MISMATCH,
	COLLET_DEVICE_PEER_LEFT
};
enum collet_device_error collet_device_comm_async_error(const struct collet_device_comm *device_comm, uint32_t *rank);

#endif
