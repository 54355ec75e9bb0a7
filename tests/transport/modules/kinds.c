/* Builds modules of many kinds from the skeleton: KIND_<name> selects what is special or wrong about it. */
#define collet_transport_module skeleton_table
#include "../../../examples/transport-skeleton/skeleton.c"
#undef collet_transport_module

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)

/* A table of a later library: this library does not know the slots at its end. */
struct longer {
	struct collet_transport table;
	void (*later[4])(void);
};

#ifndef KIND_symbol
extern COLLET_API struct longer collet_transport_module;
struct longer collet_transport_module;
#endif

COLLET_API unsigned memory_known_count;

__attribute__((unused)) static collet_status find_no_device(
	struct collet_device **device, const struct collet_device_config *config, struct collet_device_info *info)
{
	(void)device;
	(void)info;
	return config->services->fail(COLLET_ERR_UNSUPPORTED, "no adapter of this kind in /sys/class/adapters");
}

__attribute__((unused)) static collet_status overfill_peer_data(
	struct collet_device **device, const struct collet_device_config *config, struct collet_device_info *info)
{
	const collet_status status = device_open(device, config, info);
	info->peer_data_bytes = sizeof(info->peer_data) + 1;
	return status;
}

/* Registers any memory of at least a page. */
__attribute__((unused)) static collet_status learn(
	struct collet_device *device, const struct collet_memory *memory, void **registration)
{
	if (memory->bytes < 4096)
		return device->services->fail(COLLET_ERR_UNSUPPORTED, "less than a page");
	memory_known_count++;
	*registration = memory->base;
	return COLLET_OK;
}

__attribute__((unused)) static void forget(struct collet_device *device, void *registration)
{
	(void)device;
	(void)registration;
	memory_known_count--;
}

/* ---- Accepts GPU memory, as an adapter would: through the pages of its dma-buf, which the processor can access
 * here. */

enum { WINDOWS = 32, SHORT_BYTES = 16 << 10 };

struct window {
	char *first;                     /* GPU address; NULL if the window is free */
	char *seen;
	uint64_t bytes;
	void *mapped;
	size_t mapped_bytes;
};
static struct window windows[WINDOWS];
static pthread_mutex_t windows_lock = PTHREAD_MUTEX_INITIALIZER;

/* Numbers of messages posted from and to GPU memory. */
COLLET_API atomic_uint gpu_sent_count, gpu_received_count;

/* Translates a GPU address to the mapped one; NULL if no window has it. */
static char *see(const void *data, uint64_t bytes)
{
	char *at = (char *)(uintptr_t)data, *seen = NULL;
	pthread_mutex_lock(&windows_lock);
	for (int i = 0; i < WINDOWS && !seen; i++) {
		const struct window *window = &windows[i];
		if (window->first && at >= window->first && at + bytes <= window->first + window->bytes)
			seen = window->seen + (at - window->first);
	}
	pthread_mutex_unlock(&windows_lock);
	return seen;
}

__attribute__((unused)) static collet_status open_window(
	struct collet_device *device, const struct collet_memory *memory, void **registration)
{
	collet_status status = COLLET_OK;
	*registration = NULL;
	if (memory->kind != COLLET_MEMORY_GPU)
		return COLLET_OK;
	const size_t bytes = memory->dmabuf_offset + memory->bytes;
	char *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->dmabuf, 0);
	if (mapped == MAP_FAILED)
		return device->services->fail(COLLET_ERR_UNSUPPORTED, "there is nothing to be seen");
	pthread_mutex_lock(&windows_lock);
	struct window *window = windows;
	while (window < windows + WINDOWS && window->first)
		window++;
	if (window == windows + WINDOWS)
		status = device->services->fail(COLLET_ERR_MEMORY, "all windows are open");
	else
		*window = (struct window){
			memory->base, mapped + memory->dmabuf_offset, memory->bytes, mapped, bytes };
	pthread_mutex_unlock(&windows_lock);
	if (status != COLLET_OK)
		munmap(mapped, bytes);
	else
		*registration = window;
	return status;
}

