/* collet: collective communication between ranks.
 *
 * A rank is one participant: a process, or one thread of a process. Ranks meet at a rendezvous, form a
 * communicator, and call its collectives in one order. Everything public is named collet_*.
 *
 * Conventions that hold for every function here
 *   Counts      are numbers of elements, never bytes, 64 bits wide; 0 is legal.
 *   Buffers     stay the caller's. A blocking call has let go of them when it returns, whatever it returns; a
 *               request, when it has ended. A buffer argument that a rank does not use may be NULL.
 *   In place    allreduce, reduce, broadcast, alltoall: send == recv. allgather: send == recv + rank * count.
 *               reduce_scatter: recv == send + rank * count. gather, scatter: the root's own block, likewise.
 *               v-forms: the same by displacement. Any other overlap is COLLET_ERR_ARGUMENT.
 *   GPUs        Buffers may be a CUDA GPU's; the library tells by the driver, host and GPU may be mixed in a call
 *               and between ranks, and the current CUDA context is left as it is. Contents must be there when the
 *               call is made, whatever stream writes them: after a cuMemset(), a copy within the GPU or one from
 *               ordinary memory synchronise, since these may return before. User-defined operations are for host
 *               memory. Never run on a GPU yet. How a call goes depends on what ranks had current when the communicator
 *               was made.
 *
 *               - One GPU for several ranks of a host, or processes that share some of several: one launch does calls
 *                 on their memory, in rank order, with the bits of "direct"; after an error what a buffer of these
 *                 holds is undefined until destroy returns. Threads' calls of at most 256 KiB are as the next:
 *               - A GPU for each rank of the one host, which reach each other: every collective is done there, one
 *                 on host memory too, by an algorithm that is chosen for kernels (threads': no v-forms, no barriers).
 *               - Several hosts whose ranks all had GPUs: one GPU of each does what large calls have to do inside it.
 *               - All else travels through host memory: a call, or the start of a request, waits for the copy to the
 *                 host, and a wait or test that ends the request for the copy back.
 *   Errors      COLLET_OK is 0. COLLET_ERR_ARGUMENT and COLLET_ERR_UNSUPPORTED changed nothing and the
 *               communicator works on. COLLET_ERR_BUSY changed nothing: call again later.
 *               COLLET_ERR_TIMEOUT, _PEER_LOST, _MISMATCH, _ABORTED, _TRANSPORT end the communicator: every later
 *               call returns the same (collet_comm_error()), and only destroy is left. After any error a recv
 *               buffer's contents are undefined, and nobody writes to it any more; but for a rank of the same host that
 *               was stopped (SIGSTOP, a debugger) at the very moment when it wrote there: the call waits a second for
 *               it, and warns (COLLET_LOG) of what it may still write once it goes on.
 *   Threads     A communicator serves one thread at a time; a second one gets COLLET_ERR_BUSY. Different
 *               communicators may be used by different threads at once. collet_comm_abort() and the functions
 *               that only read (rank, size, error, stats) are safe from any thread.
 *               Short calls cost least, by about 10 ns, as long as one thread makes all calls of a context.
 *               A thread needs 128 KiB of stack for calls on host memory.
 *   Order       All ranks start a communicator's collectives in the same order with the same collective, count,
 *               dtype, op and root; disagreement is COLLET_ERR_MISMATCH on every rank. Requests may be waited for
 *               in any order.
 *   Bits        Every rank gets bitwise the same result. The same inputs, world size, algorithm and count give the
 *               same bits in every run, over every transport, blocking or not, threads or processes.
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
#define COLLET_MUST_USE __attribute__((warn_unused_result))
#else
#define COLLET_API
#define COLLET_MUST_USE
#endif

#define COLLET_VERSION_MAJOR 0
#define COLLET_VERSION_MINOR 1
#define COLLET_VERSION_PATCH 0

/* ---- Status ------------------------------------------------------------------------------------------------- */

