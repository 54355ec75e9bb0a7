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
 *               reduce_scatter, alltoall and scatter by the whole input; all else by one buffer.
 *   Threads     any thread; functions without a collet_comm keep no state and read nothing but their arguments.
 *   Failure     *outputs are written on success only (*count of a list always).
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
	bool rank_ordered; /* combines in rank order, so a user-defined operation that is not commutative may use it */
	bool segmented; /* works piece by piece, so that it can use several channels */
	uint8_t reserved[6];
} collet_algorithm_info;

/* Every algorithm of this build, grouped by collective. collective NULL: all; else that collective's. */
COLLET_API COLLET_MUST_USE collet_status collet_algorithm_list(
	const char *collective, collet_algorithm_info *rows, size_t capacity, size_t *count);

typedef struct collet_transport_info {
	const char *name;        /* "shm" */
	const char *summary;     /* one line: whom it reaches and how bytes move */
	bool built;              /* in this build; a module: there, where modules are looked for */
	bool is_module;          /* it is no part of the library, and may find no device */
	uint8_t reserved[6];
} collet_transport_info;

/* Every transport that collet knows of, also those left out of this build. Opens nothing: whether two ranks can talk
 * over one is found out when a communicator is created. */
COLLET_API COLLET_MUST_USE collet_status collet_transport_list(
	collet_transport_info *rows, size_t capacity, size_t *count);

/* ---- What a call would cost --------------------------------------------------------------------------------- */

enum {
	COLLET_TUNING_LINKS = 16,      /* in a tuning, at most */
	COLLET_TUNING_ALGORITHMS = 64, /* of all collectives, at most */
	COLLET_TUNING_SIZES = 12,      /* at which algorithms were measured, at most */
	COLLET_TUNING_CHANNELS = 4,    /* numbers of channels: 1, 2, 4, 8 */
	COLLET_EAGER_BYTES_MAX = 256 << 10,
	COLLET_FAST_PATH_BYTES_MAX = 256 << 10
};

/* What the cost model knows of one transport between so many ranks on so many cores: the numbers of the closed forms at
 * the top of each algorithm, how finely to cut, and how far each algorithm was measured to be from its closed form.
 * What is measured with more ranks than cores holds for as many ranks a core, and is scaled for others; there it prices
 * what all ranks do together (docs/algorithms.md). */
typedef struct collet_link_cost {
	char transport[16];         /* "shm" */
	uint32_t ranks;             /* measured with this many ranks */
	uint32_t cores;             /* that they had together */
	double latency_ns;          /* alpha: from a message's leaving its sender's hands to its being there */
	double overhead_ns;         /* o: that each message holds its sender and its receiver */
	double segment_ns;          /* p: and each of its pieces but the first */
	double byte_ns[4]; /* beta: each byte up to 4 KiB of a message, from there to 32 KiB, to 256 KiB, beyond */
	double uncached_byte_ns;    /* and more for each byte of calls whose bytes do not stay in a cache, ... */
	double reduce_byte_ns;      /* gamma: combining one byte of a received operand */
	double uncached_reduce_byte_ns; /* ... likewise */
	uint64_t cached_bytes;      /* of a call, that stay in a cache */
	/* What a byte costs over 1, 2, 4 and 8 channels (over tcp: sockets of a pair), in parts of what it does over
	 * one; 0: not measured, not used. */
	double channel_ratios[COLLET_TUNING_CHANNELS];
	uint32_t min_segment_bytes; /* messages are cut into pieces of this ... */
	uint32_t max_segment_bytes; /* ... to this many bytes; which, the formulas say, or the ways below */
	uint32_t size_count;        /* bytes of calls at which algorithms were measured, rising */
	uint32_t reserved0;
	uint64_t size_bytes[COLLET_TUNING_SIZES];
	/* Measured time / the formula's, of algorithm i as collet_algorithm_list(NULL, ...) lists them, at size[k],
	 * between sizes read off a line in the logarithm of bytes; 0: not measured. Used on one host alone: for just
	 * these numbers of ranks and cores, and, where they share cores, for others that share as many and have this
	 * row by collet_tuning_find(). */
	float factor[COLLET_TUNING_ALGORITHMS][COLLET_TUNING_SIZES];
	/* Of the ways in which messages were cut then, the fastest, at that size and those nearest to it: pieces of
	 * 2^piece_log2 bytes over 2^channels_log2 channels. Pieces 0: the formulas say. */
	uint8_t segment_log2[COLLET_TUNING_ALGORITHMS][COLLET_TUNING_SIZES];
	uint8_t channels_log2[COLLET_TUNING_ALGORITHMS][COLLET_TUNING_SIZES];
	/* Limits that are no formula's; 0: as built in. Messages between two ranks of up to eager_bytes travel at once,
	 * longer ones are announced and fetched. Calls of up to inline_bytes are done in one go, without lanes. */
	uint32_t eager_bytes;       /* 1024 to COLLET_EAGER_BYTES_MAX */
	uint32_t fast_path_bytes;   /* 1024 to COLLET_FAST_PATH_BYTES_MAX */
	uint64_t reserved[3];       /* zero */
} collet_link_cost;

