/* Adds up the bytes that a program's steps move and reduce, of all ranks or of a sample of them. */
#include "selection/total_work.h"

#include <math.h>
#include <string.h>

#include "collectives/cost.h"
#include "selection/sampled_steps.h"

/* Large enough that remainders of partitions are negligible. */
static const uint64_t work_count = (uint64_t)1 << 32;

/* A length without a class of its own joins the nearest one, whose length becomes the mean. */
static void add_transfers(struct collet_total_work *work, uint64_t elements, double transfers)
{
	const double length = (double)elements / (double)work_count;
	uint32_t nearest = 0;
	double least = INFINITY;
	for (uint32_t i = 0; i < work->class_count; i++) {
		const double other = work->classes[i].length_ratio;
		const double distance = other == length ? 0 : fabs(other - length) / fmax(other, length);
		nearest = distance < least ? i : nearest;
		least = fmin(distance, least);
	}
	if (least > 1e-3 && work->class_count < COLLET_TOTAL_WORK_CLASSES) {
		nearest = work->class_count++;
		work->classes[nearest].length_ratio = length;
		work->classes[nearest].transfers = 0;
	}
	const double before = work->classes[nearest].transfers;
	work->classes[nearest].transfers += transfers;
	work->classes[nearest].length_ratio = (before * work->classes[nearest].length_ratio + transfers * length) /
					      work->classes[nearest].transfers;
}

/* Returns how many positions two ranges have in common. */
static uint64_t overlap(uint64_t first, uint64_t end, uint64_t other_first, uint64_t other_end)
{
	const uint64_t from = first > other_first ? first : other_first, to = end < other_end ? end : other_end;
	return from < to ? to - from : 0;
}

/* Returns how many of these peers are among `count` positions from `first` on. */
static uint64_t peers_among(const struct collet_peers *peers, uint32_t size, uint64_t first, uint64_t count)
{
	uint64_t found = 0;
	if (peers->stride == 1 && !peers->is_doubling) {
		const uint64_t end = (uint64_t)peers->first + peers->count; /* may wrap around */
		return overlap(peers->first, end, first, first + count) +
		       overlap(peers->first, end, first + size, first + count + size);
	}
	for (uint32_t i = 0; i < peers->count; i++)
		found += collet_peers_at(peers, i, size) - first < count;
	return found;
}

/* Returns the elements of each transfer of a range. local: the range on this rank's side. */
static uint64_t elements_of(const struct collet_sampled_step *sampled, const struct collet_buffer_range *range,
	const struct collet_buffer_range *local)
{
	const struct collet_shape *shape = sampled->shape;
	if (!sampled->step.is_per_peer)
		return range->span.count;
	return collet_partition_chunk(collet_step_partition(shape, local->buffer), shape,
		collet_peers_at(&range->peers, 0, shape->size))
		.count;
}

struct work_walk {
	struct collet_total_work *work;
	uint32_t rank_index;    /* of the rank being walked */
	double waiting_steps;   /* of that rank */
};

/* Adds what one rank receives in a step. */
static void add_step(void *argument, const struct collet_sampled_step *sampled)
{
	struct work_walk *walk = (struct work_walk *)argument;
	struct collet_total_work *work = walk->work;
	const struct collet_shape *shape = sampled->shape;
	const double weight = sampled->rank_weight * sampled->step_weight;
	bool waits = false;
	for (uint32_t e = 0; e < sampled->step.source_count; e++) {
		const struct collet_buffer_range *range = &sampled->step.source[e];
		const double transfers =
			(double)(range->peers.count - peers_among(&range->peers, shape->size, shape->rank, 1));
		if (transfers == 0)
			continue;
		const uint64_t elements = elements_of(sampled, range, &sampled->step.destination[0]);
		add_transfers(work, elements, transfers * weight);
		if (sampled->step.is_reduction)
			work->reduced_ratio += transfers * weight * (double)elements / (double)work_count;
		waits = true;
	}
	if (walk->rank_index != sampled->rank_index)
		walk->waiting_steps = 0;
	walk->rank_index = sampled->rank_index;
	walk->waiting_steps += waits ? sampled->step_weight : 0;
	work->waiting_steps = fmax(work->waiting_steps, walk->waiting_steps);
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
	struct work_walk walk = { .work = work };
	const struct collet_shape shape = collet_shape_of(program->collective, 0, size, root, work_count);
	collet_sample_steps(program, &shape, size, add_step, &walk);
	if (has_root(program->collective))
		work->waiting_steps = 0;
}

struct network_walk {
	uint32_t ranks;         /* on the host */
	double sent, received;
};

/* Returns what passes between this rank and other hosts. is_sent: to them, else from them. */
static double network_ratio(const struct collet_sampled_step *sampled, bool is_sent, uint32_t ranks)
{
	const struct collet_step *step = &sampled->step;
	const struct collet_buffer_range *ranges = is_sent ? step->destination : step->source;
	const uint32_t range_count = is_sent ? step->destination_count : step->source_count;
	const struct collet_buffer_range *local = is_sent ? &step->source[0] : &step->destination[0];
	double elements = 0;
	for (uint32_t e = 0; e < range_count; e++)
		elements += (double)elements_of(sampled, &ranges[e], local) *
			    (double)(ranges[e].peers.count -
				    peers_among(&ranges[e].peers, sampled->shape->size, 0, ranks));
	return elements / (double)work_count * sampled->rank_weight * sampled->step_weight;
}

static void add_network_step(void *argument, const struct collet_sampled_step *sampled)
{
	struct network_walk *walk = (struct network_walk *)argument;
	walk->sent += network_ratio(sampled, true, walk->ranks);
	walk->received += network_ratio(sampled, false, walk->ranks);
}

double collet_network_ratio(const struct collet_program *program, const struct collet_shape *like, uint32_t ranks)
{
	struct network_walk walk = { .ranks = ranks };
	struct collet_shape shape = collet_shape_of(program->collective, 0, like->size, like->root, work_count);
	shape.host_count = like->host_count;
	shape.host_first = like->host_first;
	shape.host_most = like->host_most;
	shape.host_least = like->host_least;
	shape.order = like->order;
	collet_sample_steps(program, &shape, ranks, add_network_step, &walk);
	return fmax(walk.sent, walk.received);
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
