/* Keeps the pending requests of a communicator in order of start, so that no call and no round of the watchdog costs
 * more if more are pending. The oldest call is found at once. Deadlines are compared with one bound, and a request is
 * visited for that once, if it lives so long. */
#ifndef COLLET_ENGINE_PENDING_H
#define COLLET_ENGINE_PENDING_H

#include <stdint.h>

struct collet_comm_state;
struct collet_request;

/* A list of requests, in order of start. */
struct collet_pending_list {
	struct collet_request *first, **end;
	struct collet_request *unchecked; /* the first whose deadline is not in first_deadline_ns yet; NULL: none */
};

/* Under the engine's lock. */
struct collet_pending {
	struct collet_pending_list calls;  /* collectives, whose numbers peers know */
	struct collet_pending_list others; /* point to point, and calls that are recorded out of band */
	int64_t first_deadline_ns;   /* no checked request has an earlier one; COLLET_NEVER: none has any */
	uint64_t oldest_since_ticks; /* when an older call ended than the oldest */
	uint64_t visit_count;        /* visits of requests by the watchdog, which tests count */
};

void collet_pending_init(struct collet_pending *pending);
void collet_pending_add(struct collet_comm_state *state, struct collet_request *request);
/* Removes a request that ends at this time (0 for point to point). Does nothing if it is not in a list. */
void collet_pending_remove(struct collet_comm_state *state, struct collet_request *request, uint64_t ticks);
/* Notes a deadline that was set. */
void collet_pending_note_deadline(struct collet_pending *pending, int64_t deadline_ns);
/* Computes the deadlines of requests that have none yet. */
void collet_pending_check_deadlines(struct collet_comm_state *state);
/* Returns a request whose deadline has passed; NULL if there is none. */
struct collet_request *collet_pending_find_expired(struct collet_pending *pending, int64_t now);

/* Returns the pending request after this one, in no particular order of both lists; after NULL the first. */
struct collet_request *collet_pending_next(const struct collet_pending *pending, const struct collet_request *after);

#endif
