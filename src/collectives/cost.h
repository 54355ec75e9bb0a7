/* Building blocks of the cost formulas.
 *
 * The formulas predict the slowest rank's time in this model, which the tests compare with a walk of the steps. A rank
 * has one send port and one receive port, which work at the same time. A message of b bytes occupies each port for
 * overhead + transfer(b); every segment after the first takes segment + transfer(b). A message arrives alpha after it
 * has left the send port. A reduction costs gamma per byte for each operand beyond the first. It occupies the receive
 * port, since the same core does both. transfer() is a piecewise linear function through 0 (program.h). */
#ifndef COLLET_COLLECTIVES_COST_H
#define COLLET_COLLECTIVES_COST_H

#include "collectives/program.h"
#include "collectives/step_builder.h"

/* Returns the longest chunk of an even partition, in bytes. */
COLLET_PURE static inline double collet_cost_chunk(
	const struct collet_shape *shape, uint32_t chunks, size_t element_bytes)
{
	return (double)((shape->count + chunks - 1) / chunks) * (double)element_bytes;
}

/* Returns the bytes of `blocks` blocks of shape->count elements. In v-forms, where ranks know different blocks, count
 * is the mean. */
COLLET_PURE static inline double collet_cost_blocks(
	const struct collet_shape *shape, double blocks, size_t element_bytes)
{
	return blocks * (double)shape->count * (double)element_bytes;
}

/* Returns the number of segments that `bytes` are cut into. */
COLLET_PURE static inline double collet_cost_segments(double bytes, size_t segment_bytes)
{
	const double segments = bytes / (double)segment_bytes;
	const double whole = (double)(uint64_t)segments;
	return segments <= 1 ? 1 : whole < segments ? whole + 1 : whole;
}

/* Returns where class i of a message's bytes ends (program.h). */
COLLET_PURE static inline double collet_cost_class_end(int i)
{
	return i == 0 ? 4 << 10 : i == 1 ? 32 << 10 : 256 << 10;
}

/* Returns the time that one message's bytes occupy a port. */
COLLET_PURE static inline double collet_cost_transfer(const struct collet_cost_model *model, double bytes)
{
	double cost = 0, start = 0;
	for (int i = 0; i < COLLET_COST_CLASSES && bytes > start; i++) {
		const bool is_last = i == COLLET_COST_CLASSES - 1;
		const double end = is_last || bytes < collet_cost_class_end(i) ? bytes : collet_cost_class_end(i);
		cost += (end - start) * model->beta_s[i];
		start = end;
	}
	return cost;
}

/* Returns the latency of a hop. */
COLLET_PURE static inline double collet_cost_latency(const struct collet_cost_model *model)
{
	return model->alpha_s;
}

/* Returns how long `messages` messages of `bytes` each, cut into segments, occupy a port. */
COLLET_PURE static inline double collet_cost_port(
	double messages, double bytes, size_t segment_bytes, const struct collet_cost_model *model)
{
	const double segments = collet_cost_segments(bytes, segment_bytes), whole = (double)segment_bytes;
	/* All segments but the last are full. */
	return messages *
	       (model->overhead_s + (segments - 1) * (model->segment_s + collet_cost_transfer(model, whole)) +
		       collet_cost_transfer(model, bytes - (segments - 1) * whole));
}

/* Returns the time of a pipeline of `hops` hops. Each hop receives or sends `fan` messages of `bytes`, in segments, and
 * reduces `gamma` per byte of each. */
COLLET_PURE static inline double collet_cost_pipeline(double hops, double bytes, size_t segment_bytes, double fan,
	double gamma, const struct collet_cost_model *model)
{
	const double segments = collet_cost_segments(bytes, segment_bytes);
	const double port = collet_cost_port(fan, bytes, segment_bytes, model) / segments;
	const double work = fan * gamma * bytes / segments;
	return hops * (collet_cost_latency(model) + port + work) + (segments - 1) * (port + work);
}

/* Returns the time of `bytes` up or down a binomial tree of `size` ranks, which is k = log2(size) deep. The root has k
 * children. Upwards, it reduces all their messages when the last has arrived. Downwards, it sends to the deepest child
 * last. On the fast path, which small messages take, it sends to that child first (fast_path_plan.c). */
COLLET_PURE static inline double collet_cost_binomial(
	uint32_t size, double bytes, size_t segment_bytes, bool is_upwards, const struct collet_cost_model *model)
{
	const double depth = collet_log2_floor(size), turns = depth * (depth + 1) / 2,
		     children = collet_log2_ceil(size);
	const double segments = collet_cost_segments(bytes, segment_bytes);
	const double message = collet_cost_port(1, bytes, segment_bytes, model) / segments;
	const double work = is_upwards ? model->gamma_s * bytes / segments : 0;
	return depth * collet_cost_latency(model) + (is_upwards ? depth : turns) * message + turns * work +
	       (segments - 1) * children * (message + work);
}

COLLET_PURE static inline const struct collet_cost_model *collet_cost_local(const struct collet_cost_model *model)
{
	return model->local ? model->local : model;
}

#endif
