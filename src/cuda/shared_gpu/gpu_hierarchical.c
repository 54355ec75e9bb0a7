#include "cuda/shared_gpu/gpu_hierarchical_internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/step_builder.h"
#include "cuda/staging/gpu_staging.h"
#include "engine/pipeline.h"

enum { CHILDREN_MOST = 8 };

_Static_assert(COLLET_DIRECT_RANKS <= 1 << CHILDREN_MOST, "a node of the tree has no more children");

static bool has_root(const struct hosted *hosted)
{
	return hosted->root < hosted->size;
}

collet_status hosted_copy(
	const struct hosted *hosted, cu_stream stream, const struct collet_fold_span *spans, uint32_t count)
{
	const struct collet_fold copy = { .dtype = COLLET_U8, .op = COLLET_SUM, .average_of = 1 };
	return count ? collet_fold_launch(hosted->kernels, &copy, spans, count, stream) : COLLET_OK;
}

/* From one place to those others that are not it. */
static collet_status copy_to(const struct hosted *hosted, cu_stream stream, const void *source, void *const *others,
	uint32_t count, size_t bytes)
{
	const struct collet_fold_span span = {
		.sources = &source, .results = others, .source_count = 1, .result_count = count, .count = bytes};
	return hosted_copy(hosted, stream, &span, count != 0);
}

/* To the first rank's result, and from there to the others'. */
static collet_status take_for_all(
	void *owner, struct collet_pipe *pipe, const char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	char *own = hosted->ranks[0].recv + offset;
	void *others[COLLET_DIRECT_RANKS];
	for (uint32_t r = 1; r < hosted->size; r++)
		others[r - 1] = hosted->ranks[r].recv + offset;
	const collet_status status =
		collet_pipe_add(&hosted->context->cuda, pipe, own, host, bytes, "copying a result to the GPU");
	return status == COLLET_OK ? copy_to(hosted, pipe->stream, own, others, hosted->size - 1, bytes) : status;
}

/* ---- Inside the host: all-reduce ---- */

/* A node of the host's tree: its own elements, and what its children have come to. */
struct node {
	const void *sources[1 + CHILDREN_MOST];
	double scales[1 + CHILDREN_MOST];
	void *result;
};

/* A leaf's value is what it sends; any other's is in the place of its result, as the program has it on hosts. */
static void add_operand(const struct hosted *hosted, struct node *node, struct collet_fold_span *span, uint32_t rank,
	bool own, size_t offset)
{
	const struct collet_span_plan_rank *at = &hosted->ranks[rank];
	const bool given = own || collet_binomial_children(rank, hosted->size) == 0;
	node->sources[span->source_count] = (given ? at->send : at->recv) + offset;
	node->scales[span->source_count] = given ? at->scale : 1;
	span->source_count++;
}

static void fill_node(const struct hosted *hosted, uint32_t rank, size_t offset, size_t bytes, struct node *node,
	struct collet_fold_span *span)
{
	const struct collet_peers children = collet_binomial_peers(rank, collet_binomial_children(rank, hosted->size));
	*span = (struct collet_fold_span){ .sources = node->sources,
		.results = &node->result,
		.result_count = 1,
		.scales = hosted->scales ? node->scales : NULL,
		.count = bytes / hosted->element_bytes };
	node->result = hosted->ranks[rank].recv + offset;
	add_operand(hosted, node, span, rank, true, offset);
	for (uint32_t c = 0; c < children.count; c++)
		add_operand(hosted, node, span, collet_peers_at(&children, c, hosted->size), false, offset);
}

/* The nodes with so many children: those below them have fewer, and so have come to theirs. */
static collet_status combine_level(
	struct hosted *hosted, cu_stream stream, uint32_t children, size_t offset, size_t bytes)
{
	struct node nodes[COLLET_DIRECT_RANKS / 2];
	struct collet_fold_span spans[COLLET_DIRECT_RANKS / 2];
	uint32_t count = 0;
	for (uint32_t rank = 0; rank < hosted->size; rank++) {
		if (collet_binomial_children(rank, hosted->size) != children)
			continue;
		fill_node(hosted, rank, offset, bytes, &nodes[count], &spans[count]);
		count++;
	}
	return collet_fold_launch(hosted->kernels, &hosted->fold, spans, count, stream);
}

