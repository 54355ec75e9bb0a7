/* Bounce cells: through them a large message goes whose buffer the engine cannot touch.
 *
 * Somebody else (the owner) copies between buffer and cells, piece by piece: of a send the owner fills them and
 * messages empty them, of a receive the other way round. There are few cells, used round and round, so a message needs
 * no more memory than they are, however long it is, and while some of its pieces travel others are copied at either
 * end. */
#ifndef COLLET_ENGINE_P2P_BOUNCE_BUFFER_H
#define COLLET_ENGINE_P2P_BOUNCE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/byte_range.h"

struct collet_request;

enum {
	COLLET_BOUNCE_MIN_BYTES = (64 << 10) + 1, /* bytes of a send that needs them; shorter ones have one place */
	COLLET_BOUNCE_CELL_BYTES = 512 << 10, /* a piece: long enough for a copy to be worth its start */
	COLLET_BOUNCE_CELL_COUNT = 8,         /* some being filled, some emptied */
	COLLET_BOUNCE_HANDLE_WORDS = 30
};

/* An announcement whose receiver may take the message from where it is by itself (OFFER); travels as it is. */
struct collet_bounce_rts {
	uint64_t bytes, id;
	uint64_t handle[COLLET_BOUNCE_HANDLE_WORDS]; /* the owners' */
};

/* Under the engine's lock. */
struct collet_bounce_buffer {
	struct collet_bounce_buffer *next, **previous; /* in its group's list, while its request is under way */
	struct collet_request *request;         /* NULL: none is */
	/* The owner's, in each round of progress: goes on with copies. True: something has got on. */
	bool (*progress)(struct collet_bounce_buffer *bounce);
	/* The owner's, of a send: it is about to be announced to its peer. true: `offer` says where it is. NULL: never.
	 */
	bool (*export_buffer)(struct collet_bounce_buffer *bounce, const struct collet_request *request);
	/* The owner's, of a send that was offered: its receiver has lost what it was shown, or it would have pulled. */
	void (*export_again)(struct collet_bounce_buffer *bounce, const struct collet_request *request);
	/* The owner's, of a receive: begins to copy all of the message from there; collet_bounce_pulled() follows, or
	 * the end of the group, here too. false: it does not, and messages bring it; *again: it may the next time, if
	 * it is shown again. NULL: never. */
	bool (*pull)(struct collet_bounce_buffer *bounce, const uint64_t *handle, bool *export_again);
	struct collet_bounce_rts rts;           /* of a send; it stays until that ends */
	bool needs_polling;         /* the owner's: copies are under way, of which nobody tells the end */
	uint32_t started;           /* the owner's: pieces whose copy has been begun; 0 at the start of a request */
	void *user_buffer;          /* where the message really is: transports may reach it (takes_gpu) */
	char *cells;                /* piece i is in cell i % COLLET_BOUNCE_CELL_COUNT, if there are that many pieces */
	uint32_t filled, emptied;   /* pieces; both only grow */
};

/* Of a message, or a buffer, of so many bytes. */
static inline size_t collet_bounce_cells_bytes(uint64_t bytes)
{
	const uint64_t most = (uint64_t)COLLET_BOUNCE_CELL_COUNT * COLLET_BOUNCE_CELL_BYTES;
	return (size_t)(bytes < most ? bytes : most);
}

/* It ends, or has ended; safe to repeat. The cells may be written yet by copies that are under way. */
void collet_bounce_stop(struct collet_bounce_buffer *bounce);

/* For the owner: may the copy of piece `begun` begin? */
bool collet_bounce_may_copy(const struct collet_bounce_buffer *bounce);
/* A piece of the message that is under way: where it is in the cells, and how long. */
struct collet_range collet_bounce_segment(const struct collet_bounce_buffer *bounce, uint32_t segment);
/* So many copies more have come to their end, in the order of pieces. The request may have ended then. */
void collet_bounce_copied(struct collet_bounce_buffer *bounce, uint32_t count);
/* For the owner: all of the message is there, which was to be pulled. The request ends, at either end. */
void collet_bounce_pulled(struct collet_bounce_buffer *bounce);

#endif
