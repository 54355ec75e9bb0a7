#include "device.h"

#include <stdio.h>
#include <string.h>

#include "local_rank.h"

static bool complain(const char *what)
{
	fprintf(stderr, "collet-bench: --device cuda: %s\n", what);
	return false;
}

bool bench_device_check(const struct bench_device *device, gpu_result result, const char *what)
{
	char words[GPU_WHY_BYTES], sentence[2 * GPU_WHY_BYTES];
	if (result == GPU_OK)
		return true;
	snprintf(sentence, sizeof(sentence), "%s: %s", what, gpu_words(&device->device.gpu, result, words));
	return complain(sentence);
}

static int allocate(void *context, void **memory, size_t bytes)
{
	const struct bench_device *d = context;
	gpu_pointer pointer = 0;
	if (!bench_device_check(d, d->device.gpu.cuMemAlloc(&pointer, bytes), "memory for the buffers"))
		return 1;
	*memory = (void *)(uintptr_t)pointer;
	return 0;
}

static void release(void *context, void *memory)
{
	const struct bench_device *d = context;
	(void)d->device.gpu.cuMemFree((uintptr_t)memory);
}

static int write_in(void *context, void *memory, const void *from, size_t bytes)
{
	const struct bench_device *d = context;
	return !bench_device_check(d, gpu_put(&d->device.gpu, (uintptr_t)memory, from, bytes), "filling buffers");
}

static int read_out(void *context, void *to, const void *memory, size_t bytes)
{
	const struct bench_device *d = context;
	return !bench_device_check(d, d->device.gpu.cuMemcpyDtoH(to, (uintptr_t)memory, bytes), "reading results");
}

bool bench_device_open_for_rank(struct bench_device *device, const collet_options *comm_options)
{
	uint32_t local_rank;
	memset(device, 0, sizeof(*device));
	if (local_rank_find(comm_options, &local_rank) != COLLET_OK)
		return complain(collet_last_error());
	return bench_device_open(device, local_rank);
}

bool bench_device_open(struct bench_device *device, uint32_t local_rank)
{
	char why[GPU_WHY_BYTES];
	memset(device, 0, sizeof(*device));
	if (!gpu_device_open(&device->device, local_rank, why))
		return complain(why);
	const struct gpu *gpu = &device->device.gpu;
	device->allocator = (struct bench_allocator){ .allocate = allocate, .release = release, .write = write_in,
		.read = read_out, .cache_bytes = device->device.cache_bytes, .context = device };
	return bench_device_check(device, gpu->cuStreamCreate(&device->stream, GPU_NON_BLOCKING_STREAM), "a stream") &&
		bench_device_check(device, gpu->cuEventCreate(&device->marks[0], 0), "an event") &&
		bench_device_check(device, gpu->cuEventCreate(&device->marks[1], 0), "an event");
}

void bench_device_close(struct bench_device *device)
{
	const struct gpu *gpu = &device->device.gpu;
	for (int i = 0; i < 2; i++)
		if (device->marks[i])
			(void)gpu->cuEventDestroy(device->marks[i]);
	if (device->stream)
		(void)gpu->cuStreamDestroy(device->stream);
	gpu_device_close(&device->device);
	memset(device, 0, sizeof(*device));
}

static bool copies(struct bench_device *d, gpu_pointer memory, uint64_t bytes, uint64_t count, float *ms)
{
	const struct gpu *gpu = &d->device.gpu;
	gpu_result result = gpu->cuEventRecord(d->marks[0], d->stream);
	for (uint64_t i = 0; i < count && result == GPU_OK; i++)
		result = gpu->cuMemcpyAsync(memory + bytes, memory, bytes, d->stream);
	if (result == GPU_OK)
		result = gpu->cuEventRecord(d->marks[1], d->stream);
	if (result == GPU_OK)
		result = gpu->cuEventSynchronize(d->marks[1]);
	if (result == GPU_OK)
		result = gpu->cuEventElapsedTime(ms, d->marks[0], d->marks[1]);
	return bench_device_check(d, result, "copying");
}

bool bench_device_copy(struct bench_device *device, uint64_t bytes, double seconds, double *gbs)
{
	const struct gpu *gpu = &device->device.gpu;
	gpu_pointer memory = 0;
	uint64_t count = 1;
	float ms = 0;
	if (!bench_device_check(device, gpu->cuMemAlloc(&memory, 2 * bytes), "memory to copy in"))
		return false;
	/* Doubles until that takes the time; all before was the warm-up. */
	bool fine = copies(device, memory, bytes, count, &ms);
	while (fine && (double)ms < seconds * 1e3 && count < UINT64_C(1) << 20) {
		count *= 2;
		fine = copies(device, memory, bytes, count, &ms);
	}
	(void)gpu->cuMemFree(memory);
	if (fine)
		*gbs = ms > 0 ? (double)bytes * (double)count / ((double)ms * 1e6) : 0;
	return fine;
}
