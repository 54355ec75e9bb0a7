/* verbs: what the two ends of an endpoint write into each other's memory or say over the socket. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_WIRE_H
#define COLLET_TRANSPORT_VERBS_VERBS_WIRE_H

#include <stdint.h>

#include <collet/transport.h>

#include "verbs_profile.h"

/* An immediate: what, an argument of ten bits, and how many messages the sender of it has freed, modulo 2^20. */
enum verbs_immediate_kind { KIND_MESSAGE, KIND_CREDIT, KIND_CTS, KIND_END };

/* What an immediate's completion says, as iWARP sends it. */
struct verbs_notice {
	uint32_t immediate; /* big endian, as the other one */
	uint32_t bytes;     /* of the write before it */
};

/* At the beginning of a message in the ring. */
struct verbs_header {
	struct collet_message message;
	uint32_t large_id;               /* 0: the bytes follow; else 1 + which of LARGE_MAX */
	uint32_t magic;
};

enum verbs_cts_mode { CTS_NONE, CTS_DIRECT, CTS_BOUNCE, CTS_DISCARD };

/* The receiver's answer to an announced message. */
struct verbs_cts {
	uint64_t address;                /* DIRECT */
	uint64_t allowed_bytes;          /* PLACES: bytes that may have been written so far */
	uint32_t rkeys[RAILS_MAX];       /* DIRECT: by the receiver's rail */
	uint32_t mode;
	uint32_t reserved[3];
};

/* Registered memory of a conduit, laid out alike at both ends. Behind what is here come, by the shape, ring and landing
 * places, which the peer writes, and mirror and staging places, which only this end's adapters read. */
struct verbs_memory {
	struct verbs_cts cts_in[LARGE_MAX];
	uint64_t probe[8]; /* written by nothing but empty writes and probes; iWARP: the first is read by
			      the peer, into its second */
	struct verbs_cts cts_out[LARGE_MAX];     /* only read, by this end's adapters */
	uint8_t rest[];
};

static inline size_t verbs_memory_bytes(const struct verbs_profile *profile)
{
	return sizeof(struct verbs_memory) +
	       2 * ((size_t)profile->units * UNIT_BYTES + BOUNCE_BUFFERS * profile->bounce_bytes);
}

/* Said by both ends over the socket. */
struct verbs_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t state;                  /* enum verbs_state: what is said */
	uint32_t from, to;               /* ranks */
	uint32_t channel;
	uint32_t rail_count, qp_count;
	uint32_t start_sequence;
	uint32_t is_lean, reserved;
	uint64_t memory;                 /* address of struct verbs_memory */
	uint8_t token[16];               /* iWARP: whoever connects has to show it */
	struct {
		uint8_t gid[16];
		uint32_t rkey;           /* of memory */
		uint32_t rate_mbps;
		uint64_t max_write_bytes;
		uint16_t lid;
		uint8_t mtu;
		uint8_t network;
		uint16_t port; /* iWARP: where the end that accepts awaits connections */
		uint16_t reserved;
	} rails[RAILS_MAX];
	struct {
		uint32_t qp_number;
		uint32_t rail;
	} qps[QPS_MAX];
};

#endif
