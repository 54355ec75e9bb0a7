/* Checks options against each other, and against what the library has. */
#ifndef BENCH_OPTIONS_CHECK_H
#define BENCH_OPTIONS_CHECK_H

#include "options.h"

/* Returns false if the options together make no sense: a sentence about it is in problem. */
bool bench_options_check(const struct bench_options *options, char problem[256]);

#endif
