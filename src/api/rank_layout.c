/* In which order ranks stand: found once for a communicator, from the cards, alike on all ranks.
 *
 * Two orders, because an order may show in the result: a float sum along a ring begins at the ring's beginning. Which
 * ranks share a host is part of how a job is laid out, and algorithms over several hosts follow it. Which cores ranks
 * are bound to may be new in each run; so that order is only for calls whose result no order can change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/comm.h"
#include "core/types.h"
#include "topology/order.h"

static bool is_straight(const uint32_t *order, uint32_t size)
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
		collet_order_find(locations, size, nearness, layout->order, layout->host_first, &layout->hosts);
	if (status != COLLET_OK)
		return status;
	if (is_straight(layout->order, size)) {
		free(layout->order);
		free(layout->position);
		layout->order = layout->position = NULL;
		return COLLET_OK;
	}
	for (uint32_t p = 0; p < size; p++)
		layout->position[layout->order[p]] = p;
	return COLLET_OK;
}

/* For people: hosts with their ranks as they stand, where they do not fit with how many are left out. */
static void tell(const struct collet_comm *comm, const struct collet_rank_locality *locations)
{
	const struct collet_log *log = &comm->context->engine.log;
	const struct collet_layout *layout = &comm->near;
	uint32_t *straight = NULL;
	if (log->level < COLLET_LOG_INFO || comm->group.rank != 0)
		return;
	if (!layout->order && !(straight = malloc(comm->group.size * sizeof(*straight))))
		return;
	for (uint32_t p = 0; straight && p < comm->group.size; p++)
		straight[p] = p;
	const uint32_t *order = straight ? straight : layout->order;
	for (uint32_t h = 0; h < layout->hosts; h++) {
		char ranks[400];
		const uint32_t first = layout->host_first[h], end = layout->host_first[h + 1];
		const struct collet_peer_info *card =
			&comm->context->bootstrap.peer_infos[collet_comm_state_world_rank(&comm->group, order[first])];
		collet_order_describe(locations, order, first, end, ranks, sizeof(ranks));
		collet_log(log, COLLET_LOG_INFO, "host %u of %u: %s, %u of %u ranks on %u cores, in this order: %s",
			h + 1, layout->hosts, card->host, end - first, comm->group.size, card->host_cores, ranks);
	}
	free(straight);
}

collet_status collet_layouts_find(struct collet_comm *comm)
{
	const struct collet_peer_info *cards = comm->context->bootstrap.peer_infos;
	const uint32_t size = comm->group.size;
	struct collet_rank_locality *locations = malloc(size * sizeof(*locations));
	if (!locations)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator of %u ranks", size);
	for (uint32_t r = 0; r < size; r++) {
		const struct collet_peer_info *card = &cards[collet_comm_state_world_rank(&comm->group, r)];
		locations[r] = (struct collet_rank_locality){ card->host_id, card->locality };
	}
	const uint64_t own = locations[comm->group.rank].host;
	for (uint32_t r = 0; r < size; r++) {
		comm->local_rank += r < comm->group.rank && locations[r].host == own;
		comm->local_size += locations[r].host == own;
	}
	collet_status status = find(&comm->by_host, locations, size, COLLET_ORDER_BY_HOST);
	if (status == COLLET_OK)
		status = find(&comm->near, locations, size, COLLET_ORDER_BY_LOCALITY);
	if (status == COLLET_OK)
		tell(comm, locations);
	free(locations);
	return status;
}

void collet_layouts_deinit(struct collet_comm *comm)
{
	deinit(&comm->by_host);
	deinit(&comm->near);
}

/* A shape whose positions are ranks, as collet_shape_of() makes it. */
static void lay_out(const struct collet_layout *layout, struct collet_shape *shape)
{
	if (layout->hosts > 1) {
		shape->host_first = layout->host_first;
		shape->host_count = layout->hosts;
	}
	if (!layout->order)
		return;
	shape->order = layout->order;
	shape->rank = layout->position[shape->rank];
	shape->root = layout->position[shape->root];
}

void collet_layout_by_host(const struct collet_comm *comm, struct collet_shape *shape, bool commutes)
{
	if (comm->by_host.hosts > 1 && commutes && !comm->context->deterministic)
		lay_out(&comm->by_host, shape);
	shape->leader_is_first = comm->gpu_each_host;
}

void collet_layout_near(const struct collet_comm *comm, struct collet_shape *shape,
	const struct collet_program *program, collet_dtype dtype, collet_op op)
{
	if (!comm->near.order || comm->context->deterministic || !collet_op_is_exact(op, dtype))
		return;
	struct collet_shape near = *shape;
	near.order = NULL;
	near.host_first = NULL;
	near.host_count = 1;
	near.rank = comm->group.rank;
	near.root = shape->order ? shape->order[shape->root] : shape->root;
	lay_out(&comm->near, &near);
	if (collet_program_fits(program, &near))
		*shape = near;
}