typedef enum collet_status {
	COLLET_OK = 0,
	COLLET_PENDING = 1,      /* a request that has not ended; never an error */
	COLLET_ERR_ARGUMENT,     /* the caller's mistake; nothing changed */
	COLLET_ERR_UNSUPPORTED,  /* well-formed, but not offered (here); nothing changed */
	COLLET_ERR_BUSY,         /* another thread is inside this communicator; nothing changed */
	COLLET_ERR_MEMORY,       /* memory could not be had */
	COLLET_ERR_SYSTEM,       /* the operating system refused something; the sentence carries its words */
	COLLET_ERR_CONFIG,       /* an environment variable, option or file makes no sense, or differs between ranks */
	COLLET_ERR_RENDEZVOUS,   /* the ranks could not all meet; the sentence names who did not come */
	COLLET_ERR_AUTH,         /* a peer has another secret, job or version */
	COLLET_ERR_TRANSPORT,    /* a connection failed in a way that does not prove its peer dead */
	COLLET_ERR_TIMEOUT,      /* the deadline passed */
	COLLET_ERR_PEER_LOST,    /* a rank died, left, or cannot be reached any more */
	COLLET_ERR_MISMATCH,     /* ranks called different things */
	COLLET_ERR_ABORTED,      /* collet_comm_abort() was called, here or on another rank */
	COLLET_ERR_TRUNCATED,    /* recv: the message is longer than the buffer; it was dropped, all else works on */
	COLLET_ERR_FORKED,       /* called in a child of the process that created the communicator */
	COLLET_CANCELLED,        /* internal: lent back unfinished because its connection closed */
	COLLET_STATUS_COUNT
} collet_status;

/* The enumerator's own spelling ("COLLET_ERR_TIMEOUT"); static; never NULL. Any thread. */
COLLET_API const char *collet_status_name(collet_status status);

/* This thread's sentence about its last call that failed: what, on which rank and host, with which peer, what to
 * try. "" if none has. Valid until this thread's next failing call; never NULL. */
COLLET_API const char *collet_last_error(void);

/* "0.1.0"; static. */
COLLET_API const char *collet_version(void);

/* ---- Types and operations ----------------------------------------------------------------------------------- */

typedef enum collet_dtype {
	COLLET_I8 = 0,
	COLLET_U8,
	COLLET_I32,
	COLLET_U32,
	COLLET_I64,
	COLLET_U64,
	COLLET_F16,     /* IEEE binary16 */
	COLLET_BF16,    /* upper half of an f32 */
	COLLET_F32,
	COLLET_F64,
	COLLET_F8E4M3,  /* OCP 8-bit float: no infinities, S.1111.111 is NaN, largest 448 */
	COLLET_F8E5M2,  /* OCP 8-bit float: IEEE-like, largest finite 57344 */
	COLLET_DTYPE_COUNT
} collet_dtype;

/* Bytes of one element; 0 for a value that names no dtype. */
COLLET_API size_t collet_dtype_bytes(collet_dtype dtype);
/* "f32", "bf16", ...; static; NULL for a value that names no dtype. */
COLLET_API const char *collet_dtype_name(collet_dtype dtype);

/* How elements are combined. Operands are taken in rank order within a step, lower rank first.
 *
 * Integers wrap (two's complement). Floats of 16 and 8 bits are widened to f32, combined there, and rounded once
 * (to nearest, ties to even) each time a rank stores or sends them: a step that combines k operands rounds once. A sum
 * beyond the largest finite value is infinity; of fp8, f8e4m3 has none and gives 448, f8e5m2 gives 57344 for a finite
 * sum and keeps an infinity that an operand had. Sums are never contracted to FMA; denormals are kept, whatever mode
 * the calling thread is in.
 * NaN: one that an operation stores (MIN and MAX included, where NaN propagates) is the canonical quiet one of its type
 * (f64 7ff8000000000000, f32 7fc00000, f16 7e00, bf16 7fc0, f8e5m2 7e, f8e4m3 7f), whatever went in; a mere copy keeps
 * its bits. MIN and MAX: -0 < +0.
 * AVERAGE: floats multiply the finished sum by 1/n, in f32 (f64: in f64), before the one rounding; integers divide the
 * wrapped sum, truncating towards zero. PREMUL_SUM: each rank's elements are multiplied by its own how.scale first (f64
 * in f64, other floats in f32) and rounded to the dtype; refused for integers. AND, OR, XOR: integers only. USER:
 * how.user_op. Anything else is COLLET_ERR_UNSUPPORTED. */
