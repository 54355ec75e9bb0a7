/* Runs one library's ranks as a driver: started once, they time what collet-bench asks for.
 *
 * Every rank of every driver, collet's own included, connects to collet-bench's Unix socket and blocks in recv().
 * The socket is a packet socket in a private folder, named by COLLET_BENCH_SOCKET. So an idle driver uses no CPU,
 * and no library carries another's commands. One packet is one command, the same for all ranks; one packet answers
 * it. A closed socket ends the driver. */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#include "loop.h"

#define BENCH_SOCKET_VARIABLE "COLLET_BENCH_SOCKET"
enum { BENCH_DRIVER_MAGIC = 0x62637631, BENCH_DRIVER_SAMPLES = 20000 };

struct bench_hello {
	uint32_t magic;
	uint32_t rank, size;
	uint32_t pinned;
	char version[64];
};

enum bench_order {
	BENCH_PREPARE,   /* allocate and fill for work, bytes, buffers, cold; then one checked call */
	BENCH_BATCH,     /* warm_iterations untimed, then iterations timed */
	BENCH_SAMPLES,   /* iterations, each by itself: p50 and p99 */
	BENCH_REWRITTEN, /* the same, of calls whose input was just written and whose result is read; and wrong */
	BENCH_QUIT
};

struct bench_command {
	uint32_t order;
	uint32_t buffers;   /* enum bench_buffer_kind */
	uint32_t cold, sync;
	struct bench_work work;
	uint64_t count;
	uint64_t iterations, warm_iterations;
	char algorithm[32];  /* "": the library's choice */
	uint32_t segment_bytes, channels; /* 0: likewise */
};

enum bench_answer { BENCH_DONE, BENCH_CANNOT, BENCH_FAILED };

struct bench_reply {
	uint32_t answer;
	uint32_t reserved;
	int64_t elapsed_ns, cpu_ns;
	int64_t p50_ns, p99_ns;
	uint64_t wrong, first_wrong;
	double predicted_ns;   /* < 0: no prediction */
	char algorithm[32], transport[32];   /* what it used, where it knows */
	char text[256];        /* of a failure */
};

/* The library, and the functions that a driver provides. */
struct bench_driver {
	struct bench_library library;
	const char *version;
	/* Before each prepared work: returns what bench_call.how shall be, and writes what it knows into the reply.
	 * NULL when the library has nothing of that kind. */
	const void *(*plan)(void *context, const struct bench_command *command, struct bench_reply *reply);
};

/* Reads the first of these variables that is set as a number; missing if none is. For ranks of drivers, which must bind
 * themselves before their library starts. */
uint32_t bench_env_u32(const char *const *names, uint32_t missing);

/* Connects, says hello and serves until told to quit. The process's exit status: 0 when told to, 1 otherwise. */
int bench_driver_serve(const struct bench_driver *driver);

#endif
