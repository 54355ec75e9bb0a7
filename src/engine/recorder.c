#include "engine/recorder.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/program.h"
#include "core/status.h"

collet_status collet_recorder_init(struct collet_recorder *recorder)
{
	recorder->calls = 0;
	recorder->ring = calloc(COLLET_RECORDS, sizeof(*recorder->ring));
	if (!recorder->ring)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the flight recorder");
	pthread_mutex_init(&recorder->lock, NULL);
	return COLLET_OK;
}

void collet_recorder_deinit(struct collet_recorder *recorder)
{
	if (!recorder->ring)
		return;
	pthread_mutex_destroy(&recorder->lock);
	free(recorder->ring);
	recorder->ring = NULL;
}

void collet_recorder_start(struct collet_recorder *recorder, const struct collet_call *call, uint64_t history,
	int64_t now_ns)
{
	pthread_mutex_lock(&recorder->lock);
	struct collet_record *record = &recorder->ring[call->sequence % COLLET_RECORDS];
	record->call = *call;
	record->history = history;
	record->started_ns = now_ns;
	record->ended_ns = 0;
	record->status = COLLET_PENDING;
	record->items = 0;
	recorder->calls = call->sequence + 1;
	pthread_mutex_unlock(&recorder->lock);
}

void collet_recorder_end(struct collet_recorder *recorder, uint64_t sequence, enum collet_status status, int64_t now_ns,
	uint64_t items)
{
	pthread_mutex_lock(&recorder->lock);
	struct collet_record *record = &recorder->ring[sequence % COLLET_RECORDS];
	if (record->call.sequence == sequence) {
		record->ended_ns = now_ns;
		record->status = status;
		record->items = items;
	}
	pthread_mutex_unlock(&recorder->lock);
}

bool collet_recorder_find(struct collet_recorder *recorder, uint64_t sequence, struct collet_record *record)
{
	pthread_mutex_lock(&recorder->lock);
	const bool found = sequence < recorder->calls && recorder->ring[sequence % COLLET_RECORDS].call.sequence == sequence;
	if (found)
		*record = recorder->ring[sequence % COLLET_RECORDS];
	pthread_mutex_unlock(&recorder->lock);
	return found;
}

uint64_t collet_recorder_count(struct collet_recorder *recorder)
{
	pthread_mutex_lock(&recorder->lock);
	const uint64_t calls = recorder->calls;
	pthread_mutex_unlock(&recorder->lock);
	return calls;
}

/* One round of the finaliser of splitmix64 (Steele, Lea, Flood 2014) for each word. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) + 0x9e3779b97f4a7c15;
	hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
	return hash ^ (hash >> 31);
}

uint64_t collet_call_signature(const struct collet_call *call)
{
	const uint64_t what = (uint64_t)call->collective | (uint64_t)call->listed << 8 | (uint64_t)call->dtype << 16 |
		(uint64_t)call->op << 24 | (uint64_t)call->algorithm << 32;
	return mix(mix(mix(0, what), call->count), (uint64_t)call->root << 32 | call->user_op);
}

uint64_t collet_call_history(const struct collet_call *call, uint64_t history)
{
	return mix(history, collet_call_signature(call));
}

void collet_call_describe(const struct collet_call *call, char *text, size_t capacity)
{
	size_t programs = 0;
	const struct collet_program *const *list = collet_programs((enum collet_collective)call->collective, &programs);
	const char *name = collet_collective_name((enum collet_collective)call->collective);
	const char *dtype = collet_dtype_name((collet_dtype)call->dtype), *op = collet_op_name((collet_op)call->op);
	int used = snprintf(text, capacity, "%s%s", name ? name : "unknown", call->listed ? "v" : "");
	if (used >= 0 && (size_t)used < capacity && dtype && !call->listed)
		used += snprintf(text + used, capacity - (size_t)used, " of %llu %s", (unsigned long long)call->count, dtype);
	if (used >= 0 && (size_t)used < capacity && op)
		used += snprintf(text + used, capacity - (size_t)used, " %s", op);
	if (used >= 0 && (size_t)used < capacity && call->op == COLLET_USER)
		used += snprintf(text + used, capacity - (size_t)used, " \"%.*s\"", (int)sizeof(call->user_name), call->user_name);
	if (used >= 0 && (size_t)used < capacity && call->root != UINT32_MAX)
		used += snprintf(text + used, capacity - (size_t)used, " root %u", call->root);
	if (used >= 0 && (size_t)used < capacity)
		snprintf(text + used, capacity - (size_t)used, " (call %llu, algorithm %s)", (unsigned long long)call->sequence,
			call->algorithm < programs ? list[call->algorithm]->name : "unknown");
}