typedef enum collet_op {
	COLLET_SUM = 0,
	COLLET_PRODUCT,
	COLLET_MIN,
	COLLET_MAX,
	COLLET_AVERAGE,
	COLLET_PREMUL_SUM,
	COLLET_AND,
	COLLET_OR,
	COLLET_XOR,
	COLLET_USER,
	COLLET_OP_COUNT
} collet_op;

/* "sum", "premul_sum", ...; static; NULL for a value that names no operation. */
COLLET_API const char *collet_op_name(collet_op op);

/* A user-defined operation. combine() sets result[i] = left[i] (op) right[i] for count elements; result is left or
 * right or neither. It must be associative; it runs on the thread that advances the request, and must give the
 * same bits on every rank. It must not call collet, which refuses (COLLET_ERR_ARGUMENT) whatever waits or changes
 * something; but collet_comm_abort(), as it has no other way to say that it cannot go on. Not commutative: operands are
 * combined in rank order, and only algorithms that can are chosen. The struct must outlive the calls that use it. */
typedef struct collet_user_op {
	void (*combine)(
		void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context);
	void *context;
	const char *name;  /* for error texts and the mismatch check; may be NULL */
	bool commutative;
	uint8_t reserved[7];
} collet_user_op;

/* ---- Communicators ------------------------------------------------------------------------------------------ */

typedef struct collet_comm collet_comm;
typedef struct collet_request collet_request;

/* 0 in a timeout field means "the default"; this means "wait as long as it takes". */
#define COLLET_NO_TIMEOUT ((int64_t)-1)

/* A key-value store that the caller brings, instead of collet's own: for ranks that already have one (etcd, Redis,
 * torch's Store). Keys are short printable strings, values up to 64 KiB. Called by the creating thread only, during
 * collet_comm_create() only. */
typedef struct collet_store_callbacks {
	/* Stores the value; visible to every rank before or soon after it returns. Nonzero: failure. */
	int (*set)(void *context, const char *key, const void *value, size_t bytes);
	/* Waits until the key exists or timeout_ns has passed, then copies at most capacity bytes and sets *bytes to
	 * the value's full size. Nonzero: failure or timeout. */
	int (*get)(void *context, const char *key, void *value, size_t capacity, size_t *bytes, int64_t timeout_ns);
	void *context;
} collet_store_callbacks;

/* How to meet the other ranks. Zero-initialised fields take the value of the environment, then the default; set fields
 * win over the environment. Strings and callbacks are read during the call only. */
typedef struct collet_options {
	bool explicit_rank;           /* rank and world_size below count, the launcher's variables do not */
	uint8_t reserved0[3];
	uint32_t rank;                /* 0 .. world_size - 1 */
	uint32_t world_size;
	uint32_t local_rank;          /* with explicit_rank; for binding and devices only */
	const char *store;            /* "tcp://HOST:PORT", "file:///FOLDER", "unix:NAME" (one host); COLLET_STORE */
	const collet_store_callbacks *store_callbacks; /* instead of store */
	const char *job;              /* ranks with different job names never meet; COLLET_JOB */
	const char *secret;           /* shared by the job's ranks; COLLET_SECRET, COLLET_SECRET_FILE */
	const char *interface;        /* "eth0,ib0", "^docker0", "10.0.0.0/8"; COLLET_INTERFACE */
	const char *port_range;       /* "20000-20100" for the listening ports; COLLET_PORT_RANGE */
	const char *transport;        /* "tcp", "shm,tcp", "faulty:tcp": only these; COLLET_TRANSPORT */
	const char *algorithm;        /* "ring" or "allreduce:ring,broadcast:tree"; COLLET_ALGORITHM */
	int64_t timeout_ns;           /* of each collective, default 30 min; COLLET_TIMEOUT (seconds, 0: none) */
	int64_t rendezvous_timeout_ns;/* default 5 min; COLLET_RENDEZVOUS_TIMEOUT (seconds, 0: none) */
	int progress_thread;          /* 1: a thread of the library advances requests nobody waits for; -1: off; 0:
	                                 COLLET_PROGRESS_THREAD, default off */
	uint8_t reserved1[4];
	uint64_t reserved[8];         /* must be zero */
} collet_options;

