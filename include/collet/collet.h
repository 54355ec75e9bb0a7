/* collet: collective communication between ranks.
 *
 * A rank is one participant: a process, or one thread of a process. collet_comm_create() joins all ranks into a
 * communicator, whose collectives they then call. <collet/cuda.h> adds what holds for GPU buffers and CUDA streams.
 *
 *   Counts     are numbers of elements, never bytes. They have 64 bits; 0 is legal.
 *   Buffers    belong to the caller. The library uses them until the blocking call returns, or until the request ends,
 *              with any status. A buffer argument that a rank does not use may be NULL.
 *   In place   allreduce, reduce, broadcast, alltoall: send == recv. allgather: send == recv + rank * count.
 *              reduce_scatter: recv == send + rank * count. gather, scatter: the root's own block, likewise.
 *              v-forms (allgatherv, ...): the same by displacement. Any other overlap is COLLET_ERR_ARGUMENT.
 *   Errors     are statuses, which collet_last_error() explains. Some end the communicator on every rank: see
 *              collet_status. After any error the contents of recv are undefined.
 *   Deadlines  bound every wait: see collet_options.timeout_ns, collet_how.timeout_ns, COLLET_NO_TIMEOUT.
 *   Threads    A communicator serves one thread at a time; a second one gets COLLET_ERR_BUSY, or its turn if
 *              collet_options.thread_multiple is set. Turns come in the order of the calls. A call that waits for
 *              peers lets others start, as with MPI_THREAD_MULTIPLE. Different communicators may be used by different
 *              threads at once. "Any thread" marks functions without this rule.
 *   Order      All ranks start a communicator's collectives in the same order, with the same collective, count, dtype,
 *              op and root. Otherwise every rank gets COLLET_ERR_MISMATCH.
 *   Results    are bitwise the same on every rank. The same inputs, world size, algorithm and count give the same bits
 *              in every run, over every transport, blocking or not, with threads or processes.
 */
#ifndef COLLET_COLLET_H
#define COLLET_COLLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define COLLET_API __attribute__((visibility("default")))
#else
#define COLLET_API
#endif

#if (defined(__cplusplus) && __cplusplus >= 201703L) || (defined(__STDC_VERSION__) && __STDC_VERSION__ > 201710L)
/* Stands before COLLET_API: [[...]] may not follow an __attribute__. */
#define COLLET_MUST_USE [[nodiscard]]
#elif defined(__GNUC__)
#define COLLET_MUST_USE __attribute__((warn_unused_result))
#else
#define COLLET_MUST_USE
#endif

/* Version of these headers. collet_version() returns that of the library. */
#define COLLET_VERSION_MAJOR 0
#define COLLET_VERSION_MINOR 2
#define COLLET_VERSION_PATCH 0

/* ---- Status ------------------------------------------------------------------------------------------------- */

/* Result of a call. Every error falls into one of these groups:
 *   Nothing changed      ARGUMENT, UNSUPPORTED, BUSY. The communicator works on.
 *   This call failed     MEMORY, SYSTEM, TRUNCATED, CANCELLED, and TIMEOUT of a send or receive of which no data were
 *                        under way. The communicator works on unless collet_comm_error() has an error.
 *   No communicator      CONFIG, RENDEZVOUS, AUTH. collet_comm_create() made none.
 *   Communicator ended   any other TIMEOUT, PEER_LOST, MISMATCH, ABORTED, TRANSPORT. Every later call returns the same
 *                        status, and only collet_comm_destroy() is left.
 *
 * When a call has returned an error, no peer writes to its buffers any more. There is one exception: a rank of the same
 * host that was stopped (SIGSTOP, a debugger) in the middle of such a write. The call waits one second for that rank.
 * Then it warns (COLLET_LOG) of what the rank may still write when it continues. */
typedef enum collet_status {
	COLLET_OK = 0,           /* success */
	COLLET_PENDING = 1,      /* the request has not ended; never an error */
	COLLET_ERR_ARGUMENT,     /* the caller made a mistake */
	COLLET_ERR_UNSUPPORTED,  /* the call is valid, but not implemented, or not for this case */
	COLLET_ERR_BUSY,         /* another thread is inside this communicator; call again later */
	COLLET_ERR_MEMORY,       /* memory could not be allocated */
	COLLET_ERR_SYSTEM,       /* the operating system refused; the error text has its words */
	COLLET_ERR_CONFIG,       /* an environment variable, option or file is invalid, or differs between ranks */
	COLLET_ERR_RENDEZVOUS,   /* not all ranks met; the error text names the missing ones */
	COLLET_ERR_AUTH,         /* a peer has another secret, job or version */
	COLLET_ERR_TRANSPORT,    /* a connection failed in a way that does not prove its peer dead */
	COLLET_ERR_TIMEOUT,      /* the deadline passed */
	COLLET_ERR_PEER_LOST,    /* a rank died, left, or cannot be reached any more */
	COLLET_ERR_MISMATCH,     /* ranks made different calls */
	COLLET_ERR_ABORTED,      /* collet_comm_abort() was called, here or on another rank */
	COLLET_ERR_TRUNCATED,    /* recv: the message was longer than the buffer, and was dropped */
	COLLET_ERR_FORKED,       /* called in a child of the process that created the communicator */
	COLLET_CANCELLED,        /* collet_request_cancel(); inside transports: the connection closed before the end */
	COLLET_STATUS_COUNT      /* number of statuses */
} collet_status;

