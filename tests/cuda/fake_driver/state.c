/* Initialisation, devices, contexts, and function look-up. */
#include "stream.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 16, MADE_MOST = 256 };

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

struct CUctx_st {
	int device;
	_Atomic unsigned users;      /* written under fake_lock, read without */
	atomic_bool broken;
};

static struct CUctx_st primary[FAKE_DEVICES];
/* Contexts that programs have created. Handles of destroyed ones are never reused. */
static struct CUctx_st made[MADE_MOST];
static unsigned made_count;          /* under fake_lock */
static struct fake_owned *owned_first;   /* under fake_lock */
static bool initialised;
static _Thread_local bool in_host_function;
static _Thread_local struct {
	cu_context contexts[DEPTH];
	int count;
} stack;

static long number_of(const char *variable, long otherwise)
{
	const char *text = getenv(variable);
	return text && *text ? strtol(text, NULL, 10) : otherwise;
}

/* Parses CUDA_VISIBLE_DEVICES ("1,0") up to the first number that is no GPU. All GPUs are alike here. */
static int visible(int count)
{
	const char *at = getenv("CUDA_VISIBLE_DEVICES");
	int visible_count = 0;
	for (char *end; at; at = *end == ',' ? end + 1 : NULL) {
		const long ordinal = strtol(at, &end, 10);
		if (end == at || ordinal < 0 || ordinal >= count || (*end && *end != ','))
			return visible_count;
		visible_count++;
	}
	return getenv("CUDA_VISIBLE_DEVICES") ? visible_count : count;
}

int fake_device_count(void)
{
	const long count = number_of("FAKE_CUDA_DEVICES", 1);
	return visible(count < 0 ? 0 : count > FAKE_DEVICES ? FAKE_DEVICES : (int)count);
}

uint32_t fake_multiprocessors(void)
{
	const long count = number_of("FAKE_CUDA_MULTIPROCESSORS", FAKE_MULTIPROCESSORS);
	return count < 1 ? 1 : count > FAKE_MULTIPROCESSORS_MOST ? FAKE_MULTIPROCESSORS_MOST : (uint32_t)count;
}

bool fake_has(const char *function)
{
	const char *without = getenv("FAKE_CUDA_WITHOUT");
	return !without || strcmp(without, function) != 0;
}

cu_result fake_enter(const char *function)
{
	pthread_mutex_lock(&fake_lock);
	const cu_result wanted = fake_failure(function);
	const bool early = !initialised;
	pthread_mutex_unlock(&fake_lock);
	return early ? CU_NOT_INITIALIZED : in_host_function ? CU_NOT_PERMITTED : wanted;
}

void fake_forbid_driver(bool forbidden)
{
	in_host_function = forbidden;
}

static bool is_made(cu_context context)
{
	return context >= made && context < made + MADE_MOST;
}

cu_result fake_enter_in_context(const char *function, cu_context *context)
{
	const cu_result result = fake_enter(function);
	*context = fake_current();
	if (result == CU_OK && *context && is_made(*context) && !(*context)->users)
		return CU_CONTEXT_IS_DESTROYED;
	if (result == CU_OK && *context && atomic_load(&(*context)->broken))
		return CU_ILLEGAL_ADDRESS;
	return result != CU_OK ? result : *context ? CU_OK : CU_INVALID_CONTEXT;
}

void fake_break(cu_context context)
{
	if (context)
		atomic_store(&context->broken, true);
}

bool fake_is_broken(cu_context context)
{
	return fake_is_dead() || (context && atomic_load(&context->broken));
}

bool fake_is_anything_broken(void)
{
	bool broken = fake_is_dead();
	for (int d = 0; d < FAKE_DEVICES; d++)
		broken = broken || atomic_load(&primary[d].broken);
	for (int m = 0; m < MADE_MOST; m++)
		broken = broken || (made[m].users && atomic_load(&made[m].broken));
	return broken;
}

void fake_own(struct fake_owned *owned, cu_context context, void (*let_go)(struct fake_owned *owned))
{
	pthread_mutex_lock(&fake_lock);
	*owned = (struct fake_owned){ owned_first, context, let_go };
	owned_first = owned;
	pthread_mutex_unlock(&fake_lock);
	fake_alive(1);
}

void fake_disown(struct fake_owned *owned)
{
	pthread_mutex_lock(&fake_lock);
	struct fake_owned **at = &owned_first;
	while (*at != owned)
		at = &(*at)->next;
	*at = owned->next;
	pthread_mutex_unlock(&fake_lock);
	fake_alive(-1);
}

cu_context fake_current(void)
{
	return stack.count ? stack.contexts[stack.count - 1] : NULL;
}

int fake_context_device(cu_context context)
{
	for (int d = 0; d < FAKE_DEVICES; d++)
		if (context == &primary[d])
			return primary[d].users ? d : -1;
	return is_made(context) && context->users ? context->device : -1;
}

static bool is_device(cu_device device)
{
	return device >= 0 && device < fake_device_count();
}

/* ---- Driver functions ---- */

