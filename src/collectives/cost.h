/* Building blocks of the cost formulas.
 *
 * The formulas predict the slowest rank's time in this model, which the tests compare with a walk of the steps. A rank
 * has one send port and one receive port, which work at the same time. A message of b bytes occupies each port for
 * overhead + transfer(b); every segment after the first takes segment + transfer(b). A message arrives alpha after it
 * has left the send port. A reduction costs gamma per byte for each operand beyond the first. It occupies the receive
 * port, since the same core does both. transfer() is a piecewise linear function through 0 (program.h). */
#ifndef COLLET_COLLECTIVES_COST_H
#define COLLET_COLLECTIVES_COST_H

#include "collectives/host_groups.h"
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

/* Returns how many messages of a binomial tree follow each other, if the root sends to the deepest child last. Its last
 * child has what is left of the tree, the one before it a whole subtree. */
COLLET_PURE static inline double collet_cost_binomial_turns(uint32_t size)
{
	double most = 0, before = 0;
	while (size > 1) {
		const double children = collet_log2_ceil(size);
		const double whole = before + children * (children - 1) / 2;
		most = whole > most ? whole : most;
		before += children;
		size -= (uint32_t)1 << (collet_log2_ceil(size) - 1);
	}
	return before > most ? before : most;
}

/* Returns the time of `bytes` up or down a binomial tree of `size` ranks, which is k = log2(size) deep. The root has k
 * children. Upwards, it reduces all their messages when the last has arrived. Downwards, it sends to the deepest child
 * last. On the fast path, which small messages take, it sends to that child first (fast_path_plan.c). */
COLLET_PURE static inline double collet_cost_binomial(
	uint32_t size, double bytes, size_t segment_bytes, bool is_upwards, const struct collet_cost_model *model)
{
	const double depth = collet_log2_floor(size), turns = collet_cost_binomial_turns(size),
		     children = collet_log2_ceil(size);
	const double segments = collet_cost_segments(bytes, segment_bytes);
	const double message = collet_cost_port(1, bytes, segment_bytes, model) / segments;
	const double work = is_upwards ? model->gamma_s * bytes / segments : 0;
	return depth * collet_cost_latency(model) + (is_upwards ? depth : turns) * message + turns * work +
	       (segments - 1) * children * (message + work);
}

/* ---- Several hosts. Their ranks have consecutive positions, so short distances are inside a host. ---- */

COLLET_PURE static inline const struct collet_cost_model *collet_cost_local(const struct collet_cost_model *model)
{
	return model->local ? model->local : model;
}

/* Returns the model of messages between positions at this distance, sent by all ranks to the right or left. Those near
 * a host's end cross it. On any path of shorter and shorter hops, one of those within a host does. */
COLLET_PURE static inline const struct collet_cost_model *collet_cost_over(
	const struct collet_shape *shape, uint64_t distance, const struct collet_cost_model *model)
{
	const bool is_inside = shape->host_first && 2 * distance * shape->host_count < shape->size;
	return is_inside ? collet_cost_local(model) : model;
}

/* Returns the greatest power of two that divides the positions at which hosts start, if they have as many ranks. */
COLLET_PURE static inline uint32_t collet_cost_alignment(const struct collet_shape *shape)
{
	return shape->host_first ? shape->host_first[1] & (0 - shape->host_first[1]) : 1;
}

/* Returns the model of messages between positions that differ in one bit, if ranks are a power of two. */
COLLET_PURE static inline const struct collet_cost_model *collet_cost_across(
	const struct collet_shape *shape, uint64_t distance, const struct collet_cost_model *model)
{
	const bool is_power = (shape->size & (shape->size - 1)) == 0;
	const uint64_t aligned = collet_cost_alignment(shape) / (is_power ? 1 : 2);
	return distance < aligned ? collet_cost_local(model) : model;
}

/* Returns the model of messages over this distance in a binomial tree. */
COLLET_PURE static inline const struct collet_cost_model *collet_cost_down(
	const struct collet_shape *shape, uint64_t distance, const struct collet_cost_model *model)
{
	return distance < collet_cost_alignment(shape) ? collet_cost_local(model)
						       : collet_cost_over(shape, distance, model);
}

/* Returns the latency that a binomial tree has less than one per child of the root: if the last subtree is not whole,
 * no path has all hops. */
COLLET_PURE static inline double collet_cost_shallow(
	const struct collet_shape *shape, const struct collet_cost_model *model)
{
	const uint32_t top = (uint32_t)1 << collet_log2_floor(shape->size), rest = shape->size - top;
	return rest == 0 ? 0 : collet_cost_down(shape, rest <= top / 2 ? top : 1, model)->alpha_s;
}

