#include "cuda/peer_gpus/ipc_get.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "cuda/driver/exported_handles.h"
#include "cuda/driver/peer_mapping.h"
#include "engine/engine.h"
#include "engine/lock.h"

enum {
	WORDS = 1024,                /* length of the pattern */
	TEST_BYTES = 2 << 20         /* large enough for an allocation of its own; only its ends are used */
};

/* Test memory of one CUDA context: starts with this rank's pattern, and ends with space for a peer's. */
struct test_buffer {
	struct test_buffer *next;
	const struct collet_copy_stream *copy_stream;
	cu_pointer memory;           /* 0 if it cannot be allocated; not tried again */
	struct collet_ipc_handle handle;
};

/* Another rank of this host. */
struct peer {
	struct peer *next;
	uint32_t rank;               /* in the world */
	struct collet_exported_handles exported;
	bool is_logged;
};

/* A test result: the memory that was read, and the context that read it. */
struct tested_link {
	struct tested_link *next;
	uint64_t process, allocation;
	cu_context context;
	uint32_t wrong_words;
};

struct collet_ipc_get {
	struct test_buffer *test_buffers;
	struct peer *peers;
	struct tested_link *links;
};

bool collet_ipc_get_is_possible(const struct collet_engine *engine, uint32_t rank)
{
	const struct collet_peer_info *own = &engine->peer_infos[engine->rank], *other = &engine->peer_infos[rank];
	return own->host_id == other->host_id && collet_peer_info_has_gpu(own) && collet_peer_info_has_gpu(other);
}

static struct collet_ipc_get *get_state(struct collet_device *device)
{
	if (!device->ipc_get)
		device->ipc_get = calloc(1, sizeof(*device->ipc_get));
	return device->ipc_get;
}

/* Returns NULL if out of memory. */
static struct peer *get_peer(struct collet_device *device, uint32_t rank)
{
	struct collet_ipc_get *state = get_state(device);
	struct peer *peer = state ? state->peers : NULL;
	while (peer && peer->rank != rank)
		peer = peer->next;
	if (peer || !state)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->rank = rank;
	peer->next = state->peers;
	state->peers = peer;
	return peer;
}

/* ---- Test buffers ---- */

static uint32_t pattern(uint32_t rank, uint32_t word)
{
	const uint32_t mixed = (rank + 1) * 2246822519u ^ (word + 1) * 2654435761u;
	return mixed ^ mixed >> 15;
}

static struct test_buffer *find_test_buffer(
	const struct collet_device *device, const struct collet_copy_stream *copy_stream)
{
	struct test_buffer *test_buffer = device->ipc_get ? device->ipc_get->test_buffers : NULL;
	while (test_buffer && test_buffer->copy_stream != copy_stream)
		test_buffer = test_buffer->next;
	return test_buffer;
}

static collet_status allocate_and_fill(const struct collet_device *device, struct test_buffer *test_buffer)
{
	static const char what[] = "writing a pattern to a GPU's memory";
	uint32_t words[WORDS];
	cu_mem_handle mapped;
	const cu_result result = device->cuda->cuMemAlloc(&test_buffer->memory, TEST_BYTES);
	if (result != CU_OK) {
		test_buffer->memory = 0;
		return collet_cuda_fail(device->cuda, result, "allocating memory to test");
	}
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = pattern(device->rank, i);
	void *memory = (void *)(uintptr_t)test_buffer->memory;
	const collet_status added =
		collet_copy_stream_enqueue(device->cuda, test_buffer->copy_stream, memory, words, sizeof(words), what);
	const collet_status waited = collet_copy_stream_synchronize(device->cuda, test_buffer->copy_stream, what);
	if (added != COLLET_OK || waited != COLLET_OK)
		return added == COLLET_OK ? waited : added;
	return collet_ipc_handle_get(device->cuda, device->process_id, memory, &test_buffer->handle, &mapped);
}

