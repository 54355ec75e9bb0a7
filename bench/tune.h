/* collet-bench tune: measures what the library's cost model is made of, fits it, and writes it down. */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include "options.h"

/* Set for the ranks that tune starts, and which transport they are to use. */
#define BENCH_TUNE_RANK "COLLET_BENCH_TUNE_RANK"
#define BENCH_TUNE_TRANSPORT "COLLET_BENCH_TUNE_TRANSPORT"

/* The pieces that are tried: the usual ones, a quarter, and so on down to the least. */
enum { TUNE_USUAL_PIECE = 256 << 10, TUNE_LEAST_PIECE = 64 << 10 };

enum { TUNE_PATH_BYTES = 4096 };

/* The file to write to: --output, or the user's; with --check perhaps none (""). False after a line on standard
 * error. */
bool bench_tune_path(const struct bench_options *options, char path[TUNE_PATH_BYTES]);

/* Starts ranks, transport by transport and world by world; fits, shows, writes. The process's exit status. */
int bench_tune(const struct bench_options *options, char **argv);

/* As one of the ranks: every algorithm of every collective at every size, in turns. Rank 0 prints a line a point. */
int bench_tune_rank(const struct bench_options *options, const char *transport);

#endif
