/* Implements the public collectives: checks their arguments, then passes the call on. */
#include <string.h>

#include "api/call.h"
#include "core/status.h"

/* ---- Checks ---- */

struct byte_range {
	const char *first;
	uint64_t bytes;
};

static bool overlaps(struct byte_range a, struct byte_range b)
{
	return a.bytes && b.bytes && a.first < b.first + b.bytes && b.first < a.first + a.bytes;
}

/* Checks a buffer's pointer and length, and stores its range. An unused buffer is an empty range. */
static collet_status check_buffer(const struct collet_call_arguments *call, const char *which, const void *first,
	uint64_t elements, struct byte_range *range)
{
	const size_t element = collet_dtype_bytes(call->dtype);
	if (elements > (uint64_t)PTRDIFF_MAX / element)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: %llu elements of %s do not fit into memory",
			call->function, (unsigned long long)elements, collet_dtype_name(call->dtype));
	if (!first && elements)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: %s is NULL, and this rank uses it", call->function, which);
	range->first = first;
	range->bytes = elements * element;
	return COLLET_OK;
}

/* Refuses buffers that overlap, unless `actual` starts at in_place, inside the other buffer. */
static collet_status check_overlap(const struct collet_call_arguments *call, struct byte_range send,
	struct byte_range recv, const char *in_place, const char *actual)
{
	if (!overlaps(send, recv) || in_place == actual)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_ARGUMENT,
		"%s: send and recv overlap, but not in the way that in place means (see collet.h)", call->function);
}

static collet_status check_dtype(const char *function, collet_dtype dtype)
{
	if (collet_dtype_bytes(dtype))
		return COLLET_OK;
	return collet_fail(COLLET_ERR_ARGUMENT, "%s: %d is no dtype", function, (int)dtype);
}

static collet_status check_root(const collet_comm *comm, const char *function, uint32_t root)
{
	if (root < comm->state.size)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_ARGUMENT, "%s: there is no rank %u to be root in a communicator of %u", function,
		root, comm->state.size);
}

/* Returns elements * factor, or UINT64_MAX, more than any buffer can have. */
static uint64_t saturating_product(uint64_t elements, uint64_t factor)
{
	uint64_t product;
	return __builtin_mul_overflow(elements, factor, &product) ? UINT64_MAX : product;
}

static const char *element_at(const void *base, uint64_t elements, collet_dtype dtype)
{
	return base ? (const char *)base + elements * collet_dtype_bytes(dtype) : NULL;
}

static collet_status dispatch(collet_comm *comm, struct collet_call_arguments *call, struct byte_range send,
	struct byte_range recv, const struct collet_partition *vector, const collet_how *how)
{
	if (!comm->gpu)
		return how && how->stream ? collet_refuse_stream(comm, call->function)
					  : collet_call_run(comm, call, how);
	struct collet_checked_call checked = { .arguments = call,
		.buffers = { { send.first, send.bytes }, { recv.first, recv.bytes } }, .vector = vector, .how = how };
	return collet_offload->collective(comm, &checked);
}

/* Says which buffers are in place: equal ones, or one that is a block of the other. */
enum in_place { SAME, SEND_IN_RECV, RECV_IN_SEND };

/* Inlined into the public functions, so that a repeated call is recognised while its arguments are in registers. In
 * memory they are stored one by one and loaded in pairs, which defeats store forwarding: such a load waits for all
 * earlier stores. These include the last message's, whose cache lines may still be on their way from another core. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* True if the call differs from the cached one in its buffers alone, and these are valid. */
ALWAYS_INLINE bool is_repeat(
	const struct collet_cached_call *cached, const struct collet_call_arguments *call, enum in_place in_place)
{
	if (!cached->request || cached->count != call->count || cached->collective != call->collective ||
		cached->dtype != call->dtype || cached->op != call->op || cached->root != call->root)
		return false;
	const struct byte_range send = { call->send, cached->send_bytes }, recv = { call->recv, cached->recv_bytes };
	if ((send.bytes && !send.first) || (recv.bytes && !recv.first))
		return false;
	return !overlaps(send, recv) || (in_place == SAME && send.first == recv.first);
}

