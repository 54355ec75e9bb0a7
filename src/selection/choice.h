/* The selection of algorithm, segment size and channels by message size: a table of which every rank computes the rows
 * that it needs. Its inputs are what rank 0 has sent to all, so every rank chooses the same. A choice reads only
 * (collective, whether the operation commutes, root, n, count, element size, table). */
#ifndef COLLET_SELECTION_CHOICE_H
#define COLLET_SELECTION_CHOICE_H

#include <pthread.h>
#include <stdatomic.h>

#include <collet/collet.h>

#include "selection/tuning.h"

enum { COLLET_CHOICE_ROWS = 34 }; /* 1 byte to 8 GiB */

/* The choice for calls of at most max_bytes, counted as in collet-bench. */
struct collet_choice_row {
	uint64_t max_bytes;
	uint16_t program;  /* index into collet_programs(collective) */
	bool measured;     /* the segmentation was measured too */
	/* How messages are cut. Channels are copies of each part over endpoints of their own; each takes every
	 * channels-th segment. */
	struct collet_segmentation segmentation;
};

/* The calls of one collective that choose among the same programs. */
enum collet_choice_kind {
	COLLET_CHOICE_COMMUTATIVE,
	COLLET_CHOICE_RANK_ORDERED, /* by an operation that does not commute */
	COLLET_CHOICE_VECTOR,       /* v-forms */
	COLLET_CHOICE_KINDS
};

/* The choices for all sizes. The last row has UINT64_MAX. */
struct collet_choice_rows {
	struct collet_choice_row row[COLLET_CHOICE_ROWS];
	_Atomic uint32_t count;  /* 0: not computed yet */
};

/* Rows are computed when a call first needs them, since all of them take a millisecond and more. */
struct collet_choice_table {
	const struct collet_choice_inputs *inputs;
	pthread_mutex_t lock;    /* taken to compute rows, last of all locks */
	struct collet_choice_rows rows[COLLET_COLLECTIVE_COUNT][COLLET_CHOICE_KINDS];
};

struct collet_decision {
	const struct collet_program *program;
	uint32_t channels;
	uint32_t segment_bytes;
};

/* The inputs of the table. Pointers must live as long as the struct. */
struct collet_choice_inputs {
	uint32_t size;
	uint32_t host_count;
	const uint32_t *host_first;             /* as in collet_shape; may be NULL */
	const uint32_t *order;                  /* as in collet_shape; may be NULL */
	uint32_t cores_per_host;                /* 0: one per rank */
	const collet_link_cost *local, *remote; /* between ranks of one host, and of different hosts */
	/* The measured world on the other side of this one in the number of ranks, if ranks share cores. NULL: none. */
	const collet_link_cost *beside;
	/* As local, for cores that are far from each other; used where that does not change the bits of results. NULL:
	 * the cores are near, or were not measured so. */
	const collet_link_cost *far;
	double network_byte_ns;                 /* time of a byte on the link between a host and the others */
	uint64_t scratch_bytes;                 /* programs that need more scratch are not chosen */
};

/* Initializes a table of these inputs, which must live as long and not change. */
void collet_choice_table_init(struct collet_choice_table *table, const struct collet_choice_inputs *inputs);
/* Returns the rows of one kind of calls, computing them if need be. Any thread. */
const struct collet_choice_rows *collet_choice_table_rows(
	struct collet_choice_table *table, enum collet_collective collective, enum collet_choice_kind kind);

/* Chooses the algorithm for a call. Never fails for shapes of collet_shape_of() or of v-forms: each list has a program
 * that runs any shape. */
struct collet_decision collet_choose(struct collet_choice_table *table, enum collet_collective collective,
	bool commutative, const struct collet_shape *shape, size_t element_bytes);

/* Returns the bytes of an element in the messages of a call: of an f32 if the program sends partial sums of an average
 * of narrower floats, else of the dtype. */
size_t collet_message_element_bytes(
	const struct collet_program *program, const struct collet_shape *shape, collet_dtype dtype, collet_op op);

/* Chooses the algorithm for an average of narrow floats, at the costs of both kinds of messages. once: only among
 * programs that reduce once, as for v-forms. */
struct collet_decision collet_choose_average(const struct collet_choice_inputs *inputs,
	struct collet_choice_table *table, enum collet_collective collective, const struct collet_shape *shape,
	size_t element_bytes, bool once);

/* Returns the decision that runs a given program, regardless of the table. */
struct collet_decision collet_choose_segmentation(const struct collet_choice_inputs *inputs,
	const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes);

/* Returns the predicted time of a decision, in seconds. */
double collet_choice_cost(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_segmentation segmentation);

/* Returns the part of that time that is between hosts, for a hierarchical program. */
double collet_choice_cost_inter_host(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_segmentation segmentation);

/* Parses "ring" or "allreduce:ring,broadcast:tree" into forced[collective] (NULL: not forced). A bare name forces the
 * algorithm in every collective that has it. A name that no collective has, or not the named one, is COLLET_ERR_CONFIG;
 * the error text lists the valid ones. */
collet_status collet_choice_parse_forced(
	const char *text, const struct collet_program *forced[COLLET_COLLECTIVE_COUNT]);

/* Returns the greatest scratch, in elements, that any rank of this shape needs, so that all ranks judge a program
 * alike. */
uint64_t collet_program_max_scratch(const struct collet_program *program, struct collet_shape shape);

/* Returns the bytes that a call's size is measured by: the result of allgather and gather, one rank's input of the
 * others. 0 for a barrier, and for v-forms of which a rank knows its own counts only. */
uint64_t collet_shape_bytes(enum collet_collective collective, const struct collet_shape *shape, size_t element_bytes);

#endif