__attribute__((unused)) static void close_window(struct collet_device *device, void *registration)
{
	struct window *window = registration;
	(void)device;
	pthread_mutex_lock(&windows_lock);
	munmap(window->mapped, window->mapped_bytes);
	*window = (struct window){ 0 };
	pthread_mutex_unlock(&windows_lock);
}

/* Fails if the endpoint belongs to another transport, whose struct is different. */
static void must_be_own(const struct collet_endpoint *endpoint)
{
	if (strcmp(endpoint->transport->name, NAME_OF(KIND)) != 0)
		abort();
}

__attribute__((unused)) static bool takes_gpu(struct collet_endpoint *endpoint, const void *data, uint64_t bytes)
{
	/* KIND_GPU_NOT_TO names a rank to which GPU memory is not accepted. */
	const char *not_to = getenv("KIND_GPU_NOT_TO");
	must_be_own(endpoint);
	return bytes > SHORT_BYTES && !(not_to && endpoint->peer == (uint32_t)atoi(not_to)) && see(data, bytes);
}

__attribute__((unused)) static void send_seen(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	if (transfer->flags & COLLET_TRANSFER_GPU) {
		transfer->data = see(transfer->data, transfer->message.bytes);
		atomic_fetch_add(&gpu_sent_count, 1);
	}
	post_send(endpoint, transfer);
}

__attribute__((unused)) static void receive_seen(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	if (transfer->flags & COLLET_TRANSFER_GPU) {
		transfer->data = see(transfer->data, transfer->message.bytes);
		atomic_fetch_add(&gpu_received_count, 1);
	}
	post_recv(endpoint, transfer);
}

/* ---- Says on which core its peer is, and does nothing else. */

enum { HINTED_BYTES = 4096 };

__attribute__((unused)) static uint32_t progress_hinting(struct collet_endpoint *endpoint)
{
	endpoint->peer_cpu = HINTED_BYTES;
	return progress(endpoint);
}

__attribute__((unused)) static bool takes_long_ones(struct collet_endpoint *endpoint, const void *data, uint64_t bytes)
{
	(void)data;
	must_be_own(endpoint);
	return bytes >= HINTED_BYTES;
}

__attribute__((unused)) static enum collet_try_result send_later(
	struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	(void)endpoint;
	(void)transfer;
	return COLLET_TRY_POST;
}

__attribute__((unused)) static bool reaches_all(
	const struct collet_peer_info *self, const struct collet_peer_info *peer)
{
	size_t bytes;
	return self->rank != peer->rank && collet_peer_info_data(peer, NAME_OF(KIND), &bytes) && bytes == 1;
}

#ifdef KIND_unresolved
extern void collet_no_such_function(void);
__attribute__((used)) static void call_it(void)
{
	collet_no_such_function();
}
#endif

#ifndef KIND_symbol
__attribute__((constructor)) static void spoil(void)
{
	struct collet_transport *table = &collet_transport_module.table;
	*table = skeleton_table;
	table->name = NAME_OF(KIND);
	table->reaches = reaches_all;
#if defined(KIND_version)
	table->version = 99;
#elif defined(KIND_short)
	table->bytes = offsetof(struct collet_transport, progress);
#elif defined(KIND_name)
	table->name = "other";
#elif defined(KIND_head)
	table->endpoint_bytes = sizeof(struct collet_endpoint) - 8;
#elif defined(KIND_gap)
	table->post_recv = NULL;
#elif defined(KIND_half)
	table->device_close = NULL;
#elif defined(KIND_try)
	table->try_send = send_later;
#elif defined(KIND_reach)
	table->accepts_gpu = takes_long_ones;
#elif defined(KIND_device)
	table->device_open = find_no_device;
#elif defined(KIND_data)
	table->device_open = overfill_peer_data;
#elif defined(KIND_longer)
	table->bytes = sizeof(collet_transport_module);
	table->priority = 900;           /* it is chosen where both ranks have it */
#elif defined(KIND_memory)
	table->memory_register = learn;
	table->memory_deregister = forget;
	table->accepts_gpu = takes_long_ones;
	table->progress = progress_hinting;
#elif defined(KIND_gpu)
	table->memory_register = open_window;
	table->memory_deregister = close_window;
	table->accepts_gpu = takes_gpu;
	table->post_send = send_seen;
	table->post_recv = receive_seen;
#endif
}
#endif
