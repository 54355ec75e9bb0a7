/* Makes any collective from a description, for tests of all collectives, or of ranks that call different ones. */
#ifndef COLLET_TESTS_API_CALLS_H
#define COLLET_TESTS_API_CALLS_H

#include <collet/collet.h>

enum form {
	FORM_ALLREDUCE,
	FORM_REDUCE,
	FORM_BROADCAST,
	FORM_BARRIER,
	FORM_ALLGATHER,
	FORM_ALLGATHERV,
	FORM_REDUCE_SCATTER,
	FORM_GATHER,
	FORM_GATHERV,
	FORM_SCATTER,
	FORM_SCATTERV,
	FORM_ALLTOALL,
	FORM_ALLTOALLV,
	FORMS
};

/* Describes a form's arguments, and names two of its algorithms that work at any world size. */
struct form_traits {
	const char *name; /* as the library's sentences spell it */
	bool has_count, is_reduction, has_root;
	bool is_vector;
	const char *algorithm, *other_algorithm;
};
extern const struct form_traits form_traits[FORMS];

enum { CALL_COUNT_MOST = 4096, CALL_RANKS_MOST = 8, CALL_BYTES = CALL_COUNT_MOST * CALL_RANKS_MOST * 8 };

struct call {
	enum form form;
	uint64_t count; /* v-forms: of each rank */
	uint64_t more;  /* v-forms: added to the count of the rank `longer` */
	uint32_t longer;
	collet_dtype dtype;
	collet_op op; /* COLLET_USER: an operation called user_name */
	uint32_t root;
	const char *algorithm; /* NULL: chosen */
	const char *user_name;
	uint32_t segment_bytes, channels; /* 0: chosen */
};

/* Buffers of a call of up to CALL_RANKS_MOST ranks, borrowed until it has ended. */
struct call_buffers {
	unsigned char send[CALL_BYTES], recv[CALL_BYTES];
	uint64_t counts[CALL_RANKS_MOST], displacements[CALL_RANKS_MOST];
	collet_user_op user;
};

/* Makes the call; blocks if request is NULL. */
collet_status call_make(
	collet_comm *comm, const struct call *call, struct call_buffers *buffers, collet_request **request);

#endif
