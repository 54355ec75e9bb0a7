/* Loads batches. A loader knows an epoch's batches ahead, in their order. The results do not depend on how it makes
 * them. */
#ifndef TRAIN_LOADER_H
#define TRAIN_LOADER_H

#include "backend.h"
#include "data/dataset.h"

struct loader;

struct loader_options {
	uint32_t workers;  /* threads that make batches ahead; 0: loader_next() makes them */
	bool augment;      /* images are shifted, and mirrored where the set allows it, by seed and epoch */
	uint64_t seed;
};

/* Creates a loader for batches of at most this many images of the set, which must outlive it. If the back end makes
 * images, batches hold pixels and placements. Returns NULL after a line on standard error. */
struct loader *loader_create(const struct backend *backend, const struct dataset *set, uint32_t largest,
	const struct loader_options *options);
void loader_destroy(struct loader *loader);  /* NULL is fine */

/* Starts an epoch: batch b has the next counts[b] indices. Remaining batches of the epoch before are dropped. The
 * caller keeps both lists unchanged until the next loader_epoch() or loader_destroy(). */
bool loader_epoch(
	struct loader *loader, uint32_t epoch, const uint64_t *indices, const uint32_t *counts, uint64_t batch_count);
/* The next batch, valid until the next call. There must be one. */
bool loader_next(struct loader *loader, struct batch *batch);

#endif
