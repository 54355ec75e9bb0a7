/* collet as one of the libraries that are measured: its row of calls over a communicator. */
#ifndef BENCH_COLLET_LIBRARY_H
#define BENCH_COLLET_LIBRARY_H

#include <collet/tools.h>

#include "loop.h"

struct collet_library {
	collet_comm *comm;
	collet_how how;                      /* of the prepared work: algorithm, scale */
	char algorithm[32];                  /* what how.algorithm points to; whoever named it may forget it */
	void *stream;                        /* for collet_library_plan(): calls are put on it; NULL: they block */
	uint32_t segment_bytes, channels;    /* for collet_library_plan(); 0: as chosen */
	struct bench_allocator allocator;
	struct bench_library library;        /* what to hand to the loop */
	collet_plan plan;
	bool refused;                        /* the named algorithm cannot do the planned work */
};

/* Creates the communicator of all ranks from the environment. COLLET_OK or what collet_last_error() tells. */
collet_status collet_library_init(struct collet_library *collet, const char *transport);
/* The same, with the caller's options of the communicator. */
collet_status collet_library_init_with(struct collet_library *collet, const collet_options *options);
void collet_library_deinit(struct collet_library *collet);

/* Settles how the work is called; the result is for bench_call.how, valid until the next one. collet->plan then says
 * what the library will do; its algorithm is NULL where it cannot tell. algorithm NULL or "": the library's choice. If
 * the named one cannot do it, collet->refused is set on all ranks, and collet_last_error() says why. */
const void *collet_library_plan(
	struct collet_library *collet, const struct bench_work *work, uint64_t count, const char *algorithm);

#endif
