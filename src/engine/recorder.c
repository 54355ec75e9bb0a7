#include "engine/recorder.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/program.h"
#include "core/clock.h"
#include "core/status.h"

/* Indices of the words of a slot. The call is last, and its sequence is first in it. */
enum {
	HISTORY,
	STARTED,
	ENDED,
	STATUS,
	ITEMS,
	CALL,
	CALL_WORDS = sizeof(struct collet_call) / 8,
	WORDS = CALL + CALL_WORDS
};

_Static_assert(sizeof(struct collet_call) % 8 == 0, "a call is copied by words");
_Static_assert(offsetof(struct collet_call, sequence) == 0 &&
	offsetof(struct collet_recorder_slot, word[CALL + 1]) == 64,
	"fields that differ from call to call fill one line");

static struct collet_recorder_ring *create_ring(uint64_t size)
{
	const size_t bytes = sizeof(struct collet_recorder_ring) + size * sizeof(struct collet_recorder_slot);
	struct collet_recorder_ring *ring = aligned_alloc(alignof(struct collet_recorder_ring), bytes);
	if (!ring)
		return NULL;
	memset(ring, 0, bytes);
	ring->size = size;
	return ring;
}

static struct collet_recorder_ring *ring_of(const struct collet_recorder *recorder)
{
	/* Acquire, pairing with the release store in grow(), which has copied the records. */
	return atomic_load_explicit(&recorder->ring, memory_order_acquire);
}

collet_status collet_recorder_init(struct collet_recorder *recorder)
{
	struct collet_recorder_ring *ring = create_ring(COLLET_RECORDS);
	if (!ring)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the flight recorder");
	atomic_init(&recorder->ring, ring);
	atomic_init(&recorder->call_count, 0);
	recorder->first_ticks = collet_ticks();
	recorder->first_ns = collet_clock_ns();
	return COLLET_OK;
}

collet_status collet_recorder_copy(struct collet_recorder *copy, const struct collet_recorder *from)
{
	const struct collet_recorder_ring *ring = ring_of(from);
	struct collet_recorder_ring *copied = create_ring(ring->size);
	if (!copied)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a copy of the flight recorder");
	memcpy(copied->slot, ring->slot, ring->size * sizeof(*ring->slot));
	atomic_init(&copy->ring, copied);
	atomic_init(&copy->call_count, collet_recorder_count(from));
	copy->first_ticks = from->first_ticks;
	copy->first_ns = from->first_ns;
	return COLLET_OK;
}

void collet_recorder_deinit(struct collet_recorder *recorder)
{
	for (struct collet_recorder_ring *ring = ring_of(recorder), *smaller; ring; ring = smaller) {
		smaller = ring->smaller;
		free(ring);
	}
	atomic_init(&recorder->ring, NULL);
}

static struct collet_recorder_slot *slot_of(struct collet_recorder_ring *ring, uint64_t sequence)
{
	return &ring->slot[sequence & (ring->size - 1)];
}

/* Doubles the ring, since the next call would overwrite one that is pending, about which peers may ask. Without memory
 * it is overwritten. Only the writer calls this. */
static struct collet_recorder_ring *grow(struct collet_recorder *recorder, uint64_t sequence)
{
	struct collet_recorder_ring *ring = ring_of(recorder), *larger = create_ring(2 * ring->size);
	if (!larger)
		return ring;
	larger->smaller = ring;
	for (uint64_t call = sequence - ring->size; call < sequence; call++)
		memcpy(slot_of(larger, call), slot_of(ring, call), sizeof(*ring->slot));
	atomic_store_explicit(&recorder->ring, larger, memory_order_release);
	return larger;
}

/* Begins a write, as in a seqlock (Boehm, "Can seqlocks get along with programming language memory models?", 2012). */
static void begin_write(struct collet_recorder_slot *slot)
{
	const uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);
	atomic_store_explicit(&slot->version, version + 1, memory_order_relaxed);
	/* The release stores of the words, below, are not visible before the odd version. */
}

