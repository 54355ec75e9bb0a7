/* collet's tools: what a program needs that looks at the library instead of computing with it.
 *
 * List algorithms and transports, ask what a call would cost and which algorithm it would take, read and write tuning,
 * dump the flight recorder. collet-bench is made of nothing else; a scheduler or a monitor may want the same.
 *
 * Conventions, beside those of collet.h
 *   Names       collectives are spelt as their functions ("allreduce", "reduce_scatter"), algorithms and transports
 *               as COLLET_ALGORITHM and COLLET_TRANSPORT spell them ("ring", "shm"). A name that collet does not know
 *               is COLLET_ERR_ARGUMENT; the sentence lists those it knows.
 *   Lists       a function that lists writes at most capacity rows and always sets *count to how many there are, so
 *               that (NULL, 0, &count) asks. Strings in rows are static: never freed, valid for ever.
 *   Bytes       of a message are counted as collet-bench counts them: allgather and gather by the result;
 * reduce_scatter, alltoall and scatter by the whole input; all else by one buffer. Threads     any thread; functions
 * without a collet_comm keep no state and read nothing but their arguments. Failure     *outputs are written on success
 * only (*count of a list always).
 */
#ifndef COLLET_TOOLS_H
#define COLLET_TOOLS_H

#include <collet/collet.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What there is ------------------------------------------------------------------------------------------ */

typedef struct collet_algorithm_info {
	const char *collective;  /* "allreduce" */
	const char *name;        /* "ring": what COLLET_ALGORITHM, collet_how.algorithm and --algorithm take */
	const char *summary;     /* one line: what it does and what it is for */
	const char *source;      /* the paper or textbook it comes from; NULL: folklore */
	bool ordered; /* combines in rank order, so a user-defined operation that is not commutative may use it */
	uint8_t reserved[7];
} collet_algorithm_info;

/* Every algorithm of this build, grouped by collective. collective NULL: all; else that collective's. */
COLLET_API COLLET_MUST_USE collet_status collet_algorithm_list(
	const char *collective, collet_algorithm_info *rows, size_t capacity, size_t *count);

typedef struct collet_transport_info {
	const char *name;        /* "shm" */
	const char *summary;     /* one line: whom it reaches and how bytes move */
	bool built;              /* in this build; another may have it */
	uint8_t reserved[7];
} collet_transport_info;

/* Every transport that collet knows of, also those left out of this build. Opens nothing: whether two ranks can talk
 * over one is found out when a communicator is created. */
COLLET_API COLLET_MUST_USE collet_status collet_transport_list(
	collet_transport_info *rows, size_t capacity, size_t *count);

/* ---- What a call would cost --------------------------------------------------------------------------------- */

/* The cost of one link and one core, for the closed forms at the top of each algorithm. */
typedef struct collet_link_cost {
	char transport[16];         /* "shm" */
	uint32_t ranks;             /* measured with this many ranks; 0: any */
	uint32_t reserved0;
	double latency_ns;          /* alpha: one message of no bytes, from one rank's call to the other's memory */
	double byte_ns;             /* beta: each further byte of a message */
	double reduce_byte_ns;      /* gamma: combining one byte of a received operand */
	uint64_t reserved[4];       /* zero */
} collet_link_cost;

/* A call to be judged. Zero-initialise; strings are read during the call only. */
typedef struct collet_call_shape {
	const char *collective;
	uint32_t ranks;             /* 1 ... */
	uint32_t root;
	collet_dtype dtype;
	collet_op op;               /* not read for collectives that combine nothing */
	bool not_commutative;       /* op is COLLET_USER and its operands must stay in order */
	uint8_t reserved0[7];
	uint64_t reserved[4];       /* zero */
} collet_call_shape;

/* The model's time in ns of one call that moves bytes, all ranks arriving together. cost NULL: the built-in cost of
 * transport; else transport is not read. COLLET_ERR_UNSUPPORTED: the algorithm cannot do this call (not that many
 * ranks, not in order); the sentence says why. Pure: the same arguments give the same number on every machine. */
COLLET_API COLLET_MUST_USE collet_status collet_cost_predict(const collet_call_shape *shape, const char *algorithm,
	const char *transport, const collet_link_cost *cost, uint64_t bytes, double *ns);

/* One line of the choice table: messages of first_bytes to last_bytes take algorithm. */
typedef struct collet_choice {
	uint64_t first_bytes;
	uint64_t last_bytes;        /* UINT64_MAX: no end */
	const char *algorithm;
	double first_ns;            /* the model's time at first_bytes */
} collet_choice;

/* Which algorithm is chosen by size, lines in rising order without gaps from 0 on. cost and transport as above. Pure.
 */
COLLET_API COLLET_MUST_USE collet_status collet_choice_list(const collet_call_shape *shape, const char *transport,
	const collet_link_cost *cost, collet_choice *rows, size_t capacity, size_t *count);

/* What this communicator would do with a call. */
typedef struct collet_plan {
	const char *algorithm;      /* "ring" */
	char transport[32];         /* what this rank's peers are reached by: "shm", "shm,tcp"; "self" alone */
	double predicted_ns;        /* by the communicator's own choice table; < 0: no model for this */
	uint64_t reserved[4];
} collet_plan;

/* The plan for a call with these arguments, algorithm NULL for the communicator's choice. Local: no peer is asked, and
 * every rank that asks gets the same algorithm. root and op as in the call; 0 where it has none. Any thread. */
COLLET_API COLLET_MUST_USE collet_status collet_comm_plan(collet_comm *comm, const char *collective, uint64_t count,
	collet_dtype dtype, collet_op op, uint32_t root, const char *algorithm, collet_plan *plan);

/* ---- Tuning ------------------------------------------------------------------------------------------------- */

/* The link costs in a tuning file. path NULL: the built-in ones. COLLET_ERR_SYSTEM, COLLET_ERR_CONFIG (with the line).
 * A build that has no tuning files yet answers COLLET_ERR_UNSUPPORTED to any path. */
COLLET_API COLLET_MUST_USE collet_status collet_tuning_read(
	const char *path, collet_link_cost *rows, size_t capacity, size_t *count);

/* Writes them, replacing the file in one step. Not offered yet: always COLLET_ERR_UNSUPPORTED. */
COLLET_API COLLET_MUST_USE collet_status collet_tuning_write(
	const char *path, const collet_link_cost *rows, size_t count);

/* ---- Flight recorder ---------------------------------------------------------------------------------------- */

/* Writes the last few hundred collectives of this rank, oldest first, as text to a file descriptor: number, collective,
 * count, dtype, op, root, algorithm, when it started and ended, how it ended or how far it is. Never waits for the
 * communicator, so it works while another thread is stuck inside it; a line being written meanwhile may be left out.
 * COLLET_ERR_SYSTEM when the descriptor refuses. Any thread, also after an error has ended the communicator. */
COLLET_API COLLET_MUST_USE collet_status collet_comm_dump(collet_comm *comm, int fd);

#ifdef __cplusplus
}
#endif
#endif
