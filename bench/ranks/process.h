/* Starting processes: collet-bench's own ranks, and the peers' launchers. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One program to start. Arrays end with NULL and are read during the call only. */
struct bench_program {
	const char *const *argv;    /* argv[0] is looked for in PATH when it has no slash */
	const char *const *env;     /* "NAME=value" added to this environment; may be NULL */
	uint32_t ranks; /* 0: one process, whose own business ranks are; else that many, told by RANK and its kin */
	const char *job;            /* with ranks: names their rendezvous */
	int output;                 /* where standard output and error go; -1: where ours go */
	bool pin;                   /* with ranks: each on a core of its own, where there are enough */
	bool own_group;             /* each in a process group of its own, to be killed whole */
};

/* fork(), for children that stay this program: a child is killed when this process dies, however it dies. */
pid_t bench_process_fork(void);

/* Starts process number `rank`. It is killed when this process dies, however it dies. -1: errno says why; a program
 * that cannot be run exits 127. */
pid_t bench_process_start(const struct bench_program *program, uint32_t rank);

/* Starts all ranks and waits until all have ended. After a failure the others get a moment to report, then are
 * killed. Returns 0, or the exit status of the first that failed (128 + signal for a killed one, which is also
 * printed). */
int bench_ranks_run(const struct bench_program *program);

/* This program, for starting itself: the path behind /proc/self/exe. Static; NULL: cannot be known. */
const char *bench_own_path(void);

/* A name that no other run has at this time: for jobs and folders. */
void bench_unique_name(char *into, uint64_t bytes);

/* World size by a launcher's variables; 0: there are none. *launcher says whose. */
uint32_t bench_launcher_size(const char **launcher);

#endif
