#include "gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef gpu_result look_up_function(const char *name, void **function, int version, uint64_t flags, int *found);

static const struct {
	const char *name;
	size_t offset;
} slots[] = {
#define SLOT(name, arguments) { #name, offsetof(struct gpu, name) },
	GPU_FUNCTIONS(SLOT)
#undef SLOT
};

/* The first function that the driver lacks; NULL: it has all. C has no cast from data to code, POSIX has them alike. */
static const char *find_functions(struct gpu *gpu)
{
	look_up_function *look_up;
	const void *address = dlsym(gpu->library, "cuGetProcAddress_v2");
	memcpy(&look_up, &address, sizeof(address));
	if (!look_up)
		return "cuGetProcAddress_v2";
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		void *function = NULL;
		int found;
		if (look_up(slots[i].name, &function, GPU_OLDEST, 0, &found) != GPU_OK || !function)
			return slots[i].name;
		memcpy((char *)gpu + slots[i].offset, &function, sizeof(function));
	}
	return NULL;
}

static bool initialise(const struct gpu *gpu, char why[GPU_WHY_BYTES])
{
	char words[GPU_WHY_BYTES];
	const gpu_result result = gpu->cuInit(0);
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	if (result == GPU_NO_DEVICE && visible)
		snprintf(why, GPU_WHY_BYTES, "the CUDA driver shows no GPU with CUDA_VISIBLE_DEVICES=%.64s", visible);
	else if (result == GPU_NO_DEVICE)
		snprintf(why, GPU_WHY_BYTES, "the CUDA driver finds no GPU");
	else if (result != GPU_OK)
		snprintf(why, GPU_WHY_BYTES, "the CUDA driver does not start: %.200s", gpu_words(gpu, result, words));
	return result == GPU_OK;
}

bool gpu_open(struct gpu *gpu, char why[GPU_WHY_BYTES])
{
	/* It stays: a rank that finds no GPU does not unload what another thread is about to use. */
	*gpu = (struct gpu){ .library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) };
	if (!gpu->library) {
		const char *words = dlerror();
		snprintf(why, GPU_WHY_BYTES, "there is no CUDA driver: %.200s", words ? words : "libcuda.so.1");
		return false;
	}
	const char *missing = find_functions(gpu);
	if (missing)
		snprintf(why, GPU_WHY_BYTES,
			"the CUDA driver is too old: it has no %.64s; CUDA %d.%d or newer is needed", missing,
			GPU_OLDEST / 1000, GPU_OLDEST % 1000 / 10);
	if (missing || !initialise(gpu, why)) {
		gpu_close(gpu);
		return false;
	}
	return true;
}

void gpu_close(struct gpu *gpu)
{
	if (gpu->library)
		dlclose(gpu->library);
	*gpu = (struct gpu){ 0 };
}

const char *gpu_words(const struct gpu *gpu, gpu_result result, char words[GPU_WHY_BYTES])
{
	const char *name = NULL, *sentence = NULL;
	if (gpu->cuGetErrorName(result, &name) != GPU_OK || !name)
		name = "an error that the driver has no name for";
	if (gpu->cuGetErrorString(result, &sentence) != GPU_OK || !sentence)
		sentence = "no words for it";
	snprintf(words, GPU_WHY_BYTES, "%.80s (%d: %.120s)", name, result, sentence);
	return words;
}

/* ---- One GPU ------------------------------------------------------------------------------------------------- */

static gpu_result enter(struct gpu_device *d, uint32_t local_rank)
{
	const struct gpu *gpu = &d->gpu;
	int cache_bytes = 0;
	gpu_result result = gpu->cuDeviceGetCount(&d->count);
	d->ordinal = d->count > 0 ? (int)(local_rank % (uint32_t)d->count) : 0;
	if (result == GPU_OK)
		result = gpu->cuDeviceGet(&d->device, d->ordinal);
	if (result == GPU_OK)
		result = gpu->cuDeviceGetName(d->name, sizeof(d->name), d->device);
	if (result == GPU_OK)
		result = gpu->cuDeviceGetAttribute(&cache_bytes, GPU_L2_CACHE_BYTES, d->device);
	d->cache_bytes = (size_t)cache_bytes;
	if (result == GPU_OK)
		result = gpu->cuDevicePrimaryCtxRetain(&d->context, d->device);
	if (result != GPU_OK)
		return result;
	result = gpu->cuCtxPushCurrent(d->context);
	if (result != GPU_OK) {
		(void)gpu->cuDevicePrimaryCtxRelease(d->device);
		d->context = NULL;
	}
	return result;
}

