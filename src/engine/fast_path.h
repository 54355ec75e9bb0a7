/* The fast path: a small call's steps, planned once and executed without work items. */
#ifndef COLLET_ENGINE_FAST_PATH_H
#define COLLET_ENGINE_FAST_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

#include "collectives/step.h"

struct collet_peer_queue;
struct collet_queued_transfer;
struct collet_request;
struct collet_work_item;

enum {
	FAST_PATH_STEPS = 8,         /* that a call run on the spot may have, */
	FAST_PATH_TRANSFERS = UINT8_MAX /* with so many transfers and operands */
};

enum { COLLET_STAGING = COLLET_SCRATCH + 1, COLLET_FAST_PATH_BUFFERS };

/* Bytes into the caller's buffers, the scratch, or the lane's staging. */
struct collet_buffer_offset {
	uint64_t offset;
	uint32_t buffer;             /* enum collet_buffer, or COLLET_STAGING */
};

/* A transfer, or this rank's own operand. */
struct collet_planned_transfer {
	struct collet_peer_queue *peer_queue; /* NULL: own */
	struct collet_buffer_offset place, staging_place; /* spare: while its place is not free */
	uint64_t bytes;
	struct collet_transfer transfer; /* while it may settle at once, */
	struct collet_queued_transfer *queued;/* and otherwise; NULL: not queued */
};

struct collet_fast_path_step {
	struct collet_planned_transfer *operand_list, *send_list; /* its moves: the operands in order, then the sends */
	uint8_t operand_count, send_count;
	uint8_t receive_count;       /* of the operands */
	bool combines, averages, copies, writes;
	bool sends_first;            /* it only copies, and sends what it copies */
	bool overwrites_sent;        /* it writes what a step before it sends, or does so if the caller's buffers */
	bool overwrites_if_in_place; /* overlap */
	uint64_t count;              /* elements of the value */
	struct collet_buffer_offset value;
};

struct collet_fast_path {
	bool is_eligible;
	uint32_t send_flags;
	uint32_t step_count, planned_count, planned_capacity;
	struct collet_fast_path_step steps[FAST_PATH_STEPS];
	struct collet_planned_transfer *planned; /* room for so many; the request's for good */
	uint64_t staged_bytes;
	uint32_t poll_backoff;       /* how long its calls wait before they look: see api/call.c */
	/* Of one call: */
	bool in_place;               /* the caller's buffers overlap */
	struct collet_work_item *item; /* which counts what is pending */
	char *base[COLLET_FAST_PATH_BUFFERS];
	uint32_t step_index;         /* the step at hand */
	bool receives_expected;      /* its receives are expected, */
	uint32_t unqueued_receives;  /* so many of them without having been queued; */
	bool must_release;           /* some of them have been, or hold what must be given back */
};

/* ---- fast_path_plan.c */
/* Finds out whether each of its few steps is one small piece, and if so keeps the steps. */
void collet_fast_path_plan(struct collet_request *request);
void collet_fast_path_free(struct collet_request *request);

/* ---- fast_path.c. Under lock. */
/* May it be run on the spot now? */
bool collet_fast_path_is_eligible(const struct collet_request *request);
/* Sends what it can send before anything has come. It is the group's inlined from here to its end. */
void collet_fast_path_start(struct collet_request *request);
/* Goes on as far as it can without waiting; it may have ended then. */
void collet_fast_path_progress(struct collet_request *request);
/* What collet_fast_path_progress() costs that finds nothing, in looks into memory; 0: it would not look at all that it
 * waits for. */
uint32_t collet_fast_path_poll_cost(const struct collet_request *request);
/* Does it wait for a rank that was last seen on this one's core? */
bool collet_fast_path_awaits_own_core(const struct collet_request *request);
/* Has it something to send yet to a rank that was last seen there? */
bool collet_fast_path_sends_to_own_core(const struct collet_request *request);
/* It will be waited for in earnest: its receives are posted, for progress and sleep to look after.
 * True: some were not. */
bool collet_fast_path_post_receives(struct collet_request *request);

#endif
