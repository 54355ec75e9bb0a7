/* Runs one row of the matrix on one rank: its buffers, its call, and the check of its result. */
#ifndef COLLET_TESTS_API_FLIGHT_H
#define COLLET_TESTS_API_FLIGHT_H

#include "ranks.h"
#include "rows.h"

enum outcome {
	OUTCOME_NONE,                /* not run */
	OUTCOME_RIGHT,
	OUTCOME_WRONG,
	OUTCOME_REFUSED              /* COLLET_ERR_UNSUPPORTED */
};

struct flight {
	const struct row *row;
	size_t number;
	struct side send, recv;
	bool in_place, alloc;
	/* Both buffers with guards around them, and their expected content at the end. */
	char *area, *image;
	size_t area_bytes;
	char *send_at, *recv_at;
	collet_request *request;
};

/* Starts a row, and finishes it unless it is a request. variant selects in place or not, the memory, request or not.
 * Returns false, and reports, if something is wrong. Writes *outcome and *digest when the row has finished. */
bool flight_start(struct flight *flight, struct rank *rank, const struct row *row, uint64_t variant,
	enum outcome *outcome, uint64_t *digest);
/* Waits for a request and finishes its row. */
bool flight_finish(struct flight *flight, struct rank *rank, enum outcome *outcome, uint64_t *digest);

#endif
