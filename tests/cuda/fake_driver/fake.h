/* A stand-in for the CUDA driver, for tests only: libcuda.so.1 over host memory.
 *
 * It proves logic, never speed. It is strict where the driver is: device memory cannot be touched by the program (what
 * is handed out is mapped without any rights; the fake works on another mapping of the same pages), nothing works
 * before cuInit(), calls that need a current context say so, what was freed is nobody's, a process opens no handle
 * twice and none of its own, the legacy default stream and those made without CU_STREAM_NON_BLOCKING wait for each
 * other, kernels reach what it opens on the GPU whose context was current then, mapped memory is
 * nobody's before its access is set, streams belong to their context, what a stream has been given happens on another
 * thread, later, in order, what a program copies in from ordinary memory comes when the legacy stream is waited for and
 * not before, contexts beside a GPU's primary one have memory, streams, kernels and faults of their own, and what may
 * not be done while a stream is captured spoils the capture.
 *
 * FAKE_CUDA_DEVICES=N           there are N GPUs (default 1), of which CUDA_VISIBLE_DEVICES shows some
 * FAKE_CUDA_MULTIPROCESSORS=N   each has N multiprocessors (default 4)
 * FAKE_CUDA_FREE_WAITS=1        freeing memory waits for the kernels that run, as it does there
 * FAKE_CUDA_VERSION=N           the driver is of this version (default 12040)
 * FAKE_CUDA_SCHEDULE=SEED       see schedule.h
 * FAKE_CUDA_SLOW=SEED           streams take their time, see slow.c
 * FAKE_CUDA_THREADS=N           see block.h
 * FAKE_CUDA_WITHOUT=NAME        the driver does not have this function, or this ("stream memory operations",
 *                               "dma-bufs", "ordered writes", "exportable memory", "peer access": of GPUs to each
 *                               other's memory)
 * FAKE_CUDA_IN_BEFORE_OUT=N     after N bytes from GPUs to the host, on streams, the next ones wait for a copy to a GPU
 * FAKE_CUDA_ASTRAY=WHICH        what this process opens of others is not quite what it seems, and no call says so:
 *                               "reads", of one bit; "writes" (and "reads"), nobody else sees what it writes
 *                               "writes:FIRST:BYTES": of so many from that byte on, whole pages
 * FAKE_CUDA_CLOCK=N             the GPUs' clock goes N times as fast as the host's
 * FAKE_CUDA_FAIL=NAME:NTH:CODE  the nth call of this function in this process gives CODE; NTH+: and all after it;
 *                               NTH!: and whatever is called from then on, as fakeFail() has it; 0: every call does
 *
 * fakeFail() has the nth call from now on fail, whatever it is, and onwards all after it, and streams do nothing any
 * more. A wait that fails has waited. */
#ifndef TESTS_CUDA_FAKE_DRIVER_FAKE_H
#define TESTS_CUDA_FAKE_DRIVER_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "functions.h"

/* How many blocks of a kernel run at the same time follows from the last two; the others wait for them, as on a GPU. */
enum { FAKE_DEVICES = 8, FAKE_MULTIPROCESSORS = 4, FAKE_MULTIPROCESSORS_MOST = 64, FAKE_BLOCKS_EACH = 2 };

/* One lock for all bookkeeping; streams have their own besides. */
extern pthread_mutex_t fake_lock;

/* ---- state.c ---- */

/* CU_OK; or what this call is to fail with: too early, or as FAKE_CUDA_FAIL has it. */
cu_result fake_enter(const char *function);
/* The same, and that there is a current context. */
cu_result fake_enter_in_context(const char *function, cu_context *context);
int fake_device_count(void);
uint32_t fake_multiprocessors(void);
/* The device of a context, the primary one or another; -1: it is none, or has gone. */
int fake_context_device(cu_context context);
cu_context fake_current(void);
/* Can a GPU have access to another's memory? */
bool fake_may_reach(int device, int peer);
/* Under fake_lock: has access to the peer's memory been enabled? To its own a context has it. */
bool fake_peer_reaches(cu_context context, cu_context peer);
/* A fault has broken the context: every call there says so, and its streams do nothing any more, until nobody retains
 * it, or it is destroyed. Other contexts of its GPU go on. */
void fake_break(cu_context context);
bool fake_is_broken(cu_context context);
bool fake_is_anything_broken(void);
/* What FAKE_CUDA_WITHOUT names is not there. */
bool fake_has(const char *function);
/* This thread is in a function that a stream calls: from there nothing of the driver may be used. */
void fake_forbid_driver(bool forbidden);

/* What goes with its context if that is destroyed: at the start of an event, and of a module. */
struct fake_owned {
	struct fake_owned *next;
	cu_context context;
	void (*let_go)(struct fake_owned *owned);
};
void fake_own(struct fake_owned *owned, cu_context context, void (*let_go)(struct fake_owned *owned));
void fake_disown(struct fake_owned *owned);

/* ---- failure.c ---- */

/* Of this call, whose number it takes: what it is to fail with. Under fake_lock. */
cu_result fake_failure(const char *function);
/* A failure that lasts: the GPU does nothing any more either. */
bool fake_is_dead(void);
/* So many more contexts held, streams, events, modules, graphs, allocations, registrations. */
void fake_alive(int more);

/* ---- capture.c ---- */

/* CU_OK; or, of a call that could depend on what is being captured, that it is not allowed, and has spoilt it. */
cu_result fake_unsafe(void);
/* fake_enter_in_context(), of a function that is such. */
cu_result fake_enter_unsafe(const char *function, cu_context *context);

