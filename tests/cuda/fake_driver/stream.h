/* The state of a stream. */
#ifndef TESTS_CUDA_FAKE_DRIVER_STREAM_H
#define TESTS_CUDA_FAKE_DRIVER_STREAM_H

#include "fake.h"

struct fake_capture;

/* Most nodes that a stream's next operation in a capture depends on directly. */
enum { FAKE_TIPS = 16 };
struct fake_tips {
	uint32_t count, nodes[FAKE_TIPS];
};

struct CUstream_st {
	cu_context context;
	uint64_t id;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_job *first, **last;
	bool working, ending;
	cu_result result;    /* its first error; nothing is executed afterwards */
	struct fake_capture *capture;  /* where jobs go instead; under lock, with tips */
	struct fake_tips tips;         /* its position in the capture */
	/* A default stream: of this thread, or of all threads (legacy). */
	struct CUstream_st *next_default;
	bool legacy;
	pthread_t owner;
	/* For the waits between the legacy stream and blocking ones (stream.c). */
	struct CUstream_st *next_live;
	bool blocking;
	uint64_t unfinished;           /* turn of the first job that has not ended; 0 if all have */
};

/* Returns the stream of a handle, in the calling thread and its context; NULL if there is none. */
struct CUstream_st *fake_stream_find(cu_stream stream);
/* Ends the default streams of a context that ends; with `all` also those that the program has created in it. */
void fake_streams_end(cu_context context, bool all);

/* ---- capture.c ---- */

/* Takes ownership of the job, as fake_enqueue(). Needs the lock of the stream, which is captured. */
cu_result fake_capture_add(struct CUstream_st *stream, struct fake_job *job);
/* Returns the stream's position in its capture, and the capture's id; 0 if it is in none. */
uint64_t fake_capture_place(struct CUstream_st *stream, struct fake_tips *tips);
/* Orders the stream's further work behind these nodes of the capture, which it joins if it is in none. capture 0: none.
 * Returns CU_OK, or the error that has invalidated a capture. */
cu_result fake_capture_follow(struct CUstream_st *stream, uint64_t capture, const struct fake_tips *tips);
/* Waiting for the legacy stream also means waiting for all blocking streams of its context. If one of them is captured,
 * its capture is invalidated. CU_OK, or CU_CAPTURE_IMPLICIT. */
cu_result fake_capture_forbids_legacy(cu_context context);
/* A stream that is captured must not be waited for: that invalidates its capture. */
cu_result fake_capture_forbids(struct CUstream_st *stream);

/* ---- graph.c ---- */

struct fake_node {
	struct fake_job *job;
	struct fake_tips after;
};

/* A node depends only on nodes with smaller numbers. width: at most so many run at a time. */
struct fake_nodes {
	struct fake_node *first;
	uint32_t count, capacity, width;
};

void fake_nodes_free(struct fake_nodes *nodes);
/* Returns NULL if out of memory. Takes ownership of the nodes. */
cu_graph fake_graph_of(struct fake_nodes *nodes);

#endif
