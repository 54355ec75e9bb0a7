#include "calls.h"

const struct form_traits form_traits[FORMS] = {
	[FORM_ALLREDUCE] = {"allreduce", true, true, false, false, "direct", "tree"},
	[FORM_REDUCE] = {"reduce", true, true, true, false, "direct", "tree"},
	[FORM_BROADCAST] = {"broadcast", true, false, true, false, "direct", "tree"},
	[FORM_BARRIER] = {"barrier", false, false, false, false, "direct", "dissemination"},
	[FORM_ALLGATHER] = {"allgather", true, false, false, false, "direct", "ring"},
	[FORM_ALLGATHERV] = {"allgatherv", true, false, false, true, "direct", "ring"},
	[FORM_REDUCE_SCATTER] = {"reduce_scatter", true, true, false, false, "direct", "ring"},
	[FORM_GATHER] = {"gather", true, false, true, false, "direct", "tree"},
	[FORM_GATHERV] = {"gatherv", true, false, true, true, NULL, NULL},
	[FORM_SCATTER] = {"scatter", true, false, true, false, "direct", "tree"},
	[FORM_SCATTERV] = {"scatterv", true, false, true, true, NULL, NULL},
	[FORM_ALLTOALL] = {"alltoall", true, false, false, false, "direct", "pairwise"},
	[FORM_ALLTOALLV] = {"alltoallv", true, false, false, true, NULL, NULL},
};

static void combine(void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	const unsigned char *a = left, *b = right;
	unsigned char *c = result;
	for (size_t i = 0; i < count * collet_dtype_bytes(dtype); i++)
		c[i] = a[i] ^ b[i];
}

static void list(const struct call *call, uint32_t size, struct call_buffers *buffers)
{
	uint64_t next = 0;
	for (uint32_t r = 0; r < size; r++) {
		buffers->counts[r] = call->count + (r == call->longer ? call->more : 0);
		buffers->displacements[r] = next;
		next += buffers->counts[r];
	}
}

collet_status call_make(
	collet_comm *comm, const struct call *call, struct call_buffers *buffers, collet_request **request)
{
	buffers->user = (collet_user_op){combine, NULL, call->user_name, true, {0}};
	const collet_how how = { .request = request, .algorithm = call->algorithm, .user_op = &buffers->user,
		.segment_bytes = call->segment_bytes, .channels = call->channels };
	const uint32_t size = collet_comm_size(comm), rank = collet_comm_rank(comm);
	void *send = buffers->send, *recv = buffers->recv;
	const uint64_t *counts = buffers->counts, *displacements = buffers->displacements;
	list(call, size, buffers);
	switch (call->form) {
	case FORM_ALLREDUCE: return collet_allreduce(comm, send, recv, call->count, call->dtype, call->op, &how);
	case FORM_REDUCE: return collet_reduce(comm, send, recv, call->count, call->dtype, call->op, call->root, &how);
	case FORM_BROADCAST: return collet_broadcast(comm, send, recv, call->count, call->dtype, call->root, &how);
	case FORM_BARRIER: return collet_barrier(comm, &how);
	case FORM_ALLGATHER: return collet_allgather(comm, send, recv, call->count, call->dtype, &how);
	case FORM_ALLGATHERV:
		return collet_allgatherv(comm, send, counts[rank], recv, counts, displacements, call->dtype, &how);
	case FORM_REDUCE_SCATTER:
		return collet_reduce_scatter(comm, send, recv, call->count, call->dtype, call->op, &how);
	case FORM_GATHER: return collet_gather(comm, send, recv, call->count, call->dtype, call->root, &how);
	case FORM_GATHERV:
		return collet_gatherv(
			comm, send, counts[rank], recv, counts, displacements, call->dtype, call->root, &how);
	case FORM_SCATTER: return collet_scatter(comm, send, recv, call->count, call->dtype, call->root, &how);
	case FORM_SCATTERV:
		return collet_scatterv(
			comm, send, counts, displacements, recv, counts[rank], call->dtype, call->root, &how);
	case FORM_ALLTOALL: return collet_alltoall(comm, send, recv, call->count, call->dtype, &how);
	case FORM_ALLTOALLV:
		return collet_alltoallv(
			comm, send, counts, displacements, recv, counts, displacements, call->dtype, &how);
	default: return COLLET_ERR_ARGUMENT;
	}
}