/* A call to be judged. Zero-initialise; strings are read during the call only. */
typedef struct collet_call_shape {
	const char *collective;
	uint32_t ranks;             /* 1 ... */
	uint32_t root;
	collet_dtype dtype;
	collet_op op;               /* not read for collectives that combine nothing */
	bool is_noncommutative;     /* op is COLLET_USER and its operands must stay in order */
	uint8_t reserved0[3];
	uint32_t cores;             /* that the ranks have together; 0: one each */
	uint64_t segment_bytes;     /* cut into pieces of so many bytes; 0: as the model would */
	uint32_t channels;          /* over so many; 0: likewise */
	uint32_t reserved1;
	uint64_t reserved[2];       /* zero */
} collet_call_shape;

/* The model's time in ns of one call that moves bytes, all ranks arriving together, on one host. cost NULL: the
 * built-in cost of transport; else transport is not read. COLLET_ERR_UNSUPPORTED: the algorithm cannot do this call
 * (not that many ranks, not in order); the sentence says why. Pure: the same arguments give the same number on every
 * machine. */
COLLET_API COLLET_MUST_USE collet_status collet_cost_predict(const collet_call_shape *shape, const char *algorithm,
	const char *transport, const collet_link_cost *cost, uint64_t bytes, double *ns);

/* One line of the choice table: messages of first_bytes to last_bytes take algorithm, cut into pieces of piece_bytes
 * that go over so many channels. */
typedef struct collet_choice {
	uint64_t first_bytes;
	uint64_t last_bytes;        /* UINT64_MAX: no end */
	const char *algorithm;
	double first_ns;            /* the model's time at first_bytes */
	uint32_t segment_bytes;
	uint32_t channels;
	bool measured;              /* the cut is that of a measurement near this size, not of the formulas */
	uint8_t reserved[7];
} collet_choice;

/* Which algorithm is chosen by size, lines in rising order without gaps from 0 on. cost and transport as above. Pure.
 */
COLLET_API COLLET_MUST_USE collet_status collet_choice_list(const collet_call_shape *shape, const char *transport,
	const collet_link_cost *cost, collet_choice *rows, size_t capacity, size_t *count);