/* Returns the enumerator's name ("COLLET_ERR_TIMEOUT"): a static string, never NULL. Any thread. */
COLLET_API const char *collet_status_name(collet_status status);

/* Explains the calling thread's last failed call: what failed, on which rank and host, with which peer, what to try.
 * Returns "" if no call failed, never NULL. The string is valid until this thread's next failing call. Any thread. */
COLLET_API const char *collet_last_error(void);

/* Returns the library's version, "0.2.0": a static string. Any thread. */
COLLET_API const char *collet_version(void);

/* ---- Types and operations ----------------------------------------------------------------------------------- */

/* Types of elements. */
typedef enum collet_dtype {
	COLLET_I8 = 0,  /* int8_t */
	COLLET_U8,      /* uint8_t */
	COLLET_I32,     /* int32_t */
	COLLET_U32,     /* uint32_t */
	COLLET_I64,     /* int64_t */
	COLLET_U64,     /* uint64_t */
	COLLET_F16,     /* IEEE binary16 */
	COLLET_BF16,    /* upper half of an f32 */
	COLLET_F32,     /* float: IEEE binary32 */
	COLLET_F64,     /* double: IEEE binary64 */
	COLLET_F8E4M3,  /* OCP 8-bit float: no infinities, S.1111.111 is NaN, largest 448 */
	COLLET_F8E5M2,  /* OCP 8-bit float: IEEE-like, largest finite 57344 */
	COLLET_I16,     /* int16_t */
	COLLET_U16,     /* uint16_t */
	COLLET_BOOL,    /* bool: one byte, of which 0 is false and all else true */
	COLLET_DTYPE_COUNT /* number of types */
} collet_dtype;

/* Returns the bytes of one element, or 0 if the value names no dtype. Any thread. */
COLLET_API size_t collet_dtype_bytes(collet_dtype dtype);
/* Returns "f32", "bf16", ...: a static string, or NULL if the value names no dtype. Any thread. */
COLLET_API const char *collet_dtype_name(collet_dtype dtype);

/* Reduction operations. Within a step operands are combined in rank order, lower rank first.
 *
 * Integers   wrap (two's complement).
 * Floats     of 16 and 8 bits are widened to f32, combined there, and rounded to nearest, ties to even. They are
 *            rounded once each time a rank stores or sends them: a step that combines k operands rounds once.
 *            Sums are never contracted to FMA. Denormals are kept, whatever mode the calling thread is in.
 * Overflow   A sum beyond the largest finite value is infinity. f8e4m3 has no infinity and gives 448. f8e5m2 gives
 *            57344 for a finite sum, and keeps an infinity that an operand had.
 * NaN        A NaN that an operation stores is the canonical quiet one of its type: f64 7ff8000000000000, f32
 *            7fc00000, f16 7e00, bf16 7fc0, f8e5m2 7e, f8e4m3 7f. A mere copy keeps its bits.
 *
 * MIN, MAX     NaN propagates; -0 < +0.
 * AVERAGE      multiplies the finished sum of floats by 1/n before the one rounding, in f32 (f64: in f64). For integers
 *              it divides the wrapped sum by n and truncates towards zero. Sums of floats of 16 and 8 bits stay in f32
 *              between ranks too, by every algorithm. So their averages are rounded once, and equal finite values give
 *              that value, for up to 8192 ranks. They overflow only if the average itself is too large. Sums of f32
 *              and f64 overflow as SUM does, and equal values come back but for the rounding of their sum. If such sums
 *              may overflow, use PREMUL_SUM with a scale of 1/n.
 * PREMUL_SUM   first multiplies each rank's elements by that rank's how.scale, in f32 (f64: in f64), and rounds them
 *              to the dtype. Floats only.
 * AND, OR, XOR  work on the bits of integers, and on bool; floats are refused.
 * bool         MIN and PRODUCT are AND, MAX and SUM are OR. Results of operations are 0 or 1, whatever bytes of inputs
 *              are true. AVERAGE and PREMUL_SUM are refused. Calls that only move data keep the bytes.
 * USER         calls the combine() of how.user_op.
 * Any other combination of op and dtype is COLLET_ERR_UNSUPPORTED. */
