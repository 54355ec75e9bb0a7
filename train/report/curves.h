/* --plot: loss, accuracy and images/s by epoch, drawn by gnuplot. */
#ifndef TRAIN_CURVES_H
#define TRAIN_CURVES_H

#include <stdbool.h>

#include "trainer.h"

/* Writes an SVG. False after a line on standard error. */
bool curves_draw(const char *path, const char *title, const struct trainer_epoch *epochs, uint32_t count);

#endif
