/* The rows of the table of algorithms for collectives that only move data, and for barriers. To add an algorithm,
 * include its file and add a row. */
#include "collectives/program_lists.h"

#include "collectives/allgather/allgather_bruck.h"
#include "collectives/allgather/allgather_direct.h"
#include "collectives/allgather/allgather_doubling.h"
#include "collectives/allgather/allgather_halves.h"
#include "collectives/allgather/allgather_hierarchical.h"
#include "collectives/allgather/allgather_ring.h"
#include "collectives/alltoall/alltoall_bruck.h"
#include "collectives/alltoall/alltoall_direct.h"
#include "collectives/alltoall/alltoall_pairwise.h"
#include "collectives/barrier/barrier_direct.h"
#include "collectives/barrier/barrier_dissemination.h"
#include "collectives/barrier/barrier_halves.h"
#include "collectives/barrier/barrier_hierarchical.h"
#include "collectives/broadcast/broadcast_chain.h"
#include "collectives/broadcast/broadcast_direct.h"
#include "collectives/broadcast/broadcast_hierarchical.h"
#include "collectives/broadcast/broadcast_scatter_allgather.h"
#include "collectives/broadcast/broadcast_tree.h"
#include "collectives/fan_in.h"
#include "collectives/gather/gather_direct.h"
#include "collectives/gather/gather_tree.h"
#include "collectives/scatter/scatter_direct.h"
#include "collectives/scatter/scatter_tree.h"

