/* Copies between host and GPU memory, on streams of the library's own. */
#ifndef COLLET_CUDA_DRIVER_COPY_STREAM_H
#define COLLET_CUDA_DRIVER_COPY_STREAM_H

#include <pthread.h>

#include "cuda/driver/pointer_attributes.h"

struct collet_pipe;

/* A stream in one CUDA context. */
struct collet_copier {
	struct collet_copier *next;
	cu_context context;
	int ordinal;
	bool retained;       /* context is the GPU's primary one, and held */
	cu_stream stream;
	struct collet_pipe *pipes; /* of this context, and of no use now; under the copiers' lock (see copy_queue.h) */
};

/* One a context of the library. */
struct collet_copiers {
	const struct collet_cuda *cuda;
	pthread_mutex_t lock;        /* of first; copiers stay where they are, and any thread may use one */
	struct collet_copier *first;
};

void collet_copiers_init(struct collet_copiers *copiers, const struct collet_cuda *cuda);
/* Waits for what is under way. A zeroed one is fine. */
void collet_copiers_deinit(struct collet_copiers *copiers);

/* The copier for memory that resides there; made when it is first asked for. */
collet_status collet_copier_find(
	struct collet_copiers *copiers, const struct collet_residence *residence, struct collet_copier **copier);

/* Between begin and end the calling thread's current CUDA context is the copier's, and nothing it asks for spoils a
 * capture; end puts back what was there. */
collet_status collet_copier_begin(const struct collet_cuda *cuda, const struct collet_copier *copier);
void collet_copier_end(const struct collet_cuda *cuda);

/* Between begin and end. add: enqueues; what is copied must stay until wait() has returned. what: for the sentence. */
collet_status collet_copier_add(const struct collet_cuda *cuda, const struct collet_copier *copier, void *to,
	const void *from, size_t bytes, const char *what);
collet_status collet_copier_wait(const struct collet_cuda *cuda, const struct collet_copier *copier, const char *what);

#endif