/* Caches the arguments of a checked call that has succeeded. */
static void cache_arguments(struct collet_cached_call *cached, const struct collet_call_arguments *call,
	struct byte_range send, struct byte_range recv)
{
	cached->collective = call->collective;
	cached->dtype = call->dtype;
	cached->op = call->op;
	cached->root = call->root;
	cached->count = call->count;
	cached->send_bytes = send.bytes;
	cached->recv_bytes = recv.bytes;
}

/* This rank's part of a buffer, in elements. */
struct extent {
	bool is_used;
	uint64_t elements;
};

static struct extent all_of(uint64_t elements)
{
	return (struct extent){ true, elements };
}

static struct extent some_of(uint64_t elements, bool used)
{
	return (struct extent){ used, elements };
}

static const struct extent unused;

/* Checks and runs a call inside the communicator. */
static collet_status run_inside(collet_comm *comm, struct collet_call_arguments *call, struct extent sends,
	struct extent receives, enum in_place in_place, const collet_how *how)
{
	struct byte_range send = { NULL, 0 }, recv = { NULL, 0 };
	collet_status status = check_dtype(call->function, call->dtype);
	if (status == COLLET_OK)
		status = check_root(comm, call->function, call->root);
	if (status == COLLET_OK && sends.is_used)
		status = check_buffer(call, "send", call->send, sends.elements, &send);
	if (status == COLLET_OK && receives.is_used)
		status = check_buffer(call, "recv", call->recv, receives.elements, &recv);
	if (status == COLLET_OK && overlaps(send, recv)) {
		const uint64_t own = saturating_product(call->count, comm->state.rank);
		const char *expected = in_place == RECV_IN_SEND ? element_at(call->send, own, call->dtype) :
			in_place == SEND_IN_RECV                ? element_at(call->recv, own, call->dtype) :
                                                                  call->recv;
		status = check_overlap(call, send, recv, expected, in_place == RECV_IN_SEND ? call->recv : call->send);
	}
	if (status == COLLET_OK)
		status = dispatch(comm, call, send, recv, NULL, how);
	/* Never if a buffer may be a GPU's: a repeated call does not ask where its buffers are. */
	struct collet_cached_call *cached = collet_cached_call(comm, call->collective, call->count, call->root);
	if (status != COLLET_OK || comm->gpu)
		cached->request = NULL;
	else if (cached->request)
		cache_arguments(cached, call, send, recv);
	return status;
}

/* Repeats the cached call with other buffers if that is possible. Returns false if not; nothing has happened then. */
ALWAYS_INLINE bool run_repeat(collet_comm *comm, const struct collet_cached_call *cached,
	const struct collet_call_arguments *call, const collet_how *how, collet_status *status)
{
	return how ? collet_call_start_cached(comm, cached, call->send, call->recv, how)
		   : collet_call_run_cached(comm, cached, call->send, call->recv, status);
}

/* Runs a collective that is no v-form. */
ALWAYS_INLINE collet_status run(collet_comm *comm, struct collet_call_arguments *call,
	struct extent sends, struct extent receives, enum in_place in_place, const collet_how *how)
{
	collet_status status = collet_comm_enter(comm, call->function);
	if (status != COLLET_OK)
		return status;
	const struct collet_cached_call *cached = collet_cached_call(comm, call->collective, call->count, call->root);
	if (!is_repeat(cached, call, in_place) || !run_repeat(comm, cached, call, how, &status))
		status = run_inside(comm, call, sends, receives, in_place, how);
	collet_comm_leave(comm);
	return status;
}

static uint32_t comm_size(const collet_comm *comm)
{
	return comm ? comm->state.size : 0;
}

static bool is_root(const collet_comm *comm, uint32_t root)
{
	return comm && comm->state.rank == root;
}

/* ---- Public ---- */

