/* The table of algorithms, by collective. An algorithm is added by including its file and adding a row. */
#include "collectives/program.h"

#include <string.h>

#include "collectives/allreduce_direct.h"
#include "collectives/allreduce_exchange.h"
#include "collectives/allreduce_ring.h"
#include "collectives/allreduce_two_shot.h"
#include "collectives/barrier_direct.h"
#include "collectives/barrier_dissemination.h"
#include "collectives/broadcast_tree.h"

static const struct collet_program allreduce_direct = {
	.name = "direct", .collective = COLLET_ALLREDUCE,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.ordered = true, .sliced = true,
	.step_count = allreduce_direct_step_count, .step = allreduce_direct_step,
	.scratch = allreduce_direct_scratch, .cost = allreduce_direct_cost,
};

static const struct collet_program allreduce_two_shot = {
	.name = "two_shot", .collective = COLLET_ALLREDUCE,
	.source = "Rabenseifner 2004, with direct exchanges",
	.ordered = true, .sliced = true,
	.step_count = allreduce_two_shot_step_count, .step = allreduce_two_shot_step,
	.cost = allreduce_two_shot_cost,
};

static const struct collet_program allreduce_exchange = {
	.name = "exchange", .collective = COLLET_ALLREDUCE,
	.source = "Rabenseifner 2004, at n = 2",
	.ordered = true, .sliced = true,
	.fits = allreduce_exchange_fits,
	.step_count = allreduce_exchange_step_count, .step = allreduce_exchange_step,
	.cost = allreduce_exchange_cost,
};

static const struct collet_program allreduce_ring = {
	.name = "ring", .collective = COLLET_ALLREDUCE,
	.source = "Patarasuk, Yuan 2009",
	.sliced = true,
	.fits = allreduce_ring_fits,
	.step_count = allreduce_ring_step_count, .step = allreduce_ring_step,
	.cost = allreduce_ring_cost,
};

static const struct collet_program broadcast_tree = {
	.name = "tree", .collective = COLLET_BROADCAST,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.ordered = true,
	.step_count = broadcast_tree_step_count, .step = broadcast_tree_step,
	.cost = broadcast_tree_cost,
};

static const struct collet_program barrier_direct = {
	.name = "direct", .collective = COLLET_BARRIER,
	.source = "textbook all-to-all barrier",
	.ordered = true,
	.step_count = barrier_direct_step_count, .step = barrier_direct_step,
	.cost = barrier_direct_cost,
};

static const struct collet_program barrier_dissemination = {
	.name = "dissemination", .collective = COLLET_BARRIER,
	.source = "Hensgen, Finkel, Manber 1988",
	.ordered = true,
	.step_count = barrier_dissemination_step_count, .step = barrier_dissemination_step,
	.scratch = barrier_dissemination_scratch, .cost = barrier_dissemination_cost,
};

static const struct collet_program *const allreduces[] = {
	&allreduce_direct, &allreduce_exchange, &allreduce_two_shot, &allreduce_ring,
};
static const struct collet_program *const broadcasts[] = { &broadcast_tree };
static const struct collet_program *const barriers[] = { &barrier_direct, &barrier_dissemination };

#define LIST(name, programs) { name, programs, sizeof(programs) / sizeof(programs[0]) }
#define NONE(name) { name, NULL, 0 }

static const struct {
	const char *name;
	const struct collet_program *const *programs;
	size_t count;
} collectives[COLLET_COLLECTIVE_COUNT] = {
	[COLLET_ALLREDUCE] = LIST("allreduce", allreduces),
	[COLLET_REDUCE] = NONE("reduce"),
	[COLLET_BROADCAST] = LIST("broadcast", broadcasts),
	[COLLET_BARRIER] = LIST("barrier", barriers),
	[COLLET_ALLGATHER] = NONE("allgather"),
	[COLLET_REDUCE_SCATTER] = NONE("reduce_scatter"),
	[COLLET_GATHER] = NONE("gather"),
	[COLLET_SCATTER] = NONE("scatter"),
	[COLLET_ALLTOALL] = NONE("alltoall"),
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
	*count = is_collective(collective) ? collectives[collective].count : 0;
	return is_collective(collective) ? collectives[collective].programs : NULL;
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

bool collet_program_fits(const struct collet_program *program, const struct collet_shape *shape)
{
	return !program->fits || program->fits(shape);
}

uint32_t collet_program_parts(const struct collet_program *program, const struct collet_shape *shape)
{
	return program->parts ? program->parts(shape) : 1;
}

uint64_t collet_program_scratch(const struct collet_program *program, const struct collet_shape *shape)
{
	return program->scratch ? program->scratch(shape) : 0;
}

struct collet_shape collet_shape_of(
	enum collet_collective collective, uint32_t rank, uint32_t size, uint32_t root, uint64_t count)
{
	const struct collet_cut even = { .kind = COLLET_CUT_EVEN, .count = count };
	const struct collet_cut blocks = { .kind = COLLET_CUT_BLOCKS, .count = count };
	struct collet_shape shape = { .rank = rank, .size = size, .root = root, .count = count, .hosts = 1 };
	switch (collective) {
	case COLLET_ALLREDUCE: case COLLET_REDUCE: case COLLET_BROADCAST: case COLLET_BARRIER:
	case COLLET_COLLECTIVE_COUNT:
		shape.input = even;
		shape.result = even;
		break;
	case COLLET_ALLGATHER: case COLLET_REDUCE_SCATTER: case COLLET_GATHER: case COLLET_SCATTER: case COLLET_ALLTOALL:
		shape.input = blocks;
		shape.result = blocks;
		break;
	}
	return shape;
}
