#include "program.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static bool find(const struct program *program, void *slot, const char *name)
{
	void *address = dlsym(program->driver, name);
	memcpy(slot, &address, sizeof(address));
	return address != NULL;
}

static bool find_all(struct program *program, int device)
{
	*program = (struct program){ .driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), .device = device };
#define FIND(name) find(program, &program->name, #name)
	return program->driver && FIND(cuInit) && FIND(cuDevicePrimaryCtxRetain) &&
	       FIND(cuDevicePrimaryCtxRelease_v2) && FIND(cuCtxCreate_v2) && FIND(cuCtxDestroy_v2) &&
	       FIND(cuCtxPushCurrent_v2) && FIND(cuCtxPopCurrent_v2) &&
	       FIND(cuCtxGetCurrent) && FIND(cuMemAlloc_v2) && FIND(cuMemFree_v2) && FIND(cuMemHostAlloc) &&
	       FIND(cuMemFreeHost) && FIND(cuMemcpyHtoD_v2) && FIND(cuMemcpyDtoH_v2) && FIND(cuStreamSynchronize) &&
	       program->cuInit(0) == CU_OK;
#undef FIND
}

bool program_start(struct program *program, int device)
{
	return find_all(program, device) &&
		program->cuDevicePrimaryCtxRetain(&program->context, device) == CU_OK &&
		program->cuCtxPushCurrent_v2(program->context) == CU_OK;
}

bool program_start_beside(struct program *program, int device)
{
	if (!find_all(program, device))
		return false;
	program->beside = true;
	return program->cuCtxCreate_v2(&program->context, 0, device) == CU_OK;
}

bool program_end(struct program *program)
{
	cu_context current = NULL;
	const bool kept = program->cuCtxGetCurrent(&current) == CU_OK && current == program->context;
	const bool ended = program->cuCtxPopCurrent_v2(&current) == CU_OK &&
		(program->beside ? program->cuCtxDestroy_v2(program->context) :
				   program->cuDevicePrimaryCtxRelease_v2(program->device)) == CU_OK;
	dlclose(program->driver);
	return kept && ended;
}

cu_result program_put(const struct program *program, cu_pointer to, const void *from, size_t bytes)
{
	const cu_result result = program->cuMemcpyHtoD_v2(to, from, bytes);
	return result == CU_OK ? program->cuStreamSynchronize((cu_stream)CU_LEGACY_STREAM) : result;
}

bool buffer_make(struct buffer *buffer, const struct program *program, bool gpu, size_t bytes)
{
	*buffer = (struct buffer){ .program = program, .gpu = gpu, .bytes = bytes };
	if (!gpu) {
		buffer->first = malloc(bytes + 1);
		return buffer->first != NULL;
	}
	cu_pointer pointer = 0;
	const bool made = program->cuMemAlloc_v2(&pointer, bytes + 1) == CU_OK;
	buffer->first = (char *)(uintptr_t)pointer;
	return made;
}

bool buffer_make_pinned(struct buffer *buffer, const struct program *program, size_t bytes)
{
	void *memory = NULL;
	*buffer = (struct buffer){ .program = program, .pinned = true, .bytes = bytes };
	const bool made = program->cuMemHostAlloc(&memory, bytes + 1, 0) == CU_OK;
	buffer->first = memory;
	return made;
}

bool buffer_write(const struct buffer *buffer, const void *from)
{
	if (!buffer->gpu)
		memcpy(buffer->first, from, buffer->bytes);
	return !buffer->gpu || !buffer->bytes ||
		program_put(buffer->program, (uintptr_t)buffer->first, from, buffer->bytes) == CU_OK;
}

bool buffer_read(const struct buffer *buffer, void *to)
{
	if (!buffer->gpu)
		memcpy(to, buffer->first, buffer->bytes);
	return !buffer->gpu || !buffer->bytes ||
		buffer->program->cuMemcpyDtoH_v2(to, (uintptr_t)buffer->first, buffer->bytes) == CU_OK;
}

void buffer_free(struct buffer *buffer)
{
	if (buffer->gpu && buffer->first)
		(void)buffer->program->cuMemFree_v2((uintptr_t)buffer->first);
	else if (buffer->pinned && buffer->first)
		(void)buffer->program->cuMemFreeHost(buffer->first);
	else if (!buffer->gpu)
		free(buffer->first);
	*buffer = (struct buffer){ 0 };
}
