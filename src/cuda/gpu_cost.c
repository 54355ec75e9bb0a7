#include "cuda/gpu_cost.h"

#include <math.h>
#include <string.h>

#include "core/types.h"
#include "cuda/gpu_context.h"
#include "cuda/peer_gpus/device_collective.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "selection/choice.h"
#include "selection/tuning.h"

enum { CELL_UNIT_BYTES = 64 << 10 };

/* ---- Links ---- */

struct collet_gpu_link collet_gpu_copy_link(const struct collet_context *context)
{
	const collet_link_cost *found =
		collet_tuning_find(context->links, context->agreement.link_count, "cuda", context->launch.size, 0);
	if (!found || found->byte_ns[COLLET_COST_CLASSES - 1] <= 0)
		return (struct collet_gpu_link){
			.latency_s = 10e-6, .message_s = 2e-6, .copy_byte_s = 1 / 25e9, .memory_byte_s = 1 / 1500e9};
	return (struct collet_gpu_link){ .latency_s = found->latency_ns * 1e-9,
		.message_s = found->overhead_ns * 1e-9,
		.copy_byte_s = found->byte_ns[COLLET_COST_CLASSES - 1] * 1e-9,
		.memory_byte_s = found->reduce_byte_ns * 1e-9,
		.is_measured = true };
}

const collet_link_cost *collet_gpu_kernel_link(const struct collet_context *context, bool *measured)
{
	static const collet_link_cost reasoned = {
		.transport = "cuda_ipc",
		.ranks = 2,
		.cores = 2,
		.latency_ns = 1500,
		.overhead_ns = 300,
		.segment_ns = 300,
		.byte_ns = { 1 / 10., 1 / 20., 1 / 60., 1 / 200. },
		.reduce_byte_ns = 1 / 1500.,
		.cached_bytes = UINT64_MAX,
		.channel_ratios = { 1 },
		.min_segment_bytes = 4 << 10,
		.max_segment_bytes = 4 << 20,
	};
	const collet_link_cost *found =
		collet_tuning_find(context->links, context->agreement.link_count, "cuda_ipc", context->launch.size, 0);
	*measured = found != NULL;
	return found ? found : &reasoned;
}

