/* Measures a rank's time: how long each phase takes, and how much of communication hides behind computing. With
 * --trace it writes all ranks' phases into one file for Perfetto and chrome://tracing. */
#ifndef TRAIN_TIMELINE_H
#define TRAIN_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <collet/collet.h>

/* A rank is in one phase at any moment, the innermost that has begun. A library call during backward is
 * communication. The rest of a step belongs to the step. */
enum phase {
	PHASE_STEP,
	PHASE_LOAD, /* waiting for images, or making them */
	PHASE_FORWARD,
	PHASE_BACKWARD,
	PHASE_COMMUNICATE, /* in calls of the library: what this rank's computing loses to communication */
	PHASE_OPTIMISE,
	PHASE_EVALUATE,
	PHASES
};

/* Seconds of some steps. */
struct times {
	double phases[PHASES];
	double transfer; /* in which at least one bucket was under way */
	double hidden; /* of that, what this rank spent outside the library */
};

/* The transfer of a bucket in a step. */
struct transfer {
	int64_t began_ns, ended_ns; /* CLOCK_MONOTONIC */
	uint64_t bytes;
};

/* Returns a phase's name for users. */
const char *phase_name(enum phase phase);

struct timeline;

/* NULL after a line on standard error. */
struct timeline *timeline_create(bool tracing);
void timeline_destroy(struct timeline *timeline); /* NULL is fine */

/* Phases nest: what has begun last ends first. */
void timeline_begin(struct timeline *timeline, enum phase phase);
void timeline_end(struct timeline *timeline);

/* Within PHASE_STEP, once its last bucket has arrived: in the order in which buckets began. */
void timeline_transfers(struct timeline *timeline, const struct transfer *transfers, uint32_t count);

/* Returns the times since the last call of this. */
struct times timeline_take(struct timeline *timeline);

/* Checks that the file can be written; empties it. Returns false, after a line on standard error, before training
 * starts. */
bool timeline_can_write(const char *path);

/* Collective: rank 0 writes what all ranks have traced, with their clocks set by its own. The others' path is not read.
 * False after a line on standard error. */
bool timeline_write(const struct timeline *timeline, collet_comm *comm, const char *path);

#endif
