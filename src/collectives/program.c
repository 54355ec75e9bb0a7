/* The table of algorithms, by collective. An algorithm is added by including its file and adding a row. */
#include "collectives/program.h"

#include <string.h>

#include "collectives/allgather_bruck.h"
#include "collectives/allgather_direct.h"
#include "collectives/allgather_doubling.h"
#include "collectives/allgather_ring.h"
#include "collectives/allreduce_direct.h"
#include "collectives/allreduce_double_tree.h"
#include "collectives/allreduce_doubling.h"
#include "collectives/allreduce_exchange.h"
#include "collectives/allreduce_halving_doubling.h"
#include "collectives/allreduce_hierarchical.h"
#include "collectives/allreduce_hierarchical_ring.h"
#include "collectives/allreduce_ring.h"
#include "collectives/allreduce_tree.h"
#include "collectives/allreduce_two_shot.h"
#include "collectives/alltoall_bruck.h"
#include "collectives/alltoall_direct.h"
#include "collectives/alltoall_pairwise.h"
#include "collectives/barrier_direct.h"
#include "collectives/barrier_dissemination.h"
#include "collectives/barrier_hierarchical.h"
#include "collectives/broadcast_chain.h"
#include "collectives/broadcast_direct.h"
#include "collectives/broadcast_hierarchical.h"
#include "collectives/broadcast_scatter_allgather.h"
#include "collectives/broadcast_tree.h"
#include "collectives/gather_direct.h"
#include "collectives/gather_tree.h"
#include "collectives/reduce_chain.h"
#include "collectives/reduce_direct.h"
#include "collectives/reduce_hierarchical.h"
#include "collectives/reduce_scatter_bruck.h"
#include "collectives/reduce_scatter_direct.h"
#include "collectives/reduce_scatter_gather.h"
#include "collectives/reduce_scatter_halving.h"
#include "collectives/reduce_scatter_ring.h"
#include "collectives/reduce_tree.h"
#include "collectives/scatter_direct.h"
#include "collectives/scatter_tree.h"

/* How many remote operands a step has at most. */
static uint32_t fan_in_one(const struct collet_shape *shape)
{
	(void)shape;
	return 1;
}

static uint32_t fan_in_two(const struct collet_shape *shape)
{
	(void)shape;
	return 2;
}

static uint32_t fan_in_children(const struct collet_shape *shape)
{
	return shape->size > 2 ? collet_log2_ceil(shape->size) : 1;
}

static uint32_t fan_in_host_children(const struct collet_shape *shape)
{
	const uint32_t fullest = collet_host_fullest(shape);
	return fullest > 2 ? collet_log2_ceil(fullest) : 1;
}

/* The ranks of a host, and two other hosts' leaders. */
static uint32_t fan_in_host(const struct collet_shape *shape)
{
	return collet_host_fullest(shape) + 1;
}

static const struct collet_program allreduce_direct = {
	.name = "direct",
	.collective = COLLET_ALLREDUCE,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "every rank sends all it has to every other: one latency, for the smallest messages",
	.ordered = true,
	.sliced = true,
	.step_count = allreduce_direct_step_count,
	.step = allreduce_direct_step,
	.cost = allreduce_direct_cost,
};

static const struct collet_program allreduce_exchange = {
	.name = "exchange",
	.collective = COLLET_ALLREDUCE,
	.source = "Rabenseifner 2004, at n = 2",
	.summary = "two ranks swap halves, add and swap back: for a world of two, all but the smallest messages",
	.ordered = true,
	.sliced = true,
	.step_count = allreduce_exchange_step_count,
	.step = allreduce_exchange_step,
	.cost = allreduce_exchange_cost,
	.fits = allreduce_exchange_fits,
	.fan_in = fan_in_one,
};

static const struct collet_program allreduce_two_shot = {
	.name = "two_shot",
	.collective = COLLET_ALLREDUCE,
	.source = "Rabenseifner 2004, with direct exchanges",
	.summary = "every rank adds up one chunk and sends it to all: for few ranks, all but the smallest messages",
	.ordered = true,
	.sliced = true,
	.step_count = allreduce_two_shot_step_count,
	.step = allreduce_two_shot_step,
	.cost = allreduce_two_shot_cost,
};