static collet_status bring_tree(void *owner, struct collet_pipe *pipe, char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	const uint32_t most = collet_binomial_children(0, hosted->size);
	collet_status status = COLLET_OK;
	for (uint32_t children = 1; children <= most && status == COLLET_OK; children++)
		status = combine_level(hosted, pipe->stream, children, offset, bytes);
	return status == COLLET_OK ? collet_pipe_add(&hosted->context->cuda, pipe, host, hosted->ranks[0].recv + offset,
					     bytes, "copying a host's sum from the GPU")
				   : status;
}

/* ---- Inside the host: reduce, and reduce-scatter ---- */

/* Nobody, or only the root, has a place for what comes of it, so the kernel writes to the host's memory itself. */
static collet_status bring_sum(void *owner, struct collet_pipe *pipe, char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	const void *sources[COLLET_DIRECT_RANKS];
	double scales[COLLET_DIRECT_RANKS];
	void *result = (void *)(uintptr_t)(hosted->gpu + offset);
	const struct collet_fold_span span = { .sources = sources,
		.results = &result,
		.source_count = hosted->size,
		.result_count = 1,
		.scales = hosted->scales ? scales : NULL,
		.count = bytes / hosted->element_bytes };
	(void)host;
	for (uint32_t r = 0; r < hosted->size; r++) {
		sources[r] = hosted->ranks[r].send + offset;
		scales[r] = hosted->ranks[r].scale;
	}
	return collet_fold_launch(hosted->kernels, &hosted->fold, &span, 1, pipe->stream);
}

static collet_status take_for_root(
	void *owner, struct collet_pipe *pipe, const char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	return collet_pipe_add(&hosted->context->cuda, pipe, hosted->ranks[hosted->root].recv + offset, host, bytes,
		"copying a result to the GPU");
}

/* ---- Inside the host: broadcast ---- */

/* The root's host needs nothing of what comes back. */
static collet_status bring_roots(void *owner, struct collet_pipe *pipe, char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	const char *source = hosted->ranks[hosted->root].send + offset;
	void *others[COLLET_DIRECT_RANKS];
	uint32_t count = 0;
	for (uint32_t r = 0; r < hosted->size; r++)
		if (hosted->ranks[r].recv + offset != source)
			others[count++] = hosted->ranks[r].recv + offset;
	const collet_status status = collet_pipe_add(
		&hosted->context->cuda, pipe, host, source, bytes, "copying the root's buffer from the GPU");
	return status == COLLET_OK ? copy_to(hosted, pipe->stream, source, others, count, bytes) : status;
}

/* ---- Its life ---- */

static void over(void *owner)
{
	struct hosted *hosted = owner;
	if (hosted->call)
		collet_direct_over(hosted->call);
	hosted->call = NULL;
}

static void stop(void *owner)
{
	struct hosted *hosted = owner;
	if (!hosted->request)
		return;
	hosted->request->program = hosted->planned;
	hosted->request->prescales = hosted->prescales;
	hosted->request = NULL;
}

static void free_hosted(void *owner)
{
	free(owner);
}

/* From here on the request works on what the host has, by the part of its program that is between hosts. Its lanes have
 * let nothing of it in yet. */
static void take_request(struct hosted *hosted, struct collet_request *request, char *host)
{
	struct collet_comm_state *group = request->state;
	hosted->request = request;
	hosted->planned = request->program;
	hosted->prescales = request->prescales;
	request->program = collet_program_inter_host((enum collet_collective)request->call.collective);
	request->prescales = false;
	request->input = request->result = host;
	for (uint32_t i = 0; i < request->task_count; i++)
		if (group->tasks[i]->first_request == request)
			collet_cursor_begin(group->tasks[i]);
}

static struct collet_comm *comm_of(const struct collet_request *request)
{
	return (struct collet_comm *)(void *)((char *)request->state - offsetof(struct collet_comm, group));
}

