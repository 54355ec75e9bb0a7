/* A request is one call: a step program, a shape and two buffers. Requests are pooled for each communicator. */
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
#include "engine/wide_sums.h"
#include "reduce/reduce.h"

struct collet_comm_state;
struct collet_pipeline;

struct collet_request {
	struct collet_comm_state *state;
	struct collet_request *next_free, *next_allocated; /* in the lists of the communicator state */
	struct collet_request *next_pending, **previous_pending; /* in its list of pending.h, while pending */
	struct collet_request *next_in_task[COLLET_TASKS];
	enum collet_status status;   /* COLLET_PENDING until it has ended */
	/* It received invalid data. It cannot succeed and fails when its communicator ends. */
	bool poisoned;
	bool is_p2p;
	bool deferred;               /* who executes it is undecided; tasks issue no items of it or of later requests */
	bool offloaded;              /* a GPU executes it; tasks skip it */
	bool signals_stream;         /* it is offloaded, and the GPU that executes it signals the stream */
	/* Records the call instead of the communicator's recorder, since the call has no sequence number by which peers
	 * could query it. NULL: it has one. */
	struct collet_recorder *out_of_band_recorder;
	uint32_t task_count;         /* it uses tasks 0 .. task_count - 1 */
	uint32_t issuing_tasks;      /* tasks that have not issued all of its items */
	uint64_t items_in_flight;
	const struct collet_program *program;
	struct collet_shape shape;
	uint32_t parts, channels;
	uint64_t segment_elements;
	uint32_t fan_in;             /* most remote operands of one step */
	size_t element_bytes;
	uint64_t counted_bytes;      /* the call's bytes as statistics count them */
	bool nontemporal_results;        /* results are stored past the caches */
	struct collet_reduction reduction;
	struct collet_wide_sums wide; /* used: elements are f32, in memory of the communicator */
	struct collet_fast_path fast_path;
	bool has_published;          /* an item of it was published, so PUBLISH_WINDOW limits its items */
	bool prescales, finishes;    /* multiplies INPUT where it is read; divides (bool: makes 0 or 1) at last */
	const char *input;
	char *result;
	uint64_t call_signature;     /* of this call alone */
	uint64_t signature, sequence; /* in its messages; this signature covers all calls up to this one */
	struct collet_call call;
	struct collet_plan_key plan_key;
	uint32_t plan_generation;    /* how often it was planned or given an operation */
	int64_t timeout_ns;
	uint64_t started_ticks;
	int64_t started_ns;          /* the same in ns; 0: not computed, since most short calls never need it */
	/* When the brief polls under way began. Recorded as its end if they end it. 0: the time is read then. */
	uint64_t poll_ticks;
	int64_t deadline_ns;         /* valid if started_ns is */
	uint64_t finished_items;
	uint64_t *vector_counts;     /* owned copies of the v-forms' counts and displacements */
	size_t vector_capacity;
	struct collet_p2p_call p2p;
	void *staging;               /* belongs to the caller (see cuda/staging/gpu_staging.h); NULL: none */
	struct collet_pipeline *pipeline; /* fills and empties its buffers while it runs; NULL: none */
	bool algorithm_named;        /* the caller named the algorithm */
	/* Called when it has ended, by run_on_end(). NULL: nobody is to be told, or on_end() has returned. */
	void (*on_end)(void *context, enum collet_status status);
	void *on_end_context;
	bool is_unowned;             /* no caller has it: it is released before on_end() is called */
	struct collet_request *next_ended; /* in engine.ended_requests */
};

/* ---- task.c. Under lock. */
/* Starts a planned request. It may have ended when this returns. */
collet_status collet_request_start(struct collet_request *request);

/* ---- request.c. Under lock. */
/* Takes a free request, one that has the plan of this key if possible. The others keep theirs, up to a limit. key is
 * NULL if the request needs no plan. */
collet_status collet_request_acquire(
	struct collet_comm_state *state, const struct collet_plan_key *key, struct collet_request **request);
/* Prepares a request for its next start. It has not been started, or has ended. */
void collet_request_reset(struct collet_request *request);
void collet_request_release(struct collet_request *request);
/* Makes it pending: deadlines and progress apply to it from now on. */
void collet_request_activate(struct collet_request *request);
void collet_request_end(struct collet_request *request, enum collet_status status);
/* True while this thread is in on_end(). */
extern _Thread_local bool collet_in_on_end __attribute__((visibility("hidden"), tls_model("initial-exec")));
bool collet_request_is_told_here(const struct collet_request *request);
/* Has on_end() called when it has ended, which it may have already. is_unowned: as the field. */
void collet_request_set_on_end(struct collet_request *request,
	void (*on_end)(void *context, enum collet_status status), void *context, bool is_unowned);
/* True if it has ended, and its on_end() has returned or is running on this thread. Under lock. */
static inline bool collet_request_has_ended(const struct collet_request *request)
{
	return request->status != COLLET_PENDING && (!request->on_end || collet_request_is_told_here(request));
}
/* Returns when a request that started at this time ends. A negative timeout is none. */
int64_t collet_request_deadline(int64_t started_ns, int64_t timeout_ns);
/* Fills in started_ns and deadline_ns, unless that has been done. */
void collet_request_compute_deadline(struct collet_request *request);
void collet_request_end_if_done(struct collet_request *request);
/* Describes it for an error text. */
void collet_request_describe(const struct collet_request *request, char *text, size_t capacity);

#endif
