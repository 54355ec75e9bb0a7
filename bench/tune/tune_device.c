/* Measures a GPU's links, on the first GPU and by one process. It times the start of a copy to page-locked memory,
 * each copy queued behind it, a byte of it, and a byte that a kernel reads or writes. The other parts of a call
 * (descriptors, flags, host functions) belong to no link, and are not measured. */
#include "tune_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <collet/tools.h>

#include "ranks/device.h"
#include "tune.h"
#include "tune_polish.h"

enum { ROUNDS = 101, ROW = 32, SHORT = 64, LONG = 64 << 20 };

struct measured {
	double start_ns, next_ns, copy_byte_ns, memory_byte_ns;
};

/* Page-locked memory and the GPU's. */
struct places {
	struct bench_device device;
	char *host;
	gpu_pointer gpu;
};

static double now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static bool open_places(struct places *places)
{
	const struct gpu *gpu = &places->device.device.gpu;
	if (!bench_device_open(&places->device, 0))
		return false;
	places->host = aligned_alloc(4096, LONG);
	if (places->host == NULL) {
		fprintf(stderr, "collet-bench: tune: no memory to copy to\n");
		return false;
	}
	memset(places->host, 1, LONG);
	return bench_device_check(
		       &places->device, gpu->cuMemHostRegister(places->host, LONG, 0), "page-locking memory") &&
	       bench_device_check(&places->device, gpu->cuMemAlloc(&places->gpu, LONG), "memory to copy in");
}

static void close_places(struct places *places)
{
	const struct gpu *gpu = &places->device.device.gpu;
	if (places->gpu)
		(void)gpu->cuMemFree(places->gpu);
	if (places->host != NULL && gpu->library != NULL)
		(void)gpu->cuMemHostUnregister(places->host);
	free(places->host);
	bench_device_close(&places->device);
}

/* Times so many copies, one behind the other, until the host sees their end. */
static bool copies(const struct places *places, bool to_gpu, size_t bytes, int count, double *ns)
{
	const struct gpu *gpu = &places->device.device.gpu;
	const gpu_pointer host = (uintptr_t)places->host;
	const gpu_pointer to = to_gpu ? places->gpu : host, from = to_gpu ? host : places->gpu;
	gpu_result result = GPU_OK;
	const double began = now_ns();
	for (int i = 0; i < count && result == GPU_OK; i++)
		result = gpu->cuMemcpyAsync(to, from, bytes, places->device.stream);
	if (result == GPU_OK)
		result = gpu->cuStreamSynchronize(places->device.stream);
	*ns = now_ns() - began;
	return bench_device_check(&places->device, result, "copying");
}

/* The median. */
static bool time_copies(
	const struct places *places, bool to_gpu, size_t bytes, int count, int rounds, double *ns)
{
	double times[ROUNDS];
	for (int i = 0; i < rounds; i++)
		if (!copies(places, to_gpu, bytes, count, &times[i]))
			return false;
	*ns = tune_median(times, (size_t)rounds);
	return true;
}

static bool measure(struct places *places, const struct bench_options *options, struct measured *measured)
{
	double one, row, in, out, gbs;
	if (!time_copies(places, false, SHORT, 1, ROUNDS, &one) ||
		!time_copies(places, false, SHORT, ROW, ROUNDS, &row) ||
		!time_copies(places, false, LONG, 1, 9, &in) || !time_copies(places, true, LONG, 1, 9, &out) ||
		!bench_device_copy(&places->device, LONG, options->mode.seconds * 10, &gbs))
		return false;
	const double slower = in > out ? in : out;
	*measured = (struct measured){ .start_ns = one,
		.next_ns = row > one ? (row - one) / (ROW - 1) : 0,
		.copy_byte_ns = slower > one ? (slower - one) / LONG : slower / LONG,
		.memory_byte_ns = gbs > 0 ? 1 / (2 * gbs) : 0 };
	return true;
}

/* The row of that name, or the place for one more; NULL: it is full. */
static collet_link_cost *find_row(collet_link_cost *links, size_t *count)
{
	for (size_t i = 0; i < *count; i++)
		if (strcmp(links[i].transport, "cuda") == 0)
			return &links[i];
	return *count < COLLET_TUNING_LINKS ? &links[(*count)++] : NULL;
}

static int write_tuning(const char *path, const struct measured *measured)
{
	collet_link_cost *links = calloc(COLLET_TUNING_LINKS, sizeof(links[0]));
	size_t count = 0;
	int status = 1;
	if (links == NULL)
		return 1;
	/* Keeps the rows of this machine that exist; else the file would lack the other links' built-in rows. */
	if (collet_tuning_read(path, links, COLLET_TUNING_LINKS, &count) == COLLET_OK ||
		collet_tuning_read(NULL, links, COLLET_TUNING_LINKS, &count) == COLLET_OK) {
		collet_link_cost *row = find_row(links, &count);
		if (row != NULL) {
			*row = (collet_link_cost){ .transport = "cuda", .ranks = 1, .cores = 1,
				.latency_ns = measured->start_ns, .overhead_ns = measured->next_ns,
				.segment_ns = measured->next_ns, .reduce_byte_ns = measured->memory_byte_ns,
				.cached_bytes = UINT64_MAX, .channel_ratios = {1},
				.min_segment_bytes = 64 << 10, .max_segment_bytes = 64 << 20 };
			for (int i = 0; i < 4; i++)
				row->byte_ns[i] = measured->copy_byte_ns;
			status = collet_tuning_write(path, links, count) != COLLET_OK;
		}
	}
	if (status)
		fprintf(stderr, "collet-bench: tune: writing the tuning: %s\n", collet_last_error());
	else
		printf("# written to %s\n", path);
	free(links);
	return status;
}

int bench_tune_device(const struct bench_options *options)
{
	struct places places = {0};
	struct measured measured;
	char path[TUNE_PATH_BYTES];
	if (!bench_tune_path(options, path))
		return 1;
	int status = !open_places(&places) || !measure(&places, options, &measured);
	if (!status)
		printf("# GPU: %s\n# a copy to page-locked memory: %.2f us, each behind it %.2f us, %.2f GB/s; "
		       "the GPU's memory: %.1f GB/s\n",
			places.device.device.name, measured.start_ns / 1e3, measured.next_ns / 1e3,
			1 / measured.copy_byte_ns, measured.memory_byte_ns > 0 ? 1 / measured.memory_byte_ns : 0);
	if (!status && !options->check)
		status = write_tuning(path, &measured);
	close_places(&places);
	return status;
}