/* Meets the other ranks and makes the communicator of all of them. options may be NULL: everything from the
 * environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; or Open MPI's, MPICH's, Slurm's, OpenPAI's; see
 * collet(7)); with no launcher's variables at all, a world of one rank. Blocks until every rank has come or the
 * rendezvous deadline has passed. *comm is written on success only.
 *
 * Ranks use GPUs together (GPUs, above) only if by then each has initialised the driver, and has its GPU current in the
 * calling thread or sees no other.
 *
 * Each call makes a context too: what this rank has in this process (its memory, connections and one sleeping
 * control thread), shared by all communicators split from this one and freed with the last of them.
 *
 * COLLET_ERR_ARGUMENT, _CONFIG (a setting that matters differs between ranks: which, where, how), _RENDEZVOUS (who did
 * not come), _AUTH, _MEMORY, _SYSTEM. Any thread; several ranks may be threads of one process, each calling this. */
COLLET_API COLLET_MUST_USE collet_status collet_comm_create(collet_comm **comm, const collet_options *options);

/* Collective over comm: ranks that give the same color form a new communicator, ordered by (key, rank in comm).
 * COLLET_NO_COLOR: this rank takes part and gets NULL. Both communicators then live on independently. */
#define COLLET_NO_COLOR UINT32_MAX
COLLET_API COLLET_MUST_USE collet_status collet_comm_split(
	collet_comm *comm, uint32_t color, uint32_t key, collet_comm **split);

/* Makes a communicator of the ranks that still live, after COLLET_ERR_PEER_LOST. Not offered yet: always
 * COLLET_ERR_UNSUPPORTED. */
COLLET_API COLLET_MUST_USE collet_status collet_comm_shrink(collet_comm *comm, collet_comm **shrunk);

/* Ends the communicator on every rank: pending and later calls return COLLET_ERR_ABORTED. Local, returns at once,
 * safe from any thread, again and again; wakes every waiter. */
COLLET_API void collet_comm_abort(collet_comm *comm);

/* Frees *comm and sets it to NULL. Local: waits for no peer, except to let what this rank has sent in finished calls
 * be read. Pending requests end with COLLET_ERR_ABORTED and are freed. NULL or *comm == NULL: COLLET_ERR_ARGUMENT. In a
 * forked child only the child's copies are freed. */
COLLET_API collet_status collet_comm_destroy(collet_comm **comm);

/* COLLET_OK, or what has ended this communicator. The sentence goes to collet_last_error(). */
COLLET_API collet_status collet_comm_error(collet_comm *comm);

COLLET_API uint32_t collet_comm_rank(const collet_comm *comm);
COLLET_API uint32_t collet_comm_size(const collet_comm *comm);
/* This rank's number among the ranks of comm on its host, and how many those are. */
COLLET_API uint32_t collet_comm_local_rank(const collet_comm *comm);
COLLET_API uint32_t collet_comm_local_size(const collet_comm *comm);
/* The host name of a rank; NULL if there is no such rank. Lives as long as comm. */
COLLET_API const char *collet_comm_host(const collet_comm *comm, uint32_t rank);

/* ---- Collectives -------------------------------------------------------------------------------------------- */

/* How a call is made. Zero-initialised (COLLET_HOW_DEFAULT, or NULL for the whole struct): blocks, default deadline,
 * the tuner's algorithm. reserved must be zero, so that the struct can grow. */
typedef struct collet_how {
	collet_request **request;     /* set: the call returns at once and *request must be waited for */
	void *stream;                 /* a CUDA stream, see Streams at the end; NULL: none. Not together with request */
	int64_t timeout_ns;           /* 0: the communicator's; COLLET_NO_TIMEOUT */
	const char *algorithm;        /* "ring", ...; NULL: chosen. The same on every rank */
	const collet_user_op *user_op;/* with COLLET_USER */
	double scale;                 /* with COLLET_PREMUL_SUM: what this rank's elements are multiplied by */
	/* How a collective's messages are cut, the same on every rank; 0: as chosen. It never changes a result's bits.
	 * Pieces are at most as large as there is room for; channels are used by algorithms that work piece by piece.
	 */
	uint32_t segment_bytes;
	uint32_t channels;            /* up to COLLET_CHANNELS_MAX */
	uint64_t reserved[5];
} collet_how;
#define COLLET_HOW_DEFAULT { 0 }
#define COLLET_CHANNELS_MAX 8

