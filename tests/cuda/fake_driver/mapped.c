/* Physical memory: allocated, exported as a file descriptor, and mapped to reserved addresses. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRANULARITY = 2 << 20 };
/* Name of the file; the device's number follows. */
static const char NAME[] = "fake-device-memory-";

struct memory {
	unsigned users;      /* handles and mappings; under fake_lock */
	unsigned handles;    /* those that cuMemRelease() was not called for */
	int file, device;
	bool exportable;
	bool for_adapters;
	size_t bytes;
	bool imported;
};

struct reservation {
	struct reservation *next;
	cu_pointer first;
	size_t bytes;
	uint64_t id;
};

static struct reservation *reservations; /* under fake_lock */

static struct memory *memory_of(cu_mem_handle memory)
{
	return (struct memory *)(uintptr_t)memory;
}

/* Takes ownership of the file. */
static cu_result make(cu_mem_handle *made, int file, size_t bytes, int device, bool exportable)
{
	struct memory *memory = malloc(sizeof(*memory));
	if (!memory) {
		close(file);
		return CU_OUT_OF_MEMORY;
	}
	*memory = (struct memory){
		.users = 1, .handles = 1, .file = file, .device = device, .exportable = exportable, .bytes = bytes };
	*made = (uintptr_t)memory;
	fake_alive(1);
	return CU_OK;
}

/* Needs fake_lock. */
static void put(struct memory *memory)
{
	if (--memory->users)
		return;
	close(memory->file);
	free(memory);
}

int fake_file_for_adapters(const struct fake_block *block)
{
	return memory_of(block->memory)->for_adapters ? memory_of(block->memory)->file : -1;
}

static bool is_proper(const cu_memory_properties *properties)
{
	return properties->type == CU_ALLOCATION_PINNED && properties->location.type == CU_LOCATION_DEVICE &&
	       properties->location.id >= 0 && properties->location.id < fake_device_count();
}

/* ---- Driver functions ---- */

FAKE_API cu_result cuMemGetAllocationGranularity(size_t *bytes, const cu_memory_properties *properties, int option)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	*bytes = GRANULARITY;
	return option == CU_GRANULARITY_MINIMUM && is_proper(properties) ? CU_OK : CU_INVALID_VALUE;
}

FAKE_API cu_result cuMemCreate(
	cu_mem_handle *memory, size_t bytes, const cu_memory_properties *properties, uint64_t flags)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (flags || !bytes || bytes % GRANULARITY || !is_proper(properties))
		return CU_INVALID_VALUE;
	if (properties->flags.rdma_capable && !fake_has("dma-bufs"))
		return CU_NOT_SUPPORTED;
	char name[64];
	snprintf(name, sizeof(name), "%s%d", NAME, properties->location.id);
	const int file = memfd_create(name, MFD_CLOEXEC);
	if (file >= 0 && ftruncate(file, (off_t)bytes) == 0) {
		const cu_result made = make(memory, file, bytes, properties->location.id,
			properties->handle_types & CU_HANDLE_FILE_DESCRIPTOR);
		if (made == CU_OK)
			memory_of(*memory)->for_adapters = properties->flags.rdma_capable;
		return made;
	}
	if (file >= 0)
		close(file);
	return CU_OUT_OF_MEMORY;
}