collet_status collet_allreduce(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	collet_op op, const collet_how *how)
{
	struct collet_call_arguments call = { "collet_allreduce", COLLET_ALLREDUCE, send, recv, count, dtype, op, 0,
		NULL, NULL };
	return run(comm, &call, all_of(count), all_of(count), SAME, how);
}

collet_status collet_reduce(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	collet_op op, uint32_t root, const collet_how *how)
{
	struct collet_call_arguments call = { "collet_reduce", COLLET_REDUCE, send, recv, count, dtype, op, root, NULL,
		NULL };
	return run(comm, &call, all_of(count), some_of(count, is_root(comm, root)), SAME, how);
}

collet_status collet_broadcast(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	uint32_t root, const collet_how *how)
{
	struct collet_call_arguments call = { "collet_broadcast", COLLET_BROADCAST, send, recv, count, dtype,
		COLLET_OP_COUNT, root, NULL, NULL };
	return run(comm, &call, some_of(count, is_root(comm, root)), all_of(count), SAME, how);
}

collet_status collet_barrier(collet_comm *comm, const collet_how *how)
{
	struct collet_call_arguments call = { "collet_barrier", COLLET_BARRIER, NULL, NULL, 0, COLLET_U8,
		COLLET_OP_COUNT, 0, NULL, NULL };
	return run(comm, &call, unused, unused, SAME, how);
}

collet_status collet_allgather(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	const collet_how *how)
{
	struct collet_call_arguments call = { "collet_allgather", COLLET_ALLGATHER, send, recv, count, dtype,
		COLLET_OP_COUNT, 0, NULL, NULL };
	return run(comm, &call, all_of(count), all_of(saturating_product(count, comm_size(comm))), SEND_IN_RECV, how);
}

collet_status collet_reduce_scatter(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	collet_op op, const collet_how *how)
{
	struct collet_call_arguments call = { "collet_reduce_scatter", COLLET_REDUCE_SCATTER, send, recv, count, dtype,
		op, 0, NULL, NULL };
	return run(comm, &call, all_of(saturating_product(count, comm_size(comm))), all_of(count), RECV_IN_SEND, how);
}

collet_status collet_gather(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	uint32_t root, const collet_how *how)
{
	struct collet_call_arguments call = { "collet_gather", COLLET_GATHER, send, recv, count, dtype, COLLET_OP_COUNT,
		root, NULL, NULL };
	const struct extent receives = some_of(saturating_product(count, comm_size(comm)), is_root(comm, root));
	return run(comm, &call, all_of(count), receives, SEND_IN_RECV, how);
}

collet_status collet_scatter(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	uint32_t root, const collet_how *how)
{
	struct collet_call_arguments call = { "collet_scatter", COLLET_SCATTER, send, recv, count, dtype,
		COLLET_OP_COUNT, root, NULL, NULL };
	const struct extent sends = some_of(saturating_product(count, comm_size(comm)), is_root(comm, root));
	return run(comm, &call, sends, all_of(count), RECV_IN_SEND, how);
}

collet_status collet_alltoall(collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype,
	const collet_how *how)
{
	struct collet_call_arguments call = { "collet_alltoall", COLLET_ALLTOALL, send, recv, count, dtype,
		COLLET_OP_COUNT, 0, NULL, NULL };
	const uint64_t all = saturating_product(count, comm_size(comm));
	return run(comm, &call, all_of(all), all_of(all), SAME, how);
}

/* ---- v-forms ---- */

/* Finds where the last block of a buffer with counts ends, in elements. Refuses overflow. */
static collet_status vector_end(const struct collet_call_arguments *call, uint32_t size, const uint64_t *counts,
	const uint64_t *displacements, uint64_t *end)
{
	if (!counts || !displacements)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: counts or displacements is NULL, and this rank uses them",
			call->function);
	*end = 0;
	for (uint32_t r = 0; r < size; r++) {
		uint64_t last;
		if (__builtin_add_overflow(counts[r], displacements[r], &last))
			return collet_fail(COLLET_ERR_ARGUMENT, "%s: counts[%u] + displacements[%u] overflows",
				call->function, r, r);
		if (counts[r] && last > *end)
			*end = last;
	}
	return COLLET_OK;
}

