/* The flight recorder: a group's last few hundred calls: what, when, how far. Also answers what this rank called as
 * number k, when ranks disagree. */
#ifndef COLLET_ENGINE_RECORDER_H
#define COLLET_ENGINE_RECORDER_H

#include <stdalign.h>
#include <stdatomic.h>

#include <collet/collet.h>

enum { COLLET_RECORDS = 512 };

/* What all ranks must agree on in one call. Travels between ranks as it is, inside control messages. */
struct collet_call {
	uint64_t sequence;       /* the group's k-th collective, from 0 */
	uint64_t count;          /* v-forms: 0, since ranks may know their own only */
	uint32_t root;
	uint8_t collective;      /* enum collet_collective */
	uint8_t is_vector;       /* a v-form */
	uint8_t dtype, op;       /* 0xff: the collective has none */
	uint32_t algorithm;      /* index into the collective's programs */
	uint32_t segment_bytes, channels; /* as the caller wants them; 0: as chosen */
	uint32_t user_op;        /* hash of a user operation's name */
	char user_name[24];      /* its beginning, for sentences */
};

struct collet_record {
	struct collet_call call;
	uint64_t history;              /* signature of this call and all before it */
	/* Monotonic; ended 0: has not. Equal: it was over before it was worth a look at the clock. */
	int64_t started_ns, ended_ns;
	enum collet_status status;
	uint64_t finished_items;       /* finished pieces: how far it got */
};

/* A record as it lies in the ring: written by one thread, read by any. version is odd while it is being written; the
 * words are atomic so that a torn read is seen by its version, not undefined. What differs from call to call fills a
 * line; the rest of the call comes behind, and is not written again where a call like the one that was here takes its
 * place, as in a loop. */
struct collet_recorder_slot {
	alignas(64) _Atomic uint64_t version;
	uint64_t signature;            /* of the call alone; the writer's own: it says what the rest is of */
	_Atomic uint64_t word[5 + sizeof(struct collet_call) / 8];
};

struct collet_recorder {
	_Atomic uint64_t call_count;   /* so far; call k is in ring[k % COLLET_RECORDS] while it is young enough */
	struct collet_recorder_slot *ring;
	/* Records carry ticks, which cost less than asking for the time; these two moments tell what a tick is. */
	uint64_t first_ticks;
	int64_t first_ns;
};

collet_status collet_recorder_init(struct collet_recorder *recorder);
/* Of one that nobody writes meanwhile. */
collet_status collet_recorder_copy(struct collet_recorder *copy, const struct collet_recorder *from);
void collet_recorder_deinit(struct collet_recorder *recorder);
/* Calls come in order of their sequence. Both by one thread at a time, at a moment in ticks. signature: the call's own;
 * history: with all before it. */
void collet_recorder_start(struct collet_recorder *recorder, const struct collet_call *call, uint64_t signature,
	uint64_t history, uint64_t ticks);
void collet_recorder_end(struct collet_recorder *recorder, uint64_t sequence, enum collet_status status, uint64_t items,
	uint64_t ticks);
/* The monotonic clock's reading at that moment, as exact as the clock's and the ticks' common past is long. */
int64_t collet_recorder_time(const struct collet_recorder *recorder, uint64_t ticks);
/* The record of call `sequence`; false: not called yet, or too long ago. Any thread. */
bool collet_recorder_find(const struct collet_recorder *recorder, uint64_t sequence, struct collet_record *record);
/* How many calls so far. Any thread. */
uint64_t collet_recorder_count(const struct collet_recorder *recorder);

/* All that must agree, in one number. */
uint64_t collet_call_signature(const struct collet_call *call);
/* The same of a call with this signature and all before it, whose history this is (0 before the first). Messages carry
 * it, so that ranks that disagreed in a call in which no message passed between them find out at the next one that
 * does. */
uint64_t collet_call_history(uint64_t signature, uint64_t history);
/* "allreduce of 1003 f32 sum (call 12, ring)" */
void collet_call_describe(const struct collet_call *call, char *text, size_t capacity);

#endif
