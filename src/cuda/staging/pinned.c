#include "cuda/staging/pinned.h"

#include <stdlib.h>

#include "core/status.h"

enum { SMALLEST_BLOCK = 64 << 10 };

void collet_pinned_init(struct collet_pinned_pool *pool, const struct collet_cuda *cuda, struct collet_arena *arena,
	const struct collet_log *log)
{
	*pool = (struct collet_pinned_pool){ .cuda = cuda, .arena = arena, .log = log };
	pthread_mutex_init(&pool->lock, NULL);
}

void collet_pinned_leak(struct collet_pinned_pool *pool, struct collet_pinned_block *block)
{
	if (!block)
		return;
	pthread_mutex_lock(&pool->lock);
	block->next = pool->leaked;
	pool->leaked = block;
	pthread_mutex_unlock(&pool->lock);
}

static void free_block(struct collet_pinned_pool *pool, struct collet_pinned_block *block)
{
	if (block->copy_stream &&
		!collet_cuda_unregister_host(pool->cuda, block->copy_stream->context, block->memory)) {
		collet_pinned_leak(pool, block);
		return;
	}
	(void)collet_arena_free(pool->arena, block->memory);
	free(block);
}

bool collet_pinned_deinit(struct collet_pinned_pool *pool)
{
	if (!pool->cuda)
		return true;
	for (struct collet_pinned_block *block = pool->cached, *next; block; block = next) {
		next = block->next;
		free_block(pool, block);
	}
	pool->cached = NULL;
	if (pool->leaked)
		return false;
	pthread_mutex_destroy(&pool->lock);
	*pool = (struct collet_pinned_pool){ 0 };
	return true;
}

/* Powers of two, so that calls of about one size share blocks. */
static size_t round_up(size_t bytes)
{
	size_t rounded = SMALLEST_BLOCK;
	while (rounded < bytes && rounded <= SIZE_MAX / 2)
		rounded *= 2;
	return rounded < bytes ? bytes : rounded;
}

static struct collet_pinned_block *acquire_cached(struct collet_pinned_pool *pool, size_t bytes)
{
	struct collet_pinned_block *found = NULL;
	pthread_mutex_lock(&pool->lock);
	for (struct collet_pinned_block **at = &pool->cached; *at; at = &(*at)->next) {
		if ((*at)->bytes == bytes) {
			found = *at;
			*at = found->next;
			pool->cached_bytes -= bytes;
			break;
		}
	}
	pthread_mutex_unlock(&pool->lock);
	return found;
}

/* PORTABLE: registered for every context, not only that of the copy stream. MAPPED: streams can write flags there. */
static void page_lock(struct collet_pinned_pool *pool, const struct collet_copy_stream *copy_stream,
	struct collet_pinned_block *block)
{
	const struct collet_cuda *cuda = pool->cuda;
	if (collet_copy_stream_push_context(cuda, copy_stream) != COLLET_OK)
		return;
	const cu_result result = cuda->cuMemHostRegister(block->memory, block->bytes,
		CU_HOST_REGISTER_PORTABLE | CU_HOST_REGISTER_MAPPED);
	collet_copy_stream_pop_context(cuda);
	if (result == CU_OK) {
		block->copy_stream = copy_stream;
		return;
	}
	(void)collet_cuda_fail(cuda, result, "page-locking memory");
	collet_log(pool->log, COLLET_LOG_WARN, "%s: %zu bytes stay ordinary memory, which GPUs copy more slowly",
		collet_last_error(), block->bytes);
}

collet_status collet_pinned_acquire(struct collet_pinned_pool *pool, const struct collet_copy_stream *copy_stream,
	size_t bytes, struct collet_pinned_block **block)
{
	const size_t rounded = round_up(bytes);
	struct collet_pinned_block *found = acquire_cached(pool, rounded);
	if (!found) {
		void *memory;
		found = calloc(1, sizeof(*found));
		if (!found)
			return collet_fail(
				COLLET_ERR_MEMORY, "no memory for a block that a GPU's data travels through");
		const collet_status status = collet_arena_alloc(pool->arena, &memory, rounded);
		if (status != COLLET_OK) {
			free(found);
			return status;
		}
		*found = (struct collet_pinned_block){ .memory = memory, .bytes = rounded };
		page_lock(pool, copy_stream, found);
	}
	*block = found;
	return COLLET_OK;
}

bool collet_pinned_register(struct collet_pinned_pool *pool, const struct collet_copy_stream *copy_stream,
	struct collet_pinned_block *block)
{
	if (!block->copy_stream)
		page_lock(pool, copy_stream, block);
	return block->copy_stream != NULL;
}

void collet_pinned_release(struct collet_pinned_pool *pool, struct collet_pinned_block *block)
{
	if (!block)
		return;
	pthread_mutex_lock(&pool->lock);
	const bool keep = block->bytes <= COLLET_PINNED_CACHE_BYTES - pool->cached_bytes;
	if (keep) {
		block->next = pool->cached;
		pool->cached = block;
		pool->cached_bytes += block->bytes;
	}
	pthread_mutex_unlock(&pool->lock);
	if (!keep)
		free_block(pool, block);
}