/* NULL: no memory. */
static struct hosted *make(const struct collet_request *request, const struct collet_direct_local *local)
{
	struct hosted *hosted = calloc(1, sizeof(*hosted) + local->size * sizeof(hosted->ranks[0]));
	if (!hosted)
		return NULL;
	*hosted = (struct hosted){ .context = comm_of(request)->context,
		.call = local->call,
		.kernels = local->kernels,
		.fold = { .dtype = (collet_dtype)request->call.dtype,
			.op = (collet_op)request->call.op,
			.average_of = 1 },
		.element_bytes = request->element_bytes,
		.scales = request->prescales,
		.shape = request->shape,
		.size = local->size,
		.root = local->root };
	memcpy(hosted->members, local->members, local->size * sizeof(hosted->members[0]));
	memcpy(hosted->ranks, local->ranks, local->size * sizeof(hosted->ranks[0]));
	return hosted;
}

static struct collet_piped_cargo cargo_of(struct hosted *hosted, enum collet_collective collective)
{
	struct collet_piped_cargo cargo = {hosted, .over = over, .stop = stop, .free = free_hosted};
	switch (collective) {
	case COLLET_REDUCE:
		cargo.brings = true;
		cargo.takes = has_root(hosted);
		cargo.bring = bring_sum;
		cargo.take = take_for_root;
		return cargo;
	case COLLET_BROADCAST:
		cargo.brings = has_root(hosted);
		cargo.takes = !cargo.brings;
		cargo.bring = bring_roots;
		cargo.take = take_for_all;
		return cargo;
	case COLLET_ALLGATHER:
		cargo.brings = cargo.takes = true;
		cargo.bring = hosted_bring_blocks;
		cargo.take = hosted_take_blocks;
		return cargo;
	case COLLET_REDUCE_SCATTER:
		cargo.brings = cargo.takes = true;
		cargo.bring = bring_sum;
		cargo.take = hosted_take_own_blocks;
		return cargo;
	default:
		assert(collective == COLLET_ALLREDUCE);
		cargo.brings = cargo.takes = true;
		cargo.bring = bring_tree;
		cargo.take = take_for_all;
		return cargo;
	}
}

/* Where kernels write to the block. */
static collet_status find_block(
	struct hosted *hosted, const struct collet_copier *copier, const struct collet_staged *staged)
{
	collet_status status = collet_copier_begin(&hosted->context->cuda, copier);
	if (status != COLLET_OK)
		return status;
	status = collet_staged_find_block(staged, &hosted->gpu);
	collet_copier_end(&hosted->context->cuda);
	return status;
}

collet_status collet_hosted_share(struct collet_request *request, const struct collet_direct_local *local)
{
	const enum collet_collective collective = (enum collet_collective)request->call.collective;
	const struct collet_span_plan_rank *own = &local->ranks[0];
	const struct collet_side sides[COLLET_SIDES] = {{own->send, own->send_bytes}, {own->recv, own->recv_bytes}};
	struct collet_staged *staged;
	struct hosted *hosted = make(request, local);
	char *host;
	if (!hosted)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for what a host's ranks have");
	const char *why = hosted_blocks_differ(hosted);
	if (why) {
		free(hosted);
		return collet_fail(COLLET_ERR_ARGUMENT, "%s", why);
	}
	/* The larger of the two has room for all that travels. */
	const size_t bytes = own->send_bytes > own->recv_bytes ? own->send_bytes : own->recv_bytes;
	const struct collet_piped_cargo cargo = cargo_of(hosted, collective);
	collet_status status =
		collet_staged_of(hosted->context, local->copier, sides, bytes, &cargo, &host, &staged);
	if (status != COLLET_OK)
		return status;
	if (cargo.bring == bring_sum)
		status = find_block(hosted, local->copier, staged);
	if (status != COLLET_OK) {
		collet_staged_drop(staged);
		return status;
	}
	take_request(hosted, request, host);
	request->staging = staged;
	collet_pipeline_start(collet_staged_flow(staged), request);
	collet_comm_count_use(comm_of(request), request);
	return COLLET_OK;
}