static void store_word(struct collet_recorder_slot *slot, unsigned word, uint64_t value)
{
	atomic_store_explicit(&slot->word[word], value, memory_order_release);
}

static void end_write(struct collet_recorder_slot *slot)
{
	const uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);
	/* Pairs with a reader's first acquire load: then the words are visible. */
	atomic_store_explicit(&slot->version, version + 1, memory_order_release);
}

/* True if the slot's call has not ended. Only the writer calls this. */
static bool is_pending(const struct collet_recorder_slot *slot)
{
	return atomic_load_explicit(&slot->word[STATUS], memory_order_relaxed) == COLLET_PENDING;
}

/* Stores all of the call but its sequence. */
static void store_call(struct collet_recorder_slot *slot, const struct collet_call *call)
{
	for (unsigned i = 1; i < CALL_WORDS; i++) {
		uint64_t word;
		memcpy(&word, (const char *)call + i * sizeof(word), sizeof(word));
		store_word(slot, CALL + i, word);
	}
}

void collet_recorder_start(struct collet_recorder *recorder, const struct collet_call *call, uint64_t signature,
	uint64_t history, uint64_t ticks)
{
	struct collet_recorder_ring *ring = ring_of(recorder);
	if (is_pending(slot_of(ring, call->sequence)))
		ring = grow(recorder, call->sequence);
	struct collet_recorder_slot *slot = slot_of(ring, call->sequence);
	/* A slot that was never written has the signature 0. */
	const bool is_new = !atomic_load_explicit(&slot->version, memory_order_relaxed);
	begin_write(slot);
	if (slot->signature != signature || is_new) {
		slot->signature = signature;
		store_call(slot, call);
	}
	store_word(slot, CALL, call->sequence);
	store_word(slot, HISTORY, history);
	store_word(slot, STARTED, ticks);
	store_word(slot, ENDED, 0);
	store_word(slot, STATUS, COLLET_PENDING);
	store_word(slot, ITEMS, 0);
	end_write(slot);
	/* Pairs with collet_recorder_count(): a thread that counts the call finds it. */
	atomic_store_explicit(&recorder->call_count, call->sequence + 1, memory_order_release);
}

void collet_recorder_end(struct collet_recorder *recorder, uint64_t sequence, enum collet_status status, uint64_t items,
	uint64_t ticks)
{
	struct collet_recorder_ring *ring = ring_of(recorder);
	struct collet_recorder_slot *slot = slot_of(ring, sequence);
	if (atomic_load_explicit(&recorder->call_count, memory_order_relaxed) > sequence + ring->size)
		return;  /* a later call uses the slot */
	begin_write(slot);
	store_word(slot, ENDED, ticks);
	store_word(slot, STATUS, status);
	store_word(slot, ITEMS, items);
	end_write(slot);
}

/* Reads a slot once. False if it was being written. */
static bool read_slot(const struct collet_recorder_slot *slot, uint64_t words[WORDS])
{
	const uint64_t before = atomic_load_explicit(&slot->version, memory_order_acquire);
	/* Acquire, so that version is read again after them. Each pairs with a store_word(). */
	for (unsigned i = 0; i < WORDS; i++)
		words[i] = atomic_load_explicit(&slot->word[i], memory_order_acquire);
	return before % 2 == 0 && atomic_load_explicit(&slot->version, memory_order_relaxed) == before;
}

static double tick_length(const struct collet_recorder *recorder)
{
	const uint64_t ticks = collet_ticks() - recorder->first_ticks;
	return ticks ? (double)(collet_clock_ns() - recorder->first_ns) / (double)ticks : 1;
}

static int64_t time_of(const struct collet_recorder *recorder, uint64_t ticks, double tick_ns)
{
	return recorder->first_ns + (int64_t)((double)(ticks - recorder->first_ticks) * tick_ns);
}

int64_t collet_recorder_time(const struct collet_recorder *recorder, uint64_t ticks)
{
	return time_of(recorder, ticks, tick_length(recorder));
}

