/* The rows of the table of algorithms for collectives that reduce. To add an algorithm, include its file and add a
 * row. */
#include "collectives/program_lists.h"

#include "collectives/allreduce/allreduce_direct.h"
#include "collectives/allreduce/allreduce_double_tree.h"
#include "collectives/allreduce/allreduce_doubling.h"
#include "collectives/allreduce/allreduce_exchange.h"
#include "collectives/allreduce/allreduce_halves.h"
#include "collectives/allreduce/allreduce_halving_doubling.h"
#include "collectives/allreduce/allreduce_hierarchical.h"
#include "collectives/allreduce/allreduce_hierarchical_ring.h"
#include "collectives/allreduce/allreduce_ring.h"
#include "collectives/allreduce/allreduce_tree.h"
#include "collectives/allreduce/allreduce_two_shot.h"
#include "collectives/fan_in.h"
#include "collectives/reduce/reduce_chain.h"
#include "collectives/reduce/reduce_direct.h"
#include "collectives/reduce/reduce_hierarchical.h"
#include "collectives/reduce/reduce_scatter_gather.h"
#include "collectives/reduce/reduce_tree.h"
#include "collectives/reduce_scatter/reduce_scatter_bruck.h"
#include "collectives/reduce_scatter/reduce_scatter_direct.h"
#include "collectives/reduce_scatter/reduce_scatter_halves.h"
#include "collectives/reduce_scatter/reduce_scatter_halving.h"
#include "collectives/reduce_scatter/reduce_scatter_hierarchical.h"
#include "collectives/reduce_scatter/reduce_scatter_ring.h"

static const struct collet_program allreduce_direct = {
	.name = "direct",
	.collective = COLLET_ALLREDUCE,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "every rank sends all it has to every other: one latency, for the smallest messages",
	.rank_ordered = true,
	.reduces_once = true,
	.segmented = true,
	.step_count = allreduce_direct_step_count,
	.step = allreduce_direct_step,
	.cost = allreduce_direct_cost,
};

static const struct collet_program allreduce_exchange = {
	.name = "exchange",
	.collective = COLLET_ALLREDUCE,
	.source = "Rabenseifner 2004, at n = 2",
	.summary = "two ranks swap halves, add and swap back: for a world of two, all but the smallest messages",
	.rank_ordered = true,
	.reduces_once = true,
	.segmented = true,
	.step_count = allreduce_exchange_step_count,
	.step = allreduce_exchange_step,
	.cost = allreduce_exchange_cost,
	.refusal = allreduce_exchange_refusal,
	.fan_in = fan_in_one,
};

static const struct collet_program allreduce_two_shot = {
	.name = "two_shot",
	.collective = COLLET_ALLREDUCE,
	.source = "Rabenseifner 2004, with direct exchanges",
	.summary = "every rank adds up one chunk and sends it to all: for few ranks, all but the smallest messages",
	.rank_ordered = true,
	.reduces_once = true,
	.segmented = true,
	.step_count = allreduce_two_shot_step_count,
	.step = allreduce_two_shot_step,
	.cost = allreduce_two_shot_cost,
};

static const struct collet_program allreduce_tree = {
	.name = "tree",
	.collective = COLLET_ALLREDUCE,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "up a binomial tree and down again: for small messages of many ranks",
	.rank_ordered = true,
	.step_count = allreduce_tree_step_count,
	.step = allreduce_tree_step,
	.cost = allreduce_tree_cost,
	.fan_in = fan_in_children,
};

