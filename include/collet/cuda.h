/* collet: GPU buffers and CUDA streams, beside what collet.h says. What takes several GPUs has not run on hardware yet.
 *
 * Buffers   Any buffer of a collective or a message may be memory of a CUDA GPU. The library asks the driver which
 *           memory it is. GPU and host memory may be mixed within a call and between ranks. The current CUDA context
 *           is left as it is. User-defined operations work on host memory only.
 * Contents  A call without a stream reads its buffers at once. What any stream writes to them must be complete by
 *           then. cuMemset(), copies within the GPU and copies from pageable memory may return earlier: synchronise.
 * Creation  Ranks use their GPUs together only if each of them has initialised the driver before it calls
 *           collet_comm_create(). Its GPU must be current in the calling thread, or be the only one that it sees.
 *           Otherwise calls on GPU memory work too, but are copied through host memory.
 * Speed     collet_comm_plan() (tools.h) tells how a call is carried out, and docs/design/gpu.md why. If all ranks are
 *           on one host and have a GPU each, calls on host memory run on the GPUs too. A call that is copied through
 *           host memory blocks for the copy to the host; the wait or test that ends a request does so for the copy
 *           back.
 * Errors    After an error the contents of GPU buffers are undefined until collet_comm_destroy() returns: a kernel of
 *           another rank may still write to them.
 *
 * Streams
 *
 * With collet_how.stream a collective or message is enqueued on that CUDA stream, and the call returns at once. It
 * waits neither for peers nor for the GPU. CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams too. The operation
 * starts when the stream reaches it, and the stream continues when it has ended. Until then the buffers, of GPU or host
 * memory, and *received are in use. The bits are those of the same call without a stream.
 *
 * Errors    A mistake is refused at once. COLLET_ERR_UNSUPPORTED: no driver, or a GPU without stream memory operations.
 *           COLLET_ERR_MEMORY: no page-locked memory (ulimit -l). Later errors end the communicator, even
 *           COLLET_ERR_TRUNCATED; collet_comm_error() reports them. The stream then continues, and the call's results
 *           are undefined. Deadlines count from when the stream reaches the call.
 * Order     All ranks make a communicator's calls in the same order, on whatever streams. Calls start in that order. A
 *           call whose stream has reached it waits until the calls before it have started, not until they have ended.
 *           Calls without a stream wait likewise.
 *           Some collectives run as one kernel on each rank: if all ranks are on one host with a GPU each, or if they
 *           are threads that share a GPU and the call has at most 8 KiB. Such a collective waits until the earlier
 *           ones of this kind have ended. Its stream must belong to the context that was current in
 *           collet_comm_create(). Ranks must capture such calls alike.
 * Graphs    Calls may be captured into a CUDA graph. Each launch repeats them in the order of their capture. Their
 *           resources stay allocated until the communicator is destroyed. The program must order launches and other
 *           calls of the communicator alike on all ranks, by streams, events or waiting. Launches of one capture must
 *           not overlap, even as two instances. None may run during or after collet_comm_destroy().
 *           A launch for which the driver has no room blocks the other threads of the process inside the driver. If
 *           ranks share a GPU, the library's thread may then never launch what the stream waits for. So wait for the
 *           stream before more than 40 calls are in launched graphs. The driver of an H200 has room for 55.
 * Threads   Ranks that are threads of one process need a stream each. If one of them uses the legacy stream, the
 *           others' streams must have been created with CU_STREAM_NON_BLOCKING; CU_STREAM_PER_THREAD is not. The legacy
 *           stream and blocking streams wait for each other, and so would the ranks, until the deadline. On the legacy
 *           stream, calls of at most 8 KiB are COLLET_ERR_UNSUPPORTED if the threads share a GPU. Some operations
 *           make the driver wait for all running work or for the legacy stream: freeing memory, creating or destroying
 *           communicators. Do them only when all these ranks have made the calls that any of them has enqueued.
 * Destroy   collet_comm_destroy() ends enqueued calls with COLLET_ERR_ABORTED. It waits until their streams have passed
 *           them, which takes as long as the work enqueued before. It does not wait for a context that a fault broke,
 *           or after the driver refused part of a call. After 10 s it returns in any case. The resources of calls that
 *           were not waited for are never freed.
 */
#ifndef COLLET_CUDA_H
#define COLLET_CUDA_H

#include <collet/collet.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates GPU memory that the ranks sharing the GPU can map. They are told now instead of at the first call on it.
 * The GPU is that of the current CUDA context, or else the one that this rank had in collet_comm_create(). bytes is
 * rounded up to the driver's granularity, usually 2 MiB. All GPUs that reach the memory have it mapped. Its contents
 * are undefined. It belongs to this rank and is valid for all communicators of comm's context. collet_mem_free() frees
 * it, or the destruction of the last of these communicators.
 *
 * Free it only when the program's own kernels and copies have finished with it, and when streams have passed the calls
 * that use it; otherwise COLLET_ERR_ARGUMENT. Calls in a graph use it until their communicator is destroyed. The memory
 * returns to the GPU when the ranks that mapped it make their next call.
 *
 * COLLET_ERR_UNSUPPORTED: no driver, no GPU known, or one whose memory cannot be exported to other processes.
 * COLLET_ERR_MEMORY, _SYSTEM: the driver refused. Nothing changed then. Any thread, even while streams are captured. */
COLLET_MUST_USE COLLET_API collet_status collet_mem_alloc_device(collet_comm *comm, void **memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
