/* Implements collet_mem_alloc: memory of one rank that ranks of the same host can map.
 *
 * One sparse memfd is reserved when the context is created. A peer gets its descriptor once, and from then on an offset
 * names any block in it. Nothing has a name in a file system, so a crash leaves nothing behind, and the size of
 * /dev/shm does not matter. Pages exist only where memory is in use.
 *
 * The list of blocks is known only to this rank and lies outside the arena. So a peer that corrupts the shared memory
 * cannot damage the allocator. */
#ifndef COLLET_TRANSPORT_ARENA_H
#define COLLET_TRANSPORT_ARENA_H

#include <collet/collet.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { COLLET_ARENA_ALIGN = 64 };

/* A mapping of an arena in this process: by its owner, by a thread of the same process that shares the owner's mapping,
 * or by a peer. It is reference-counted, since a thread may still read when the owner's context is gone. */
struct collet_arena_map {
	unsigned char *base;
	size_t bytes;
	atomic_uint refcount;
	uint64_t device, inode;          /* identify the memfd: two endpoints to one peer share a mapping */
	struct collet_arena *owner;      /* the arena whose peer_maps list has it; NULL if none */
	struct collet_arena_map *next;   /* next in that list */
};

struct collet_arena_block {
	size_t offset, bytes;
	bool is_used;
};

struct collet_arena {
	int fd;                          /* the memfd, sealed against shrinking */
	pid_t owner_pid;                 /* the process whose memory it is: a forked child frees no block of it */
	unsigned char *base;
	size_t bytes;                    /* reserved address space */
	struct collet_arena_map *map;
	pthread_mutex_t lock;            /* protects everything below */
	struct collet_arena_block *blocks;  /* sorted by offset, without gaps */
	size_t block_count, block_capacity;
	size_t used_bytes;
	struct collet_arena_map *peer_maps;
};

/* Reserves address space, but no memory, for `reserve` bytes. 0 means the size of the machine's memory, at most 64 GiB,
 * less where the address space is limited. COLLET_ERR_MEMORY, _SYSTEM. */
COLLET_MUST_USE collet_status collet_arena_init(struct collet_arena *arena, size_t reserve);
/* Releases all blocks, and the owner's reference to the mapping. Safe on a zeroed arena and twice. */
void collet_arena_deinit(struct collet_arena *arena);

/* Allocates a zeroed block, aligned to 64 bytes (from 4 KiB: to 4 KiB; from 2 MiB: to 2 MiB). A block of 0 bytes has
 * its own address too. Any thread. COLLET_ERR_MEMORY: the sentence says how much is left. */
COLLET_MUST_USE collet_status collet_arena_alloc(struct collet_arena *arena, void **memory, size_t bytes);
/* Frees a block; NULL is ignored. COLLET_ERR_ARGUMENT if memory is not the start of a block. Large blocks return their
 * pages to the system. In a forked child does nothing: the block is the parent's. Any thread. */
collet_status collet_arena_free(struct collet_arena *arena, void *memory);

/* True if memory is inside the block that starts at block. Any thread. */
bool collet_arena_in_block(struct collet_arena *arena, const void *block, const void *memory);

/* True if [memory, memory + bytes) is inside the arena; *offset is then where. Does not check blocks, and takes no
 * lock. */
static inline bool collet_arena_contains(
	const struct collet_arena *arena, const void *memory, size_t bytes, uint64_t *offset)
{
	/* Wraps to a large value if memory is below base. */
	const uintptr_t first = (uintptr_t)memory - (uintptr_t)arena->base;
	if (first >= arena->bytes || bytes > arena->bytes - first)
		return false;
	*offset = first;
	return true;
}

/* Maps a peer's arena, or takes a reference to a mapping that another endpoint of this context has made. arena is this
 * rank's; NULL: never share. The caller keeps fd. A file that is not a memfd sealed against shrinking is refused, since
 * reading past the end of a file kills the process. */
COLLET_MUST_USE collet_status collet_arena_attach(
	struct collet_arena *arena, int fd, struct collet_arena_map **map);
/* Takes another reference to a mapping that the caller holds. */
void collet_arena_map_ref(struct collet_arena_map *map);
/* Releases a reference. The last one unmaps. */
void collet_arena_map_unref(struct collet_arena_map *map);

#endif
