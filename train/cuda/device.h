/* A rank's GPU: its streams, memory and events, by the driver that common/gpu opens. Every function that gives a bool
 * prints why before it returns false. Belongs to the thread that has opened it. */
#ifndef TRAIN_CUDA_DEVICE_H
#define TRAIN_CUDA_DEVICE_H

#include "gpu.h"

struct cuda_device {
	struct gpu_device gpu;
	gpu_stream compute;      /* layers and the optimiser */
	gpu_stream copy;         /* images, on their way to the next step */
	gpu_stream side;         /* gradients, on their way between ranks */
};

/* The GPU of this local rank; NULL after a line on standard error. */
struct cuda_device *cuda_device_open(uint32_t local_rank);
void cuda_device_close(struct cuda_device *device);  /* NULL is fine */

bool cuda_check(const struct cuda_device *device, gpu_result result, const char *what);

/* Zeroed. *memory is an address of the GPU: nothing of the host may follow it. */
bool cuda_allocate(const struct cuda_device *device, void **memory, size_t bytes);
void cuda_free(const struct cuda_device *device, void *memory);  /* NULL is fine */

/* At once: what streams do with this memory must be over. */
bool cuda_put(const struct cuda_device *device, void *to, const void *from, size_t bytes);
bool cuda_get(const struct cuda_device *device, void *to, const void *from, size_t bytes);

/* One that only orders, unless it is timed. */
bool cuda_event(const struct cuda_device *device, gpu_event *event, bool timed);
void cuda_event_free(const struct cuda_device *device, gpu_event event);  /* NULL is fine */
bool cuda_record(const struct cuda_device *device, gpu_event event, gpu_stream stream);
/* stream goes on when event, as it was recorded last, has come. */
bool cuda_follow(const struct cuda_device *device, gpu_stream stream, gpu_event event);
bool cuda_await(const struct cuda_device *device, gpu_event event);

#endif
