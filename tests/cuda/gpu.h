/* A rank with a GPU, some streams, and flags with which the test holds the streams up. */
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
	_Atomic uint32_t *gates;     /* registered with the driver */
	cu_pointer gates_gpu;        /* their device address */
	int64_t timeout_ns;          /* of gpu_allreduce(); 0: the communicator's */
};

/* Returns false after it has reported a failure. */
bool gpu_start(struct gpu *gpu, struct rank *rank);
bool gpu_start_on(struct gpu *gpu, struct rank *rank, int device);
/* The same in a context of the rank's own on this GPU, beside the primary one. */
bool gpu_start_beside(struct gpu *gpu, struct rank *rank, int device);
/* Starts rank r on GPU r, and then creates a communicator that knows of it (the run is bare). */
bool gpu_start_own(struct gpu *gpu, struct rank *rank);
/* Destroys the communicator too, and checks that the caller's context is still current. */
void gpu_end(struct gpu *gpu);
/* Blocks the stream until the gate is opened. */
bool gpu_hold(struct gpu *gpu, int stream, int gate);
cu_pointer gpu_gate(const struct gpu *gpu, int gate);
void gpu_open(struct gpu *gpu, int gate);
bool gpu_synchronize(struct gpu *gpu, int stream);
/* Allowed while another stream is captured. */
bool gpu_synchronize_relaxed(struct gpu *gpu, int stream);

/* Fills GPU memory with count u32 of this value. */
bool gpu_make(struct gpu *gpu, struct buffer *buffer, uint64_t count, uint32_t value);
/* True if all elements have this value. */
bool gpu_holds(struct gpu *gpu, const struct buffer *buffer, uint32_t value, const char *what);
/* A sum on the stream, in place. */
collet_status gpu_allreduce(struct gpu *gpu, int stream, const struct buffer *buffer);
/* Work given to the stream until the end of the capture becomes a graph. These return false after they have reported a
 * failure. */
bool gpu_begin_capture(struct gpu *gpu, int stream);
bool gpu_end_capture(struct gpu *gpu, int stream, cu_graph_exec *exec);
bool gpu_launch(struct gpu *gpu, cu_graph_exec exec, int stream);
/* How many launches a rank may queue before it synchronises. Threads have fewer: when the driver has no room for a
 * launch, it keeps the process's other threads waiting too, though the GPU waits for their launches. */
uint32_t gpu_launches_ahead(const struct gpu *gpu);
/* Orders the stream's further work behind the other stream's work so far. If that one is captured, this one joins. */
bool gpu_follow(struct gpu *gpu, int stream, int other);
/* Returns value * factor^times. */
uint32_t gpu_power(uint32_t factor, uint32_t times, uint32_t value);

#endif
