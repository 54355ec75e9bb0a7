/* The arguments of a call that its plan depends on. */
#ifndef COLLET_ENGINE_PLAN_KEY_H
#define COLLET_ENGINE_PLAN_KEY_H

#include <stdbool.h>
#include <stdint.h>

/* A pooled request that is used again for a call with the same key keeps its plan. */
struct collet_plan_key {
	uint64_t count;
	uint32_t root, op;
	uint32_t segment_bytes;      /* 0: as chosen */
	uint8_t channels;            /* 0: as chosen */
	uint8_t collective, dtype;
	/* 0: there is no plan; 1: as chosen; 2 + i: the caller named the collective's i-th */
	uint8_t algorithm;
	bool commutes;
};

#endif
