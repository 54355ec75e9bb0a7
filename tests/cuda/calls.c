#include "calls.h"

#include <stdlib.h>
#include <string.h>

#include "ending.h"

enum { ROOT = 1, SENTINEL = 0xa5, MOST = 4 };

static const char *const names[CALL_KINDS] = { "allreduce", "reduce", "broadcast", "allgather", "allgatherv",
	"reduce_scatter", "gather", "scatter", "alltoall", "sendrecv" };

/* Of the v-form: rank r sends r + count elements, with a gap before each block. */
struct listed {
	uint64_t counts[MOST], displacements[MOST], end;
};

static struct listed list(uint32_t size, uint64_t count)
{
	struct listed listed = { .end = 0 };
	for (uint32_t r = 0; r < size; r++) {
		listed.displacements[r] = listed.end + 3;
		listed.counts[r] = count + r;
		listed.end = listed.displacements[r] + listed.counts[r];
	}
	return listed;
}

/* Elements of a rank's buffers; 0 if unused. */
static uint64_t send_count(const struct rank *rank, const struct call_row *row)
{
	switch (row->kind) {
	case BROADCAST: return rank->rank == ROOT ? row->count : 0;
	case ALLGATHERV: return row->count + rank->rank;
	case REDUCE_SCATTER:
	case ALLTOALL: return row->count * rank->size;
	case SCATTER: return rank->rank == ROOT ? row->count * rank->size : 0;
	default: return row->count;
	}
}

static uint64_t recv_count(const struct rank *rank, const struct call_row *row)
{
	switch (row->kind) {
	case REDUCE: return rank->rank == ROOT ? row->count : 0;
	case ALLGATHER:
	case ALLTOALL: return row->count * rank->size;
	case ALLGATHERV: return list(rank->size, row->count).end;
	case GATHER: return rank->rank == ROOT ? row->count * rank->size : 0;
	case EXCHANGE: return row->count + 7;  /* longer than the message */
	default: return row->count;
	}
}

/* Offset of the smaller buffer in the larger one when a call is in place, in elements. */
static uint64_t in_place_at(const struct rank *rank, const struct call_row *row)
{
	switch (row->kind) {
	case ALLGATHERV: return list(rank->size, row->count).displacements[rank->rank];
	case ALLGATHER:
	case REDUCE_SCATTER:
	case GATHER:
	case SCATTER: return row->count * rank->rank;
	default: return 0;
	}
}

static bool can_be_in_place(const struct rank *rank, const struct call_row *row)
{
	return row->kind != EXCHANGE && row->send_on_gpu == row->recv_on_gpu && send_count(rank, row) &&
		recv_count(rank, row);
}

static collet_status call(
	struct rank *rank, const struct call_row *row, const void *send, void *recv, const collet_how *how)
{
	collet_comm *comm = rank->comm;
	const uint64_t count = row->count;
	const struct listed listed = list(rank->size, count);
	const uint32_t next = (rank->rank + 1) % rank->size, previous = (rank->rank + rank->size - 1) % rank->size;
	switch (row->kind) {
	case ALLREDUCE: return collet_allreduce(comm, send, recv, count, COLLET_F32, COLLET_SUM, how);
	case REDUCE: return collet_reduce(comm, send, recv, count, COLLET_F32, COLLET_SUM, ROOT, how);
	case BROADCAST: return collet_broadcast(comm, send, recv, count, COLLET_F32, ROOT, how);
	case ALLGATHER: return collet_allgather(comm, send, recv, count, COLLET_F32, how);
	case ALLGATHERV:
		return collet_allgatherv(comm, send, count + rank->rank, recv, listed.counts, listed.displacements,
			COLLET_F32, how);
	case REDUCE_SCATTER: return collet_reduce_scatter(comm, send, recv, count, COLLET_F32, COLLET_SUM, how);
	case GATHER: return collet_gather(comm, send, recv, count, COLLET_F32, ROOT, how);
	case SCATTER: return collet_scatter(comm, send, recv, count, COLLET_F32, ROOT, how);
	case ALLTOALL: return collet_alltoall(comm, send, recv, count, COLLET_F32, how);
	case EXCHANGE:
		return collet_sendrecv(
			comm, send, count, next, 5, recv, count + 7, previous, 5, COLLET_F32, NULL, how);
	case CALL_KINDS: break;
	}
	abort();
}

static bool call_and_wait(struct rank *rank, const struct call_row *row, const void *send, void *recv)
{
	struct ending ending = { .request = NULL };
	collet_how how = COLLET_HOW_DEFAULT;
	if (row->request)
		ending_use(&ending, &how, (row->kind + row->count) % 2);
	how.stream = row->stream;
	return rank_ok(rank, call(rank, row, send, recv, &how), names[row->kind]) &&
		ending_wait(rank, &ending, &how) &&
		(!row->stream ||
			rank_check(rank, row->streams->cuStreamSynchronize(row->stream) == CU_OK, "the stream"));
}

/* Allocates a buffer, registered or page-locked as the row says. */
static bool make(struct rank *rank, struct buffer *buffer, const struct program *program, const struct call_row *row,
	bool on_gpu, size_t bytes)
{
	const size_t least = bytes ? bytes : 1;
	const bool made = row->pinned && !on_gpu ? buffer_make_pinned(buffer, program, bytes) :
						   buffer_make(buffer, program, on_gpu, bytes);
	return made &&
		(!row->registered || !on_gpu ||
			rank_ok(rank, collet_mem_register(rank->comm, buffer->first, least), "registering"));
}

