/* Describes the rows of the conformance matrix: calls, values and expected results.
 *
 * Every value is a function of (row, rank, index), so that any rank can compute all inputs. A row's buffers are
 * lists of blocks. Inputs are made from them, and the image that the outputs must equal, byte for byte. */
#ifndef COLLET_TESTS_API_ROWS_H
#define COLLET_TESTS_API_ROWS_H

#include <collet/collet.h>

enum call {
	CALL_ALLREDUCE,
	CALL_REDUCE,
	CALL_BROADCAST,
	CALL_BARRIER,
	CALL_ALLGATHER,
	CALL_REDUCE_SCATTER,
	CALL_GATHER,
	CALL_SCATTER,
	CALL_ALLTOALL,
	CALL_ALLGATHERV,
	CALL_GATHERV,
	CALL_SCATTERV,
	CALL_REDUCE_SCATTERV,
	CALL_ALLTOALLV,
	CALLS
};

/* How a call's buffers lie in place. */
enum in_place { IN_PLACE_SAME, IN_PLACE_SEND_IN_RECV, IN_PLACE_RECV_IN_SEND };

struct call_info {
	const char *name;            /* "allgatherv" */
	const char *collective;      /* whose algorithms it takes: "allgather" */
	bool is_reduction, has_root, is_vector;
	enum in_place in_place;
};
extern const struct call_info call_infos[CALLS];

/* Values of a row that reduces. */
enum values {
	VALUES_EXACT,                /* no order of operands rounds: the result is known */
	VALUES_WILD                  /* floats of all magnitudes, NaN, infinities: every rank must get the same bits */
};

struct row {
	enum call call;
	const char *algorithm;       /* NULL: chosen */
	bool ordered;                /* the algorithm is */
	collet_dtype dtype;
	collet_op op;
	bool in_order;               /* op is COLLET_USER and does not commute */
	enum values values;
	uint64_t count;
	uint32_t root;
	uint64_t seed;
};

enum { ROW_NAME_BYTES = 100, ROW_RANKS_MOST = 24 };
/* "allreduce_ring/shm/f16/sum/n7/1003" */
void row_name(const struct row *row, const char *transport, uint32_t size, char name[ROW_NAME_BYTES]);

/* Returns the rows for a world of size ranks; the same arguments give the same rows. long_bytes is the size of the
 * few long messages. The caller frees them. */
struct row *rows_make(uint64_t seed, uint32_t size, uint32_t per_algorithm, uint64_t long_bytes, size_t *count);

/* count elements at `at`: elements from `first` of source's input, or of all inputs reduced. */
struct block {
	uint64_t at, count;
	uint32_t source;
	uint64_t first;
	bool reduced;
};

struct side {
	bool used;
	uint32_t blocks;
	struct block block[ROW_RANKS_MOST];
	uint64_t elements;           /* extent */
	/* Arguments of v-forms. */
	uint64_t counts[ROW_RANKS_MOST], displacements[ROW_RANKS_MOST];
};

void row_sides(const struct row *row, uint32_t size, uint32_t rank, struct side *send, struct side *recv);
/* Writes the blocks of a side into its buffer. */
void row_fill(const struct row *row, uint32_t size, const struct side *side, void *buffer);
double row_scale(const struct row *row, uint32_t rank);
const collet_user_op *row_user_op(const struct row *row);

uint64_t rows_mix(uint64_t a, uint64_t b);

#endif
