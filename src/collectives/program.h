/* The table of algorithms: each collective's step programs with what the chooser must know of them. */
#ifndef COLLET_COLLECTIVES_PROGRAM_H
#define COLLET_COLLECTIVES_PROGRAM_H

#include <stddef.h>

#include "collectives/step.h"

/* v-forms run the programs of their plain form that can (`listed`). */
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

/* "allreduce", "reduce_scatter", ...; NULL out of range. */
const char *collet_collective_name(enum collet_collective collective);
/* Or does it only move? */
static inline bool collet_collective_is_reduction(enum collet_collective collective)
{
	return collective == COLLET_ALLREDUCE || collective == COLLET_REDUCE || collective == COLLET_REDUCE_SCATTER;
}

/* A byte of a long message costs other than one of a short message: transports copy short ones through rings and lend
 * long ones, and long pieces leave the caches. So there is a price for a message's bytes up to 4 KiB, for those from
 * there to 32 KiB, to 256 KiB, and for all beyond. */
enum { COLLET_COST_CLASSES = 4 };

/* What moving and reducing costs, for one message over one transport. Formulas are linear in these numbers. */
struct collet_cost_model {
	double alpha_s;                       /* from a message's leaving its sender's hands to its being there */
	double overhead_s;                    /* that each message holds its sender, and its receiver */
	double segment_s;                     /* likewise, each of its pieces but the first */
	double beta_s[COLLET_COST_CLASSES];   /* that each byte does, by where in the message it is */
	double gamma_s;                       /* a byte reduced: of each operand beyond the first */
	const struct collet_cost_model *local; /* between ranks of one host, where there are several; NULL: the same */
};

struct collet_program {
	const char *name; /* "ring"; unique in its collective */
	enum collet_collective collective;
	const char *source;  /* the paper or textbook */
	const char *summary; /* one line for people: what it does, and what for */
	bool rank_ordered;   /* combines in rank order throughout: fit for non-commutative operations */
	bool segmented;      /* see step.h */
	bool has_vector_form; /* works on COLLET_PARTITION_VECTOR, where a rank may know only its own counts */
	/* Can it run this shape? NULL: any. Must not look at what one rank alone knows (its rank):
	 * all ranks answer the same. */
	bool (*fits)(const struct collet_shape *shape);
	/* Independent sub-programs, each over its own conduits. NULL: 1. */
	uint32_t (*part_count)(const struct collet_shape *shape);
	uint64_t (*step_count)(const struct collet_shape *shape, uint32_t part);
	struct collet_step (*step)(const struct collet_shape *shape, uint32_t part, uint64_t index);
	/* Remote operands (or chunks received) of one step at most, on any rank: what the engine must hold at once.
	 * NULL: all ranks but one. Must not look at shape->rank. */
	uint32_t (*fan_in)(const struct collet_shape *shape);
	/* Elements of scratch this rank needs, for all parts together. NULL: 0. */
	uint64_t (*scratch)(const struct collet_shape *shape);
	/* Closed form of the slowest rank's time for this shape, cut into pieces of piece_bytes. */
	double (*cost)(const struct collet_shape *shape, size_t element_bytes, size_t segment_bytes,
		const struct collet_cost_model *model);
};

/* All programs of a collective, best for small messages first; *count says how many. */
const struct collet_program *const *collet_programs(enum collet_collective collective, size_t *count);
/* What is between hosts of a `hierarchical`, in its order and pieces, where hosts' first ranks lead; in no list. NULL:
 * there is none of this collective. */
const struct collet_program *collet_program_inter_host(enum collet_collective collective);
/* By name; NULL if there is none. */
const struct collet_program *collet_program_find(enum collet_collective collective, const char *name);

/* How many elements of scratch this rank needs; the program's, or 0. */
uint64_t collet_program_scratch(const struct collet_program *program, const struct collet_shape *shape);
uint32_t collet_program_part_count(const struct collet_program *program, const struct collet_shape *shape);
uint32_t collet_program_fan_in(const struct collet_program *program, const struct collet_shape *shape);
/* Its place among all programs, collective by collective, as collet_algorithm_list() lists them. */
uint32_t collet_program_index(const struct collet_program *program);
bool collet_program_fits(const struct collet_program *program, const struct collet_shape *shape);

/* The shape of a plain (not v) collective of `count` elements, counted as the public API counts; order NULL, one
 * host. A barrier moves no elements but of its own scratch, whose values nobody reads: any dtype and operation
 * will do. A v-form's caller makes both cuts LISTED, on every rank, and sets `count` too where a buffer is the own
 * block alone. */
struct collet_shape collet_shape_of(
	enum collet_collective collective, uint32_t rank, uint32_t size, uint32_t root, uint64_t count);

#endif