FAKE_API cu_result cuInit(unsigned int flags)
{
	if (flags)
		return CU_INVALID_VALUE;
	if (!fake_device_count())
		return CU_NO_DEVICE;
	pthread_mutex_lock(&fake_lock);
	initialised = true;
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

FAKE_API cu_result cuDriverGetVersion(int *version)
{
	*version = (int)number_of("FAKE_CUDA_VERSION", 12040);
	return CU_OK;
}

FAKE_API cu_result cuGetErrorName(cu_result result, const char **name)
{
	static const struct {
		cu_result result;
		const char *name;
	} names[] = {
		{ CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
		{ CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
		{ CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED" },
		{ CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
		{ CU_MAP_FAILED, "CUDA_ERROR_MAP_FAILED" },
		{ CU_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED" },
		{ CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE" },
		{ CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ CU_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" },
		{ CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" },
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].result == result) {
			*name = names[i].name;
			return CU_OK;
		}
	}
	*name = NULL;
	return CU_INVALID_VALUE;
}

FAKE_API cu_result cuGetErrorString(cu_result result, const char **sentence)
{
	*sentence = result == CU_OUT_OF_MEMORY ? "out of memory" : "as the fake driver was told";
	return CU_OK;
}

FAKE_API cu_result cuDeviceGetCount(int *count)
{
	const cu_result result = fake_enter(__func__);
	*count = fake_device_count();
	return result;
}

FAKE_API cu_result cuDeviceGet(cu_device *device, int ordinal)
{
	const cu_result result = fake_enter(__func__);
	if (result == CU_OK && (ordinal < 0 || ordinal >= fake_device_count()))
		return CU_INVALID_DEVICE;
	*device = ordinal;
	return result;
}

FAKE_API cu_result cuDeviceGetName(char *name, int bytes, cu_device device)
{
	const cu_result result = fake_enter(__func__);
	if (result == CU_OK && (device < 0 || device >= fake_device_count()))
		return CU_INVALID_DEVICE;
	snprintf(name, (size_t)bytes, "a stand-in for a GPU");
	return result;
}

FAKE_API cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device)
{
	const cu_result result = fake_enter(__func__);
	if (result == CU_OK && (device < 0 || device >= fake_device_count()))
		return CU_INVALID_DEVICE;
	switch (attribute) {
	case CU_DEVICE_MULTIPROCESSORS: *value = (int)fake_multiprocessors(); return result;
	case CU_DEVICE_L2_CACHE_BYTES: *value = 1 << 20; return result;
	case CU_DEVICE_HAS_VMM:
	case CU_DEVICE_HAS_FD_HANDLES: *value = fake_has("exportable memory"); return result;
	case CU_DEVICE_HAS_RDMA_TO_VMM:
	case CU_DEVICE_HAS_DMABUF: *value = fake_has("dma-bufs"); return result;
	case CU_DEVICE_RDMA_WRITES_ORDERING:
		*value = fake_has("ordered writes") ? CU_RDMA_ORDERING_OWNER : 0;
		return result;
	case CU_DEVICE_HAS_STREAM_MEM_OPS: *value = fake_has("stream memory operations"); return result;
	default: return CU_INVALID_VALUE;
	}
}

FAKE_API cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (device < 0 || device >= fake_device_count())
		return CU_INVALID_DEVICE;
	pthread_mutex_lock(&fake_lock);
	primary[device].device = device;
	primary[device].users++;
	fake_alive(1);
	pthread_mutex_unlock(&fake_lock);
	*context = &primary[device];
	return CU_OK;
}

FAKE_API cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
	cu_result result = fake_enter("cuDevicePrimaryCtxRelease");
	if (result != CU_OK)
		return result;
	if (device < 0 || device >= fake_device_count())
		return CU_INVALID_DEVICE;
	pthread_mutex_lock(&fake_lock);
	if (!primary[device].users) {
		result = CU_INVALID_CONTEXT;
	} else {
		primary[device].users--;
		fake_alive(-1);
	}
	const bool gone = result == CU_OK && !primary[device].users;
	pthread_mutex_unlock(&fake_lock);
	if (gone)
		fake_streams_end(&primary[device], false);
	if (gone) {
		fake_unlock_all(&primary[device]);
		atomic_store(&primary[device].broken, false);
	}
	return result;
}

FAKE_API cu_result cuCtxCreate_v2(cu_context *context, unsigned int flags, cu_device device)
{
	const cu_result result = fake_enter("cuCtxCreate");
	if (result != CU_OK)
		return result;
	if (!is_device(device))
		return CU_INVALID_DEVICE;
	if (flags || stack.count == DEPTH)
		return CU_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	struct CUctx_st *one = made_count < MADE_MOST ? &made[made_count++] : NULL;
	if (one) {
		one->device = device;
		one->users = 1;
		fake_alive(1);
	}
	pthread_mutex_unlock(&fake_lock);
	if (!one)
		return CU_OUT_OF_MEMORY;
	stack.contexts[stack.count++] = one;
	*context = one;
	return CU_OK;
}

static struct fake_owned *find_owned(cu_context context)
{
	pthread_mutex_lock(&fake_lock);
	struct fake_owned *owned = owned_first;
	while (owned && owned->context != context)
		owned = owned->next;
	pthread_mutex_unlock(&fake_lock);
	return owned;
}

static void free_owned(cu_context context)
{
	for (struct fake_owned *owned; (owned = find_owned(context));) {
		fake_disown(owned);
		owned->let_go(owned);
	}
}

/* Destroys everything in it. Threads that have it current get an error from every call. */
FAKE_API cu_result cuCtxDestroy_v2(cu_context context)
{
	const cu_result result = fake_enter("cuCtxDestroy");
	if (result != CU_OK)
		return result;
	if (!context || !is_made(context))
		return CU_INVALID_CONTEXT;
	if (!context->users)
		return CU_CONTEXT_IS_DESTROYED;
	fake_streams_end(context, true);
	free_owned(context);
	fake_free_all(context);
	pthread_mutex_lock(&fake_lock);
	context->users = 0;
	pthread_mutex_unlock(&fake_lock);
	fake_alive(-1);
	if (fake_current() == context)
		stack.count--;
	return CU_OK;
}

FAKE_API cu_result cuCtxPushCurrent_v2(cu_context context)
{
	const cu_result result = fake_enter("cuCtxPushCurrent");
	if (result != CU_OK)
		return result;
	if (context && is_made(context) && !context->users)
		return CU_CONTEXT_IS_DESTROYED;
	if (fake_context_device(context) < 0 || stack.count == DEPTH)
		return CU_INVALID_CONTEXT;
	stack.contexts[stack.count++] = context;
	return CU_OK;
}

FAKE_API cu_result cuCtxPopCurrent_v2(cu_context *context)
{
	const cu_result result = fake_enter("cuCtxPopCurrent");
	if (result != CU_OK)
		return result;
	if (!stack.count)
		return CU_INVALID_CONTEXT;
	stack.count--;
	if (context)
		*context = stack.contexts[stack.count];
	return CU_OK;
}

FAKE_API cu_result cuCtxGetCurrent(cu_context *context)
{
	const cu_result result = fake_enter(__func__);
	*context = fake_current();
	return result;
}

FAKE_API cu_result cuCtxGetDevice(cu_device *device)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result == CU_OK)
		*device = fake_context_device(context);
	return result;
}

/* The same in every process, as a real GPU's is. */
FAKE_API cu_result cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device)
{
	const cu_result result = fake_enter("cuDeviceGetUuid");
	if (result != CU_OK)
		return result;
	if (!is_device(device))
		return CU_INVALID_DEVICE;
	memset(uuid, 0xf0 + device, sizeof(*uuid));
	return CU_OK;
}

FAKE_API cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (!is_device(device) || !is_device(peer))
		return CU_INVALID_DEVICE;
	*can = device != peer && fake_may_reach(device, peer);
	return CU_OK;
}

