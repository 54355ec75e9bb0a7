/* Binds ranks to cores: each to a core of its own if there are enough. Otherwise neighbours share one, or none is
 * bound. */
#ifndef BENCH_PIN_H
#define BENCH_PIN_H

#include <stdbool.h>
#include <stdint.h>

/* Set: nothing is bound (--no-pin, told to every rank and driver). */
#define BENCH_NO_PIN_VARIABLE "COLLET_BENCH_NO_PIN"

/* Set: where cores are fewer than ranks, those of a peer's driver share them as collet's do. */
#define BENCH_PIN_SHARED_VARIABLE "COLLET_BENCH_PIN_SHARED"

/* Cores (not hardware threads) that this process may use; at least 1. */
uint32_t bench_core_count(void);
/* Writes one hardware thread of each of the first cores, in the order in which ranks are bound to them. Returns how
 * many there are, at most `most`. */
uint32_t bench_first_cpus(uint32_t *cpus, uint32_t most);
/* Binds the calling process, which must still have one thread. With local_size cores, rank local_rank gets the core
 * of that index. With fewer cores, neighbours share one if sharing is asked for. Returns true if the process is
 * bound. */
bool bench_pin(uint32_t local_rank, uint32_t local_size, bool share);
/* Is the calling process bound to a single core, by whomever? */
bool bench_is_pinned(void);

#endif
