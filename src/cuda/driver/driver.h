/* The CUDA driver, opened at run time: the library links none, and works the same where there is none. */
#ifndef COLLET_CUDA_DRIVER_DRIVER_H
#define COLLET_CUDA_DRIVER_DRIVER_H

#include <collet/collet.h>

#include "core/log.h"
#include "cuda/driver/driver_api.h"

/* CUDA 12.0: the first driver with every function below by one name. */
enum { COLLET_CUDA_MIN_VERSION = 12000 };

/* One a context. Zeroed: no driver. Read-only once opened, so any thread may call through it. */
struct collet_cuda {
	void *module;        /* NULL: no driver, or not one that can be used */
	int version;         /* 1000 x major + 10 x minor */
	char unavailable_reason[160]; /* why module is NULL, for people */
#define COLLET_CUDA_SLOT(name, arguments) cu_result(*name) arguments;
	COLLET_CUDA_FUNCTIONS(COLLET_CUDA_SLOT)
#undef COLLET_CUDA_SLOT
};

/* Opens libcuda.so.1 unless COLLET_CUDA says no. That there is none is no error: cuda->absent says so. It is not
 * initialised, which takes long and is the caller's to do before it has any memory of a GPU. */
collet_status collet_cuda_open(struct collet_cuda *cuda, const struct collet_log *log);
void collet_cuda_close(struct collet_cuda *cuda);  /* a zeroed one is fine */

/* COLLET_ERR_SYSTEM, with what was tried and the driver's own words; COLLET_ERR_MEMORY if the GPU has none left. */
collet_status collet_cuda_fail(const struct collet_cuda *cuda, cu_result result, const char *what);

/* A stream of the library's own, in the current context. It is of the highest priority, not for haste: the program's
 * streams may wait for what this one does, by a word of which the driver knows nothing, and a GPU has few queues for
 * its streams; but those of one priority are not put into a queue with those of another. */
cu_result collet_cuda_create_stream(const struct collet_cuda *cuda, cu_stream *stream);

/* What the thread asks of the driver spoils no capture, its own or others', until the second is given what the first
 * has returned. */
int collet_cuda_relax_capture(const struct collet_cuda *cuda);
void collet_cuda_restore_capture(const struct collet_cuda *cuda, int mode);

/* Until it is left this context is the thread's, which is relaxed so. What is entered last is left first. */
cu_result collet_cuda_push_context(const struct collet_cuda *cuda, cu_context context);
void collet_cuda_pop_context(const struct collet_cuda *cuda);

/* Is this why a context cannot be entered: the program has destroyed it, or the driver has ended? Then nothing runs
 * there, and what was there has gone with it. Any other error leaves both open. */
bool collet_cuda_context_is_destroyed(cu_result result);
/* Has page-locked memory be ordinary again. context: in which it was locked. false: the driver refuses, as it does in a
 * context that a fault has broken. Then it has the memory yet, and may be in the middle of writing there: it must never
 * be unmapped, or used for anything else. */
COLLET_MUST_USE bool collet_cuda_unregister_host(const struct collet_cuda *cuda, cu_context context, void *memory);

#endif
