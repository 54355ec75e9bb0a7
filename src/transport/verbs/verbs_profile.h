/* verbs: sizes and limits of an endpoint: the wide profile, and the lean one for ranks with many peers. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_PROFILE_H
#define COLLET_TRANSPORT_VERBS_VERBS_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	VERBS_RAILS_MAX = 4,             /* adapters used by one endpoint */
	VERBS_DATA_QPS_MAX = 4,          /* queue pairs for large messages */
	VERBS_QPS_MAX = 1 + VERBS_DATA_QPS_MAX,

	VERBS_UNIT_BYTES = 64,
	VERBS_SLOTS = 64,                /* entries for messages of a ring; at least the window, and a power of two
					    because message numbers wrap */
	VERBS_HEADER_BYTES = 32,         /* sizeof(struct verbs_header) */
	VERBS_CREDIT_PARTS = 3,          /* 1/3 of the window freed and uncredited is worth a write of its own */

	VERBS_LARGE_MAX = 4,             /* large messages in flight, each way */
	VERBS_BOUNCE_BUFFERS = 2,        /* at the receiver, and as many at the sender */

	VERBS_SEGMENT_BYTES = 1 << 20,   /* most bytes of a write of a large message */
	VERBS_STRIPE_BYTES = 65536,      /* least bytes of a stripe that are worth another queue pair */

	VERBS_SIGNAL_EVERY = 16          /* one of so many ring writes is signalled */
};

/* Sizes of an endpoint's resources. */
struct verbs_profile {
	uint32_t units;                  /* units of a ring */
	uint32_t window;                 /* most small messages that the receiver has not freed */
	uint32_t bounce_bytes;           /* size of a bounce buffer */
	uint32_t data_qps;               /* least queue pairs for large messages; each adapter has at least one */
	bool is_lean;                    /* only one adapter is used */
	uint32_t depth, data_depth;      /* lengths of send queues; depth exceeds VERBS_SIGNAL_EVERY, because
					    not all of its writes are signalled */
	uint32_t receive_batch;          /* receive requests reposted at a time */
	uint32_t inline_bytes;           /* inline size to ask for */
};
/* Queue lengths, and their sums in completion queues, stay just below powers of two: drivers add one entry and round up
 * to a power of two. */
static const struct verbs_profile collet_verbs_profile_wide = { .units = 256,
	.window = 48,
	.bounce_bytes = 4096,
	.data_qps = 2,
	.depth = 63,
	.data_depth = 15,
	.receive_batch = 16,
	.inline_bytes = 220 };
/* The registered memory of this profile is three pages. */
static const struct verbs_profile collet_verbs_profile_lean = { .units = 56,
	.window = 8,
	.bounce_bytes = 1024,
	.data_qps = 1,
	.is_lean = true,
	.depth = 20,
	.data_depth = 3,
	.receive_batch = 3,
	.inline_bytes = 128 };

/* Most bytes of a small message. With its header it takes at most a quarter of the ring. */
static inline uint32_t verbs_max_small_bytes(const struct verbs_profile *profile)
{
	return profile->units / 4 * VERBS_UNIT_BYTES - VERBS_HEADER_BYTES;
}

#endif