/* What this communicator would do with a call. */
typedef struct collet_plan {
	const char *algorithm;      /* "ring" */
	char transport[32];         /* what this rank's peers are reached by: "shm", "shm,tcp"; "self" alone */
	double predicted_ns;        /* by the communicator's own cost model */
	uint32_t segment_bytes;     /* messages are cut into pieces of so many bytes */
	uint32_t channels;          /* that the pieces go by, where the algorithm can use several */
	uint32_t cores;             /* that the first rank's host has for its ranks */
	uint32_t max_segment_bytes; /* for larger pieces of this call there is no room */
	/* The same call on buffers that all are a GPU's: how it goes, and by the order of operands of which algorithm.
	 *	"direct"	one GPU, which ranks share, does it for all of them in one launch
	 *	"executor"	each rank has a GPU, whose kernel runs the rank's steps
	 *	"hosted"	a GPU of each host's does what is inside for its ranks; one rank goes between hosts
	 *	"piped"		by way of the host's memory, copied piece by piece while the call runs
	 *	"staged"	by way of the host's memory, copied before and after
	 * NULL, both: no driver is loaded, the call has no buffers, or it is refused (COLLET_USER). */
	const char *gpu_path;
	const char *gpu_algorithm;
	/* The model's time of that, and what it would be of each link that the call crosses alone: copies between GPUs
	 * and page-locked memory, GPUs' own memory (where one does what is on several, the links between them if
	 * these take longer), messages (of an "executor", between kernels). Where it goes in pieces they work at the
	 * same time. */
	double gpu_ns, gpu_copies_ns, gpu_memory_ns, gpu_messages_ns;
	/* A GPU's links are the tuning's, of rows called "cuda" and, between kernels, "cuda_ipc"; else they are from
	 * data sheets, which no GPU has confirmed (docs/algorithms.md). */
	bool gpu_measured;
	/* "piped", but nothing is copied where this rank's buffers are a GPU's and registered (collet_mem_register):
	 * the call only moves, and transports of all its pairs take a GPU's memory. The times above are then those of
	 * registered buffers: of other ones copies come on top. */
	bool is_gpudirect;
	uint8_t reserved[6];
} collet_plan;

/* The plan for a call with these arguments, algorithm NULL for the communicator's choice. Local: no peer is asked, and
 * every rank that asks gets the same algorithm. root and op as in the call; 0 where it has none.
 * COLLET_ERR_UNSUPPORTED: the named algorithm cannot do this call. Any thread. */
COLLET_API COLLET_MUST_USE collet_status collet_comm_plan(collet_comm *comm, const char *collective, uint64_t count,
	collet_dtype dtype, collet_op op, uint32_t root, const char *algorithm, collet_plan *plan);

/* ---- Tuning ------------------------------------------------------------------------------------------------- */

/* A tuning is a few link costs: what a communicator's choices are made from. It is read by rank 0 when a communicator
 * is created, from the file that COLLET_TUNING names, else from collet/tuning in the user's configuration folder
 * ($XDG_CONFIG_HOME, else ~/.config), else it is the built-in one; docs/algorithms.md has the format. */

/* Writes that path into path; "" if there is none, as with COLLET_TUNING=builtin or without a home. Reads the
 * environment. COLLET_ERR_CONFIG: it is longer than capacity. */
COLLET_API COLLET_MUST_USE collet_status collet_tuning_path(char *path, size_t capacity);

/* The link costs in a tuning file. path NULL: the built-in ones. COLLET_ERR_SYSTEM: it cannot be read.
 * COLLET_ERR_CONFIG: it is no tuning, of another version, or made on another machine; the sentence names file and
 * line. */
COLLET_API COLLET_MUST_USE collet_status collet_tuning_read(
	const char *path, collet_link_cost *rows, size_t capacity, size_t *count);

/* Writes them for this machine, replacing the file in one step and making its folder. COLLET_ERR_ARGUMENT: a row makes
 * no sense. COLLET_ERR_SYSTEM. */
COLLET_API COLLET_MUST_USE collet_status collet_tuning_write(
	const char *path, const collet_link_cost *rows, size_t count);

/* The row that a communicator would use for so many ranks on so many cores of one host: of this transport, with the
 * nearest number of ranks a core, then of ranks. NULL: it has none of the transport. */
COLLET_API const collet_link_cost *collet_tuning_find(
	const collet_link_cost *rows, size_t count, const char *transport, uint32_t ranks, uint32_t cores);

/* ---- Flight recorder ---------------------------------------------------------------------------------------- */

/* Writes the last few hundred collectives of this rank, oldest first, as text to a file descriptor: number, collective,
 * count, dtype, op, root, algorithm, when it started and ended, how it ended or how far it is; then, where threads
 * share a GPU, those that were kernels of the rank's own, numbered among themselves. Never waits for the
 * communicator, so it works while another thread is stuck inside it; a line being written meanwhile may be left out.
 * COLLET_ERR_SYSTEM when the descriptor refuses. Any thread, also after an error has ended the communicator. */
COLLET_API COLLET_MUST_USE collet_status collet_comm_dump(collet_comm *comm, int fd);

#ifdef __cplusplus
}
#endif
#endif
