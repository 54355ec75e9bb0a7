/* A fake CUDA driver, for tests only: libcuda.so.1 over host memory. It proves logic, never speed.
 *
 * It is as strict as the driver:
 * - Programs cannot access device memory: its addresses are mapped without any rights. The fake driver uses a second
 *   mapping of the same pages.
 * - Nothing works before cuInit(). Calls that need a current context fail without one. Freed memory is inaccessible.
 * - A process opens no handle twice, and none of its own. Kernels access opened memory only on the GPU whose context
 *   was current then. Mapped memory is inaccessible until its access is set.
 * - Streams belong to their context. Their work is executed later, in order, on another thread.
 * - The legacy default stream waits for blocking streams (without CU_STREAM_NON_BLOCKING), and they for it.
 * - What a program copies from pageable memory arrives only when the legacy stream is waited for.
 * - Contexts beside a GPU's primary one have memory, streams, kernels and faults of their own.
 * - Calls that are forbidden while a stream is captured invalidate the capture.
 *
 * FAKE_CUDA_DEVICES=N           number of GPUs (default 1), of which CUDA_VISIBLE_DEVICES shows some
 * FAKE_CUDA_MULTIPROCESSORS=N   multiprocessors of each (default 4)
 * FAKE_CUDA_FREE_WAITS=1        freeing memory waits for running kernels, as on a real GPU
 * FAKE_CUDA_VERSION=N           version of the driver (default 12040)
 * FAKE_CUDA_SCHEDULE=SEED       see schedule.h
 * FAKE_CUDA_SLOW=SEED           streams are slow, see slow.c
 * FAKE_CUDA_THREADS=N           see block.h
 * FAKE_CUDA_WITHOUT=NAME        the driver lacks this function, or this feature: "stream memory operations",
 *                               "dma-bufs", "ordered writes", "exportable memory", "peer access" (between GPUs)
 * FAKE_CUDA_IN_BEFORE_OUT=N     after N bytes copied from GPUs to the host on streams, further ones wait for a copy to
 *                               a GPU
 * FAKE_CUDA_ASTRAY=WHICH        memory of other processes is wrong, without an error: "reads": one bit is wrong;
 *                               "writes" (and "reads"): nobody else sees what this process writes;
 *                               "writes:FIRST:BYTES": only of these bytes, whole pages
 * FAKE_CUDA_CLOCK=N             the GPUs' clock runs N times as fast as the host's
 * FAKE_CUDA_FAIL=NAME:NTH:CODE  the nth call of this function in this process returns CODE; NTH+: and all after it;
 *                               NTH!: and every call from then on, as with fakeFail(); 0: every call of it
 *
 * fakeFail() makes the nth call from now on fail, whatever it is; `onwards`: and all after it, and streams execute
 * nothing any more. A wait that fails has waited. */
#ifndef TESTS_CUDA_FAKE_DRIVER_FAKE_H
#define TESTS_CUDA_FAKE_DRIVER_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "functions.h"

/* The last two determine how many blocks of a kernel run at the same time. The others wait for them, as on a GPU. */
enum { FAKE_DEVICES = 8, FAKE_MULTIPROCESSORS = 4, FAKE_MULTIPROCESSORS_MOST = 64, FAKE_BLOCKS_EACH = 2 };

/* Protects all bookkeeping; streams also have locks of their own. */
extern pthread_mutex_t fake_lock;

/* ---- state.c ---- */

/* Returns CU_OK, or the error of this call: the driver is not initialised, or FAKE_CUDA_FAIL names it. */
cu_result fake_enter(const char *function);
/* The same; also requires a current context. */
cu_result fake_enter_in_context(const char *function, cu_context *context);
int fake_device_count(void);
uint32_t fake_multiprocessors(void);
/* Returns the device of any context; -1 if there is none, or it was destroyed. */
int fake_context_device(cu_context context);
cu_context fake_current(void);
/* True if a GPU may be given access to another's memory. */
bool fake_may_reach(int device, int peer);
/* True if access to the peer's memory is enabled; a context has access to its own. Needs fake_lock. */
bool fake_peer_reaches(cu_context context, cu_context peer);
/* A fault has broken the context: every call in it fails, and its streams execute nothing any more, until it is
 * destroyed or no longer retained. Other contexts of its GPU continue. */
void fake_break(cu_context context);
bool fake_is_broken(cu_context context);
bool fake_is_anything_broken(void);
/* False if FAKE_CUDA_WITHOUT names it. */
bool fake_has(const char *function);
/* Marks a thread inside a host function of a stream, which must not call the driver. */
void fake_forbid_driver(bool forbidden);

/* Destroyed with its context. The first member of events and modules. */
struct fake_owned {
	struct fake_owned *next;
	cu_context context;
	void (*let_go)(struct fake_owned *owned);
};
void fake_own(struct fake_owned *owned, cu_context context, void (*let_go)(struct fake_owned *owned));
void fake_disown(struct fake_owned *owned);

/* ---- failure.c ---- */

/* Counts this call; returns the error that it must fail with. Needs fake_lock. */
cu_result fake_failure(const char *function);
/* A failure that lasts: the GPU executes nothing any more either. */
bool fake_is_dead(void);
/* Counts retained contexts, streams, events, modules, graphs, allocations and registrations. */
void fake_alive(int more);

/* ---- capture.c ---- */

/* For calls that could depend on captured work. Returns CU_OK, or an error if such a call is not allowed now; then it
 * has invalidated the capture. */
cu_result fake_unsafe(void);
/* fake_enter_in_context() for such a function. */
cu_result fake_enter_unsafe(const char *function, cu_context *context);

