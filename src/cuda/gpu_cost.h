/* What a call on a GPU's memory takes, by the model: the links that it crosses, and how finely it is cut for them.
 *
 * The network's and the host's are the tuning's (selection/tuning.h). A GPU's are its too, of a link called "cuda"
 * where the tuning has one, else figures from data sheets, which nobody has measured:
 *	latency		of a copy or a launch, from its being asked for to its being known to have ended: 10 us
 *	message		of each further one behind it: 2 us
 *	byte		copied between the GPU and page-locked memory: 25 GB/s, of PCIe 4.0 with 16 lanes
 *	reduce_byte	read or written in the GPU's memory by a kernel: 1500 GB/s, of HBM2e
 *
 * Kernels that tell each other are a link of their own, "cuda_ipc" (collet_gpu_kernel_link()). */
#ifndef COLLET_CUDA_GPU_COST_H
#define COLLET_CUDA_GPU_COST_H

#include "cuda/path_rules.h"
#include "cuda/peer_gpus/device_comm.h"

struct collet_gpu_link {
	double latency_s, message_s, copy_byte_s, memory_byte_s; /* the four above, in seconds */
	bool is_measured;
};

/* Alike on all ranks. */
struct collet_gpu_link collet_gpu_copy_link(const struct collet_context *context);
/* What is copied piece by piece, while a call runs, is in pieces of so many bytes: the shorter, the earlier the first
 * one is there and the less is left to do behind the last; the more of them, the more starts. S bytes in pieces of p
 * take S/p message + 2 p byte beside what no cut changes, which is least where p^2 = S message / (2 byte). */
size_t collet_gpu_cell_bytes(const struct collet_gpu_link *link, size_t bytes);
/* A buffer from which on that is worth it: where it halves the 2 S byte that whole copies add to a call, for it is work
 * for the processor too, which does not sleep while pieces are under way. S = 8 message / byte. */
size_t collet_gpu_pipelined_min(const struct collet_gpu_link *link);

/* What messages between kernels take: a link of the model as any other, the tuning's if it has one called "cuda_ipc".
 * Else it is reasoned, and nobody has measured it:
 *	latency		until a flag that has been set in another GPU's memory is seen there: 1.5 us
 *	message, piece	of a lane, for each: a fence and a flag, 0.3 us
 *	byte		up to 4 KiB flags go between the bytes, 10 GB/s; then what a lane moves, 20 GB/s; of several
 *			lanes, 60 GB/s; beyond 256 KiB what NVLink 3 gives, 200 of its 300 GB/s
 *	reduce_byte	1500 GB/s, as above
 *	pieces		those of all lanes together, which move them at the same time: up to 4 MiB
 * Alike on all ranks; lives as long as the context. */
const collet_link_cost *collet_gpu_kernel_link(const struct collet_context *context, bool *measured);

/* How many lanes share a call of the kernels, by that link. One lane moves what the second byte says, all of them what
 * the last one says: so many fill it as the one takes times as long (as reasoned, 10). And a lane is worth having where
 * its share takes longer than a message does that is empty: S / lanes byte[1] = latency + message (35 KiB). */
struct collet_channel_limits collet_gpu_channel_limits(const collet_link_cost *link);

/* The time of a call, and what it would be of each link alone. In pieces they work at the same time. */
struct collet_gpu_cost {
	double total_s, copies_s, memory_s, messages_s;
	bool is_measured;            /* by links that the tuning has */
};

/* Of a call that goes this way (collet_path_name()), planned so. false: it goes none. */
bool collet_gpu_cost_of(const collet_comm *comm, const struct collet_path_query *call, const char *path,
	struct collet_segmentation cut, struct collet_gpu_cost *cost);

/* Fills what a plan says of a call on GPU memory. The query names the program, cut its segmentation. */
void collet_gpu_plan(const collet_comm *comm, const struct collet_path_query *query, struct collet_segmentation cut,
	collet_plan *plan);

#endif