static void unmake(struct rank *rank, struct buffer *buffer, const struct call_row *row)
{
	if (buffer->first && row->registered && buffer->gpu)
		rank_ok(rank, collet_mem_deregister(rank->comm, buffer->first), "deregistering");
	buffer_free(buffer);
}

/* What a row's call uses. */
struct row_buffers {
	struct buffer send, recv;
	bool in_place;               /* in recv alone, which is as large as the larger one */
	size_t send_at, recv_at;     /* offsets in place */
};

static bool make_all(struct rank *rank, const struct call_row *row, const struct program *program, size_t send_bytes,
	size_t recv_bytes, struct row_buffers *buffers)
{
	const size_t at = in_place_at(rank, row) * sizeof(float);
	*buffers = (struct row_buffers){ .in_place = row->in_place && can_be_in_place(rank, row) };
	if (!buffers->in_place)
		return make(rank, &buffers->send, program, row, row->send_on_gpu, send_bytes) &&
			make(rank, &buffers->recv, program, row, row->recv_on_gpu, recv_bytes);
	buffers->send_at = recv_bytes >= send_bytes ? at : 0;
	buffers->recv_at = recv_bytes >= send_bytes ? 0 : at;
	return make(rank, &buffers->recv, program, row, row->recv_on_gpu,
		recv_bytes >= send_bytes ? recv_bytes : send_bytes);
}

/* Makes the call, and copies the buffers' final contents to sent and received. */
static bool call_with(struct rank *rank, const struct call_row *row, const struct row_buffers *buffers, char *sent,
	char *received)
{
	const size_t send_bytes = send_count(rank, row) * sizeof(float);
	const size_t recv_bytes = recv_count(rank, row) * sizeof(float);
	const struct buffer *send = &buffers->send, *recv = &buffers->recv;
	if (!buffers->in_place)
		return buffer_write(send, sent) && buffer_write(recv, received) &&
			call_and_wait(rank, row, send_bytes ? send->first : NULL, recv_bytes ? recv->first : NULL) &&
			buffer_read(send, sent) && buffer_read(recv, received);
	char *whole = recv_bytes >= send_bytes ? received : sent;
	if (whole == received)
		memcpy(received + buffers->send_at, sent, send_bytes);
	const bool fine = buffer_write(recv, whole) &&
		call_and_wait(rank, row, recv->first + buffers->send_at, recv->first + buffers->recv_at) &&
		buffer_read(recv, whole);
	if (fine && whole == sent)
		memcpy(received, sent + buffers->recv_at, recv_bytes);
	return fine;
}

/* Runs the row. On a stream it allocates and frees while no rank has a call under way: for threads of one process the
 * driver waits then for all streams, and so for a call that waits for this rank. */
static bool run(
	struct rank *rank, const struct call_row *row, const struct program *program, char *sent, char *received)
{
	const size_t send_bytes = send_count(rank, row) * sizeof(float);
	const size_t recv_bytes = recv_count(rank, row) * sizeof(float);
	struct row_buffers buffers;
	bool fine = make_all(rank, row, program, send_bytes, recv_bytes, &buffers);
	fine = (!row->stream || rank_barrier(rank)) && fine;
	fine = fine && call_with(rank, row, &buffers, sent, received);
	fine = (!row->stream || rank_barrier(rank)) && fine;
	unmake(rank, &buffers.send, row);
	unmake(rank, &buffers.recv, row);
	return rank_check(rank, fine, "the driver failed, or the call");
}

bool call_matches_host(struct rank *rank, const struct call_row *row, const struct program *program)
{
	const size_t send_bytes = send_count(rank, row) * sizeof(float);
	const size_t recv_bytes = recv_count(rank, row) * sizeof(float);
	float *given = malloc(send_bytes + 1);
	char *buffers[4] = { malloc(send_bytes + 1), malloc(recv_bytes + 1), malloc(send_bytes + 1),
		malloc(recv_bytes + 1) };
	rank_doing(rank, "%s of %llu, send on the %s, recv on the %s%s%s%s", names[row->kind],
		(unsigned long long)row->count, row->send_on_gpu ? "GPU" : "host", row->recv_on_gpu ? "GPU" : "host",
		row->pinned ? ", page-locked" : "", row->in_place ? ", in place" : "",
		row->request  ? ", by a request"
		: row->stream ? ", on a stream"
			      : "");
	for (size_t i = 0; i < send_bytes / sizeof(float); i++)
		given[i] = (float)(1 + i % 97) * 0.37f + (float)rank->rank;
	for (int b = 0; b < 4; b += 2) {
		memcpy(buffers[b], given, send_bytes);
		memset(buffers[b + 1], SENTINEL, recv_bytes);
	}
	struct call_row on_host = *row;
	on_host.send_on_gpu = on_host.recv_on_gpu = on_host.request = false;
	on_host.stream = NULL;
	on_host.pinned = false;
	bool fine = run(rank, &on_host, program, buffers[0], buffers[1]) &&
		run(rank, row, program, buffers[2], buffers[3]);
	fine = fine && rank_check(rank, memcmp(buffers[1], buffers[3], recv_bytes) == 0, "recv differs: %s",
		rank->report->doing);
	fine = fine &&
	       rank_check(rank, row->in_place || memcmp(buffers[2], given, send_bytes) == 0, "send has changed");
	for (int b = 0; b < 4; b++)
		free(buffers[b]);
	free(given);
	return fine;
}
