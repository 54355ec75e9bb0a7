/* A stream, for the files that know what is in one. */
#ifndef TESTS_CUDA_FAKE_DRIVER_STREAM_H
#define TESTS_CUDA_FAKE_DRIVER_STREAM_H

#include "fake.h"

struct fake_capture;

struct CUstream_st {
	cu_context context;
	uint64_t id;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_job *first, **last;
	bool working, ending;
	cu_result result;    /* what it has come to; from then on nothing happens any more */
	struct fake_capture *capture;  /* what jobs go to instead; under lock */
	/* A default stream: of this thread, or of all (legacy). */
	struct CUstream_st *next_default;
	bool legacy;
	pthread_t owner;
};

/* The stream that a handle means in the calling thread and its context; NULL: none. */
struct CUstream_st *fake_stream_find(cu_stream stream);
/* The context's default streams, when it goes. */
void fake_streams_end(cu_context context);

/* ---- capture.c ---- */

/* Takes the job over, as fake_enqueue(). Under the stream's lock. */
cu_result fake_capture_add(struct fake_capture *capture, struct fake_job *job);
/* A call that means waiting for a stream: not while it is captured, which it spoils. */
cu_result fake_capture_forbids(struct CUstream_st *stream);

#endif
