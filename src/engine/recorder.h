/* The flight recorder keeps a communicator's last few hundred calls, and all pending ones: what, when, how far. When
 * ranks disagree, it tells what this rank called as number k. */
#ifndef COLLET_ENGINE_RECORDER_H
#define COLLET_ENGINE_RECORDER_H

#include <stdalign.h>
#include <stdatomic.h>

#include <collet/collet.h>

enum { COLLET_RECORDS = 512 };       /* at least so many calls; more only while that many are pending */

/* The arguments of a call that all ranks must agree on. Control messages carry it unchanged. */
struct collet_call {
	uint64_t sequence;       /* number of the collective in its communicator, from 0 */
	uint64_t count;          /* v-forms: 0, since a rank may know its own count only */
	uint32_t root;
	uint8_t collective;      /* enum collet_collective */
	uint8_t is_vector;       /* a v-form */
	uint8_t dtype, op;       /* 0xff: the collective has none */
	uint32_t algorithm;      /* index into the collective's programs */
	uint32_t segment_bytes, channels; /* as the caller asked; 0: as chosen */
	uint32_t user_op;        /* hash of a user operation's name */
	char user_name[24];      /* its beginning, for error texts */
};

struct collet_record {
	struct collet_call call;
	uint64_t history_hash;         /* signature of this call and all before it */
	/* Monotonic clock. ended_ns 0: it has not ended. If brief polls ended it, this is when they began: for a
	 * blocking call, started_ns. */
	int64_t started_ns, ended_ns;
	enum collet_status status;
	uint64_t finished_items;       /* finished work items: how far it got */
};

/* A record in the ring, written by one thread and read by any. version is odd during a write. The words are atomic, so
 * that a torn read is detected by the version and not undefined. Fields that differ from call to call fill one cache
 * line. The rest follows and is not written again if the slot's last call was the same, as in a loop. */
struct collet_recorder_slot {
	alignas(64) _Atomic uint64_t version;
	uint64_t signature;            /* of the call alone; only the writer uses it, to recognize the rest */
	_Atomic uint64_t word[5 + sizeof(struct collet_call) / 8];
};

/* Call k is in slot[k % size] unless overwritten. */
struct collet_recorder_ring {
	uint64_t size;                 /* a power of two */
	struct collet_recorder_ring *smaller; /* the one that it replaced: some thread may still read it */
	struct collet_recorder_slot slot[];
};

struct collet_recorder {
	_Atomic uint64_t call_count;
	_Atomic(struct collet_recorder_ring *) ring;
	/* Records hold ticks, which are cheaper to read than the clock. The time since this moment, in both, gives the
	 * length of a tick. */
	uint64_t first_ticks;
	int64_t first_ns;
};

collet_status collet_recorder_init(struct collet_recorder *recorder);
/* Copies a recorder that no thread writes meanwhile. */
collet_status collet_recorder_copy(struct collet_recorder *copy, const struct collet_recorder *from);
void collet_recorder_deinit(struct collet_recorder *recorder);
/* Record a call's start and end, at a time in ticks. Calls start in order of their sequence; one thread at a time.
 * signature is of the call alone, history of it and all before it. */
void collet_recorder_start(struct collet_recorder *recorder, const struct collet_call *call, uint64_t signature,
	uint64_t history, uint64_t ticks);
void collet_recorder_end(struct collet_recorder *recorder, uint64_t sequence, enum collet_status status, uint64_t items,
	uint64_t ticks);
/* Converts ticks to the monotonic clock. The longer the recorder exists, the more exact the result. */
int64_t collet_recorder_time(const struct collet_recorder *recorder, uint64_t ticks);
/* Finds the record of a call. False if it has not been made yet, or too long ago. Any thread. */
bool collet_recorder_find(const struct collet_recorder *recorder, uint64_t sequence, struct collet_record *record);
/* Returns the number of calls so far. Any thread. */
uint64_t collet_recorder_count(const struct collet_recorder *recorder);

/* Returns a hash of all arguments that must agree. */
uint64_t collet_call_signature(const struct collet_call *call);
/* Returns a hash of a call with this signature and of all calls before it, whose history is given (0 before the first).
 * Messages carry it. So ranks that disagreed in a call without a message between them find out at their next
 * message. */
uint64_t collet_call_history_hash(uint64_t signature, uint64_t history);
/* Describes a call: "allreduce of 1003 f32 sum (call 12, algorithm ring)". */
void collet_call_describe(const struct collet_call *call, char *text, size_t capacity);

#endif
