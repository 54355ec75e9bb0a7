/* collet: functions for tools, which examine the library instead of computing with it.
 *
 * They list algorithms and transports, predict the time of a call and the algorithm it takes, read and write tunings,
 * and dump the flight recorder. collet-bench uses nothing else. Schedulers and monitors may use them too.
 *
 * These conventions hold beside those of collet.h:
 *   Names    Collectives are spelt as their functions ("allreduce", "reduce_scatter"). Algorithms and transports are
 *            spelt as in COLLET_ALGORITHM and COLLET_TRANSPORT ("ring", "shm"). An unknown name is
 *            COLLET_ERR_ARGUMENT; the error text lists the known ones.
 *   Lists    A function that lists writes at most capacity rows. It always sets *count to the number of rows that
 *            exist, so (NULL, 0, &count) asks for it. Strings in rows are static.
 *   Bytes    of a call are counted as collet-bench counts them. allgather, gather: the result. reduce_scatter,
 *            alltoall, scatter: the whole input. All others: one buffer.
 *   Threads  Any thread may call every function. Functions without a collet_comm keep no state and read only their
 *            arguments, unless they say otherwise.
 *   Errors   Outputs are written on success only, except *count of a list. */
#ifndef COLLET_TOOLS_H
#define COLLET_TOOLS_H

#include <collet/collet.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Algorithms and transports ------------------------------------------------------------------------------ */

/* An algorithm of this build. */
typedef struct collet_algorithm_info {
	const char *collective;  /* "allreduce" */
	const char *name;        /* "ring": as in COLLET_ALGORITHM, collet_how.algorithm and --algorithm */
	const char *summary;     /* one line: what it does, and when it is used */
	const char *source;      /* the paper or textbook; NULL: common knowledge */
	/* It combines in rank order, as a user-defined operation that is not commutative requires. */
	bool rank_ordered;
	/* It is pipelined by segments, so it can use several channels. */
	bool segmented;
	uint8_t reserved[6];
} collet_algorithm_info;

/* Lists the algorithms of this build, grouped by collective: those of one collective, or all if collective is NULL. */
COLLET_MUST_USE COLLET_API collet_status collet_algorithm_list(
	const char *collective, collet_algorithm_info *rows, size_t capacity, size_t *count);

/* A transport that the library knows. */
typedef struct collet_transport_info {
	const char *name;        /* "shm" */
	const char *summary;     /* one line: which ranks it connects, and how */
	bool built;              /* available; a module: found in the module folders */
	bool is_module;          /* it is loaded at run time, and may find no device */
	uint8_t reserved[6];
} collet_transport_info;

/* Lists every known transport, including those left out of this build. Opens no device: whether two ranks can use a
 * transport is found out when a communicator is created. */
COLLET_MUST_USE COLLET_API collet_status collet_transport_list(
	collet_transport_info *rows, size_t capacity, size_t *count);

/* ---- Predicted costs ---------------------------------------------------------------------------------------- */

/* Limits of tunings. */
enum {
	COLLET_TUNING_LINKS = 64,      /* at most, in a tuning */
	COLLET_TUNING_ALGORITHMS = 64, /* at most, of all collectives */
	COLLET_TUNING_SIZES = 12,      /* at most, at which algorithms were measured */
	COLLET_TUNING_CHANNELS = 4,    /* numbers of channels: 1, 2, 4, 8 */
	COLLET_EAGER_BYTES_MAX = 256 << 10,    /* greatest collet_link_cost.eager_bytes */
	COLLET_FAST_PATH_BYTES_MAX = 256 << 10 /* greatest collet_link_cost.fast_path_bytes */
};

/* The cost model's parameters for one transport, number of ranks and number of cores: the parameters of the closed
 * forms at the top of each algorithm, the limits of segmentation, and each algorithm's measured time in relation to its
 * closed form. If there are more ranks than cores, a row holds for that many ranks per core and is scaled for other
 * worlds. It then prices the work of all ranks together (docs/algorithms.md). */