typedef enum collet_op {
	COLLET_SUM = 0,     /* sum */
	COLLET_PRODUCT,     /* product */
	COLLET_MIN,         /* minimum */
	COLLET_MAX,         /* maximum */
	COLLET_AVERAGE,     /* sum, divided by the number of ranks */
	COLLET_PREMUL_SUM,  /* sum of elements that each rank has multiplied by its how.scale */
	COLLET_AND,         /* bitwise and */
	COLLET_OR,          /* bitwise or */
	COLLET_XOR,         /* bitwise exclusive or */
	COLLET_USER,        /* how.user_op */
	COLLET_OP_COUNT     /* number of operations */
} collet_op;

/* Returns "sum", "premul_sum", ...: a static string, or NULL if the value names no operation. Any thread. */
COLLET_API const char *collet_op_name(collet_op op);

/* A user-defined operation. combine() sets result[i] = left[i] (op) right[i] for count elements; result may be left,
 * right, or neither. The operation must be associative and give the same bits on every rank. combine() runs on the
 * thread that advances the request. It must not call collet functions that wait or change something: these return
 * COLLET_ERR_ARGUMENT. It may call collet_comm_abort() to say that it cannot go on. If the operation is not
 * commutative, operands are combined in rank order, by the algorithms that can do that. Operands are in host memory.
 * The struct must outlive the calls that use it. */
typedef struct collet_user_op {
	/* Combines count elements, as stated above. */
	void (*combine)(
		void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context);
	void *context;     /* passed to combine() */
	const char *name;  /* used by error texts and the mismatch check; may be NULL */
	bool commutative;  /* operands may be combined in any order */
	uint8_t reserved[7];
} collet_user_op;

/* ---- Communicators ------------------------------------------------------------------------------------------ */

/* A communicator: a group of ranks that call collectives and send messages to each other. Opaque. */
typedef struct collet_comm collet_comm;
/* A call in progress, which collet_request_wait() waits for. Opaque. */
typedef struct collet_request collet_request;

/* Value of a timeout field that sets no deadline. 0 in such a field means the default. */
#define COLLET_NO_TIMEOUT ((int64_t)-1)

/* A key-value store of the caller's, used instead of collet's own: for ranks that already have one (etcd, Redis,
 * torch's Store). Keys are short printable strings, values have up to 64 KiB. Only collet_comm_create() calls these
 * functions, on its own thread. Rank 0 sets the key "collet/JOB/rank0" and removes it when all ranks have met. JOB is
 * the job's name: options.job, COLLET_JOB, what the launcher says, or "default". If rank 0 has no secret, it makes one,
 * which the same value hands to the others: whoever can read the store can join. */
typedef struct collet_store_callbacks {
	/* Stores the value, which every rank sees before or soon after the return. Returns nonzero on failure. */
	int (*set)(void *context, const char *key, const void *value, size_t bytes);
	/* Waits until the key exists or timeout_ns has passed. Then copies at most capacity bytes and sets *bytes to
	 * the value's full size. Returns nonzero on failure or timeout. */
	int (*get)(void *context, const char *key, void *value, size_t capacity, size_t *bytes, int64_t timeout_ns);
	void *context; /* passed to these functions */
	/* Deletes the key. May be NULL: then the key is set to an empty value instead. Returns nonzero on failure,
	 * which is no error of the creation. */
	int (*remove)(void *context, const char *key);
} collet_store_callbacks;

/* How ranks find each other, and what their communicator uses. A field that is zero takes its value from the
 * environment variable named beside it, or else the default; collet(7) describes the variables. A field that is set
 * wins over the environment. Strings and callbacks are read during the call only. */
