/* The help of one command: its usage and what it does. */
#ifndef BENCH_HELP_H
#define BENCH_HELP_H

#include "options.h"

/* Returns lines of text, which end with the heading of the options. */
const char *bench_help_text(enum bench_command_kind command);

#endif
