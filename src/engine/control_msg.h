/* What ranks tell each other over the control plane. Fixed structs in the machine's byte order (the rendezvous has
 * compared versions), each led by the communicator's id. */
#ifndef COLLET_ENGINE_CONTROL_MSG_H
#define COLLET_ENGINE_CONTROL_MSG_H

#include "engine/recorder.h"

enum collet_control_msg_type {
	COLLET_CONTROL_MSG_CLAIM = 1, /* to oneself: a group was made that peers may have dialed already */
	COLLET_CONTROL_MSG_END,    /* struct collet_control_msg_end */
	COLLET_CONTROL_MSG_QUERY,  /* struct collet_control_msg_query */
	COLLET_CONTROL_MSG_REPLY,  /* struct collet_control_msg_reply */
	COLLET_CONTROL_MSG_DESTROYED /* struct collet_control_msg_destroyed */
};

/* The communicator has ended for everybody. */
struct collet_control_msg_end {
	uint64_t communicator;
	uint32_t status;
	uint32_t reserved0;
	char sentence[960];
};

/* Its sender has destroyed the communicator in order, and lives on. */
struct collet_control_msg_destroyed {
	uint64_t communicator;
};

/* What have you called as number `sequence`? */
struct collet_control_msg_query {
	uint64_t communicator;
	uint64_t sequence;
};

struct collet_control_msg_reply {
	uint64_t communicator;
	uint64_t sequence;
	uint64_t call_count;       /* that the rank has made so far */
	uint32_t has_call;         /* call is what it called; else it has not got there, or no longer knows */
	uint32_t reserved0;
	struct collet_call call;
	uint64_t history;          /* of call */
	struct collet_call last;   /* its latest, if calls > 0 */
};

#endif
