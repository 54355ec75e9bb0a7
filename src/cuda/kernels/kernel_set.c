#include "cuda/kernels/kernel_set.h"

#include <stdlib.h>

#include "core/status.h"
#include "cuda/kernels/image.h"

static const char *const names[COLLET_GPU_KERNEL_COUNT] = {
#define NAME(name) "collet_" #name,
	COLLET_GPU_KERNELS(NAME)
#undef NAME
};

void collet_kernel_sets_init(struct collet_kernel_sets *sets, const struct collet_cuda *cuda)
{
	*sets = (struct collet_kernel_sets){ .cuda = cuda };
	pthread_mutex_init(&sets->lock, NULL);
}

static void free_set(struct collet_kernel_set *set)
{
	/* The application may have destroyed the context, and the module with it. Then nothing is left to free. */
	if (set->module && collet_cuda_push_context(set->cuda, set->context) == CU_OK) {
		(void)set->cuda->cuModuleUnload(set->module);
		collet_cuda_pop_context(set->cuda);
	}
	free(set);
}

void collet_kernel_sets_deinit(struct collet_kernel_sets *sets)
{
	if (!sets->cuda)
		return;
	for (struct collet_kernel_set *set = sets->first, *next; set; set = next) {
		next = set->next;
		free_set(set);
	}
	pthread_mutex_destroy(&sets->lock);
	*sets = (struct collet_kernel_sets){ 0 };
}

/* Needs the set's context. */
static cu_result find_functions(struct collet_kernel_set *set)
{
	const struct collet_cuda *cuda = set->cuda;
	cu_device device;
	int processors = 0, blocks = 0;
	cu_result result = cuda->cuCtxGetDevice(&device);
	if (result == CU_OK)
		result = cuda->cuDeviceGetAttribute(&processors, CU_DEVICE_MULTIPROCESSORS, device);
	for (int k = 0; k < COLLET_GPU_KERNEL_COUNT && result == CU_OK; k++) {
		result = cuda->cuModuleGetFunction(&set->functions[k], set->module, names[k]);
		if (result == CU_OK)
			result = cuda->cuOccupancyMaxActiveBlocksPerMultiprocessor(
				&blocks, set->functions[k], COLLET_BLOCK_THREADS, 0);
		if (result == CU_OK && blocks < 1)
			result = CU_LAUNCH_OUT_OF_RESOURCES;
		set->resident_blocks[k] = (uint32_t)blocks * (uint32_t)processors;
	}
	return result;
}

static collet_status load_failed(const struct collet_cuda *cuda, cu_result result)
{
	if (!collet_kernels_built)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"cuda: this collet was built without kernels for GPUs: build it where nvcc is");
	if (result == CU_NO_BINARY_FOR_GPU || result == CU_INVALID_IMAGE || result == CU_INVALID_PTX ||
		result == CU_NO_PTX_COMPILER || result == CU_PTX_TOO_NEW || result == CU_NOT_FOUND)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"cuda: the driver takes none of this collet's kernels for this GPU (%d); a newer driver may, "
			"or a collet that was built with another nvcc", result);
	return collet_cuda_fail(cuda, result, "loading kernels");
}

static collet_status load(const struct collet_cuda *cuda, cu_context context, struct collet_kernel_set **loaded)
{
	struct collet_kernel_set *set = calloc(1, sizeof(*set));
	if (!set)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to load kernels");
	set->cuda = cuda;
	set->context = context;
	cu_result result = collet_cuda_push_context(cuda, context);
	if (result == CU_OK) {
		result = cuda->cuModuleLoadData(&set->module, collet_kernels_image);
		if (result != CU_OK)
			set->module = NULL;
		else
			result = find_functions(set);
		collet_cuda_pop_context(cuda);
	}
	if (result == CU_OK) {
		*loaded = set;
		return COLLET_OK;
	}
	free_set(set);
	return load_failed(cuda, result);
}

collet_status collet_kernel_set_get(
	struct collet_kernel_sets *sets, const struct collet_copy_stream *copy_stream, struct collet_kernel_set **set)
{
	collet_status status = COLLET_OK;
	pthread_mutex_lock(&sets->lock);
	struct collet_kernel_set *found = sets->first;
	while (found && found->context != copy_stream->context)
		found = found->next;
	if (!found) {
		status = load(sets->cuda, copy_stream->context, &found);
		if (status == COLLET_OK) {
			found->next = sets->first;
			sets->first = found;
		}
	}
	pthread_mutex_unlock(&sets->lock);
	*set = status == COLLET_OK ? found : NULL;
	return status;
}

collet_status collet_kernel_launch(const struct collet_kernel_set *set, enum collet_gpu_kernel kernel, uint32_t columns,
	uint32_t rows, const void *argument, cu_stream stream)
{
	void *arguments[] = { (void *)(uintptr_t)argument };
	const cu_result result = set->cuda->cuLaunchKernel(set->functions[kernel], columns, rows, 1,
		COLLET_BLOCK_THREADS, 1, 1, 0, stream, arguments, NULL);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(set->cuda, result, names[kernel]);
}