static struct collet_partition vector_partition(const uint64_t *counts, const uint64_t *displacements)
{
	return (struct collet_partition){
		.kind = COLLET_PARTITION_VECTOR, .counts = counts, .displacements = displacements
	};
}

/* The partition of a v-form's buffer that is this rank's own block alone. */
static struct collet_partition own_block(uint64_t count)
{
	return (struct collet_partition){ .kind = COLLET_PARTITION_VECTOR, .count = count };
}

/* One buffer of a v-form: blocks with counts and displacements, or this rank's own block. */
struct v_buffer {
	bool is_used;
	bool is_vector;
	uint64_t own_count;
	const uint64_t *counts, *displacements;
	struct collet_partition partition;
	struct byte_range range;
};

static collet_status check_v_buffer(const collet_comm *comm, const struct collet_call_arguments *call,
	const char *which, const void *buffer, struct v_buffer *side)
{
	side->partition =
		side->is_vector ? vector_partition(side->counts, side->displacements) : own_block(side->own_count);
	if (!side->is_used) {
		side->partition = own_block(0);
		return COLLET_OK;
	}
	uint64_t elements = side->own_count;
	if (side->is_vector) {
		const collet_status status =
			vector_end(call, comm->state.size, side->counts, side->displacements, &elements);
		if (status != COLLET_OK)
			return status;
	}
	return check_buffer(call, which, buffer, elements, &side->range);
}

static collet_status run_vector(collet_comm *comm, struct collet_call_arguments *call, struct v_buffer *send,
	struct v_buffer *recv, const collet_how *how)
{
	collet_status status = collet_comm_enter(comm, call->function);
	if (status != COLLET_OK)
		return status;
	status = check_dtype(call->function, call->dtype);
	if (status == COLLET_OK)
		status = check_root(comm, call->function, call->root);
	if (status == COLLET_OK)
		status = check_v_buffer(comm, call, "send", call->send, send);
	if (status == COLLET_OK)
		status = check_v_buffer(comm, call, "recv", call->recv, recv);
	if (status == COLLET_OK && send->is_used && recv->is_used) {
		const uint32_t rank = comm->state.rank;
		const char *expected = call->recv, *actual = call->send;
		if (recv->is_vector && !send->is_vector) {
			expected = element_at(call->recv, recv->displacements[rank], call->dtype);
		} else if (send->is_vector && !recv->is_vector) {
			expected = element_at(call->send, send->displacements[rank], call->dtype);
			actual = call->recv;
		} else if (call->send == call->recv &&
			   (memcmp(send->counts, recv->counts, comm->state.size * sizeof(uint64_t)) != 0 ||
				   memcmp(send->displacements, recv->displacements,
					   comm->state.size * sizeof(uint64_t)) != 0)) {
			expected = NULL;
		}
		status = check_overlap(call, send->range, recv->range, expected, actual);
	}
	call->input_partition = &send->partition;
	call->result_partition = &recv->partition;
	if (status == COLLET_OK)
		status = dispatch(comm, call, send->range, recv->range,
			recv->is_used && recv->is_vector ? &recv->partition : NULL, how);
	collet_comm_leave(comm);
	return status;
}

/* Refuses an own count that counts contradicts. */
static collet_status check_own_count(const collet_comm *comm, const char *function, const char *which, uint64_t own,
	const uint64_t *counts)
{
	if (!comm || !counts || counts[comm->state.rank] == own)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_ARGUMENT, "%s: %s is %llu, but counts[%u] is %llu", function, which,
		(unsigned long long)own, comm->state.rank, (unsigned long long)counts[comm->state.rank]);
}

