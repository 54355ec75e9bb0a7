/* Adds up the bytes that a program's steps move and reduce. */
#include "selection/total_work.h"

#include <math.h>
#include <string.h>

#include "collectives/cost.h"

/* Large enough that remainders of partitions are negligible. */
enum { COUNT = 1 << 24 };

static void add_transfers(struct collet_total_work *work, uint64_t elements, double transfers)
{
	const double counts = (double)elements / COUNT;
	uint32_t nearest = 0;
	for (uint32_t i = 1; i < work->class_count; i++)
		if (fabs(work->classes[i].length_ratio - counts) < fabs(work->classes[nearest].length_ratio - counts))
			nearest = i;
	const bool is_new =
		work->class_count == 0 || fabs(work->classes[nearest].length_ratio - counts) > 1e-3 * counts;
	if (is_new && work->class_count < COLLET_TOTAL_WORK_CLASSES) {
		nearest = work->class_count++;
		work->classes[nearest].length_ratio = counts;
		work->classes[nearest].transfers = 0;
	}
	work->classes[nearest].transfers += transfers;
}

/* Adds what one rank receives in a step. Returns true if the rank waits. */
static bool add_step(struct collet_total_work *work, const struct collet_shape *shape, const struct collet_step *step)
{
	bool waits = false;
	for (uint32_t e = 0; e < step->source_count; e++) {
		const struct collet_buffer_range *range = &step->source[e];
		for (uint32_t i = 0; i < range->peers.count; i++) {
			const uint32_t peer = collet_peers_at(&range->peers, i, shape->size);
			if (peer == shape->rank)
				continue;
			const struct collet_partition *partition =
				collet_step_partition(shape, step->destination[0].buffer);
			const uint64_t elements = step->is_per_peer
							  ? collet_partition_chunk(partition, shape, peer).count
							  : range->span.count;
			add_transfers(work, elements, 1);
			work->reduced_ratio += step->is_reduction ? (double)elements / COUNT : 0;
			waits = true;
		}
	}
	return waits;
}

static bool has_root(enum collet_collective collective)
{
	return collective == COLLET_REDUCE || collective == COLLET_BROADCAST || collective == COLLET_GATHER ||
	       collective == COLLET_SCATTER;
}

void collet_total_work_count(
	struct collet_total_work *work, const struct collet_program *program, uint32_t size, uint32_t root)
{
	memset(work, 0, sizeof *work);
	for (uint32_t rank = 0; rank < size; rank++) {
		const struct collet_shape shape =
			collet_shape_of(program->collective, rank, size, root, (uint64_t)COUNT);
		const uint32_t parts = collet_program_part_count(program, &shape);
		double waiting_steps = 0;
		for (uint32_t part = 0; part < parts; part++) {
			const uint64_t steps = program->step_count(&shape, part);
			for (uint64_t s = 0; s < steps; s++) {
				const struct collet_step step = program->step(&shape, part, s);
				waiting_steps += add_step(work, &shape, &step);
			}
		}
		work->waiting_steps = waiting_steps > work->waiting_steps && !has_root(program->collective)
					      ? waiting_steps
					      : work->waiting_steps;
	}
}

/* Counts what passes between this rank and those from position `ranks` on. is_sent: to them, else from them. */
static double network_ratio(
	const struct collet_shape *shape, const struct collet_step *step, bool is_sent, uint32_t ranks)
{
	double counts = 0;
	const struct collet_buffer_range *ranges = is_sent ? step->destination : step->source;
	const uint32_t range_count = is_sent ? step->destination_count : step->source_count;
	const struct collet_buffer_range *local = is_sent ? &step->source[0] : &step->destination[0];
	for (uint32_t e = 0; e < range_count; e++) {
		for (uint32_t i = 0; i < ranges[e].peers.count; i++) {
			const uint32_t peer = collet_peers_at(&ranges[e].peers, i, shape->size);
			const struct collet_partition *partition = collet_step_partition(shape, local->buffer);
			const uint64_t elements = step->is_per_peer
							  ? collet_partition_chunk(partition, shape, peer).count
							  : ranges[e].span.count;
			counts += peer >= ranks ? (double)elements / COUNT : 0;
		}
	}
	return counts;
}

double collet_network_ratio(const struct collet_program *program, const struct collet_shape *like, uint32_t ranks)
{
	double sent = 0, received = 0;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		struct collet_shape shape =
			collet_shape_of(program->collective, rank, like->size, like->root, (uint64_t)COUNT);
		shape.host_count = like->host_count;
		shape.host_first = like->host_first;
		shape.order = like->order;
		const uint32_t parts = collet_program_part_count(program, &shape);
		for (uint32_t part = 0; part < parts; part++) {
			const uint64_t steps = program->step_count(&shape, part);
			for (uint64_t s = 0; s < steps; s++) {
				const struct collet_step step = program->step(&shape, part, s);
				sent += network_ratio(&shape, &step, true, ranks);
				received += network_ratio(&shape, &step, false, ranks);
			}
		}
	}
	return sent > received ? sent : received;
}

double collet_total_work_cost(const struct collet_total_work *work, uint64_t count, size_t element_bytes,
	size_t segment_bytes, uint32_t cores, const struct collet_cost_model *model)
{
	const double bytes = (double)count * (double)element_bytes;
	double sum = work->reduced_ratio * bytes * model->gamma_s;
	for (uint32_t i = 0; i < work->class_count; i++)
		sum += collet_cost_port(
			work->classes[i].transfers, work->classes[i].length_ratio * bytes, segment_bytes, model);
	return work->waiting_steps * collet_cost_latency(model) + sum / cores;
}
