/* The total work of all ranks of a call, which prices it if ranks share cores. A program's critical path then says
 * little, since a core works in one rank while another waits. The sum of the work counts, and the number of context
 * switches. */
#ifndef COLLET_SELECTION_TOTAL_WORK_H
#define COLLET_SELECTION_TOTAL_WORK_H

#include "collectives/program.h"

enum { COLLET_TOTAL_WORK_CLASSES = 16 };

/* The work of one program in one world size. Lengths are ratios to the call's element count, so it holds for calls of
 * any size. Sampled (sampled_steps.h) in large worlds. */
struct collet_total_work {
	uint32_t class_count;
	struct {
		double length_ratio, transfers; /* length of a span; number of such transfers, to all ranks together */
	} classes[COLLET_TOTAL_WORK_CLASSES];
	double reduced_ratio;  /* received operands that all ranks reduce */
	/* Greatest number of steps of one rank that wait for others. 0: calls with a root, whose ranks need not wait
	 * for each other from call to call. */
	double waiting_steps;
};

/* Walks the programs of all ranks, or of a sample of them. */
void collet_total_work_count(
	struct collet_total_work *work, const struct collet_program *program, uint32_t size, uint32_t root);

/* Returns how many elements cross the link of the first host, which is the root's, as a ratio to the call's count. The
 * busier direction counts. Walks the programs of the host's ranks, or of a sample; `ranks` is their number. like: a
 * shape of that world. */
double collet_network_ratio(
	const struct collet_program *program, const struct collet_shape *like, uint32_t ranks);

/* Returns the time of a call of `count` elements, cut into segments, on this many cores. */
double collet_total_work_cost(const struct collet_total_work *work, uint64_t count, size_t element_bytes,
	size_t segment_bytes, uint32_t cores, const struct collet_cost_model *model);

#endif
