/* Bounce buffers: cells of host memory through which a large message goes if the engine cannot access its buffer, which
 * is GPU memory.
 *
 * The owner (src/cuda/staging) copies between buffer and cells, segment by segment. For a send the owner fills cells
 * and messages empty them; for a receive it is the other way round. The few cells are used as a ring. So a message of
 * any length needs only their memory, and some segments travel while others are copied at both ends. */
#ifndef COLLET_ENGINE_P2P_BOUNCE_BUFFER_H
#define COLLET_ENGINE_P2P_BOUNCE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/byte_range.h"

struct collet_request;

enum {
	COLLET_BOUNCE_MIN_BYTES = (64 << 10) + 1, /* shortest send that uses cells; shorter ones are copied whole */
	COLLET_BOUNCE_CELL_BYTES = 512 << 10, /* one segment: long enough to hide the start of a copy */
	COLLET_BOUNCE_CELL_COUNT = 8,         /* some are being filled while others are emptied */
	COLLET_BOUNCE_HANDLE_WORDS = 30
};

/* A ready-to-send message whose receiver may pull the data itself (P2P_RTS_PULL). Sent as it is. */
struct collet_bounce_rts {
	uint64_t bytes, id;
	uint64_t handle[COLLET_BOUNCE_HANDLE_WORDS]; /* defined by the owners */
};

/* Guarded by the engine's lock. */
struct collet_bounce_buffer {
	struct collet_bounce_buffer *next, **previous; /* in the communicator's list, while it has a request */
	struct collet_request *request;         /* NULL: no request uses it */

	/* Set by the owner. */

	/* Continues the copies, in each round of progress. Returns true if any segment has made progress. */
	bool (*progress)(struct collet_bounce_buffer *bounce);
	/* Of a send, before its RTS: exports the buffer. Returns true if rts.handle names it. May be NULL. */
	bool (*export_buffer)(struct collet_bounce_buffer *bounce, const struct collet_request *request);
	/* Of an exported send: the receiver has lost the exported memory and could not pull. Lets the next send export
	 * it again. */
	void (*export_again)(struct collet_bounce_buffer *bounce, const struct collet_request *request);
	/* Of a receive: starts to copy the whole message from the sender's buffer. collet_bounce_pulled() follows, or
	 * an error of the communicator. Returns false if it cannot: then messages carry the data. Sets *export_again if
	 * it could the next time, after another export. May be NULL. */
	bool (*pull)(struct collet_bounce_buffer *bounce, const uint64_t *handle, bool *export_again);
	struct collet_bounce_rts rts;           /* of a send; must stay until the send ends */
	bool needs_polling;         /* copies run whose end must be polled */
	uint32_t started;           /* segments whose copy has started; set to 0 when a request starts */
	void *user_buffer;          /* the user's buffer, which a transport may access directly (accepts_gpu) */
	char *cells;                /* segment i is in cell i % COLLET_BOUNCE_CELL_COUNT; no more cells than segments */

	uint32_t filled, emptied;   /* segments; both only grow */
};

/* Returns the bytes of cells that a message or a buffer of this length needs. */
static inline size_t collet_bounce_cells_bytes(uint64_t bytes)
{
	const uint64_t most = (uint64_t)COLLET_BOUNCE_CELL_COUNT * COLLET_BOUNCE_CELL_BYTES;
	return (size_t)(bytes < most ? bytes : most);
}

/* Detaches it from its request, which ends. May be called twice. Copies that are still running may write to the cells
 * afterwards. */
void collet_bounce_stop(struct collet_bounce_buffer *bounce);

/* The owner calls the next functions. */

/* True if the copy of segment `started` may start. */
bool collet_bounce_may_copy(const struct collet_bounce_buffer *bounce);
/* Returns where a segment of the current message is in the cells. */
struct collet_byte_range collet_bounce_segment(const struct collet_bounce_buffer *bounce, uint32_t segment);
/* Reports that the copies of the next count segments are complete. The request may have ended afterwards. */
void collet_bounce_copied(struct collet_bounce_buffer *bounce, uint32_t count);
/* Reports that the whole message has been pulled. The request ends at both ends. */
void collet_bounce_pulled(struct collet_bounce_buffer *bounce);

#endif