/* Returns the model of messages between halves of so many positions (bisection.h). */
COLLET_PURE static inline const struct collet_cost_model *collet_cost_bisected(
	const struct collet_shape *shape, uint32_t positions, const struct collet_cost_model *model)
{
	const bool is_even = shape->host_first && (shape->host_count & (shape->host_count - 1)) == 0 &&
			     collet_host_group_max_size(shape) - collet_host_group_min_size(shape) <= 1;
	return is_even && positions <= shape->host_first[1] ? collet_cost_local(model) : model;
}

/* Returns the mean model of one rank's messages to `others` ranks, of which so many are on its host. They are sent at
 * the same time, so the latency is the longest. */
COLLET_PURE static inline struct collet_cost_model collet_cost_mean(
	double others, double inside, const struct collet_cost_model *model)
{
	struct collet_cost_model mean = *model;
	const struct collet_cost_model *in_host = collet_cost_local(model);
	const double share = others > inside ? inside / others : 1;
	mean.alpha_s = share < 1 ? model->alpha_s : in_host->alpha_s;
	mean.overhead_s += share * (in_host->overhead_s - model->overhead_s);
	mean.segment_s += share * (in_host->segment_s - model->segment_s);
	for (int i = 0; i < COLLET_COST_CLASSES; i++)
		mean.beta_s[i] += share * (in_host->beta_s[i] - model->beta_s[i]);
	return mean;
}

/* Returns the model of one rank's messages to all others. */
COLLET_PURE static inline struct collet_cost_model collet_cost_to_all(
	const struct collet_shape *shape, const struct collet_cost_model *model)
{
	return collet_cost_mean(shape->size - 1.0, collet_host_group_min_size(shape) - 1.0, model);
}

/* Returns the model of a first rank's messages to the others of its half (halves.h): the half that hosts cut more. */
COLLET_PURE static inline struct collet_cost_model collet_cost_in_half(
	const struct collet_shape *shape, double others, const struct collet_cost_model *model)
{
	const uint32_t upper = shape->size - shape->size / 2;
	const struct collet_host_group first = collet_host_group_at(shape, 0);
	const struct collet_host_group other = collet_host_group_of(shape, upper);
	const double lower_inside = first.count - 1.0, upper_inside = other.first + other.count - upper - 1.0;
	const bool upper_is_cut = upper_inside < shape->size / 2 - 1;
	return collet_cost_mean(
		others, upper_is_cut && upper_inside < lower_inside ? upper_inside : lower_inside, model);
}

/* Returns how many of `hops` hops in a row are between hosts: of all positions in order, or of a tree's levels. */
COLLET_PURE static inline double collet_cost_hops_between(
	const struct collet_shape *shape, double hops, bool is_tree)
{
	const uint32_t hosts = collet_host_group_count(shape);
	const double between = is_tree ? collet_log2_ceil(hosts) + 1.0 : hosts - 1.0;
	return shape->host_first == 0 || between > hops ? hops : between;
}

/* Returns the latency of so many hops. */
COLLET_PURE static inline double collet_cost_latencies(
	const struct collet_shape *shape, double hops, bool is_tree, const struct collet_cost_model *model)
{
	const double between = collet_cost_hops_between(shape, hops, is_tree);
	return between * model->alpha_s + (hops - between) * collet_cost_local(model)->alpha_s;
}

/* As collet_cost_pipeline(), for hops inside hosts and between them. Those between hosts limit its rate. */
COLLET_PURE static inline double collet_cost_path(const struct collet_shape *shape, double hops, bool is_tree,
	double bytes, size_t segment_bytes, double fan, double gamma, const struct collet_cost_model *model)
{
	const double between = collet_cost_hops_between(shape, hops, is_tree);
	const double segments = collet_cost_segments(bytes, segment_bytes);
	const struct collet_cost_model *in_host = collet_cost_local(model);
	const double port = collet_cost_port(fan, bytes, segment_bytes, in_host) / segments;
	return collet_cost_pipeline(between, bytes, segment_bytes, fan, gamma, between > 0 ? model : in_host) +
	       (hops - between) * (in_host->alpha_s + port + fan * gamma * bytes / segments);
}

/* As collet_cost_binomial(), for all ranks: a tree over hosts, and one in each host. Subtrees that hosts share make the
 * former one higher. */
COLLET_PURE static inline double collet_cost_tree(const struct collet_shape *shape, double bytes, size_t segment_bytes,
	bool is_upwards, const struct collet_cost_model *model)
{
	if (!shape->host_first)
		return collet_cost_binomial(shape->size, bytes, segment_bytes, is_upwards, model);
	const uint32_t most = collet_host_group_max_size(shape), spread = collet_cost_alignment(shape) < most ? 2 : 1;
	return collet_cost_binomial(spread * shape->host_count, bytes, segment_bytes, is_upwards, model) +
	       collet_cost_binomial((most + spread - 1) / spread, bytes, segment_bytes, is_upwards,
		       collet_cost_local(model));
}

#endif
