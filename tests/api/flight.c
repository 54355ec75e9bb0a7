#include "flight.h"

#include <stdlib.h>
#include <string.h>

enum {
	GUARD_BYTES = 64,            /* before, between and after the buffers; must stay unchanged */
	POISON = 0xa5                /* content of a receive buffer before the call */
};

enum variant {
	VARIANT_IN_PLACE = 1,
	VARIANT_ALLOC = 2,
	VARIANT_REQUEST = 4,
	VARIANT_SHIFTED = 8,         /* buffers one element off the alignment of memory */
	VARIANT_UNUSED_GIVEN = 16    /* a buffer that this rank does not use is not NULL, but must be left alone */
};

/* Fowler, Noll, Vo: 64 bits of FNV-1a. */
static uint64_t digest_of(const void *data, size_t bytes)
{
	uint64_t hash = 14695981039346656037u;
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
	return hash;
}

/* Places the buffers in an area; area NULL: only computes its length. */
static size_t lay_out(struct flight *flight, uint32_t rank, uint64_t variant, char *area)
{
	const struct row *row = flight->row;
	const size_t element = collet_dtype_bytes(row->dtype);
	const size_t send_bytes = flight->send.elements * element, recv_bytes = flight->recv.elements * element;
	size_t at = GUARD_BYTES + (variant & VARIANT_SHIFTED ? element : 0);
	if (flight->in_place) {
		const enum in_place how = call_infos[row->call].in_place;
		const uint64_t own = call_infos[row->call].is_vector ?
			(how == IN_PLACE_SEND_IN_RECV ? &flight->recv : &flight->send)->displacements[rank] :
			row->count * rank;
		const size_t longest = send_bytes > recv_bytes ? send_bytes : recv_bytes;
		if (area) {
			flight->send_at = area + at + (how == IN_PLACE_SEND_IN_RECV ? own * element : 0);
			flight->recv_at = area + at + (how == IN_PLACE_RECV_IN_SEND ? own * element : 0);
		}
		return at + longest + GUARD_BYTES;
	}
	if (area)
		flight->send_at = area + at;
	at += send_bytes + GUARD_BYTES;
	if (area)
		flight->recv_at = area + at;
	return at + recv_bytes + GUARD_BYTES;
}

static char *get_area(struct flight *flight, const struct rank *rank)
{
	void *area;
	if (flight->alloc) {
		if (collet_mem_alloc(rank->comm, &area, flight->area_bytes) == COLLET_OK)
			return area;
		flight->alloc = false;  /* the arena is full: use malloc */
	}
	return malloc(flight->area_bytes);
}

static bool make_buffers(struct flight *flight, struct rank *rank, uint64_t variant)
{
	const struct row *row = flight->row;
	row_sides(row, rank->size, rank->rank, &flight->send, &flight->recv);
	flight->in_place = variant & VARIANT_IN_PLACE && flight->send.used && flight->recv.used;
	flight->alloc = variant & VARIANT_ALLOC;
	flight->area_bytes = lay_out(flight, rank->rank, variant, NULL);
	flight->area = get_area(flight, rank);
	flight->image = malloc(flight->area_bytes);
	if (!rank_check(rank, flight->area && flight->image, "no memory for %zu bytes", flight->area_bytes))
		return false;
	/* The area first holds the image: inputs, with outputs over them. The call starts without the outputs. */
	memset(flight->area, POISON, flight->area_bytes);
	lay_out(flight, rank->rank, variant, flight->area);
	row_fill(row, rank->size, &flight->send, flight->send_at);
	memcpy(flight->image, flight->area, flight->area_bytes);
	row_fill(row, rank->size, &flight->recv, flight->image + (flight->recv_at - flight->area));
	if (!(variant & VARIANT_UNUSED_GIVEN)) {
		flight->send_at = flight->send.used ? flight->send_at : NULL;
		flight->recv_at = flight->recv.used ? flight->recv_at : NULL;
	}
	return true;
}

static void free_buffers(struct flight *flight, struct rank *rank)
{
	if (flight->alloc)
		rank_ok(rank, collet_mem_free(rank->comm, flight->area), "collet_mem_free");
	else
		free(flight->area);
	free(flight->image);
}

static collet_status call(struct flight *f, collet_comm *comm, const collet_how *how)
{
	const struct row *row = f->row;
	const void *send = f->send_at;
	void *recv = f->recv_at;
	const uint64_t count = row->count;
	const collet_dtype dtype = row->dtype;
	const uint64_t own_send = f->send.block[0].count, own_recv = f->recv.block[0].count;
	switch (row->call) {
	case CALL_ALLREDUCE: return collet_allreduce(comm, send, recv, count, dtype, row->op, how);
	case CALL_REDUCE: return collet_reduce(comm, send, recv, count, dtype, row->op, row->root, how);
	case CALL_BROADCAST: return collet_broadcast(comm, send, recv, count, dtype, row->root, how);
	case CALL_BARRIER: return collet_barrier(comm, how);
	case CALL_ALLGATHER: return collet_allgather(comm, send, recv, count, dtype, how);
	case CALL_REDUCE_SCATTER: return collet_reduce_scatter(comm, send, recv, count, dtype, row->op, how);
	case CALL_GATHER: return collet_gather(comm, send, recv, count, dtype, row->root, how);
	case CALL_SCATTER: return collet_scatter(comm, send, recv, count, dtype, row->root, how);
	case CALL_ALLTOALL: return collet_alltoall(comm, send, recv, count, dtype, how);
	case CALL_ALLGATHERV:
		return collet_allgatherv(comm, send, own_send, recv, f->recv.counts, f->recv.displacements, dtype, how);
	case CALL_GATHERV:
		return collet_gatherv(comm, send, own_send, recv, f->recv.used ? f->recv.counts : NULL,
			f->recv.used ? f->recv.displacements : NULL, dtype, row->root, how);
	case CALL_SCATTERV:
		return collet_scatterv(comm, send, f->send.used ? f->send.counts : NULL,
			f->send.used ? f->send.displacements : NULL, recv, own_recv, dtype, row->root, how);
	case CALL_REDUCE_SCATTERV:
		return collet_reduce_scatterv(comm, send, f->send.counts, f->send.displacements, recv, own_recv, dtype,
			row->op, how);
	default:
		return collet_alltoallv(comm, send, f->send.counts, f->send.displacements, recv, f->recv.counts,
			f->recv.displacements, dtype, how);
	}
}

