/* A message's buffer on a GPU, copied to bounce cells or from them while it travels: the owner of engine/bounce.h. */
#ifndef COLLET_COMM_BOUNCED_H
#define COLLET_COMM_BOUNCED_H

#include "comm/piped.h"
#include "engine/bounce.h"

struct collet_bounced;

/* side: its host is collet_bounce_cells_bytes() of its bytes, for cells. Nothing is copied yet. COLLET_ERR_*: nothing
 * has happened. */
collet_status collet_bounced_make(struct collet_bounced **bounced, struct collet_context *context,
	const struct collet_piped_side *side, bool sends);
/* For the request; it may be started with it again when it has ended. */
struct collet_bounce *collet_bounced_bounce(struct collet_bounced *bounced);
/* Its request has ended, or never starts, and is still there: its stream is others' until the next. Under the engine's
 * lock; safe to repeat. */
void collet_bounced_rest(struct collet_bounced *bounced);
/* Waits for copies that are under way; NULL is fine. */
void collet_bounced_free(struct collet_bounced *bounced);

#endif
