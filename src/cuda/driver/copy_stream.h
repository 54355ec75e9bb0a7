/* Copies between host and GPU memory, on CUDA streams that the library owns. */
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
	bool is_primary;     /* context is the GPU's primary one, and retained */
	cu_stream stream;
	/* Queues of this context that nobody uses; under the lock of collet_copy_streams (see copy_queue.h). */
	struct collet_copy_queue *idle_queues;
};

/* All copy streams of one library context. */
struct collet_copy_streams {
	const struct collet_cuda *cuda;
	pthread_mutex_t lock;        /* Protects first. Copy streams never move, and any thread may use one. */
	struct collet_copy_stream *first;
};

void collet_copy_streams_init(struct collet_copy_streams *copy_streams, const struct collet_cuda *cuda);
/* Waits for copies in progress. A zeroed object is allowed. */
void collet_copy_streams_deinit(struct collet_copy_streams *copy_streams);

/* Finds the copy stream for memory with these attributes; creates it on first use. */
collet_status collet_copy_stream_get(struct collet_copy_streams *copy_streams,
	const struct collet_pointer_attributes *attributes, struct collet_copy_stream **copy_stream);

/* Makes the copy stream's CUDA context current until pop_context restores the previous one. Nothing in between
 * invalidates a capture. */
collet_status collet_copy_stream_push_context(
	const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream);
void collet_copy_stream_pop_context(const struct collet_cuda *cuda);

/* Enqueues a copy. Needs the stream's context. Both buffers must stay valid until synchronize() returns. `what` is for
 * the error sentence. */
collet_status collet_copy_stream_enqueue(const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream,
	void *to, const void *from, size_t bytes, const char *what);
collet_status collet_copy_stream_synchronize(
	const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream, const char *what);

#endif
