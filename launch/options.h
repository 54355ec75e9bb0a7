/* The command line of collet-run. */
#ifndef COLLET_LAUNCH_OPTIONS_H
#define COLLET_LAUNCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes with the NUL, as the library limits the names of its store and job. */
enum { HOST_BYTES = 240, JOB_BYTES = 64, STORE_BYTES = 256 };
enum { LOCAL_SIZE_MAX = 4096, NODE_COUNT_MAX = 65536, TIME_MAX_S = 1000000000, RESTARTS_MAX = 1000000 };

enum bind_policy {
	BIND_AUTO, /* an equal share of whole cores for each rank, where there are enough and they are ours alone */
	           /* or, where as many ranks come to each core and nothing else runs, as BIND_SHARE */
	BIND_CORE, /* exactly one core for each rank; an error where there are too few */
	BIND_SHARE, /* one core for each rank, neighbours on the same one where there are too few */
	BIND_NONE,
};

enum prefix_policy {
	PREFIX_AUTO, /* a prefix for each line, but not for rank 0's on a standard output that is no terminal */
	PREFIX_ALWAYS,
	PREFIX_NEVER, /* ranks write to collet-run's own output */
};

enum command {
	COMMAND_RUN,
	COMMAND_HELP,
	COMMAND_VERSION,
	COMMAND_MAKE_SECRET,
};

struct options {
	enum command command;
	uint32_t local_size; /* ranks on this host; 0: as many as usable cores, or as GPUs */
	bool has_local_size; /* -n was given */
	bool by_gpus;
	bool is_standalone; /* --standalone: the job is on this host */
	uint32_t node_count;
	uint32_t node_rank;
	char host[HOST_BYTES]; /* the rendezvous endpoint, "" for none */
	uint16_t port;         /* 0: any */
	const char *job;       /* --rdzv-id; NULL: made up */
	enum bind_policy bind;
	enum prefix_policy prefix;
	bool rank0_reads_stdin;
	double grace_s;
	double timeout_s;         /* 0: none */
	uint32_t restarts;        /* how often the job may be started again */
	const char **environment; /* NAME=VALUE, environment_count of them, pointing into argv */
	size_t environment_count;
	char **program; /* the program and its arguments, NULL-terminated, pointing into argv */
};

/* Fills options from the command line; they point into argv. Returns false after a sentence that names the mistake. */
bool options_parse(struct options *options, int argc, char **argv);
void options_deinit(struct options *options);

/* Prints what --help shows. */
void options_print_help(void);

#endif