static void free_test_buffer(const struct collet_device *device, struct test_buffer *test_buffer)
{
	/* Fails if the application has destroyed the context, and the memory with it. */
	if (test_buffer->memory && collet_cuda_push_context(device->cuda, test_buffer->copy_stream->context) == CU_OK) {
		(void)device->cuda->cuMemFree(test_buffer->memory);
		collet_cuda_pop_context(device->cuda);
	}
	free(test_buffer);
}

/* Call without the lock, since allocating may wait for the GPU. Returns NULL if out of host memory. */
static struct test_buffer *create_test_buffer(
	const struct collet_device *device, const struct collet_copy_stream *copy_stream)
{
	struct test_buffer *test_buffer = calloc(1, sizeof(*test_buffer));
	if (!test_buffer)
		return NULL;
	test_buffer->copy_stream = copy_stream;
	collet_status status = collet_copy_stream_push_context(device->cuda, copy_stream);
	if (status == COLLET_OK) {
		status = allocate_and_fill(device, test_buffer);
		if (status != COLLET_OK && test_buffer->memory)
			(void)device->cuda->cuMemFree(test_buffer->memory);
		collet_copy_stream_pop_context(device->cuda);
	}
	if (status != COLLET_OK) {
		test_buffer->memory = 0;
		collet_log(device->log, COLLET_LOG_INFO, "%s; messages of this GPU go by way of the host",
			collet_last_error());
	}
	return test_buffer;
}

/* Returns with the lock taken. NULL if there is no test buffer. */
static const struct test_buffer *lock_test_buffer(
	struct collet_device *device, struct collet_engine *engine, const struct collet_copy_stream *copy_stream)
{
	collet_engine_lock(engine);
	struct test_buffer *test_buffer = find_test_buffer(device, copy_stream);
	if (!test_buffer) {
		collet_engine_unlock(engine);
		struct test_buffer *made = create_test_buffer(device, copy_stream);
		collet_engine_lock(engine);
		/* Another thread of the application may have created one too. Then both are kept. */
		if (made && get_state(device)) {
			made->next = device->ipc_get->test_buffers;
			device->ipc_get->test_buffers = test_buffer = made;
		} else if (made) {
			free_test_buffer(device, made);
		}
	}
	return test_buffer && test_buffer->memory ? test_buffer : NULL;
}

/* ---- Sender ---- */

void collet_ipc_get_describe(struct collet_device *device, struct collet_engine *engine,
	struct collet_copy_stream *copy_stream, uint64_t allocation, const void *first, size_t bytes,
	struct collet_ipc_get_descriptor *descriptor)
{
	const struct collet_pointer_attributes attributes = { .is_device = true, .ordinal = copy_stream->ordinal,
		.context = copy_stream->is_primary ? NULL : copy_stream->context, .allocation = allocation };
	*descriptor = (struct collet_ipc_get_descriptor){ .buffer = { .location = COLLET_BUFFER_UNUSED } };
	const struct test_buffer *test_buffer = lock_test_buffer(device, engine, copy_stream);
	if (test_buffer) {
		descriptor->test = test_buffer->handle;
		descriptor->buffer = (struct collet_buffer_info){ .first = first,
			.bytes = bytes,
			.location = COLLET_BUFFER_GPU,
			.ordinal = copy_stream->ordinal,
			.context = (uintptr_t)attributes.context };
		if (collet_device_get_handle(device, &attributes, first, &descriptor->buffer.handle) != COLLET_OK)
			descriptor->buffer.location = COLLET_BUFFER_UNUSED;
	}
	collet_device_receive_handles(device); /* received from others; the socket is small */
	collet_engine_unlock(engine);
}

