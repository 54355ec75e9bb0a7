/* The fast path executes a small call without work items and windows. fast_path_plan.c plans its steps once;
 * fast_path.c executes them in each call. */
#ifndef COLLET_ENGINE_FAST_PATH_H
#define COLLET_ENGINE_FAST_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

#include "collectives/step.h"

struct collet_comm_state;
struct collet_peer_queue;
struct collet_queued_transfer;
struct collet_request;
struct collet_work_item;

enum {
	FAST_PATH_STEPS = 8,             /* most steps of a call on the fast path */
	FAST_PATH_TRANSFERS = UINT8_MAX  /* most transfers and operands of such a call */
};

enum { COLLET_STAGING = COLLET_SCRATCH + 1, COLLET_FAST_PATH_BUFFERS };

/* An offset in bytes into the caller's buffers, the scratch, or the task's staging. */
struct collet_buffer_offset {
	uint64_t offset;
	uint32_t buffer;             /* enum collet_buffer, or COLLET_STAGING */
};

/* A transfer, or this rank's own operand. */
struct collet_planned_transfer {
	struct collet_peer_queue *peer_queue; /* NULL: this rank's own operand */
	struct collet_buffer_offset place, staging_place; /* the second is used while the first is not free */
	uint64_t bytes;
	struct collet_transfer transfer; /* in use until the transfer is queued */
	struct collet_queued_transfer *queued; /* NULL: it is not queued */
};

struct collet_fast_path_step {
	/* in the plan: the operands in order, then the sends */
	struct collet_planned_transfer *operand_list, *send_list;
	uint8_t operand_count, send_count;
	uint8_t receive_count;       /* operands that are received */
	bool reduces, finishes, copies, writes;  /* writes: its value has a destination on this rank */
	bool sends_first;            /* it only copies, and sends what it copies */
	bool may_return;             /* it sends its value to the rank that its only received operand came from */
	bool overwrites_sent;        /* it writes what an earlier step sends */
	bool overwrites_if_in_place; /* it does so if the caller's buffers overlap */
	uint64_t count;              /* elements of the value */
	struct collet_buffer_offset value;
};

struct collet_fast_path {
	bool is_eligible;
	uint32_t send_flags;
	uint32_t step_count, planned_count, planned_capacity;
	struct collet_fast_path_step steps[FAST_PATH_STEPS];
	struct collet_planned_transfer *planned; /* planned_capacity of them; kept until the request is freed */
	uint64_t staged_bytes;
	uint32_t leading_steps;      /* first steps that need no receive */
	/* No later step sends, and these use the caller's buffers alone. So a call can begin before those ahead end. */
	bool may_overlap;
	uint32_t poll_backoff;       /* how long its calls wait before they poll: see api/call.c */
	/* State of the call under way. */
	struct collet_request *next; /* the call behind it on the fast path. Who ends the call sets it to NULL */
	bool in_place;               /* the caller's buffers overlap */
	struct collet_work_item *item; /* counts the pending transfers */
	char *base[COLLET_FAST_PATH_BUFFERS]; /* the staging's is NULL until task 0 exists */
	uint32_t step_index;         /* the current step */
	bool receives_prepared;      /* the receives of the current step have been set up */
	uint32_t unqueued_receives;  /* pending receives that are not queued */
	bool must_release;           /* some receives are queued or hold views, which must be released */
};

/* ---- fast_path_plan.c */
/* Checks whether the request has few steps of one small segment each, and if so keeps the steps. */
void collet_fast_path_plan(struct collet_request *request);
void collet_fast_path_free(struct collet_request *request);

/* ---- fast_path.c. Under lock. */
/* True if the request can run on the fast path now. */
bool collet_fast_path_is_eligible(const struct collet_request *request);
/* Executes the steps that need no receive. The request is the communicator's fast_path_request until it ends. */
void collet_fast_path_start(struct collet_request *request);
/* Queues the request behind those that are on the fast path, and begins it if their messages have been sent. False if
 * none is there, or the request must run in tasks. */
bool collet_fast_path_follow(struct collet_request *request);
/* Begins queued requests whose turn to send has come. */
void collet_fast_path_begin_queued(struct collet_comm_state *state);
/* Makes progress on the requests of the fast path, in order. There is one at least. ticks: the time, which is recorded
 * for requests that end; 0: it is read for each of them. */
void collet_fast_path_progress_queue(struct collet_comm_state *state, uint64_t ticks);
/* Removes all requests from the fast path, before they are ended. */
void collet_fast_path_clear(struct collet_comm_state *state);
/* Executes as many steps as it can without waiting. The request may have ended when this returns. */
void collet_fast_path_progress(struct collet_request *request);
/* Returns the cost of a call of collet_fast_path_progress() that finds nothing, in reads of memory. 0: it would not
 * poll everything that it waits for. */
uint32_t collet_fast_path_poll_cost(const struct collet_request *request);
/* True if it waits for a rank that was last seen on this rank's core. */
bool collet_fast_path_awaits_own_core(const struct collet_request *request);
/* True if it still has to send to a rank that was last seen on this rank's core. */
bool collet_fast_path_sends_to_own_core(const struct collet_request *request);
/* Posts all receives of the current step, so that progress and sleep handle them. True if some were not posted yet. */
bool collet_fast_path_post_receives(struct collet_request *request);

#endif
