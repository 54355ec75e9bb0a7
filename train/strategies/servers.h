/* Shared by both parameter-server strategies. The last ranks are servers, and each owns a part of the model. */
#ifndef TRAIN_SERVERS_H
#define TRAIN_SERVERS_H

#include "strategies/strategy.h"

enum { SERVERS_GRADIENTS, SERVERS_VALUES };  /* tags */

/* Of --servers; one if that is not given. */
uint32_t servers_count(const struct options *options);
/* Server number s is this rank. */
uint32_t servers_rank(const struct trainer *trainer, uint32_t s);
bool servers_is_one(const struct trainer *trainer);
/* The elements that server s owns, or this rank, which is one. */
struct range servers_part(const struct trainer *trainer, uint32_t s);
struct range servers_own_part(const struct trainer *trainer);

/* Creates everything but gradients and the optimiser's state: equal values on all ranks, step_comm, and requests.
 * There are requests for two messages with every peer of the other kind. */
bool servers_create(struct trainer *trainer, collet_request ***requests);

/* Runs a worker's side of a step: sends each server its part of what (as long as flat), and receives its part of the
 * values. */
bool servers_exchange(struct trainer *trainer, const float *what, collet_request **requests);

/* After an epoch: every part from its server to all ranks. */
bool servers_share(struct trainer *trainer);

#endif
