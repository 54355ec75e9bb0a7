/* Gives every rank the images. Rank 0 reads, unpacks and checks the files (or draws the digits), and broadcasts
 * them. So only one host needs the files, and they are read once. */
#ifndef TRAIN_PREPARE_H
#define TRAIN_PREPARE_H

#include <collet/collet.h>

#include "data/dataset.h"
#include "options.h"

/* Collective. False on every rank, after a line on standard error, if rank 0 cannot. deinit as after dataset_load(). */
bool prepare_images(collet_comm *comm, const struct options *options, struct dataset *train, struct dataset *test);

#endif
