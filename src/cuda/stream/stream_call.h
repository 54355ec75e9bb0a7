/* Calls on CUDA streams (how.stream): the stream does them when it gets to them, and the caller goes on at once.
 *
 * What is put on the stream: a copy of what is read from the GPU to page-locked memory; a function of the host that
 * rings; a wait for a word that says `done`; a copy of the result to the GPU; a word that says `passed`. A thread of
 * the communicator answers the rings: it runs the call on the host's memory, by the same requests as any other, and
 * sets `done` however the call has ended, so no stream waits for good. Where ranks share a GPU there are no copies: the
 * call is offered to the leader when it has rung (cuda/shared_gpu/shared_gpu.h), and `done` may be the GPU's to set
 * (cuda/shared_gpu/completion_flags.h). Nor are there of a large collective: the thread
 * copies piece by piece, on streams of the library's own (staging_pipelined.h).
 *
 * Ranks must run a communicator's calls in one order, and streams may ring in any. So calls start in the order in which
 * they were made: one that rings early waits for those before it to ring, too.
 *
 * A graph rings again at each launch. What it has captured (call, request, memory, words) stays until the communicator
 * goes, and starts in the order of its capture, round and round. The ring itself takes `done` back, in the stream's
 * order, before it rings: so a wait never meets what an earlier launch has left there. */
#ifndef COLLET_CUDA_STREAM_STREAM_CALL_H
#define COLLET_CUDA_STREAM_STREAM_CALL_H

#include "cuda/staging/gpu_staging.h"

/* A checked call with how->stream set. COLLET_OK: it is on the stream; what becomes of it is the communicator's error.
 * COLLET_ERR_ARGUMENT, _UNSUPPORTED, _MEMORY, _SYSTEM: nothing has changed, unless the stream has taken a part of it
 * already, which ends the communicator. */
collet_status collet_stream_enqueue_collective(collet_comm *comm, struct collet_call_arguments *call,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_partition *vector,
	const collet_how *how);
collet_status collet_stream_enqueue_p2p(collet_comm *comm, const char *function, const struct collet_p2p_op *ops,
	uint32_t count, collet_dtype dtype, const collet_how *how);

/* ---- stream_thread.c */

/* A call that is not on a stream comes after those that are: waits until they have started, not until they have ended.
 * That they do not in time ends the communicator. */
collet_status collet_streams_wait_started(collet_comm *comm, const char *function, const collet_how *how);

/* Destroying a communicator. First: what streams have been told by the GPU that it is done this host is soon told, too,
 * and waits for; else others would hear that it has left in the middle. */
void collet_streams_drain(collet_comm *comm);
/* Then nothing starts any more, and whatever waits is let go of: under the engine's lock. */
void collet_streams_close(collet_comm *comm);
/* Then, without it: waits until no stream uses anything of this communicator, and frees it. That takes no longer than
 * what the streams were given before; if it is more than COLLET_STREAMS_RELEASE_TIMEOUT_NS, or the driver has refused
 * to have them tell, or a fault has broken their context, false: the communicator's memory and context are not freed,
 * since the streams will still come to use them, or are in the middle of that. */
bool collet_streams_free(collet_comm *comm);

#define COLLET_STREAMS_RELEASE_TIMEOUT_NS (INT64_C(10) * 1000 * 1000 * 1000)

#endif
