/* Starts the process of one rank, and holds what is known of it. */
#ifndef COLLET_LAUNCH_RANK_H
#define COLLET_LAUNCH_RANK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "job.h"
#include "output.h"

/* The step at which a rank failed to start, as its process reports it through start_fd. */
enum start_step { START_BIND = 1, START_EXECUTE, START_OTHER };

struct start_failure {
	int32_t step;  /* enum start_step; 0: none */
	int32_t error; /* errno */
};

struct rank {
	uint32_t local_rank;
	uint32_t rank;
	uint32_t restart; /* how often it has been started before */
	pid_t pid;    /* and its process group's; 0 before the start and once it has been reaped */
	int start_fd; /* ends when the program runs, or brings a start_failure; -1: settled */
	struct start_failure failure;
	bool ended;
	pid_t ended_pid; /* what pid was, for the report */
	int wait_status; /* as waitpid() gives it, once ended */
	struct stream out, error;
};

/* Starts the process, with a process group of its own; it dies with the caller. Rank 0 reads stdin_fd. With prefixes
 * its output comes through rank->out and rank->error, whose sinks are set. Returns false after printing the reason. */
bool rank_start(struct rank *rank, const struct job *job, int stdin_fd);

/* Reads the report of start_fd. */
void rank_read_start(struct rank *rank);

/* Sends a signal: to the process and its group (what a terminal does with Ctrl-C), or to the process alone. */
void rank_signal(const struct rank *rank, int signal_number, bool whole_group);

/* Returns true if it ended by itself without success, and sets the *exit_status for collet-run. */
bool rank_failed(const struct rank *rank, int *exit_status);

/* Writes one line about how it ended: "rank 2 (host a, pid 77) exited with status 3". */
void rank_describe(const struct rank *rank, const struct job *job, char *text, size_t bytes);

#endif
