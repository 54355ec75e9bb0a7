/* A rank that has a GPU, some streams there, and words by which the test holds the streams up. */
#ifndef TESTS_CUDA_GPU_H
#define TESTS_CUDA_GPU_H

#include <stdatomic.h>

#include "calls.h"

enum { GPU_STREAMS = 2, GPU_GATES = 4 };

struct gpu {
	struct rank *rank;
	struct program program;
	struct streams cuda;
	cu_stream stream[GPU_STREAMS];
	_Atomic uint32_t *gates;     /* registered with the driver, */
	cu_pointer gates_gpu;        /* which has them here */
	int64_t timeout_ns;          /* of gpu_allreduce(); 0: the communicator's */
};

/* false: reported. */
bool gpu_start(struct gpu *gpu, struct rank *rank);
bool gpu_start_on(struct gpu *gpu, struct rank *rank, int device);
/* In a context of the rank's own on this GPU, beside the primary one. */
bool gpu_start_beside(struct gpu *gpu, struct rank *rank, int device);
/* Of rank r GPU r, and then a communicator, which knows of it (the run is bare). */
bool gpu_start_own(struct gpu *gpu, struct rank *rank);
/* Destroys the communicator too, and checks that the caller's context is current yet. */
void gpu_end(struct gpu *gpu);
/* The stream goes on when the gate has been opened. */
bool gpu_hold(struct gpu *gpu, int stream, int gate);
cu_pointer gpu_gate(const struct gpu *gpu, int gate);
void gpu_open(struct gpu *gpu, int gate);
bool gpu_synchronize(struct gpu *gpu, int stream);
/* While another one is captured. */
bool gpu_synchronize_relaxed(struct gpu *gpu, int stream);

/* count u32 of value in the GPU's memory. */
bool gpu_make(struct gpu *gpu, struct buffer *buffer, uint64_t count, uint32_t value);
/* Are all of them value? */
bool gpu_holds(struct gpu *gpu, const struct buffer *buffer, uint32_t value, const char *what);
/* In place, sum, on the stream. */
collet_status gpu_allreduce(struct gpu *gpu, int stream, const struct buffer *buffer);
/* What the stream is told in between becomes a graph; false: reported, as of the launch. */
bool gpu_begin_capture(struct gpu *gpu, int stream);
bool gpu_end_capture(struct gpu *gpu, int stream, cu_graph_exec *exec);
bool gpu_launch(struct gpu *gpu, cu_graph_exec exec, int stream);
/* What the stream is told from now on comes after what the other has been told; if that one is captured, so is this. */
bool gpu_follow(struct gpu *gpu, int stream, int other);
/* value, multiplied by factor so often. */
uint32_t gpu_power(uint32_t factor, uint32_t times, uint32_t value);

#endif
