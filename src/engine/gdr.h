/* GPUDirect: sends from GPU memory and receives into it, where transports can access it (accepts_gpu). Only for calls
 * whose program does not reduce, so that no host memory takes part.
 *
 * An item's transfers use the GPU buffer directly if all its peer queues accept it. A queue may refuse, since the item
 * is short or the pair uses another transport than expected; or the destination is not free yet. Then the item goes
 * through its cell, a part of host memory. Peers need not know which, since messages are the same. The owner of struct
 * collet_gdr makes the copies between cell and buffer and inside the GPU, item by item, while others are under way. */
#ifndef COLLET_ENGINE_GDR_H
#define COLLET_ENGINE_GDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <collet/collet.h>

#include "engine/byte_range.h"

struct collet_comm_state;
struct collet_peer_queue;
struct collet_request;
struct collet_step;
struct collet_task;
struct collet_work_item;

/* Under the engine's lock. */
struct collet_gdr {
	/* Starts the copies of an item, after those of the items before; collet_gdr_copied() follows. The owner's. */
	void (*start_copies)(struct collet_gdr *gdr, struct collet_work_item *item);
	struct collet_byte_range gpu_ranges[2]; /* those buffers of the request that are in GPU memory */
	char *cells;
	size_t cell_bytes;
	struct collet_peer_queue *awaited_queue; /* a task waits until its endpoint is open; else NULL */
};

/* Returns the size of a cell of the planned request. Each of its tasks has TASK_WINDOW cells. */
size_t collet_gdr_cell_bytes(const struct collet_request *request);

/* Returns the request's GPUDirect state; NULL if it uses buffers in host memory. */
struct collet_gdr *collet_gdr_of(const struct collet_request *request);

/* ---- For the owner ---- */

typedef collet_status collet_gdr_copy_visitor(void *context, void *to, const void *from, size_t bytes);
/* Visits the copies that an item needs, until a visit fails; returns its status. */
collet_status collet_gdr_visit_copies(
	const struct collet_work_item *item, collet_gdr_copy_visitor *visit, void *context);
/* Continues with an item whose copies are complete. */
void collet_gdr_copied(struct collet_work_item *item);
/* Lets a task continue that waited for an endpoint. True if that is open now. */
bool collet_gdr_poll(struct collet_gdr *gdr, struct collet_comm_state *state);

/* ---- For tasks ---- */

/* True if all endpoints that the step needs are open. Else requests them: whether they accept GPU memory is unknown
 * before. */
bool collet_gdr_is_connected(const struct collet_task *task, const struct collet_request *request,
	const struct collet_step *step);
/* Decides for the task's item with this index whether its transfers use `value`, or its cell. value is the address of
 * the item's value; NULL for a per-peer step, whose parts have their own addresses. */
void collet_gdr_place(const struct collet_task *task, struct collet_work_item *item, uint32_t index, char *value);
/* Returns the address in the item's cell of one part of a per-peer step, or of the value of another step (part 0). */
char *collet_gdr_cell(const struct collet_work_item *item, uint32_t part);
/* Returns the flags of a transfer of these bytes: COLLET_TRANSFER_GPU or 0. */
uint32_t collet_gdr_flags(const struct collet_request *request, const void *data, uint64_t bytes);
/* Does what collet_work_item_execute() does. The item may still wait for its copies. */
void collet_gdr_execute(struct collet_task *task, struct collet_work_item *item);

#endif