static const struct collet_program allreduce_tree = {
	.name = "tree",
	.collective = COLLET_ALLREDUCE,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "up a binomial tree and down again: for small messages of many ranks",
	.ordered = true,
	.step_count = allreduce_tree_step_count,
	.step = allreduce_tree_step,
	.cost = allreduce_tree_cost,
	.fan_in = fan_in_children,
};

static const struct collet_program allreduce_doubling = {
	.name = "doubling",
	.collective = COLLET_ALLREDUCE,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "swaps sums with neighbours, then twice as far away, ...: for small messages where each one is dear",
	.ordered = true,
	.step_count = allreduce_doubling_step_count,
	.step = allreduce_doubling_step,
	.cost = allreduce_doubling_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program allreduce_halving_doubling = {
	.name = "halving_doubling",
	.collective = COLLET_ALLREDUCE,
	.source = "Rabenseifner 2004",
	.summary = "swaps halves, quarters, eighths, then back: for middling messages, and where latency is dear",
	.ordered = true,
	.step_count = allreduce_halving_doubling_step_count,
	.step = allreduce_halving_doubling_step,
	.cost = allreduce_halving_doubling_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program allreduce_hierarchical = {
	.name = "hierarchical",
	.collective = COLLET_ALLREDUCE,
	.source = "Karonis et al. 2000",
	.summary = "adds up on each host, then between hosts: for several hosts with several ranks each",
	.ordered = true,
	.step_count = allreduce_hierarchical_step_count,
	.step = allreduce_hierarchical_step,
	.cost = allreduce_hierarchical_cost,
	.fan_in = fan_in_host_children,
};

static const struct collet_program allreduce_hierarchical_ring = {
	.name = "hierarchical_ring",
	.collective = COLLET_ALLREDUCE,
	.source = "Cho et al. 2019",
	.summary = "adds up on each host, goes round hosts in rings, hands out: for big messages of several hosts",
	.sliced = true,
	.step_count = allreduce_hierarchical_ring_step_count,
	.step = allreduce_hierarchical_ring_step,
	.cost = allreduce_hierarchical_ring_cost,
	.parts = allreduce_hierarchical_ring_parts,
	.fan_in = fan_in_host,
};

static const struct collet_program allreduce_double_tree = {
	.name = "double_tree",
	.collective = COLLET_ALLREDUCE,
	.source = "Sanders, Speck, Traff 2009",
	.summary = "half of the message over each of two trees, in pieces: for big messages of many ranks",
	.step_count = allreduce_double_tree_step_count,
	.step = allreduce_double_tree_step,
	.cost = allreduce_double_tree_cost,
	.fits = allreduce_double_tree_fits,
	.parts = allreduce_double_tree_parts,
	.fan_in = fan_in_two,
};

static const struct collet_program allreduce_ring = {
	.name = "ring",
	.collective = COLLET_ALLREDUCE,
	.source = "Patarasuk, Yuan 2009",
	.summary = "chunks go round a ring twice, added up, then kept: the least bytes, for big messages",
	.sliced = true,
	.step_count = allreduce_ring_step_count,
	.step = allreduce_ring_step,
	.cost = allreduce_ring_cost,
	.fits = allreduce_ring_fits,
	.fan_in = fan_in_one,
};

static const struct collet_program reduce_direct = {
	.name = "direct",
	.collective = COLLET_REDUCE,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "every rank sends all it has to the root: for small messages of few ranks",
	.ordered = true,
	.step_count = reduce_direct_step_count,
	.step = reduce_direct_step,
	.cost = reduce_direct_cost,
};

static const struct collet_program reduce_tree = {
	.name = "tree",
	.collective = COLLET_REDUCE,
	.source = "Sanders, Speck, Traff 2009",
	.summary = "up a binary tree, in pieces: for small and middling messages, and operations that do not commute",
	.ordered = true,
	.step_count = reduce_tree_step_count,
	.step = reduce_tree_step,
	.cost = reduce_tree_cost,
	.fan_in = fan_in_two,
};

static const struct collet_program reduce_hierarchical = {
	.name = "hierarchical",
	.collective = COLLET_REDUCE,
	.source = "Karonis et al. 2000",
	.summary = "adds up on each host, then up a tree of hosts: for several hosts with several ranks each",
	.ordered = true,
	.step_count = reduce_hierarchical_step_count,
	.step = reduce_hierarchical_step,
	.cost = reduce_hierarchical_cost,
	.fan_in = fan_in_host,
};

static const struct collet_program reduce_scatter_gather = {
	.name = "scatter_gather",
	.collective = COLLET_REDUCE,
	.source = "Rabenseifner 2004, with direct exchanges",
	.summary = "every rank adds up one chunk of all and sends it to the root: for big messages dear to add up",
	.ordered = true,
	.sliced = true,
	.step_count = reduce_scatter_gather_step_count,
	.step = reduce_scatter_gather_step,
	.cost = reduce_scatter_gather_cost,
};

static const struct collet_program reduce_chain = {
	.name = "chain",
	.collective = COLLET_REDUCE,
	.source = "Worringen 2003",
	.summary = "the sum goes from rank to rank to the root, in pieces: for big messages",
	.step_count = reduce_chain_step_count,
	.step = reduce_chain_step,
	.cost = reduce_chain_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program broadcast_direct = {
	.name = "direct",
	.collective = COLLET_BROADCAST,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "the root sends everything to every other rank: for small messages of few ranks",
	.ordered = true,
	.step_count = broadcast_direct_step_count,
	.step = broadcast_direct_step,
	.cost = broadcast_direct_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program broadcast_tree = {
	.name = "tree",
	.collective = COLLET_BROADCAST,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "down a binomial tree, in pieces: for small messages of many ranks",
	.ordered = true,
	.step_count = broadcast_tree_step_count,
	.step = broadcast_tree_step,
	.cost = broadcast_tree_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program broadcast_hierarchical = {
	.name = "hierarchical",
	.collective = COLLET_BROADCAST,
	.source = "Karonis et al. 2000",
	.summary = "down a tree of hosts, and to all ranks of each: for several hosts with several ranks each",
	.ordered = true,
	.sliced = true,
	.step_count = broadcast_hierarchical_step_count,
	.step = broadcast_hierarchical_step,
	.cost = broadcast_hierarchical_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program broadcast_scatter_allgather = {
	.name = "scatter_allgather",
	.collective = COLLET_BROADCAST,
	.source = "van de Geijn 1994",
	.summary = "the root deals out chunks, which go round a ring: for big messages, with few pieces",
	.ordered = true,
	.sliced = true,
	.step_count = broadcast_scatter_allgather_step_count,
	.step = broadcast_scatter_allgather_step,
	.cost = broadcast_scatter_allgather_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program broadcast_chain = {
	.name = "chain",
	.collective = COLLET_BROADCAST,
	.source = "Worringen 2003",
	.summary = "passed on from rank to rank, in pieces: for big messages",
	.ordered = true,
	.step_count = broadcast_chain_step_count,
	.step = broadcast_chain_step,
	.cost = broadcast_chain_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program barrier_direct = {
	.name = "direct",
	.collective = COLLET_BARRIER,
	.source = "all-to-all barrier of any textbook",
	.summary = "an empty message to every other rank: one latency, for few ranks",
	.ordered = true,
	.step_count = barrier_direct_step_count,
	.step = barrier_direct_step,
	.cost = barrier_direct_cost,
};

static const struct collet_program barrier_dissemination = {
	.name = "dissemination",
	.collective = COLLET_BARRIER,
	.source = "Hensgen, Finkel, Manber 1988",
	.summary = "tells ranks 1, 2, 4, ... further on who has come: for many ranks",
	.ordered = true,
	.step_count = barrier_dissemination_step_count,
	.step = barrier_dissemination_step,
	.cost = barrier_dissemination_cost,
	.scratch = barrier_dissemination_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program barrier_hierarchical = {
	.name = "hierarchical",
	.collective = COLLET_BARRIER,
	.source = "Hensgen, Finkel, Manber 1988, between hosts",
	.summary = "each host by itself, then hosts 1, 2, 4, ... further on: for several hosts with several ranks each",
	.ordered = true,
	.step_count = barrier_hierarchical_step_count,
	.step = barrier_hierarchical_step,
	.cost = barrier_hierarchical_cost,
	.scratch = barrier_hierarchical_scratch,
	.fan_in = fan_in_host,
};

static const struct collet_program allgather_direct = {
	.name = "direct",
	.collective = COLLET_ALLGATHER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "every rank sends its block to every other: for few ranks, or where a message costs little",
	.ordered = true,
	.sliced = true,
	.listed = true,
	.step_count = allgather_direct_step_count,
	.step = allgather_direct_step,
	.cost = allgather_direct_cost,
};

static const struct collet_program allgather_bruck = {
	.name = "bruck",
	.collective = COLLET_ALLGATHER,
	.source = "Bruck et al. 1997",
	.summary = "hands on 1, 2, 4, ... blocks, in log2(n) rounds for any n: for small messages",
	.ordered = true,
	.step_count = allgather_bruck_step_count,
	.step = allgather_bruck_step,
	.cost = allgather_bruck_cost,
	.fits = allgather_bruck_fits,
	.fan_in = fan_in_one,
};

static const struct collet_program allgather_doubling = {
	.name = "doubling",
	.collective = COLLET_ALLGATHER,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "swaps 1, 2, 4, ... blocks between halves of the ranks: for small and middling messages",
	.ordered = true,
	.step_count = allgather_doubling_step_count,
	.step = allgather_doubling_step,
	.cost = allgather_doubling_cost,
	.fits = allgather_doubling_fits,
	.fan_in = fan_in_one,
};

static const struct collet_program allgather_ring = {
	.name = "ring",
	.collective = COLLET_ALLGATHER,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "blocks go round a ring: nothing but neighbours, for big messages",
	.ordered = true,
	.sliced = true,
	.listed = true,
	.step_count = allgather_ring_step_count,
	.step = allgather_ring_step,
	.cost = allgather_ring_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program reduce_scatter_direct = {
	.name = "direct",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "every rank sends every other its part: for few ranks, and operations that do not commute",
	.ordered = true,
	.sliced = true,
	.step_count = reduce_scatter_direct_step_count,
	.step = reduce_scatter_direct_step,
	.cost = reduce_scatter_direct_cost,
};

static const struct collet_program reduce_scatter_bruck = {
	.name = "bruck",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Bruck et al. 1997, backwards: Traff 2024",
	.summary = "sums for half of the distances at a time, in log2(n) rounds for any n: for small messages",
	.step_count = reduce_scatter_bruck_step_count,
	.step = reduce_scatter_bruck_step,
	.cost = reduce_scatter_bruck_cost,
	.fits = reduce_scatter_bruck_fits,
	.scratch = reduce_scatter_bruck_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program reduce_scatter_halving = {
	.name = "halving",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Thakur, Rabenseifner, Gropp 2005; Traff 2005",
	.summary = "swaps sums for the other half, quarter, eighth of the ranks: for small and middling messages",
	.step_count = reduce_scatter_halving_step_count,
	.step = reduce_scatter_halving_step,
	.cost = reduce_scatter_halving_cost,
	.fits = reduce_scatter_halving_fits,
	.scratch = reduce_scatter_halving_scratch,
	.fan_in = fan_in_two,
};

static const struct collet_program reduce_scatter_ring = {
	.name = "ring",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Patarasuk, Yuan 2009",
	.summary = "blocks go round a ring, added up: nothing but neighbours, for big messages",
	.sliced = true,
	.step_count = reduce_scatter_ring_step_count,
	.step = reduce_scatter_ring_step,
	.cost = reduce_scatter_ring_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program gather_direct = {
	.name = "direct",
	.collective = COLLET_GATHER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "every rank sends its block to the root: for all but the smallest blocks",
	.ordered = true,
	.listed = true,
	.step_count = gather_direct_step_count,
	.step = gather_direct_step,
	.cost = gather_direct_cost,
};

static const struct collet_program gather_tree = {
	.name = "tree",
	.collective = COLLET_GATHER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "blocks are collected up a binomial tree: for small blocks of many ranks",
	.ordered = true,
	.step_count = gather_tree_step_count,
	.step = gather_tree_step,
	.cost = gather_tree_cost,
	.fits = gather_tree_fits,
	.scratch = gather_tree_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program scatter_direct = {
	.name = "direct",
	.collective = COLLET_SCATTER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "the root sends every rank its block: for all but the smallest blocks",
	.ordered = true,
	.listed = true,
	.step_count = scatter_direct_step_count,
	.step = scatter_direct_step,
	.cost = scatter_direct_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program scatter_tree = {
	.name = "tree",
	.collective = COLLET_SCATTER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "blocks are handed out down a binomial tree: for small blocks of many ranks",
	.ordered = true,
	.step_count = scatter_tree_step_count,
	.step = scatter_tree_step,
	.cost = scatter_tree_cost,
	.fits = scatter_tree_fits,
	.scratch = scatter_tree_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program alltoall_direct = {
	.name = "direct",
	.collective = COLLET_ALLTOALL,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "every rank sends every other its block at once: for small and middling blocks",
	.ordered = true,
	.step_count = alltoall_direct_step_count,
	.step = alltoall_direct_step,
	.cost = alltoall_direct_cost,
};

static const struct collet_program alltoall_bruck = {
	.name = "bruck",
	.collective = COLLET_ALLTOALL,
	.source = "Bruck et al. 1997",
	.summary = "blocks travel by the bits of their distance, in log2(n) rounds: for small blocks of many ranks",
	.ordered = true,
	.step_count = alltoall_bruck_step_count,
	.step = alltoall_bruck_step,
	.cost = alltoall_bruck_cost,
	.fits = alltoall_bruck_fits,
	.scratch = alltoall_bruck_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program alltoall_pairwise = {
	.name = "pairwise",
	.collective = COLLET_ALLTOALL,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "one partner at a time, as in a tournament: for big blocks, and v-forms",
	.ordered = true,
	.listed = true,
	.step_count = alltoall_pairwise_step_count,
	.step = alltoall_pairwise_step,
	.cost = alltoall_pairwise_cost,
	.fan_in = fan_in_one,
};

/* Best for small messages first. */
static const struct collet_program *const allreduce_programs[] = {
	&allreduce_direct,
	&allreduce_exchange,
	&allreduce_two_shot,
	&allreduce_tree,
	&allreduce_doubling,
	&allreduce_halving_doubling,
	&allreduce_hierarchical,
	&allreduce_double_tree,
	&allreduce_ring,
	&allreduce_hierarchical_ring,
};
static const struct collet_program *const reduce_programs[] = {
	&reduce_direct,
	&reduce_tree,
	&reduce_hierarchical,
	&reduce_scatter_gather,
	&reduce_chain,
};
static const struct collet_program *const broadcast_programs[] = {
	&broadcast_direct,
	&broadcast_tree,
	&broadcast_hierarchical,
	&broadcast_scatter_allgather,
	&broadcast_chain,
};
static const struct collet_program *const barrier_programs[] = {
	&barrier_direct,
	&barrier_dissemination,
	&barrier_hierarchical,
};
static const struct collet_program *const allgather_programs[] = {
	&allgather_direct,
	&allgather_bruck,
	&allgather_doubling,
	&allgather_ring,
};
static const struct collet_program *const reduce_scatter_programs[] = {
	&reduce_scatter_direct,
	&reduce_scatter_bruck,
	&reduce_scatter_halving,
	&reduce_scatter_ring,
};
static const struct collet_program *const gather_programs[] = {
	&gather_direct,
	&gather_tree,
};
static const struct collet_program *const scatter_programs[] = {
	&scatter_direct,
	&scatter_tree,
};
static const struct collet_program *const alltoall_programs[] = {
	&alltoall_direct,
	&alltoall_bruck,
	&alltoall_pairwise,
};

#define LIST(collective)                                                                                               \
	{                                                                                                              \
#collective, collective##_programs, sizeof(collective##_programs) / sizeof(collective##_programs[0])   \
	}

static const struct {
	const char *name;
	const struct collet_program *const *programs;
	size_t count;
} collectives[COLLET_COLLECTIVE_COUNT] = {
	[COLLET_ALLREDUCE] = LIST(allreduce),
	[COLLET_REDUCE] = LIST(reduce),
	[COLLET_BROADCAST] = LIST(broadcast),
	[COLLET_BARRIER] = LIST(barrier),
	[COLLET_ALLGATHER] = LIST(allgather),
	[COLLET_REDUCE_SCATTER] = LIST(reduce_scatter),
	[COLLET_GATHER] = LIST(gather),
	[COLLET_SCATTER] = LIST(scatter),
	[COLLET_ALLTOALL] = LIST(alltoall),
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

uint32_t collet_program_number(const struct collet_program *program)
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
	const struct collet_cut even = {.kind = COLLET_CUT_EVEN, .count = count};
	const struct collet_cut blocks = {.kind = COLLET_CUT_BLOCKS, .count = count};
	struct collet_shape shape = {.rank = rank, .size = size, .root = root, .count = count, .hosts = 1};
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
