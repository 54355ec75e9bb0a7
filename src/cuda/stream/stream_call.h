/* Enqueues calls on CUDA streams (how.stream): the stream executes them when it gets to them, and the caller does not
 * wait.
 *
 * A call enqueues five things on the stream: a copy of its input from the GPU to page-locked memory; a host function
 * that rings a doorbell; a wait for the flag `done`; a copy of the result to the GPU; a write of the flag `released`. A
 * thread of the communicator answers the doorbells. It runs the call on host memory, by requests like any other. It
 * sets `done` even if the call has failed, so that no stream waits for ever.
 *
 * Where ranks share a GPU nothing is copied: the leader gets the call when its doorbell has rung
 * (cuda/shared_gpu/shared_gpu.h), and the GPU may set `done` (cuda/shared_gpu/completion_flags.h). The stream does not
 * copy large collectives either: the thread copies them cell by cell, on streams of the library (staging_pipelined.h).
 *
 * All ranks must run the calls of a communicator in one order, but streams may ring in any. So calls start in the order
 * in which they were made: one that rings early waits until those before it have rung.
 *
 * A graph rings again at each launch. The calls that it has captured, with their requests, memory and flags, stay until
 * the communicator is destroyed. They start in the order of their capture, again at each launch. The doorbell itself
 * clears `done`, in the order of the stream, before it rings: so a wait never sees the value of an earlier launch. */
#ifndef COLLET_CUDA_STREAM_STREAM_CALL_H
#define COLLET_CUDA_STREAM_STREAM_CALL_H

#include "cuda/staging/gpu_staging.h"

/* Enqueues a checked call on how->stream. On COLLET_OK it is on the stream; if it fails later, that is the
 * communicator's error. COLLET_ERR_ARGUMENT, _UNSUPPORTED, _MEMORY, _SYSTEM: nothing has changed, unless the stream has
 * a part of the call already, which ends the communicator. */
collet_status collet_stream_enqueue_collective(collet_comm *comm, struct collet_call_arguments *call,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_partition *vector,
	const collet_how *how);
collet_status collet_stream_enqueue_p2p(collet_comm *comm, const char *function, const struct collet_p2p_op *ops,
	uint32_t count, collet_dtype dtype, const collet_how *how);

/* ---- stream_thread.c */

/* Waits until calls made on streams before have started, not until they have ended. A call without a stream comes after
 * them. If they do not start in time, the communicator ends. */
collet_status collet_streams_wait_started(collet_comm *comm, const char *function, const collet_how *how);

/* Destroying a communicator, first: waits until the host knows of calls that GPUs have told streams to be done. Else
 * other ranks would hear that this one left in the middle of a call. */
void collet_streams_drain(collet_comm *comm);
/* Then: no call starts any more, and streams that wait are released. Under the engine's lock. */
void collet_streams_close(collet_comm *comm);
/* Then, not under lock: waits until no stream uses anything of this communicator, and frees it. That takes as long as
 * the work that streams had before. Returns false if streams may still use the communicator's memory and context, which
 * are not freed: after COLLET_STREAMS_RELEASE_TIMEOUT_NS, if the driver has refused a call in the middle, or if a fault
 * has broken the context of a stream. */
bool collet_streams_free(collet_comm *comm);

#define COLLET_STREAMS_RELEASE_TIMEOUT_NS (INT64_C(10) * 1000 * 1000 * 1000)

#endif
