/* The greatest number of remote operands of a step, on any rank, for several kinds of programs. */
#ifndef COLLET_COLLECTIVES_FAN_IN_H
#define COLLET_COLLECTIVES_FAN_IN_H

#include "collectives/host_groups.h"
#include "collectives/step.h"

static inline uint32_t fan_in_one(const struct collet_shape *shape)
{
	(void)shape;
	return 1;
}

static inline uint32_t fan_in_two(const struct collet_shape *shape)
{
	(void)shape;
	return 2;
}

/* The other ranks of a half, or the first rank of the other half. */
static inline uint32_t fan_in_half(const struct collet_shape *shape)
{
	return shape->size > 3 ? shape->size - shape->size / 2 - 1 : 1;
}

static inline uint32_t fan_in_children(const struct collet_shape *shape)
{
	return shape->size > 2 ? collet_log2_ceil(shape->size) : 1;
}

static inline uint32_t fan_in_host_children(const struct collet_shape *shape)
{
	const uint32_t fullest = collet_host_group_max_size(shape);
	return fullest > 2 ? collet_log2_ceil(fullest) : 1;
}

/* The ranks of a host, and the leaders of two other hosts. */
static inline uint32_t fan_in_host(const struct collet_shape *shape)
{
	return collet_host_group_max_size(shape) + 1;
}

#endif
