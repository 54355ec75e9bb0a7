/* The table of collectives, and the arithmetic of bytes and counts. */
#include "work.h"

#include <string.h>

/* The sizes of a rank's two buffers, in blocks of count elements: one block, or one for each rank. */
enum blocks { NONE, ONE, ALL, ONE_AT_ROOT, ALL_AT_ROOT };

static const struct {
	const char *name;
	enum blocks send, recv;
	bool combines, has_root;
	bool counts_all;   /* the message is what all ranks' blocks are together */
} table[BENCH_COLLECTIVES] = {
	[BENCH_ALLREDUCE] = { "allreduce", ONE, ONE, true, false, false },
	[BENCH_REDUCE] = { "reduce", ONE, ONE_AT_ROOT, true, true, false },
	[BENCH_BROADCAST] = { "broadcast", ONE_AT_ROOT, ONE, false, true, false },
	[BENCH_BARRIER] = { "barrier", NONE, NONE, false, false, false },
	[BENCH_ALLGATHER] = { "allgather", ONE, ALL, false, false, true },
	[BENCH_REDUCE_SCATTER] = { "reduce_scatter", ALL, ONE, true, false, true },
	[BENCH_GATHER] = { "gather", ONE, ALL_AT_ROOT, false, true, true },
	[BENCH_SCATTER] = { "scatter", ALL_AT_ROOT, ONE, false, true, true },
	[BENCH_ALLTOALL] = { "alltoall", ALL, ALL, false, false, true },
	[BENCH_SENDRECV] = { "sendrecv", ONE, ONE, false, false, false },
};

const char *bench_collective_name(enum bench_collective collective)
{
	return (unsigned)collective < BENCH_COLLECTIVES ? table[collective].name : NULL;
}

enum bench_collective bench_collective_find(const char *name)
{
	for (int c = 0; c < BENCH_COLLECTIVES; c++)
		if (strcmp(table[c].name, name) == 0)
			return (enum bench_collective)c;
	return BENCH_COLLECTIVES;
}

bool bench_collective_combines(enum bench_collective collective)
{
	return table[collective].combines;
}

bool bench_collective_has_root(enum bench_collective collective)
{
	return table[collective].has_root;
}

bool bench_collective_takes_bytes(enum bench_collective collective)
{
	return collective != BENCH_BARRIER;
}

collet_dtype bench_dtype_find(const char *name)
{
	for (int d = 0; d < COLLET_DTYPE_COUNT; d++)
		if (strcmp(collet_dtype_name((collet_dtype)d), name) == 0)
			return (collet_dtype)d;
	return COLLET_DTYPE_COUNT;
}

collet_op bench_op_find(const char *name)
{
	for (int o = 0; o < COLLET_OP_COUNT; o++)
		if (strcmp(collet_op_name((collet_op)o), name) == 0)
			return (collet_op)o;
	return COLLET_OP_COUNT;
}

bool bench_dtype_is_integer(collet_dtype dtype)
{
	return dtype <= COLLET_U64 || dtype == COLLET_I16 || dtype == COLLET_U16;
}

bool bench_dtype_is_float(collet_dtype dtype)
{
	return !bench_dtype_is_integer(dtype) && dtype != COLLET_BOOL;
}

bool bench_op_fits(collet_op op, collet_dtype dtype)
{
	switch (op) {
	case COLLET_PREMUL_SUM:
		return bench_dtype_is_float(dtype);
	case COLLET_AND: case COLLET_OR: case COLLET_XOR:
		return !bench_dtype_is_float(dtype);
	case COLLET_AVERAGE:
		return dtype != COLLET_BOOL;
	case COLLET_USER:
		return false;   /* not measured: its cost is the user's function */
	default:
		return true;
	}
}

uint64_t bench_count(const struct bench_work *work, uint32_t ranks, uint64_t bytes)
{
	if (work->collective == BENCH_BARRIER)
		return 0;
	const uint64_t elements = bytes / collet_dtype_bytes((collet_dtype)work->dtype);
	if (!table[work->collective].counts_all || elements == 0)
		return elements;
	return elements < ranks ? 1 : elements / ranks;
}

uint64_t bench_bytes(const struct bench_work *work, uint32_t ranks, uint64_t count)
{
	return count * collet_dtype_bytes((collet_dtype)work->dtype) * (table[work->collective].counts_all ? ranks : 1);
}

static uint64_t elements(enum blocks blocks, bool root, uint32_t ranks, uint64_t count)
{
	switch (blocks) {
	case ONE: return count;
	case ALL: return count * ranks;
	case ONE_AT_ROOT: return root ? count : 0;
	case ALL_AT_ROOT: return root ? count * ranks : 0;
	case NONE: break;
	}
	return 0;
}

uint64_t bench_send_count(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count)
{
	return elements(table[work->collective].send, rank == work->root, ranks, count);
}

uint64_t bench_recv_count(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count)
{
	return elements(table[work->collective].recv, rank == work->root, ranks, count);
}

uint64_t bench_in_place_send_offset(const struct bench_work *work, uint32_t rank, uint64_t count)
{
	const bool mine_within = work->collective == BENCH_ALLGATHER
		|| (work->collective == BENCH_GATHER && rank == work->root);
	return mine_within ? rank * count : 0;
}

uint64_t bench_in_place_recv_offset(const struct bench_work *work, uint32_t rank, uint64_t count)
{
	const bool mine_within = work->collective == BENCH_REDUCE_SCATTER
		|| (work->collective == BENCH_SCATTER && rank == work->root);
	return mine_within ? rank * count : 0;
}

double bench_bus_factor(enum bench_collective collective, uint32_t ranks)
{
	const double others = (double)(ranks - 1) / (double)ranks;
	switch (collective) {
	case BENCH_ALLREDUCE:
		return 2 * others;
	case BENCH_ALLGATHER: case BENCH_REDUCE_SCATTER: case BENCH_ALLTOALL: case BENCH_GATHER: case BENCH_SCATTER:
		return others;
	default:
		return 1;
	}
}

double bench_gbs(uint64_t bytes, double ns)
{
	return ns > 0 ? (double)bytes / ns : 0;
}