typedef struct collet_options {
	bool explicit_rank;           /* use rank and world_size below instead of the launcher's variables */
	uint8_t reserved0[3];
	uint32_t rank;                /* 0 .. world_size - 1 */
	uint32_t world_size;          /* number of ranks */
	uint32_t local_rank;          /* read if explicit_rank is set; for binding and devices only */
	const char *store;            /* "tcp://HOST:PORT", "file:///FOLDER", "unix:NAME" (one host); COLLET_STORE */
	const collet_store_callbacks *store_callbacks; /* instead of store */
	const char *job;              /* ranks with different job names never meet; COLLET_JOB */
	const char *secret;           /* shared by the job's ranks; COLLET_SECRET, COLLET_SECRET_FILE */
	const char *interface;        /* "eth0,ib0", "^docker0", "10.0.0.0/8"; COLLET_INTERFACE */
	const char *port_range;       /* for listening ports, "20000-20100"; COLLET_PORT_RANGE */
	const char *transport;        /* only these: "tcp", "shm,tcp", "faulty:tcp"; COLLET_TRANSPORT */
	const char *algorithm;        /* "ring" or "allreduce:ring,broadcast:tree"; COLLET_ALGORITHM */
	int64_t timeout_ns;           /* per collective, default 30 min; COLLET_TIMEOUT (seconds, 0: none) */
	int64_t rendezvous_timeout_ns;/* default 5 min; COLLET_RENDEZVOUS_TIMEOUT (seconds, 0: none) */
	/* 1: a thread of the library advances requests that nobody waits for; -1: no such thread; 0:
	 * COLLET_PROGRESS_THREAD, default off. */
	int progress_thread;
	/* 1: several threads may use a communicator at a time, and their calls take turns; -1: a second thread gets
	 * COLLET_ERR_BUSY; 0: COLLET_THREAD_MULTIPLE, default off. */
	int thread_multiple;
	uint64_t reserved[8];         /* must be zero */
} collet_options;

/* Joins all ranks into a new communicator and writes it to *comm. Blocks until every rank has called it or the
 * rendezvous deadline has passed. If options is NULL, everything comes from the environment: RANK, WORLD_SIZE,
 * LOCAL_RANK, MASTER_ADDR, MASTER_PORT, or the variables of Open MPI, MPICH, Slurm or OpenPAI. Without any launcher's
 * variables the world has one rank. *comm is written on success only; the caller destroys it.
 *
 * Each call also creates a context, which holds this rank's memory, connections and one sleeping control thread. All
 * communicators split from this one share the context. The last of them frees it. Calls cost least, by about 10 ns,
 * while one thread makes all calls of a context. A thread needs 128 KiB of stack for calls on host memory.
 *
 * COLLET_ERR_ARGUMENT, _CONFIG (the error text names the setting, the ranks and the values), _RENDEZVOUS, _AUTH,
 * _MEMORY, _SYSTEM. Any thread; several ranks may be threads of one process, each with a call of its own. */
COLLET_MUST_USE COLLET_API collet_status collet_comm_create(collet_comm **comm, const collet_options *options);

/* The color of a rank that joins no new communicator. */
#define COLLET_NO_COLOR UINT32_MAX
/* Splits comm into new communicators. Collective: ranks with the same color form one, in the order of (key, rank in
 * comm). A rank whose color is COLLET_NO_COLOR takes part and gets NULL. Both communicators then live independently.
 * *split is written on success only; the caller destroys it. Errors are those of collet_allgather() and
 * collet_comm_create(). */
COLLET_MUST_USE COLLET_API collet_status collet_comm_split(
	collet_comm *comm, uint32_t color, uint32_t key, collet_comm **split);

/* Creates a communicator of some ranks of comm; only these call it. ranks lists them in the order of their new numbers,
 * the same on every member and each rank once. tag tells apart groups of the same ranks that threads create at the same
 * time. Groups of equal ranks and tag belong together in the order in which each member creates them. Returns without
 * waiting for other members, but with GPUs waits for all of them. The first call on the group waits for members that
 * have not created it, and its error names them. The group shares the context: its memory, its threads. Both
 * communicators live independently. *group is written on success only; the caller destroys it. Any thread, also while
 * others make calls on comm. COLLET_ERR_ARGUMENT, _MEMORY, _SYSTEM; if comm has ended, its status. A failure ends the
 * group on the other members. */
COLLET_MUST_USE COLLET_API collet_status collet_comm_create_group(
	collet_comm *comm, const uint32_t *ranks, uint32_t count, uint32_t tag, collet_comm **group);

/* Reserved for making a communicator of the surviving ranks after COLLET_ERR_PEER_LOST. Returns
 * COLLET_ERR_UNSUPPORTED. */
COLLET_MUST_USE COLLET_API collet_status collet_comm_shrink(collet_comm *comm, collet_comm **shrunk);

/* Ends the communicator on every rank: pending and later calls return COLLET_ERR_ABORTED. Wakes every waiter and
 * returns at once, without waiting for peers. May be called repeatedly, from any thread; NULL does nothing. */
COLLET_API void collet_comm_abort(collet_comm *comm);

