/* Long messages between ranks of one host, from GPU to GPU. The sender announces where its buffer is; the receiver, if
 * it can get there, copies it to its own (pulls it), and says when that is done.
 *
 * Whether a rank reads right what another has it finds out before the first message: each has some memory with a
 * pattern of its own, which is copied the same way, and compared. On some machines a mapping reads beside what it
 * should, without any error. Where something is amiss messages go by way of the host, with one line of the log for each
 * pair. */
#ifndef COLLET_CUDA_PEER_GPUS_IPC_GET_H
#define COLLET_CUDA_PEER_GPUS_IPC_GET_H

#include "cuda/shared_gpu/shared_gpu.h"

struct collet_engine;

/* Where a sender's buffer is; travels as it is. */
struct collet_ipc_get_descriptor {
	struct collet_buffer_info buffer;    /* COLLET_BUFFER_UNUSED: nobody can pull from it */
	struct collet_ipc_handle test;       /* in the same context, with the sender's pattern at its start */
};

/* Of a context; NULL: it has none yet. Under the engine's lock, but for the driver's part of describe and deinit. */
struct collet_ipc_get;

/* May messages between this rank and that one, of the world, go so? As far as their cards tell; alike on both. */
bool collet_ipc_get_is_possible(const struct collet_engine *engine, uint32_t rank);
/* A buffer in the copier's context, of the driver's allocation of that number, for others; of the receiver of a message
 * it makes what that needs. It takes the lock itself. That it cannot be had is no error. */
void collet_ipc_get_describe(struct collet_device *device, struct collet_engine *engine,
	struct collet_copy_stream *copy_stream, uint64_t allocation, const void *first, size_t bytes,
	struct collet_ipc_get_descriptor *descriptor);
/* The rank is about to be told of it. false: it is not to be. */
bool collet_ipc_get_export(struct collet_device *device, const struct collet_engine *engine, uint32_t to,
	const struct collet_ipc_get_descriptor *descriptor);
/* It has lost the descriptor. */
void collet_ipc_get_reexport(
	struct collet_device *device, uint32_t to, const struct collet_ipc_get_descriptor *descriptor);
/* This rank's memory is no more: tells those who have been shown it. */
void collet_ipc_get_notify_freed(
	struct collet_device *device, const struct collet_engine *engine, const struct collet_ipc_handle *handle);
/* Where that rank's buffer is for the copier's context; *opened as of collet_device_map_peer_buffer(). NULL: nowhere,
 * and once a pair the log says why. *again: it may be another time, if its descriptor is sent again. */
char *collet_ipc_get_map(struct collet_device *device, const struct collet_engine *engine, uint32_t from,
	const struct collet_copy_stream *copy_stream, const struct collet_ipc_get_descriptor *descriptor,
	struct collet_ipc_mapping **mapping, bool *must_resend);
void collet_ipc_get_destroy(struct collet_device *device);

#endif
