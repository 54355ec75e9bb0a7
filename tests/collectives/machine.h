/* The interpreter, within: what its files share. An item is a step of a rank, a stream a rank's run of one part of one
 * call, a conduit what joins two ranks, the machine all of it. */
#ifndef COLLET_TESTS_MACHINE_H
#define COLLET_TESTS_MACHINE_H

#include <stdlib.h>

#include "interpret.h"
#include "matching.h"
#include "world.h"

enum { WINDOW = COLLET_LOOKAHEAD + 1, WAITING = 16 };

struct item;

/* One message, on one of its two ranks. */
struct message {
	struct item *item;
	uint32_t conduit;
	uint64_t number; /* on its conduit */
	uint64_t length;
	expression *memory;   /* sends: where it is lent from; receives: where it comes to */
	expression *place;    /* receives: where it goes from there, once that is free */
	expression *snapshot; /* sends: as it was when lent */
};

struct span {
	const expression *at;
	uint64_t count;
};

struct item {
	struct stream *stream;
	struct walk_item what;
	bool active, combined, done;
	uint64_t index;
	uint32_t blockers; /* earlier items in the window, a bit each, that it waits for before it does more than
			      receive */
	struct message *sends, *receives;
	uint32_t send_count, receive_count, sends_left, receives_left;
	struct span *reads, *writes;
	uint32_t read_count, write_count;
	expression *operands; /* operand by operand, `length` elements each; own ones are filled in late */
	uint32_t operand_count;
	expression *value; /* NULL: none, moves are per peer */
	uint64_t length;
	expression *kept; /* own destination */
	expression *from; /* own source */
};

/* A rank's run of one part of one call. */
struct stream {
	struct machine *machine;
	uint32_t call, rank, part;
	struct walk walk;
	struct item window[WINDOW];
	uint64_t oldest, issued;
	bool exhausted;
};

struct conduit {
	uint64_t sent, received; /* messages that have left, and come */
	struct message *sending[WAITING], *receiving[WAITING];
	uint32_t sending_count, receiving_count;
	uint64_t issued_sends, issued_receives; /* numbers given out, of the call being issued */
	bool slot_full, queued;
	expression *slot;
};

struct machine {
	const struct run *run;
	struct world *world;
	struct conduit *conduits;                 /* (part * size + from) * size + to */
	uint64_t *first_message;                  /* call by call: the number of a conduit's first */
	uint64_t *issued_sends, *issued_receives; /* likewise: given out so far */
	struct stream *streams;                   /* (call * size + rank) * parts + part */
	uint32_t *started, *finished;             /* calls, by rank */
	uint32_t *queue;                          /* conduits to look at */
	uint32_t queue_count;
	struct walk_move *moves;
	uint64_t seed;
	uint64_t open_streams;
	struct finding finding;
};

static inline void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

/* Messages of one call that may be told apart: parts x senders x receivers. */
static inline size_t lanes(const struct machine *m)
{
	return (size_t)MATCHING_PARTS * m->run->size * m->run->size;
}

/* interpret.c */
/* Keeps the first. */
__attribute__((format(printf, 3, 4))) void found(struct machine *m, enum defect defect, const char *format, ...);
/* A conduit on which something may be possible now. */
void enqueue(struct machine *m, uint32_t conduit);

/* issue.c */
/* Issues what the window has room for. */
void advance(struct stream *s);
void let_go(struct item *item);

/* items.c */
/* Asks for what it receives: straight to its place if that is free, else to a place of the executor's. */
void receive(struct item *item);
/* Nothing that came before it is in its way any more. */
void activate(struct item *item);
/* Moves on as far as it can without a peer. */
void settle(struct item *item);

/* conduits.c */
/* One thing that can happen on this conduit, if any. */
bool turn(struct machine *m, struct conduit *conduit);

#endif
