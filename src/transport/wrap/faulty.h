/* faulty, within: what its files share. See faulty.c. */
#ifndef COLLET_TRANSPORT_WRAP_FAULTY_H
#define COLLET_TRANSPORT_WRAP_FAULTY_H

#include <stdatomic.h>

#include "transport/wrap/wrapper.h"

enum {
	PARTS_MAX = 4,
	SLOTS = 32                       /* messages under way each way; more wait */
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
	_Atomic uint64_t messages;       /* that this rank has sent */
};

struct faulty_header {
	struct collet_message message;
	uint64_t parts;
	uint64_t ends[PARTS_MAX];        /* of parts, in bytes of the message */
};

/* A message under way: its transfer, and the wrapped conduit's. */
struct faulty_slot {
	struct collet_transfer *outer;   /* NULL: settled; a view may still be lent */
	struct collet_transfer header, part[PARTS_MAX];
	struct faulty_header content;
	uint32_t parts;
	bool is_used, is_mismatch, is_view;
	struct faulty_slot *next;        /* under way after this one */
};

struct faulty_direction {
	struct collet_transfer_queue waiting;  /* not begun */
	struct faulty_slot *first, *last;      /* under way, oldest first */
	struct faulty_slot slot[SLOTS];
	uint64_t sequence;                     /* of the wrapped conduit's messages */
};

struct faulty_endpoint {
	struct collet_endpoint endpoint;
	struct faulty_device *device;
	const struct collet_peer_info *peer;
	uint32_t owner_pid;
	bool ready, is_closed;
	bool is_silent;                  /* nothing is sent any more */
	const struct collet_transfer *late_send; /* what is told late; NULL: nothing */
	bool has_receiver_left;          /* its receiver has */
	bool has_due;                    /* due holds for the first that waits */
	int64_t due_ns;
	uint64_t random_out, random_poll;
	struct faulty_direction out, in;
	struct collet_transfer header_receive; /* the receive of the next head */
	struct faulty_header header;     /* where it lands */
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

/* splitmix64: good enough, and every seed will do. */
static inline uint64_t faulty_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline bool faulty_chance(uint64_t *state, uint64_t count)
{
	return count && faulty_random(state) % count == 0;
}

/* faulty.c */
/* The wrapped conduit is not asked any more, so it moves nothing of what it still holds; close() closes it. */
uint32_t faulty_end(struct faulty_endpoint *faulty, collet_status status);
/* Has the wrapped conduit ended? Then so has this one. */
uint32_t faulty_mirror(struct faulty_endpoint *faulty);
/* NULL: none is free. */
struct faulty_slot *faulty_alloc_slot(struct faulty_direction *direction, struct collet_transfer *outer);
struct collet_transfer *faulty_pop_waiting(struct faulty_direction *direction);
/* Whether all of the slot's parts have settled; *status the first that did not go well. */
bool faulty_is_complete(const struct faulty_slot *slot, collet_status *status);
/* What the wrapped conduit is lent for a part of outer; wrong: something that fits nothing. */
struct collet_transfer faulty_part(struct faulty_direction *direction, const struct faulty_slot *slot, uint32_t part,
	const struct collet_transfer *outer, bool is_decoy);

/* faulty_receive.c */
/* Receives what has been announced, and settles what has come. */
uint32_t faulty_advance_in(struct faulty_endpoint *faulty);
/* The next head, if it has come; asks for it if somebody waits. */
bool faulty_get_header(struct faulty_endpoint *faulty);
void faulty_post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
void faulty_release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer);

/* faulty_settings.c */
/* Of COLLET_FAULTY and COLLET_FAULTY_SEED; *drawn: the seed was made from the job, or it chose when a fault comes. */
collet_status faulty_read_settings(struct faulty_device *device, uint64_t job, bool *is_random);

#endif
