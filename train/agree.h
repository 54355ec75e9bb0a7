/* Checks that all ranks have the same options. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include <collet/collet.h>

#include "options.h"

/* Collective. Compares the options that the course of training depends on. Otherwise ranks with different options
 * would wait for each other, or train on silently. Returns false on every rank, after a line that names the option
 * and a rank. */
bool agree_on_options(collet_comm *comm, const struct options *options);

#endif
