/* Keeps the sums of an average of narrow floats in f32, where a program sends partial sums.
 *
 * Rounded to 16 or 8 bits, a partial sum may overflow where the average fits, and equal values would not give that
 * value. So the program runs as a sum of f32, in place, in memory of the communicator. Inputs are widened into it, and
 * results are divided and rounded out of it. Both are scaled by a power of two, so that bf16 cannot overflow f32.
 *
 * That memory holds a slice of the elements. A longer call runs its program for each slice in turn. Its tasks start the
 * next slice, and later requests, when all of them have ended the last one. Requests use the memory in call order.
 * Slices depend on the shape only, so all ranks cut alike, and the bits of results do not change from run to run.
 *
 * Programs that reduce all operands in one step need none of this: kernels add in f32. */
#ifndef COLLET_ENGINE_WIDE_SUMS_H
#define COLLET_ENGINE_WIDE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include <collet/collet.h>

#include "core/cpu.h"
#include "reduce/convert.h"
#include "reduce/reduce.h"

struct collet_comm_state;
struct collet_request;

struct collet_wide_sums {
	bool is_used;
	struct collet_request *next, **previous; /* in comm_state.wide_requests; previous NULL: not there */
	char *memory;                /* INPUT of the slice; NULL: the request has not begun, or has ended */
	char *result;                /* RESULT of the slice, inside memory */
	uint64_t slice_count;        /* elements of a slice: of each block if there are blocks */
	uint64_t first, count;       /* elements before the slice, and in all */
	struct collet_conversion conversion;
	struct collet_reduction down, up; /* multiply by 2^-k <= 1/n, and by 2^k/n */
};

/* Prepares a request that averages narrow floats, for its program and shape. Its messages are f32 from here on.
 * COLLET_ERR_MEMORY, _UNSUPPORTED. */
COLLET_MUST_USE collet_status collet_wide_sums_plan(
	struct collet_request *request, collet_dtype dtype, enum collet_isa isa);
/* Puts a request that starts behind those before it. They take the memory in this order: a task may come to a request
 * while another task still has an earlier one, and each would wait for the other. */
void collet_wide_sums_queue(struct collet_request *request);
/* Widens the first slice when the first task comes to the request. False if an earlier request has the memory. */
bool collet_wide_sums_begin(struct collet_request *request);
/* True if the slice under way is not the last. */
bool collet_wide_sums_has_more(const struct collet_request *request);
/* Rounds the results of a slice whose items have all ended, and begins the next one. True if it was the last. */
bool collet_wide_sums_end_slice(struct collet_request *request);
/* Divides finished sums and rounds them to the narrow type. */
void collet_wide_sums_narrow(const struct collet_wide_sums *wide, char *to, const float *from, uint64_t count);
/* Lets the next request use the memory, when a queued one ends. */
void collet_wide_sums_release(struct collet_request *request);
/* Frees a communicator's memory. */
void collet_wide_sums_free(struct collet_comm_state *state);

#endif