/* recv[i] = send of all ranks combined, on every rank. count elements each. */
COLLET_API COLLET_MUST_USE collet_status collet_allreduce(collet_comm *comm, const void *send, void *recv,
	uint64_t count, collet_dtype dtype, collet_op op, const collet_how *how);
/* The same, on root only; recv is unused elsewhere. */
COLLET_API COLLET_MUST_USE collet_status collet_reduce(collet_comm *comm, const void *send, void *recv, uint64_t count,
	collet_dtype dtype, collet_op op, uint32_t root, const collet_how *how);
/* recv = root's send, on every rank (root too, unless in place); send is unused elsewhere. */
COLLET_API COLLET_MUST_USE collet_status collet_broadcast(collet_comm *comm, const void *send, void *recv,
	uint64_t count, collet_dtype dtype, uint32_t root, const collet_how *how);
/* Returns when every rank has called it. */
COLLET_API COLLET_MUST_USE collet_status collet_barrier(collet_comm *comm, const collet_how *how);
/* recv (size * count elements) = the sends of rank 0, 1, ... one after the other. */
COLLET_API COLLET_MUST_USE collet_status collet_allgather(
	collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype, const collet_how *how);
/* Rank r gives counts[r] elements, which land at recv + displacements[r] elements. Every rank passes the same
 * counts. */
COLLET_API COLLET_MUST_USE collet_status collet_allgatherv(collet_comm *comm, const void *send, uint64_t send_count,
	void *recv, const uint64_t *counts, const uint64_t *displacements, collet_dtype dtype, const collet_how *how);
/* recv (count elements) = elements rank * count ... of the ranks' sends (size * count elements) combined. */
COLLET_API COLLET_MUST_USE collet_status collet_reduce_scatter(collet_comm *comm, const void *send, void *recv,
	uint64_t count, collet_dtype dtype, collet_op op, const collet_how *how);
/* root's recv (size * count elements) = the sends of rank 0, 1, ... */
COLLET_API COLLET_MUST_USE collet_status collet_gather(collet_comm *comm, const void *send, void *recv, uint64_t count,
	collet_dtype dtype, uint32_t root, const collet_how *how);
/* Rank r's block lands at root's recv + displacements[r]; root's counts say its length, or else it is a mismatch. */
COLLET_API COLLET_MUST_USE collet_status collet_gatherv(collet_comm *comm, const void *send, uint64_t send_count,
	void *recv, const uint64_t *counts, const uint64_t *displacements, collet_dtype dtype, uint32_t root,
	const collet_how *how);
/* recv = elements rank * count ... of root's send (size * count elements). */
COLLET_API COLLET_MUST_USE collet_status collet_scatter(collet_comm *comm, const void *send, void *recv, uint64_t count,
	collet_dtype dtype, uint32_t root, const collet_how *how);
COLLET_API COLLET_MUST_USE collet_status collet_scatterv(collet_comm *comm, const void *send, const uint64_t *counts,
	const uint64_t *displacements, void *recv, uint64_t recv_count, collet_dtype dtype, uint32_t root,
	const collet_how *how);
/* Block p of send (count elements) goes to rank p; block p of recv comes from rank p. */
COLLET_API COLLET_MUST_USE collet_status collet_alltoall(
	collet_comm *comm, const void *send, void *recv, uint64_t count, collet_dtype dtype, const collet_how *how);
/* Block p is counts[p] elements at displacements[p], of either side; in place (send == recv) both are equal. */
COLLET_API COLLET_MUST_USE collet_status collet_alltoallv(collet_comm *comm, const void *send,
	const uint64_t *send_counts, const uint64_t *send_displacements, void *recv, const uint64_t *recv_counts,
	const uint64_t *recv_displacements, collet_dtype dtype, const collet_how *how);

/* ---- Point to point ----------------------------------------------------------------------------------------- */

#define COLLET_ANY_SOURCE UINT32_MAX

/* What a receive got. */
typedef struct collet_received {
	uint32_t source;
	uint32_t tag;
	uint64_t count;  /* elements */
} collet_received;

/* Messages between a pair with one tag arrive in the order sent. Blocking send returns when buf may be reused: for a
 * large message, when the receive has taken it. Of how, request, stream and timeout_ns count. Point to point
 * never mixes with collectives: it has connections and an order of its own. COLLET_ERR_ARGUMENT: no such rank. */