/* Which capture a stream is in; 0: none. */
uint64_t fake_capture_id(cu_stream stream);
/* It is in one, and something has been asked that none allows. */
void fake_capture_spoil(cu_stream stream);

/* ---- memory.c: what is at an address ---- */

/* GPUs have registered memory elsewhere than the host, as real ones may (this much further on): kernels, and what
 * streams do to words, go by the address that cuMemHostGetDevicePointer() tells. Copies take either. */
#define FAKE_PINNED_AT (UINT64_C(1) << 56)

/* Where bytes at pointer are for the fake itself: the other mapping of device memory, or the host's own memory. NULL:
 * they were freed, or reach past an allocation's end. */
char *fake_reach(cu_pointer pointer, size_t bytes);
/* Can a GPU's streams write words there? */
bool fake_is_known(cu_pointer pointer, size_t bytes);
/* The same as fake_reach() for a copy by this device; and for a kernel in a context: the host's memory only if it is
 * pinned, other contexts' if it is enabled. */
char *fake_reach_to_copy(int device, cu_pointer pointer, size_t bytes);
char *fake_reach_from(cu_context context, cu_pointer pointer, size_t bytes);
/* The host's memory that is not registered: copies to and from there are done when the call returns. */
bool fake_is_pageable(cu_pointer pointer);
/* What programs have copied in by cuMemcpyHtoD() is there now. */
void fake_land(void);

enum fake_kind {
	FAKE_DEVICE,         /* cuMemAlloc() */
	FAKE_PINNED,         /* the program's own */
	FAKE_OPENED,         /* another process's, by a handle */
	FAKE_MAPPED          /* cuMemMap() */
};

struct fake_block {
	struct fake_block *next;
	enum fake_kind kind;
	cu_pointer first;
	size_t bytes, mapped;
	char *reach;         /* not of FAKE_PINNED: the fake's own mapping */
	unsigned access;     /* FAKE_MAPPED: for which devices cuMemSetAccess() has been called, a bit each */
	cu_context context;  /* NULL: of none */
	int device;
	int file;            /* FAKE_DEVICE: what others open; else -1 */
	cu_mem_handle memory; /* FAKE_MAPPED: what is mapped there */
	uint64_t exporter;   /* FAKE_OPENED: see ipc.c */
	cu_pointer range;    /* FAKE_MAPPED: of the reservation, as the driver has it */
	size_t range_bytes;
	uint64_t id;         /* new for each block, or reservation */
};

size_t fake_round_up(size_t bytes, size_t unit);
/* Under fake_lock: the block that has this byte. */
struct fake_block *fake_find(cu_pointer pointer);
/* A block of these pages, in both mappings, on the list; it takes nothing over. at 0: anywhere. */
struct fake_block *fake_add(const struct fake_block *like, int file, size_t offset, cu_pointer at);
/* The block of this kind that starts at first, off the list; free() it. */
struct fake_block *fake_take(cu_pointer first, enum fake_kind kind);
void fake_unmap(const struct fake_block *block);
/* Held, what fake_reach() says is there: nothing is unmapped meanwhile. Before fake_lock. */
extern pthread_mutex_t fake_unmapping;
/* What has been opened becomes what FAKE_CUDA_ASTRAY wants of it. */
void fake_lead_astray(const struct fake_block *block, int file);
/* Under fake_lock: the file of mapped memory that was made for adapters; -1: it was not. */
int fake_file_for_adapters(const struct fake_block *block);
/* Under fake_lock. */
uint64_t fake_new_id(void);
/* With a context goes what was page-locked in it. */
void fake_unlock_all(cu_context context);
/* And with one that is destroyed its memory, and what it has opened. */
void fake_free_all(cu_context context);
void fake_forget_opened(uint64_t exporter);
/* Under fake_lock: is it within a reservation? */
bool fake_is_reserved(cu_pointer pointer);

/* ---- vacant.c ---- */

/* What was mapped there goes; the addresses stay the GPUs'. */
void fake_vacate(cu_pointer first, size_t bytes);
/* The latest vacant addresses of this size, which are not vacant any more; 0: there are none. */
cu_pointer fake_occupy(size_t bytes);
/* Under fake_lock: are these the GPUs' addresses? Of such as have no memory. */
bool fake_is_vacant(cu_pointer pointer);

/* ---- launch.c ---- */

/* Until as many kernels have ended on the device as have begun by now. */
void fake_wait_for_kernels(int device);

/* ---- slow.c ---- */

/* A stream is in the middle of something: it has found that nothing keeps it from that, or where it is to be done. */
void fake_linger(void);
/* A stream begins something, or has ended it. */
void fake_at_work(bool begins);

/* ---- stream.c ---- */

/* What a stream has been given to do, from malloc(); what it needs lies behind this. */
struct fake_job {
	struct fake_job *next;
	/* On the stream's thread, once, if nothing before it has failed. Anything but CU_OK spoils the stream. */
	cu_result (*run)(struct fake_job *job);
	size_t bytes;        /* of all of it: it can be captured, copied, and done again; 0: it cannot */
	uint64_t turn;       /* fake_enqueue()'s: when it was given, among all of the process */
	bool always;         /* whatever has failed before it: others wait for it. Then it is told: */
	bool spoilt;
};

/* overlap.c: of a copy that is given to a stream now, and before that is made. */
size_t fake_copies_ahead(void);
void fake_copy_waits(cu_pointer to, cu_pointer from, size_t bytes, size_t ahead);

/* NULL: there is no such stream. */
cu_context fake_stream_context(cu_stream stream);
/* Takes the job over. Fails only where the stream is captured and the job cannot be. */
cu_result fake_enqueue(cu_stream stream, struct fake_job *job);

#endif
