/* A rank's GPU as a bench needs it: memory to measure in, and how fast the GPU copies within it. */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

#include <collet/collet.h>

#include "buffers.h"
#include "gpu.h"

struct bench_device {
	struct gpu_device device;
	gpu_stream stream;
	gpu_event marks[2];
	struct bench_allocator allocator; /* of its memory; its context is this struct, which must stay where it is */
};

/* The GPU of this local rank, for the calling thread. False after a line on standard error; close() takes what is left
 * of it. */
bool bench_device_open(struct bench_device *device, uint32_t local_rank);
/* Opens the rank's GPU, before the communicator is created with these options, which finds out who shares one. */
bool bench_device_open_for_rank(struct bench_device *device, const collet_options *comm_options);
void bench_device_close(struct bench_device *device);  /* a zeroed one is fine */

/* False after a line on standard error that says what was being done. */
bool bench_device_check(const struct bench_device *device, gpu_result result, const char *what);

/* Copies bytes within its memory for about so many seconds. *gbs is bytes copied by time; each was read and written
 * once. Events give the GPU's time. */
bool bench_device_copy(struct bench_device *device, uint64_t bytes, double seconds, double *gbs);

#endif
