/* Which way an end of an shm conduit sends long messages that lie in ordinary memory: through the ring, two copies by
 * two cores through their caches, or left where they are and read by the kernel for the receiver, one copy by one core.
 * What is faster depends on caches, kernel and pattern, so it is learnt from what copying has taken, as it comes: the
 * sender's copies into the ring, of which it knows the price, and the receiver's reads, of which it tells the price.
 * Waiting is not in either, so neither end disturbs the other's; and since whatever else disturbs a copy only makes it
 * longer, a price is the least of the last ones.
 *
 * The first messages go both ways in turn. Then the cheaper way is taken, and the other one tried again after 16
 * messages, and twice as many each time that it has changed nothing, up to 1024.
 *
 * In an exchange, where both ends send at once, they must agree: if one reads while the other copies through the ring,
 * one of them does the copying of both. There the end that dialed decides, by what all four copies take.
 *
 * Pure: no clock, no memory but this. */
#ifndef COLLET_TRANSPORT_SHM_WAY_H
#define COLLET_TRANSPORT_SHM_WAY_H

#include <stdbool.h>
#include <stdint.h>

enum {
	SHM_WAY_SAMPLES = 4,
	SHM_WAY_TRIAL_LEAST = 16,  /* messages until the other way is tried again, */
	SHM_WAY_TRIAL_MOST = 1024  /* doubled up to here */
};

/* What one way's copying takes, in ns a MiB. */
struct shm_price {
	uint32_t last[SHM_WAY_SAMPLES];
	uint32_t next; /* of last: filled round and round */
};

void collet_shm_price_add(struct shm_price *price, uint64_t ns, uint64_t bytes);
/* The least of the last ones; 0 while there are too few. */
uint32_t collet_shm_price(const struct shm_price *price);

/* How an end sends in exchanges. */
enum shm_exchanges {
	SHM_EXCHANGES_UNKNOWN, /* it does not know yet, perhaps because it only receives */
	SHM_EXCHANGES_RING,
	SHM_EXCHANGES_READS,
};

/* What the other end has told last; prices: 0: it does not know yet. */
struct shm_told {
	uint32_t reads, writes; /* of this end's memory; into the ring */
	enum shm_exchanges exchanges;
};

/* Zeroed: nothing known. */
struct shm_way {
	struct shm_price writes; /* into the ring */
	struct shm_told told;
	bool follows;            /* in exchanges, the other end decides, if it sends any */
	bool crowded;            /* ranks outnumber cores */
	uint32_t sent, interval; /* messages since the other way was tried last; until it is again */
	bool pulls[2];           /* the cheaper way: of a message that goes one way; of one of an exchange */
};

/* Is the next message to be left to the peer's kernel? mutual: the sender copies as much itself as its peer, who sends
 * too, so that both copies count; else they overlap. */
bool collet_shm_way_pulls(const struct shm_way *way, bool mutual);
/* Is it worth while to leave messages where they may be read so? Also while that is to be tried. */
bool collet_shm_way_wants(const struct shm_way *way, bool mutual);
/* A message has gone this way. reads: what this end's reads of the other's memory take; 0: unknown.
 * True: what is cheaper has changed. */
bool collet_shm_way_went(struct shm_way *way, bool mutual, bool pulled, struct shm_told told, uint32_t reads);
/* One has gone that had no choice. */
void collet_shm_way_passed(struct shm_way *way);

#endif
