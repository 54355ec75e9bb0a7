/* A run on the disk, as one safetensors file from which it goes on bit for bit: parameters under their own names, as
 * PyTorch's, batch norm's statistics beside them, what the optimiser remembers (optimizer.*), what each rank keeps for
 * itself (ranks.*), the epochs so far (history: number, loss, accuracy, images/s), and in the metadata how far the run
 * is and what it was told. Nothing is drawn at random but from the seed, the epoch, the step and the place in them, so
 * these are the random state.
 *
 * All functions are collective. Rank 0 alone touches files; what ranks have comes to it, and goes from it. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "state.h"

/* After the options are known, before anything takes long: can it be written there at all? */
bool checkpoint_begin(const struct trainer *trainer);

/* Between strategy->create() and the network: with --resume, the newest checkpoint if there is one. Everything is as it
 * was then, on as many ranks; on another number of them, but for what each kept for itself, and a step that does not
 * divide the images seen so far begins at the last multiple before. False, on every rank: what is there is damaged, or
 * of another training. */
bool checkpoint_resume(struct trainer *trainer);

/* After every step, and after every epoch once it is evaluated: saves if it is time. What is to be written is copied,
 * and reaches the disk while training goes on; the next one waits for it. A disk that is full fails the run only at its
 * end, if no later checkpoint could be written. *seconds: what training had to wait. */
bool checkpoint_after_step(struct trainer *trainer, double *seconds);
bool checkpoint_after_epoch(struct trainer *trainer);

/* Not collective, and whatever has become of the run: until the last one is on the disk. False: it is not. */
bool checkpoint_end(struct trainer *trainer);

/* ---- Between writing and reading ------------------------------------------------------------------------------ */

enum { CHECKPOINT_PATH = 4096 };

/* The file for this step: the one that --checkpoint names, or one in the folder that it names. */
bool checkpoint_path(const struct options *options, uint32_t step, char *path);
/* The newest; *found: whether there is one. */
bool checkpoint_newest(const struct options *options, char *path, bool *found);
/* The one of this step is on the disk: in a folder, takes away older ones but for the newest --keep - 1, and what a run
 * that was killed had not written to its end. Those of later steps are of another run, and stay. */
void checkpoint_prune(const struct options *options, uint32_t step);

#endif