collet_status collet_allgatherv(collet_comm *comm, const void *send, uint64_t send_count, void *recv,
	const uint64_t *counts, const uint64_t *displacements, collet_dtype dtype, const collet_how *how)
{
	const collet_status status = check_own_count(comm, "collet_allgatherv", "send_count", send_count, counts);
	if (status != COLLET_OK)
		return status;
	struct collet_call_arguments call = { "collet_allgatherv", COLLET_ALLGATHER, send, recv, send_count, dtype,
		COLLET_OP_COUNT, 0, NULL, NULL };
	struct v_buffer from = { .is_used = true, .own_count = send_count };
	struct v_buffer to = { .is_used = true, .is_vector = true, .counts = counts, .displacements = displacements };
	return run_vector(comm, &call, &from, &to, how);
}

collet_status collet_gatherv(collet_comm *comm, const void *send, uint64_t send_count, void *recv,
	const uint64_t *counts, const uint64_t *displacements, collet_dtype dtype, uint32_t root, const collet_how *how)
{
	const bool root_here = is_root(comm, root);
	const collet_status status =
		root_here ? check_own_count(comm, "collet_gatherv", "send_count", send_count, counts) : COLLET_OK;
	if (status != COLLET_OK)
		return status;
	struct collet_call_arguments call = { "collet_gatherv", COLLET_GATHER, send, recv, send_count, dtype,
		COLLET_OP_COUNT, root, NULL, NULL };
	struct v_buffer from = { .is_used = true, .own_count = send_count };
	struct v_buffer to = {
		.is_used = root_here, .is_vector = true, .counts = counts, .displacements = displacements
	};
	return run_vector(comm, &call, &from, &to, how);
}

collet_status collet_scatterv(collet_comm *comm, const void *send, const uint64_t *counts,
	const uint64_t *displacements, void *recv, uint64_t recv_count, collet_dtype dtype, uint32_t root,
	const collet_how *how)
{
	const bool root_here = is_root(comm, root);
	const collet_status status =
		root_here ? check_own_count(comm, "collet_scatterv", "recv_count", recv_count, counts) : COLLET_OK;
	if (status != COLLET_OK)
		return status;
	struct collet_call_arguments call = { "collet_scatterv", COLLET_SCATTER, send, recv, recv_count, dtype,
		COLLET_OP_COUNT, root, NULL, NULL };
	struct v_buffer from = {
		.is_used = root_here, .is_vector = true, .counts = counts, .displacements = displacements
	};
	struct v_buffer to = { .is_used = true, .own_count = recv_count };
	return run_vector(comm, &call, &from, &to, how);
}

collet_status collet_reduce_scatterv(collet_comm *comm, const void *send, const uint64_t *counts,
	const uint64_t *displacements, void *recv, uint64_t recv_count, collet_dtype dtype, collet_op op,
	const collet_how *how)
{
	const collet_status status = check_own_count(comm, "collet_reduce_scatterv", "recv_count", recv_count, counts);
	if (status != COLLET_OK)
		return status;
	struct collet_call_arguments call = { "collet_reduce_scatterv", COLLET_REDUCE_SCATTER, send, recv, recv_count,
		dtype, op, 0, NULL, NULL };
	struct v_buffer from = { .is_used = true, .is_vector = true, .counts = counts, .displacements = displacements };
	struct v_buffer to = { .is_used = true, .own_count = recv_count };
	return run_vector(comm, &call, &from, &to, how);
}

collet_status collet_alltoallv(collet_comm *comm, const void *send, const uint64_t *send_counts,
	const uint64_t *send_displacements, void *recv, const uint64_t *recv_counts, const uint64_t *recv_displacements,
	collet_dtype dtype, const collet_how *how)
{
	struct collet_call_arguments call = { "collet_alltoallv", COLLET_ALLTOALL, send, recv, 0, dtype,
		COLLET_OP_COUNT, 0, NULL, NULL };
	struct v_buffer from = {
		.is_used = true, .is_vector = true, .counts = send_counts, .displacements = send_displacements
	};
	struct v_buffer to = {
		.is_used = true, .is_vector = true, .counts = recv_counts, .displacements = recv_displacements
	};
	return run_vector(comm, &call, &from, &to, how);
}
