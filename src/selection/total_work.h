/* What all ranks of a call do together: its price where ranks share cores. There a program's critical path says little,
 * since a core that waits in one rank works in another: what counts is the sum of the work, and how often a rank must
 * give its core to the next one. */
#ifndef COLLET_SELECTION_TOTAL_WORK_H
#define COLLET_SELECTION_TOTAL_WORK_H

#include "collectives/program.h"

/* So many ranks are walked through at the most, to keep the creation of a communicator short. */
enum { COLLET_TOTAL_WORK_RANKS = 128, COLLET_TOTAL_WORK_CLASSES = 16, COLLET_TOTAL_WORK_NETWORK_RANKS = 256 };

/* Of one program and world size; lengths in units of the call's count, so that it holds for calls of any. */
struct collet_total_work {
	uint32_t class_count;
	struct {
		double counts, transfers; /* so many transfers of so long a span, to all ranks together */
	} classes[COLLET_TOTAL_WORK_CLASSES];
	double reduced_counts; /* by all ranks, of operands that came from others */
	double waiting_steps; /* steps of one rank that wait for others, at the most; 0: calls with a root, whose ranks
			    need not wait for each other from call to call */
};

/* Walks the programs of all ranks. size: at most COLLET_TOTAL_WORK_RANKS. */
void collet_total_work_count(
	struct collet_total_work *work, const struct collet_program *program, uint32_t size, uint32_t root);

/* How many counts of a call go through the link of the first host, the root's, on whichever way more do. Walks the
 * programs of its ranks, `ranks` of them; like: a shape of that world, at most COLLET_TOTAL_WORK_NETWORK_RANKS. */
double collet_network_counts(
	const struct collet_program *program, const struct collet_shape *like, uint32_t ranks);

/* The time of a call of `count` elements cut into pieces, on so many cores. */
double collet_total_work_cost(const struct collet_total_work *work, uint64_t count, size_t element_bytes,
	size_t segment_bytes, uint32_t cores, const struct collet_cost_model *model);

#endif
