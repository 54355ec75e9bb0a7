#include "hierarchical.h"

#include <stdlib.h>
#include <string.h>

bool hosts_leads(const struct rank *rank, const struct world *world)
{
	return strchr(world->hosts, world->hosts[rank->rank]) == world->hosts + rank->rank;
}

bool hosts_begin_in(struct gpu *gpu, struct rank *rank, const struct world *world)
{
	const char host[] = { world->hosts[rank->rank], '\0' };
	setenv("COLLET_HOST_ID", host, 1);
	return gpu_start_on(gpu, rank, world->gpus ? world->gpus[rank->rank] - '0' : 0) && rank_create(rank);
}

bool hosts_begin(struct gpu *gpu, struct rank *rank)
{
	return hosts_begin_in(gpu, rank, rank->options->context);
}

const char *const hosts_kind_names[] = {
	"all-reduce", "reduce", "broadcast", "all-gather", "all-gather-v", "reduce-scatter"};

void hosts_fill(const struct row *row, char *bytes, size_t count, uint32_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	for (size_t b = 0; b < count; b++) {
		state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
		bytes[b] = (char)(state >> 56);
	}
	if ((row->kind != REDUCE && row->kind != REDUCE_SCATTER) || row->dtype != COLLET_F32)
		return;
	for (size_t i = 0; i < count / sizeof(float); i++) {
		const float value = (float)(bytes[i * sizeof(float)] & 15);
		memcpy(bytes + i * sizeof(float), &value, sizeof(value));
	}
}

/* Of a v-form: blocks of different lengths, one of them empty, the last rank's first, with other gaps on each rank. */
struct list {
	uint64_t counts[RANKS_MOST], displacements[RANKS_MOST], end;
};

static struct list list_of(const struct rank *rank, const struct row *row)
{
	struct list list = { .end = rank->rank };
	for (uint32_t r = rank->size; r-- > 0;) {
		list.counts[r] = r == 1 ? 0 : row->count / (1 + r % 3);
		list.displacements[r] = list.end + 3;
		list.end = list.displacements[r] + list.counts[r];
	}
	return list;
}

struct sides hosts_sides(const struct rank *rank, const struct row *row)
{
	const size_t element = collet_dtype_bytes(row->dtype), one = row->count * element;
	const struct list list = list_of(rank, row);
	switch (row->kind) {
	case ALLGATHER: return (struct sides){ one, rank->size * one, rank->rank * one, 0 };
	case ALLGATHERV:
		return (struct sides){list.counts[rank->rank] * element, list.end * element,
			list.displacements[rank->rank] * element, 0};
	case REDUCE_SCATTER: return (struct sides){ rank->size * one, one, 0, rank->rank * one };
	default: return (struct sides){ one, one, 0, 0 };
	}
}

collet_how hosts_how(const struct rank *rank, const struct row *row)
{
	collet_how how = COLLET_HOW_DEFAULT;
	how.scale = 0.5 + rank->rank;
	how.algorithm = row->chosen ? NULL : "hierarchical";
	return how;
}

collet_status hosts_call(
	const struct rank *rank, const struct row *row, const void *send, void *recv, const collet_how *how)
{
	switch (row->kind) {
	case REDUCE:
		return collet_reduce(rank->comm, send, rank->rank == row->root ? recv : NULL, row->count, row->dtype,
			row->op, row->root, how);
	case BROADCAST:
		return collet_broadcast(rank->comm, rank->rank == row->root ? send : NULL, recv, row->count,
			row->dtype, row->root, how);
	case ALLGATHER: return collet_allgather(rank->comm, send, recv, row->count, row->dtype, how);
	case ALLGATHERV: {
		const struct list list = list_of(rank, row);
		return collet_allgatherv(rank->comm, send, list.counts[rank->rank], recv, list.counts,
			list.displacements, row->dtype, how);
	}
	case REDUCE_SCATTER:
		return collet_reduce_scatter(rank->comm, send, recv, row->count, row->dtype, row->op, how);
	default: return collet_allreduce(rank->comm, send, recv, row->count, row->dtype, row->op, how);
	}
}
