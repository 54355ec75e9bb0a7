/* Modules and launches. A kernel's blocks are threads. A GPU runs only a limited number of blocks at the same time, of
 * all kernels; others begin as those end. So a block that waits for one that has not begun waits for ever, as on a
 * GPU. */
#include "block.h"
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/device_code.h"
#include "cuda/kernels/image.h"
#include "host_form.h"
#include "schedule.h"

enum { RESIDENT_MOST = FAKE_MULTIPROCESSORS_MOST * FAKE_BLOCKS_EACH, SHARED_BYTES = 48 << 10 };

struct CUfunc_st {
	struct CUfunc_st *next;
	cu_context context;
	const struct host_kernel *kernel;
};

struct CUmod_st {
	struct fake_owned owned;
	cu_context context;
	struct CUfunc_st *functions;
};

struct launch {
	struct fake_job job;
	const struct host_kernel *kernel;
	cu_context context;
	int device;
	uint32_t columns, rows, threads;
	_Alignas(16) char argument[];
};

/* A running launch. */
struct run {
	const struct launch *launch;
	struct schedule *schedule;
	uint32_t resident;           /* blocks that run at the same time */
	uint64_t seed;               /* of the order of a block's threads */
	pthread_mutex_t lock;
	uint64_t begun;              /* blocks that have begun */
	cu_result result;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	unsigned busy[FAKE_DEVICES];
	uint64_t begun[FAKE_DEVICES], ended[FAKE_DEVICES];   /* launches */
	bool held;                   /* no block may begin */
} places = { .lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER };

static void *run_blocks(void *argument)
{
	struct run *run = argument;
	const struct launch *launch = run->launch;
	const uint64_t blocks = (uint64_t)launch->columns * launch->rows;
	pthread_mutex_lock(&run->lock);
	while (run->begun < blocks && run->result == CU_OK) {
		const uint64_t number = run->begun++;
		pthread_mutex_unlock(&run->lock);
		pthread_mutex_lock(&places.lock);
		while (places.held || places.busy[launch->device] >= run->resident)
			pthread_cond_wait(&places.freed, &places.lock);
		places.busy[launch->device]++;
		pthread_mutex_unlock(&places.lock);
		const struct block_run block = { .kernel = launch->kernel, .argument = launch->argument,
			.context = launch->context, .columns = launch->columns, .number = (uint32_t)number,
			.threads = launch->threads, .seed = run->seed, .schedule = run->schedule };
		const cu_result result = block_run(&block);
		pthread_mutex_lock(&places.lock);
		places.busy[launch->device]--;
		pthread_cond_broadcast(&places.freed);
		pthread_mutex_unlock(&places.lock);
		pthread_mutex_lock(&run->lock);
		if (result != CU_OK)
			run->result = result;
	}
	pthread_mutex_unlock(&run->lock);
	return NULL;
}

static uint64_t count(uint64_t *launches)
{
	pthread_mutex_lock(&places.lock);
	const uint64_t number = ++*launches;
	pthread_cond_broadcast(&places.freed);
	pthread_mutex_unlock(&places.lock);
	return number;
}

void fake_wait_for_kernels(int device)
{
	pthread_mutex_lock(&places.lock);
	const uint64_t begun = places.begun[device];
	while (places.ended[device] < begun)
		pthread_cond_wait(&places.freed, &places.lock);
	pthread_mutex_unlock(&places.lock);
}

/* Uses this thread, and as many more as blocks can run at once. */
static cu_result run_launch(struct fake_job *job)
{
	struct run run = { .launch = (const struct launch *)job, .lock = PTHREAD_MUTEX_INITIALIZER,
		.resident = fake_multiprocessors() * FAKE_BLOCKS_EACH };
	const uint64_t blocks = (uint64_t)run.launch->columns * run.launch->rows;
	pthread_t threads[RESIDENT_MOST - 1];
	uint32_t started = 0;
	run.seed = count(&places.begun[run.launch->device]);
	if (blocks <= run.resident)
		run.schedule = schedule_create((uint32_t)blocks);
	if (run.schedule)
		run.seed = schedule_seed();
	while (started < run.resident - 1 && started + 1 < blocks) {
		if (pthread_create(&threads[started], NULL, run_blocks, &run) != 0)
			abort(); /* with fewer, blocks that wait for each other would wait for ever */
		started++;
	}
	run_blocks(&run);
	while (started)
		pthread_join(threads[--started], NULL);
	schedule_destroy(run.schedule);
	pthread_mutex_destroy(&run.lock);
	count(&places.ended[run.launch->device]);
	return run.result;
}

