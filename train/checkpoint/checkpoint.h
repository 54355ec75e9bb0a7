/* Saves a run to disk as one safetensors file, from which it continues bit for bit. The file holds the parameters under
 * PyTorch's names, and batch norm's statistics beside them. It holds the optimiser's state (optimizer.*) and each
 * rank's own state (ranks.*). It holds the epochs so far (history: number, loss, accuracy, images/s). The metadata
 * holds the progress and the options. Random numbers depend only on the seed, the epoch, the step and the place in
 * them, so these are the random state.
 *
 * All functions are collective. Only rank 0 touches files; it gathers and distributes the ranks' data. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "state.h"

/* After the options are known, before anything takes long: can it be written there at all? */
bool checkpoint_begin(const struct trainer *trainer);

/* Runs between strategy->create() and the network. With --resume, loads the newest checkpoint, if there is one. With
 * as many ranks as before, all state is restored. With another number of ranks, their own state is not; a step that
 * does not divide the images seen starts at the last multiple before. Returns false on every rank if the file is
 * damaged, or belongs to another training. */
bool checkpoint_resume(struct trainer *trainer);

/* Runs after every step, and after every epoch once it is evaluated; saves when it is time. The data is copied, and
 * written while training continues. The next checkpoint waits for it. A full disk fails the run only at its end, if
 * no later checkpoint could be written. *seconds: how long training waited. */
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
/* Cleans up after this step's checkpoint is on disk. In a folder, it removes older ones except the newest --keep -
 * 1, and incomplete files of a killed run. Checkpoints of later steps belong to another run, and stay. */
void checkpoint_prune(const struct options *options, uint32_t step);

#endif
