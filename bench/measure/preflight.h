/* Checks what only the ranks together can tell, before anything is measured. */
#ifndef BENCH_PREFLIGHT_H
#define BENCH_PREFLIGHT_H

#include "collet_library.h"
#include "options.h"

/* Checks the root, and that each host has memory for the largest size; a rank has so many sets of buffers at once. All
 * ranks call it. Returns the same exit status on all, 0 to go on. One rank prints what is wrong. */
int bench_preflight(struct collet_library *collet, const struct bench_options *options, uint32_t sets);

/* Returns 0 if the named algorithm can do the work that collet_library_plan() has just planned. Else rank 0 prints why
 * not, and all ranks get the exit status of a mistake of usage. */
int bench_preflight_algorithm(const struct collet_library *collet, const char *algorithm, uint64_t bytes);

#endif
