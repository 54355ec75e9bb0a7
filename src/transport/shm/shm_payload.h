/* Copies payload into and out of the words of cells.
 *
 * Whole words are copied as such. The last word is assembled from at most three parts, because calling memcpy() for a
 * few bytes costs more than the rest of the copy. */
#ifndef COLLET_TRANSPORT_SHM_SHM_PAYLOAD_H
#define COLLET_TRANSPORT_SHM_SHM_PAYLOAD_H

#include <string.h>

#include "transport/shm/shm_region.h"

/* Returns the number of cells of an inline message of this size. */
static inline unsigned shm_inline_cells(uint64_t bytes)
{
	return bytes <= SHM_CELL_BYTES
		       ? 1
		       : 1 + (unsigned)((bytes - SHM_CELL_BYTES + SHM_NEXT_CELL_BYTES - 1) / SHM_NEXT_CELL_BYTES);
}

/* Loads fewer than 8 bytes into the low end of a word. */
static inline uint64_t shm_load_tail(const unsigned char *from, size_t bytes)
{
	uint64_t word = 0;
	unsigned bits = 0;
	if (bytes & 4) {
		uint32_t part;
		memcpy(&part, from, 4);
		word = part;
		bits = 32;
		from += 4;
	}
	if (bytes & 2) {
		uint16_t part;
		memcpy(&part, from, 2);
		word |= (uint64_t)part << bits;
		bits += 16;
		from += 2;
	}
	if (bytes & 1)
		word |= (uint64_t)*from << bits;
	return word;
}

/* Stores fewer than 8 bytes from the low end of a word. */
static inline void shm_store_tail(unsigned char *to, uint64_t word, size_t bytes)
{
	if (bytes & 4) {
		const uint32_t part = (uint32_t)word;
		memcpy(to, &part, 4);
		word >>= 32;
		to += 4;
	}
	if (bytes & 2) {
		const uint16_t part = (uint16_t)word;
		memcpy(to, &part, 2);
		word >>= 16;
		to += 2;
	}
	if (bytes & 1)
		*to = (unsigned char)word;
}

/* Stores bytes into the words of a cell, starting at `word`. The caller makes sure that they fit. */
static inline void shm_store_bytes(struct shm_cell *cell, unsigned word, const unsigned char *from, size_t bytes)
{
	for (; bytes >= 8; bytes -= 8, from += 8, word++) {
		uint64_t value;
		memcpy(&value, from, 8);
		atomic_store_explicit(&cell->word[word], value, memory_order_relaxed);
	}
	if (bytes)
		atomic_store_explicit(&cell->word[word], shm_load_tail(from, bytes), memory_order_relaxed);
}

/* Loads bytes from the words of a cell, starting at `word`. */
static inline void shm_load_bytes(const struct shm_cell *cell, unsigned word, unsigned char *to, size_t bytes)
{
	for (; bytes >= 8; bytes -= 8, to += 8, word++) {
		const uint64_t value = atomic_load_explicit(&cell->word[word], memory_order_relaxed);
		memcpy(to, &value, 8);
	}
	if (bytes)
		shm_store_tail(to, atomic_load_explicit(&cell->word[word], memory_order_relaxed), bytes);
}

#endif