static const struct collet_program broadcast_direct = {
	.name = "direct",
	.collective = COLLET_BROADCAST,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "the root sends everything to every other rank: for small messages of few ranks",
	.rank_ordered = true,
	.step_count = broadcast_direct_step_count,
	.step = broadcast_direct_step,
	.cost = broadcast_direct_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program broadcast_tree = {
	.name = "tree",
	.collective = COLLET_BROADCAST,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "down a binomial tree, in segments: for small messages of many ranks",
	.rank_ordered = true,
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
	.rank_ordered = true,
	.segmented = true,
	.step_count = broadcast_hierarchical_step_count,
	.step = broadcast_hierarchical_step,
	.cost = broadcast_hierarchical_cost,
	.fan_in = fan_in_one,
};

const struct collet_program collet_broadcast_inter_host = {
	.name = "hierarchical",
	.collective = COLLET_BROADCAST,
	.rank_ordered = true,
	.segmented = true,
	.step_count = broadcast_hierarchical_inter_host_step_count,
	.step = broadcast_hierarchical_inter_host_step,
	.fan_in = fan_in_one,
};

static const struct collet_program broadcast_scatter_allgather = {
	.name = "scatter_allgather",
	.collective = COLLET_BROADCAST,
	.source = "van de Geijn 1994",
	.summary = "the root scatters chunks, which go around a ring: for large messages, with few segments",
	.rank_ordered = true,
	.segmented = true,
	.step_count = broadcast_scatter_allgather_step_count,
	.step = broadcast_scatter_allgather_step,
	.cost = broadcast_scatter_allgather_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program broadcast_chain = {
	.name = "chain",
	.collective = COLLET_BROADCAST,
	.source = "Worringen 2003",
	.summary = "passed on from rank to rank, in segments: for large messages",
	.rank_ordered = true,
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
	.rank_ordered = true,
	.step_count = barrier_direct_step_count,
	.step = barrier_direct_step,
	.cost = barrier_direct_cost,
};

static const struct collet_program barrier_dissemination = {
	.name = "dissemination",
	.collective = COLLET_BARRIER,
	.source = "Hensgen, Finkel, Manber 1988",
	.summary = "tells ranks 1, 2, 4, ... further on who has arrived: for many ranks",
	.rank_ordered = true,
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
	.rank_ordered = true,
	.step_count = barrier_hierarchical_step_count,
	.step = barrier_hierarchical_step,
	.cost = barrier_hierarchical_cost,
	.scratch = barrier_hierarchical_scratch,
	.fan_in = fan_in_host,
};

static const struct collet_program barrier_halves = {
	.name = "halves",
	.collective = COLLET_BARRIER,
	.source = "Karonis et al. 2000, with two groups",
	.summary = "one rank of each half gathers it, tells the other, releases it: for ranks that share two cores",
	.rank_ordered = true,
	.step_count = barrier_halves_step_count,
	.step = barrier_halves_step,
	.cost = barrier_halves_cost,
	.refusal = collet_halves_refusal,
	.scratch = barrier_halves_scratch,
	.fan_in = fan_in_half,
};

static const struct collet_program allgather_direct = {
	.name = "direct",
	.collective = COLLET_ALLGATHER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "every rank sends its block to every other: for few ranks, or where messages are cheap",
	.rank_ordered = true,
	.segmented = true,
	.has_vector_form = true,
	.step_count = allgather_direct_step_count,
	.step = allgather_direct_step,
	.cost = allgather_direct_cost,
};

static const struct collet_program allgather_bruck = {
	.name = "bruck",
	.collective = COLLET_ALLGATHER,
	.source = "Bruck et al. 1997",
	.summary = "passes on 1, 2, 4, ... blocks, in log2(n) rounds for any n: for small messages",
	.rank_ordered = true,
	.step_count = allgather_bruck_step_count,
	.step = allgather_bruck_step,
	.cost = allgather_bruck_cost,
	.refusal = allgather_bruck_refusal,
	.fan_in = fan_in_one,
};

static const struct collet_program allgather_doubling = {
	.name = "doubling",
	.collective = COLLET_ALLGATHER,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "swaps 1, 2, 4, ... blocks between halves of the ranks: for small and medium messages",
	.rank_ordered = true,
	.step_count = allgather_doubling_step_count,
	.step = allgather_doubling_step,
	.cost = allgather_doubling_cost,
	.refusal = allgather_doubling_refusal,
	.fan_in = fan_in_one,
};

static const struct collet_program allgather_halves = {
	.name = "halves",
	.collective = COLLET_ALLGATHER,
	.source = "Karonis et al. 2000, with two groups",
	.summary = "one rank of each half gathers, exchanges, broadcasts all: for ranks that share two cores",
	.rank_ordered = true,
	.step_count = allgather_halves_step_count,
	.step = allgather_halves_step,
	.cost = allgather_halves_cost,
	.refusal = allgather_halves_refusal,
	.fan_in = fan_in_half,
};

static const struct collet_program allgather_ring = {
	.name = "ring",
	.collective = COLLET_ALLGATHER,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "blocks go around a ring: between neighbours only, for large messages",
	.rank_ordered = true,
	.segmented = true,
	.has_vector_form = true,
	.step_count = allgather_ring_step_count,
	.step = allgather_ring_step,
	.cost = allgather_ring_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program allgather_hierarchical = {
	.name = "hierarchical",
	.collective = COLLET_ALLGATHER,
	.source = "Karonis et al. 2000, with a ring between hosts",
	.summary = "gathers on each host, blocks go around hosts: for several hosts with several ranks each",
	.rank_ordered = true,
	.segmented = true,
	.has_vector_form = true,
	.step_count = allgather_hierarchical_step_count,
	.step = allgather_hierarchical_step,
	.cost = allgather_hierarchical_cost,
	.fan_in = fan_in_one,
};

const struct collet_program collet_allgather_inter_host = {
	.name = "hierarchical",
	.collective = COLLET_ALLGATHER,
	.rank_ordered = true,
	.segmented = true,
	.has_vector_form = true,
	.step_count = allgather_hierarchical_inter_host_step_count,
	.step = allgather_hierarchical_inter_host_step,
	.fan_in = fan_in_one,
};

static const struct collet_program gather_direct = {
	.name = "direct",
	.collective = COLLET_GATHER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "every rank sends its block to the root: for all but the smallest blocks",
	.rank_ordered = true,
	.has_vector_form = true,
	.step_count = gather_direct_step_count,
	.step = gather_direct_step,
	.cost = gather_direct_cost,
};

static const struct collet_program gather_tree = {
	.name = "tree",
	.collective = COLLET_GATHER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "blocks are collected up a binomial tree: for small blocks of many ranks",
	.rank_ordered = true,
	.step_count = gather_tree_step_count,
	.step = gather_tree_step,
	.cost = gather_tree_cost,
	.refusal = gather_tree_refusal,
	.scratch = gather_tree_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program scatter_direct = {
	.name = "direct",
	.collective = COLLET_SCATTER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "the root sends every rank its block: for all but the smallest blocks",
	.rank_ordered = true,
	.has_vector_form = true,
	.step_count = scatter_direct_step_count,
	.step = scatter_direct_step,
	.cost = scatter_direct_cost,
	.fan_in = fan_in_one,
};

static const struct collet_program scatter_tree = {
	.name = "tree",
	.collective = COLLET_SCATTER,
	.source = "Chan, Heimlich, Purkayastha, van de Geijn 2007",
	.summary = "blocks are distributed down a binomial tree: for small blocks of many ranks",
	.rank_ordered = true,
	.step_count = scatter_tree_step_count,
	.step = scatter_tree_step,
	.cost = scatter_tree_cost,
	.refusal = scatter_tree_refusal,
	.scratch = scatter_tree_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program alltoall_direct = {
	.name = "direct",
	.collective = COLLET_ALLTOALL,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "every rank sends every other its block at once: for small and medium blocks",
	.rank_ordered = true,
	.step_count = alltoall_direct_step_count,
	.step = alltoall_direct_step,
	.cost = alltoall_direct_cost,
};

static const struct collet_program alltoall_bruck = {
	.name = "bruck",
	.collective = COLLET_ALLTOALL,
	.source = "Bruck et al. 1997",
	.summary = "blocks move by the bits of their distance, in log2(n) rounds: for small blocks of many ranks",
	.rank_ordered = true,
	.step_count = alltoall_bruck_step_count,
	.step = alltoall_bruck_step,
	.next_message = alltoall_bruck_next_message,
	.cost = alltoall_bruck_cost,
	.refusal = alltoall_bruck_refusal,
	.scratch = alltoall_bruck_scratch,
	.fan_in = fan_in_one,
};

static const struct collet_program alltoall_pairwise = {
	.name = "pairwise",
	.collective = COLLET_ALLTOALL,
	.source = "Thakur, Rabenseifner, Gropp 2005",
	.summary = "one partner at a time, as in a tournament: for large blocks, and v-forms",
	.rank_ordered = true,
	.has_vector_form = true,
	.step_count = alltoall_pairwise_step_count,
	.step = alltoall_pairwise_step,
	.cost = alltoall_pairwise_cost,
	.fan_in = fan_in_one,
};

/* Best for small messages first. */

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
	&barrier_halves,
};
static const struct collet_program *const allgather_programs[] = {
	&allgather_direct,
	&allgather_bruck,
	&allgather_doubling,
	&allgather_halves,
	&allgather_hierarchical,
	&allgather_ring,
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

const struct collet_program_list collet_broadcast_programs = PROGRAM_LIST(broadcast_programs);
const struct collet_program_list collet_barrier_programs = PROGRAM_LIST(barrier_programs);
const struct collet_program_list collet_allgather_programs = PROGRAM_LIST(allgather_programs);
const struct collet_program_list collet_gather_programs = PROGRAM_LIST(gather_programs);
const struct collet_program_list collet_scatter_programs = PROGRAM_LIST(scatter_programs);
const struct collet_program_list collet_alltoall_programs = PROGRAM_LIST(alltoall_programs);