static double clamp(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

struct collet_channel_limits collet_gpu_channel_limits(const collet_link_cost *link)
{
	/* Bounds what a tuning may ask for: memory of windows, and blocks. */
	enum { CHANNELS_MAX = 32, BYTES_MIN = 4 << 10, BYTES_MAX = 16 << 20 };
	const double one = link->byte_ns[1], all = link->byte_ns[COLLET_COST_CLASSES - 1],
		     empty = link->latency_ns + link->overhead_ns;
	return (struct collet_channel_limits){
		.max_per_part = (uint32_t)clamp(all > 0 ? ceil(one / all - 1e-6) : CHANNELS_MAX, 1, CHANNELS_MAX),
		.bytes_per_channel = (uint32_t)clamp(one > 0 ? empty / one : BYTES_MAX, BYTES_MIN, BYTES_MAX),
	};
}

size_t collet_gpu_cell_bytes(const struct collet_gpu_link *link, size_t bytes)
{
	const double best = sqrt((double)bytes * link->message_s / (2 * link->copy_byte_s));
	const size_t units = (size_t)(best / CELL_UNIT_BYTES) + 1;
	return units * CELL_UNIT_BYTES;
}

/* S byte = 2 sqrt(2 S byte message), with the best cells; and at least two cells. */
size_t collet_gpu_pipelined_min(const struct collet_gpu_link *link)
{
	const size_t least = (size_t)(8 * link->message_s / link->copy_byte_s);
	return least < 2 * CELL_UNIT_BYTES ? 2 * CELL_UNIT_BYTES : least;
}

/* ---- Traffic ---- */

/* The bytes of a call: copied to host memory and from there for all ranks that share a GPU, and read and written in the
 * GPU's memory. */
struct traffic {
	double in, out, memory;
};

/* How many blocks a rank's input and result have, and how many of the ranks that share a GPU have them. */
struct block_counts {
	double in, out, in_ranks, out_ranks;
};

static struct block_counts block_counts_of(const struct collet_path_query *call, double sharing)
{
	const double n = call->shape->size, g = sharing;
	switch (call->collective) {
	case COLLET_REDUCE: return (struct block_counts){ 1, 1, g, 1 };
	case COLLET_BROADCAST: return (struct block_counts){ 1, 1, 1, g };
	case COLLET_ALLGATHER: return (struct block_counts){ 1, n, g, g };
	case COLLET_REDUCE_SCATTER: return (struct block_counts){ n, 1, g, g };
	case COLLET_GATHER: return (struct block_counts){ 1, n, g, 1 };
	case COLLET_SCATTER: return (struct block_counts){ n, 1, 1, g };
	case COLLET_ALLTOALL: return (struct block_counts){ n, n, g, g };
	default: return (struct block_counts){ 1, 1, g, g };
	}
}

/* Returns the traffic if each rank copies for itself. */
static struct traffic copied_traffic(const struct block_counts *counts, double block)
{
	return (struct traffic){ counts->in * counts->in_ranks * block, counts->out * counts->out_ranks * block, 0 };
}

/* Returns the traffic if a leader copies for g ranks: every byte once. */
static struct traffic hierarchical_traffic(
	const struct collet_path_query *call, const struct block_counts *counts, double g, double block)
{
	const double n = call->shape->size;
	const double memory = (counts->in * counts->in_ranks + counts->out * counts->out_ranks) * block;
	switch (call->collective) {
	case COLLET_ALLGATHER: return (struct traffic){ g * block, (n - g) * block, memory };
	case COLLET_REDUCE_SCATTER: return (struct traffic){ n * block, g * block, memory };
	default: return (struct traffic){ block, block, memory };
	}
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Returns the bytes that a leader's links carry one way, if the other ranks of its host have GPUs of their own. */
static double peers_traffic(const struct block_counts *counts, double g, double block)
{
	return larger(counts->in * counts->in_ranks, counts->out * counts->out_ranks) * (g - 1) / g * block;
}

/* ---- Time ---- */

/* Returns the time in cells: the slowest of copies in, messages and copies out, plus the first and last cells. */
static double pipelined_s(
	const struct collet_gpu_link *link, const struct traffic *traffic, double others_s, double *copies_s)
{
	const double most = larger(traffic->in, traffic->out);
	const double cell = (double)collet_gpu_cell_bytes(link, (size_t)most);
	const double in = traffic->in * link->copy_byte_s + ceil(traffic->in / cell) * link->message_s;
	const double out = traffic->out * link->copy_byte_s + ceil(traffic->out / cell) * link->message_s;
	const double ends = (fmin(cell, traffic->in) + fmin(cell, traffic->out)) * link->copy_byte_s;
	*copies_s = in + out;
	return 2 * link->latency_s + ends + larger(larger(in, out), others_s);
}

/* Returns the number of ranks of the host with most. */
static double largest_host(const struct collet_shape *shape)
{
	uint32_t most = 1;
	for (uint32_t h = 0; shape->host_first && h < shape->host_count; h++) {
		const uint32_t count = shape->host_first[h + 1] - shape->host_first[h];
		most = count > most ? count : most;
	}
	return most;
}

static void add_links(const collet_comm *comm, double bytes, struct collet_gpu_cost *cost)
{
	bool measured;
	if (collet_shared_gpu_has_one_gpu(comm->gpu->shared_gpu))
		return;
	const collet_link_cost *between = collet_gpu_kernel_link(comm->context, &measured);
	cost->memory_s = larger(cost->memory_s, bytes * between->byte_ns[COLLET_COST_CLASSES - 1] * 1e-9);
	cost->is_measured = cost->is_measured && measured;
}

bool collet_gpu_cost_of(collet_comm *comm, const struct collet_path_query *call, const char *path,
	struct collet_segmentation segmentation, struct collet_gpu_cost *cost)
{
	const struct collet_gpu_link link = collet_gpu_copy_link(comm->context);
	const size_t element = collet_dtype_bytes(call->dtype);
	const bool hierarchical = path && strcmp(path, "hierarchical") == 0;
	const bool direct = path && strcmp(path, "shared_gpu") == 0;
	const double g = hierarchical ? largest_host(call->shape)
			 : direct     ? call->shape->size
				      : comm->gpu->ranks_per_gpu;
	const double block = (double)(call->shape->count * element);
	const struct block_counts counts = block_counts_of(call, g);
	struct traffic traffic = copied_traffic(&counts, block);
	*cost = (struct collet_gpu_cost){ .is_measured = link.is_measured };
	if (!path)
		return false;
	if (strcmp(path, "peer_gpus") == 0) {
		const struct collet_choice_inputs *inputs = collet_device_collectives_choices(comm).inputs;
		bool measured;
		(void)collet_gpu_kernel_link(comm->context, &measured);
		cost->is_measured = cost->is_measured && measured;
		cost->messages_s = collet_choice_cost(inputs, call->program, call->shape, element, segmentation);
		cost->total_s = link.latency_s + cost->messages_s;
		return true;
	}
	if (direct) {
		cost->memory_s = (traffic.in + traffic.out) * link.memory_byte_s;
		add_links(comm, peers_traffic(&counts, g, block), cost);
		cost->total_s = link.latency_s + cost->memory_s;
		return true;
	}
	if (hierarchical) {
		traffic = hierarchical_traffic(call, &counts, g, block);
		cost->memory_s = traffic.memory * link.memory_byte_s;
		/* Inner nodes of an all-reduce's tree store what they have reduced, and it is read again. */
		const double inner = call->collective == COLLET_ALLREDUCE ? (g / 2 - 1) * block : 0;
		add_links(comm, peers_traffic(&counts, g, block) + inner, cost);
		cost->messages_s =
			collet_choice_cost_inter_host(&comm->inputs, call->program, call->shape, element, segmentation);
		cost->total_s =
			pipelined_s(&link, &traffic, larger(cost->messages_s, cost->memory_s), &cost->copies_s);
		return true;
	}
	cost->messages_s = collet_choice_cost(&comm->inputs, call->program, call->shape, element, segmentation);
	if (strcmp(path, "pipelined") == 0 && collet_path_is_gpudirect(comm, call->op)) {
		cost->total_s = cost->messages_s;
		return true;
	}
	if (strcmp(path, "pipelined") == 0) {
		cost->total_s = pipelined_s(&link, &traffic, cost->messages_s, &cost->copies_s);
		return true;
	}
	cost->copies_s = (traffic.in + traffic.out) * link.copy_byte_s;
	cost->total_s = 2 * link.latency_s + cost->copies_s + cost->messages_s;
	return true;
}

void collet_gpu_plan(collet_comm *comm, const struct collet_path_query *query,
	struct collet_segmentation segmentation, collet_plan *plan)
{
	struct collet_gpu_cost cost;
	plan->gpu_path = collet_path_name(comm, query, &plan->gpu_algorithm);
	plan->is_gpudirect =
		plan->gpu_path && strcmp(plan->gpu_path, "pipelined") == 0 && collet_path_is_gpudirect(comm, query->op);
	if (!collet_gpu_cost_of(comm, query, plan->gpu_path, segmentation, &cost))
		return;
	plan->gpu_ns = cost.total_s * 1e9;
	plan->gpu_copies_ns = cost.copies_s * 1e9;
	plan->gpu_memory_ns = cost.memory_s * 1e9;
	plan->gpu_messages_ns = cost.messages_s * 1e9;
	plan->gpu_measured = cost.is_measured;
}
