/* Page-locked host memory through which GPU buffers are staged. Blocks are in the arena, so that ranks of this host can
 * map them, and registered with the CUDA driver, so that the GPU copies by itself. Both take long, so blocks are kept.
 */
#ifndef COLLET_CUDA_STAGING_PINNED_H
#define COLLET_CUDA_STAGING_PINNED_H

#include <pthread.h>

#include "cuda/driver/copy_stream.h"
#include "transport/arena.h"

struct collet_pinned_block {
	struct collet_pinned_block *next;
	char *memory;
	size_t bytes;
	const struct collet_copy_stream
		*copy_stream; /* whose context has it registered; NULL if it is not page-locked */
};

struct collet_pinned_pool {
	const struct collet_cuda *cuda; /* NULL if there is no pool */
	struct collet_arena *arena;
	const struct collet_log *log;
	pthread_mutex_t lock;
	struct collet_pinned_block *cached;
	size_t cached_bytes;
	struct collet_pinned_block *leaked; /* blocks that a GPU may still use; never freed */
};

/* The most bytes that are kept for later calls. */
enum { COLLET_PINNED_CACHE_BYTES = 256 << 20 };

void collet_pinned_init(struct collet_pinned_pool *pool, const struct collet_cuda *cuda, struct collet_arena *arena,
	const struct collet_log *log);
/* Frees the pool, before the arena and the copy streams; a zeroed one is fine. Returns false if the driver still has
 * some of it: the arena must stay then, and what leads to it. */
COLLET_MUST_USE bool collet_pinned_deinit(struct collet_pinned_pool *pool);

/* Acquires at least so many bytes, contents undefined. COLLET_ERR_MEMORY. Memory that cannot be page-locked is logged
 * and used all the same; it is only slower. */
collet_status collet_pinned_acquire(struct collet_pinned_pool *pool, const struct collet_copy_stream *copy_stream,
	size_t bytes, struct collet_pinned_block **block);
/* Tries again to page-lock a block that is not. Returns whether it is now. */
bool collet_pinned_register(struct collet_pinned_pool *pool, const struct collet_copy_stream *copy_stream,
	struct collet_pinned_block *block);
void collet_pinned_release(struct collet_pinned_pool *pool, struct collet_pinned_block *block);
/* Keeps a block for good, since a copy of it may be pending that nobody can wait for. NULL is fine, as above. */
void collet_pinned_leak(struct collet_pinned_pool *pool, struct collet_pinned_block *block);

#endif
