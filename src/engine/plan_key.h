/* The arguments of a call that its plan depends on. */
#ifndef COLLET_ENGINE_PLAN_KEY_H
#define COLLET_ENGINE_PLAN_KEY_H

#include <stdbool.h>
#include <stdint.h>

enum {
	COLLET_PLAN_SLOTS = 16,      /* free requests with a plan lie in one of so many lists */
	COLLET_NO_PLAN_SLOT = COLLET_PLAN_SLOTS, /* the list of those without */
	COLLET_PLANS_KEPT = 32       /* plans of other calls are given up from so many requests on */
};

/* A pooled request that is used again for a call with the same key keeps its plan. */
struct collet_plan_key {
	uint64_t count;
	uint32_t root, op;
	uint32_t segment_bytes;      /* 0: as chosen */
	uint8_t channels;            /* 0: as chosen */
	uint8_t collective, dtype;
	/* 0: there is no plan; 1: as chosen; 2 + i: the caller named the collective's i-th */
	uint8_t algorithm;
	uint8_t slot;                /* collet_plan_slot() */
	bool commutes;
};

static inline bool collet_plan_key_equal(const struct collet_plan_key *a, const struct collet_plan_key *b)
{
	return a->count == b->count && a->root == b->root && a->collective == b->collective && a->dtype == b->dtype &&
		a->op == b->op && a->algorithm == b->algorithm && a->segment_bytes == b->segment_bytes &&
		a->channels == b->channels && a->commutes == b->commutes;
}

/* Returns the slot of a call's plan. Calls that an application makes in turn mostly differ in these three. */
static inline uint32_t collet_plan_slot(uint32_t collective, uint64_t count, uint32_t root)
{
	const uint64_t hash = (count * 16 + collective + ((uint64_t)root << 40)) * 0x9e3779b97f4a7c15u; /* Fibonacci */
	return (uint32_t)(hash >> 60);
}

#endif
