/* Copies in one direction that others wait for one by one: a stream of its own, and an event behind each copy. Copies
 * to a GPU and from it take different engines of it, and so go at the same time if they are in different pipes. */
#ifndef COLLET_CUDA_DRIVER_COPY_QUEUE_H
#define COLLET_CUDA_DRIVER_COPY_QUEUE_H

#include "cuda/driver/copy_stream.h"

enum { COLLET_COPY_QUEUE_DEPTH = 4 }; /* marks under way: enough for the GPU to have its next copy when one ends */

struct collet_copy_queue {
	struct collet_copy_queue *next;
	struct collet_copy_stream *copy_stream;
	cu_stream stream;
	cu_event events[COLLET_COPY_QUEUE_DEPTH];
	uint32_t event_count;    /* made */
	uint32_t recorded, completed; /* both only grow */
	bool failed;             /* what is under way is not known */
	int capture_mode;        /* the thread's, of capturing, before it entered */
};

/* One that is empty, of the copier's context. Whoever takes it gives it back; any thread, one at a time. */
collet_status collet_copy_queue_acquire(struct collet_copy_streams *copy_streams,
	struct collet_copy_stream *copy_stream, struct collet_copy_queue **queue);
/* Waits until it is empty; NULL is fine. false: it cannot be waited for, since its context, which has not gone, cannot
 * be entered: what is copied must stay for good. */
bool collet_copy_queue_release(struct collet_copy_streams *copy_streams, struct collet_copy_queue *queue);
/* The copier goes. entered: its context is there, and current. */
void collet_copy_queue_destroy(const struct collet_cuda *cuda, struct collet_copy_queue *queue, bool entered);

/* Between enter and leave the thread's context is the pipe's, and nothing that the pipe does can spoil what the program
 * captures meanwhile. */
collet_status collet_copy_queue_push_context(const struct collet_cuda *cuda, struct collet_copy_queue *queue);
/* The same, of one that is taken first if *pipe is NULL. */
collet_status collet_copy_queue_acquire_current(struct collet_copy_streams *copy_streams,
	struct collet_copy_stream *copy_stream, struct collet_copy_queue **queue);
void collet_copy_queue_pop_context(const struct collet_cuda *cuda, const struct collet_copy_queue *queue);

/* There is room for one more mark. */
static inline bool collet_copy_queue_has_room(const struct collet_copy_queue *queue)
{
	return queue->recorded - queue->completed < COLLET_COPY_QUEUE_DEPTH;
}
static inline bool collet_copy_queue_is_empty(const struct collet_copy_queue *queue)
{
	return queue->recorded == queue->completed;
}
/* Between enter and leave. add: enqueues a copy; what: for the sentence. mark: behind what has been added. look: *count
 * marks more have been passed, in their order. */
collet_status collet_copy_queue_enqueue(const struct collet_cuda *cuda, struct collet_copy_queue *queue, void *to,
	const void *from, size_t bytes, const char *what);
collet_status collet_copy_queue_record(
	const struct collet_cuda *cuda, struct collet_copy_queue *queue, const char *what);
collet_status collet_copy_queue_poll(
	const struct collet_cuda *cuda, struct collet_copy_queue *queue, const char *what, uint32_t *count);

#endif
