/* Mismatch detection: finds out which ranks disagree about a call or have not arrived. It also decides with which
 * status a lost connection ends the communicator. See mismatch.c. */
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
struct collet_engine;
struct collet_request;

/* How long the oldest pending call has waited. It alone asks: what it waits for, later calls wait for too. Under the
 * engine's lock. */
struct collet_stall {
	uint64_t call_count;         /* calls up to this one, when it was seen last; 0: none was */
	int64_t since_ns;            /* since then it is the oldest */
	int64_t next_query_ns;
	uint32_t warning_stage;      /* see mismatch.c */
};

/* A rank's reply to a query about a call. */
struct collet_peer_reply {
	bool has_replied, arrived;
	bool lacks_communicator;     /* it has not created the communicator yet */
	bool has_left;               /* it has closed its context in order and will send nothing more */
	uint64_t queried_sequence, call_count;
	struct collet_call last_call;
	uint64_t agreed_count;       /* calls before this one agree, or are forgotten */
	bool has_difference;
	uint64_t differing_sequence; /* a call at which, or before which, the two ranks differ */
};

/* Under engine.connections_lock. */
struct collet_mismatch {
	/* COLLET_OK, or the status with which the communicator ends unless a better reason arrives. Read without the
	 * lock as a hint. */
	_Atomic int suspected_status;
	uint32_t peer;
	int64_t grace_deadline_ns;
	char error_text[COLLET_ERROR_BYTES];
	struct collet_peer_reply *replies; /* by rank */
};

/* Suspects a mismatch, since an unexpected message came from peer. Under the engine's lock. */
void collet_mismatch_suspect(struct collet_comm_state *state, uint32_t peer, const struct collet_request *request,
	const struct collet_message *received);
/* Suspects a loss, since the connection to peer has ended. A rank may be about to send the true reason, so the
 * communicator ends with this status only if none arrives in time. Under connections_lock. */
void collet_mismatch_suspect_loss(
	struct collet_comm_state *state, uint32_t peer, enum collet_status status, const char *error_text);
/* Notes that peer has closed its context, or destroyed the communicator, in order. Control thread, under
 * connections_lock. */
void collet_mismatch_peer_left(struct collet_comm_state *state, uint32_t peer);
/* Checks what is still pending at `now`. Under the engine's lock. */
void collet_mismatch_check_pending(struct collet_comm_state *state, int64_t now);
/* True if the peer has said that it has not created the communicator. Under the engine's lock. */
bool collet_mismatch_peer_lacks_it(struct collet_comm_state *state, uint32_t peer);
/* Replies to a query about a communicator that this rank has not created. Control thread. */
void collet_mismatch_reply_unknown(struct collet_engine *engine, uint32_t from, const void *data, size_t bytes);
/* Handles a control message for the communicator. Control thread, under connections_lock. */
void collet_mismatch_handle_message(
	struct collet_comm_state *state, uint32_t from, uint32_t type, const void *data, size_t bytes);

#endif
