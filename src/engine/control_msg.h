/* What ranks tell each other over the control plane. Fixed structs in the machine's byte order (the rendezvous has
 * compared versions), each led by the communicator's id. */
#ifndef COLLET_ENGINE_CONTROL_MSG_H
#define COLLET_ENGINE_CONTROL_MSG_H

#include "engine/recorder.h"

enum collet_message_type {
	COLLET_MESSAGE_CLAIM = 1,  /* to oneself: a group was made that peers may have dialed already */
	COLLET_MESSAGE_END,        /* struct collet_message_end */
	COLLET_MESSAGE_ASK,        /* struct collet_message_ask */
	COLLET_MESSAGE_ANSWER,     /* struct collet_message_answer */
	COLLET_MESSAGE_LEFT        /* struct collet_message_left */
};

/* The communicator has ended for everybody. */
struct collet_message_end {
	uint64_t group;
	uint32_t status;
	uint32_t reserved0;
	char sentence[960];
};

/* Its sender has destroyed the communicator in order, and lives on. */
struct collet_message_left {
	uint64_t group;
};

/* What have you called as number `sequence`? */
struct collet_message_ask {
	uint64_t group;
	uint64_t sequence;
};

struct collet_message_answer {
	uint64_t group;
	uint64_t sequence;
	uint64_t calls;            /* that the rank has made so far */
	uint32_t has;              /* call is what it called; else it has not got there, or no longer knows */
	uint32_t reserved0;
	struct collet_call call;
	uint64_t history;          /* of call */
	struct collet_call last;   /* its latest, if calls > 0 */
};

#endif
