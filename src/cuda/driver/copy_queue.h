/* Queues copies in one direction, with completion polled copy by copy. Each queue has its own CUDA stream, and records
 * an event behind each copy. Copies to and from a GPU use different copy engines, so two queues run in parallel. */
#ifndef COLLET_CUDA_DRIVER_COPY_QUEUE_H
#define COLLET_CUDA_DRIVER_COPY_QUEUE_H

#include "cuda/driver/copy_stream.h"

enum { COLLET_COPY_QUEUE_DEPTH = 4 }; /* Events in flight: enough for the GPU to have its next copy when one ends. */

struct collet_copy_queue {
	struct collet_copy_queue *next;
	struct collet_copy_stream *copy_stream;
	cu_stream stream;
	cu_event events[COLLET_COPY_QUEUE_DEPTH];
	uint32_t event_count;    /* events created so far */
	uint32_t recorded, completed; /* counts of events; both only grow */
	bool failed;             /* The state of queued copies is unknown. */
	int capture_mode;        /* the thread's capture mode before push_context */
};

/* Returns an empty queue in the copy stream's context. The caller must release it. Any thread may use it, one at a
 * time. */
collet_status collet_copy_queue_acquire(struct collet_copy_streams *copy_streams,
	struct collet_copy_stream *copy_stream, struct collet_copy_queue **queue);
/* Waits until the queue is empty, then makes it available again. NULL is allowed. Returns false if waiting is
 * impossible: the context cannot be entered but has not been destroyed. The buffers must then never be freed. */
bool collet_copy_queue_release(struct collet_copy_streams *copy_streams, struct collet_copy_queue *queue);
/* Frees the queue with its copy stream. entered: the context still exists and is current. */
void collet_copy_queue_destroy(const struct collet_cuda *cuda, struct collet_copy_queue *queue, bool entered);

/* Makes the queue's context current until pop_context. Nothing that the queue does in between invalidates a capture of
 * the application. */
collet_status collet_copy_queue_push_context(const struct collet_cuda *cuda, struct collet_copy_queue *queue);
/* The same, but acquires a queue first if *queue is NULL. */
collet_status collet_copy_queue_acquire_current(struct collet_copy_streams *copy_streams,
	struct collet_copy_stream *copy_stream, struct collet_copy_queue **queue);
void collet_copy_queue_pop_context(const struct collet_cuda *cuda, const struct collet_copy_queue *queue);

/* True if one more event can be recorded. */
static inline bool collet_copy_queue_has_room(const struct collet_copy_queue *queue)
{
	return queue->recorded - queue->completed < COLLET_COPY_QUEUE_DEPTH;
}
static inline bool collet_copy_queue_is_empty(const struct collet_copy_queue *queue)
{
	return queue->recorded == queue->completed;
}
/* The next three need the queue's context. `what` is for the error sentence.
 *
 * Enqueues a copy. */
collet_status collet_copy_queue_enqueue(const struct collet_cuda *cuda, struct collet_copy_queue *queue, void *to,
	const void *from, size_t bytes, const char *what);
/* Records an event behind the copies enqueued so far. */
collet_status collet_copy_queue_record(
	const struct collet_cuda *cuda, struct collet_copy_queue *queue, const char *what);
/* Sets *count to the number of events that have completed since the last poll. They complete in order. */
collet_status collet_copy_queue_poll(
	const struct collet_cuda *cuda, struct collet_copy_queue *queue, const char *what, uint32_t *count);

#endif
