#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

static bool start(struct gpu *gpu, struct rank *rank, int device, bool (*begin)(struct program *program, int device))
{
	*gpu = (struct gpu){ .rank = rank, .gates = aligned_alloc(PAGE, PAGE) };
	bool fine = gpu->gates && begin(&gpu->program, device) && streams_find(&gpu->cuda, &gpu->program);
	if (fine)
		memset((void *)gpu->gates, 0, PAGE);
	fine = fine && gpu->cuda.cuMemHostRegister_v2((void *)gpu->gates, PAGE, 0) == CU_OK &&
		gpu->cuda.cuMemHostGetDevicePointer_v2(&gpu->gates_gpu, (void *)gpu->gates, 0) == CU_OK;
	for (int s = 0; s < GPU_STREAMS && fine; s++)
		fine = gpu->cuda.cuStreamCreate(&gpu->stream[s], CU_NON_BLOCKING_STREAM) == CU_OK;
	return rank_check(rank, fine, "the driver does not start");
}

bool gpu_start_on(struct gpu *gpu, struct rank *rank, int device)
{
	return start(gpu, rank, device, program_start);
}

bool gpu_start_beside(struct gpu *gpu, struct rank *rank, int device)
{
	return start(gpu, rank, device, program_start_beside);
}

bool gpu_start(struct gpu *gpu, struct rank *rank)
{
	return gpu_start_on(gpu, rank, 0);
}

bool gpu_start_own(struct gpu *gpu, struct rank *rank)
{
	return gpu_start_on(gpu, rank, (int)rank->rank) && rank_create(rank);
}

void gpu_end(struct gpu *gpu)
{
	bool fine = true;
	if (gpu->rank->comm)
		rank_destroy(gpu->rank);
	for (int s = 0; s < GPU_STREAMS; s++)
		fine = gpu->cuda.cuStreamDestroy_v2(gpu->stream[s]) == CU_OK && fine;
	fine = gpu->cuda.cuMemHostUnregister((void *)gpu->gates) == CU_OK && fine;
	rank_check(gpu->rank, program_end(&gpu->program), "another context is current than before");
	rank_check(gpu->rank, fine, "the driver failed at the end");
	free((void *)gpu->gates);
}

cu_pointer gpu_gate(const struct gpu *gpu, int gate)
{
	return gpu->gates_gpu + (cu_pointer)gate * sizeof(*gpu->gates);
}

bool gpu_hold(struct gpu *gpu, int stream, int gate)
{
	const cu_result result = gpu->cuda.cuStreamWaitValue32_v2(
		gpu->stream[stream], gpu_gate(gpu, gate), 1, CU_WAIT_VALUE_GEQ);
	return rank_check(gpu->rank, result == CU_OK, "holding a stream up");
}

void gpu_open(struct gpu *gpu, int gate)
{
	atomic_store(&gpu->gates[gate], 1);
}

bool gpu_synchronize(struct gpu *gpu, int stream)
{
	const cu_result result = gpu->cuda.cuStreamSynchronize(gpu->stream[stream]);
	return rank_check(gpu->rank, result == CU_OK, "the stream has come to %d", result);
}

bool gpu_synchronize_relaxed(struct gpu *gpu, int stream)
{
	int mode = CU_CAPTURE_MODE_RELAXED;
	(void)gpu->cuda.cuThreadExchangeStreamCaptureMode(&mode);
	const bool fine = gpu_synchronize(gpu, stream);
	(void)gpu->cuda.cuThreadExchangeStreamCaptureMode(&mode);
	return fine;
}

bool gpu_make(struct gpu *gpu, struct buffer *buffer, uint64_t count, uint32_t value)
{
	uint32_t *values = malloc(count * sizeof(*values) + 1);
	for (uint64_t i = 0; i < count; i++)
		values[i] = value;
	const bool fine = buffer_make(buffer, &gpu->program, true, count * sizeof(*values)) &&
		buffer_write(buffer, values);
	free(values);
	return rank_check(gpu->rank, fine, "a buffer on the GPU");
}

bool gpu_holds(struct gpu *gpu, const struct buffer *buffer, uint32_t value, const char *what)
{
	uint32_t *values = malloc(buffer->bytes + 1);
	bool fine = rank_check(gpu->rank, buffer_read(buffer, values), "reading a buffer");
	for (size_t i = 0; i < buffer->bytes / sizeof(*values) && fine; i++)
		fine = rank_check(gpu->rank, values[i] == value, "%s: element %zu is %u, not %u", what, i, values[i],
			value);
	free(values);
	return fine;
}

collet_status gpu_allreduce(struct gpu *gpu, int stream, const struct buffer *buffer)
{
	collet_how how = COLLET_HOW_DEFAULT;
	how.stream = gpu->stream[stream];
	how.timeout_ns = gpu->timeout_ns;
	return collet_allreduce(gpu->rank->comm, buffer->first, buffer->first, buffer->bytes / sizeof(uint32_t),
		COLLET_U32, COLLET_SUM, &how);
}

uint32_t gpu_power(uint32_t factor, uint32_t times, uint32_t value)
{
	while (times--)
		value *= factor;
	return value;
}

bool gpu_begin_capture(struct gpu *gpu, int stream)
{
	/* Other ranks of the process would invalidate a global one. */
	const int mode =
		gpu->rank->options->mode == RANKS_PROCESSES ? CU_CAPTURE_MODE_GLOBAL : CU_CAPTURE_MODE_THREAD_LOCAL;
	const cu_result result = gpu->cuda.cuStreamBeginCapture_v2(gpu->stream[stream], mode);
	return rank_check(gpu->rank, result == CU_OK, "beginning a capture: %d", result);
}

bool gpu_end_capture(struct gpu *gpu, int stream, cu_graph_exec *exec)
{
	cu_graph graph = NULL;
	cu_result result = gpu->cuda.cuStreamEndCapture(gpu->stream[stream], &graph);
	if (result == CU_OK)
		result = gpu->cuda.cuGraphInstantiateWithFlags(exec, graph, 0);
	if (graph)
		(void)gpu->cuda.cuGraphDestroy(graph);
	return rank_check(gpu->rank, result == CU_OK, "ending a capture: %d", result);
}

bool gpu_follow(struct gpu *gpu, int stream, int other)
{
	cu_event event = NULL;
	cu_result result = gpu->cuda.cuEventCreate(&event, CU_UNTIMED_EVENT);
	if (result == CU_OK)
		result = gpu->cuda.cuEventRecord(event, gpu->stream[other]);
	if (result == CU_OK)
		result = gpu->cuda.cuStreamWaitEvent(gpu->stream[stream], event, 0);
	if (event)
		(void)gpu->cuda.cuEventDestroy_v2(event);
	return rank_check(gpu->rank, result == CU_OK, "a stream that follows another: %d", result);
}

uint32_t gpu_launches_ahead(const struct gpu *gpu)
{
	return gpu->rank->options->mode == RANKS_PROCESSES ? 100 : 20;
}

bool gpu_launch(struct gpu *gpu, cu_graph_exec exec, int stream)
{
	const cu_result result = gpu->cuda.cuGraphLaunch(exec, gpu->stream[stream]);
	return rank_check(gpu->rank, result == CU_OK, "launching a graph: %d", result);
}
