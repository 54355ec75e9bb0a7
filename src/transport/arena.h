/* The arena behind collet_mem_alloc: memory of one rank that ranks of the same host can map.
 *
 * One sparse memfd is reserved when the context is created and handed to a peer once, as a descriptor; from then on an
 * offset names any block in it. Nothing has a name in a file system, so a crash leaves nothing behind, and the size of
 * /dev/shm does not matter. Pages exist only where memory is in use.
 *
 * Which blocks there are is known to this rank alone, outside the arena: a peer that scribbles into the memory that it
 * was lent cannot hurt the allocator. */
#ifndef COLLET_TRANSPORT_ARENA_H
#define COLLET_TRANSPORT_ARENA_H

#include <collet/collet.h>

#include <pthread.h>
#include <stdatomic.h>

enum { COLLET_ARENA_ALIGN = 64 };

/* An arena as mapped into this process: by its owner, by a thread of the same process that shares the owner's mapping,
 * or by a peer. Counted, since a thread may still read when the owner's context is gone. */
struct collet_arena_map {
	unsigned char *base;
	size_t bytes;
	atomic_uint refcount;
	uint64_t device, inode;          /* of the memfd: two conduits to one peer share a mapping */
	struct collet_arena *owner;      /* in whose list of peers' arenas it is; NULL: in none */
	struct collet_arena_map *next;   /* in that list */
};

struct collet_arena_block {
	size_t offset, bytes;
	bool is_used;
};

struct collet_arena {
	int fd;                          /* the memfd, sealed against shrinking */
	unsigned char *base;
	size_t bytes;                    /* reserved */
	struct collet_arena_map *map;
	pthread_mutex_t lock;            /* of everything below */
	struct collet_arena_block *blocks;  /* by offset, without gaps */
	size_t block_count, block_capacity;
	size_t used_bytes;
	struct collet_arena_map *peer_maps;
};

/* Reserves address space (no memory) for `reserve` bytes; 0: as much as the machine has memory, at most 64 GiB, less
 * where the address space is limited. COLLET_ERR_MEMORY, _SYSTEM. */
COLLET_MUST_USE collet_status collet_arena_init(struct collet_arena *arena, size_t reserve);
/* Forgets all blocks. The mapping goes when its last holder lets go of it. Safe on a zeroed arena and twice. */
void collet_arena_deinit(struct collet_arena *arena);

/* Zeroed, aligned to 64 bytes (4 KiB from 4 KiB on, 2 MiB from 2 MiB on); 0 bytes give a block of their own too. Any
 * thread. COLLET_ERR_MEMORY says how much is left. */
COLLET_MUST_USE collet_status collet_arena_alloc(struct collet_arena *arena, void **memory, size_t bytes);
/* NULL is fine; what is not the start of a block is COLLET_ERR_ARGUMENT. Big blocks give their pages back. Any
 * thread. */
collet_status collet_arena_free(struct collet_arena *arena, void *memory);

/* Is memory inside the block that starts at block? Any thread. */
bool collet_arena_in_block(struct collet_arena *arena, const void *block, const void *memory);

/* Is [memory, memory + bytes) inside the arena? Then *offset is where. Says nothing about blocks; takes no lock. */
static inline bool collet_arena_contains(
	const struct collet_arena *arena, const void *memory, size_t bytes, uint64_t *offset)
{
	const uintptr_t first = (uintptr_t)memory - (uintptr_t)arena->base;  /* wraps to something large when below */
	if (first >= arena->bytes || bytes > arena->bytes - first)
		return false;
	*offset = first;
	return true;
}

/* Maps a peer's arena, or finds it mapped already by another conduit of this context (arena is this rank's;
 * NULL: do not share). fd stays the caller's. What is not a memfd sealed against shrinking is refused, since reading
 * past the end of a file kills. */
COLLET_MUST_USE collet_status collet_arena_attach(
	struct collet_arena *arena, int fd, struct collet_arena_map **map);
/* One more holder of a mapping that the caller holds. */
void collet_arena_map_ref(struct collet_arena_map *map);
void collet_arena_map_unref(struct collet_arena_map *map);

#endif
