/* Declares what the files of the faulty wrapper share. See faulty.c. */
#ifndef COLLET_TRANSPORT_WRAP_FAULTY_H
#define COLLET_TRANSPORT_WRAP_FAULTY_H

#include <stdatomic.h>

#include "transport/wrap/wrapper.h"

enum {
	PARTS_MAX = 4,
	SLOTS = 32                       /* messages in flight each way; more wait */
};

#define HEADER_SIGNATURE UINT64_C(0x6661756c74790001)
#define PART_SIGNATURE UINT64_C(0x6661756c74790002)
#define NO_SIGNATURE UINT64_C(0x6661756c74790003)

struct faulty_device {
	struct collet_wrapper wrapper;
	char name[COLLET_TRANSPORT_NAME_BYTES];
	uint64_t seed;
	uint64_t delay_us, split, skip, lose, fail, drop, leave, rank;
	uint32_t own_rank;
	_Atomic uint64_t messages;       /* number of messages that this rank has sent */
};

struct faulty_header {
	struct collet_message message;
	uint64_t parts;
	uint64_t ends[PARTS_MAX];        /* end offsets of the parts in the message */
};

/* A message in flight: the caller's transfer, and those of the wrapped endpoint. */
struct faulty_slot {
	struct collet_transfer *outer;   /* NULL once completed; a view may still be in use */
	struct collet_transfer header, part[PARTS_MAX];
	struct faulty_header content;
	uint32_t parts;
	bool is_used, is_mismatch, is_view;
	struct faulty_slot *next;        /* the next message in flight */
};

struct faulty_direction {
	struct collet_transfer_queue waiting;  /* not started */
	struct faulty_slot *first, *last;      /* in flight, oldest first */
	struct faulty_slot slot[SLOTS];
	uint64_t sequence;                     /* sequence number of the wrapped endpoint's messages */
};

struct faulty_endpoint {
	struct collet_endpoint endpoint;
	struct faulty_device *device;
	const struct collet_peer_info *peer;
	uint32_t owner_pid;
	bool is_closed;
	bool is_silent;                  /* nothing is sent any more */
	const struct collet_transfer *late_send; /* the send whose completion is reported late; NULL if none */
	bool has_receiver_left;          /* the receiver of late_send has left */
	bool has_due;                    /* due_ns is set for the first waiting send */
	int64_t due_ns;
	uint64_t random_out, random_poll;
	struct faulty_direction out, in;
	struct collet_transfer header_receive; /* the receive of the next header */
	struct faulty_header header;     /* its buffer */
	bool is_header_posted, has_header;
};

static inline struct faulty_endpoint *faulty_of(struct collet_endpoint *endpoint)
{
	return (struct faulty_endpoint *)endpoint;
}

static inline struct collet_endpoint *faulty_inner(const struct faulty_endpoint *faulty)
{
	return collet_wrapper_inner(
		(struct collet_endpoint *)(uintptr_t)&faulty->endpoint, sizeof(struct faulty_endpoint));
}

static inline const struct collet_transport *faulty_table(const struct faulty_endpoint *faulty)
{
	return faulty_inner(faulty)->transport;
}

/* Returns the next random number (splitmix64, which accepts every seed). */
static inline uint64_t faulty_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Returns true once in count times; never if count is 0. */
static inline bool faulty_chance(uint64_t *state, uint64_t count)
{
	return count && faulty_random(state) % count == 0;
}

/* faulty.c */
/* Ends the endpoint. The wrapped one is not polled any more, so it moves nothing of what it still has; close() closes
 * it. Returns the number of completed transfers. */
uint32_t faulty_end(struct faulty_endpoint *faulty, collet_status status);
/* Copies what the wrapped endpoint reports, and ends this one if it has ended. Returns the number of completed
 * transfers. */
uint32_t faulty_mirror(struct faulty_endpoint *faulty);
/* Returns a free slot for a message, queued as in flight; NULL if none is free. */
struct faulty_slot *faulty_alloc_slot(struct faulty_direction *direction, struct collet_transfer *outer);
struct collet_transfer *faulty_pop_waiting(struct faulty_direction *direction);
/* True if all parts of the slot have completed; *status is the first that is not COLLET_OK. */
bool faulty_is_complete(const struct faulty_slot *slot, collet_status *status);
/* Makes the transfer of a part of outer for the wrapped endpoint. is_decoy: one that matches no message. */
struct collet_transfer faulty_part(struct faulty_direction *direction, const struct faulty_slot *slot, uint32_t part,
	const struct collet_transfer *outer, bool is_decoy);

/* faulty_receive.c */
/* Receives messages whose header has come, and completes receives. Returns how many. */
uint32_t faulty_advance_in(struct faulty_endpoint *faulty);
/* True if the next header has come. Posts a receive for it if necessary. */
bool faulty_get_header(struct faulty_endpoint *faulty);
void faulty_post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
void faulty_release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer);

/* faulty_settings.c */
/* Reads COLLET_FAULTY and COLLET_FAULTY_SEED. *is_random: the seed was made from the job, or it chose the message of a
 * fault. */
collet_status faulty_read_settings(struct faulty_device *device, uint64_t job, bool *is_random);

#endif
