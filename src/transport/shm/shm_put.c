/* Puts messages into the receive buffer. A receive in the arena that is posted early enough publishes an RTR (ready to
 * receive) in a slot of shared memory, which says where its bytes belong.
 *
 * A sender that has just made the bytes (COLLET_TRANSFER_IN_CACHE) writes them there through its mapping, while they
 * are in its own cache. The receiver gets only a cell that says so. Where cores share no cache, lines that a peer has
 * just written are slow to fetch and fast to overwrite.
 *
 * The i-th message belongs to the i-th receive. An RTR names the message that the receive expects, so nothing is
 * written for a mismatch. A slot is reused only when its last message has come, so nobody reads a slot that is being
 * written.
 *
 * Before it writes, the sender stores `accessing` and checks whether the peer has closed. A closing end stores `closed`
 * and waits for the other's write to end. */
#include <string.h>

#include "transport/shm/shm_endpoint.h"

static bool access_begin(struct shm_endpoint *shm, uint64_t number)
{
	/* The peer's revoke_access() stores `closed`, then loads `accessing`. Here the order is reversed; all four are
	 * seq_cst. */
	atomic_store_explicit(&shm->mine->accessing, number, memory_order_seq_cst);
	return atomic_load_explicit(&shm->theirs->closed, memory_order_seq_cst) == 0;
}

static void access_end(struct shm_endpoint *shm)
{
	/* Release, pairing with the acquire in the peer's revoke_access(). */
	atomic_store_explicit(&shm->mine->accessing, 0, memory_order_release);
}

/* ---- The receiver ------------------------------------------------------------------------------------------- */

static void fill(struct shm_cell *slot, unsigned word, uint64_t value)
{
	atomic_store_explicit(&slot->word[word], value, memory_order_relaxed);
}

/* True if the sender may write the bytes of a receive. *offset is then where they belong in this rank's arena. */
static bool wants_put(const struct shm_endpoint *shm, const struct collet_transfer *transfer, uint64_t *offset)
{
	const uint64_t bytes = transfer->message.bytes;
	return bytes >= SHM_PUT_MIN && bytes <= SHM_PUT_MAX && !(transfer->flags & COLLET_TRANSFER_VIEW) &&
		shm->is_mapped_by_peer && collet_arena_contains(shm->arena, transfer->data, bytes, offset);
}

void collet_shm_publish_rtr(struct shm_endpoint *shm, struct collet_transfer *transfer)
{
	const uint64_t number = shm->in_posted + 1;
	/* The last message may still be in progress, and its slot is not reused before it is complete. */
	const uint64_t completed_count = shm->in_messages - (shm->incoming.protocol != 0);
	uint64_t offset;
	transfer->transport_private[2] =
		number - completed_count <= SHM_RTR_SLOTS && wants_put(shm, transfer, &offset);
	if (!shm_has_rtr(transfer))
		return;
	struct shm_cell *slot = shm_rtr_slot(shm->out_rtrs, number);
	fill(slot, 1, transfer->message.signature);
	fill(slot, 2, transfer->message.sequence);
	fill(slot, 3, transfer->message.bytes);
	fill(slot, 4, offset);
	/* Release, pairing with the acquire in the peer's rtr_target(): the slot is complete. */
	atomic_store_explicit(&slot->word[0], number, memory_order_release);
}

/* ---- The sender --------------------------------------------------------------------------------------------- */

/* Returns where the peer wants the next message in its arena; NULL if there is no RTR, or it is for another message.
 * The peer's offset is bounded before it is used. */
static unsigned char *rtr_target(const struct shm_endpoint *shm, const struct collet_message *message)
{
	const struct collet_arena_map *arena = shm->peer_arena;
	const uint64_t number = shm->out_messages + 1;
	const struct shm_cell *slot = shm_rtr_slot(shm->in_rtrs, number);
	/* Acquire, pairing with the release in collet_shm_publish_rtr(). */
	if (!arena || atomic_load_explicit(&slot->word[0], memory_order_acquire) != number)
		return NULL;
	uint64_t word[5];
	for (unsigned i = 1; i < 5; i++)
		word[i] = atomic_load_explicit(&slot->word[i], memory_order_relaxed);
	const struct collet_message wanted = { .signature = word[1], .sequence = word[2], .bytes = word[3] };
	if (!collet_message_equal(&wanted, message))
		return NULL;
	return word[4] > arena->bytes || message->bytes > arena->bytes - word[4] ? NULL : arena->base + word[4];
}

bool collet_shm_may_put(const struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	return transfer->flags & COLLET_TRANSFER_IN_CACHE && transfer->message.bytes >= SHM_PUT_MIN &&
		rtr_target(shm, &transfer->message);
}

bool collet_shm_put(struct shm_endpoint *shm)
{
	const struct collet_transfer *transfer = shm->sends.first;
	unsigned char *target =
		access_begin(shm, shm->out_messages + 1) ? rtr_target(shm, &transfer->message) : NULL;
	if (target)
		memcpy(target, transfer->data, transfer->message.bytes);
	access_end(shm);
	if (!target)
		(void)collet_shm_lose_peer(shm, "has closed its connection while a message was written to it");
	return target != NULL;
}
