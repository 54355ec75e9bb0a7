/* What the cost formulas are made of. They predict the slowest rank's time in this model, which the tests walk step
 * by step: a rank has one way out and one way in, used at once; a message of b bytes holds each for overhead + b
 * beta, and is there alpha + b beta after it set out (so that alpha includes one overhead); combining costs gamma a
 * byte for each operand beyond the first, and is part of taking in: the same core does both. */
#ifndef COLLET_COLLECTIVES_COST_H
#define COLLET_COLLECTIVES_COST_H

#include "collectives/moves.h"
#include "collectives/program.h"

/* The longest chunk of an even cut, in bytes. */
COLLET_PURE static inline double collet_cost_chunk(
	const struct collet_shape *shape, uint32_t chunks, size_t element_bytes)
{
	return (double)((shape->count + chunks - 1) / chunks) * (double)element_bytes;
}

/* The bytes of `blocks` blocks of shape->count elements; of listed blocks, where each rank knows others, the mean. */
COLLET_PURE static inline double collet_cost_blocks(
	const struct collet_shape *shape, double blocks, size_t element_bytes)
{
	return blocks * (double)shape->count * (double)element_bytes;
}

/* How many pieces so many bytes are cut into. */
COLLET_PURE static inline double collet_cost_pieces(double bytes, size_t piece_bytes)
{
	const double pieces = bytes / (double)piece_bytes;
	const double whole = (double)(uint64_t)pieces;
	return pieces <= 1 ? 1 : whole < pieces ? whole + 1 : whole;
}

/* Time from a message's setting out to the next one's being free to: latency that nothing hides. */
COLLET_PURE static inline double collet_cost_latency(const struct collet_cost_model *model)
{
	return model->alpha_s > model->overhead_s ? model->alpha_s - model->overhead_s : 0;
}

/* What `messages` messages of `bytes` each, cut into pieces, hold a rank's way in or out for. */
COLLET_PURE static inline double collet_cost_port(
	double messages, double bytes, size_t piece_bytes, const struct collet_cost_model *model)
{
	return messages * (collet_cost_pieces(bytes, piece_bytes) * model->overhead_s + bytes * model->beta_s);
}

/* A pipeline of `hops` hops through which `bytes` go in pieces, each hop taking `port` for all of them and combining
 * for `gamma` a byte. */
COLLET_PURE static inline double collet_cost_pipeline(
	double hops, double bytes, size_t piece_bytes, double fan, double gamma, const struct collet_cost_model *model)
{
	const double pieces = collet_cost_pieces(bytes, piece_bytes);
	const double port = collet_cost_port(fan, bytes, piece_bytes, model) / pieces;
	const double work = fan * gamma * bytes / pieces;
	return hops * (collet_cost_latency(model) + port + work) + (pieces - 1) * (port + work);
}

/* So many bytes up or down a binomial tree of `size` ranks, k = log2(size) deep. The root has k children: up, it
 * combines what all send when the last has come; down, it sends to the deepest last. */
COLLET_PURE static inline double collet_cost_binomial(
	uint32_t size, double bytes, size_t piece_bytes, bool up, const struct collet_cost_model *model)
{
	const double depth = collet_log2_floor(size), turns = depth * (depth + 1) / 2,
		     children = collet_log2_ceil(size);
	const double pieces = collet_cost_pieces(bytes, piece_bytes);
	const double message = collet_cost_port(1, bytes, piece_bytes, model) / pieces;
	const double work = up ? model->gamma_s * bytes / pieces : 0;
	return depth * collet_cost_latency(model) + (up ? depth : turns) * message + turns * work +
	       (pieces - 1) * children * (message + work);
}

COLLET_PURE static inline const struct collet_cost_model *collet_cost_local(const struct collet_cost_model *model)
{
	return model->local ? model->local : model;
}

#endif
