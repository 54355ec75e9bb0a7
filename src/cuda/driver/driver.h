/* The CUDA driver, opened at run time: the library links none, and works without it. */
#ifndef COLLET_CUDA_DRIVER_DRIVER_H
#define COLLET_CUDA_DRIVER_DRIVER_H

#include <collet/collet.h>

#include "core/log.h"
#include "cuda/driver/driver_api.h"

/* CUDA 12.0 is the first driver that has every function below under one name. */
enum { COLLET_CUDA_MIN_VERSION = 12000 };

/* One per library context; zeroed if there is no driver. Read-only once opened, so any thread may call through it. */
struct collet_cuda {
	void *module;        /* NULL if there is no usable driver */
	int version;         /* 1000 x major + 10 x minor */
	char unavailable_reason[160]; /* why module is NULL, for people */
#define COLLET_CUDA_SLOT(name, arguments) cu_result(*name) arguments;
	COLLET_CUDA_FUNCTIONS(COLLET_CUDA_SLOT)
#undef COLLET_CUDA_SLOT
};

/* Opens libcuda.so.1 unless COLLET_CUDA says no. A missing driver is no error: cuda->unavailable_reason says why. Does
 * not initialise the driver: that takes long, and the caller must do it before it has GPU memory. */
collet_status collet_cuda_open(struct collet_cuda *cuda, const struct collet_log *log);
void collet_cuda_close(struct collet_cuda *cuda);  /* a zeroed object is allowed */

/* Returns COLLET_ERR_SYSTEM, or COLLET_ERR_MEMORY if the GPU is out of memory. The sentence says what was tried, and
 * what the driver says. */
collet_status collet_cuda_fail(const struct collet_cuda *cuda, cu_result result, const char *what);
/* Returns COLLET_ERR_ARGUMENT: how.stream is in an invalidated capture. The driver reports that as a status of the
 * capture, but release 580 already refuses to name such a stream's context (CU_CAPTURE_INVALIDATED). */
collet_status collet_cuda_fail_invalidated(void);

/* Creates a stream of highest priority in the current context. The reason is not speed. Streams of the application may
 * wait for this one through a flag in memory, and the driver does not see that as a dependency. A GPU has few hardware
 * queues, and streams of different priorities never share one. */
cu_result collet_cuda_create_stream(const struct collet_cuda *cuda, cu_stream *stream);

/* Lets the thread call the driver without invalidating any capture, until restore_capture gets the returned mode. */
int collet_cuda_relax_capture(const struct collet_cuda *cuda);
void collet_cuda_restore_capture(const struct collet_cuda *cuda, int mode);

/* Makes the context current, with captures relaxed as above, until pop_context. Calls nest. */
cu_result collet_cuda_push_context(const struct collet_cuda *cuda, cu_context context);
void collet_cuda_pop_context(const struct collet_cuda *cuda);

/* True if entering a context failed because the application destroyed it, or the driver has shut down. Then nothing
 * runs there, and what was allocated there is gone. Any other error leaves both open. */
bool collet_cuda_context_is_destroyed(cu_result result);
/* Unpins host memory; context is where it was pinned. Returns false if the driver refuses, as it does in a context
 * broken by a fault. The driver may still write to the memory then, so it must never be unmapped or reused. */
COLLET_MUST_USE bool collet_cuda_unregister_host(const struct collet_cuda *cuda, cu_context context, void *memory);

#endif