/* Destroys the communicator and sets *comm to NULL. Not collective: it waits only until peers have read what this rank
 * sent in finished calls. Pending requests end with COLLET_ERR_ABORTED and are freed; a thread that is inside a call
 * returns first. In a forked child it frees the child's copies only. COLLET_ERR_ARGUMENT: comm or *comm is NULL. */
COLLET_API collet_status collet_comm_destroy(collet_comm **comm);

/* Returns COLLET_OK, or the status that ended the communicator; collet_last_error() then explains it. Any thread. */
COLLET_API collet_status collet_comm_error(collet_comm *comm);

/* Sets the timeout of later calls that set none, on this rank: a number of ns above 0, or COLLET_NO_TIMEOUT. Any
 * thread. COLLET_ERR_ARGUMENT: nothing changed. */
COLLET_MUST_USE COLLET_API collet_status collet_comm_set_timeout(collet_comm *comm, int64_t timeout_ns);

/* Return this rank's number (0 .. size - 1) and the number of ranks. Any thread. */
COLLET_API uint32_t collet_comm_rank(const collet_comm *comm);
COLLET_API uint32_t collet_comm_size(const collet_comm *comm);
/* Return this rank's number among the ranks of comm on its host, and their number. Any thread. */
COLLET_API uint32_t collet_comm_local_rank(const collet_comm *comm);
COLLET_API uint32_t collet_comm_local_size(const collet_comm *comm);
/* Returns the host name of a rank, or NULL if there is no such rank. The string lives as long as comm. Any thread. */
COLLET_API const char *collet_comm_host(const collet_comm *comm, uint32_t rank);

/* ---- Collectives -------------------------------------------------------------------------------------------- */

/* Holds the options of one call. A zero-initialised struct (COLLET_HOW_DEFAULT) or a NULL pointer asks for a blocking
 * call with the default deadline and the algorithm chosen by the tuner. The struct is read during the call. */
typedef struct collet_how {
	collet_request **request;     /* if set, the call starts a request, writes it here and returns at once */
	void *stream;                 /* a CUDA stream, see <collet/cuda.h>; not together with request */
	int64_t timeout_ns;           /* 0: the communicator's; COLLET_NO_TIMEOUT: none */
	const char *algorithm;        /* "ring", ...; the same on every rank; NULL: chosen by the tuner */
	const collet_user_op *user_op;/* read if op is COLLET_USER */
	double scale;                 /* read if op is COLLET_PREMUL_SUM: this rank's factor */
	/* How messages are cut: into segments of at most so many bytes, over so many channels (up to
	 * COLLET_CHANNELS_MAX). 0: chosen by the tuner. The same on every rank. They never change a result's bits.
	 * Segments become smaller where buffer space is short. Only pipelined algorithms use several channels. */
	uint32_t segment_bytes;
	uint32_t channels;
	/* If set, the call returns at once, and on_end() is told once how it has ended: see Requests. Not together with
	 * stream. */
	void (*on_end)(void *context, collet_status status);
	void *on_end_context;         /* passed to on_end() */
	uint64_t reserved[14];        /* must be zero */
} collet_how;
/* Initialises a collet_how: a blocking call with all defaults. */
#ifdef __cplusplus
#define COLLET_HOW_DEFAULT { }
#else
#define COLLET_HOW_DEFAULT { 0 }
#endif
/* Most channels of a call. */
#define COLLET_CHANNELS_MAX 8

/* These rules hold for all collectives.
 *   Shapes     count is the number of elements of one block, which is the whole buffer where there are no blocks. n is
 *              the number of ranks.
 *   Ownership  counts and displacements are numbers of elements and are copied by the call. With how.request, send
 *              and recv stay in use until the request has ended.
 *   Errors     COLLET_ERR_ARGUMENT, _UNSUPPORTED, _BUSY: nothing changed. COLLET_ERR_MEMORY, _SYSTEM: the call failed.
 *              COLLET_ERR_TIMEOUT, _PEER_LOST, _MISMATCH, _ABORTED, _TRANSPORT: the communicator has ended.
 *   Results    are bitwise equal on all ranks and in every run: see Results in collet.h.
 * collet_op defines how operands are combined. */

/* Combines all ranks' send element by element into every rank's recv; count elements each. */
COLLET_MUST_USE COLLET_API collet_status collet_allreduce(collet_comm *comm, const void *send, void *recv,
	uint64_t count, collet_dtype dtype, collet_op op, const collet_how *how);
/* Combines all ranks' send element by element into root's recv; count elements each. Other ranks' recv is unused. */
COLLET_MUST_USE COLLET_API collet_status collet_reduce(collet_comm *comm, const void *send, void *recv, uint64_t count,
	collet_dtype dtype, collet_op op, uint32_t root, const collet_how *how);
