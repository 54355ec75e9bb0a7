/* Messages of the engine over the control plane. Fixed structs in the machine's byte order, since the bootstrap has
 * compared versions. Each begins with the communicator's id. */
#ifndef COLLET_ENGINE_CONTROL_MSG_H
#define COLLET_ENGINE_CONTROL_MSG_H

#include "engine/recorder.h"

enum collet_control_msg_type {
	COLLET_CONTROL_MSG_CREATED = 1, /* to this rank itself: match waiting connections with a new communicator */
	COLLET_CONTROL_MSG_END,    /* struct collet_control_msg_end */
	COLLET_CONTROL_MSG_QUERY,  /* struct collet_control_msg_query */
	COLLET_CONTROL_MSG_REPLY,  /* struct collet_control_msg_reply */
	COLLET_CONTROL_MSG_DESTROYED /* struct collet_control_msg_destroyed */
};

/* Ends the communicator on all ranks. */
struct collet_control_msg_end {
	uint64_t communicator;
	uint32_t status;
	uint32_t reserved0;
	char error_text[960];
};

/* The sender has destroyed the communicator in order and lives on. */
struct collet_control_msg_destroyed {
	uint64_t communicator;
};

/* Asks what a rank called as number `sequence`, and whether it agrees about all calls that both have made. */
struct collet_control_msg_query {
	uint64_t communicator;
	uint64_t sequence;
	uint64_t call_count;       /* calls that the sender has made so far */
};

struct collet_control_msg_reply {
	uint64_t communicator;
	uint64_t sequence;
	uint64_t call_count;       /* calls that the rank has made so far */
	uint32_t has_communicator; /* 0: the rank has not created it yet, and nothing below is valid */
	uint32_t reserved0;
	uint32_t has_call;         /* call is valid; else the rank has not made it or no longer knows it */
	uint32_t has_common;       /* the next two are valid */
	uint64_t common_sequence;  /* the latest call that both ranks have made */
	uint64_t common_history_hash; /* of this rank's call of that number */
	struct collet_call call;
	uint64_t history_hash;     /* of call */
	struct collet_call last;   /* its latest call, if call_count > 0 */
};

#endif
