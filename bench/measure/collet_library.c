/* Implements the loop's calls by collet. */
#include "collet_library.h"

#include <stdio.h>
#include <string.h>

#include "values.h"

static int run_allreduce(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_allreduce(collet->comm, c->send, c->recv, c->count, c->dtype, c->op, c->how) != COLLET_OK;
}

static int run_reduce(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_reduce(collet->comm, c->send, c->recv, c->count, c->dtype, c->op, c->root, c->how) != COLLET_OK;
}

static int run_broadcast(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_broadcast(collet->comm, c->send, c->recv, c->count, c->dtype, c->root, c->how) != COLLET_OK;
}

static int run_barrier(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_barrier(collet->comm, c->how) != COLLET_OK;
}

static int run_allgather(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_allgather(collet->comm, c->send, c->recv, c->count, c->dtype, c->how) != COLLET_OK;
}

static int run_reduce_scatter(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_reduce_scatter(collet->comm, c->send, c->recv, c->count, c->dtype, c->op, c->how) != COLLET_OK;
}

static int run_gather(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_gather(collet->comm, c->send, c->recv, c->count, c->dtype, c->root, c->how) != COLLET_OK;
}

static int run_scatter(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_scatter(collet->comm, c->send, c->recv, c->count, c->dtype, c->root, c->how) != COLLET_OK;
}

static int run_alltoall(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	return collet_alltoall(collet->comm, c->send, c->recv, c->count, c->dtype, c->how) != COLLET_OK;
}

static int run_sendrecv(void *context, const struct bench_call *c)
{
	struct collet_library *collet = context;
	const uint32_t rank = collet->library.rank, size = collet->library.size;
	return collet_sendrecv(collet->comm, c->send, c->count, (rank + 1) % size, 0, c->recv, c->count,
		       (rank + size - 1) % size, 0, c->dtype, NULL, c->how)
		!= COLLET_OK;
}

static const char *error_text(void *context)
{
	return collet_last_error();
}

static int allocate(void *context, void **memory, size_t bytes)
{
	return collet_mem_alloc(((struct collet_library *)context)->comm, memory, bytes) != COLLET_OK;
}

static void release(void *context, void *memory)
{
	collet_mem_free(((struct collet_library *)context)->comm, memory);
}

collet_status collet_library_init(struct collet_library *collet, const char *transport)
{
	const collet_options options = { .transport = transport };
	return collet_library_init_with(collet, &options);
}

collet_status collet_library_init_with(struct collet_library *collet, const collet_options *options)
{
	memset(collet, 0, sizeof(*collet));
	const collet_status status = collet_comm_create(&collet->comm, options);
	if (status != COLLET_OK)
		return status;
	collet->allocator = (struct bench_allocator){ .allocate = allocate, .release = release, .context = collet };
	collet->library = (struct bench_library){
		.context = collet,
		.rank = collet_comm_rank(collet->comm),
		.size = collet_comm_size(collet->comm),
		.run = {
			[BENCH_ALLREDUCE] = run_allreduce, [BENCH_REDUCE] = run_reduce,
			[BENCH_BROADCAST] = run_broadcast, [BENCH_BARRIER] = run_barrier,
			[BENCH_ALLGATHER] = run_allgather, [BENCH_REDUCE_SCATTER] = run_reduce_scatter,
			[BENCH_GATHER] = run_gather, [BENCH_SCATTER] = run_scatter,
			[BENCH_ALLTOALL] = run_alltoall, [BENCH_SENDRECV] = run_sendrecv,
		},
		.one_host = collet_comm_local_size(collet->comm) == collet_comm_size(collet->comm),
		.error = error_text,
		.allocator = &collet->allocator,
	};
	return COLLET_OK;
}

void collet_library_deinit(struct collet_library *collet)
{
	if (collet->comm != NULL)
		collet_comm_destroy(&collet->comm);
}

const void *collet_library_plan(
	struct collet_library *collet, const struct bench_work *work, uint64_t count, const char *algorithm)
{
	const bool named = algorithm != NULL && *algorithm != '\0';
	const char *collective = bench_collective_name((enum bench_collective)work->collective);
	memset(&collet->how, 0, sizeof(collet->how));
	memset(&collet->plan, 0, sizeof(collet->plan));
	if (named) {
		snprintf(collet->algorithm, sizeof(collet->algorithm), "%s", algorithm);
		collet->how.algorithm = collet->algorithm;
	}
	if (work->op == COLLET_PREMUL_SUM)
		collet->how.scale = bench_scale(collet->library.rank);
	collet->how.segment_bytes = collet->segment_bytes;
	collet->how.channels = collet->channels;
	collet->how.stream = collet->stream;
	const collet_status status = collet_comm_plan(collet->comm, collective, count, (collet_dtype)work->dtype,
		(collet_op)work->op, work->root, collet->how.algorithm, &collet->plan);
	collet->refused = named && status != COLLET_OK;
	if (status != COLLET_OK)
		collet->plan = (collet_plan){ .algorithm = collet->how.algorithm, .predicted_ns = -1 };
	if (collet->segment_bytes > 0)
		collet->plan.segment_bytes = collet->segment_bytes;
	if (collet->channels > 0)
		collet->plan.channels = collet->channels;
	const bool cut = collet->segment_bytes > 0 || collet->channels > 0;
	return named || cut || collet->stream != NULL || work->op == COLLET_PREMUL_SUM ? &collet->how : NULL;
}