/* Returns the first byte that differs from the expected one. */
static bool look(struct flight *flight, struct rank *rank)
{
	const struct row *row = flight->row;
	if (row->values == VALUES_WILD && flight->recv.used) {
		/* The ranks must agree on the bits of such a reduction; everything else is known. */
		const size_t at = (size_t)(flight->recv_at - flight->area);
		memcpy(flight->image + at, flight->area + at, flight->recv.elements * collet_dtype_bytes(row->dtype));
	}
	if (memcmp(flight->area, flight->image, flight->area_bytes) == 0)
		return true;
	size_t at = 0;
	while (flight->area[at] == flight->image[at])
		at++;
	const ptrdiff_t from_recv = flight->area + at - flight->recv_at;
	char name[ROW_NAME_BYTES];
	row_name(row, rank->options->transport, rank->size, name);
	return rank_check(rank, false,
		"row %zu, %s, root %u, seed %llu, %s, %s: byte %zd of recv is %02x, should be %02x (%s)",
		flight->number, name, row->root, (unsigned long long)row->seed,
		flight->in_place ? "in place" : "out of place", flight->alloc ? "collet_mem_alloc" : "malloc",
		from_recv, (unsigned char)flight->area[at], (unsigned char)flight->image[at],
		flight->recv.used && from_recv >= 0 &&
				(size_t)from_recv < flight->recv.elements * collet_dtype_bytes(row->dtype)
			? "the result"
			: "not a result: must be left alone");
}

/* Draws segments and channels for a third of the rows, other rows on each transport: no bit may depend on them. */
static void cut_somehow(collet_how *how, const struct row *row, const char *transport)
{
	uint64_t drawn = row->seed;
	for (const char *c = transport; c && *c; c++)
		drawn = rows_mix(drawn, (unsigned char)*c);
	if (drawn % 3)
		return;
	const uint64_t bytes = row->count * collet_dtype_bytes(row->dtype);
	how->segment_bytes = (uint32_t)(bytes / (1 + drawn / 3 % 30)) | 64;
	how->channels = (uint32_t)(drawn / 90 % (COLLET_CHANNELS_MAX + 1));
}

bool flight_start(struct flight *flight, struct rank *rank, const struct row *row, uint64_t variant,
	enum outcome *outcome, uint64_t *digest)
{
	flight->row = row;
	flight->request = NULL;
	char name[ROW_NAME_BYTES];
	row_name(row, rank->options->transport, rank->size, name);
	rank_doing(rank, "row %zu: %s root %u seed %llu variant %llu", flight->number, name, row->root,
		(unsigned long long)row->seed, (unsigned long long)variant & 31);
	if (!make_buffers(flight, rank, variant))
		return false;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = variant & VARIANT_REQUEST ? &flight->request : NULL;
	how.algorithm = row->algorithm;
	how.user_op = row_user_op(row);
	how.scale = row_scale(row, rank->rank);
	cut_somehow(&how, row, rank->options->transport);
	const collet_status status = call(flight, rank->comm, &how);
	if (status == COLLET_OK)
		return flight->request ? true : flight_finish(flight, rank, outcome, digest);
	const bool refused = status == COLLET_ERR_UNSUPPORTED && row->algorithm;
	if (refused)
		*outcome = OUTCOME_REFUSED;
	free_buffers(flight, rank);
	return refused || rank_check(rank, false, "%s: %s: %s", name, collet_status_name(status), collet_last_error());
}

bool flight_finish(struct flight *flight, struct rank *rank, enum outcome *outcome, uint64_t *digest)
{
	const struct row *row = flight->row;
	char name[ROW_NAME_BYTES];
	row_name(row, rank->options->transport, rank->size, name);
	rank_doing(rank, "finishing row %zu: %s", flight->number, name);
	const collet_status status = collet_request_wait(&flight->request);
	bool right = rank_ok(rank, status, name);
	if (right) {
		right = look(flight, rank);
		*outcome = right ? OUTCOME_RIGHT : OUTCOME_WRONG;
		*digest = flight->recv.used ?
			digest_of(flight->recv_at, flight->recv.elements * collet_dtype_bytes(row->dtype)) : 0;
	}
	free_buffers(flight, rank);
	return status == COLLET_OK;
}
