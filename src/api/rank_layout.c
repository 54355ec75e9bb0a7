/* Computes the orders of ranks: once for a communicator, from the peer infos, the same on all ranks.
 *
 * There are two orders, because an order may show in the result: a float sum along a ring begins where the ring begins.
 * Which ranks share a host is part of how a job is laid out, so algorithms over several hosts follow it. Which cores
 * ranks are bound to may change from run to run, so the order by cores is for results that no order can change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/comm.h"
#include "core/types.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "topology/order.h"

static bool is_identity(const uint32_t *order, uint32_t size)
{
	for (uint32_t p = 0; p < size; p++)
		if (order[p] != p)
			return false;
	return true;
}

static void deinit(struct collet_layout *layout)
{
	free(layout->order);
	free(layout->host_first);
	free(layout->position);
	*layout = (struct collet_layout){ 0 };
}

static collet_status find(struct collet_layout *layout, const struct collet_rank_locality *locations, uint32_t size,
	enum collet_ordering nearness)
{
	layout->order = malloc(size * sizeof(*layout->order));
	layout->position = malloc(size * sizeof(*layout->position));
	layout->host_first = malloc(((size_t)size + 1) * sizeof(*layout->host_first));
	if (!layout->order || !layout->position || !layout->host_first)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator of %u ranks", size);
	const collet_status status =
		collet_order_find(locations, size, nearness, layout->order, layout->host_first, &layout->host_count);
	if (status != COLLET_OK)
		return status;
	if (is_identity(layout->order, size)) {
		free(layout->order);
		free(layout->position);
		layout->order = layout->position = NULL;
		return COLLET_OK;
	}
	for (uint32_t p = 0; p < size; p++)
		layout->position[layout->order[p]] = p;
	return COLLET_OK;
}

/* Logs each host with its ranks in order. If a line is too short for them, it says how many it leaves out. */
static void log_layout(const struct collet_comm *comm, const struct collet_rank_locality *locations)
{
	const struct collet_log *log = &comm->context->engine.log;
	const struct collet_layout *layout = &comm->by_locality;
	uint32_t *identity = NULL;
	if (log->level < COLLET_LOG_INFO || comm->state.rank != 0)
		return;
	if (!layout->order && !(identity = malloc(comm->state.size * sizeof(*identity))))
		return;
	for (uint32_t p = 0; identity && p < comm->state.size; p++)
		identity[p] = p;
	const uint32_t *order = identity ? identity : layout->order;
	for (uint32_t h = 0; h < layout->host_count; h++) {
		char ranks[400];
		const uint32_t first = layout->host_first[h], end = layout->host_first[h + 1];
		const struct collet_peer_info *peer_info =
			&comm->context->bootstrap.peer_infos[collet_comm_state_world_rank(&comm->state, order[first])];
		collet_order_describe(locations, order, first, end, ranks, sizeof(ranks));
		collet_log(log, COLLET_LOG_INFO, "host %u of %u: %s, %u of %u ranks on %u cores, in this order: %s",
			h + 1, layout->host_count, peer_info->host, end - first, comm->state.size,
			peer_info->host_cores, ranks);
	}
	free(identity);
}

collet_status collet_layouts_find(struct collet_comm *comm)
{
	const struct collet_peer_info *peer_infos = comm->context->bootstrap.peer_infos;
	const uint32_t size = comm->state.size;
	struct collet_rank_locality *locations = malloc(size * sizeof(*locations));
	if (!locations)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator of %u ranks", size);
	for (uint32_t r = 0; r < size; r++) {
		const struct collet_peer_info *peer_info = &peer_infos[collet_comm_state_world_rank(&comm->state, r)];
		locations[r] = (struct collet_rank_locality){ peer_info->host_id, peer_info->locality };
	}
	const uint64_t own = locations[comm->state.rank].host;
	for (uint32_t r = 0; r < size; r++) {
		comm->local_rank += r < comm->state.rank && locations[r].host == own;
		comm->local_size += locations[r].host == own;
	}
	collet_status status = find(&comm->by_host, locations, size, COLLET_ORDER_BY_HOST);
	if (status == COLLET_OK)
		status = find(&comm->by_locality, locations, size, COLLET_ORDER_BY_LOCALITY);
	if (status == COLLET_OK)
		log_layout(comm, locations);
	free(locations);
	return status;
}

void collet_layouts_deinit(struct collet_comm *comm)
{
	deinit(&comm->by_host);
	deinit(&comm->by_locality);
}

/* Applies a layout to a shape of collet_shape_of(), whose positions are ranks. */
static void apply_layout(const struct collet_layout *layout, struct collet_shape *shape)
{
	if (layout->host_count > 1) {
		shape->host_first = layout->host_first;
		shape->host_count = layout->host_count;
	}
	if (!layout->order)
		return;
	shape->order = layout->order;
	shape->rank = layout->position[shape->rank];
	shape->root = layout->position[shape->root];
}

void collet_layout_by_host(const struct collet_comm *comm, struct collet_shape *shape, bool commutes)
{
	if (comm->by_host.host_count > 1 && commutes && !comm->context->deterministic)
		apply_layout(&comm->by_host, shape);
	shape->leader_is_first = comm->has_gpu_leaders;
}

void collet_layout_by_locality(const struct collet_comm *comm, struct collet_shape *shape,
	const struct collet_program *program, collet_dtype dtype, collet_op op)
{
	if (!comm->by_locality.order || comm->context->deterministic || !collet_op_is_exact(op, dtype))
		return;
	struct collet_shape near = *shape;
	near.order = NULL;
	near.host_first = NULL;
	near.host_count = 1;
	near.rank = comm->state.rank;
	near.root = shape->order ? shape->order[shape->root] : shape->root;
	apply_layout(&comm->by_locality, &near);
	if (collet_program_fits(program, &near))
		*shape = near;
}
