/* The table of algorithms: each collective's step programs, with the properties that the selection needs. */
#ifndef COLLET_COLLECTIVES_PROGRAM_H
#define COLLET_COLLECTIVES_PROGRAM_H

#include <stddef.h>

#include "collectives/step.h"

/* A v-form runs those programs of its plain form that have has_vector_form set. */
enum collet_collective {
	COLLET_ALLREDUCE,
	COLLET_REDUCE,
	COLLET_BROADCAST,
	COLLET_BARRIER,
	COLLET_ALLGATHER,
	COLLET_REDUCE_SCATTER,
	COLLET_GATHER,
	COLLET_SCATTER,
	COLLET_ALLTOALL,
	COLLET_COLLECTIVE_COUNT
};

/* Returns "allreduce", "reduce_scatter", ...; NULL if out of range. */
const char *collet_collective_name(enum collet_collective collective);
/* Returns true if the collective reduces, false if it only moves data. */
static inline bool collet_collective_is_reduction(enum collet_collective collective)
{
	return collective == COLLET_ALLREDUCE || collective == COLLET_REDUCE || collective == COLLET_REDUCE_SCATTER;
}

/* Price classes of a message's bytes: up to 4 KiB, from there to 32 KiB, to 256 KiB, and beyond. Transports copy short
 * messages through rings and let peers read long ones in place, and long segments exceed the caches. So a byte of a
 * long message has another price. */
enum { COLLET_COST_CLASSES = 4 };

/* The cost of messages over one transport and of reductions. Formulas are linear in these numbers. */
struct collet_cost_model {
	double alpha_s;                       /* from the end of the send to the arrival */
	double overhead_s;                    /* time of sender and of receiver per message */
	double segment_s;                     /* the same per segment after the first */
	double beta_s[COLLET_COST_CLASSES];   /* per byte, by its class */
	double gamma_s;                       /* per byte reduced, for each operand beyond the first */
	/* between ranks of one host, if there are several hosts; NULL: the same */
	const struct collet_cost_model *local;
};

struct collet_program {
	const char *name; /* "ring"; unique within its collective */
	enum collet_collective collective;
	const char *source;  /* the paper or textbook */
	const char *summary; /* one line for users: what it does, and when it is used */
	bool rank_ordered;   /* reduces in rank order, as non-commutative operations require */
	/* Reduces all ranks' INPUT of an element in one step, so that no rank sends a partial sum. */
	bool reduces_once;
	/* Runs in many passes over its steps, a few segments each (step.h). Messages of other programs are cut too. */
	bool segmented;
	bool has_vector_form; /* supports COLLET_PARTITION_VECTOR, where a rank may know only its own counts */
	/* Returns why the program cannot run this shape, as "needs at least 3 ranks", or NULL: it can. No function: it
	 * can run any. The answer must be the same on all ranks, so it must not depend on shape->rank. */
	const char *(*refusal)(const struct collet_shape *shape);
	/* Returns the number of independent sub-programs, each over endpoints of its own. NULL: 1. */
	uint32_t (*part_count)(const struct collet_shape *shape);
	uint64_t (*step_count)(const struct collet_shape *shape, uint32_t part);
	struct collet_step (*step)(const struct collet_shape *shape, uint32_t part, uint64_t index);
	/* Returns the first step from `index` on that may exchange messages, or the step count, for a program most of
	 * whose steps are local copies. NULL: any step may. */
	uint64_t (*next_message)(const struct collet_shape *shape, uint64_t index);
	/* Returns the greatest number of remote operands or received chunks of a step, on any rank: what the engine
	 * must buffer at once. NULL: size - 1. Must not depend on shape->rank. */
	uint32_t (*fan_in)(const struct collet_shape *shape);
	/* Returns how many elements of scratch this rank needs, for all parts together. NULL: 0. */
	uint64_t (*scratch)(const struct collet_shape *shape);
	/* Returns the slowest rank's predicted time for this shape, cut into segments of segment_bytes: a closed
	 * form. */
	double (*cost)(const struct collet_shape *shape, size_t element_bytes, size_t segment_bytes,
		const struct collet_cost_model *model);
};

/* Returns all programs of a collective and sets *count. Those best for small messages come first. */
const struct collet_program *const *collet_programs(enum collet_collective collective, size_t *count);
/* Returns the inter-host part of a collective's `hierarchical` program, with the same order of operands and the same
 * segments, where each host's first rank leads. It is in no list. NULL: the collective has none. */
const struct collet_program *collet_program_inter_host(enum collet_collective collective);
/* Finds a program by name; NULL if there is none. */
const struct collet_program *collet_program_find(enum collet_collective collective, const char *name);

/* Return the name that a misspelt one was meant to be; NULL if none is close. COLLET_COLLECTIVE_COUNT: of any
 * collective. */
const char *collet_program_closest(enum collet_collective collective, const char *name);
const char *collet_collective_closest(const char *name);

/* Return the value of the program's function of that name, or its default. */
uint64_t collet_program_scratch(const struct collet_program *program, const struct collet_shape *shape);
uint32_t collet_program_part_count(const struct collet_program *program, const struct collet_shape *shape);
uint32_t collet_program_fan_in(const struct collet_program *program, const struct collet_shape *shape);
/* Returns its index among all programs, collective by collective, as collet_algorithm_list() lists them. */
uint32_t collet_program_index(const struct collet_program *program);
const char *collet_program_refusal(const struct collet_program *program, const struct collet_shape *shape);
/* Returns true if no rank sends a partial sum. Two ranks have none. */
bool collet_program_reduces_once(const struct collet_program *program, const struct collet_shape *shape);
/* Returns true if the program does not refuse the shape. */
bool collet_program_fits(const struct collet_program *program, const struct collet_shape *shape);

/* Returns the shape of a plain collective (no v-form) of `count` elements, counted as in the public API, with order
 * NULL and one host. A barrier moves only elements of its own scratch, whose values nobody reads, so any dtype and
 * operation will do. The caller of a v-form makes both partitions COLLET_PARTITION_VECTOR on every rank. It also sets
 * `count` for a buffer that holds the own block alone. */
struct collet_shape collet_shape_of(
	enum collet_collective collective, uint32_t rank, uint32_t size, uint32_t root, uint64_t count);

#endif
