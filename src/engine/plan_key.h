/* The arguments of a call that its plan depends on. */
#ifndef COLLET_ENGINE_PLAN_KEY_H
#define COLLET_ENGINE_PLAN_KEY_H

#include <stdbool.h>
#include <stdint.h>

/* What a request was planned for. A pooled request that is used for the same call again keeps its plan. */
struct collet_plan_key {
	uint64_t count;
	uint32_t root, op;
	uint32_t segment_bytes;      /* 0: the choice; channels too */
	uint8_t channels;
	uint8_t collective, dtype;
	uint8_t algorithm;           /* 0: there is no plan; 1: the choice; 2 + i: the collective's i-th was named */
	bool commutes;
};

#endif
