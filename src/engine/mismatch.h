/* Mismatch detection: finds out which ranks disagree about a call, or do not arrive. */
#ifndef COLLET_ENGINE_MISMATCH_H
#define COLLET_ENGINE_MISMATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <collet/transport.h>

#include "core/status.h"
#include "engine/recorder.h"

struct collet_comm_state;
struct collet_request;

/* What a rank has answered about a call. */
struct collet_peer_reply {
	bool has_replied, arrived;
	bool has_left;               /* it has closed its context in order: there is nothing more that it will say */
	uint64_t queried_sequence, call_count;
	struct collet_call last_call;
};

/* Under fabric_lock. */
struct collet_mismatch {
	/* COLLET_OK, or what the group ends with unless somebody says better: see mismatch.c. Read without the lock as
	 * a hint. */
	_Atomic int suspected_status;
	uint32_t peer;
	int64_t grace_deadline_ns;
	char sentence[COLLET_ERROR_BYTES];
	struct collet_peer_reply *replies; /* by rank */
};

/* A message that nobody expected came from peer. Under lock. */
void collet_mismatch_suspect(struct collet_comm_state *state, uint32_t peer, const struct collet_request *request,
	const struct collet_message *received);
/* The connection to peer has ended. That may be the first sign of what peer, or somebody, is about to tell: the group
 * ends with this status only if nothing comes. Under fabric_lock. */
void collet_mismatch_suspect_loss(
	struct collet_comm_state *state, uint32_t peer, enum collet_status status, const char *sentence);
/* Peer has closed its context, or destroyed the communicator, in order. Control thread, under fabric_lock. */
void collet_mismatch_peer_left(struct collet_comm_state *state, uint32_t peer);
/* A request is pending at `now`. Under lock. */
void collet_mismatch_check_pending(struct collet_request *request, int64_t now);
/* A control message for the group. Control thread, under fabric_lock. */
void collet_mismatch_handle_message(
	struct collet_comm_state *state, uint32_t from, uint32_t type, const void *data, size_t bytes);

#endif
