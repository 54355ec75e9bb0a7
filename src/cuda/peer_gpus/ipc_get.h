/* Gets long messages between ranks of one host directly from GPU to GPU. The sender sends a descriptor of its buffer.
 * The receiver maps the buffer, if it can, copies it to its own, and reports when it is done.
 *
 * Before the first message, the receiver checks that it reads the peer's memory correctly. Each rank has some memory
 * with its own pattern, which is copied in the same way and compared. On some machines a mapping reads the wrong
 * memory, without any error. If something fails, messages are staged through the host, with one line in the log for
 * each pair. */
#ifndef COLLET_CUDA_PEER_GPUS_IPC_GET_H
#define COLLET_CUDA_PEER_GPUS_IPC_GET_H

#include "cuda/shared_gpu/shared_gpu.h"

struct collet_engine;

/* Describes a sender's buffer; travels as plain bytes. */
struct collet_ipc_get_descriptor {
	struct collet_buffer_info buffer;    /* COLLET_BUFFER_UNUSED: no rank can get it */
	struct collet_ipc_handle test;       /* in the same context; starts with the sender's pattern */
};

/* State of a context; NULL until it is needed. Needs the engine's lock, except for driver calls in describe and
 * destroy. */
struct collet_ipc_get;

/* True if messages between this rank and the other may be got, by their peer infos; both compute the same. Ranks are of
 * the world. */
bool collet_ipc_get_is_possible(const struct collet_engine *engine, uint32_t rank);
/* Describes a buffer in the copy stream's context, in the allocation with this driver number. The receiver of a message
 * calls it too, to create its test buffer. Takes the lock itself. Failure is no error: the descriptor says so. */
void collet_ipc_get_describe(struct collet_device *device, struct collet_engine *engine,
	struct collet_copy_stream *copy_stream, uint64_t allocation, const void *first, size_t bytes,
	struct collet_ipc_get_descriptor *descriptor);
/* Called before the descriptor is sent to the rank. Returns false if it must not be sent. */
bool collet_ipc_get_export(struct collet_device *device, const struct collet_engine *engine, uint32_t to,
	const struct collet_ipc_get_descriptor *descriptor);
/* The rank has lost the file descriptor; it is sent again. */
void collet_ipc_get_reexport(
	struct collet_device *device, uint32_t to, const struct collet_ipc_get_descriptor *descriptor);
/* This rank has freed memory: tells the peers that have its descriptor. */
void collet_ipc_get_notify_freed(
	struct collet_device *device, const struct collet_engine *engine, const struct collet_ipc_handle *handle);
/* Returns the address of the peer's buffer in the copy stream's context; *mapping is as for
 * collet_device_map_peer_buffer(). Returns NULL if it cannot be mapped, and logs why once a pair. *must_resend: it may
 * succeed if the sender sends its descriptor again. */
char *collet_ipc_get_map(struct collet_device *device, const struct collet_engine *engine, uint32_t from,
	const struct collet_copy_stream *copy_stream, const struct collet_ipc_get_descriptor *descriptor,
	struct collet_ipc_mapping **mapping, bool *must_resend);
void collet_ipc_get_destroy(struct collet_device *device);

#endif
