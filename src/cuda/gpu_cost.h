/* Predicts the time of a call on GPU memory, from the links that it crosses and how finely it is segmented for them.
 *
 * Links of the network and the host are the tuning's (selection/tuning.h). So are those of a GPU, if the tuning has a
 * link called "cuda". If not, these figures from data sheets are used, which nobody has measured:
 *	latency		of a copy or a launch, from the request to the moment that its end is known: 10 us
 *	message		of each further one behind it: 2 us
 *	byte		copied between the GPU and page-locked memory: 25 GB/s, PCIe 4.0 with 16 lanes
 *	reduce_byte	read or written in the GPU's memory by a kernel: 1500 GB/s, HBM2e
 *
 * Messages between kernels are a link of their own, "cuda_ipc" (collet_gpu_kernel_link()). */
#ifndef COLLET_CUDA_GPU_COST_H
#define COLLET_CUDA_GPU_COST_H

#include "cuda/path_rules.h"
#include "cuda/peer_gpus/device_comm.h"

struct collet_gpu_link {
	double latency_s, message_s, copy_byte_s, memory_byte_s; /* the four above, in seconds */
	bool is_measured;
};

/* Returns the link between a GPU and the host. Alike on all ranks. */
struct collet_gpu_link collet_gpu_copy_link(const struct collet_context *context);
/* Returns the size of cells in which a buffer is copied while its call runs. Shorter cells arrive earlier, and leave
 * less to copy after the last; but more cells are more copies. S bytes in cells of p take S/p message + 2 p byte,
 * besides what no size changes. That is least where p^2 = S message / (2 byte). */
size_t collet_gpu_cell_bytes(const struct collet_gpu_link *link, size_t bytes);
/* Returns the size from which on a buffer is copied in cells: where that halves the 2 S byte that whole copies add to a
 * call. For it costs processor time too: no thread sleeps while copies are pending. S = 8 message / byte. */
size_t collet_gpu_pipelined_min(const struct collet_gpu_link *link);

/* Returns the link of messages between kernels, like any other of the model: the tuning's, if it has one named
 * "cuda_ipc". Else these estimates, which nobody has measured (a "piece" of a tuning file is a segment):
 *	latency		until another GPU sees a flag that was set in its memory: 1.5 us
 *	message, piece	of a channel, for each: a fence and a flag, 0.3 us
 *	byte		up to 4 KiB flags are between the bytes, 10 GB/s; then one channel moves 20 GB/s, and several
 *			60 GB/s; beyond 256 KiB it is 200 of NVLink 3's 300 GB/s
 *	reduce_byte	1500 GB/s, as above
 *	pieces		those of all channels together, which move them at the same time: up to 4 MiB
 * Alike on all ranks; lives as long as the context. */
const collet_link_cost *collet_gpu_kernel_link(const struct collet_context *context, bool *measured);

/* Returns how many channels share a call of the kernels, by that link. The second byte figure is the time of one
 * channel, the last that of all. The ratio of the two (10, as estimated) fills the link. A channel pays if its share
 * takes longer than an empty message: S / channels byte[1] = latency + message (35 KiB). */
struct collet_channel_limits collet_gpu_channel_limits(const collet_link_cost *link);

/* The predicted time of a call, and that of each link alone. In a pipelined call the links work at the same time. */
struct collet_gpu_cost {
	double total_s, copies_s, memory_s, messages_s;
	bool is_measured; /* all links are the tuning's */
};

/* Predicts a call that takes this path (collet_path_name()), segmented so. Returns false if path is NULL. */
bool collet_gpu_cost_of(collet_comm *comm, const struct collet_path_query *call, const char *path,
	struct collet_segmentation segmentation, struct collet_gpu_cost *cost);

/* Fills what a plan says of a call on GPU memory. The query names the program; cut is its segmentation. */
void collet_gpu_plan(collet_comm *comm, const struct collet_path_query *query,
	struct collet_segmentation segmentation, collet_plan *plan);

#endif
