#include "cuda/device.h"

#include <stdlib.h>

#include "error.h"

struct cuda_device *cuda_device_open(uint32_t local_rank)
{
	char why[GPU_WHY_BYTES];
	struct cuda_device *device = calloc(1, sizeof(*device));
	if (!device) {
		train_fail("no memory");
		return NULL;
	}
	if (!gpu_device_open(&device->gpu, local_rank, why)) {
		train_fail("--device cuda: %s", why);
		free(device);
		return NULL;
	}
	gpu_stream *const streams[] = { &device->compute, &device->copy, &device->side };
	for (int s = 0; s < 3; s++) {
		if (!cuda_check(device, device->gpu.gpu.cuStreamCreate(streams[s], GPU_NON_BLOCKING_STREAM),
			    "a stream")) {
			cuda_device_close(device);
			return NULL;
		}
	}
	return device;
}

void cuda_device_close(struct cuda_device *device)
{
	if (!device)
		return;
	const gpu_stream streams[] = { device->compute, device->copy, device->side };
	for (int s = 0; s < 3; s++)
		if (streams[s])
			(void)device->gpu.gpu.cuStreamDestroy(streams[s]);
	gpu_device_close(&device->gpu);
	free(device);
}

bool cuda_check(const struct cuda_device *device, gpu_result result, const char *what)
{
	char words[GPU_WHY_BYTES];
	return result == GPU_OK || train_fail("GPU %d: %s: %s", device->gpu.ordinal, what,
		gpu_words(&device->gpu.gpu, result, words));
}

bool cuda_allocate(const struct cuda_device *device, void **memory, size_t bytes)
{
	const struct gpu *gpu = &device->gpu.gpu;
	gpu_pointer pointer = 0;
	*memory = NULL;
	if (!cuda_check(device, gpu->cuMemAlloc(&pointer, bytes ? bytes : 1), "memory"))
		return false;
	*memory = (void *)(uintptr_t)pointer;
	return cuda_check(device, gpu->cuMemsetD8Async(pointer, 0, bytes ? bytes : 1, device->compute), "memory") &&
		cuda_check(device, gpu->cuStreamSynchronize(device->compute), "memory");
}

void cuda_free(const struct cuda_device *device, void *memory)
{
	if (memory)
		(void)device->gpu.gpu.cuMemFree((uintptr_t)memory);
}

bool cuda_put(const struct cuda_device *device, void *to, const void *from, size_t bytes)
{
	return bytes == 0 || cuda_check(device, gpu_put(&device->gpu.gpu, (uintptr_t)to, from, bytes),
		"copying to the GPU");
}

bool cuda_get(const struct cuda_device *device, void *to, const void *from, size_t bytes)
{
	return bytes == 0 || cuda_check(device, device->gpu.gpu.cuMemcpyDtoH(to, (uintptr_t)from, bytes),
		"copying from the GPU");
}

bool cuda_event(const struct cuda_device *device, gpu_event *event, bool timed)
{
	return cuda_check(device, device->gpu.gpu.cuEventCreate(event, timed ? 0 : GPU_UNTIMED_EVENT), "an event");
}

void cuda_event_free(const struct cuda_device *device, gpu_event event)
{
	if (event)
		(void)device->gpu.gpu.cuEventDestroy(event);
}

bool cuda_record(const struct cuda_device *device, gpu_event event, gpu_stream stream)
{
	return cuda_check(device, device->gpu.gpu.cuEventRecord(event, stream), "recording an event");
}

bool cuda_follow(const struct cuda_device *device, gpu_stream stream, gpu_event event)
{
	return cuda_check(device, device->gpu.gpu.cuStreamWaitEvent(stream, event, 0), "ordering two streams");
}

bool cuda_await(const struct cuda_device *device, gpu_event event)
{
	return cuda_check(device, device->gpu.gpu.cuEventSynchronize(event), "computing");
}
