/* Host memory through which GPU buffers travel: blocks of the arena, so that local ranks map them and copy nothing, and
 * known to the CUDA driver, so that the GPU copies by itself. Both take long to set up: blocks are kept. */
#ifndef COLLET_CUDA_STAGING_PINNED_H
#define COLLET_CUDA_STAGING_PINNED_H

#include <pthread.h>

#include "cuda/driver/copy_stream.h"
#include "transport/arena.h"

struct collet_pinned_block {
	struct collet_pinned_block *next;
	char *memory;
	size_t bytes;
	const struct collet_copy_stream *copy_stream; /* whose context has it registered; NULL: it is ordinary memory */
};

struct collet_pinned_pool {
	const struct collet_cuda *cuda;      /* NULL: there is no pool */
	struct collet_arena *arena;
	const struct collet_log *log;
	pthread_mutex_t lock;
	struct collet_pinned_block *cached;
	size_t cached_bytes;
	struct collet_pinned_block *leaked;  /* that a GPU may use yet, for as long as the process lives */
};

/* What waits for the next call at most; a block beyond it is given back. */
enum { COLLET_PINNED_CACHE_BYTES = 256 << 20 };

void collet_pinned_init(struct collet_pinned_pool *pool, const struct collet_cuda *cuda, struct collet_arena *arena,
	const struct collet_log *log);
/* Before the arena and the copiers go. A zeroed one is fine. false: the driver has some of it yet, so the arena must
 * stay, and what leads to it. */
COLLET_MUST_USE bool collet_pinned_deinit(struct collet_pinned_pool *pool);

/* At least so many bytes, contents undefined. COLLET_ERR_MEMORY. That they cannot be page-locked costs speed alone, and
 * is logged. */
collet_status collet_pinned_acquire(struct collet_pinned_pool *pool, const struct collet_copy_stream *copy_stream,
	size_t bytes, struct collet_pinned_block **block);
/* Of one that is ordinary memory yet, tries again. */
bool collet_pinned_register(struct collet_pinned_pool *pool, const struct collet_copy_stream *copy_stream,
	struct collet_pinned_block *block);
void collet_pinned_release(struct collet_pinned_pool *pool, struct collet_pinned_block *block);
/* A copy of it may be under way that nobody can wait for: it is nobody's any more. NULL is fine, as above. */
void collet_pinned_leak(struct collet_pinned_pool *pool, struct collet_pinned_block *block);

#endif
