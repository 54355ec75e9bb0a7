/* verbs: sizes and limits of an endpoint: the wide profile, and the lean one for ranks with many peers. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_PROFILE_H
#define COLLET_TRANSPORT_VERBS_VERBS_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RAILS_MAX = 4,                   /* adapters used by one conduit */
	DATA_QPS_MAX = 4,                /* queue pairs for large messages */
	QPS_MAX = 1 + DATA_QPS_MAX,

	UNIT_BYTES = 64,
	SLOTS = 64,                      /* of messages in a ring; no window is larger. A power of two: numbers wrap */
	HEADER_BYTES = 32,               /* struct verbs_header */
	CREDIT_PARTS = 3,                /* a window's part freed and untold is told by a write of its own */

	LARGE_MAX = 4,                   /* announced and not over, each way */
	BOUNCE_BUFFERS = 2,              /* landing, and staging */

	SEGMENT_BYTES = 1 << 20,         /* of a large message, a write */
	STRIPE_BYTES = 65536,            /* less for each data queue pair is not worth another one */

	SIGNAL_EVERY = 16
};

/* What a conduit has of everything. */
struct verbs_profile {
	uint32_t units;                  /* of a ring */
	uint32_t window;                 /* small messages that the receiver has not freed */
	uint32_t bounce_bytes;           /* of a landing or staging place */
	uint32_t data_qps;               /* queue pairs for large messages, and on each adapter one */
	bool is_lean;                    /* only one adapter is used */
	uint32_t depth, data_depth;      /* of send queues; more than SIGNAL_EVERY, where not all are signalled */
	uint32_t receive_batch;          /* receive requests given back at a time */
	uint32_t inline_bytes;           /* asked for */
};
/* Depths, and their sums in completion queues, stay below powers of two: drivers have one place more and round up. */
static const struct verbs_profile collet_verbs_profile_wide = { .units = 256,
	.window = 48,
	.bounce_bytes = 4096,
	.data_qps = 2,
	.depth = 63,
	.data_depth = 15,
	.receive_batch = 16,
	.inline_bytes = 220 };
/* Its registered memory is three pages. */
static const struct verbs_profile collet_verbs_profile_lean = { .units = 56,
	.window = 8,
	.bounce_bytes = 1024,
	.data_qps = 1,
	.is_lean = true,
	.depth = 20,
	.data_depth = 3,
	.receive_batch = 3,
	.inline_bytes = 128 };

/* Bytes of a message in the ring: with its header a quarter of it. */
static inline uint32_t verbs_max_small_bytes(const struct verbs_profile *profile)
{
	return profile->units / 4 * UNIT_BYTES - HEADER_BYTES;
}

#endif