typedef struct collet_link_cost {
	char transport[16];         /* "shm" */
	uint32_t ranks;             /* measured with this many ranks */
	uint32_t cores;             /* and with this many cores in all */
	double latency_ns;          /* alpha: from the end of the send to the arrival */
	double overhead_ns;         /* o: time of sender and of receiver per message */
	double segment_ns;          /* p: the same per segment after the first */
	/* beta: per byte of a message up to 4 KiB, from there to 32 KiB, to 256 KiB, and beyond. */
	double byte_ns[4];
	double uncached_byte_ns;    /* added per byte of a call beyond cached_bytes */
	double reduce_byte_ns;      /* gamma: reduction per byte of a received operand */
	double uncached_reduce_byte_ns; /* added per byte beyond cached_bytes */
	uint64_t cached_bytes;      /* bytes of a call that stay in a cache */
	/* Time of a byte over 1, 2, 4 and 8 channels (tcp: sockets of a pair), relative to one channel. 0: not
	 * measured, and not used. */
	double channel_ratios[COLLET_TUNING_CHANNELS];
	uint32_t min_segment_bytes; /* least and greatest segment; between them, the */
	uint32_t max_segment_bytes; /* formulas or the measured cuts below decide */
	uint32_t size_count;        /* entries of size_bytes */
	uint32_t is_far;            /* 1: measured while its cores were far from each other; else 0 */
	uint64_t size_bytes[COLLET_TUNING_SIZES]; /* sizes at which algorithms were measured, rising */
	/* Measured time / predicted time of algorithm i, in the order of collet_algorithm_list(NULL, ...), at
	 * size_bytes[k]. Values between sizes are interpolated over the logarithm of bytes. 0: not measured. They are
	 * used on one host only, for exactly these numbers of ranks and cores. If ranks share cores, they also serve
	 * other numbers of ranks that share as many: those for which collet_tuning_find() gives this row, and those
	 * between this row's and the next one's. */
	float factor[COLLET_TUNING_ALGORITHMS][COLLET_TUNING_SIZES];
	/* The fastest of the measured cuts at that size and its neighbours: segments of 2^segment_log2 bytes over
	 * 2^channels_log2 channels. segment_log2 0: the formulas decide. */
	uint8_t segment_log2[COLLET_TUNING_ALGORITHMS][COLLET_TUNING_SIZES];
	uint8_t channels_log2[COLLET_TUNING_ALGORITHMS][COLLET_TUNING_SIZES];
	/* Limits that no formula gives; 0: the built-in ones. Messages between two ranks of up to eager_bytes are sent
	 * eagerly, longer ones by rendezvous. Calls of up to fast_path_bytes run inline in the caller, without
	 * tasks. */
	uint32_t eager_bytes;       /* 1024 to COLLET_EAGER_BYTES_MAX */
	uint32_t fast_path_bytes;   /* 1024 to COLLET_FAST_PATH_BYTES_MAX */
	uint64_t reserved[3];       /* must be zero */
} collet_link_cost;

/* A call whose cost is asked for. Zero-initialise it. Strings are read during the call only. */
typedef struct collet_call_shape {
	const char *collective;     /* "allreduce" */
	uint32_t ranks;             /* 1 ... */
	uint32_t root;              /* ignored by collectives without a root */
	collet_dtype dtype;         /* type of the elements */
	collet_op op;               /* ignored by collectives that reduce nothing */
	bool is_noncommutative;     /* op is COLLET_USER and not commutative */
	uint8_t reserved0[3];
	uint32_t cores;             /* of all ranks; 0: one per rank */
	uint64_t segment_bytes;     /* segments of this many bytes; 0: chosen by the model */
	uint32_t channels;          /* over this many channels; 0: chosen by the model */
	uint32_t reserved1;
	uint64_t reserved[2];       /* must be zero */
} collet_call_shape;

/* Predicts the time in ns of one call on one host, if all ranks arrive together. bytes: see Bytes at the top. cost: the
 * parameters to use; NULL: the built-in ones of transport, which is otherwise ignored. The same arguments give the same
 * number on every machine. COLLET_ERR_UNSUPPORTED: the algorithm cannot do this call; the error text says why. */
