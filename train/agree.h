/* Whether all ranks were told the same. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include <collet/collet.h>

#include "options.h"

/* Collective. Compares what the course of training depends on, so that ranks that were told different things do not
 * wait for each other, or train on in silence. False, on every rank, after a line that names the option and a rank. */
bool agree_on_options(collet_comm *comm, const struct options *options);

#endif
