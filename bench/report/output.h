/* Prints results: a table for people, JSON for programs, and a line of progress meanwhile. */
#ifndef BENCH_OUTPUT_H
#define BENCH_OUTPUT_H

#include <stdio.h>

#include "buffers.h"

/* One size, measured. Times in ns of one call; < 0: not known. */
struct bench_measurement {
	const char *library, *version, *host;
	const char *algorithm, *transport;   /* NULL: not known */
	struct bench_work work;
	enum bench_buffer_kind buffers;
	uint32_t ranks;
	bool pinned;
	uint64_t bytes, count;
	double time_ns;            /* iterations back to back, mean, slowest rank */
	double p50_ns, p99_ns;     /* of a pass of their own, slowest rank */
	double rewritten_ns;       /* --rewrite: of such calls, median, slowest rank */
	double cpu_ns;             /* of all ranks together; so are these: */
	double page_faults, switches;   /* of one call; < 0: not known */
	double predicted_ns;
	uint64_t wrong;            /* elements, of all ranks together */
	bool threads;              /* ranks are threads of one process */
	enum bench_disturbance {
		BENCH_NOT_JUDGED,
		BENCH_UNDISTURBED,
		BENCH_DISTURBED    /* other processes used the machine meanwhile */
	} disturbance;
	const struct bench_on_device *device;   /* NULL: buffers are in the host's memory */
	const struct bench_beside *beside;   /* compare's part of it; NULL: it stands alone */
};

/* The rank of a measurement within a comparison. */
struct bench_beside {
	const char *settings;      /* what was tuned; "": nothing */
	enum bench_buffer_kind collet_buffers;
	const char *cores;         /* "near", "far": the state of the cores; NULL: unknown */
	uint32_t repeats;          /* that it was measured in, in that state */
	const double *times_us, *flags_ns;   /* of each: its mean, and a flag from core to core one way */
	double ratio, ratio_least, ratio_most;   /* collet's time to this one's; < 0: unknown, or it is collet's */
	double rewritten_ratio;    /* the same of the calls with --rewrite, its median */
	bool best;                 /* the best peer */
};

/* On a GPU. */
struct bench_on_device {
	const char *name;
	double copy_gbs;           /* of a copy from its memory to its memory, in bytes copied */
	double copy_bytes;         /* what a call reads and writes at least, per GPU, as if it were copied */
	const char *calling;       /* "stream", "graph"; NULL: calls block */
	double host_ns;            /* what a call on a stream takes of its caller's time; < 0: not known */
};

void bench_table_header(FILE *out, const struct bench_measurement *first);
void bench_table_row(FILE *out, const struct bench_measurement *m);
/* Explains the mark at rows that were disturbed. */
void bench_table_footnote(FILE *out);
/* "0.37", "1234": four significant digits or so, right-aligned in width; "-" for a negative one. */
void bench_table_number(FILE *out, double value, int width);

/* One line, one object. */
void bench_json_measurement(FILE *out, const struct bench_measurement *m);
/* Opens an object about collet alone: library, version and host are in it, and what follows begins with a comma. */
void bench_json_begin(FILE *out);
/* A JSON string with its quotes; null for NULL. */
void bench_json_string(FILE *out, const char *text);
/* A number; null for what is negative or not finite. */
void bench_json_number(FILE *out, double value);

/* Opens --json's file, or --markdown's: standard output for "-", NULL (and *failed false) for no --json. Says itself
 * what failed. */
FILE *bench_json_open(const char *path, bool *failed);
/* Closes it unless it is standard output. False: what was written did not all arrive. */
bool bench_json_close(FILE *file);

/* A line on the terminal, replaced by the next one; nothing when standard error is no terminal. */
void bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_progress_clear(void);

#endif