COLLET_MUST_USE COLLET_API collet_status collet_cost_predict(const collet_call_shape *shape, const char *algorithm,
	const char *transport, const collet_link_cost *cost, uint64_t bytes, double *ns);

/* One row of the choice table: calls of first_bytes to last_bytes use algorithm, in segments of segment_bytes over this
 * many channels. */
typedef struct collet_choice {
	uint64_t first_bytes;       /* the row holds from this size on */
	uint64_t last_bytes;        /* UINT64_MAX: unlimited */
	const char *algorithm;      /* "ring" */
	double first_ns;            /* predicted time at first_bytes */
	uint32_t segment_bytes;     /* of the messages */
	uint32_t channels;          /* 1 unless the algorithm is pipelined */
	bool measured;              /* the cut comes from a measurement near this size */
	uint8_t reserved[7];
} collet_choice;

/* Lists the chosen algorithm by size: rows in rising order, without gaps from 0 on. cost and transport as above. The
 * same arguments give the same rows on every machine. */
COLLET_MUST_USE COLLET_API collet_status collet_choice_list(const collet_call_shape *shape, const char *transport,
	const collet_link_cost *cost, collet_choice *rows, size_t capacity, size_t *count);

/* How a communicator would carry out a call. */
typedef struct collet_plan {
	const char *algorithm;      /* "ring" */
	char transport[32];         /* the transports to this rank's peers: "shm", "shm,tcp"; alone: "self" */
	double predicted_ns;        /* by this communicator's cost model */
	uint32_t segment_bytes;     /* of the messages */
	uint32_t channels;          /* 1 unless the algorithm is pipelined */
	uint32_t cores;             /* of rank 0's host, for its ranks */
	uint32_t max_segment_bytes; /* greatest segment that buffers allow in this call */
	/* The same call if all buffers are GPU memory: how it is carried out, and the algorithm that defines its order
	 * of operands.
	 *	"shared_gpu"	one GPU, shared by the ranks, does it for all of them in one launch
	 *	"peer_gpus"	each rank has a GPU, whose kernel runs the rank's steps
	 *	"hierarchical"	one GPU of each host works for its ranks, and one rank of each goes between hosts
	 *	"pipelined"	through host memory, copied segment by segment during the call
	 *	"copied"	through host memory, copied before and after the call
	 * Both are NULL if no driver is loaded, the call has no buffers, or it is refused (COLLET_USER). */
	const char *gpu_path;
	const char *gpu_algorithm;
	/* The predicted time of that, and the time of each link of the call alone: copies between GPUs and page-locked
	 * memory; GPU memory, or the links between GPUs if these take longer; messages (of "peer_gpus", between
	 * kernels). If the call is pipelined, the links work at the same time. */
	double gpu_ns, gpu_copies_ns, gpu_memory_ns, gpu_messages_ns;
	/* The GPU links' parameters are measured: rows "cuda" and, between kernels, "cuda_ipc" of the tuning. Otherwise
	 * they come from data sheets, and no GPU has confirmed them (docs/algorithms.md). */
	bool gpu_measured;
	/* "pipelined", but without copies if this rank's buffers are GPU memory and registered (collet_mem_register()):
	 * the call reduces nothing, and the transports of all its pairs accept GPU memory. The times above are those of
	 * registered buffers; for others, add the copies. */
	bool is_gpudirect;
	uint8_t reserved[6];
} collet_plan;

/* Writes the plan for a call with these arguments. algorithm NULL: the communicator's choice. root and op are 0 for
 * collectives that have none. Asks no peer; all ranks get the same algorithm. COLLET_ERR_UNSUPPORTED: the named
 * algorithm cannot do this call. Any thread. */
COLLET_MUST_USE COLLET_API collet_status collet_comm_plan(collet_comm *comm, const char *collective, uint64_t count,
	collet_dtype dtype, collet_op op, uint32_t root, const char *algorithm, collet_plan *plan);

/* ---- Tuning ------------------------------------------------------------------------------------------------- */

