/* Keeps the pending requests of a communicator in order of start, so that no call and no round of the watchdog costs
 * more if more are pending. The oldest call is found at once. One bound is compared with the time: requests are visited
 * only when it passes. */
#ifndef COLLET_ENGINE_PENDING_H
#define COLLET_ENGINE_PENDING_H

#include <stdint.h>

struct collet_comm_state;
struct collet_request;

/* A list of requests, in order of start. */
struct collet_pending_list {
	struct collet_request *first, **end;
};

/* Under the engine's lock. */
struct collet_pending {
	struct collet_pending_list calls;  /* collectives, whose numbers peers know */
	struct collet_pending_list others; /* point to point, and calls that are recorded out of band */
	/* No request has an earlier deadline, except new ones: those that started since the watchdog last ran. Of these
	 * it has the start of the first (0: there are none) and the shortest timeout. */
	int64_t first_deadline_ns;
	uint64_t new_since_ticks;
	int64_t new_timeout_ns;
	uint64_t oldest_since_ticks; /* when an older call ended than the oldest */
	uint64_t visit_count;        /* visits of requests by the watchdog, which tests count */
};

void collet_pending_init(struct collet_pending *pending);
void collet_pending_add(struct collet_comm_state *state, struct collet_request *request);
/* Removes a request that ends at this time (0 for point to point). Does nothing if it is not in a list. */
void collet_pending_remove(struct collet_comm_state *state, struct collet_request *request, uint64_t ticks);
/* Returns the request whose deadline passed first; NULL if none has passed. */
struct collet_request *collet_pending_find_expired(struct collet_comm_state *state, int64_t now);

/* Returns the pending request after this one, in no particular order of both lists; after NULL the first. */
struct collet_request *collet_pending_next(const struct collet_pending *pending, const struct collet_request *after);

#endif
