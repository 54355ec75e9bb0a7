/* Implements the arena: reservation of its address space, its blocks, and the mapping of peers' arenas. */
#include "transport/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"

#define PAGE_BYTES ((size_t)4096)
#define HUGE_BYTES ((size_t)2 << 20)
#define RESERVE_MAX ((size_t)64 << 30)
#define RESERVE_MIN ((size_t)64 << 20)
/* A freed block from this size is returned to the system, which zeroes it too. For smaller ones clearing costs less
 * than the page faults of the next use. */
#define PUNCH_HOLE_MIN ((size_t)256 << 10)

/* ---- Reserving ---------------------------------------------------------------------------------------------- */

static size_t default_reserve(void)
{
	size_t reserve = RESERVE_MAX;
	const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
	if (pages > 0 && page_bytes > 0 && (size_t)pages < reserve / (size_t)page_bytes)
		reserve = (size_t)pages * (size_t)page_bytes;
	/* A quarter of a limited address space, because local peers' arenas are mapped too. */
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur / 4 < reserve)
		reserve = (size_t)(limit.rlim_cur / 4);
	return reserve < RESERVE_MIN ? RESERVE_MIN : reserve;
}

/* Maps fd at a multiple of 2 MiB. Returns MAP_FAILED if there is no room. */
static unsigned char *map_aligned(int fd, size_t bytes)
{
	/* Reserve more than needed, map the file into the aligned part, and unmap the ends. */
	unsigned char *room =
		mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return MAP_FAILED;
	const size_t before = (HUGE_BYTES - (uintptr_t)room % HUGE_BYTES) % HUGE_BYTES;
	unsigned char *base =
		mmap(room + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
	if (base == MAP_FAILED) {
		const int error = errno;
		munmap(room, bytes + HUGE_BYTES);
		errno = error;
		return MAP_FAILED;
	}
	if (before)
		munmap(room, before);
	munmap(base + bytes, HUGE_BYTES - before);
	return base;
}

static bool blocks_reserve(struct collet_arena *arena, size_t count)
{
	if (count <= arena->block_capacity)
		return true;
	const size_t capacity = arena->block_capacity ? 2 * arena->block_capacity : 16;
	struct collet_arena_block *blocks = realloc(arena->blocks, capacity * sizeof(*blocks));
	if (!blocks)
		return false;
	arena->blocks = blocks;
	arena->block_capacity = capacity;
	return true;
}

static collet_status reserve_memory(struct collet_arena *arena, size_t reserve)
{
	struct stat file;
	arena->fd = memfd_create("collet-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (arena->fd < 0)
		return collet_fail(
			COLLET_ERR_SYSTEM, "memfd_create: %s; the arena of collet_mem_alloc needs it", strerror(errno));
	if (ftruncate(arena->fd, (off_t)reserve) != 0 || fstat(arena->fd, &file) != 0)
		return collet_fail(COLLET_ERR_MEMORY, "a memfd of %zu bytes for the arena of collet_mem_alloc: %s",
			reserve, strerror(errno));
	if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		return collet_fail(COLLET_ERR_SYSTEM, "sealing the arena's memfd: %s", strerror(errno));
	unsigned char *base = map_aligned(arena->fd, reserve);
	if (base == MAP_FAILED)
		return collet_fail(COLLET_ERR_MEMORY,
			"reserving %zu bytes of address space for the arena of collet_mem_alloc: %s", reserve,
			strerror(errno));
	/* Hints: 2 MiB pages where the system allows them for shared memory, and no gigabytes of arena in core
	 * files. */
	(void)madvise(base, reserve, MADV_HUGEPAGE);
	(void)madvise(base, reserve, MADV_DONTDUMP);
	arena->base = base;
	arena->bytes = reserve;
	struct collet_arena_map *map = calloc(1, sizeof(*map));
	if (!map) {
		munmap(base, reserve);
		arena->base = NULL;
		arena->bytes = 0;
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the arena's description");
	}
	map->base = base;
	map->bytes = reserve;
	map->device = file.st_dev;
	map->inode = file.st_ino;
	atomic_init(&map->refcount, 1);
	arena->map = map;
	if (!blocks_reserve(arena, 1))
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the arena's list of blocks");
	arena->blocks[0] = (struct collet_arena_block){ .offset = 0, .bytes = reserve, .is_used = false };
	arena->block_count = 1;
	return COLLET_OK;
}

collet_status collet_arena_init(struct collet_arena *arena, size_t reserve)
{
	size_t want = reserve ? reserve : default_reserve();
	if (want > (size_t)INT64_MAX / 2)
		return collet_fail(COLLET_ERR_MEMORY, "an arena of %zu bytes is more than can be addressed", want);
	want = (want + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	for (;;) {
		*arena = (struct collet_arena){ .fd = -1, .owner_pid = getpid() };
		const int error = pthread_mutex_init(&arena->lock, NULL);
		if (error)
			return collet_fail(COLLET_ERR_SYSTEM, "pthread_mutex_init: %s", strerror(error));
		const collet_status status = reserve_memory(arena, want);
		if (status == COLLET_OK)
			return COLLET_OK;
		collet_arena_deinit(arena);
		/* A default that is too large is this library's own guess, so it is halved. */
		if (reserve || status != COLLET_ERR_MEMORY || want / 2 < RESERVE_MIN)
			return status;
		want = want / 2 / HUGE_BYTES * HUGE_BYTES;
	}
}

void collet_arena_deinit(struct collet_arena *arena)
{
	if (!arena->bytes && !arena->map && arena->fd <= 0)
		return;
	if (arena->map)
		collet_arena_map_unref(arena->map);
	if (arena->fd >= 0)
		close(arena->fd);
	free(arena->blocks);
	/* A thread that the child does not have may hold it. */
	if (arena->owner_pid == getpid())
		pthread_mutex_destroy(&arena->lock);
	*arena = (struct collet_arena){ .fd = -1 };
}

/* ---- Blocks ------------------------------------------------------------------------------------------------- */

static size_t alignment_of(size_t bytes)
{
	return bytes >= HUGE_BYTES ? HUGE_BYTES : bytes >= PAGE_BYTES ? PAGE_BYTES : COLLET_ARENA_ALIGN;
}

static size_t round_up(size_t value, size_t multiple)
{
	return (value + multiple - 1) / multiple * multiple;
}

/* Inserts a block at index. The caller has reserved room for it. */
static void insert_block(struct collet_arena *arena, size_t index, struct collet_arena_block block)
{
	memmove(&arena->blocks[index + 1], &arena->blocks[index], (arena->block_count - index) * sizeof(block));
	arena->blocks[index] = block;
	arena->block_count++;
}

static void remove_block(struct collet_arena *arena, size_t index)
{
	arena->block_count--;
	memmove(&arena->blocks[index], &arena->blocks[index + 1],
		(arena->block_count - index) * sizeof(arena->blocks[0]));
}

/* Marks [offset, offset + bytes) of the free block at index as used, and keeps the rest as free blocks. */
static void split_block(struct collet_arena *arena, size_t index, size_t offset, size_t bytes)
{
	const struct collet_arena_block whole = arena->blocks[index];
	const size_t before = offset - whole.offset, after = whole.bytes - before - bytes;
	arena->blocks[index] = (struct collet_arena_block){ offset, bytes, true };
	if (after)
		insert_block(arena, index + 1, (struct collet_arena_block){ offset + bytes, after, false });
	if (before)
		insert_block(arena, index, (struct collet_arena_block){ whole.offset, before, false });
}

/* Allocates a block by first fit: there are few blocks, and low addresses keep the page tables small. */
static bool alloc_block(struct collet_arena *arena, size_t bytes, size_t alignment, size_t *offset)
{
	if (!blocks_reserve(arena, arena->block_count + 2))
		return false;
	for (size_t i = 0; i < arena->block_count; i++) {
		const struct collet_arena_block *block = &arena->blocks[i];
		const size_t start = round_up(block->offset, alignment), skipped = start - block->offset;
		if (block->is_used || skipped > block->bytes || block->bytes - skipped < bytes)
			continue;
		split_block(arena, i, start, bytes);
		arena->used_bytes += bytes;
		*offset = start;
		return true;
	}
	return false;
}

collet_status collet_arena_alloc(struct collet_arena *arena, void **memory, size_t bytes)
{
	size_t offset;
	if (bytes > arena->bytes)
		return collet_fail(COLLET_ERR_MEMORY, "collet_mem_alloc of %zu bytes: the whole arena has %zu", bytes,
			arena->bytes);
	/* Blocks of a page or more own whole pages, so that freeing can return them. */
	const size_t rounded = round_up(bytes ? bytes : 1, bytes >= PAGE_BYTES ? PAGE_BYTES : COLLET_ARENA_ALIGN);
	pthread_mutex_lock(&arena->lock);
	const bool allocated = alloc_block(arena, rounded, alignment_of(bytes), &offset);
	const size_t used = arena->used_bytes;
	pthread_mutex_unlock(&arena->lock);
	if (!allocated)
		return collet_fail(COLLET_ERR_MEMORY,
			"collet_mem_alloc of %zu bytes: no gap of that size, %zu of the arena's %zu bytes are in use",
			bytes, used, arena->bytes);
	*memory = arena->base + offset;
	return COLLET_OK;
}

/* Zeroes a block that is freed: every free block reads as zeros. */
static void zero_block(const struct collet_arena *arena, const struct collet_arena_block *block)
{
	if (block->bytes >= PUNCH_HOLE_MIN && fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)block->offset, (off_t)block->bytes) == 0)
		return;
	memset(arena->base + block->offset, 0, block->bytes);
}

/* Returns the index of the used block that starts at offset; block_count if there is none. */
static size_t find_block(const struct collet_arena *arena, size_t offset)
{
	size_t first = 0, count = arena->block_count;
	while (count > 0) {
		const size_t half = count / 2;
		if (arena->blocks[first + half].offset < offset) {
			first += half + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	const bool found =
		first < arena->block_count && arena->blocks[first].offset == offset && arena->blocks[first].is_used;
	return found ? first : arena->block_count;
}

static void merge_with_next(struct collet_arena *arena, size_t index)
{
	if (index + 1 >= arena->block_count || arena->blocks[index].is_used || arena->blocks[index + 1].is_used)
		return;
	arena->blocks[index].bytes += arena->blocks[index + 1].bytes;
	remove_block(arena, index + 1);
}

collet_status collet_arena_free(struct collet_arena *arena, void *memory)
{
	uint64_t offset;
	if (!memory)
		return COLLET_OK;
	if (!collet_arena_contains(arena, memory, 1, &offset))
		return collet_fail(
			COLLET_ERR_ARGUMENT, "collet_mem_free of %p, which collet_mem_alloc did not give", memory);
	/* The memory is shared with the parent, and a thread that holds the lock there does not exist here. */
	if (arena->owner_pid != getpid())
		return COLLET_OK;
	pthread_mutex_lock(&arena->lock);
	const size_t index = find_block(arena, (size_t)offset);
	const bool found = index < arena->block_count;
	if (found) {
		zero_block(arena, &arena->blocks[index]);
		arena->used_bytes -= arena->blocks[index].bytes;
		arena->blocks[index].is_used = false;
		merge_with_next(arena, index);
		if (index > 0)
			merge_with_next(arena, index - 1);
	}
	pthread_mutex_unlock(&arena->lock);
	if (!found)
		return collet_fail(
			COLLET_ERR_ARGUMENT, "collet_mem_free of %p, which is not the start of a block in use", memory);
	return COLLET_OK;
}

/* ---- Peers' arenas ------------------------------------------------------------------------------------------ */

bool collet_arena_in_block(struct collet_arena *arena, const void *block, const void *memory)
{
	uint64_t first, offset;
	if (!collet_arena_contains(arena, block, 1, &first) || !collet_arena_contains(arena, memory, 1, &offset))
		return false;
	pthread_mutex_lock(&arena->lock);
	const size_t index = find_block(arena, (size_t)first);
	const bool is_inside =
		index < arena->block_count && offset >= first && offset - first < arena->blocks[index].bytes;
	pthread_mutex_unlock(&arena->lock);
	return is_inside;
}

static struct collet_arena_map *find_peer_map(struct collet_arena *arena, const struct stat *file)
{
	for (struct collet_arena_map *map = arena->peer_maps; map; map = map->next)
		if (map->device == file->st_dev && map->inode == file->st_ino)
			return map;
	return NULL;
}

static collet_status map_peer_arena(int fd, const struct stat *file, struct collet_arena_map **result)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || file->st_size <= 0)
		return collet_fail(COLLET_ERR_TRANSPORT, "a peer's arena is not a sealed memfd");
	struct collet_arena_map *map = calloc(1, sizeof(*map));
	if (!map)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the description of a peer's arena");
	const size_t bytes = (size_t)file->st_size;
	unsigned char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (base == MAP_FAILED) {
		free(map);
		return collet_fail(
			COLLET_ERR_MEMORY, "mapping a peer's arena of %zu bytes: %s", bytes, strerror(errno));
	}
	(void)madvise(base, bytes, MADV_HUGEPAGE);
	(void)madvise(base, bytes, MADV_DONTDUMP);
	map->base = base;
	map->bytes = bytes;
	map->device = file->st_dev;
	map->inode = file->st_ino;
	atomic_init(&map->refcount, 1);
	*result = map;
	return COLLET_OK;
}

collet_status collet_arena_attach(struct collet_arena *arena, int fd, struct collet_arena_map **result)
{
	struct stat file;
	if (fstat(fd, &file) != 0)
		return collet_fail(COLLET_ERR_SYSTEM, "fstat of a peer's arena: %s", strerror(errno));
	if (!arena)
		return map_peer_arena(fd, &file, result);
	pthread_mutex_lock(&arena->lock);
	collet_status status = COLLET_OK;
	struct collet_arena_map *map = find_peer_map(arena, &file);
	if (map) {
		collet_arena_map_ref(map);
	} else {
		status = map_peer_arena(fd, &file, &map);
		if (status == COLLET_OK) {
			map->owner = arena;
			map->next = arena->peer_maps;
			arena->peer_maps = map;
		}
	}
	pthread_mutex_unlock(&arena->lock);
	if (status == COLLET_OK)
		*result = map;
	return status;
}

void collet_arena_map_ref(struct collet_arena_map *map)
{
	/* Relaxed: the caller's reference keeps it alive. */
	atomic_fetch_add_explicit(&map->refcount, 1, memory_order_relaxed);
}

static void unlink_peer_map(struct collet_arena *arena, const struct collet_arena_map *map)
{
	for (struct collet_arena_map **link = &arena->peer_maps; *link; link = &(*link)->next)
		if (*link == map) {
			*link = map->next;
			return;
		}
}

void collet_arena_map_unref(struct collet_arena_map *map)
{
	struct collet_arena *list = map->owner;
	/* Under the list's lock, so that attach never finds a mapping whose last reference is being released. */
	if (list)
		pthread_mutex_lock(&list->lock);
	/* Release: this holder's reads are over. Acquire, pairing with the others' release: their reads are over before
	 * the unmap. */
	const bool is_last = atomic_fetch_sub_explicit(&map->refcount, 1, memory_order_acq_rel) == 1;
	if (is_last && list)
		unlink_peer_map(list, map);
	if (list)
		pthread_mutex_unlock(&list->lock);
	if (!is_last)
		return;
	munmap(map->base, map->bytes);
	free(map);
}
