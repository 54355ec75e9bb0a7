/* Copies between host and GPU memory, on streams of the library's own. */
#ifndef COLLET_CUDA_DRIVER_COPY_STREAM_H
#define COLLET_CUDA_DRIVER_COPY_STREAM_H

#include <pthread.h>

#include "cuda/driver/pointer_attributes.h"

struct collet_copy_queue;

/* A stream in one CUDA context. */
struct collet_copy_stream {
	struct collet_copy_stream *next;
	cu_context context;
	int ordinal;
	bool is_primary;     /* context is the GPU's primary one, and held */
	cu_stream stream;
	struct collet_copy_queue *idle_queues; /* of this context, and of no use now; under the copiers' lock (see
	                                          copy_queue.h) */
};

/* One a context of the library. */
struct collet_copy_streams {
	const struct collet_cuda *cuda;
	pthread_mutex_t lock;        /* of first; copiers stay where they are, and any thread may use one */
	struct collet_copy_stream *first;
};

void collet_copy_streams_init(struct collet_copy_streams *copy_streams, const struct collet_cuda *cuda);
/* Waits for what is under way. A zeroed one is fine. */
void collet_copy_streams_deinit(struct collet_copy_streams *copy_streams);

/* The copier for memory that resides there; made when it is first asked for. */
collet_status collet_copy_stream_get(struct collet_copy_streams *copy_streams,
	const struct collet_pointer_attributes *attributes, struct collet_copy_stream **copy_stream);

/* Between begin and end the calling thread's current CUDA context is the copier's, and nothing it asks for spoils a
 * capture; end puts back what was there. */
collet_status collet_copy_stream_push_context(
	const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream);
void collet_copy_stream_pop_context(const struct collet_cuda *cuda);

/* Between begin and end. add: enqueues; what is copied must stay until wait() has returned. what: for the sentence. */
collet_status collet_copy_stream_enqueue(const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream,
	void *to, const void *from, size_t bytes, const char *what);
collet_status collet_copy_stream_synchronize(
	const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream, const char *what);

#endif
