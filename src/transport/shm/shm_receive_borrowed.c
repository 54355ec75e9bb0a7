/* Receives messages whose bytes stay in the sender's memory: in its arena, or outside of it (shm_cma.c).
 *
 * The receiver reads the bytes in slices, so that no call of progress() takes long. After the last slice it checks the
 * sender's `closed` word. If the sender has closed meanwhile, its owner may have refilled the buffer, and what was read
 * is discarded. */
#include <string.h>

#include "transport/shm/shm_receive.h"

/* Reads the next slice. True if it was the last one, and the endpoint has not failed. */
static bool read_slice(struct shm_endpoint *shm)
{
	struct shm_incoming *incoming = &shm->incoming;
	const uint64_t left = incoming->bytes - incoming->done_bytes;
	const uint64_t bytes = left < SHM_SLICE_BYTES ? left : SHM_SLICE_BYTES;
	if (incoming->protocol == SHM_ARENA)
		memcpy((unsigned char *)shm->receives.first->data + incoming->done_bytes,
			incoming->source + incoming->done_bytes, bytes);
	else if (!collet_shm_cma_read(shm, incoming->done_bytes, bytes))
		return false;
	incoming->done_bytes += bytes;
	return incoming->done_bytes == incoming->bytes;
}

/* Moves some of the message that is being read. */
void collet_shm_progress_borrowed(struct shm_endpoint *shm)
{
	struct shm_incoming *incoming = &shm->incoming;
	if (!incoming->is_dropped) {
		if (!read_slice(shm))
			return;
		shm_fence_reads();
		if (shm_is_peer_closed(shm)) {
			(void)collet_shm_lose_peer(shm, "has closed its connection while its message was read");
			return;
		}
		shm_complete_first(shm, shm->receives.first->data, SHM_HOLDS_NOTHING, 0);
	}
	incoming->protocol = 0;
	shm_release_token(shm, incoming->token);
}

/* Begins to read what the next cell names; with a view that is all. */
void collet_shm_begin_borrowed(struct shm_endpoint *shm)
{
	struct shm_incoming *incoming = &shm->incoming;
	const uint64_t location = shm_next_cell_word(shm, 4), token = shm_next_cell_word(shm, 5);
	const struct collet_arena_map *arena = shm->peer_arena;
	if (token >= SHM_TOKENS || incoming->bytes == 0) {
		(void)collet_shm_fail_corrupt(shm, "an invalid buffer token");
		return;
	}
	const bool is_cma = incoming->protocol == SHM_CMA;
	if (is_cma && !shm->peer_pid) {
		(void)collet_shm_fail_corrupt(shm, "an address that this rank cannot read");
		return;
	}
	if (!is_cma && (!arena || location > arena->bytes || incoming->bytes > arena->bytes - location)) {
		(void)collet_shm_fail_corrupt(shm, "an address outside its arena");
		return;
	}
	if (is_cma)
		incoming->address = location;
	else
		incoming->source = arena->base + location;
	incoming->token = (uint32_t)token;
	shm_consume_cells(shm, 1);
	if (is_cma || incoming->is_dropped || !shm_wants_view(shm->receives.first))
		return;
	if (shm_is_peer_closed(shm)) {
		(void)collet_shm_lose_peer(shm, "has closed its connection before its message was read");
		return;
	}
	incoming->protocol = 0;
	shm_complete_first(shm, incoming->source, SHM_HOLDS_TOKEN, token);
}
