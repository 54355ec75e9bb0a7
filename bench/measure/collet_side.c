/* How the loop's calls are spelt in collet. */
#include "collet_side.h"

#include <stdio.h>
#include <string.h>

#include "values.h"

static int run_allreduce(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_allreduce(side->comm, c->send, c->recv, c->count, c->dtype, c->op, c->how) != COLLET_OK;
}

static int run_reduce(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_reduce(side->comm, c->send, c->recv, c->count, c->dtype, c->op, c->root, c->how) != COLLET_OK;
}

static int run_broadcast(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_broadcast(side->comm, c->send, c->recv, c->count, c->dtype, c->root, c->how) != COLLET_OK;
}

static int run_barrier(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_barrier(side->comm, c->how) != COLLET_OK;
}

static int run_allgather(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_allgather(side->comm, c->send, c->recv, c->count, c->dtype, c->how) != COLLET_OK;
}

static int run_reduce_scatter(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_reduce_scatter(side->comm, c->send, c->recv, c->count, c->dtype, c->op, c->how) != COLLET_OK;
}

static int run_gather(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_gather(side->comm, c->send, c->recv, c->count, c->dtype, c->root, c->how) != COLLET_OK;
}

static int run_scatter(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_scatter(side->comm, c->send, c->recv, c->count, c->dtype, c->root, c->how) != COLLET_OK;
}

static int run_alltoall(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	return collet_alltoall(side->comm, c->send, c->recv, c->count, c->dtype, c->how) != COLLET_OK;
}

static int run_sendrecv(void *context, const struct bench_call *c)
{
	struct collet_side *side = context;
	const uint32_t rank = side->library.rank, size = side->library.size;
	return collet_sendrecv(side->comm, c->send, c->count, (rank + 1) % size, 0, c->recv, c->count,
		       (rank + size - 1) % size, 0, c->dtype, NULL, c->how)
		!= COLLET_OK;
}

static const char *error_text(void *context)
{
	return collet_last_error();
}

static int allocate(void *context, void **memory, size_t bytes)
{
	return collet_mem_alloc(((struct collet_side *)context)->comm, memory, bytes) != COLLET_OK;
}

static void release(void *context, void *memory)
{
	collet_mem_free(((struct collet_side *)context)->comm, memory);
}

collet_status collet_side_init(struct collet_side *side, const char *transport)
{
	const collet_options options = { .transport = transport };
	return collet_side_meet(side, &options);
}

collet_status collet_side_meet(struct collet_side *side, const collet_options *options)
{
	memset(side, 0, sizeof(*side));
	const collet_status status = collet_comm_create(&side->comm, options);
	if (status != COLLET_OK)
		return status;
	side->allocator = (struct bench_allocator){ .allocate = allocate, .release = release, .context = side };
	side->library = (struct bench_library){
		.context = side,
		.rank = collet_comm_rank(side->comm),
		.size = collet_comm_size(side->comm),
		.run = {
			[BENCH_ALLREDUCE] = run_allreduce, [BENCH_REDUCE] = run_reduce,
			[BENCH_BROADCAST] = run_broadcast, [BENCH_BARRIER] = run_barrier,
			[BENCH_ALLGATHER] = run_allgather, [BENCH_REDUCE_SCATTER] = run_reduce_scatter,
			[BENCH_GATHER] = run_gather, [BENCH_SCATTER] = run_scatter,
			[BENCH_ALLTOALL] = run_alltoall, [BENCH_SENDRECV] = run_sendrecv,
		},
		.error = error_text,
		.allocator = &side->allocator,
	};
	return COLLET_OK;
}

void collet_side_deinit(struct collet_side *side)
{
	if (side->comm != NULL)
		collet_comm_destroy(&side->comm);
}

const void *collet_side_plan(
	struct collet_side *side, const struct bench_work *work, uint64_t count, const char *algorithm)
{
	const bool named = algorithm != NULL && *algorithm != '\0';
	const char *collective = bench_collective_name((enum bench_collective)work->collective);
	memset(&side->how, 0, sizeof(side->how));
	memset(&side->plan, 0, sizeof(side->plan));
	if (named) {
		snprintf(side->algorithm, sizeof(side->algorithm), "%s", algorithm);
		side->how.algorithm = side->algorithm;
	}
	if (work->op == COLLET_PREMUL_SUM)
		side->how.scale = bench_scale(side->library.rank);
	side->how.piece_bytes = side->piece_bytes;
	side->how.channels = side->channels;
	side->how.stream = side->stream;
	if (collet_comm_plan(side->comm, collective, count, (collet_dtype)work->dtype, (collet_op)work->op, work->root,
			side->how.algorithm, &side->plan) != COLLET_OK)
		side->plan = (collet_plan){ .algorithm = side->how.algorithm, .predicted_ns = -1 };
	if (side->piece_bytes > 0)
		side->plan.piece_bytes = side->piece_bytes;
	if (side->channels > 0)
		side->plan.channels = side->channels;
	const bool cut = side->piece_bytes > 0 || side->channels > 0;
	return named || cut || side->stream != NULL || work->op == COLLET_PREMUL_SUM ? &side->how : NULL;
}
