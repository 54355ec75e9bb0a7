/* verbs: the wire format: what the two ends of an endpoint write into each other's memory or send over the socket. All
 * numbers have the byte order of the machine, which the library has compared, except where noted. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_WIRE_H
#define COLLET_TRANSPORT_VERBS_VERBS_WIRE_H

#include <stdint.h>

#include <collet/transport.h>

#include "verbs_profile.h"

/* An immediate holds a kind (2 bits), an argument (10 bits), and credits (20 bits): how many messages its sender has
 * freed, modulo 2^20. */
enum verbs_immediate_kind { VERBS_KIND_MESSAGE, VERBS_KIND_CREDIT, VERBS_KIND_CTS, VERBS_KIND_END };

/* iWARP: stands for an immediate and its completion. */
struct verbs_notice {
	uint32_t immediate; /* big endian, as imm_data */
	uint32_t bytes;     /* size of the write before it */
};

/* Header of a message in the ring. */
struct verbs_header {
	struct collet_message message;
	uint32_t large_id;               /* 0: the bytes follow; else 1 + number of the announced large message */
	uint32_t magic;
};

/* Where a large message goes: into the receiver's memory, through its bounce buffers, or nowhere after a mismatch. */
enum verbs_cts_mode { VERBS_CTS_NONE, VERBS_CTS_DIRECT, VERBS_CTS_BOUNCE, VERBS_CTS_DISCARD };

/* Clear to send: the receiver's answer to an announced message. */
struct verbs_cts {
	uint64_t address;                /* VERBS_CTS_DIRECT: where to write */
	uint64_t allowed_bytes;          /* VERBS_CTS_BOUNCE: bytes that may be written so far, in total */
	uint32_t rkeys[VERBS_RAILS_MAX]; /* VERBS_CTS_DIRECT: keys, indexed by the receiver's rail */
	uint32_t mode;
	uint32_t reserved[3];
};

/* Registered memory of an endpoint, with the same layout at both ends. Four parts follow, with sizes from the profile:
 * the ring and the receive bounce buffers, which the peer writes, and the mirror and the send bounce buffers, which
 * only this end's adapters read. */
struct verbs_memory {
	struct verbs_cts cts_in[VERBS_LARGE_MAX];
	uint64_t probe[8];               /* target of empty writes and probes; iWARP: the peer reads the first element
					    into its second */
	struct verbs_cts cts_out[VERBS_LARGE_MAX]; /* read by this end's adapters only */
	uint8_t rest[];
};

static inline size_t verbs_memory_bytes(const struct verbs_profile *profile)
{
	return sizeof(struct verbs_memory) +
	       2 * ((size_t)profile->units * VERBS_UNIT_BYTES + VERBS_BOUNCE_BUFFERS * profile->bounce_bytes);
}

/* Sent by both ends over the socket, once for each state of the setup. */
struct verbs_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t state;                  /* enum verbs_state of the sender */
	uint32_t from, to;               /* ranks */
	uint32_t channel;
	uint32_t rail_count, qp_count;
	uint32_t start_sequence;
	uint32_t is_lean, reserved;
	uint64_t memory;                 /* address of struct verbs_memory */
	uint8_t token[16];               /* iWARP: random bytes that the connecting end must present */
	struct {
		uint8_t gid[16];
		uint32_t rkey;           /* key of memory for this rail */
		uint32_t rate_mbps;
		uint64_t max_write_bytes;
		uint16_t lid;
		uint8_t mtu;
		uint8_t network;
		uint16_t port;           /* iWARP: port on which the accepting end listens */
		uint16_t reserved;
	} rails[VERBS_RAILS_MAX];
	struct {
		uint32_t qp_number;
		uint32_t rail;
	} qps[VERBS_QPS_MAX];
};

#endif
