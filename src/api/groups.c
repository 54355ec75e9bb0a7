/* Creates communicators of some ranks of another. They share its context. */
#include <stdlib.h>

#include "api/comm.h"
#include "api/on_end.h"
#include "core/status.h"

/* Derives an id or a key, the same on all members. It equals another communicator's with a chance of 2^-64. */
static uint64_t derive(uint64_t from, uint64_t value)
{
	uint64_t id = from ^ value * 0x9e3779b97f4a7c15;
	id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9;
	id = (id ^ (id >> 27)) * 0x94d049bb133111eb;
	return id ^ (id >> 31);
}

static uint64_t split_id(const struct collet_comm *comm, uint32_t color)
{
	return derive(comm->state.id, (uint64_t)comm->split_count << 32 | color);
}

/* Makes the communicator of these world ranks, of which it takes ownership. */
static collet_status make_part(
	collet_comm *comm, uint64_t id, uint32_t rank, uint32_t size, uint32_t *world, collet_comm **part)
{
	const collet_status status = collet_comm_make(part, comm->context, id, rank, size, world);
	if (status == COLLET_OK)
		atomic_fetch_add_explicit(&comm->context->users, 1, memory_order_relaxed);
	return status;
}

/* ---- Splitting ---- */

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
	return make_part(comm, split_id(comm, color), rank, members, world, split);
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

/* ---- Groups ---- */

/* Adds one to the number of groups with this key and writes what it was. Members count alike, as each of them creates
 * the groups of the same ranks and tag in the same order. */
static collet_status count_group(collet_comm *comm, uint64_t key, uint64_t *earlier)
{
	struct collet_group_counts *groups = &comm->group_counts;
	collet_status status = COLLET_OK;
	pthread_mutex_lock(&groups->lock);
	size_t i = 0;
	while (i < groups->size && groups->counts[i].key != key)
		i++;
	if (i == groups->size) {
		struct collet_group_count *counts = realloc(groups->counts, (i + 1) * sizeof(*counts));
		if (counts) {
			groups->counts = counts;
			groups->size++;
			counts[i] = (struct collet_group_count){ .key = key };
		} else {
			status = collet_fail(COLLET_ERR_MEMORY, "no memory to create a group");
		}
	}
	if (status == COLLET_OK)
		*earlier = groups->counts[i].count++;
	pthread_mutex_unlock(&groups->lock);
	return status;
}

/* Checks the list of ranks, and writes where this rank is in it. */
static collet_status check_group(const collet_comm *comm, const uint32_t *ranks, uint32_t count, uint32_t *own)
{
	const uint32_t size = comm->state.size;
	bool *listed = calloc(size, sizeof(*listed));
	collet_status status = COLLET_OK;
	if (!listed)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to create a group of %u ranks", count);
	for (uint32_t i = 0; i < count && status == COLLET_OK; i++) {
		if (ranks[i] >= size) {
			status = collet_fail(COLLET_ERR_ARGUMENT,
				"collet_comm_create_group: ranks[%u] is %u, but comm has %u ranks", i, ranks[i], size);
		} else if (listed[ranks[i]]) {
			status = collet_fail(COLLET_ERR_ARGUMENT,
				"collet_comm_create_group: ranks[%u] is %u, which is listed before", i, ranks[i]);
		} else {
			listed[ranks[i]] = true;
			*own = ranks[i] == comm->state.rank ? i : *own;
		}
	}
	if (status == COLLET_OK && !listed[comm->state.rank])
		status = collet_fail(COLLET_ERR_ARGUMENT,
			"collet_comm_create_group: rank %u calls it, but is not listed; only members call it",
			comm->state.rank);
	free(listed);
	return status;
}

/* Distinguishes groups from splits, whose ids are derived from the same communicator's. */
static const uint64_t GROUP_SALT = UINT64_C(0x67726f7570);

static collet_status make_group(
	collet_comm *comm, const uint32_t *ranks, uint32_t count, uint32_t tag, uint32_t own, collet_comm **group)
{
	uint32_t *world = malloc(count * sizeof(*world));
	uint64_t earlier, key = derive(derive(comm->state.id ^ GROUP_SALT, count), tag);
	if (!world)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator of %u ranks", count);
	for (uint32_t i = 0; i < count; i++) {
		key = derive(key, ranks[i]);
		world[i] = collet_comm_state_world_rank(&comm->state, ranks[i]);
	}
	const collet_status status = count_group(comm, key, &earlier);
	if (status != COLLET_OK) {
		free(world);
		return status;
	}
	return make_part(comm, derive(key, earlier), own, count, world, group);
}

collet_status collet_comm_create_group(
	collet_comm *comm, const uint32_t *ranks, uint32_t count, uint32_t tag, collet_comm **group)
{
	static const char function[] = "collet_comm_create_group";
	uint32_t own = 0;
	if (!comm || !ranks || !group)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: comm, ranks or group is NULL", function);
	if (collet_check_nested(function) != COLLET_OK || collet_check_on_end(function) != COLLET_OK)
		return COLLET_ERR_ARGUMENT;
	collet_status status = collet_comm_check_fork(comm, function);
	if (status == COLLET_OK)
		status = collet_comm_error(comm);
	if (status == COLLET_OK)
		status = check_group(comm, ranks, count, &own);
	return status == COLLET_OK ? make_group(comm, ranks, count, tag, own, group) : status;
}