bool collet_recorder_find(const struct collet_recorder *recorder, uint64_t sequence, struct collet_record *record)
{
	if (sequence >= collet_recorder_count(recorder))
		return false;
	uint64_t words[WORDS];
	uint32_t tries = 0;
	const struct collet_recorder_slot *slot = slot_of(ring_of(recorder), sequence);
	if (!atomic_load_explicit(&slot->version, memory_order_acquire))
		return false;  /* never written: all zero, as if it were call 0 */
	while (!read_slot(slot, words))
		if (++tries >
			100000) /* a write takes a few stores, unless its thread has been stopped */
			return false;
	memcpy(&record->call, words + CALL, sizeof(record->call));
	if (record->call.sequence != sequence)
		return false;
	record->history_hash = words[HISTORY];
	const double tick_ns = tick_length(recorder);
	record->started_ns = time_of(recorder, words[STARTED], tick_ns);
	record->ended_ns = words[ENDED] ? time_of(recorder, words[ENDED], tick_ns) : 0;
	record->status = (enum collet_status)words[STATUS];
	record->finished_items = words[ITEMS];
	return true;
}

uint64_t collet_recorder_count(const struct collet_recorder *recorder)
{
	return atomic_load_explicit(&recorder->call_count, memory_order_acquire);
}

/* Adds a word to a hash by one round of the finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) + 0x9e3779b97f4a7c15;
	hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
	return hash ^ (hash >> 31);
}

uint64_t collet_call_signature(const struct collet_call *call)
{
	const uint64_t what = (uint64_t)call->collective | (uint64_t)call->is_vector << 8 |
			      (uint64_t)call->dtype << 16 | (uint64_t)call->op << 24 | (uint64_t)call->algorithm << 32;
	const uint64_t cut = (uint64_t)call->segment_bytes << 32 | call->channels;
	const uint64_t signature = mix(mix(mix(0, what), call->count), (uint64_t)call->root << 32 | call->user_op);
	return cut ? mix(signature, cut) : signature;
}

uint64_t collet_call_history_hash(uint64_t signature, uint64_t history)
{
	return mix(history, signature);
}

void collet_call_describe(const struct collet_call *call, char *text, size_t capacity)
{
	size_t programs = 0;
	const struct collet_program *const *list = collet_programs((enum collet_collective)call->collective, &programs);
	const char *name = collet_collective_name((enum collet_collective)call->collective);
	const char *dtype = collet_dtype_name((collet_dtype)call->dtype), *op = collet_op_name((collet_op)call->op);
	int used = snprintf(text, capacity, "%s%s", name ? name : "unknown", call->is_vector ? "v" : "");
	if (used >= 0 && (size_t)used < capacity && dtype && !call->is_vector)
		used += snprintf(
			text + used, capacity - (size_t)used, " of %llu %s", (unsigned long long)call->count, dtype);
	if (used >= 0 && (size_t)used < capacity && op)
		used += snprintf(text + used, capacity - (size_t)used, " %s", op);
	if (used >= 0 && (size_t)used < capacity && call->op == COLLET_USER)
		used += snprintf(text + used, capacity - (size_t)used, " \"%.*s\"", (int)sizeof(call->user_name),
			call->user_name);
	if (used >= 0 && (size_t)used < capacity && call->root != UINT32_MAX)
		used += snprintf(text + used, capacity - (size_t)used, " root %u", call->root);
	if (used >= 0 && (size_t)used < capacity)
		used += snprintf(text + used, capacity - (size_t)used, " (call %llu, algorithm %s",
			(unsigned long long)call->sequence,
			call->algorithm < programs ? list[call->algorithm]->name : "unknown");
	if (used >= 0 && (size_t)used < capacity && call->segment_bytes)
		used += snprintf(text + used, capacity - (size_t)used, ", segments of %u bytes", call->segment_bytes);
	if (used >= 0 && (size_t)used < capacity && call->channels)
		used += snprintf(text + used, capacity - (size_t)used, ", %u channels", call->channels);
	if (used >= 0 && (size_t)used < capacity)
		snprintf(text + used, capacity - (size_t)used, ")");
}
