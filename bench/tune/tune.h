/* collet-bench tune: measures what the library's cost model is made of, fits it, and writes it down. */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include "options.h"

/* Set for the ranks that tune starts, and which transport they are to use. */
#define BENCH_TUNE_RANK "COLLET_BENCH_TUNE_RANK"
#define BENCH_TUNE_TRANSPORT "COLLET_BENCH_TUNE_TRANSPORT"

/* Set, besides, for those that measure limits: the folder of two tunings, which differ by their limits. */
#define BENCH_TUNE_LIMITS "COLLET_BENCH_TUNE_LIMITS"
#define TUNE_FILE_ONCE "once"
#define TUNE_FILE_OTHERWISE "otherwise"
/* The tuning that sweeps are made with. */
#define TUNE_FILE_SWEEP "sweep"

/* The pieces to try: the usual ones, half and twice as long; and on from there while that is faster. */
enum { TUNE_MIN_SEGMENT = 32 << 10, TUNE_USUAL_SEGMENT = 128 << 10, TUNE_MAX_SEGMENT = 1 << 20 };

enum { TUNE_PATH_BYTES = 4096 };

/* The file to write to: --output, or the user's; with --check perhaps none (""). False after a line on standard
 * error. */
bool bench_tune_path(const struct bench_options *options, char path[TUNE_PATH_BYTES]);

/* Starts ranks, transport by transport and world by world; fits, shows, writes. The process's exit status. */
int bench_tune(const struct bench_options *options, char **argv);

/* Runs as one of the ranks: times every algorithm of every collective at every size, in turns. Rank 0 prints a line
 * a point. */
int bench_tune_rank(const struct bench_options *options, const char *transport);

/* Runs as one of the ranks: times calls of sizes where limits may lie, with the limits of both tunings in turns.
 * Rank 0 prints a line a point. */
int bench_tune_limits_rank(const struct bench_options *options, const char *transport, const char *folder);

#endif
