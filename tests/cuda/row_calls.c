#include "row_calls.h"

#include <stdlib.h>
#include <string.h>

#include "core/types.h"
#include "ending.h"
#include "values.h"

enum { SENTINEL = 0xa5 };

static bool wait_for(
	struct rank *rank, const struct call_mode *mode, struct ending *ending, const collet_how *how)
{
	return ending_wait(rank, ending, how) &&
	       (!mode->stream || mode->streams->cuStreamSynchronize(mode->stream) == CU_OK);
}

static collet_status call(struct rank *rank, collet_comm *comm, const struct row *row, const struct side *send,
	const struct side *recv, const void *from, void *to, const collet_how *how)
{
	const uint64_t n = row->count, mine = rank->rank;
	switch (row->call) {
	case CALL_ALLREDUCE: return collet_allreduce(comm, from, to, n, row->dtype, row->op, how);
	case CALL_REDUCE: return collet_reduce(comm, from, to, n, row->dtype, row->op, row->root, how);
	case CALL_BROADCAST: return collet_broadcast(comm, from, to, n, row->dtype, row->root, how);
	case CALL_BARRIER: return collet_barrier(comm, how);
	case CALL_ALLGATHER: return collet_allgather(comm, from, to, n, row->dtype, how);
	case CALL_REDUCE_SCATTER: return collet_reduce_scatter(comm, from, to, n, row->dtype, row->op, how);
	case CALL_GATHER: return collet_gather(comm, from, to, n, row->dtype, row->root, how);
	case CALL_SCATTER: return collet_scatter(comm, from, to, n, row->dtype, row->root, how);
	case CALL_ALLTOALL: return collet_alltoall(comm, from, to, n, row->dtype, how);
	case CALL_ALLGATHERV:
		return collet_allgatherv(
			comm, from, recv->counts[mine], to, recv->counts, recv->displacements, row->dtype, how);
	case CALL_GATHERV:
		return collet_gatherv(
			comm, from, send->elements, to, recv->counts, recv->displacements, row->dtype, row->root, how);
	case CALL_SCATTERV:
		return collet_scatterv(
			comm, from, send->counts, send->displacements, to, recv->elements, row->dtype, row->root, how);
	case CALL_REDUCE_SCATTERV:
		return collet_reduce_scatterv(comm, from, send->counts, send->displacements, to, recv->elements,
			row->dtype, row->op, how);
	case CALL_ALLTOALLV:
		return collet_alltoallv(comm, from, send->counts, send->displacements, to, recv->counts,
			recv->displacements, row->dtype, how);
	case CALLS: break;
	}
	abort();
}

static size_t bytes_of(const struct row *row, const struct side *side)
{
	return side->used ? side->elements * collet_dtype_bytes(row->dtype) : 0;
}

/* Finds the offset of the smaller buffer in the larger one when the call is in place, in elements. Returns false if it
 * cannot be in place. */
static bool in_place_at(
	struct rank *rank, const struct row *row, const struct side *send, const struct side *recv, uint64_t *at)
{
	*at = 0;
	if (!send->used || !recv->used || row->call == CALL_BARRIER)
		return false;
	switch (call_infos[row->call].in_place) {
	case IN_PLACE_SAME:
		return row->call != CALL_ALLTOALLV ||
		       (memcmp(send->counts, recv->counts, sizeof(send->counts)) == 0 &&
			       memcmp(send->displacements, recv->displacements, sizeof(send->counts)) == 0);
	case IN_PLACE_SEND_IN_RECV:
		*at = call_infos[row->call].is_vector ? recv->displacements[rank->rank] : rank->rank * row->count;
		return true;
	case IN_PLACE_RECV_IN_SEND:
		*at = call_infos[row->call].is_vector ? send->displacements[rank->rank] : rank->rank * row->count;
		return true;
	}
	return false;
}

/* Threads of one process allocate and free GPU memory while none of them has a call under way: see calls.c. */
static bool meet(struct rank *rank, const struct call_mode *mode)
{
	return mode->is_reference || rank->options->mode == RANKS_PROCESSES || rank_barrier(rank);
}

