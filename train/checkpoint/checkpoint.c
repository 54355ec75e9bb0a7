/* Saving: everything comes to rank 0, which copies what is its own and hands all of it to the writer. */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/collect.h"
#include "checkpoint/snapshot.h"
#include "data/order.h"
#include "error.h"
#include "strategies/strategy.h"

/* ---- Gathering ----------------------------------------------------------------------------------------------- */

/* The optimiser's memory lies whole on rank 0, or in parts on several ranks. Rank 0 gets a copy. */
static bool gather_state(struct trainer *trainer, const float *mine, float **whole)
{
	const struct flat *flat = &trainer->flat;
	const bool gets = collet_comm_rank(trainer->comm) == 0;
	uint8_t is_whole = flat->state_count == flat->count;
	if (!train_check(collet_broadcast(trainer->comm, &is_whole, &is_whole, 1, COLLET_U8, 0, NULL), "a checkpoint"))
		return false;
	*whole = gets ? calloc(flat->count, sizeof(**whole)) : NULL;
	if (gets && !*whole)
		return train_fail("no memory for a checkpoint");
	if (!is_whole)
		return parts_collect(trainer->comm, mine, flat->state_first, flat->state_count, *whole);
	if (gets)
		memcpy(*whole, mine, flat->count * sizeof(*mine));
	return true;
}

static bool gather_losses(struct trainer *trainer, double **all)
{
	const uint32_t shards = trainer->options->shards, size = collet_comm_size(trainer->comm);
	double *mine = calloc((size_t)shards * (size + 1), sizeof(*mine));
	if (!mine)
		return train_fail("no memory for a checkpoint");
	*all = mine;
	for (uint32_t s = 0; s < trainer->share_count; s++)
		mine[(size_t)shards * size + s] = trainer->loss_sums[s];
	return train_check(
		collet_gather(trainer->comm, mine + (size_t)shards * size, mine, shards, COLLET_F64, 0, NULL),
		"a checkpoint");
}

static bool gather_own(struct trainer *trainer, struct rows *rows)
{
	uint64_t bytes = 0;
	if (trainer->strategy->saved_bytes && !trainer->strategy->saved_bytes(trainer, &bytes))
		return false;
	void *mine = malloc((size_t)bytes + 1);
	bool fine = mine || train_fail("no memory for a checkpoint");
	fine = fine && (bytes == 0 || trainer->strategy->save(trainer, mine, bytes)) &&
		rows_collect(rows, trainer->comm, mine, bytes);
	free(mine);
	return fine;
}

/* ---- Saving -------------------------------------------------------------------------------------------------- */

static bool gather(struct trainer *trainer, struct snapshot *snapshot)
{
	const struct flat *flat = &trainer->flat;
	return gather_state(trainer, flat->velocity, &snapshot->velocity) &&
		(trainer->options->optimiser == OPTIMISER_SGD ||
			gather_state(trainer, flat->squares, &snapshot->squares)) &&
		gather_losses(trainer, &snapshot->loss_sums) && gather_own(trainer, &snapshot->own);
}

/* A failure to write is remembered, and forgotten when a later one succeeds: training is worth more than a
 * checkpoint. */
static bool save(struct trainer *trainer)
{
	if (!trainer->backend->fetch(trainer->network))
		return false;
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
	if (!snapshot)
		return train_fail("no memory for a checkpoint");
	/* One that is still being written has its memory until then. */
	writer_wait(&trainer->writer);
	const bool gathered = gather(trainer, snapshot);
	if (!gathered || collet_comm_rank(trainer->comm) != 0) {
		snapshot_free(snapshot);
	} else if (snapshot_fill(snapshot, trainer)) {
		writer_begin(&trainer->writer, trainer->options, snapshot);
	} else {
		trainer->writer.failed = true;
		snapshot_free(snapshot);
	}
	return gathered;
}

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Within an epoch: every so many steps, and where the run ends there. */
bool checkpoint_after_step(struct trainer *trainer, double *seconds)
{
	const struct options *options = trainer->options;
	const bool is_last = options->steps > 0 && trainer->steps_done >= options->steps;
	const bool due = options->checkpoint_every > 0 && trainer->steps_done % options->checkpoint_every == 0;
	*seconds = 0;
	if (!options->checkpoint || !(due || is_last) || trainer->epoch_step == order_steps(trainer))
		return true;
	const double began = now_s();
	const bool saved = save(trainer);
	*seconds = now_s() - began;
	return saved;
}

bool checkpoint_after_epoch(struct trainer *trainer)
{
	return !trainer->options->checkpoint || trainer->epoch_step > 0 || save(trainer);
}

bool checkpoint_end(struct trainer *trainer)
{
	writer_wait(&trainer->writer);
	return !trainer->writer.failed ||
		train_fail("--checkpoint %s: the last one could not be written", trainer->options->checkpoint);
}
