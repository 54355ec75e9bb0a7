/* Opens libcuda.so.1 and translates its errors. */
#include "cuda/driver/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "core/config.h"
#include "core/status.h"

static const char library[] = "libcuda.so.1";

/* dlsym() finds this symbol. All others are looked up through it, by interface version. */
typedef cu_result look_up_function(const char *name, void **function, int version, uint64_t flags, int *found);

static const struct {
	const char *name;
	size_t offset;
} slots[] = {
#define SLOT(name, arguments) { #name, offsetof(struct collet_cuda, name) },
	COLLET_CUDA_FUNCTIONS(SLOT)
#undef SLOT
};

/* Copies a data pointer into a function pointer: C has no cast between them, but POSIX gives them one
 * representation. */
static void take_address(void *slot, const void *address)
{
	memcpy(slot, &address, sizeof(address));
}

/* Returns the first function that the driver lacks; NULL if all were found. */
static const char *find_functions(struct collet_cuda *cuda, void *module)
{
	look_up_function *look_up;
	take_address(&look_up, dlsym(module, "cuGetProcAddress_v2"));
	if (!look_up)
		return "cuGetProcAddress_v2";
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		void *function = NULL;
		int found;
		if (look_up(slots[i].name, &function, COLLET_CUDA_MIN_VERSION, 0, &found) != CU_OK || !function)
			return slots[i].name;
		take_address((char *)cuda + slots[i].offset, function);
	}
	return NULL;
}

static void close_library(struct collet_cuda *cuda, void *module)
{
	char reason[sizeof(cuda->unavailable_reason)];
	memcpy(reason, cuda->unavailable_reason, sizeof(reason));
	memset(cuda, 0, sizeof(*cuda));
	memcpy(cuda->unavailable_reason, reason, sizeof(reason));
	if (module)
		dlclose(module);
}

static void open_library(struct collet_cuda *cuda)
{
	(void)dlerror();
	void *module = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!module) {
		const char *why = dlerror();
		snprintf(cuda->unavailable_reason, sizeof(cuda->unavailable_reason), "there is no CUDA driver: %s",
			why ? why : library);
		return;
	}
	const char *missing = find_functions(cuda, module);
	if (missing)
		snprintf(cuda->unavailable_reason, sizeof(cuda->unavailable_reason),
			"the CUDA driver is too old: it has no %s; collet needs CUDA %d.%d or newer", missing,
			COLLET_CUDA_MIN_VERSION / 1000, COLLET_CUDA_MIN_VERSION % 1000 / 10);
	else if (cuda->cuDriverGetVersion(&cuda->version) != CU_OK || cuda->version < COLLET_CUDA_MIN_VERSION)
		snprintf(cuda->unavailable_reason, sizeof(cuda->unavailable_reason),
			"the CUDA driver is too old: it is for CUDA %d.%d, collet needs %d.%d or newer",
			cuda->version / 1000, cuda->version % 1000 / 10, COLLET_CUDA_MIN_VERSION / 1000,
			COLLET_CUDA_MIN_VERSION % 1000 / 10);
	if (cuda->unavailable_reason[0])
		close_library(cuda, module);
	else
		cuda->module = module;
}

collet_status collet_cuda_open(struct collet_cuda *cuda, const struct collet_log *log)
{
	memset(cuda, 0, sizeof(*cuda));
	bool wanted = true;
	const collet_status status = collet_env_bool("COLLET_CUDA", &wanted);
	if (status != COLLET_OK)
		return status;
	if (wanted)
		open_library(cuda);
	else
		snprintf(cuda->unavailable_reason, sizeof(cuda->unavailable_reason),
			"COLLET_CUDA says that the CUDA driver is not to be used");
	if (cuda->module)
		collet_log(log, COLLET_LOG_INFO, "cuda: driver for CUDA %d.%d", cuda->version / 1000,
			cuda->version % 1000 / 10);
	else
		collet_log(log, COLLET_LOG_DEBUG, "cuda: %s", cuda->unavailable_reason);
	return COLLET_OK;
}

void collet_cuda_close(struct collet_cuda *cuda)
{
	if (cuda->module)
		dlclose(cuda->module);
	memset(cuda, 0, sizeof(*cuda));
}

collet_status collet_cuda_fail(const struct collet_cuda *cuda, cu_result result, const char *what)
{
	const char *name = NULL, *error_text = NULL;
	if (cuda->cuGetErrorName(result, &name) != CU_OK || !name)
		name = "unnamed error";
	if (cuda->cuGetErrorString(result, &error_text) != CU_OK || !error_text)
		error_text = "no description";
	return collet_fail(result == CU_OUT_OF_MEMORY ? COLLET_ERR_MEMORY : COLLET_ERR_SYSTEM, "cuda: %s: %s (%d: %s)",
		what, name, result, error_text);
}

collet_status collet_cuda_fail_invalidated(void)
{
	return collet_fail(COLLET_ERR_ARGUMENT,
		"how.stream: something has invalidated the stream's capture: end it, and capture again");
}

cu_result collet_cuda_create_stream(const struct collet_cuda *cuda, cu_stream *stream)
{
	int least = 0, greatest = 0;
	const cu_result result = cuda->cuCtxGetStreamPriorityRange(&least, &greatest);
	return result == CU_OK ? cuda->cuStreamCreateWithPriority(stream, CU_NON_BLOCKING_STREAM, greatest) : result;
}

int collet_cuda_relax_capture(const struct collet_cuda *cuda)
{
	int mode = CU_CAPTURE_MODE_RELAXED;
	(void)cuda->cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

void collet_cuda_restore_capture(const struct collet_cuda *cuda, int mode)
{
	(void)cuda->cuThreadExchangeStreamCaptureMode(&mode);
}

/* The capture mode before the outermost push; nested pushes do not change it. */
static _Thread_local struct {
	unsigned depth;
	int mode;
} context_nesting;

cu_result collet_cuda_push_context(const struct collet_cuda *cuda, cu_context context)
{
	const cu_result result = cuda->cuCtxPushCurrent(context);
	if (result == CU_OK && !context_nesting.depth++)
		context_nesting.mode = collet_cuda_relax_capture(cuda);
	return result;
}

void collet_cuda_pop_context(const struct collet_cuda *cuda)
{
	if (!--context_nesting.depth)
		collet_cuda_restore_capture(cuda, context_nesting.mode);
	(void)cuda->cuCtxPopCurrent(NULL);
}

bool collet_cuda_context_is_destroyed(cu_result result)
{
	return result == CU_INVALID_CONTEXT || result == CU_CONTEXT_IS_DESTROYED || result == CU_DEINITIALIZED;
}

bool collet_cuda_unregister_host(const struct collet_cuda *cuda, cu_context context, void *memory)
{
	cu_result result = collet_cuda_push_context(cuda, context);
	if (result != CU_OK)
		return collet_cuda_context_is_destroyed(result);
	result = cuda->cuMemHostUnregister(memory);
	collet_cuda_pop_context(cuda);
	return result == CU_OK || result == CU_HOST_MEMORY_NOT_REGISTERED;
}
