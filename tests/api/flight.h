/* One row of the matrix on one rank: its buffers, its call, and the look at what came of it. */
#ifndef COLLET_TESTS_COMM_FLIGHT_H
#define COLLET_TESTS_COMM_FLIGHT_H

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
	/* Where both buffers are, with guards around them, and what must be there in the end. */
	char *area, *image;
	size_t area_bytes;
	char *send_at, *recv_at;
	collet_request *request;
};

/* Starts a row (variant says how: in place or not, which memory, request or not) and finishes it, unless it is a
 * request. false: something is wrong, and reported. *outcome and *digest are written when it has finished. */
bool flight_start(struct flight *flight, struct rank *rank, const struct row *row, uint64_t variant,
	enum outcome *outcome, uint64_t *digest);
/* Of a request, which is waited for. */
bool flight_finish(struct flight *flight, struct rank *rank, enum outcome *outcome, uint64_t *digest);

#endif
