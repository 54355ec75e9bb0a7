/* Which algorithm, with which piece size and channels, for which message: a table that every rank computes when a
 * communicator is created, from what rank 0 has sent to all, so that every rank chooses the same. A choice reads only
 * (collective, whether the operation commutes, root, n, count, element size, table). */
#ifndef COLLET_SELECTION_CHOICE_H
#define COLLET_SELECTION_CHOICE_H

#include <collet/collet.h>

#include "selection/tuning.h"

enum { COLLET_CHOICE_ROWS = 34 }; /* 1 byte to 8 GiB */

/* Messages of at most max_bytes (as collet-bench counts them: see design) use this. */
struct collet_choice_row {
	uint64_t max_bytes;
	uint16_t program;  /* index into collet_programs(collective) */
	bool measured;     /* so was the way */
	/* Its channels are copies of each part over conduits of their own, each taking every channels-th piece. */
	struct collet_segmentation segmentation;
};

struct collet_choice_table {
	struct {
		struct collet_choice_row row[COLLET_CHOICE_ROWS];
		uint32_t rows;
	} commutative[COLLET_COLLECTIVE_COUNT], rank_ordered[COLLET_COLLECTIVE_COUNT], vector[COLLET_COLLECTIVE_COUNT];
};

struct collet_decision {
	const struct collet_program *program;
	uint32_t channels;
	uint32_t segment_bytes;
};

/* What the table is computed from; pointers live as long as it. */
struct collet_choice_inputs {
	uint32_t size;
	uint32_t host_count;
	const uint32_t *host_first;             /* as in collet_shape; may be NULL */
	const uint32_t *order;                  /* likewise */
	uint32_t cores_per_host;                /* 0: each rank has one */
	const collet_link_cost *local, *remote; /* between ranks of one host, and of different ones */
	double network_byte_ns;                 /* that a byte holds the link between a host and the others */
	uint64_t scratch_bytes;                 /* programs that need more than this much scratch are not chosen */
};

void collet_choice_table_fill(struct collet_choice_table *table, const struct collet_choice_inputs *inputs);

/* Never fails for shapes made by collet_shape_of() or the v-forms: each list has a program that fits any. */
struct collet_decision collet_choose(const struct collet_choice_table *table, enum collet_collective collective,
	bool commutative, const struct collet_shape *shape, size_t element_bytes);

/* How that program would be run, whatever the table says. */
struct collet_decision collet_choose_segmentation(const struct collet_choice_inputs *inputs,
	const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes);

/* The model's time for it, in seconds. */
double collet_choice_cost(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_segmentation segmentation);

/* What of that is between hosts, of a program that goes by hosts. */
double collet_choice_cost_inter_host(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_segmentation segmentation);

/* Parses "ring" or "allreduce:ring,broadcast:tree" into forced[collective] (NULL: not forced). A name that no
 * collective, or not the named one, has is COLLET_ERR_CONFIG listing those there are. A bare name forces it where it
 * exists. */
collet_status collet_choice_parse_forced(
	const char *text, const struct collet_program *forced[COLLET_COLLECTIVE_COUNT]);

/* Elements of scratch that a rank of this shape needs at the most: all ranks judge a program alike. */
uint64_t collet_program_max_scratch(const struct collet_program *program, struct collet_shape shape);

/* The bytes by which collectives are sized: allgather and gather by the result, the others by one rank's input
 * (barrier, and v-forms of which a rank knows its own counts alone: 0). */
uint64_t collet_shape_bytes(enum collet_collective collective, const struct collet_shape *shape, size_t element_bytes);

#endif
