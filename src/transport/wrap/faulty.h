/* faulty, within: what its files share. See faulty.c. */
#ifndef COLLET_TRANSPORT_WRAP_FAULTY_H
#define COLLET_TRANSPORT_WRAP_FAULTY_H

#include <stdatomic.h>

#include "transport/wrap/wrapper.h"

enum {
	PARTS_MOST = 4,
	SLOTS = 32                       /* messages under way each way; more wait */
};

#define HEAD_SIGNATURE UINT64_C(0x6661756c74790001)
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

struct faulty_head {
	struct collet_message message;
	uint64_t parts;
	uint64_t ends[PARTS_MOST];       /* of parts, in bytes of the message */
};

/* A message under way: its transfer, and the wrapped conduit's. */
struct faulty_slot {
	struct collet_transfer *outer;   /* NULL: settled; a view may still be lent */
	struct collet_transfer head, part[PARTS_MOST];
	struct faulty_head bytes;
	uint32_t parts;
	bool used, mismatched, viewed;
	struct faulty_slot *next;        /* under way after this one */
};

struct faulty_way {
	struct collet_transfer_queue waiting;  /* not begun */
	struct faulty_slot *first, *last;      /* under way, oldest first */
	struct faulty_slot slot[SLOTS];
	uint64_t sequence;                     /* of the wrapped conduit's messages */
};

struct faulty_conduit {
	struct collet_conduit conduit;
	struct faulty_device *device;
	const struct collet_card *peer;
	uint32_t process;
	bool ready, closed;
	bool silent;                     /* nothing is sent any more */
	const struct collet_transfer *last;  /* what is told late; NULL: nothing */
	bool left;                       /* its receiver has */
	bool timed;                      /* due holds for the first that waits */
	int64_t due_ns;
	uint64_t random_out, random_look;
	struct faulty_way out, in;
	struct collet_transfer heading;  /* the receive of the next head */
	struct faulty_head came;         /* where it lands */
	bool heading_posted, has_head;
};

static inline struct faulty_conduit *faulty_of(struct collet_conduit *conduit)
{
	return (struct faulty_conduit *)conduit;
}

static inline struct collet_conduit *faulty_inner(const struct faulty_conduit *faulty)
{
	return collet_wrapped((struct collet_conduit *)(uintptr_t)&faulty->conduit, sizeof(struct faulty_conduit));
}

static inline const struct collet_transport *faulty_table(const struct faulty_conduit *faulty)
{
	return faulty_inner(faulty)->transport;
}

/* splitmix64: good enough, and every seed will do. */
static inline uint64_t faulty_draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline bool faulty_one_of(uint64_t *state, uint64_t count)
{
	return count && faulty_draw(state) % count == 0;
}

/* faulty.c */
/* The wrapped conduit is not asked any more, so it moves nothing of what it still holds; close() closes it. */
uint32_t faulty_end(struct faulty_conduit *faulty, collet_status status);
/* Has the wrapped conduit ended? Then so has this one. */
uint32_t faulty_follow(struct faulty_conduit *faulty);
/* NULL: none is free. */
struct faulty_slot *faulty_take_slot(struct faulty_way *way, struct collet_transfer *outer);
struct collet_transfer *faulty_take_waiting(struct faulty_way *way);
/* Whether all of the slot's parts have settled; *status the first that did not go well. */
bool faulty_has_settled(const struct faulty_slot *slot, collet_status *status);
/* What the wrapped conduit is lent for a part of outer; wrong: something that fits nothing. */
struct collet_transfer faulty_part(
	struct faulty_way *way, const struct faulty_slot *slot, uint32_t part, const struct collet_transfer *outer,
	bool wrong);

/* faulty_receive.c */
/* Receives what has been announced, and settles what has come. */
uint32_t faulty_advance_in(struct faulty_conduit *faulty);
/* The next head, if it has come; asks for it if somebody waits. */
bool faulty_get_head(struct faulty_conduit *faulty);
void faulty_post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer);
void faulty_release(struct collet_conduit *conduit, struct collet_transfer *transfer);

/* faulty_settings.c */
/* Of COLLET_FAULTY and COLLET_FAULTY_SEED; *drawn: the seed was made from the job, or it chose when a fault comes. */
collet_status faulty_read_settings(struct faulty_device *device, uint64_t job, bool *drawn);

#endif
