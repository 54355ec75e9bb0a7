/* Shared by the commands with a timing of their own (overlap, request, waiting): a communicator, the outputs, and a
 * prepared size. Each rank has one. */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#include "collet_library.h"
#include "compare/load.h"
#include "options.h"
#include "report/output.h"

struct bench_session {
	const struct bench_options *options;
	struct collet_library collet;
	FILE *table, *json;             /* on rank 0; NULL: not wanted */
};

/* Creates the communicator, checks what bench_preflight() checks, and opens the outputs that options ask for. sets: how
 * many sets of buffers a rank has at once. Call bench_session_end() after it, unless it returns an exit status: the
 * reason has been printed, and nothing is left to end. */
int bench_session_begin(struct bench_session *session, const struct bench_options *options, uint32_t sets);
/* Returns the exit status: status, or 1 if the results could not be written. */
int bench_session_end(struct bench_session *session, int status);

/* Prints what failed, with the library's sentence. Returns 1. */
int bench_session_complain(const char *what);

/* Prepares a size: its buffers, collet.plan and collet.how. Call bench_run_deinit() after it, unless it returns an exit
 * status: the reason has been printed, and nothing is left to free. */
int bench_session_prepare(struct bench_session *session, struct bench_run *run, uint64_t bytes);

/* Judges whether other processes used the machine between two marks of this rank, by all ranks' marks. All ranks call
 * it; rank 0 gets the answer. Returns 1 after printing the reason of a failure. */
int bench_session_judge(struct bench_session *session, const struct bench_load_mark *before,
	const struct bench_load_mark *after, enum bench_disturbance *disturbance);

/* Begins an object of json: collective, transport, ranks, bytes. The caller goes on with a comma. */
void bench_session_json(const struct bench_session *session, const struct bench_run *run);

const char *bench_session_collective(const struct bench_session *session);
/* Returns the transport that calls used, or the requested one if the library cannot tell. Never NULL. */
const char *bench_session_transport(const struct bench_session *session);
/* Returns the bytes of the prepared call, as tables count them. */
uint64_t bench_session_bytes(const struct bench_session *session, const struct bench_run *run);

#endif
