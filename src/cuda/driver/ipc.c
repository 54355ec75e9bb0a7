#include "cuda/driver/ipc.h"

#include <stdlib.h>

#include "core/status.h"

/* ---- What this process has ---- */

collet_status collet_ipc_describe(const struct collet_cuda *cuda, uint64_t process, const void *memory,
	struct collet_shared *shared, cu_memory *mapped)
{
	static const char what[] = "describing an allocation for other processes";
	const cu_pointer pointer = (uintptr_t)memory;
	unsigned long long id = 0;
	unsigned int capable = 0;
	int asked[] = { CU_ATTRIBUTE_BUFFER_ID, CU_ATTRIBUTE_IS_IPC_CAPABLE };
	void *answers[] = { &id, &capable };
	cu_pointer first = 0;
	size_t bytes = 0;
	*shared = (struct collet_shared){ .process = process };
	*mapped = 0;
	cu_result result = cuda->cuPointerGetAttributes(sizeof(asked) / sizeof(asked[0]), asked, answers, pointer);
	if (result == CU_OK)
		result = cuda->cuMemGetAddressRange(&first, &bytes, pointer);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, what);
	shared->allocation = id;
	shared->first = first;
	shared->bytes = bytes;
	if (capable && cuda->cuIpcGetMemHandle(&shared->handle, first) == CU_OK) {
		shared->kind = COLLET_SHARED_HANDLE;
		return COLLET_OK;
	}
	if (cuda->cuMemRetainAllocationHandle(mapped, (void *)(uintptr_t)first) == CU_OK)
		shared->kind = COLLET_SHARED_DESCRIPTOR;
	else
		*mapped = 0;
	return COLLET_OK;
}

collet_status collet_ipc_export(const struct collet_cuda *cuda, const struct collet_shared *shared, int *file)
{
	static const char what[] = "exporting mapped memory as a file descriptor";
	cu_memory mapped;
	cu_result result = cuda->cuMemRetainAllocationHandle(&mapped, (void *)(uintptr_t)shared->first);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, what);
	result = cuda->cuMemExportToShareableHandle(file, mapped, CU_HANDLE_FILE_DESCRIPTOR, 0);
	(void)cuda->cuMemRelease(mapped);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, what);
}

/* ---- What others have ---- */

void collet_ipc_init(struct collet_ipc *ipc, const struct collet_cuda *cuda, uint32_t most, uint64_t most_bytes)
{
	*ipc = (struct collet_ipc){ .cuda = cuda, .most = most, .most_bytes = most_bytes };
	pthread_mutex_init(&ipc->lock, NULL);
}

static void unmap(const struct collet_cuda *cuda, const struct collet_opened *opened)
{
	if (opened->mapped_bytes) {
		(void)cuda->cuMemUnmap(opened->mapped, opened->mapped_bytes);
		(void)cuda->cuMemAddressFree(opened->mapped, opened->mapped_bytes);
		return;
	}
	/* Fails where the program has destroyed its context, and what was opened in it with it. */
	if (collet_cuda_enter(cuda, opened->context) == CU_OK) {
		(void)cuda->cuIpcCloseMemHandle(opened->mapped);
		collet_cuda_leave(cuda);
	}
}

/* Under lock, but for deinit. */
static void drop(struct collet_ipc *ipc, struct collet_opened **at)
{
	struct collet_opened *gone = *at;
	*at = gone->next;
	ipc->count--;
	ipc->bytes -= gone->bytes;
	unmap(ipc->cuda, gone);
	free(gone);
}

void collet_ipc_deinit(struct collet_ipc *ipc)
{
	if (!ipc->cuda)
		return;
	while (ipc->first)
		drop(ipc, &ipc->first);
	pthread_mutex_destroy(&ipc->lock);
	*ipc = (struct collet_ipc){ 0 };
}

/* Down to what may be kept, the longest unused first. Under lock. */
static void trim(struct collet_ipc *ipc)
{
	if (ipc->holds)
		return;
	for (struct collet_opened **at = &ipc->first; *at;) {
		if ((*at)->freed && !(*at)->users)
			drop(ipc, at);
		else
			at = &(*at)->next;
	}
	while (ipc->count > ipc->most || ipc->bytes > ipc->most_bytes) {
		struct collet_opened **last = NULL;
		for (struct collet_opened **at = &ipc->first; *at; at = &(*at)->next)
			if (!(*at)->users)
				last = at;
		if (!last)
			return;
		drop(ipc, last);
	}
}

/* May two different numbers be of one allocation? Two ranks of a process have each numbered it then. */
static bool may_be_same(uint64_t allocation, uint64_t other)
{
	const uint64_t by = allocation >> COLLET_SHARED_RANK_SHIFT, other_by = other >> COLLET_SHARED_RANK_SHIFT;
	return by && other_by && by != other_by;
}

/* Other allocations where this one lies are no more. Under lock. */
static void mark_freed(const struct collet_ipc *ipc, const struct collet_shared *shared)
{
	for (struct collet_opened *old = ipc->first; old; old = old->next)
		if (old->process == shared->process && old->allocation != shared->allocation &&
			!may_be_same(old->allocation, shared->allocation) &&
			old->first < shared->first + shared->bytes && shared->first < old->first + old->bytes)
			old->freed = true;
}

