/* Buffers of a GPU that transports reach themselves (takes_gpu), of a call whose program only moves: its items send
 * from there and receive into there, and the host's memory has no part in it.
 *
 * An item goes as it lies if all its routes take that. If one does not, since the item is short, or the route is
 * another transport's than was hoped for, or its place is not free yet, it goes through its cell, a piece of host
 * memory. Which of the two is no peer's business: messages are the same. What has to be copied, from cell to buffer and
 * back and inside the GPU, somebody else copies (the owner), item by item, while others are under way. */
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
	/* The owner's: the copies of this item are to be made, after those that it was told of before; then
	 * collet_gdr_copied(). */
	void (*start_copies)(struct collet_gdr *gdr, struct collet_work_item *item);
	struct collet_range gpu_ranges[2]; /* the request's buffers, as far as they are a GPU's */
	char *cells;
	size_t cell_bytes;
	struct collet_peer_queue *awaited_queue; /* it is not open yet, and a lane waits for that */
};

/* How large a cell of the planned request is, of which each of its lanes has TASK_WINDOW. */
size_t collet_gdr_cell_bytes(const struct collet_request *request);

/* NULL: the request's buffers are the host's, or what stands for them is. */
struct collet_gdr *collet_gdr_of(const struct collet_request *request);

/* ---- For the owner ---- */

typedef collet_status collet_gdr_copy_visitor(void *context, void *to, const void *from, size_t bytes);
/* What has to be copied of an item, until a visit fails: its status. */
collet_status collet_gdr_visit_copies(
	const struct collet_work_item *item, collet_gdr_copy_visitor *visit, void *context);
/* It has been, and the item goes on. */
void collet_gdr_copied(struct collet_work_item *item);
/* A lane may go on that waited for a route. */
bool collet_gdr_poll(struct collet_gdr *gdr, struct collet_comm_state *state);

/* ---- For lanes ---- */

/* Are all routes open that the item needs? Else they are asked for: what they take is not known before. */
bool collet_gdr_is_connected(const struct collet_task *task, const struct collet_request *request,
	const struct collet_step *step);
/* Of the lane's item with this index: it goes from and to its value's place (of a per_peer step: NULL, and the parts'),
 * or through its cell if some route does not take that, or the place is not free. */
void collet_gdr_place(const struct collet_task *task, struct collet_work_item *item, uint32_t index, char *value);
/* For one part of a per_peer step, or the value of another. */
char *collet_gdr_cell(const struct collet_work_item *item, uint32_t part);
/* Of a transfer of these bytes: COLLET_TRANSFER_GPU, or nothing. */
uint32_t collet_gdr_flags(const struct collet_request *request, const void *data, uint64_t bytes);
/* As collet_work_item_execute(); the item may be left waiting for its copies. */
void collet_gdr_execute(struct collet_task *task, struct collet_work_item *item);

#endif
