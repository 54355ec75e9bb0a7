/* A stream, for the files that know what is in one. */
#ifndef TESTS_CUDA_FAKE_DRIVER_STREAM_H
#define TESTS_CUDA_FAKE_DRIVER_STREAM_H

#include "fake.h"

struct fake_capture;

/* What is told a stream in a capture comes after these of its nodes. */
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
	cu_result result;    /* what it has come to; from then on nothing happens any more */
	struct fake_capture *capture;  /* what jobs go to instead; under lock, with */
	struct fake_tips tips;         /* where it is in there */
	/* A default stream: of this thread, or of all (legacy). */
	struct CUstream_st *next_default;
	bool legacy;
	pthread_t owner;
	/* What the legacy stream and blocking ones wait for of each other (stream.c). */
	struct CUstream_st *next_live;
	bool blocking;
	uint64_t unfinished;           /* the turn of the first job that has not ended; 0: all have */
};

/* The stream that a handle means in the calling thread and its context; NULL: none. */
struct CUstream_st *fake_stream_find(cu_stream stream);
/* The context's default streams, when it goes; with all: those that the program has made in it, too. */
void fake_streams_end(cu_context context, bool all);

/* ---- capture.c ---- */

/* Takes the job over, as fake_enqueue(). Under the stream's lock, which is in a capture. */
cu_result fake_capture_add(struct CUstream_st *stream, struct fake_job *job);
/* Where the stream is in its capture, whose id it gives; 0: it is in none. */
uint64_t fake_capture_place(struct CUstream_st *stream, struct fake_tips *tips);
/* The stream goes on after these nodes of that capture, which it joins if it is in none; capture 0: in none. CU_OK; or,
 * spoilt, what keeps it from that. */
cu_result fake_capture_follow(struct CUstream_st *stream, uint64_t capture, const struct fake_tips *tips);
/* What would wait for this stream, if it is the legacy one, also waits for all blocking ones of its context: not while
 * such a one is captured, which it spoils. CU_OK, or CU_CAPTURE_IMPLICIT. */
cu_result fake_capture_forbids_legacy(cu_context context);
/* A call that means waiting for a stream: not while it is captured, which it spoils. */
cu_result fake_capture_forbids(struct CUstream_st *stream);

/* ---- graph.c ---- */

struct fake_node {
	struct fake_job *job;
	struct fake_tips after;
};

/* Nodes come after such as have smaller numbers. width: at most so many are under way at a time. */
struct fake_nodes {
	struct fake_node *first;
	uint32_t count, capacity, width;
};

void fake_nodes_free(struct fake_nodes *nodes);
/* NULL: no memory. Takes the nodes over. */
cu_graph fake_graph_of(struct fake_nodes *nodes);

#endif