static const struct collet_program allreduce_doubling = {
	.name = "doubling",
	.collective = COLLET_ALLREDUCE,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "swaps sums with neighbours, then twice as far away, ...: for small messages that are expensive",
	.rank_ordered = true,
	.step_count = allreduce_doubling_step_count,
	.step = allreduce_doubling_step,
	.cost = allreduce_doubling_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program allreduce_halves = {
	.name = "halves",
	.collective = COLLET_ALLREDUCE,
	.source = "Karonis et al. 2000, with two flat groups",
	.summary = "adds up in each half of the ranks, then across: for many ranks on two cores",
	.rank_ordered = true,
	.segmented = true,
	.step_count = allreduce_halves_step_count,
	.step = allreduce_halves_step,
	.cost = allreduce_halves_cost,
	.refusal = collet_halves_refusal,
	.fan_in = fan_in_half,
};

static const struct collet_program allreduce_halving_doubling = {
	.name = "halving_doubling",
	.collective = COLLET_ALLREDUCE,
	.source = "Rabenseifner 2004",
	.summary = "swaps halves, quarters, eighths, then back: for medium messages, and for high latency",
	.rank_ordered = true,
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
	.rank_ordered = true,
	.step_count = allreduce_hierarchical_step_count,
	.step = allreduce_hierarchical_step,
	.cost = allreduce_hierarchical_cost,
	.fan_in = fan_in_host_children,
};

const struct collet_program collet_allreduce_inter_host = {
	.name = "hierarchical",
	.collective = COLLET_ALLREDUCE,
	.rank_ordered = true,
	.step_count = allreduce_hierarchical_inter_host_step_count,
	.step = allreduce_hierarchical_inter_host_step,
	.fan_in = fan_in_host_children,
};

static const struct collet_program allreduce_hierarchical_ring = {
	.name = "hierarchical_ring",
	.collective = COLLET_ALLREDUCE,
	.source = "Cho et al. 2019",
	.summary = "adds up on each host, goes around hosts in rings, broadcasts: for large messages of several hosts",
	.segmented = true,
	.step_count = allreduce_hierarchical_ring_step_count,
	.step = allreduce_hierarchical_ring_step,
	.cost = allreduce_hierarchical_ring_cost,
	.part_count = allreduce_hierarchical_ring_part_count,
	.fan_in = fan_in_host,
};

static const struct collet_program allreduce_double_tree = {
	.name = "double_tree",
	.collective = COLLET_ALLREDUCE,
	.source = "Sanders, Speck, Traff 2009",
	.summary = "half of the message over each of two trees, in segments: for large messages of many ranks",
	.step_count = allreduce_double_tree_step_count,
	.step = allreduce_double_tree_step,
	.cost = allreduce_double_tree_cost,
	.refusal = allreduce_double_tree_refusal,
	.part_count = allreduce_double_tree_part_count,
	.fan_in = fan_in_two,
};

static const struct collet_program allreduce_ring = {
	.name = "ring",
	.collective = COLLET_ALLREDUCE,
	.source = "Patarasuk, Yuan 2009",
	.summary = "chunks go around a ring twice, added up, then kept: the least bytes, for large messages",
	.segmented = true,
	.step_count = allreduce_ring_step_count,
	.step = allreduce_ring_step,
	.cost = allreduce_ring_cost,
	.refusal = allreduce_ring_refusal,
	.fan_in = fan_in_one,
};

static const struct collet_program reduce_direct = {
	.name = "direct",
	.collective = COLLET_REDUCE,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "every rank sends all it has to the root: for small messages of few ranks",
	.rank_ordered = true,
	.reduces_once = true,
	.step_count = reduce_direct_step_count,
	.step = reduce_direct_step,
	.cost = reduce_direct_cost,
};

static const struct collet_program reduce_tree = {
	.name = "tree",
	.collective = COLLET_REDUCE,
	.source = "Sanders, Speck, Traff 2009",
	.summary = "up a binary tree, in segments: for small and medium messages, and operations that do not commute",
	.rank_ordered = true,
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
	.rank_ordered = true,
	.step_count = reduce_hierarchical_step_count,
	.step = reduce_hierarchical_step,
	.cost = reduce_hierarchical_cost,
	.fan_in = fan_in_host,
};

const struct collet_program collet_reduce_inter_host = {
	.name = "hierarchical",
	.collective = COLLET_REDUCE,
	.rank_ordered = true,
	.step_count = reduce_hierarchical_inter_host_step_count,
	.step = reduce_hierarchical_inter_host_step,
	.fan_in = fan_in_two,
};

static const struct collet_program reduce_scatter_gather = {
	.name = "scatter_gather",
	.collective = COLLET_REDUCE,
	.source = "Rabenseifner 2004, with direct exchanges",
	.summary = "every rank adds up one chunk of all and sends it to the root: for large messages, slow to reduce",
	.rank_ordered = true,
	.reduces_once = true,
	.segmented = true,
	.step_count = reduce_scatter_gather_step_count,
	.step = reduce_scatter_gather_step,
	.cost = reduce_scatter_gather_cost,
};

static const struct collet_program reduce_chain = {
	.name = "chain",
	.collective = COLLET_REDUCE,
	.source = "Worringen 2003",
	.summary = "the sum goes from rank to rank to the root, in segments: for large messages",
	.step_count = reduce_chain_step_count,
	.step = reduce_chain_step,
	.cost = reduce_chain_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program reduce_scatter_direct = {
	.name = "direct",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "every rank sends every other its part: for few ranks, and operations that do not commute",
	.rank_ordered = true,
	.reduces_once = true,
	.segmented = true,
	.has_vector_form = true,
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
	.refusal = reduce_scatter_bruck_refusal,
	.scratch = reduce_scatter_bruck_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program reduce_scatter_halving = {
	.name = "halving",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Thakur, Rabenseifner, Gropp 2005; Traff 2005",
	.summary = "swaps sums for the other half, quarter, eighth of the ranks: for small and medium messages",
	.step_count = reduce_scatter_halving_step_count,
	.step = reduce_scatter_halving_step,
	.cost = reduce_scatter_halving_cost,
	.refusal = reduce_scatter_halving_refusal,
	.scratch = reduce_scatter_halving_scratch,
	.fan_in = fan_in_two,
};

static const struct collet_program reduce_scatter_halves = {
	.name = "halves",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Karonis et al. 2000, with two groups",
	.summary = "one rank of each half adds up, exchanges with the other, scatters: for ranks that share two cores",
	.rank_ordered = true,
	.step_count = reduce_scatter_halves_step_count,
	.step = reduce_scatter_halves_step,
	.cost = reduce_scatter_halves_cost,
	.refusal = reduce_scatter_halves_refusal,
	.scratch = reduce_scatter_halves_scratch,
	.fan_in = fan_in_half,
};

static const struct collet_program reduce_scatter_ring = {
	.name = "ring",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Patarasuk, Yuan 2009",
	.summary = "blocks go around a ring, added up: between neighbours only, for large messages",
	.segmented = true,
	.has_vector_form = true,
	.step_count = reduce_scatter_ring_step_count,
	.step = reduce_scatter_ring_step,
	.cost = reduce_scatter_ring_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program reduce_scatter_hierarchical = {
	.name = "hierarchical",
	.collective = COLLET_REDUCE_SCATTER,
	.source = "Cho et al. 2019, with one leader a host",
	.summary = "adds up on each host, blocks go around hosts: for several hosts with several ranks each",
	.segmented = true,
	.step_count = reduce_scatter_hierarchical_step_count,
	.step = reduce_scatter_hierarchical_step,
	.cost = reduce_scatter_hierarchical_cost,
	.fan_in = fan_in_host,
};

const struct collet_program collet_reduce_scatter_inter_host = {
	.name = "hierarchical",
	.collective = COLLET_REDUCE_SCATTER,
	.segmented = true,
	.step_count = reduce_scatter_hierarchical_inter_host_step_count,
	.step = reduce_scatter_hierarchical_inter_host_step,
	.fan_in = fan_in_one,
};

static const struct collet_program *const allreduce_programs[] = {
	&allreduce_direct,
	&allreduce_exchange,
	&allreduce_two_shot,
	&allreduce_tree,
	&allreduce_doubling,
	&allreduce_halves,
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
static const struct collet_program *const reduce_scatter_programs[] = {
	&reduce_scatter_direct,
	&reduce_scatter_bruck,
	&reduce_scatter_halving,
	&reduce_scatter_halves,
	&reduce_scatter_hierarchical,
	&reduce_scatter_ring,
};

const struct collet_program_list collet_allreduce_programs = PROGRAM_LIST(allreduce_programs);
const struct collet_program_list collet_reduce_programs = PROGRAM_LIST(reduce_programs);
const struct collet_program_list collet_reduce_scatter_programs = PROGRAM_LIST(reduce_scatter_programs);