/* Returns the capture that a stream is in; 0 if none. */
uint64_t fake_capture_id(cu_stream stream);
/* Invalidates the stream's capture: it was asked for something that no capture allows. */
void fake_capture_invalidate(cu_stream stream);
bool fake_capture_is_invalidated(cu_stream stream);

/* ---- memory.c: what is at an address ---- */

/* Registered memory has other addresses on GPUs than on the host, as it may on real ones: they are this much higher.
 * Kernels, and stream operations on words, need the address from cuMemHostGetDevicePointer(). Copies accept both. */
#define FAKE_PINNED_AT (UINT64_C(1) << 56)

/* Returns where the fake driver itself accesses bytes: the second mapping of device memory, or host memory. NULL if
 * they were freed, or extend past an allocation's end. */
char *fake_reach(cu_pointer pointer, size_t bytes);
/* True if a GPU's streams can write words there. */
bool fake_is_known(cu_pointer pointer, size_t bytes);
/* The same as fake_reach() for a copy by this device, or for a kernel in a context: host memory only if page-locked,
 * other contexts' memory only if access is enabled. */
char *fake_reach_to_copy(int device, cu_pointer pointer, size_t bytes);
char *fake_reach_from(cu_context context, cu_pointer pointer, size_t bytes);
/* True for host memory that is not registered: copies to and from it are complete when the call returns. */
bool fake_is_pageable(cu_pointer pointer);
/* Completes pending copies of cuMemcpyHtoD(). */
void fake_land(void);

enum fake_kind {
	FAKE_DEVICE,         /* cuMemAlloc() */
	FAKE_PINNED,         /* page-locked memory of the program */
	FAKE_OPENED,         /* of another process, opened by a handle */
	FAKE_MAPPED          /* cuMemMap() */
};

struct fake_block {
	struct fake_block *next;
	enum fake_kind kind;
	cu_pointer first;
	size_t bytes, mapped;
	char *reach;         /* the fake driver's own mapping; none for FAKE_PINNED */
	unsigned access;     /* FAKE_MAPPED: devices that cuMemSetAccess() was called for, a bit each */
	cu_context context;  /* NULL if in none */
	int device;
	int file;            /* FAKE_DEVICE: the file that other processes open; else -1 */
	cu_mem_handle memory; /* FAKE_MAPPED: the memory that is mapped */
	uint64_t exporter;   /* FAKE_OPENED: see ipc.c */
	cu_pointer range;    /* FAKE_MAPPED: start of the reservation, as the driver reports it */
	size_t range_bytes;
	uint64_t id;         /* a new one for each block or reservation */
};

size_t fake_round_up(size_t bytes, size_t unit);
/* Returns the block that contains this byte. Needs fake_lock. */
struct fake_block *fake_find(cu_pointer pointer);
/* Adds a block of these pages to the list, in both mappings; does not take ownership. at 0: any address. */
struct fake_block *fake_add(const struct fake_block *like, int file, size_t offset, cu_pointer at);
/* Removes the block of this kind that starts at first from the list; the caller frees it. */
struct fake_block *fake_take(cu_pointer first, enum fake_kind kind);
void fake_unmap(const struct fake_block *block);
/* While it is held, memory found by fake_reach() is not unmapped. Taken before fake_lock. */
extern pthread_mutex_t fake_unmapping;
/* Applies FAKE_CUDA_ASTRAY to an opened block. */
void fake_corrupt(const struct fake_block *block, int file);
/* Returns the file of mapped memory that was allocated for RDMA; -1 for other memory. Needs fake_lock. */
int fake_file_for_adapters(const struct fake_block *block);
/* Needs fake_lock. */
uint64_t fake_new_id(void);
/* Unpins the memory that was page-locked in a context that ends. */
void fake_unlock_all(cu_context context);
/* Frees the memory of a destroyed context, and closes what it has opened. */
void fake_free_all(cu_context context);
void fake_forget_opened(uint64_t exporter);
/* True if the address is within a reservation. Needs fake_lock. */
bool fake_is_reserved(cu_pointer pointer);

/* ---- vacant.c ---- */

/* Unmaps memory, but keeps its addresses for GPUs. */
void fake_vacate(cu_pointer first, size_t bytes);
/* Reuses the latest vacant addresses of this size; 0 if there are none. */
cu_pointer fake_occupy(size_t bytes);
/* True for GPU addresses without memory. Needs fake_lock. */
bool fake_is_vacant(cu_pointer pointer);

/* ---- launch.c ---- */

/* Waits until as many kernels have ended on the device as have begun by now. */
void fake_wait_for_kernels(int device);

/* ---- slow.c ---- */

/* Called by a stream before or during an operation; may wait there. */
void fake_delay(void);
/* Called when a stream begins an operation, and when it ends it. */
void fake_at_work(bool begins);

/* ---- stream.c ---- */

/* A job of a stream, from malloc(); its arguments follow it. */
struct fake_job {
	struct fake_job *next;
	/* Called once on the stream's thread, unless a job before it has failed. An error stops the stream. */
	cu_result (*run)(struct fake_job *job);
	/* Of the job with its arguments, so that a capture can copy and repeat it. 0 if it cannot be captured. */
	size_t bytes;
	uint64_t turn;       /* when it was enqueued, among all jobs of the process; set by fake_enqueue() */
	bool always;         /* run even after a failure, since others wait for it */
	bool stream_failed;  /* for `always`: a job before it has failed */
};

/* From overlap.c; for a copy that is about to be enqueued. */
size_t fake_copies_ahead(void);
void fake_copy_waits(cu_pointer to, cu_pointer from, size_t bytes, size_t ahead);

/* Returns NULL if there is no such stream. */
cu_context fake_stream_context(cu_stream stream);
/* Takes ownership of the job. Fails only if the stream is captured and the job cannot be. */
cu_result fake_enqueue(cu_stream stream, struct fake_job *job);

#endif