FAKE_API cu_result cuMemRelease(cu_mem_handle memory)
{
	cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (!memory)
		return CU_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	if (!memory_of(memory)->handles) {
		result = CU_INVALID_VALUE;
	} else {
		memory_of(memory)->handles--;
		fake_alive(-1);
		put(memory_of(memory));
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

FAKE_API cu_result cuMemRetainAllocationHandle(cu_mem_handle *memory, void *pointer)
{
	cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find((uintptr_t)pointer);
	if (block && block->kind == FAKE_MAPPED) {
		*memory = block->memory;
		memory_of(*memory)->users++;
		memory_of(*memory)->handles++;
		fake_alive(1);
	} else {
		result = CU_INVALID_VALUE;
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

FAKE_API cu_result cuMemAddressReserve(
	cu_pointer *pointer, size_t bytes, size_t alignment, cu_pointer wanted, uint64_t flags)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (flags || wanted || alignment > GRANULARITY || !bytes || bytes % GRANULARITY)
		return CU_INVALID_VALUE;
	struct reservation *reservation = malloc(sizeof(*reservation));
	const cu_pointer vacant = fake_occupy(bytes);
	void *first = vacant ? (void *)(uintptr_t)vacant
			     : mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!reservation || first == MAP_FAILED) {
		free(reservation);
		return CU_OUT_OF_MEMORY;
	}
	*pointer = (uintptr_t)first;
	pthread_mutex_lock(&fake_lock);
	*reservation = (struct reservation){ reservations, (uintptr_t)first, bytes, fake_new_id() };
	reservations = reservation;
	fake_alive(1);
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

/* Returns the link to the reservation of these addresses. Needs fake_lock. */
static struct reservation **find_reservation(cu_pointer pointer, size_t bytes)
{
	struct reservation **at = &reservations;
	while (*at && !(pointer >= (*at)->first && pointer + bytes <= (*at)->first + (*at)->bytes))
		at = &(*at)->next;
	return at;
}

bool fake_is_reserved(cu_pointer pointer)
{
	return *find_reservation(pointer, 1);
}

FAKE_API cu_result cuMemAddressFree(cu_pointer pointer, size_t bytes)
{
	cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	pthread_mutex_lock(&fake_lock);
	struct reservation **at = find_reservation(pointer, bytes), *found = *at;
	if (!found || found->first != pointer || found->bytes != bytes || fake_find(pointer)) {
		result = CU_INVALID_VALUE;
	} else {
		*at = found->next;
		fake_alive(-1);
		free(found);
	}
	pthread_mutex_unlock(&fake_lock);
	if (result == CU_OK)
		fake_vacate(pointer, bytes);
	return result;
}

FAKE_API cu_result cuMemMap(cu_pointer pointer, size_t bytes, size_t offset, cu_mem_handle memory, uint64_t flags)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (flags || offset || !memory || !bytes || bytes % GRANULARITY || bytes > memory_of(memory)->bytes)
		return CU_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	const struct reservation *reservation = fake_find(pointer) ? NULL : *find_reservation(pointer, bytes);
	if (reservation)
		memory_of(memory)->users++;
	const struct reservation found = reservation ? *reservation : (struct reservation){ 0 };
	pthread_mutex_unlock(&fake_lock);
	if (!reservation)
		return CU_INVALID_VALUE;
	const struct fake_block like = { .kind = FAKE_MAPPED, .bytes = bytes, .device = memory_of(memory)->device,
		.file = -1, .memory = memory, .range = found.first, .range_bytes = found.bytes, .id = found.id };
	const struct fake_block *block = fake_add(&like, memory_of(memory)->file, 0, pointer);
	if (block && memory_of(memory)->imported)
		fake_corrupt(block, memory_of(memory)->file);
	if (block)
		return CU_OK;
	pthread_mutex_lock(&fake_lock);
	put(memory_of(memory));
	pthread_mutex_unlock(&fake_lock);
	return CU_OUT_OF_MEMORY;
}

/* The addresses stay reserved. */
FAKE_API cu_result cuMemUnmap(cu_pointer pointer, size_t bytes)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	fake_land();
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *known = fake_find(pointer);
	const bool whole = known && known->bytes == bytes;
	pthread_mutex_unlock(&fake_lock);
	struct fake_block *block = whole ? fake_take(pointer, FAKE_MAPPED) : NULL;
	if (!block)
		return CU_INVALID_VALUE;
	munmap(block->reach, block->mapped);
	if (mmap((void *)(uintptr_t)pointer, bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
	pthread_mutex_lock(&fake_lock);
	put(memory_of(block->memory));
	pthread_mutex_unlock(&fake_lock);
	free(block);
	return CU_OK;
}

FAKE_API cu_result cuMemSetAccess(cu_pointer pointer, size_t bytes, const cu_access *access, size_t count)
{
	cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	pthread_mutex_lock(&fake_lock);
	struct fake_block *block = fake_find(pointer);
	if (!block || block->kind != FAKE_MAPPED || block->bytes != bytes || !count)
		result = CU_INVALID_VALUE;
	for (size_t i = 0; i < count && result == CU_OK; i++)
		if (access[i].location.type != CU_LOCATION_DEVICE || access[i].location.id < 0 ||
			access[i].location.id >= fake_device_count() || access[i].flags != CU_ACCESS_READ_WRITE)
			result = CU_INVALID_VALUE;
		else if (!fake_may_reach(access[i].location.id, block->device))
			result = CU_NOT_SUPPORTED;
	for (size_t i = 0; i < count && result == CU_OK; i++)
		block->access |= 1u << access[i].location.id;
	pthread_mutex_unlock(&fake_lock);
	return result;
}

FAKE_API cu_result cuMemExportToShareableHandle(void *handle, cu_mem_handle memory, int type, uint64_t flags)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (flags || type != CU_HANDLE_FILE_DESCRIPTOR || !memory || !memory_of(memory)->exportable)
		return CU_INVALID_VALUE;
	const int file = dup(memory_of(memory)->file);
	*(int *)handle = file;
	return file >= 0 ? CU_OK : CU_OUT_OF_MEMORY;
}

/* Returns the GPU that the memory is on; -1 if it is no GPU memory. */
static int device_of(int file)
{
	char path[64], name[128];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	const ssize_t length = readlink(path, name, sizeof(name) - 1);
	if (length < 0)
		return -1;
	name[length] = 0;
	const char *at = strstr(name, NAME);
	return at ? atoi(at + strlen(NAME)) : -1;
}

/* The descriptor stays the caller's. */
FAKE_API cu_result cuMemImportFromShareableHandle(cu_mem_handle *memory, void *handle, int type)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	struct stat info;
	const int file = dup((int)(intptr_t)handle);
	const int device = device_of(file);
	if (type != CU_HANDLE_FILE_DESCRIPTOR || device < 0 || fstat(file, &info) != 0 ||
		info.st_size % GRANULARITY) {
		if (file >= 0)
			close(file);
		return CU_INVALID_VALUE;
	}
	const cu_result made = make(memory, file, (size_t)info.st_size, device, true);
	if (made == CU_OK)
		memory_of(*memory)->imported = true;
	return made;
}