/* A tuning is a list of link costs, from which communicators make their choices. Rank 0 reads it when a communicator is
 * created: from the file that COLLET_TUNING names, else from collet/tuning in the user's configuration folder
 * ($XDG_CONFIG_HOME, else ~/.config), else the built-in one. docs/algorithms.md describes the format. */

/* Writes the path of the tuning file, or "" if there is none, as with COLLET_TUNING=builtin or without a home folder.
 * Reads the environment. COLLET_ERR_CONFIG: the path is longer than capacity. */
COLLET_MUST_USE COLLET_API collet_status collet_tuning_path(char *path, size_t capacity);

/* Reads the link costs of a tuning file; path NULL: the built-in ones. COLLET_ERR_SYSTEM: the file cannot be read.
 * COLLET_ERR_CONFIG: it is no tuning, of another version, or made on another machine; the error text names file and
 * line. */
COLLET_MUST_USE COLLET_API collet_status collet_tuning_read(
	const char *path, collet_link_cost *rows, size_t capacity, size_t *count);

/* Writes a tuning file for this machine, creating its folder and replacing the file atomically. COLLET_ERR_ARGUMENT: a
 * row is invalid. COLLET_ERR_SYSTEM: the file cannot be written. */
COLLET_MUST_USE COLLET_API collet_status collet_tuning_write(
	const char *path, const collet_link_cost *rows, size_t count);

/* Returns the row that a communicator would use for this many ranks and cores of one host, if the cores are near each
 * other: of this transport, the row with the nearest number of ranks per core, then of ranks. NULL: there is no row of
 * the transport. The row belongs to rows. If ranks share cores, and another row has as many cores and lies on the other
 * side of this number of ranks, a communicator uses that row too: it takes the geometric mean of the times that both
 * predict. */
COLLET_API const collet_link_cost *collet_tuning_find(
	const collet_link_cost *rows, size_t count, const char *transport, uint32_t ranks, uint32_t cores);

/* Returns the row of this transport and of just these numbers of ranks and cores that was measured with far cores.
 * NULL: there is none. Communicators of one host use it if rank 0 finds the cores far from each other when the first
 * communicator is created: for every collective of two ranks, and of more ranks for those that reduce nothing. So the
 * distance between cores never changes the bits of a result. The job's limits (eager_bytes, fast_path_bytes) are those
 * of the row for rank 0's host. */
COLLET_API const collet_link_cost *collet_tuning_find_far(
	const collet_link_cost *rows, size_t count, const char *transport, uint32_t ranks, uint32_t cores);

/* Cores between which a flag takes at least this long count as far from each other. Cores that share a cache pass a
 * flag in 26 to 100 ns, others in 155 to 260, on all machines seen so far. */
enum { COLLET_FAR_CORES_NS = 120 };

/* Returns the time in ns that a flag takes one way between two hardware threads, by the kernel's numbers. It is the
 * least mean of several batches, which other load on the cores does not change. Takes about a millisecond, at most a
 * tenth of a second. Returns 0 if it could not be measured: a thread that does not exist, that this process may not
 * use, or that was too busy; or one and the same. The host of a virtual machine may move its cores at any time, which
 * changes the time by a factor of up to five. Any thread. */
COLLET_API double collet_core_latency_ns(uint32_t cpu, uint32_t other);

/* ---- Flight recorder ---------------------------------------------------------------------------------------- */

/* Writes the last few hundred collectives of this rank as text to a file descriptor, oldest first: number, collective,
 * count, dtype, op, root, algorithm, start and end, and how it ended or how far it got. If threads share a GPU, the
 * collectives that ran as kernels of this rank follow, with numbers of their own.
 *
 * It never waits for the communicator, so it works while another thread hangs inside it. A row that is being written
 * meanwhile may be left out. COLLET_ERR_SYSTEM: the descriptor refuses. Any thread, also after an error has ended the
 * communicator. */
COLLET_MUST_USE COLLET_API collet_status collet_comm_dump(collet_comm *comm, int fd);

#ifdef __cplusplus
}
#endif
#endif
