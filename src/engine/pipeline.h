/* Buffers that are filled, and emptied, while their request runs: they stand for memory that the engine cannot touch.
 *
 * The buffers are cut into cells. Somebody else (the owner) brings what is read into them, cell by cell, in the order
 * in which the program first uses it, and takes away what is written, each cell when its last writer has been. Lanes
 * wait for the cells that an item touches and for no others, so a request's messages begin when its first cells are
 * there, and its results leave while its last messages are under way. The program is the same one, whole: nothing is
 * cut that could change a sum.
 *
 * What is read first and written last is known beforehand: the program is walked once, as its lanes will walk it. */
#ifndef COLLET_ENGINE_PIPELINE_H
#define COLLET_ENGINE_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <collet/collet.h>

#include "engine/byte_range.h"

struct collet_request;
struct collet_task;
struct collet_work_item;

/* Under the engine's lock, but for init and deinit. */
struct collet_gdr;
struct collet_pipeline {
	struct collet_pipeline *next;   /* in engine.flows, while it runs */
	struct collet_request *request; /* NULL: it does not run */
	/* In each round of progress while the request is pending: brings and takes. True: something has got on. */
	bool (*progress)(struct collet_pipeline *pipeline);
	bool needs_polling; /* the owner's: copies are under way, of which nobody tells the end */
	struct collet_gdr *gdr;     /* nothing is brought or taken: transports reach the buffers (see gdr.h). NULL */

	struct collet_range in, out; /* what is brought and taken; bytes 0: nothing is. They may overlap */
	size_t cell_bytes;           /* the last cell of each has what is left */
	uint32_t in_cell_count, out_cell_count;
	uint32_t *copy_in_order; /* cells to be brought: order_count of them, as they are first used */
	uint32_t copy_in_count;
	bool *is_copied_in; /* by cell: there is nothing to wait for */
	uint32_t copied_in_count;
	uint32_t *writer_counts; /* by cell: the items that write there, and what is brought there; 0: it
			      stays as it is */
	uint32_t *writers_left; /* by cell: those that have not yet */
	uint32_t *copy_out_order; /* cells to be taken, ready_count of written_count so far */
	uint32_t copy_out_ready, copy_out_count, copied_out_count;
	uint64_t *first_use;        /* for planning */
	struct collet_task *dry_run_task; /* likewise */
	bool planned;
};

/* Of these buffers, in cells of so many bytes; any thread. COLLET_ERR_MEMORY: it is fit for deinit. */
collet_status collet_pipeline_init(
	struct collet_pipeline *pipeline, struct collet_range in, struct collet_range out, size_t cell_bytes);
void collet_pipeline_deinit(struct collet_pipeline *pipeline); /* a zeroed one is fine */

/* The planned request is about to be started, with these buffers or parts of them; the same one may be started again
 * when it has ended. */
void collet_pipeline_start(struct collet_pipeline *pipeline, struct collet_request *request);
/* It has ended, and is still there. Safe to repeat. */
void collet_pipeline_stop(struct collet_pipeline *pipeline);

/* For lanes: may the item write where it writes, and, reads_too, read what it reads? */
bool collet_pipeline_allows(struct collet_pipeline *pipeline, const struct collet_work_item *item, bool with_reads);
/* It has written. */
void collet_pipeline_item_written(struct collet_pipeline *pipeline, const struct collet_work_item *item);

/* For the owner: bytes of a cell, from the start of its side. */
struct collet_range collet_pipeline_cell(
	const struct collet_pipeline *pipeline, const struct collet_range *side, uint32_t cell);
/* The next of `order` is there; the next of `ready` has been taken, which may end the request. */
void collet_pipeline_copied_in(struct collet_pipeline *pipeline);
void collet_pipeline_copied_out(struct collet_pipeline *pipeline);

/* Has all been brought and taken? */
static inline bool collet_pipeline_is_complete(const struct collet_pipeline *pipeline)
{
	return pipeline->copied_in_count == pipeline->copy_in_count &&
	       pipeline->copied_out_count == pipeline->copy_out_count;
}

#endif
