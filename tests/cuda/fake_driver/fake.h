/* A stand-in for the CUDA driver, for tests only: libcuda.so.1 over host memory.
 *
 * It proves logic, never speed. It is strict where the driver is: device memory cannot be touched by the program (what
 * is handed out is mapped without any rights; the fake works on another mapping of the same pages), nothing works
 * before cuInit(), calls that need a current context say so, streams belong to their context, and what a stream has
 * been given happens on another thread, later, in order.
 *
 * FAKE_CUDA_DEVICES=N           there are N GPUs (default 1), of which CUDA_VISIBLE_DEVICES shows some
 * FAKE_CUDA_VERSION=N           the driver is of this version (default 12040)
 * FAKE_CUDA_WITHOUT=NAME        the driver does not have this function
 * FAKE_CUDA_FAIL=NAME:NTH:CODE  the nth call of this function in this process gives CODE */
#ifndef TESTS_CUDA_FAKE_DRIVER_FAKE_H
#define TESTS_CUDA_FAKE_DRIVER_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "functions.h"

enum { FAKE_DEVICES = 8 };

/* One lock for all bookkeeping; streams have their own besides. */
extern pthread_mutex_t fake_lock;

/* ---- state.c ---- */

/* CU_OK; or what this call is to fail with: too early, or as FAKE_CUDA_FAIL has it. */
cu_result fake_enter(const char *function);
/* The same, and that there is a current context. */
cu_result fake_enter_in_context(const char *function, cu_context *context);
int fake_device_count(void);
/* The device of a context; -1: it is none, or has gone. */
int fake_context_device(cu_context context);
cu_context fake_current(void);
/* What FAKE_CUDA_WITHOUT names is not there. */
bool fake_has(const char *function);

/* ---- memory.c ---- */

/* Where bytes at pointer are for the fake itself: the other mapping of device memory, or the host's own memory. NULL:
 * they are in no allocation, or reach past its end. */
char *fake_reach(cu_pointer pointer, size_t bytes);

/* ---- stream.c ---- */

/* What a stream has been given to do, from malloc(); what it needs lies behind this. */
struct fake_job {
	struct fake_job *next;
	/* On the stream's thread, once, if nothing before it has failed. Anything but CU_OK spoils the stream. */
	cu_result (*run)(struct fake_job *job);
};

cu_context fake_stream_context(cu_stream stream);
/* Takes the job over. */
void fake_enqueue(cu_stream stream, struct fake_job *job);

#endif