bool collet_ipc_get_export(struct collet_device *device, const struct collet_engine *engine, uint32_t to,
	const struct collet_ipc_get_descriptor *descriptor)
{
	const struct collet_peer_info *peer_info = &engine->peer_infos[to];
	if (descriptor->buffer.location != COLLET_BUFFER_GPU || !collet_ipc_get_is_possible(engine, to))
		return false;
	if (peer_info->process_id != device->process_id &&
		(descriptor->buffer.handle.kind == COLLET_IPC_NONE || descriptor->test.kind == COLLET_IPC_NONE))
		return false;
	if (descriptor->buffer.handle.kind != COLLET_IPC_FD)
		return true;
	struct peer *peer = get_peer(device, to);
	if (!peer)
		return false;
	collet_exported_handles_flush(device, &peer->exported, peer_info);
	return collet_exported_handles_send(device, &peer->exported, peer_info, &descriptor->buffer.handle) ==
	       COLLET_OK;
}

void collet_ipc_get_reexport(
	struct collet_device *device, uint32_t to, const struct collet_ipc_get_descriptor *descriptor)
{
	struct peer *peer = get_peer(device, to);
	if (peer)
		collet_exported_handles_resend(&peer->exported, descriptor->buffer.handle.allocation);
}

void collet_ipc_get_notify_freed(
	struct collet_device *device, const struct collet_engine *engine, const struct collet_ipc_handle *handle)
{
	for (struct peer *peer = device->ipc_get ? device->ipc_get->peers : NULL; peer; peer = peer->next)
		if (collet_exported_handles_has(&peer->exported, handle->allocation))
			collet_exported_handles_notify_freed(
				device, &peer->exported, &engine->peer_infos[peer->rank], handle->allocation);
}

/* ---- Receiver ---- */

/* Counts the words of a peer's pattern that arrive wrong. COLLET_ERR_SYSTEM: the driver refuses. */
static collet_status count_wrong(const struct collet_device *device, const struct test_buffer *test_buffer,
	uint32_t from, const char *address, uint32_t *wrong)
{
	static const char what[] = "copying a pattern from another rank's GPU";
	static const uint32_t zeros[WORDS];
	const struct collet_copy_stream *copy_stream = test_buffer->copy_stream;
	char *target = (char *)(uintptr_t)test_buffer->memory + TEST_BYTES - sizeof(zeros);
	uint32_t words[WORDS];
	collet_status status = collet_copy_stream_push_context(device->cuda, copy_stream);
	if (status != COLLET_OK)
		return status;
	status = collet_copy_stream_enqueue(device->cuda, copy_stream, target, zeros, sizeof(zeros), what);
	if (status == COLLET_OK)
		status = collet_copy_stream_enqueue(device->cuda, copy_stream, target, address, sizeof(words), what);
	if (status == COLLET_OK)
		status = collet_copy_stream_enqueue(device->cuda, copy_stream, words, target, sizeof(words), what);
	const collet_status waited = collet_copy_stream_synchronize(device->cuda, copy_stream, what);
	collet_copy_stream_pop_context(device->cuda);
	*wrong = 0;
	for (uint32_t i = 0; i < WORDS && status == COLLET_OK && waited == COLLET_OK; i++)
		*wrong += words[i] != pattern(from, i);
	return status == COLLET_OK ? waited : status;
}

static struct tested_link *find_link(const struct collet_device *device, const struct collet_copy_stream *copy_stream,
	const struct collet_ipc_handle *test)
{
	struct tested_link *link = device->ipc_get->links;
	while (link && (link->process != test->process || link->allocation != test->allocation ||
			       link->context != copy_stream->context))
		link = link->next;
	return link;
}

