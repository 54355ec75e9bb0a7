/* One call: a step program, a shape and two buffers. */
#ifndef COLLET_ENGINE_REQUEST_H
#define COLLET_ENGINE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <collet/collet.h>

#include "collectives/program.h"
#include "collectives/step.h"
#include "engine/channel.h"
#include "engine/fast_path.h"
#include "engine/p2p/p2p.h"
#include "engine/plan_key.h"
#include "engine/recorder.h"
#include "reduce/reduce.h"

struct collet_comm_state;
struct collet_pipeline;

/* One call. */
struct collet_request {
	struct collet_comm_state *state;
	struct collet_request *next_free, *next_allocated; /* in the group's lists */
	struct collet_request *next_active, **previous_active; /* in engine.requests while pending */
	struct collet_request *next_in_task[COLLET_TASKS];
	enum collet_status status;   /* COLLET_PENDING until it has ended */
	/* It has read what means nothing: it cannot end well, and waits for the group's end. */
	bool poisoned;
	bool is_p2p;
	bool deferred;               /* its lanes let nothing in, of it or behind it, until it is said who does it */
	bool offloaded;              /* it is done by other means: its lanes pass it over */
	bool stream_ordered;         /* likewise, and its stream is told by the GPU that does it */
	struct collet_recorder *out_of_band_recorder; /* that has it, since it has no place among the group's calls,
	                                                 about which others can be asked; NULL: it has */
	uint32_t task_count;         /* it uses lanes 0 .. lanes - 1 */
	uint32_t issuing_tasks;      /* lanes that have not taken all of its items in yet */
	uint64_t items_in_flight;    /* under way */
	const struct collet_program *program;
	struct collet_shape shape;
	uint32_t parts, channels;
	uint64_t segment_elements;   /* elements */
	uint32_t fan_in;             /* remote operands of one step at most */
	size_t element_bytes;
	uint64_t counted_bytes;      /* of the call, as statistics count them */
	struct collet_reduction reduction;
	struct collet_fast_path fast_path;
	bool has_published;          /* something of it was published: it keeps to PUBLISH_WINDOW */
	bool prescales, averages;    /* INPUT is scaled where it is read; the last touch divides */
	const char *input;
	char *result;
	uint64_t call_signature;     /* of this call alone */
	uint64_t signature, sequence; /* what its messages carry; the first is the group's history up to this call */
	struct collet_call call;
	struct collet_plan_key plan_key;
	uint32_t plan_count;         /* that it has had, and operations */
	int64_t timeout_ns;
	uint64_t started_ticks;
	int64_t started_ns;          /* the same in ns; 0: nobody has asked yet, as for most short calls nobody does */
	bool is_starting;            /* it is being started, and has not had to be waited for */
	int64_t deadline_ns, next_query_ns;
	uint32_t warning_stage;      /* see mismatch.c */
	uint64_t finished_items;     /* how far it got */
	uint64_t *vector_counts;     /* owned copies of the v-forms' counts and displacements */
	size_t vector_capacity;
	struct collet_p2p_call p2p;
	void *staging;               /* the caller's (see cuda/staging/gpu_staging.h); NULL: none */
	struct collet_pipeline *pipeline; /* its buffers are filled and emptied while it runs (see pipeline.h); NULL:
	                                     no */
	bool algorithm_named;        /* its algorithm was asked for by name */
};

/* ---- task.c. Under lock. */
/* Queues a filled-in request; it may have ended when this returns. */
collet_status collet_request_start(struct collet_request *request);

/* ---- comm_state.c. Under lock. */
collet_status collet_request_acquire(struct collet_comm_state *state, struct collet_request **request);
/* It has not been started, or has ended: it may be started (again). */
void collet_request_reset(struct collet_request *request);
void collet_request_release(struct collet_request *request);
/* It is pending from here on: deadlines and progress look after it. */
void collet_request_activate(struct collet_request *request);
void collet_request_end(struct collet_request *request, enum collet_status status);
/* Its time runs from then. */
void collet_request_set_clock(struct collet_request *request, int64_t started_ns);
void collet_request_end_if_done(struct collet_request *request);
/* What it is, for a sentence. */
void collet_request_describe(const struct collet_request *request, char *text, size_t capacity);

#endif