COLLET_API COLLET_MUST_USE collet_status collet_send(collet_comm *comm, const void *buf, uint64_t count,
	collet_dtype dtype, uint32_t peer, uint32_t tag, const collet_how *how);
/* Takes the oldest message from source (or COLLET_ANY_SOURCE) with this tag. At most count elements; a longer message
 * is COLLET_ERR_TRUNCATED. received may be NULL; else it must live until the request has ended. */
COLLET_API COLLET_MUST_USE collet_status collet_recv(collet_comm *comm, void *buf, uint64_t count, collet_dtype dtype,
	uint32_t source, uint32_t tag, collet_received *received, const collet_how *how);
/* Both at once, as one request: in whatever order peers call, neither waits for the other for ever. */
COLLET_API COLLET_MUST_USE collet_status collet_sendrecv(collet_comm *comm, const void *send, uint64_t send_count,
	uint32_t to, uint32_t send_tag, void *recv, uint64_t recv_count, uint32_t from, uint32_t recv_tag,
	collet_dtype dtype, collet_received *received, const collet_how *how);

/* ---- Requests ----------------------------------------------------------------------------------------------- */

/* COLLET_PENDING, or how the request ended; then it is freed and *request set to NULL. Advances this rank's
 * communicators. A NULL *request is COLLET_OK at once. In a forked child this and the next three return
 * COLLET_ERR_FORKED and leave the request as it is; it goes with its communicator. */
COLLET_API COLLET_MUST_USE collet_status collet_request_test(collet_request **request);
/* Blocks until it has ended (by its own deadline at the latest), then as test. */
COLLET_API COLLET_MUST_USE collet_status collet_request_wait(collet_request **request);
/* As wait, of the first of these, all of one rank's, that ends: *index. All NULL: *index = count, COLLET_OK. */
COLLET_API COLLET_MUST_USE collet_status collet_request_wait_any(
	collet_request **requests, size_t count, size_t *index);
/* Blocks until all have ended, and frees them; the status of the first that failed, in array order. */
COLLET_API COLLET_MUST_USE collet_status collet_request_wait_all(collet_request **requests, size_t count);

/* ---- Memory ------------------------------------------------------------------------------------------------- */

/* Memory that local peers can map, so that collectives on it copy nothing: 64-byte aligned, zeroed, this rank's own,
 * valid for every communicator of comm's context, until collet_mem_free() or the context's last destroy.
 * After an error its contents are undefined until destroy returns. COLLET_ERR_MEMORY when the arena is full. */
COLLET_API COLLET_MUST_USE collet_status collet_mem_alloc(collet_comm *comm, void **memory, size_t bytes);
/* Memory of a GPU that ranks which share it can map, told to them now and not at the first call on it: of the GPU
 * whose CUDA context is current, or else of the one that this rank had when the communicator was created. It is whole
 * units of the driver's (2 MiB as a rule), mapped for all GPUs that reach it, contents undefined, this rank's, valid
 * for every communicator of comm's context, until collet_mem_free() or the context's last destroy, whichever is first.
 * May be called while streams are captured. COLLET_ERR_UNSUPPORTED: no driver, no GPU that can be told, or one whose
 * memory cannot be shown to other processes. COLLET_ERR_MEMORY, COLLET_ERR_SYSTEM: as the driver says. Nothing has
 * changed then. */
COLLET_API COLLET_MUST_USE collet_status collet_mem_alloc_device(collet_comm *comm, void **memory, size_t bytes);
/* Of either kind; NULL is fine. Memory in use by a pending request, by a call on a stream that has not passed it, or by
 * one in a graph (whose communicator goes first) is COLLET_ERR_ARGUMENT. Kernels and copies of the program's own must
 * have done with a GPU's. It is the GPU's again when the ranks that have mapped it hear of that, at their next call. */
COLLET_API collet_status collet_mem_free(collet_comm *comm, void *memory);
/* Tells the library that the caller's own memory will be used again and again and stays mapped until deregister, so
 * that transports may keep it registered. A GPU's is told to those that take it, by a dma-buf, where driver and adapter
 * can; where they cannot it is registered all the same, and calls do what they would do without. COLLET_ERR_ARGUMENT,
 * _MEMORY, _SYSTEM: nothing has changed. */