FAKE_API void fakeHold(bool on)
{
	pthread_mutex_lock(&places.lock);
	places.held = on;
	pthread_cond_broadcast(&places.freed);
	pthread_mutex_unlock(&places.lock);
}

static void unload(struct fake_owned *owned)
{
	struct CUmod_st *module = (struct CUmod_st *)(void *)owned;
	for (struct CUfunc_st *function = module->functions, *next; function; function = next) {
		next = function->next;
		free(function);
	}
	free(module);
}

/* ---- Driver functions ---- */

/* True for a fat binary, by its first word, and for the image of a build without nvcc. */
static bool is_image(const void *image)
{
	static const uint32_t fat_binary = 0xba55ed50;
	return memcmp(image, &fat_binary, sizeof(fat_binary)) == 0 ||
		memcmp(image, COLLET_KERNELS_MISSING, sizeof(COLLET_KERNELS_MISSING)) == 0;
}

FAKE_API cu_result cuModuleLoadData(cu_module *loaded, const void *image)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	const cu_result unsafe = fake_unsafe();
	if (unsafe != CU_OK)
		return unsafe;
	if (!image || !is_image(image))
		return CU_INVALID_IMAGE;
	struct CUmod_st *module = calloc(1, sizeof(*module));
	if (!module)
		return CU_OUT_OF_MEMORY;
	module->context = context;
	fake_own(&module->owned, context, unload);
	*loaded = module;
	return CU_OK;
}

FAKE_API cu_result cuModuleUnload(cu_module module)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!module || module->context != context)
		return CU_INVALID_HANDLE;
	fake_disown(&module->owned);
	unload(&module->owned);
	return CU_OK;
}

FAKE_API cu_result cuModuleGetFunction(cu_function *found, cu_module module, const char *name)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!module)
		return CU_INVALID_HANDLE;
	const struct host_kernel *kernel = host_kernel_find(name);
	if (!kernel)
		return CU_NOT_FOUND;
	struct CUfunc_st *function = malloc(sizeof(*function));
	if (!function)
		return CU_OUT_OF_MEMORY;
	*function = (struct CUfunc_st){ .context = module->context, .kernel = kernel };
	pthread_mutex_lock(&fake_lock);
	function->next = module->functions;
	module->functions = function;
	pthread_mutex_unlock(&fake_lock);
	*found = function;
	return CU_OK;
}

FAKE_API cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *blocks, cu_function function, int threads, size_t shared_bytes)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!function || threads < 1)
		return CU_INVALID_VALUE;
	*blocks = threads > COLLET_BLOCK_THREADS || shared_bytes > SHARED_BYTES ? 0 : FAKE_BLOCKS_EACH;
	return CU_OK;
}

FAKE_API cu_result cuLaunchKernel(cu_function function, unsigned int columns, unsigned int rows, unsigned int layers,
	unsigned int threads, unsigned int threads_y, unsigned int threads_z, unsigned int shared_bytes,
	cu_stream stream, void **arguments, void **extra)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!function || !stream || function->context != context || fake_stream_context(stream) != context)
		return CU_INVALID_HANDLE;
	/* The host form supports only blocks of one row of threads. */
	if (!columns || columns > INT32_MAX || !rows || rows > 65535 || layers != 1 || !threads ||
		threads > COLLET_BLOCK_THREADS || threads_y != 1 || threads_z != 1 || shared_bytes > SHARED_BYTES ||
		!arguments || !arguments[0] || extra)
		return CU_INVALID_VALUE;
	const size_t bytes = sizeof(struct launch) + function->kernel->argument_bytes;
	struct launch *launch = calloc(1, bytes);
	if (!launch)
		return CU_OUT_OF_MEMORY;
	launch->job.run = run_launch;
	launch->job.bytes = bytes;
	launch->kernel = function->kernel;
	launch->context = context;
	launch->device = fake_context_device(context);
	launch->columns = columns;
	launch->rows = rows;
	launch->threads = block_threads(threads);
	memcpy(launch->argument, arguments[0], function->kernel->argument_bytes);
	return fake_enqueue(stream, &launch->job);
}