/* To the front, one user more; NULL: it is not open. Under lock. */
static struct collet_opened *use(struct collet_ipc *ipc, const struct collet_shared *shared, cu_context context)
{
	struct collet_opened **at = &ipc->first;
	while (*at && ((*at)->process != shared->process || (*at)->allocation != shared->allocation ||
			      (*at)->context != context))
		at = &(*at)->next;
	struct collet_opened *found = *at;
	if (!found)
		return NULL;
	*at = found->next;
	found->next = ipc->first;
	ipc->first = found;
	found->users++;
	return found;
}

struct collet_opened *collet_ipc_find(struct collet_ipc *ipc, const struct collet_shared *shared, cu_context context)
{
	pthread_mutex_lock(&ipc->lock);
	struct collet_opened *found = use(ipc, shared, context);
	pthread_mutex_unlock(&ipc->lock);
	return found;
}

static cu_result map_descriptor(const struct collet_cuda *cuda, int file, int device, struct collet_opened *opened)
{
	const cu_access access = { { CU_LOCATION_DEVICE, device }, CU_ACCESS_READ_WRITE };
	const size_t bytes = opened->bytes;
	cu_memory memory;
	cu_result result =
		cuda->cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)file, CU_HANDLE_FILE_DESCRIPTOR);
	if (result != CU_OK)
		return result;
	result = cuda->cuMemAddressReserve(&opened->mapped, bytes, 0, 0, 0);
	if (result != CU_OK)
		goto err_release;
	result = cuda->cuMemMap(opened->mapped, bytes, 0, memory, 0);
	if (result != CU_OK)
		goto err_free;
	result = cuda->cuMemSetAccess(opened->mapped, bytes, &access, 1);
	if (result != CU_OK)
		goto err_unmap;
	(void)cuda->cuMemRelease(memory);  /* the mapping keeps it */
	opened->mapped_bytes = bytes;
	return CU_OK;

err_unmap:
	(void)cuda->cuMemUnmap(opened->mapped, bytes);
err_free:
	(void)cuda->cuMemAddressFree(opened->mapped, bytes);
err_release:
	(void)cuda->cuMemRelease(memory);
	return result;
}

/* Under lock. */
static collet_status open_one(struct collet_ipc *ipc, const struct collet_shared *shared, int file, cu_context context,
	int device, struct collet_opened **opened)
{
	struct collet_opened *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a peer's allocation");
	made->process = shared->process;
	made->allocation = shared->allocation;
	made->first = shared->first;
	made->bytes = shared->bytes;
	made->context = context;
	const cu_result result = shared->kind == COLLET_SHARED_DESCRIPTOR ?
		map_descriptor(ipc->cuda, file, device, made) :
		ipc->cuda->cuIpcOpenMemHandle(&made->mapped, shared->handle, CU_IPC_LAZY_PEER_ACCESS);
	if (result != CU_OK) {
		free(made);
		return collet_cuda_fail(ipc->cuda, result, "opening another process's allocation");
	}
	made->users = 1;
	made->next = ipc->first;
	ipc->first = made;
	ipc->count++;
	ipc->bytes += made->bytes;
	*opened = made;
	return COLLET_OK;
}

collet_status collet_ipc_open(struct collet_ipc *ipc, const struct collet_shared *shared, int file, cu_context context,
	int device, struct collet_opened **opened)
{
	if (shared->kind == COLLET_SHARED_NOT)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"cuda: an allocation of %llu bytes was not made so that other processes could open it",
			(unsigned long long)shared->bytes);
	collet_status status = COLLET_OK;
	pthread_mutex_lock(&ipc->lock);
	*opened = use(ipc, shared, context);
	if (!*opened && shared->kind == COLLET_SHARED_DESCRIPTOR && file < 0)
		status = collet_fail(COLLET_ERR_SYSTEM, "cuda: the descriptor of a peer's mapped memory has not come");
	if (!*opened && status == COLLET_OK) {
		mark_freed(ipc, shared);
		trim(ipc);
		status = open_one(ipc, shared, file, context, device, opened);
		trim(ipc);
	}
	pthread_mutex_unlock(&ipc->lock);
	return status;
}

void collet_ipc_forget(struct collet_ipc *ipc, uint64_t process, uint64_t allocation)
{
	pthread_mutex_lock(&ipc->lock);
	for (struct collet_opened *old = ipc->first; old; old = old->next)
		if (old->process == process && old->allocation == allocation)
			old->freed = true;
	trim(ipc);
	pthread_mutex_unlock(&ipc->lock);
}

void collet_ipc_hold(struct collet_ipc *ipc)
{
	pthread_mutex_lock(&ipc->lock);
	ipc->holds++;
	pthread_mutex_unlock(&ipc->lock);
}

void collet_ipc_let_go(struct collet_ipc *ipc)
{
	pthread_mutex_lock(&ipc->lock);
	ipc->holds--;
	trim(ipc);
	pthread_mutex_unlock(&ipc->lock);
}

void collet_ipc_put(struct collet_ipc *ipc, struct collet_opened *opened)
{
	if (!opened)
		return;
	pthread_mutex_lock(&ipc->lock);
	opened->users--;
	trim(ipc);
	pthread_mutex_unlock(&ipc->lock);
}

void collet_ipc_close(struct collet_ipc *ipc, struct collet_opened *opened)
{
	if (!opened)
		return;
	pthread_mutex_lock(&ipc->lock);
	if (!--opened->users) {
		struct collet_opened **at = &ipc->first;
		while (*at != opened)
			at = &(*at)->next;
		drop(ipc, at);
	}
	pthread_mutex_unlock(&ipc->lock);
}