bool fake_may_reach(int device, int peer)
{
	return device == peer || fake_has("peer access");
}

static struct {
	cu_context from, to;
} enabled_peers[256];                      /* under fake_lock */
static size_t enabled_peer_count;         /* under fake_lock */

bool fake_peer_reaches(cu_context context, cu_context peer)
{
	bool is_enabled = context == peer;
	for (size_t i = 0; i < enabled_peer_count; i++)
		is_enabled = is_enabled || (enabled_peers[i].from == context && enabled_peers[i].to == peer);
	return is_enabled;
}

FAKE_API cu_result cuCtxEnablePeerAccess(cu_context peer, unsigned int flags)
{
	cu_context context;
	cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	const int from = fake_context_device(context), to = fake_context_device(peer);
	if (flags)
		return CU_INVALID_VALUE;
	if (to < 0 || context == peer)
		return CU_INVALID_CONTEXT;
	/* A GPU is not a peer of itself. */
	if (from == to || !fake_may_reach(from, to))
		return CU_PEER_ACCESS_UNSUPPORTED;
	pthread_mutex_lock(&fake_lock);
	result = fake_peer_reaches(context, peer) ? CU_PEER_ACCESS_ALREADY_ENABLED : CU_OK;
	if (result == CU_OK && enabled_peer_count == sizeof(enabled_peers) / sizeof(enabled_peers[0]))
		result = CU_OUT_OF_MEMORY;
	else if (result == CU_OK)
		enabled_peers[enabled_peer_count++] = (__typeof__(enabled_peers[0])){ context, peer };
	pthread_mutex_unlock(&fake_lock);
	return result;
}

/* Accepts names without the version suffix that some symbols have. */
FAKE_API cu_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found)
{
	(void)version;
	(void)flags;
	char versioned[128];
	snprintf(versioned, sizeof(versioned), "%s_v2", name);
	*function = NULL;
	if (fake_has(name)) {
		Dl_info self;
		void *own = dladdr((void *)(uintptr_t)&cuInit, &self) ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD)
								      : NULL;
		if (own) {
			*function = dlsym(own, versioned);
			*function = *function ? *function : dlsym(own, name);
			dlclose(own);
		}
	}
	*found = *function ? 0 : 1;
	return *function ? CU_OK : CU_INVALID_VALUE;
}