/* Copies root's send to every rank's recv, the root's too unless in place; count elements each. Other ranks' send is
 * unused. */
COLLET_MUST_USE COLLET_API collet_status collet_broadcast(collet_comm *comm, const void *send, void *recv,
	uint64_t count, collet_dtype dtype, uint32_t root, const collet_how *how);
/* Waits until every rank has called it. */
COLLET_MUST_USE COLLET_API collet_status collet_barrier(collet_comm *comm, const collet_how *how);
/* Copies every rank's send (count elements) to every rank's recv (n * count elements), in rank order. */
COLLET_MUST_USE COLLET_API collet_status collet_allgather(
	collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype, const collet_how *how);
/* Copies rank r's send (counts[r] elements) to recv + displacements[r] on every rank. Every rank passes the same
 * counts; displacements may differ. send_count is counts[rank]. */
COLLET_MUST_USE COLLET_API collet_status collet_allgatherv(collet_comm *comm, const void *send, uint64_t send_count,
	void *recv, const uint64_t *counts, const uint64_t *displacements, collet_dtype dtype, const collet_how *how);
/* Combines all ranks' send (n * count elements), and writes block r of the result to rank r's recv (count elements). */
COLLET_MUST_USE COLLET_API collet_status collet_reduce_scatter(collet_comm *comm, const void *send, void *recv,
	uint64_t count, collet_dtype dtype, collet_op op, const collet_how *how);
/* Combines all ranks' send element by element, in blocks: counts[r] elements at displacements[r]. Writes block r of the
 * result to rank r's recv. Every rank passes the same counts; displacements may differ. recv_count is counts[rank]. The
 * average of f16, bf16, f8e4m3 and f8e5m2 is done by the algorithm "direct" alone. */
COLLET_MUST_USE COLLET_API collet_status collet_reduce_scatterv(collet_comm *comm, const void *send,
	const uint64_t *counts, const uint64_t *displacements, void *recv, uint64_t recv_count, collet_dtype dtype,
	collet_op op, const collet_how *how);
/* Copies every rank's send (count elements) to root's recv (n * count elements), in rank order. */
COLLET_MUST_USE COLLET_API collet_status collet_gather(collet_comm *comm, const void *send, void *recv, uint64_t count,
	collet_dtype dtype, uint32_t root, const collet_how *how);
/* Copies rank r's send (send_count elements) to root's recv + displacements[r]. On the root, counts[r] must equal rank
 * r's send_count; otherwise it is COLLET_ERR_MISMATCH. Other ranks may pass NULL for recv, counts and displacements. */
COLLET_MUST_USE COLLET_API collet_status collet_gatherv(collet_comm *comm, const void *send, uint64_t send_count,
	void *recv, const uint64_t *counts, const uint64_t *displacements, collet_dtype dtype, uint32_t root,
	const collet_how *how);
/* Copies block r of root's send (n * count elements) to rank r's recv (count elements). */
COLLET_MUST_USE COLLET_API collet_status collet_scatter(collet_comm *comm, const void *send, void *recv, uint64_t count,
	collet_dtype dtype, uint32_t root, const collet_how *how);
/* Copies counts[r] elements at root's send + displacements[r] to rank r's recv (recv_count elements). On the root,
 * counts[r] must equal rank r's recv_count; otherwise it is COLLET_ERR_MISMATCH. Other ranks may pass NULL for send,
 * counts and displacements. */
COLLET_MUST_USE COLLET_API collet_status collet_scatterv(collet_comm *comm, const void *send, const uint64_t *counts,
	const uint64_t *displacements, void *recv, uint64_t recv_count, collet_dtype dtype, uint32_t root,
	const collet_how *how);
/* Copies block p of send to block r of rank p's recv, where r is the own rank. Both buffers have n * count elements. */
COLLET_MUST_USE COLLET_API collet_status collet_alltoall(
	collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype, const collet_how *how);
/* Does what collet_alltoall() does, with blocks of any lengths. Block p has counts[p] elements at displacements[p], on
 * either side. In place (send == recv) both lists are equal. A block's count must be the same on both of its ranks;
 * otherwise it is COLLET_ERR_MISMATCH. */
COLLET_MUST_USE COLLET_API collet_status collet_alltoallv(collet_comm *comm, const void *send,
	const uint64_t *send_counts, const uint64_t *send_displacements, void *recv, const uint64_t *recv_counts,
	const uint64_t *recv_displacements, collet_dtype dtype, const collet_how *how);

/* ---- Point to point ----------------------------------------------------------------------------------------- */

/* Source of a receive that takes messages of all ranks. */
#define COLLET_ANY_SOURCE UINT32_MAX

