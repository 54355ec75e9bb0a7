/* Adding up what a program's steps move and combine. */
#include "selection/total_work.h"

#include <math.h>
#include <string.h>

#include "collectives/cost.h"

/* Long enough for the remainders of all cuts to vanish. */
enum { COUNT = 1 << 24 };

static void add_transfers(struct collet_work *work, uint64_t elements, double transfers)
{
	const double counts = (double)elements / COUNT;
	uint32_t nearest = 0;
	for (uint32_t i = 1; i < work->lengths; i++)
		if (fabs(work->length[i].counts - counts) < fabs(work->length[nearest].counts - counts))
			nearest = i;
	const bool is_new = work->lengths == 0 || fabs(work->length[nearest].counts - counts) > 1e-3 * counts;
	if (is_new && work->lengths < COLLET_WORK_LENGTHS) {
		nearest = work->lengths++;
		work->length[nearest].counts = counts;
		work->length[nearest].transfers = 0;
	}
	work->length[nearest].transfers += transfers;
}

/* What one rank receives in a step. True: it waits. */
static bool add_step(struct collet_work *work, const struct collet_shape *shape, const struct collet_step *step)
{
	bool waits = false;
	for (uint32_t e = 0; e < step->source_count; e++) {
		const struct collet_end *end = &step->source[e];
		for (uint32_t i = 0; i < end->peers.count; i++) {
			const uint32_t peer = collet_peers_at(&end->peers, i, shape->size);
			if (peer == shape->rank)
				continue;
			const struct collet_cut *cut = collet_step_cut(shape, step->destination[0].buffer);
			const uint64_t elements =
				step->per_peer ? collet_cut_chunk(cut, shape, peer).count : end->span.count;
			add_transfers(work, elements, 1);
			work->combined += step->reduce ? (double)elements / COUNT : 0;
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

void collet_work_count(struct collet_work *work, const struct collet_program *program, uint32_t size, uint32_t root)
{
	memset(work, 0, sizeof *work);
	for (uint32_t rank = 0; rank < size; rank++) {
		const struct collet_shape shape =
			collet_shape_of(program->collective, rank, size, root, (uint64_t)COUNT);
		const uint32_t parts = collet_program_parts(program, &shape);
		double turns = 0;
		for (uint32_t part = 0; part < parts; part++) {
			const uint64_t steps = program->step_count(&shape, part);
			for (uint64_t s = 0; s < steps; s++) {
				const struct collet_step step = program->step(&shape, part, s);
				turns += add_step(work, &shape, &step);
			}
		}
		work->turns = turns > work->turns && !has_root(program->collective) ? turns : work->turns;
	}
}

/* What goes between this rank and those from position `ranks` on. is_sent: what the end is for; else where from. */
static double through_link(
	const struct collet_shape *shape, const struct collet_step *step, bool is_sent, uint32_t ranks)
{
	double counts = 0;
	const struct collet_end *ends = is_sent ? step->destination : step->source;
	const uint32_t end_count = is_sent ? step->destination_count : step->source_count;
	const struct collet_end *local = is_sent ? &step->source[0] : &step->destination[0];
	for (uint32_t e = 0; e < end_count; e++) {
		for (uint32_t i = 0; i < ends[e].peers.count; i++) {
			const uint32_t peer = collet_peers_at(&ends[e].peers, i, shape->size);
			const struct collet_cut *cut = collet_step_cut(shape, local->buffer);
			const uint64_t elements =
				step->per_peer ? collet_cut_chunk(cut, shape, peer).count : ends[e].span.count;
			counts += peer >= ranks ? (double)elements / COUNT : 0;
		}
	}
	return counts;
}

double collet_work_through_link(const struct collet_program *program, const struct collet_shape *like, uint32_t ranks)
{
	double sent = 0, received = 0;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		struct collet_shape shape =
			collet_shape_of(program->collective, rank, like->size, like->root, (uint64_t)COUNT);
		shape.hosts = like->hosts;
		shape.host_first = like->host_first;
		shape.order = like->order;
		const uint32_t parts = collet_program_parts(program, &shape);
		for (uint32_t part = 0; part < parts; part++) {
			const uint64_t steps = program->step_count(&shape, part);
			for (uint64_t s = 0; s < steps; s++) {
				const struct collet_step step = program->step(&shape, part, s);
				sent += through_link(&shape, &step, true, ranks);
				received += through_link(&shape, &step, false, ranks);
			}
		}
	}
	return sent > received ? sent : received;
}

double collet_work_cost(const struct collet_work *work, uint64_t count, size_t element_bytes, size_t piece_bytes,
	uint32_t cores, const struct collet_cost_model *model)
{
	const double bytes = (double)count * (double)element_bytes;
	double sum = work->combined * bytes * model->gamma_s;
	for (uint32_t i = 0; i < work->lengths; i++)
		sum += collet_cost_port(
			work->length[i].transfers, work->length[i].counts * bytes, piece_bytes, model);
	return work->turns * collet_cost_latency(model) + sum / cores;
}
