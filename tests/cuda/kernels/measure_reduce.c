/* Measures the reduce kernels, and a copy within the GPU's memory: one JSON object a row, for scripts/gpu-check. Times
 * are the GPU's, from events. BYTES is the size of each buffer, which should exceed the GPU's cache.
 *   measure_reduce BYTES */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/types.h"
#include "loaded_kernels.h"

enum { REPEATS = 10, BUFFERS = 4 };

struct bench {
	struct loaded gpu;
	cu_result (*elapsed)(float *ms, cu_event start, cu_event end);
	cu_result (*synchronize)(cu_event event);
	cu_event marks[2];
	struct buffer buffers[BUFFERS];
	size_t bytes;
};

static bool find(const struct bench *bench, void *slot, const char *name)
{
	void *address = dlsym(bench->gpu.program.driver, name);
	memcpy(slot, &address, sizeof(address));
	return address != NULL;
}

static bool start(struct bench *bench)
{
	if (!loaded_start(&bench->gpu, 0))
		return false;
	bool fine = loaded_load(&bench->gpu) == COLLET_OK &&
		find(bench, &bench->elapsed, "cuEventElapsedTime") &&
		find(bench, &bench->synchronize, "cuEventSynchronize");
	for (int m = 0; m < 2; m++)
		fine = fine && bench->gpu.cuda.cuEventCreate(&bench->marks[m], 0) == CU_OK;
	void *zeros = calloc(1, bench->bytes);
	for (int b = 0; b < BUFFERS; b++)
		fine = fine && zeros && buffer_make(&bench->buffers[b], &bench->gpu.program, true, bench->bytes) &&
			buffer_write(&bench->buffers[b], zeros);
	free(zeros);
	return fine;
}

static bool end(struct bench *bench)
{
	for (int b = 0; b < BUFFERS; b++)
		buffer_free(&bench->buffers[b]);
	for (int m = 0; m < 2; m++)
		(void)bench->gpu.cuda.cuEventDestroy(bench->marks[m]);
	loaded_unload(&bench->gpu);
	return loaded_end(&bench->gpu);
}

/* What is timed: results become the sources' sum; without a dtype, a copy by the driver. */
struct row {
	const char *name;
	const collet_dtype *dtype;
	uint32_t sources, results;
};

static bool enqueue(struct bench *bench, const struct row *row)
{
	const void *sources[BUFFERS];
	void *results[BUFFERS];
	if (!row->dtype)
		return bench->gpu.cuda.cuMemcpyAsync((uintptr_t)bench->buffers[1].first,
			(uintptr_t)bench->buffers[0].first, bench->bytes, bench->gpu.copy_stream->stream) == CU_OK;
	/* Results replace the first sources if there are as many, as in calls in place. */
	for (uint32_t s = 0; s < row->sources; s++)
		sources[s] = bench->buffers[s].first;
	for (uint32_t r = 0; r < row->results; r++)
		results[r] = bench->buffers[row->results == row->sources ? r : row->sources + r].first;
	const struct collet_gpu_reduction reduction = { *row->dtype, COLLET_SUM, 1 };
	const struct collet_gpu_span span = { sources, results, row->sources, row->results, NULL,
		bench->bytes / collet_dtype_bytes(*row->dtype) };
	return collet_gpu_spans_launch(bench->gpu.set, &reduction, &span, 1, bench->gpu.copy_stream->stream) ==
	       COLLET_OK;
}

/* The best of several, after a warm-up; GB/s read and written. */
static bool measure(struct bench *bench, const struct row *row, double *gbs)
{
	const struct collet_cuda *cuda = &bench->gpu.cuda;
	const cu_stream stream = bench->gpu.copy_stream->stream;
	float ms = 0;
	if (collet_copy_stream_push_context(cuda, bench->gpu.copy_stream) != COLLET_OK)
		return false;
	bool fine = enqueue(bench, row) && cuda->cuEventRecord(bench->marks[0], stream) == CU_OK;
	for (int i = 0; fine && i < REPEATS; i++)
		fine = enqueue(bench, row);
	fine = fine && cuda->cuEventRecord(bench->marks[1], stream) == CU_OK &&
		bench->synchronize(bench->marks[1]) == CU_OK &&
		bench->elapsed(&ms, bench->marks[0], bench->marks[1]) == CU_OK;
	collet_copy_stream_pop_context(cuda);
	const double moved = (double)bench->bytes * (row->sources + row->results) * REPEATS;
	*gbs = ms > 0 ? moved / ((double)ms * 1e6) : 0;
	return fine;
}

int main(int argc, char **argv)
{
	static const collet_dtype f32 = COLLET_F32, bf16 = COLLET_BF16;
	static const struct row rows[] = { { "copy", NULL, 1, 1 }, { "f32, 2 into 1", &f32, 2, 1 },
		{ "bf16, 2 into 1", &bf16, 2, 1 }, { "f32, 2 into 2", &f32, 2, 2 }, { "f32, 4 into 4", &f32, 4, 4 } };
	struct bench bench = { .bytes = argc > 1 ? strtoull(argv[1], NULL, 10) / 64 * 64 : 0 };
	double copy = 0;
	if (bench.bytes == 0) {
		fputs("measure_reduce BYTES: how large each buffer is\n", stderr);
		return 2;
	}
	if (!start(&bench)) {
		fprintf(stderr, "measure_reduce: the GPU cannot be used: %s\n", collet_last_error());
		return 1;
	}
	bool fine = true;
	for (size_t i = 0; fine && i < sizeof(rows) / sizeof(rows[0]); i++) {
		double gbs;
		fine = measure(&bench, &rows[i], &gbs);
		if (i == 0)
			copy = gbs;
		if (fine)
			printf("{\"fold\":\"%s\",\"bytes\":%zu,\"gbs\":%.6g,\"of_copy\":%.6g}\n", rows[i].name,
				bench.bytes, gbs, copy > 0 ? gbs / copy : 0);
	}
	if (!fine)
		fprintf(stderr, "measure_reduce: %s\n", collet_last_error());
	return !end(&bench) || !fine;
}
