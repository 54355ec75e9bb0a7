/* Creates communicators of some ranks of another. They share its context. */
#include <stdlib.h>

#include "api/comm.h"
#include "api/on_end.h"
#include "core/status.h"

struct split_entry {
	uint32_t color, key, rank;
};

static int compare_entries(const void *a, const void *b)
{
	const struct split_entry *left = a, *right = b;
	if (left->key != right->key)
		return left->key < right->key ? -1 : 1;
	return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Derives an id, the same on all members. It equals another communicator's with a chance of 2^-64. */
static uint64_t derive_id(const struct collet_comm *comm, uint32_t color)
{
	uint64_t id = comm->state.id ^ ((uint64_t)comm->split_count << 32 | color) * 0x9e3779b97f4a7c15;
	id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9;
	id = (id ^ (id >> 27)) * 0x94d049bb133111eb;
	return id ^ (id >> 31);
}

static collet_status make_split(collet_comm *comm, struct split_entry *entries, uint32_t color, collet_comm **split)
{
	uint32_t members = 0, rank = 0;
	for (uint32_t r = 0; r < comm->state.size; r++)
		if (entries[r].color == color)
			entries[members++] = (struct split_entry){ color, entries[r].key, r };
	qsort(entries, members, sizeof(*entries), compare_entries);
	uint32_t *world = malloc(members * sizeof(*world));
	if (!world)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator of %u ranks", members);
	for (uint32_t i = 0; i < members; i++) {
		world[i] = collet_comm_state_world_rank(&comm->state, entries[i].rank);
		if (entries[i].rank == comm->state.rank)
			rank = i;
	}
	const collet_status status =
		collet_comm_make(split, comm->context, derive_id(comm, color), rank, members, world);
	if (status == COLLET_OK)
		atomic_fetch_add_explicit(&comm->context->users, 1, memory_order_relaxed);
	return status;
}

collet_status collet_comm_split(collet_comm *comm, uint32_t color, uint32_t key, collet_comm **split)
{
	if (!comm || !split)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_split: comm or split is NULL");
	if (collet_check_nested("collet_comm_split") != COLLET_OK ||
		collet_check_on_end("collet_comm_split") != COLLET_OK)
		return COLLET_ERR_ARGUMENT;
	const uint32_t size = comm->state.size;
	struct split_entry *entries = calloc(size, sizeof(*entries));
	if (!entries)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to split a communicator of %u ranks", size);
	const struct split_entry own = { color, key, comm->state.rank };
	collet_status status = collet_allgather(comm, &own, entries, sizeof(own), COLLET_U8, NULL);
	if (status == COLLET_OK) {
		comm->split_count++;
		if (color == COLLET_NO_COLOR)
			*split = NULL;
		else
			status = make_split(comm, entries, color, split);
	}
	free(entries);
	return status;
}

collet_status collet_comm_shrink(collet_comm *comm, collet_comm **shrunk)
{
	return collet_fail(COLLET_ERR_UNSUPPORTED,
		"collet_comm_shrink is not offered yet: destroy the communicator and create one "
		"of the ranks that are left");
}
