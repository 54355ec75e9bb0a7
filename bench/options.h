/* The command line. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "buffers.h"
#include "sizes.h"

enum bench_command_kind {
	BENCH_COMMAND_MEASURE,
	BENCH_COMMAND_LIST,
	BENCH_COMMAND_EXPLAIN,
	BENCH_COMMAND_LIMITS,
	BENCH_COMMAND_INIT,
	BENCH_COMMAND_FAULTS,
	BENCH_COMMAND_OVERLAP,
	BENCH_COMMAND_REQUEST,
	BENCH_COMMAND_WAITING,
	BENCH_COMMAND_COMPARE,
	BENCH_COMMAND_TUNE,
	BENCH_COMMAND_TRAINING,
	BENCH_COMMAND_DRIVER,   /* not for people: collet as a driver of compare */
	BENCH_COMMAND_HELP,
	BENCH_COMMAND_VERSION
};

/* The way in which calls are made. */
enum bench_calling {
	BENCH_BLOCKING,
	BENCH_ON_STREAM,       /* --stream */
	BENCH_IN_GRAPH         /* --graph */
};

/* The way in which a size is run and timed. */
struct bench_mode {
	double seconds;        /* of timed calls a size (compare: a size and repeat) */
	uint64_t iterations;   /* 0: as many as fit */
	enum bench_buffer_kind buffers;
	bool cold, sync, pin;
	bool device;           /* --device cuda */
	enum bench_calling calling;
	bool threads;          /* ranks are threads of one process */
	bool rewrite;          /* calls whose inputs were written and whose results are read are timed too */
};

enum { BENCH_PREDICT_MOST = 16, BENCH_REPEATS_MAX = 1000 };

struct bench_options {
	enum bench_command_kind command;
	enum bench_command_kind topic;   /* help: of this command; BENCH_COMMAND_HELP: of all */
	struct bench_work work;
	struct bench_sizes sizes;
	uint32_t ranks;            /* 0: not given */
	const char *transport;     /* NULL: what the library takes */
	const char *algorithm;     /* NULL: what the library chooses */
	uint32_t segment_bytes, channels; /* 0: what the library chooses */
	struct bench_mode mode;
	const char *json;          /* a path, or "-": standard output, instead of the table */
	uint32_t collectives;      /* a bit for each, by enum bench_collective: compare and tune take several */
	bool limits;               /* tune: and the limits that no formula gives */
	const char *output;        /* tune: the file to write; NULL: where the library looks for it */
	const char *points;        /* tune: a file of sweeps to add to; NULL: none */
	bool check;                /* tune: only measure, and judge what is predicted and chosen now */
	const char *plot;          /* compare: an SVG file */
	const char *markdown;      /* compare: a path, or "-" */
	const char *baseline;      /* compare: a file that --json wrote before */
	const char *with;          /* compare: names, separated by commas */
	bool tuned;                /* compare: every variant of each library, not its default alone */
	uint32_t repeats;          /* compare, faults, overlap, request, waiting, tune, training */
	uint32_t in_flight;        /* request: in flight together */
	const char *strategies;    /* training: names, separated by commas; NULL: all */
	uint32_t predict[BENCH_PREDICT_MOST];  /* training: numbers of ranks */
	uint32_t predict_count;
	char **words;              /* training: collet-train's own; they point into argv */
	int word_count;
};

/* False: a sentence about what is wrong is in problem. Strings point into argv, whose order may change. */
bool bench_options_parse(int argc, char **argv, struct bench_options *options, char problem[256]);

/* Prints the help of a command; BENCH_COMMAND_HELP: of all. */
void bench_options_print_help(enum bench_command_kind topic);

#endif
