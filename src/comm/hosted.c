#include "comm/hosted.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/moves.h"
#include "comm/piped.h"
#include "comm/staged.h"
#include "engine/flow.h"

enum { CHILDREN_MOST = 8 };

_Static_assert(COLLET_DIRECT_RANKS <= 1 << CHILDREN_MOST, "a node of the tree has no more children");

struct hosted {
	struct collet_context *context;
	struct collet_request *request; /* while its program is the part between hosts; else NULL */
	const struct collet_program *planned;
	bool prescales; /* as it was planned */
	void *call;     /* the leader's; NULL: it has been told that it is over */
	const struct collet_kernel_set *kernels;
	struct collet_fold fold;
	size_t element_bytes;
	bool scales;
	uint32_t size;
	struct collet_span_plan_rank ranks[];
};

/* ---- Inside the host ---- */

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
	*span = (struct collet_fold_span){.sources = node->sources,
		.results = &node->result,
		.result_count = 1,
		.scales = hosted->scales ? node->scales : NULL,
		.count = bytes / hosted->element_bytes};
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

static collet_status bring(void *owner, struct collet_pipe *pipe, char *host, size_t offset, size_t bytes)
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

static collet_status take(void *owner, struct collet_pipe *pipe, const char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	char *own = hosted->ranks[0].recv + offset;
	void *others[COLLET_DIRECT_RANKS];
	const void *source = own;
	const struct collet_fold copy = {.dtype = COLLET_U8, .op = COLLET_SUM, .average_of = 1};
	const struct collet_fold_span span = {.sources = &source,
		.results = others,
		.source_count = 1,
		.result_count = hosted->size - 1,
		.count = bytes};
	for (uint32_t r = 1; r < hosted->size; r++)
		others[r - 1] = hosted->ranks[r].recv + offset;
	const collet_status status =
		collet_pipe_add(&hosted->context->cuda, pipe, own, host, bytes, "copying a result to the GPU");
	return status == COLLET_OK ? collet_fold_launch(hosted->kernels, &copy, &span, 1, pipe->stream) : status;
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

/* From here on the request works on the host's sum, by the part of its program that is between hosts. Its lanes have
 * let nothing of it in yet. */
static void take_request(struct hosted *hosted, struct collet_request *request, char *host)
{
	struct collet_group *group = request->group;
	hosted->request = request;
	hosted->planned = request->program;
	hosted->prescales = request->prescales;
	request->program = &collet_allreduce_hierarchical_between;
	request->prescales = false;
	request->input = request->result = host;
	for (uint32_t i = 0; i < request->lanes; i++)
		if (group->lanes[i]->first == request)
			collet_cursor_begin(group->lanes[i]);
}

collet_status collet_hosted_share(struct collet_request *request, const struct collet_direct_local *local)
{
	struct collet_comm *comm =
		(struct collet_comm *)(void *)((char *)request->group - offsetof(struct collet_comm, group));
	const size_t bytes = request->shape.count * request->element_bytes;
	const struct collet_side sides[COLLET_SIDES] = {{local->ranks[0].send, bytes}, {local->ranks[0].recv, bytes}};
	struct collet_staged *staged;
	char *host;
	struct hosted *hosted = calloc(1, sizeof(*hosted) + local->size * sizeof(hosted->ranks[0]));
	if (!hosted)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for what a host's ranks have");
	*hosted = (struct hosted){.context = comm->context,
		.call = local->call,
		.kernels = local->kernels,
		.fold = {.dtype = (collet_dtype)request->call.dtype,
			.op = (collet_op)request->call.op,
			.average_of = 1},
		.element_bytes = request->element_bytes,
		.scales = request->prescales,
		.size = local->size};
	memcpy(hosted->ranks, local->ranks, local->size * sizeof(hosted->ranks[0]));
	const struct collet_piped_cargo cargo = {hosted, bring, take, over, stop, free_hosted};
	const collet_status status = collet_staged_of(comm->context, local->copier, sides, &cargo, &host, &staged);
	if (status != COLLET_OK)
		return status;
	take_request(hosted, request, host);
	request->staged = staged;
	collet_flow_start(collet_staged_flow(staged), request);
	collet_comm_count_use(comm, request);
	return COLLET_OK;
}
