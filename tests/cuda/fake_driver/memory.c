/* Device memory: pages with two mappings, the one that is handed out without any rights. */
#include "fake.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum kind { DEVICE, PINNED };

struct block {
	struct block *next;
	enum kind kind;
	cu_pointer first;
	size_t bytes, mapped;
	char *reach;         /* DEVICE: the fake's own mapping */
	cu_context context;
};

static struct block *blocks;

/* Under fake_lock. */
static struct block *find(cu_pointer pointer)
{
	for (struct block *block = blocks; block; block = block->next)
		if (pointer >= block->first && pointer < block->first + block->bytes)
			return block;
	return NULL;
}

static void add(struct block *block)
{
	pthread_mutex_lock(&fake_lock);
	block->next = blocks;
	blocks = block;
	pthread_mutex_unlock(&fake_lock);
}

/* The block that starts at first, out of the list. */
static struct block *take(cu_pointer first, enum kind kind)
{
	struct block *found = NULL;
	pthread_mutex_lock(&fake_lock);
	for (struct block **at = &blocks; *at && !found; at = &(*at)->next) {
		if ((*at)->first == first && (*at)->kind == kind) {
			found = *at;
			*at = found->next;
			break;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return found;
}

char *fake_reach(cu_pointer pointer, size_t bytes)
{
	char *reached = (char *)(uintptr_t)pointer;
	pthread_mutex_lock(&fake_lock);
	const struct block *block = find(pointer);
	if (block && bytes > block->first + block->bytes - pointer)
		reached = NULL;
	else if (block && block->kind == DEVICE)
		reached = block->reach + (pointer - block->first);
	pthread_mutex_unlock(&fake_lock);
	return reached;
}

/* ---- The driver's functions ---- */

FAKE_API cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t bytes)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuMemAlloc", &context);
	if (result != CU_OK)
		return result;
	if (!bytes)
		return CU_INVALID_VALUE;
	struct block *block = calloc(1, sizeof(*block));
	const int file = memfd_create("fake-device-memory", MFD_CLOEXEC);
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page;
	void *shown = MAP_FAILED, *reach = MAP_FAILED;
	if (block && file >= 0 && ftruncate(file, (off_t)mapped) == 0) {
		shown = mmap(NULL, mapped, PROT_NONE, MAP_SHARED, file, 0);
		reach = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	}
	if (file >= 0)
		close(file);
	if (shown == MAP_FAILED || reach == MAP_FAILED) {
		if (shown != MAP_FAILED)
			munmap(shown, mapped);
		free(block);
		return CU_OUT_OF_MEMORY;
	}
	*block = (struct block){ .kind = DEVICE, .first = (uintptr_t)shown, .bytes = bytes, .mapped = mapped,
		.reach = reach, .context = context };
	add(block);
	*pointer = block->first;
	return CU_OK;
}

FAKE_API cu_result cuMemFree_v2(cu_pointer pointer)
{
	const cu_result result = fake_enter("cuMemFree");
	if (result != CU_OK)
		return result;
	struct block *block = take(pointer, DEVICE);
	if (!block)
		return CU_INVALID_VALUE;
	munmap((void *)(uintptr_t)block->first, block->mapped);
	munmap(block->reach, block->mapped);
	free(block);
	return CU_OK;
}

FAKE_API cu_result cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuMemHostRegister", &context);
	if (result != CU_OK)
		return result;
	(void)flags;
	if (!memory || !bytes)
		return CU_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	const bool known = find((uintptr_t)memory) || find((uintptr_t)memory + bytes - 1);
	pthread_mutex_unlock(&fake_lock);
	if (known)
		return CU_HOST_MEMORY_ALREADY_REGISTERED;
	struct block *block = calloc(1, sizeof(*block));
	if (!block)
		return CU_OUT_OF_MEMORY;
	*block = (struct block){ .kind = PINNED, .first = (uintptr_t)memory, .bytes = bytes, .context = context };
	add(block);
	return CU_OK;
}

FAKE_API cu_result cuMemHostUnregister(void *memory)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	struct block *block = take((uintptr_t)memory, PINNED);
	free(block);
	return block ? CU_OK : CU_HOST_MEMORY_NOT_REGISTERED;
}

/* Of memory that the driver does not know every answer is nothing, and that is no error. */
FAKE_API cu_result cuPointerGetAttributes(unsigned int count, int *attributes, void **values, cu_pointer pointer)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	pthread_mutex_lock(&fake_lock);
	const struct block *block = find(pointer);
	for (unsigned int i = 0; i < count; i++) {
		switch (attributes[i]) {
		case CU_ATTRIBUTE_CONTEXT: *(cu_context *)values[i] = block ? block->context : NULL; break;
		case CU_ATTRIBUTE_MEMORY_TYPE:
			*(unsigned int *)values[i] =
				!block ? 0 : block->kind == DEVICE ? CU_MEMORY_DEVICE : CU_MEMORY_HOST;
			break;
		case CU_ATTRIBUTE_IS_MANAGED: *(unsigned int *)values[i] = 0; break;
		case CU_ATTRIBUTE_DEVICE_ORDINAL:
			*(int *)values[i] = block ? fake_context_device(block->context) : -2;
			break;
		case CU_ATTRIBUTE_RANGE_START: *(cu_pointer *)values[i] = block ? block->first : 0; break;
		case CU_ATTRIBUTE_RANGE_BYTES: *(size_t *)values[i] = block ? block->bytes : 0; break;
		default: pthread_mutex_unlock(&fake_lock); return CU_INVALID_VALUE;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}
