#ifndef TRAIN_CIFAR10_H
#define TRAIN_CIFAR10_H

#include "data/dataset.h"

/* directory: the set's folder (its files plain or gzip) or its parent. As dataset_load(). */
bool cifar10_load(struct dataset *set, const char *directory, enum dataset_part part, uint32_t limit);

#endif
