/* Pipelined staging: fills and empties the host buffers of a request while it runs. The buffers stand for memory that
 * the engine cannot access, such as a GPU's.
 *
 * The buffers are cut into cells. The owner of struct collet_pipeline copies the input in, cell by cell, in the order
 * in which the program first uses it. It copies the result out, each cell after its last writer. Tasks wait only for
 * the cells that an item touches. So messages begin when the first cells are filled, and results leave while the last
 * messages are under way. The program is unchanged: pipelining cuts nothing that could change a sum.
 *
 * A dry run of the program, in the order of its tasks, finds out what is read first and written last. */
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

struct collet_gdr;

/* Under the engine's lock, except for init and deinit. */
struct collet_pipeline {
	struct collet_pipeline *next;   /* in engine.pipelines while it runs */
	struct collet_request *request; /* NULL: it does not run */
	/* Copies in and out, in each round of progress while the request is pending. True if something progressed. */
	bool (*progress)(struct collet_pipeline *pipeline);
	bool needs_polling; /* set by the owner: copies are under way whose end only polling finds */
	struct collet_gdr *gdr; /* set: transports access the buffers, nothing is copied (see gdr.h). Else NULL */

	struct collet_byte_range in, out; /* host memory that is copied in and out; may be empty or overlap */
	size_t cell_bytes;           /* the last cell of each may be shorter */
	uint32_t in_cell_count, out_cell_count;
	uint32_t *copy_in_order; /* cells to copy in: copy_in_count of them, in order of first use */
	uint32_t copy_in_count;
	bool *is_copied_in; /* by cell: copied, or need not be */
	uint32_t copied_in_count;
	uint32_t *writer_counts; /* by cell: items, and copies in, that write there; 0: it is not written */
	uint32_t *writers_left; /* by cell: those that have not written yet */
	uint32_t *copy_out_order; /* cells to copy out: copy_out_ready of copy_out_count so far */
	uint32_t copy_out_ready, copy_out_count, copied_out_count;
	uint64_t *first_use; /* by cell, for planning */
	struct collet_task *dry_run_task; /* for planning */
	bool planned;
};

/* Initializes a pipeline for these buffers. Any thread. After COLLET_ERR_MEMORY it can be deinitialized. */
collet_status collet_pipeline_init(
	struct collet_pipeline *pipeline, struct collet_byte_range in, struct collet_byte_range out, size_t cell_bytes);
void collet_pipeline_deinit(struct collet_pipeline *pipeline); /* a zeroed one is fine */

/* Attaches the pipeline to a planned request that is about to start, on these buffers or parts of them. The same
 * request may start again when it has ended. */
void collet_pipeline_start(struct collet_pipeline *pipeline, struct collet_request *request);
/* Detaches the pipeline from a request that has ended and still exists. Safe to repeat. */
void collet_pipeline_stop(struct collet_pipeline *pipeline);

/* For tasks: true if the item may write its destination and, with_reads, read its operands. */
bool collet_pipeline_allows(struct collet_pipeline *pipeline, const struct collet_work_item *item, bool with_reads);
/* For tasks: notes that the item has written. */
void collet_pipeline_item_written(struct collet_pipeline *pipeline, const struct collet_work_item *item);

/* For the owner: returns the memory of a cell of `in` or `out`. */
struct collet_byte_range collet_pipeline_cell(
	const struct collet_pipeline *pipeline, const struct collet_byte_range *side, uint32_t cell);
/* For the owner: notes that the next cell of copy_in_order, or of copy_out_order, is complete. May end the request. */
void collet_pipeline_copied_in(struct collet_pipeline *pipeline);
void collet_pipeline_copied_out(struct collet_pipeline *pipeline);

/* True if everything has been copied in and out. */
static inline bool collet_pipeline_is_complete(const struct collet_pipeline *pipeline)
{
	return pipeline->copied_in_count == pipeline->copy_in_count &&
	       pipeline->copied_out_count == pipeline->copy_out_count;
}

#endif
