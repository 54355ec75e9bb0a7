/* Handles of allocations, which other processes open through /proc. A handle names the exporter's file descriptor,
 * valid until the memory is freed. */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The contents of a cu_ipc_handle. */
struct contents {
	uint64_t magic, inode, bytes;
	int32_t process, file, device, reserved0;
};

static const uint64_t MAGIC = 0x66616b652d697063;

/* Here a dma-buf is the file of an allocation, so its range must begin where the allocation does. */
FAKE_API cu_result cuMemGetHandleForAddressRange(
	void *handle, cu_pointer pointer, size_t bytes, int type, uint64_t flags)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (pointer % page || bytes % page || !bytes || type != CU_RANGE_DMABUF || flags)
		return CU_INVALID_VALUE;
	if (!fake_has("dma-bufs"))
		return CU_NOT_SUPPORTED;
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	const int exported = !block || (block->kind != FAKE_DEVICE && block->kind != FAKE_MAPPED) ? -1 :
		block->kind == FAKE_MAPPED ? fake_file_for_adapters(block) : block->file;
	if (exported < 0 || bytes > block->mapped - (pointer - block->first)) {
		result = CU_INVALID_VALUE;
	} else if (pointer != block->first) {
		result = CU_NOT_SUPPORTED;
	} else {
		*(int *)handle = fcntl(exported, F_DUPFD_CLOEXEC, 0);
		result = *(int *)handle < 0 ? CU_OUT_OF_MEMORY : CU_OK;
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

FAKE_API cu_result cuIpcGetMemHandle(cu_ipc_handle *handle, cu_pointer pointer)
{
	cu_context context;
	cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	struct contents contents = { .magic = MAGIC, .process = getpid() };
	struct stat info;
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	if (!block || block->kind != FAKE_DEVICE || fstat(block->file, &info) != 0) {
		result = CU_INVALID_VALUE;
	} else {
		contents.inode = info.st_ino;
		contents.bytes = block->bytes;
		contents.file = block->file;
		contents.device = block->device;
	}
	pthread_mutex_unlock(&fake_lock);
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &contents, sizeof(contents));
	return result;
}

/* Returns -1 if the memory was freed, or its process has ended. */
static int open_exported(const struct contents *contents)
{
	char path[64];
	struct stat info;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", contents->process, contents->file);
	const int file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0 || (fstat(file, &info) == 0 && info.st_ino == contents->inode))
		return file;
	close(file);
	return -1;
}

static uint64_t exporter_of(const struct contents *contents)
{
	return (uint64_t)contents->process << 32 ^ contents->inode;
}

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static uint64_t opened[256]; /* by exporter_of(); 0: free; under the lock `opening` */

static uint64_t *find_opened(uint64_t exporter)
{
	for (size_t i = 0; i < sizeof(opened) / sizeof(opened[0]); i++)
		if (opened[i] == exporter)
			return &opened[i];
	return NULL;
}

void fake_forget_opened(uint64_t exporter)
{
	pthread_mutex_lock(&opening);
	*find_opened(exporter) = 0;
	pthread_mutex_unlock(&opening);
}

/* Replaces the mapping by a private copy, of all or of some pages. */
void fake_corrupt(const struct fake_block *block, int file)
{
	const char *which = getenv("FAKE_CUDA_ASTRAY");
	size_t first = 0, bytes = block->mapped;
	if (!which || (sscanf(which, "writes:%zu:%zu", &first, &bytes) == 2 && first + bytes > block->mapped))
		return;
	if (mmap(block->reach + first, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, (off_t)first) ==
		MAP_FAILED)
		abort();
	if (strcmp(which, "reads") == 0)
		block->reach[0] ^= 4;
}

/* Needs the lock `opening`. */
static cu_result open_handle(const struct contents *contents, cu_context context, cu_pointer *pointer)
{
	const uint64_t exporter = exporter_of(contents);
	uint64_t *free_entry = find_opened(0);
	if (find_opened(exporter))
		return CU_ALREADY_MAPPED;
	const int file = open_exported(contents);
	if (file < 0 || !free_entry) {
		if (file >= 0)
			close(file);
		return CU_MAP_FAILED;
	}
	const struct fake_block like = { .kind = FAKE_OPENED, .bytes = contents->bytes, .context = context,
		.device = contents->device, .file = -1, .exporter = exporter };
	const struct fake_block *block = fake_add(&like, file, 0, 0);
	if (block)
		fake_corrupt(block, file);
	close(file);
	if (!block)
		return CU_MAP_FAILED;
	*free_entry = exporter;
	*pointer = block->first;
	return CU_OK;
}

FAKE_API cu_result cuIpcOpenMemHandle_v2(cu_pointer *pointer, cu_ipc_handle handle, unsigned int flags)
{
	cu_context context;
	cu_result result = fake_enter_in_context("cuIpcOpenMemHandle", &context);
	if (result != CU_OK)
		return result;
	struct contents contents;
	memcpy(&contents, &handle, sizeof(contents));
	if (flags != CU_IPC_LAZY_PEER_ACCESS)
		return CU_INVALID_VALUE;
	if (contents.magic != MAGIC)
		return CU_INVALID_HANDLE;
	if (contents.process == getpid())
		return CU_INVALID_CONTEXT;
	if (!fake_may_reach(fake_context_device(context), contents.device))
		return CU_PEER_ACCESS_UNSUPPORTED;
	pthread_mutex_lock(&opening);
	result = open_handle(&contents, context, pointer);
	pthread_mutex_unlock(&opening);
	return result;
}

FAKE_API cu_result cuIpcCloseMemHandle(cu_pointer pointer)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	struct fake_block *block = fake_take(pointer, FAKE_OPENED);
	if (!block)
		return CU_INVALID_VALUE;
	fake_unmap(block);
	fake_forget_opened(block->exporter);
	free(block);
	return CU_OK;
}