bool gpu_device_open(struct gpu_device *device, uint32_t local_rank, char why[GPU_WHY_BYTES])
{
	char words[GPU_WHY_BYTES];
	*device = (struct gpu_device){ 0 };
	if (!gpu_open(&device->gpu, why))
		return false;
	const gpu_result result = enter(device, local_rank);
	if (result == GPU_OK)
		return true;
	snprintf(why, GPU_WHY_BYTES, "GPU %d cannot be used: %.200s", device->ordinal,
		gpu_words(&device->gpu, result, words));
	gpu_device_close(device);
	return false;
}

void gpu_device_close(struct gpu_device *device)
{
	if (device->context) {
		(void)device->gpu.cuCtxPopCurrent(NULL);
		(void)device->gpu.cuDevicePrimaryCtxRelease(device->device);
	}
	gpu_close(&device->gpu);
	*device = (struct gpu_device){ 0 };
}

/* ---- Counting ----------------------------------------------------------------------------------------------- */

/* A driver whose GPU has failed can take for ever. */
enum { COUNT_DEADLINE_MS = 60000 };

struct answer {
	int count;
	char why[GPU_WHY_BYTES];
};

static _Noreturn void answer(int to)
{
	struct answer answer = { 0 };
	struct gpu gpu;
	char words[GPU_WHY_BYTES];
	if (gpu_open(&gpu, answer.why)) {
		const gpu_result result = gpu.cuDeviceGetCount(&answer.count);
		if (result != GPU_OK) {
			answer.count = 0;
			snprintf(answer.why, sizeof(answer.why), "the CUDA driver does not count its GPUs: %.200s",
				gpu_words(&gpu, result, words));
		}
	}
	const ssize_t written = write(to, &answer, sizeof(answer));
	_exit(written == (ssize_t)sizeof(answer) ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* Less than a pipe takes at once, so it comes whole or not at all. */
static bool hear(int from, struct answer *heard)
{
	struct pollfd polled = { .fd = from, .events = POLLIN };
	return poll(&polled, 1, COUNT_DEADLINE_MS) > 0 && read(from, heard, sizeof(*heard)) == (ssize_t)sizeof(*heard);
}

gpu_result gpu_put(const struct gpu *gpu, gpu_pointer to, const void *from, size_t bytes)
{
	const gpu_result result = gpu->cuMemcpyHtoD(to, from, bytes);
	return result == GPU_OK ? gpu->cuStreamSynchronize((gpu_stream)GPU_LEGACY_STREAM) : result;
}

unsigned gpu_count(char why[GPU_WHY_BYTES])
{
	int ends[2];
	struct answer heard = { 0 };
	if (pipe(ends) != 0) {
		snprintf(why, GPU_WHY_BYTES, "the CUDA driver cannot be asked: %s", strerror(errno));
		return 0;
	}
	const pid_t child = fork();
	if (child == 0)
		answer(ends[1]);
	close(ends[1]);
	const bool came = child > 0 && hear(ends[0], &heard);
	close(ends[0]);
	if (child > 0) {
		(void)kill(child, SIGKILL);
		(void)waitpid(child, NULL, 0);
	}
	if (!came)
		snprintf(why, GPU_WHY_BYTES, "the CUDA driver was asked in a process of its own, and that has %s",
			child < 0 ? "not begun" : "died, or hangs");
	else if (heard.count <= 0)
		snprintf(why, GPU_WHY_BYTES, "%s", heard.why[0] ? heard.why : "the CUDA driver counts no GPU");
	return came && heard.count > 0 ? (unsigned)heard.count : 0;
}
