/* Pushing: a receive that is posted in time tells the sender, in a line of shared memory (an offer), where its bytes
 * belong. If that is in this rank's arena, a sender that has just made them (COLLET_TRANSFER_FRESH) writes them there,
 * through its mapping of the arena, while they are in its own cache. The receiver only finds a cell that says so. Where
 * cores share no cache, lines that a peer has just written are dear to fetch and cheap to overwrite.
 *
 * The i-th message fits the i-th receive. An offer names the message that the receive expects, so nothing is written
 * for a mismatch; a slot is used again only when its last message has come, so nobody reads one that is being written.
 *
 * Before it writes, the sender says so (`touching`) and asks whether the peer has closed; who closes says so and waits
 * for the other's write to end. */
#include <string.h>

#include "transport/shm/shm_endpoint.h"

bool collet_shm_touch(struct shm_conduit *shm, uint64_t number)
{
	/* The peer's take_back() stores `closed`, then loads `touching`; here the other way round, all seq_cst. */
	atomic_store_explicit(&shm->mine->touching, number, memory_order_seq_cst);
	return atomic_load_explicit(&shm->theirs->closed, memory_order_seq_cst) == 0;
}

void collet_shm_touched(struct shm_conduit *shm)
{
	/* Release, pairing with the acquire in the peer's take_back(). */
	atomic_store_explicit(&shm->mine->touching, 0, memory_order_release);
}

/* ---- The receiver ------------------------------------------------------------------------------------------- */

static void fill(struct shm_cell *line, unsigned word, uint64_t value)
{
	atomic_store_explicit(&line->word[word], value, memory_order_relaxed);
}

/* What kind of place it has that the sender may write to. */
static enum shm_offer kind_of_place(const struct shm_conduit *shm, const struct collet_transfer *transfer,
	uint64_t *where)
{
	const uint64_t bytes = transfer->message.bytes;
	if (bytes < SHM_PUSH_MIN || transfer->flags & COLLET_TRANSFER_VIEW)
		return SHM_OFFER_NONE;
	if (bytes <= SHM_PUSH_MAX && shm->peer_maps && collet_arena_contains(shm->arena, transfer->data, bytes, where))
		return SHM_OFFER_ARENA;
	*where = (uintptr_t)transfer->data;
	return collet_shm_may_share(shm, bytes) ? SHM_OFFER_ADDRESS : SHM_OFFER_NONE;
}

void collet_shm_offer(struct shm_conduit *shm, struct collet_transfer *transfer)
{
	const uint64_t number = shm->in_posted + 1;
	/* The message that has come last may still be written, and its line is not used again before it is whole. */
	const uint64_t over = shm->in_messages - (shm->incoming.kind != 0);
	uint64_t where;
	const enum shm_offer kind =
		number - over <= SHM_OFFERS ? kind_of_place(shm, transfer, &where) : SHM_OFFER_NONE;
	transfer->transport_private[2] = kind;
	if (kind == SHM_OFFER_NONE)
		return;
	struct shm_cell *line = shm_offer_line(shm->out_offers, number);
	fill(line, 1, transfer->message.signature);
	fill(line, 2, transfer->message.sequence);
	fill(line, 3, transfer->message.bytes);
	fill(line, 4, where);
	fill(line, 5, kind);
	fill(line, 6, shm_share_word(number, 0));
	fill(line, 7, shm_share_word(number, 0));
	/* Release, pairing with the acquire in the peer's collet_shm_find_offer(): line and place are complete. */
	atomic_store_explicit(&line->word[0], number, memory_order_release);
}

/* ---- The sender --------------------------------------------------------------------------------------------- */

bool collet_shm_find_offer(const struct shm_cell *line, uint64_t number, const struct collet_message *message,
	enum shm_offer kind, uint64_t *where)
{
	/* Acquire, pairing with the release in collet_shm_offer(). */
	if (atomic_load_explicit(&line->word[0], memory_order_acquire) != number)
		return false;
	uint64_t word[6];
	for (unsigned i = 1; i < 6; i++)
		word[i] = atomic_load_explicit(&line->word[i], memory_order_relaxed);
	const struct collet_message wanted = { .signature = word[1], .sequence = word[2], .bytes = word[3] };
	*where = word[4];
	return collet_message_equal(&wanted, message) && word[5] == kind;
}

/* Where the peer wants the next message, in its arena; NULL: it has not said, or this message is another. What it says
 * is bounded before it is used. */
static unsigned char *find_place(const struct shm_conduit *shm, const struct collet_message *message)
{
	const struct collet_arena_map *arena = shm->peer_arena;
	const uint64_t number = shm->out_messages + 1;
	uint64_t offset;
	if (!arena || !collet_shm_find_offer(shm_offer_line(shm->in_offers, number), number, message, SHM_OFFER_ARENA,
		&offset))
		return NULL;
	return offset > arena->bytes || message->bytes > arena->bytes - offset ? NULL : arena->base + offset;
}

bool collet_shm_may_push(const struct shm_conduit *shm)
{
	const struct collet_transfer *transfer = shm->sends.first;
	return transfer->flags & COLLET_TRANSFER_FRESH && transfer->message.bytes >= SHM_PUSH_MIN &&
		find_place(shm, &transfer->message);
}

bool collet_shm_push(struct shm_conduit *shm)
{
	const struct collet_transfer *transfer = shm->sends.first;
	unsigned char *place =
		collet_shm_touch(shm, shm->out_messages + 1) ? find_place(shm, &transfer->message) : NULL;
	if (place)
		memcpy(place, transfer->data, transfer->message.bytes);
	collet_shm_touched(shm);
	if (!place)
		(void)collet_shm_lose_peer(shm, "has closed its connection while a message was written to it");
	return place != NULL;
}