/* Runs the call, and copies the final contents of recv. */
static bool run(struct rank *rank, collet_comm *comm, const struct program *program, const struct row *row,
	const struct call_mode *mode, char *result)
{
	struct side send, recv;
	uint64_t at;
	row_sides(row, rank->size, rank->rank, &send, &recv);
	const size_t element = collet_dtype_bytes(row->dtype);
	const size_t send_bytes = bytes_of(row, &send), recv_bytes = bytes_of(row, &recv);
	const bool in_place =
		mode->in_place && mode->send_on_gpu == mode->recv_on_gpu && in_place_at(rank, row, &send, &recv, &at);
	const bool recv_is_larger = recv_bytes >= send_bytes;
	const size_t whole_bytes = recv_is_larger ? recv_bytes : send_bytes;
	char *given = malloc(send_bytes + 1), *whole = malloc(whole_bytes + 1);
	struct buffer from = { 0 }, to = { 0 };
	struct ending ending = { .request = NULL };
	collet_how how = COLLET_HOW_DEFAULT;
	if (mode->request)
		ending_use(&ending, &how, ((uint32_t)row->dtype + (uint32_t)row->op) % 2);
	how.stream = mode->stream;
	how.scale = row_scale(row, rank->rank);
	how.algorithm = mode->algorithm;
	memset(given, SENTINEL, send_bytes);
	memset(whole, SENTINEL, whole_bytes);
	row_fill(row, rank->size, &send, given);
	bool fine = buffer_make(&to, program, mode->recv_on_gpu, in_place ? whole_bytes : recv_bytes) &&
		(in_place || buffer_make(&from, program, mode->send_on_gpu, send_bytes));
	fine = meet(rank, mode) && fine;
	if (in_place) {
		memcpy(whole + (recv_is_larger ? at * element : 0), given, send_bytes);
		char *read = to.first + (recv_is_larger ? at * element : 0);
		char *written = to.first + (recv_is_larger ? 0 : at * element);
		fine = fine && buffer_write(&to, whole) &&
		       rank_ok(rank, call(rank, comm, row, &send, &recv, read, written, &how), "in place") &&
		       wait_for(rank, mode, &ending, &how) && buffer_read(&to, whole);
		memcpy(result, whole + (recv_is_larger ? 0 : at * element), recv_bytes);
		/* Only the result is compared: the rest of the input around it does not matter. */
	} else {
		memset(result, SENTINEL, recv_bytes);
		fine = fine && buffer_write(&from, given) && buffer_write(&to, result) &&
		       rank_ok(rank,
			       call(rank, comm, row, &send, &recv, send.used ? from.first : NULL,
				       recv.used ? to.first : NULL, &how),
			       call_infos[row->call].name) &&
		       wait_for(rank, mode, &ending, &how) && buffer_read(&to, result) && buffer_read(&from, whole);
		fine = fine && rank_check(rank, memcmp(given, whole, send_bytes) == 0, "what was sent has changed");
	}
	fine = meet(rank, mode) && fine;
	buffer_free(&from);
	buffer_free(&to);
	free(given);
	free(whole);
	return rank_check(rank, fine, "the driver failed, or the call");
}

bool row_matches_host(
	struct rank *rank, const struct program *program, const struct row *row, const struct call_mode *mode)
{
	const char *direct = call_infos[row->call].is_reduction ? "direct" : NULL;
	const struct call_mode on_host = { .is_reference = true, .in_place = mode->in_place,
		.algorithm = mode->host ? mode->algorithm : direct };
	struct side send, recv;
	char name[ROW_NAME_BYTES];
	row_sides(row, rank->size, rank->rank, &send, &recv);
	const size_t bytes = bytes_of(row, &recv);
	char *expected = malloc(bytes + 1), *got = malloc(bytes + 1);
	row_name(row, "gpu", rank->size, name);
	rank_doing(rank, "%s, send on the %s, recv on the %s%s%s", name, mode->send_on_gpu ? "GPU" : "host",
		mode->recv_on_gpu ? "GPU" : "host", mode->in_place ? ", in place" : "",
		mode->request  ? ", by a request"
		: mode->stream ? ", on a stream"
			      : "");
	bool fine = run(rank, mode->host ? mode->host : rank->comm, program, row, &on_host, expected) &&
		    run(rank, rank->comm, program, row, mode, got);
	size_t differs = 0;
	while (fine && differs < bytes && expected[differs] == got[differs])
		differs++;
	fine = fine && rank_check(rank, differs == bytes, "%s differs from byte %zu of %zu: %s", name, differs, bytes,
			       rank->report->doing);
	free(expected);
	free(got);
	return fine;
}

static bool exists(const struct row_walk *walk, enum call call, collet_dtype dtype, collet_op op)
{
	return (call != CALL_BARRIER || walk->barriers) &&
	       (call_infos[call].is_reduction ? collet_op_supports(op, dtype) : op == 0);
}

bool row_next(struct row_walk *walk, uint32_t size, struct row *row, uint64_t *drawn)
{
	while (walk->number < (uint64_t)CALLS * COLLET_DTYPE_COUNT * COLLET_USER) {
		const uint64_t number = walk->number++, mixed = rows_mix(walk->seed, number);
		const uint64_t seed = mixed / walk->share;
		const enum call call = (enum call)(number % CALLS);
		const collet_dtype dtype = (collet_dtype)(number / CALLS % COLLET_DTYPE_COUNT);
		const collet_op op = (collet_op)(number / CALLS / COLLET_DTYPE_COUNT);
		if (!exists(walk, call, dtype, op) || mixed % walk->share)
			continue;
		*row = (struct row){ .call = call, .dtype = dtype, .op = op,
			.values = value_is_float(dtype) && seed % 2 ? VALUES_WILD : VALUES_EXACT,
			.count = call == CALL_BARRIER ? 0 : walk->counts[seed % walk->count_count],
			.root = (uint32_t)(seed / 7 % size), .seed = seed };
		*drawn = mixed >> 20;
		return true;
	}
	return false;
}
