/* What this process's memory is for others: found once for each allocation, and kept while it lies there. */
#include "core/status.h"
#include "cuda/driver/device.h"
#include "cuda/driver/shareable_memory.h"

static bool covers(const struct collet_shared *shared, const void *memory)
{
	return (uintptr_t)memory >= shared->first && (uintptr_t)memory - shared->first < shared->bytes;
}

/* Does the same memory lie there yet? */
static bool is_mapped(const struct collet_device *device, const struct collet_described *known)
{
	cu_memory there;
	if (device->cuda->cuMemRetainAllocationHandle(&there, (void *)(uintptr_t)known->shared.first) != CU_OK)
		return false;
	(void)device->cuda->cuMemRelease(there);
	return there == known->mapped;
}

static void drop(const struct collet_device *device, struct collet_described *known)
{
	if (known->mapped)
		(void)device->cuda->cuMemRelease(known->mapped);
	*known = (struct collet_described){ 0 };
}

/* One number may be that of several allocations, see cuda/driver/ipc.h. NULL: it is not known, or no more. */
static struct collet_described *find_described(
	struct collet_device *device, const struct collet_residence *residence, const void *memory)
{
	for (uint32_t i = 0; i < COLLET_DESCRIBED; i++) {
		struct collet_described *known = &device->described[i];
		if (known->allocation == residence->allocation && covers(&known->shared, memory))
			return !known->mapped || is_mapped(device, known) ? known : NULL;
	}
	return NULL;
}

/* What was unmapped is not held any longer than until something else is described. */
static struct collet_described *make_room(struct collet_device *device)
{
	struct collet_described *oldest = &device->described[0];
	for (uint32_t i = 0; i < COLLET_DESCRIBED; i++) {
		struct collet_described *known = &device->described[i];
		if (known->mapped && !is_mapped(device, known))
			drop(device, known);
		if (known->used < oldest->used)
			oldest = known;
	}
	drop(device, oldest);
	return oldest;
}

collet_status collet_device_describe_new(struct collet_device *device, const struct collet_residence *residence,
	const void *memory, struct collet_shared *shared, cu_memory *mapped)
{
	struct collet_copier *copier;
	collet_status status = collet_copier_find(device->copiers, residence, &copier);
	if (status == COLLET_OK)
		status = collet_copier_begin(device->cuda, copier);
	if (status != COLLET_OK)
		return status;
	status = collet_ipc_describe(device->cuda, device->process, memory, shared, mapped);
	collet_copier_end(device->cuda);
	if (status == COLLET_OK && shared->kind == COLLET_SHARED_DESCRIPTOR)
		shared->allocation = (uint64_t)(device->rank + 1) << COLLET_SHARED_RANK_SHIFT | ++device->numbered;
	return status;
}

collet_status collet_device_describe(struct collet_device *device, const struct collet_residence *residence,
	const void *memory, struct collet_shared *shared)
{
	for (const struct collet_own_block *own = device->own; own; own = own->next) {
		if (covers(&own->shared, memory)) {
			*shared = own->shared;
			return COLLET_OK;
		}
	}
	struct collet_described *known = find_described(device, residence, memory);
	if (!known) {
		struct collet_described made = { .allocation = residence->allocation };
		const collet_status status =
			collet_device_describe_new(device, residence, memory, &made.shared, &made.mapped);
		if (status != COLLET_OK)
			return status;
		known = make_room(device);
		*known = made;
	}
	known->used = ++device->uses;
	*shared = known->shared;
	return COLLET_OK;
}

void collet_device_drop_described(struct collet_device *device)
{
	for (uint32_t i = 0; i < COLLET_DESCRIBED; i++)
		drop(device, &device->described[i]);
}