COLLET_API COLLET_MUST_USE collet_status collet_mem_register(collet_comm *comm, void *memory, size_t bytes);
COLLET_API collet_status collet_mem_deregister(collet_comm *comm, void *memory);

/* ---- Statistics --------------------------------------------------------------------------------------------- */

typedef enum collet_stat_kind {
	COLLET_STAT_TRANSPORT = 0,  /* name: the transport; sums over its conduits. "cuda_ipc": messages from GPU to
	                               GPU, of which the pair's own transport carried only the announcement */
	COLLET_STAT_ENDPOINT,       /* name: the transport; peer and channel say which (tcp: one socket each) */
	COLLET_STAT_ALGORITHM,      /* name: "allreduce:ring"; calls and payload bytes */
	COLLET_STAT_ROUNDING        /* name: "rounding"; messages_sent: elements rounded to 16 or 8 bits */
} collet_stat_kind;

typedef struct collet_stat {
	collet_stat_kind kind;
	uint32_t peer;
	uint32_t channel;
	uint32_t reserved0;
	char name[48];
	uint64_t calls;
	uint64_t bytes_sent, bytes_received;        /* payload */
	uint64_t messages_sent, messages_received;
	uint64_t system_calls;                      /* on the data path, where known */
	uint64_t reserved[4];
} collet_stat;

/* Writes at most capacity rows and sets *count to how many there are. Counters only grow. Any thread. */
COLLET_API COLLET_MUST_USE collet_status collet_comm_stats(
	collet_comm *comm, collet_stat *rows, size_t capacity, size_t *count);

/* ---- Streams ------------------------------------------------------------------------------------------------ */

/* With how.stream a call, of a collective or of a message, is put on that CUDA stream (CU_STREAM_LEGACY and
 * CU_STREAM_PER_THREAD too) and returns at once: it waits neither for peers nor for the GPU. The stream makes the call
 * when it gets there, and goes on when it has ended. Until then the buffers, a GPU's or any of the host's, and
 * *received are the stream's. Bits are those of the same call without a stream.
 *
 * Errors   Mistakes are refused at once, as ever. What happens later ends the communicator (COLLET_ERR_TRUNCATED too),
 *          is told by collet_comm_error(), and leaves the stream going; what the call should have written is undefined
 *          then. Deadlines run from when the stream gets to the call. COLLET_ERR_UNSUPPORTED: no driver, or a GPU
 *          without stream memory operations. COLLET_ERR_MEMORY: page-locked memory could not be had (ulimit -l).
 * Order    Calls start in the order in which they are made, on whatever streams: one that its stream has come to waits
 *          for those before it to start, not to end. So does a call without a stream. All ranks make them in one order.
 *          Where ranks have a GPU each, or are threads that share one and the call is at most 256 KiB long, a
 *          collective waits for those of this kind before it to end, not for others, its stream is of the context
 *          that was current when the communicator was made, and ranks capture alike.
 * Graphs   Calls may be captured into a CUDA graph; each launch makes them again, in the order of their capture. What
 *          they use stays until the communicator goes. The program orders launches and the communicator's other calls
 *          by streams, events or waiting, alike on all ranks. Launches of one capture must not overlap (as two
 *          instances), and there is none while the communicator is destroyed or after that.
 * Threads  Ranks that are threads of a process need streams of their own: on the legacy one, one waits for another,
 *          and calls of at most 256 KiB are COLLET_ERR_UNSUPPORTED there if the threads share a GPU. If one rank calls
 *          there all the same, the others' streams are to be made with CU_STREAM_NON_BLOCKING (CU_STREAM_PER_THREAD is
 *          not): the legacy one and those that are not wait for each other, and so would the ranks, until their
 *          deadline. What has the driver wait for all that runs (freeing memory, making or destroying communicators),
 *          or for the legacy stream, is to be done when all of them have made the calls that any has put on a stream.
 * Destroy  collet_comm_destroy() ends calls on streams with COLLET_ERR_ABORTED, and waits until their streams have
 *          passed them, which takes as long as what the streams were given before; a context that a fault has broken
 *          is not waited for. After 10 s it returns all the same, and what those calls use is never freed; nor is it
 *          where the driver has refused a call in the middle, which is not waited for. */

#ifdef __cplusplus
}
#endif
#endif
