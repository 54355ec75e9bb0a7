/* Connects queue pairs between the two processes of a limit, as the verbs transport does: one for small messages,
 * and one or two for large ones, on up to two adapters. The partner takes the adapters in reverse order, so that
 * with two of them the bytes cross the wire. It is a module of its own (collet-limits-verbs.so), so that
 * collet-bench does not link rdma-core. */
#ifndef BENCH_LIMITS_VERBS_H
#define BENCH_LIMITS_VERBS_H

#include <infiniband/verbs.h>

#include "limits.h"

enum {
	RAW_RAILS = 2,
	RAW_PAIRS = 3, /* the first for small messages */
	RAW_DEPTH = 64,
	RAW_SIGNAL_EVERY = 16, /* of small messages' writes */
	RAW_RECEIVE_BATCH = 16,
	RAW_INLINE = 220,
	RAW_SLOTS = 2,        /* where the peer writes in turn: it may be one message ahead */
	RAW_SLOT_BYTES = 4096 /* of small messages */
};

struct raw_rail {
	struct ibv_context *context;
	struct ibv_pd *protection;
	struct ibv_cq *completions;
	uint8_t port, gid_index;
	union ibv_gid gid;
	uint16_t lid;
	enum ibv_mtu mtu;
	struct ibv_mr *small, *input, *landing;
};

struct raw_pair {
	struct ibv_qp *pair;
	uint32_t rail;
	uint32_t posted, done; /* sends; done as far as completions told */
	uint32_t taken;        /* receive requests used up and not given back */
};

/* The addresses that the other process sends. */
struct raw_hello {
	struct {
		uint8_t gid[16];
		uint32_t small_key, landing_key;
		uint16_t lid;
		uint8_t mtu, reserved;
	} rails[RAW_RAILS];
	uint32_t numbers[RAW_PAIRS], rails_of[RAW_PAIRS];
	uint64_t small, landing;
};

struct raw {
	uint32_t rail_count;
	struct raw_rail rails[RAW_RAILS];
	struct raw_pair pairs[RAW_PAIRS];
	uint8_t *small, *landing; /* RAW_SLOTS of each: of RAW_SLOT_BYTES, of limit's bytes (in whole pages) */
	uint64_t landing_bytes;   /* of one */
	uint64_t turn;
	uint32_t ends; /* immediates that have come */
	struct raw_hello peer;
};

/* Runs in both processes once their TCP connection exists. Returns 0, or -1 with errno after printing a sentence. */
int raw_begin(struct limit *limit, bool partner);
void raw_end(struct limit *limit);

/* Room in the pair's send queue: takes completions until there is; -1: the connection is lost. */
int raw_room(struct raw *raw, uint32_t pair);
/* Takes completions; -1: one of them failed. */
int raw_poll(struct raw *raw);
/* Gives up the processor after long spinning. */
void raw_relax(uint32_t *spins);

#endif