/* Returns NULL, or why the peer's memory cannot be used. */
static const char *test_link(struct collet_device *device, uint32_t from, const struct collet_copy_stream *copy_stream,
	const struct collet_ipc_get_descriptor *descriptor, bool *has_failed)
{
	const struct test_buffer *test_buffer = find_test_buffer(device, copy_stream);
	struct collet_buffer_info buffer = descriptor->buffer;
	struct collet_ipc_mapping *mapping = NULL;
	struct tested_link *link = NULL;
	const char *why = NULL;
	uint32_t wrong = 0;
	if (!test_buffer || !test_buffer->memory)
		return "this rank has no memory to test with";
	link = find_link(device, copy_stream, &descriptor->test);
	if (!link) {
		buffer.first = (const void *)(uintptr_t)descriptor->test.address;
		buffer.bytes = WORDS * sizeof(uint32_t);
		buffer.handle = descriptor->test;
		const char *address =
			collet_device_map_peer_buffer(device, copy_stream, &buffer, &mapping, &why, has_failed);
		if (!address)
			return why;
		const collet_status status = count_wrong(device, test_buffer, from, address, &wrong);
		collet_ipc_cache_release(&device->ipc_cache, mapping);
		*has_failed = true;
		if (status != COLLET_OK)
			return collet_last_error();
		link = malloc(sizeof(*link));
		if (!link)
			return "no memory for the result of a test";
		*link = (struct tested_link){ device->ipc_get->links, descriptor->test.process,
			descriptor->test.allocation, copy_stream->context, wrong };
		device->ipc_get->links = link;
	}
	*has_failed = link->wrong_words;
	if (!link->wrong_words)
		return NULL;
	(void)collet_fail(COLLET_ERR_SYSTEM,
		"cuda: of %d words that were copied from that GPU %u are wrong; is an IOMMU in the way?", WORDS,
		link->wrong_words);
	return collet_last_error();
}

static void log_once(struct collet_device *device, const struct collet_engine *engine, uint32_t from, const char *why,
	bool has_failed)
{
	struct peer *peer = get_peer(device, from);
	if (!peer || peer->is_logged)
		return;
	peer->is_logged = true;
	collet_log(&engine->log, has_failed ? COLLET_LOG_WARN : COLLET_LOG_INFO,
		"cuda: messages from rank %u by way of the host, and not from its GPU to this one's: %s", from, why);
}

/* Memory of the same process on the same GPU needs no test. */
static bool is_same_context(const struct collet_device *device, const struct collet_copy_stream *copy_stream,
	const struct collet_buffer_info *buffer)
{
	return buffer->handle.process == device->process_id && buffer->ordinal == copy_stream->ordinal;
}

char *collet_ipc_get_map(struct collet_device *device, const struct collet_engine *engine, uint32_t from,
	const struct collet_copy_stream *copy_stream, const struct collet_ipc_get_descriptor *descriptor,
	struct collet_ipc_mapping **mapping, bool *must_resend)
{
	const char *why = NULL;
	bool has_failed = false;
	char *address = NULL;
	*mapping = NULL;
	*must_resend = false;
	/* Whichever thread waits makes progress, the application's own among them. */
	const int mode = collet_cuda_relax_capture(device->cuda);
	if (!is_same_context(device, copy_stream, &descriptor->buffer))
		why = test_link(device, from, copy_stream, descriptor, &has_failed);
	if (!why) {
		address = collet_device_map_peer_buffer(
			device, copy_stream, &descriptor->buffer, mapping, &why, &has_failed);
		*must_resend = !address && descriptor->buffer.handle.kind == COLLET_IPC_FD;
	}
	collet_cuda_restore_capture(device->cuda, mode);
	if (!address && !*must_resend)
		log_once(device, engine, from, why, has_failed);
	return address;
}

void collet_ipc_get_destroy(struct collet_device *device)
{
	struct collet_ipc_get *state = device->ipc_get;
	if (!state)
		return;
	for (struct test_buffer *test_buffer = state->test_buffers, *next; test_buffer; test_buffer = next) {
		next = test_buffer->next;
		free_test_buffer(device, test_buffer);
	}
	for (struct peer *peer = state->peers, *next; peer; peer = next) {
		next = peer->next;
		free(peer);
	}
	for (struct tested_link *link = state->links, *next; link; link = next) {
		next = link->next;
		free(link);
	}
	free(state);
	device->ipc_get = NULL;
}
