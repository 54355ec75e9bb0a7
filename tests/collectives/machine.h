/* Internals of the interpreter, which its files share. An item is a segment of a step on a rank. A stream is a rank's
 * run of one part of one call. A conduit connects two ranks. The machine is all of it. */
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
	uint32_t endpoint;
	uint64_t number; /* its number on the conduit */
	uint64_t length;
	expression *memory;   /* sends: source memory; receives: where it arrives */
	expression *place;    /* receives: its place, once that is free */
	expression *snapshot; /* sends: contents when posted */
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
	/* Earlier items in the window, one bit each, that must end before this one does more than receive. */
	uint32_t blockers;
	struct message *sends, *receives;
	uint32_t send_count, receive_count, sends_left, receives_left;
	struct span *reads, *writes;
	uint32_t read_count, write_count;
	expression *operands; /* Operand by operand, `length` elements each; own ones are filled in late. */
	uint32_t operand_count;
	expression *value; /* NULL: none, since moves are per peer */
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

struct endpoint {
	uint64_t sent, received; /* messages that have left and arrived */
	struct message *sending[WAITING], *receiving[WAITING];
	uint32_t sending_count, receiving_count;
	uint64_t issued_sends, issued_receives; /* numbers assigned, for the call being issued */
	bool slot_full, queued;
	expression *slot;
};

struct machine {
	const struct run *run;
	struct world *world;
	struct endpoint *endpoints;               /* (part * size + from) * size + to */
	uint64_t *first_message;                  /* by call: number of a conduit's first message */
	uint64_t *issued_sends, *issued_receives; /* by call: numbers assigned so far */
	struct stream *streams;                   /* (call * size + rank) * parts + part */
	uint32_t *started, *finished;             /* calls, by rank */
	uint32_t *queue;                          /* conduits to be examined */
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

/* Returns how many sequences of messages a call has: parts x senders x receivers. */
static inline size_t sequence_count(const struct machine *m)
{
	return (size_t)MATCHING_PARTS * m->run->size * m->run->size;
}

/* interpret.c */
/* Records a defect; the first one is kept. */
__attribute__((format(printf, 3, 4))) void found(struct machine *m, enum defect defect, const char *format, ...);
/* Queues a conduit on which something may be possible now. */
void enqueue(struct machine *m, uint32_t endpoint);

/* issue.c */
/* Issues what the window has room for. */
void advance(struct stream *s);
void let_go(struct item *item);

/* items.c */
/* Posts an item's receives: straight to its place if that is free, else to a buffer of the executor. */
void receive(struct item *item);
/* Starts an item that no earlier item blocks any more. */
void activate(struct item *item);
/* Advances an item as far as possible without a peer. */
void complete(struct item *item);

/* endpoints.c */
/* Does one thing that is possible on this conduit. Returns false if there is none. */
bool turn(struct machine *m, struct endpoint *endpoint);

#endif