/* The message that a receive got. */
typedef struct collet_received {
	uint32_t source; /* the rank that sent it */
	uint32_t tag;    /* its tag */
	uint64_t count;  /* its length in elements */
} collet_received;

/* Messages between two ranks have an order and connections of their own: they never mix with collectives. Messages of
 * one pair with one tag arrive in the order of the sends. Of how, the fields request, on_end, stream and timeout_ns are
 * used. COLLET_ERR_ARGUMENT: there is no such rank. Other errors are as for collectives.
 *
 * A call ends alone at its deadline, with COLLET_ERR_TIMEOUT, if no data of it are under way: a receive that no message
 * has matched, a send that no receive has matched, or that has not left this rank. Its peer never gets the message. Any
 * other call that misses its deadline ends the communicator, and any on a stream, which cannot be told. Messages of up
 * to the tuning's eager size (64 KiB) are sent at once, and then are under way until the transport has taken them. */

/* Sends count elements to peer. Returns when buf may be reused; a large message must be received first. */
COLLET_MUST_USE COLLET_API collet_status collet_send(collet_comm *comm, const void *buf, uint64_t count,
	collet_dtype dtype, uint32_t peer, uint32_t tag, const collet_how *how);
/* Receives the oldest message with this tag from source, or from any rank (COLLET_ANY_SOURCE), of at most count
 * elements. received may be NULL, else it must live until the request has ended. COLLET_ERR_TRUNCATED: the message was
 * longer and was dropped; the communicator works on. */
COLLET_MUST_USE COLLET_API collet_status collet_recv(collet_comm *comm, void *buf, uint64_t count, collet_dtype dtype,
	uint32_t source, uint32_t tag, collet_received *received, const collet_how *how);
/* Sends and receives as one request. It cannot deadlock, in whatever order the peers call. */
COLLET_MUST_USE COLLET_API collet_status collet_sendrecv(collet_comm *comm, const void *send, uint64_t send_count,
	uint32_t to, uint32_t send_tag, void *recv, uint64_t recv_count, uint32_t from, uint32_t recv_tag,
	collet_dtype dtype, collet_received *received, const collet_how *how);

/* ---- Requests ----------------------------------------------------------------------------------------------- */

/* A request belongs to the caller until one of these functions reports its end, frees it and sets the pointer to NULL.
 * All of them advance this rank's communicators. Requests may be waited for in any order, by any thread, also while
 * another thread makes calls. A NULL *request is COLLET_OK. In a forked child they return COLLET_ERR_FORKED; destroying
 * the communicator then frees the request.
 *
 * how.on_end() is called once for each call that returned COLLET_OK, when the call has ended and its buffers may be
 * used again; collet_last_error() then explains a failure. Whoever makes progress calls it: a thread in a function of
 * this section or in a blocking call, the progress thread, or collet_comm_destroy(). No other call runs it, and none
 * holds a lock meanwhile. In a context one on_end() runs at a time, in the order in which calls have ended. It may make
 * calls and test requests. It must not create, split or destroy communicators: COLLET_ERR_ARGUMENT. If how.request is
 * set too, the request stays the caller's, and other threads are told of its end after on_end() has returned. Else the
 * library frees it. In a forked child on_end() is never called. */

/* Returns COLLET_PENDING, or the status with which the request ended. Does not block. */
COLLET_MUST_USE COLLET_API collet_status collet_request_test(collet_request **request);
/* Blocks until the request has ended, by its own deadline at the latest, and returns its status. */
COLLET_MUST_USE COLLET_API collet_status collet_request_wait(collet_request **request);
/* Blocks for at most timeout_ns (>= 0, or COLLET_NO_TIMEOUT). Returns COLLET_PENDING if the request has not ended by
 * then: it goes on. Otherwise returns as collet_request_wait() does. */
COLLET_MUST_USE COLLET_API collet_status collet_request_wait_for(collet_request **request, int64_t timeout_ns);
/* Ends a send or a receive of which no data are under way, as its deadline would, with COLLET_CANCELLED. Returns
 * COLLET_OK if the request has ended now, or before, and COLLET_PENDING if it goes on. It stays the caller's, and
 * reports its status as ever. NULL is COLLET_OK. Does not block. */
COLLET_MUST_USE COLLET_API collet_status collet_request_cancel(collet_request *request);
/* Blocks until one of the requests, all of one rank, has ended. Writes its index and returns its status. If all are
 * NULL, writes count and returns COLLET_OK. */
COLLET_MUST_USE COLLET_API collet_status collet_request_wait_any(
	collet_request **requests, size_t count, size_t *index);
