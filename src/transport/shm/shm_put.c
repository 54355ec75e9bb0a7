/* Puts messages into the receive buffer. A receive that is posted early enough publishes an RTR (ready to receive) in a
 * slot of shared memory, which says where its bytes belong.
 *
 * If that is in the receiver's arena, a sender that has just made the bytes (COLLET_TRANSFER_IN_CACHE) writes them
 * there through its mapping, while they are in its own cache. The receiver gets only a cell that says so. Where cores
 * share no cache, lines that a peer has just written are slow to fetch and fast to overwrite.
 *
 * The i-th message belongs to the i-th receive. An RTR names the message that the receive expects, so nothing is
 * written for a mismatch. A slot is reused only when its last message has come, so nobody reads a slot that is being
 * written.
 *
 * Before it writes, the sender stores `accessing` and checks whether the peer has closed. A closing end stores `closed`
 * and waits for the other's write to end. */
#include <string.h>

#include "transport/shm/shm_endpoint.h"

bool collet_shm_access_begin(struct shm_endpoint *shm, uint64_t number)
{
	/* The peer's revoke_access() stores `closed`, then loads `accessing`. Here the order is reversed; all four are
	 * seq_cst. */
	atomic_store_explicit(&shm->mine->accessing, number, memory_order_seq_cst);
	return atomic_load_explicit(&shm->theirs->closed, memory_order_seq_cst) == 0;
}

void collet_shm_access_end(struct shm_endpoint *shm)
{
	/* Release, pairing with the acquire in the peer's revoke_access(). */
	atomic_store_explicit(&shm->mine->accessing, 0, memory_order_release);
}

/* ---- The receiver ------------------------------------------------------------------------------------------- */

static void fill(struct shm_cell *slot, unsigned word, uint64_t value)
{
	atomic_store_explicit(&slot->word[word], value, memory_order_relaxed);
}

/* Returns the kind of RTR for a receive, and where the sender may write. */
static enum shm_rtr rtr_kind(const struct shm_endpoint *shm, const struct collet_transfer *transfer,
	uint64_t *location)
{
	const uint64_t bytes = transfer->message.bytes;
	if (bytes < SHM_PUT_MIN || transfer->flags & COLLET_TRANSFER_VIEW)
		return SHM_RTR_NONE;
	if (bytes <= SHM_PUT_MAX && shm->is_mapped_by_peer &&
		collet_arena_contains(shm->arena, transfer->data, bytes, location))
		return SHM_RTR_ARENA;
	*location = (uintptr_t)transfer->data;
	return collet_shm_may_coop(shm, bytes) ? SHM_RTR_ADDRESS : SHM_RTR_NONE;
}

void collet_shm_publish_rtr(struct shm_endpoint *shm, struct collet_transfer *transfer)
{
	const uint64_t number = shm->in_posted + 1;
	/* The last message may still be in progress, and its slot is not reused before it is complete. */
	const uint64_t completed_count = shm->in_messages - (shm->incoming.protocol != 0);
	uint64_t location;
	const enum shm_rtr kind =
		number - completed_count <= SHM_RTR_SLOTS ? rtr_kind(shm, transfer, &location) : SHM_RTR_NONE;
	transfer->transport_private[2] = kind;
	if (kind == SHM_RTR_NONE)
		return;
	struct shm_cell *slot = shm_rtr_slot(shm->out_rtrs, number);
	fill(slot, 1, transfer->message.signature);
	fill(slot, 2, transfer->message.sequence);
	fill(slot, 3, transfer->message.bytes);
	fill(slot, 4, location);
	fill(slot, 5, kind);
	fill(slot, 6, shm_coop_word(number, 0));
	fill(slot, 7, shm_coop_word(number, 0));
	/* Release, pairing with the acquire in the peer's collet_shm_match_rtr(): the slot is complete. */
	atomic_store_explicit(&slot->word[0], number, memory_order_release);
}

/* ---- The sender --------------------------------------------------------------------------------------------- */

bool collet_shm_match_rtr(const struct shm_cell *slot, uint64_t number, const struct collet_message *message,
	enum shm_rtr kind, uint64_t *location)
{
	/* Acquire, pairing with the release in collet_shm_publish_rtr(). */
	if (atomic_load_explicit(&slot->word[0], memory_order_acquire) != number)
		return false;
	uint64_t word[6];
	for (unsigned i = 1; i < 6; i++)
		word[i] = atomic_load_explicit(&slot->word[i], memory_order_relaxed);
	const struct collet_message wanted = { .signature = word[1], .sequence = word[2], .bytes = word[3] };
	*location = word[4];
	return collet_message_equal(&wanted, message) && word[5] == kind;
}

/* Returns where the peer wants the next message in its arena; NULL if there is no RTR, or it is for another message.
 * The peer's offset is bounded before it is used. */
static unsigned char *rtr_target(const struct shm_endpoint *shm, const struct collet_message *message)
{
	const struct collet_arena_map *arena = shm->peer_arena;
	const uint64_t number = shm->out_messages + 1;
	uint64_t offset;
	if (!arena || !collet_shm_match_rtr(shm_rtr_slot(shm->in_rtrs, number), number, message, SHM_RTR_ARENA,
		&offset))
		return NULL;
	return offset > arena->bytes || message->bytes > arena->bytes - offset ? NULL : arena->base + offset;
}

bool collet_shm_may_put(const struct shm_endpoint *shm)
{
	const struct collet_transfer *transfer = shm->sends.first;
	return transfer->flags & COLLET_TRANSFER_IN_CACHE && transfer->message.bytes >= SHM_PUT_MIN &&
		rtr_target(shm, &transfer->message);
}

bool collet_shm_put(struct shm_endpoint *shm)
{
	const struct collet_transfer *transfer = shm->sends.first;
	unsigned char *target =
		collet_shm_access_begin(shm, shm->out_messages + 1) ? rtr_target(shm, &transfer->message) : NULL;
	if (target)
		memcpy(target, transfer->data, transfer->message.bytes);
	collet_shm_access_end(shm);
	if (!target)
		(void)collet_shm_lose_peer(shm, "has closed its connection while a message was written to it");
	return target != NULL;
}
