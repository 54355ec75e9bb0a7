/* Finds algorithms in the table. */
#include "collectives/program.h"

#include <string.h>

#include "closest_name.h"
#include "collectives/program_lists.h"

static const struct {
	const char *name;
	const struct collet_program_list *list;
} collectives[COLLET_COLLECTIVE_COUNT] = {
	[COLLET_ALLREDUCE] = { "allreduce", &collet_allreduce_programs },
	[COLLET_REDUCE] = { "reduce", &collet_reduce_programs },
	[COLLET_BROADCAST] = { "broadcast", &collet_broadcast_programs },
	[COLLET_BARRIER] = { "barrier", &collet_barrier_programs },
	[COLLET_ALLGATHER] = { "allgather", &collet_allgather_programs },
	[COLLET_REDUCE_SCATTER] = { "reduce_scatter", &collet_reduce_scatter_programs },
	[COLLET_GATHER] = { "gather", &collet_gather_programs },
	[COLLET_SCATTER] = { "scatter", &collet_scatter_programs },
	[COLLET_ALLTOALL] = { "alltoall", &collet_alltoall_programs },
};

static bool is_collective(enum collet_collective collective)
{
	return (unsigned)collective < COLLET_COLLECTIVE_COUNT;
}

const char *collet_collective_name(enum collet_collective collective)
{
	return is_collective(collective) ? collectives[collective].name : NULL;
}

const struct collet_program *const *collet_programs(enum collet_collective collective, size_t *count)
{
	*count = is_collective(collective) ? collectives[collective].list->count : 0;
	return is_collective(collective) ? collectives[collective].list->programs : NULL;
}

const struct collet_program *collet_program_find(enum collet_collective collective, const char *name)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	for (size_t i = 0; i < count; i++)
		if (strcmp(programs[i]->name, name) == 0)
			return programs[i];
	return NULL;
}

const char *collet_program_closest(enum collet_collective collective, const char *name)
{
	enum { NAMES_MAX = 128 };
	const char *names[NAMES_MAX];
	size_t used = 0;
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		const struct collet_program *const *programs = collet_programs(c, &count);
		const bool is_meant = collective == c || collective == COLLET_COLLECTIVE_COUNT;
		for (size_t i = 0; is_meant && i < count && used < NAMES_MAX; i++)
			names[used++] = programs[i]->name;
	}
	return collet_closest_name(name, names, used);
}

const char *collet_collective_closest(const char *name)
{
	const char *names[COLLET_COLLECTIVE_COUNT];
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++)
		names[c] = collet_collective_name(c);
	return collet_closest_name(name, names, COLLET_COLLECTIVE_COUNT);
}

const struct collet_program *collet_program_inter_host(enum collet_collective collective)
{
	switch (collective) {
	case COLLET_ALLREDUCE: return &collet_allreduce_inter_host;
	case COLLET_REDUCE: return &collet_reduce_inter_host;
	case COLLET_BROADCAST: return &collet_broadcast_inter_host;
	case COLLET_ALLGATHER: return &collet_allgather_inter_host;
	case COLLET_REDUCE_SCATTER: return &collet_reduce_scatter_inter_host;
	default: return NULL;
	}
}

uint32_t collet_program_index(const struct collet_program *program)
{
	uint32_t number = 0;
	size_t count;
	for (uint32_t c = 0; c < (uint32_t)program->collective; c++) {
		collet_programs((enum collet_collective)c, &count);
		number += (uint32_t)count;
	}
	const struct collet_program *const *programs = collet_programs(program->collective, &count);
	while (*programs != program) {
		programs++;
		number++;
	}
	return number;
}

const char *collet_program_refusal(const struct collet_program *program, const struct collet_shape *shape)
{
	return program->refusal ? program->refusal(shape) : NULL;
}

bool collet_program_fits(const struct collet_program *program, const struct collet_shape *shape)
{
	return !collet_program_refusal(program, shape);
}

bool collet_program_reduces_once(const struct collet_program *program, const struct collet_shape *shape)
{
	return program->reduces_once || shape->size <= 2;
}

uint32_t collet_program_part_count(const struct collet_program *program, const struct collet_shape *shape)
{
	return program->part_count ? program->part_count(shape) : 1;
}

uint32_t collet_program_fan_in(const struct collet_program *program, const struct collet_shape *shape)
{
	return program->fan_in ? program->fan_in(shape) : shape->size - 1;
}

uint64_t collet_program_scratch(const struct collet_program *program, const struct collet_shape *shape)
{
	return program->scratch ? program->scratch(shape) : 0;
}

struct collet_shape collet_shape_of(
	enum collet_collective collective, uint32_t rank, uint32_t size, uint32_t root, uint64_t count)
{
	const struct collet_partition even = { .kind = COLLET_PARTITION_EVEN, .count = count };
	const struct collet_partition blocks = { .kind = COLLET_PARTITION_BLOCKS, .count = count };
	struct collet_shape shape = { .rank = rank, .size = size, .root = root, .count = count, .host_count = 1 };
	switch (collective) {
	case COLLET_ALLREDUCE:
	case COLLET_REDUCE:
	case COLLET_BROADCAST:
	case COLLET_BARRIER:
	case COLLET_COLLECTIVE_COUNT:
		shape.input = even;
		shape.result = even;
		break;
	case COLLET_ALLGATHER:
	case COLLET_REDUCE_SCATTER:
	case COLLET_GATHER:
	case COLLET_SCATTER:
	case COLLET_ALLTOALL:
		shape.input = blocks;
		shape.result = blocks;
		break;
	}
	return shape;
}