/* Blocks until all requests have ended. Returns COLLET_OK or, in array order, the first error. */
COLLET_MUST_USE COLLET_API collet_status collet_request_wait_all(collet_request **requests, size_t count);

/* Advances all calls of comm's context. Returns COLLET_OK as soon as one of them has ended, or an on_end() returned,
 * since this function returned last. Returns COLLET_PENDING if none has within timeout_ns (0: one round;
 * COLLET_NO_TIMEOUT: waits as long as it takes). Any thread, but only one for each context can rely on being told.
 * COLLET_ERR_ARGUMENT, _FORKED. */
COLLET_MUST_USE COLLET_API collet_status collet_progress(collet_comm *comm, int64_t timeout_ns);
/* Writes a descriptor for poll(), select() or epoll. After collet_progress() has returned COLLET_PENDING, it becomes
 * readable when there is something to do, also for a call that any thread starts: call collet_progress() again, with a
 * timeout of 0, until it returns COLLET_PENDING. Never read from it. All communicators of a context have the same one.
 * The library closes it with the last of them. Any thread. COLLET_ERR_ARGUMENT, _FORKED, _SYSTEM. */
COLLET_MUST_USE COLLET_API collet_status collet_comm_descriptor(collet_comm *comm, int *descriptor);

/* ---- Memory ------------------------------------------------------------------------------------------------- */

/* Functions of this section may be called from any thread. Memory and registrations belong to this rank. They are valid
 * for all communicators of comm's context, until they are freed or the last of these communicators is destroyed. */

/* Allocates host memory that ranks of this host map, so that collectives on it copy nothing. It is zeroed and aligned
 * to 64 bytes. After an error its contents are undefined until collet_comm_destroy() returns. COLLET_ERR_MEMORY: the
 * arena is full. */
COLLET_MUST_USE COLLET_API collet_status collet_mem_alloc(collet_comm *comm, void **memory, size_t bytes);
/* Frees memory of collet_mem_alloc() or collet_mem_alloc_device(); NULL does nothing. COLLET_ERR_ARGUMENT: it is no
 * such memory, or a pending call uses it. Nothing changed then. */
COLLET_API collet_status collet_mem_free(collet_comm *comm, void *memory);
/* Announces that the caller will use this memory repeatedly, so that transports may keep it registered. It must stay
 * mapped until it is deregistered. Calls work the same where no transport can register it. COLLET_ERR_ARGUMENT,
 * _MEMORY, _SYSTEM: nothing changed. */
COLLET_MUST_USE COLLET_API collet_status collet_mem_register(collet_comm *comm, void *memory, size_t bytes);
/* Ends the registration of memory that starts here. COLLET_ERR_ARGUMENT: it is not registered. */
COLLET_API collet_status collet_mem_deregister(collet_comm *comm, void *memory);

/* ---- Statistics --------------------------------------------------------------------------------------------- */

/* What a row of statistics counts. */
typedef enum collet_stat_kind {
	/* name: the transport; sums over its endpoints. "cuda_ipc" counts messages from GPU to GPU; the pair's own
	 * transport counts only their announcements. */
	COLLET_STAT_TRANSPORT = 0,
	COLLET_STAT_ENDPOINT,       /* name: the transport; one row for each peer and channel (tcp: socket) */
	COLLET_STAT_ALGORITHM,      /* name: "allreduce:ring"; calls and payload bytes */
	COLLET_STAT_ROUNDING        /* name: "rounding"; messages_sent: elements rounded to 16 or 8 bits */
} collet_stat_kind;

/* A row of statistics. Counters that a kind does not use are 0. */
typedef struct collet_stat {
	collet_stat_kind kind;                      /* what the row counts */
	uint32_t peer;                              /* COLLET_STAT_ENDPOINT: rank at the other end */
	uint32_t channel;                           /* COLLET_STAT_ENDPOINT: its channel */
	uint32_t reserved0;
	char name[48];                              /* see collet_stat_kind */
	uint64_t calls;                             /* COLLET_STAT_ALGORITHM: number of calls */
	uint64_t bytes_sent, bytes_received;        /* payload */
	uint64_t messages_sent, messages_received;  /* number of messages */
	uint64_t system_calls;                      /* on the data path; 0 where unknown */
	uint64_t reserved[4];
} collet_stat;

/* Writes at most capacity rows and sets *count to the number of rows that exist. Counters only grow.
 * COLLET_ERR_ARGUMENT: an argument is NULL. Any thread. */
COLLET_MUST_USE COLLET_API collet_status collet_comm_stats(
	collet_comm *comm, collet_stat *rows, size_t capacity, size_t *count);

#ifdef __cplusplus
}
#endif
#endif
