/* The links that the tests of the choice compute with. */
#ifndef COLLET_TESTS_SELECTION_LINKS_H
#define COLLET_TESTS_SELECTION_LINKS_H

#include "selection/tuning.h"

enum { SELF_LINK, SHM_LINK, TCP_LINK };

/* Costs like those of the transports; not the built-in ones, which are measured again from time to time. */
static const collet_link_cost links[] = {
	{ .transport = "self",
		.ranks = 1,
		.cores = 1,
		.latency_ns = 30,
		.overhead_ns = 20,
		.segment_ns = 20,
		.byte_ns = {0.1, 0.1, 0.1, 0.1},
		.reduce_byte_ns = 0.05,
		.cached_bytes = UINT64_MAX,
		.min_segment_bytes = 16384,
		.max_segment_bytes = 262144,
		.channel_ratios = {1} },
	{ .transport = "shm",
		.ranks = 2,
		.cores = 2,
		.latency_ns = 200,
		.overhead_ns = 50,
		.segment_ns = 50,
		.byte_ns = {0.125, 0.125, 0.125, 0.125},
		.reduce_byte_ns = 0.05,
		.cached_bytes = UINT64_MAX,
		.min_segment_bytes = 16384,
		.max_segment_bytes = 262144,
		.channel_ratios = {1} },
	{ .transport = "tcp",
		.ranks = 2,
		.cores = 2,
		.latency_ns = 3500,
		.overhead_ns = 1500,
		.segment_ns = 1000,
		.byte_ns = {0.333, 0.333, 0.333, 0.333},
		.reduce_byte_ns = 0.05,
		.cached_bytes = UINT64_MAX,
		.min_segment_bytes = 16384,
		.max_segment_bytes = 262144,
		.channel_ratios = {1, 0.7, 0.6} },
};

#endif
