/* Shares the parts of receiving between shm_receive.c, which accepts messages from cells and units, and
 * shm_receive_borrowed.c, which reads messages that stay in the sender's memory. */
#ifndef COLLET_TRANSPORT_SHM_SHM_RECEIVE_H
#define COLLET_TRANSPORT_SHM_SHM_RECEIVE_H

#include "transport/shm/shm_endpoint.h"

/* What a view holds until release_view(), in transfer->transport_private[0]. */
enum { SHM_HOLDS_NOTHING, SHM_HOLDS_SMALL_UNITS, SHM_HOLDS_LARGE_UNITS, SHM_HOLDS_TOKEN };

/* Orders earlier reads of memory that the peer may be writing before later loads. ThreadSanitizer does not know
 * fences. */
static inline void shm_fence_reads(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_acquire);
#endif
}

/* Returns the stamp of the next cell; 0 if it is not filled yet. */
static inline uint64_t shm_next_stamp(const struct shm_endpoint *shm, memory_order order)
{
	/* Acquire or stronger, pairing with the store in the peer's publish() (shm_send.c). */
	const uint64_t stamp = atomic_load_explicit(&shm_cell_at(shm->in_cells, shm->in_next)->word[0], order);
	return (uint32_t)stamp == (uint32_t)(shm->in_next + 1) ? stamp : 0;
}

static inline const struct shm_cell *shm_cell_after(const struct shm_endpoint *shm, unsigned after)
{
	return shm_cell_at(shm->in_cells, shm->in_next + after);
}

static inline uint64_t shm_next_cell_word(const struct shm_endpoint *shm, unsigned word)
{
	return atomic_load_explicit(&shm_cell_after(shm, 0)->word[word], memory_order_relaxed);
}

/* Consumes cells, and tells the sender so every quarter of a lap. No sender waits for a single cell: one that finds all
 * cells full later finds three quarters of them free. */
static inline void shm_consume_cells(struct shm_endpoint *shm, unsigned count)
{
	shm->in_next += count;
	if (shm->in_next - shm->in_reported < SHM_CELLS / 4)
		return;
	shm->in_reported = shm->in_next;
	/* Pairs with the acquire in the peer's has_cells(): the cells have been read. */
	shm_publish(shm, &shm->mine->cells_consumed, shm->in_next);
}

/* Releases a borrowed buffer to the sender. */
static inline void shm_release_token(struct shm_endpoint *shm, uint32_t token)
{
	shm->in_tokens_done ^= (uint64_t)1 << token;
	/* Pairs with the acquire in the peer's complete_released(): the buffer has been read. */
	shm_publish(shm, &shm->mine->tokens_done, shm->in_tokens_done);
}

static inline void shm_count_received(struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	shm_count(&shm->endpoint.stats.messages_received, 1);
	shm_count(&shm->endpoint.stats.bytes_received, transfer->message.bytes);
}

/* Completes the first receive. holds and detail say what release_view() has to release. */
static inline void shm_complete_first(struct shm_endpoint *shm, const void *view, uint64_t holds, uint64_t detail)
{
	struct collet_transfer *transfer = shm->receives.first;
	shm_count_received(shm, transfer);
	transfer->view = view;
	transfer->transport_private[0] = holds;
	transfer->transport_private[1] = detail;
	collet_transfer_queue_complete(&shm->receives, &shm->endpoint, COLLET_OK);
}

static inline bool shm_wants_view(const struct collet_transfer *transfer)
{
	return transfer->flags & COLLET_TRANSFER_VIEW;
}

/* True if the peer has revoked access to its memory. */
static inline bool shm_is_peer_closed(const struct shm_endpoint *shm)
{
	/* Acquire or stronger, pairing with the store in the peer's revoke_access(). */
	return atomic_load_explicit(&shm->theirs->closed, memory_order_seq_cst) != 0;
}

/* shm_receive.c */
/* Fails the endpoint because the peer has written invalid data into shared memory. Returns how many transfers ended. */
uint32_t collet_shm_fail_corrupt(struct shm_endpoint *shm, const char *detail);

/* shm_receive_borrowed.c */
/* Starts the message that the next cell describes. A receive with a view of arena memory completes here. */
void collet_shm_begin_borrowed(struct shm_endpoint *shm);
/* Moves some bytes of the message that is being read. */
void collet_shm_progress_borrowed(struct shm_endpoint *shm);

#endif
