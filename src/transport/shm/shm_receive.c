/* Receiving: cells are taken in order, and what they say is brought to the first receive.
 *
 * Bytes that were lent are read in slices, so that no call of progress() takes long. After the last one the sender's
 * word is asked: if it has closed meanwhile, its owner may have refilled the buffer and what was read means nothing.
 * Cells come from the peer: each word is loaded once, and is bounded before it is used. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "core/status.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/shm/shm_payload.h"

/* What a settled view holds until release(), in transfer->transport_private[0]. */
enum { HOLDS_NOTHING, HOLDS_UNITS, HOLDS_BULK, HOLDS_TOKEN };

/* Later loads are not satisfied before earlier reads of memory that somebody else may be writing. ThreadSanitizer does
 * not know fences; it is used between threads, which have SHM_DIRECT's handshake instead. */
static inline void fence_reads(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_acquire);
#endif
}

/* ---- Cells -------------------------------------------------------------------------------------------------- */

/* The next cell's stamp; 0 when there is none yet. */
static inline uint64_t next_stamp(const struct shm_conduit *shm, memory_order order)
{
	/* Acquire or stronger, pairing with the store in the peer's publish(). */
	const uint64_t stamp = atomic_load_explicit(&shm_cell_at(shm->in_cells, shm->in_next)->word[0], order);
	return (uint32_t)stamp == (uint32_t)(shm->in_next + 1) ? stamp : 0;
}

static inline const struct shm_cell *next_in(const struct shm_conduit *shm, unsigned after)
{
	return shm_cell_at(shm->in_cells, shm->in_next + after);
}

static inline uint64_t word_of_next(const struct shm_conduit *shm, unsigned word)
{
	return atomic_load_explicit(&next_in(shm, 0)->word[word], memory_order_relaxed);
}

static inline enum shm_kind stamp_kind(uint64_t stamp)
{
	return (enum shm_kind)(stamp >> 32 & 0xff);
}

static inline struct collet_message next_message(const struct shm_conduit *shm, uint64_t stamp)
{
	return (struct collet_message){
		.signature = word_of_next(shm, 1),
		.sequence = word_of_next(shm, 2),
		.bytes = stamp_kind(stamp) == SHM_INLINE ? stamp >> 40 & 0xff : word_of_next(shm, 3),
	};
}

/* Tells the sender, every quarter of a lap, that its cells can be filled again. Nobody waits for one cell: a sender
 * that finds all cells full finds three quarters of them free later. */
static inline void take_cells(struct shm_conduit *shm, unsigned count)
{
	shm->in_next += count;
	if (shm->in_next - shm->in_told < SHM_CELLS / 4)
		return;
	shm->in_told = shm->in_next;
	/* Pairs with the acquire in the peer's has_cell(): the cells have been read. */
	shm_tell(shm, &shm->mine->cells_taken, shm->in_next);
}

static void free_units(struct shm_conduit *shm, unsigned first, unsigned count)
{
	shm->in_units_freed ^= shm_bits(first, count);
	/* Pairs with the acquire in the peer's take_units(): the units have been read. */
	shm_tell(shm, &shm->mine->units_freed, shm->in_units_freed);
}

static void free_bulk(struct shm_conduit *shm, unsigned first, unsigned count)
{
	shm->in_bulk_freed ^= shm_bits(first, count);
	/* Pairs with the acquire in the peer's take_units(): the units have been read. */
	shm_tell(shm, &shm->mine->bulk_freed, shm->in_bulk_freed);
}

static void give_back(struct shm_conduit *shm, uint32_t token)
{
	shm->in_tokens_done ^= (uint64_t)1 << token;
	/* Pairs with the acquire in the peer's collect(): the buffer has been read. */
	shm_tell(shm, &shm->mine->tokens_done, shm->in_tokens_done);
}

static uint32_t fail_nonsense(struct shm_conduit *shm, const char *what)
{
	char name[160];
	(void)collet_fail(COLLET_ERR_TRANSPORT, "shm: %s has written nonsense into shared memory (%s)",
		collet_shm_peer_name(shm, name, sizeof(name)), what);
	return collet_shm_fail(shm, COLLET_ERR_TRANSPORT);
}

/* ---- Settling ----------------------------------------------------------------------------------------------- */

static inline void count_received(struct shm_conduit *shm, const struct collet_transfer *transfer)
{
	shm_count(&shm->conduit.stats.messages_received, 1);
	shm_count(&shm->conduit.stats.bytes_received, transfer->message.bytes);
}

static void settle_first(struct shm_conduit *shm, const void *view, uint64_t holds, uint64_t what)
{
	struct collet_transfer *transfer = shm->receives.first;
	count_received(shm, transfer);
	transfer->view = view;
	transfer->transport_private[0] = holds;
	transfer->transport_private[1] = what;
	collet_transfer_queue_settle(&shm->receives, &shm->conduit, COLLET_OK);
}

static inline bool wants_view(const struct collet_transfer *transfer)
{
	return transfer->flags & COLLET_TRANSFER_VIEW;
}

/* ---- Messages that come in runs of units --------------------------------------------------------------------- */

/* Has the receiver use for the run where it lies, and would it leave enough others for the sender to go on? */
static inline bool may_view(const struct shm_conduit *shm, bool bulk, unsigned first, unsigned count)
{
	if (!wants_view(shm->receives.first))
		return false;
	if (!bulk)
		return first + count <= SHM_PINNABLE_UNITS;
	return shm_find_run(~(shm->in_bulk_viewed | shm_bits(first, count)), SHM_WHOLE_UNITS) >= 0;
}

/* Takes the run that the next cell names. False: it fails the conduit. */
static inline bool take_run(struct shm_conduit *shm, bool bulk)
{
	struct shm_incoming *incoming = &shm->incoming;
	const uint64_t unit = bulk ? SHM_BULK_UNIT_BYTES : SHM_UNIT_BYTES;
	const uint64_t where = word_of_next(shm, 4);
	const uint64_t first = (uint32_t)where, bytes = where >> 32;
	const uint64_t count = (bytes + unit - 1) / unit;
	if (bytes == 0 || bytes > (bulk ? SHM_WHOLE_BYTES : SHM_RUN_BYTES) ||
		first + count > (bulk ? SHM_BULK_UNITS : SHM_UNITS) || bytes > incoming->bytes - incoming->done)
		return false;
	take_cells(shm, 1);
	const unsigned char *run = bulk ? shm->in_bulk[first] : shm->in_units[first];
	struct collet_transfer *transfer = shm->receives.first;
	incoming->done += bytes;
	const bool complete = incoming->done == incoming->bytes;
	if (complete)
		incoming->kind = 0;
	if (!incoming->drop) {
		if (bytes == incoming->bytes && may_view(shm, bulk, (unsigned)first, (unsigned)count)) {
			shm->in_bulk_viewed |= bulk ? shm_bits((unsigned)first, (unsigned)count) : 0;
			settle_first(shm, run, bulk ? HOLDS_BULK : HOLDS_UNITS, first | count << 32);
			return true;
		}
		memcpy((unsigned char *)transfer->data + incoming->done - bytes, run, bytes);
		if (complete)
			settle_first(shm, transfer->data, HOLDS_NOTHING, 0);
	}
	if (bulk)
		free_bulk(shm, (unsigned)first, (unsigned)count);
	else
		free_units(shm, (unsigned)first, (unsigned)count);
	return true;
}

/* True: there was something to take. */
static bool receive_run(struct shm_conduit *shm)
{
	const uint64_t stamp = next_stamp(shm, memory_order_acquire);
	if (!stamp)
		return false;
	if (stamp_kind(stamp) == SHM_MORE && take_run(shm, shm->incoming.kind == SHM_BULK))
		return true;
	(void)fail_nonsense(shm, "the rest of a message is missing");
	return false;
}

/* ---- Messages that stay in the sender's memory ---------------------------------------------------------------- */

/* Has the peer taken its memory back? */
static inline bool peer_closed(const struct shm_conduit *shm)
{
	/* Acquire or stronger, pairing with the store in the peer's take_back(). */
	return atomic_load_explicit(&shm->theirs->closed, memory_order_seq_cst) != 0;
}

static void fail_pull(struct shm_conduit *shm, int error)
{
	char name[160];
	if (peer_closed(shm) || error == ESRCH) {
		(void)collet_shm_lose_peer(shm, error == ESRCH ? "has died while its message was read" :
			"has closed its connection while its message was read");
		return;
	}
	(void)collet_fail(COLLET_ERR_TRANSPORT,
		"shm: reading the memory of %s: %s (COLLET_SHM_ATTACH_MIN=never has nothing read so)",
		collet_shm_peer_name(shm, name, sizeof(name)), error ? strerror(error) : "it is another process now");
	(void)collet_shm_fail(shm, COLLET_ERR_TRANSPORT);
}

/* Reads a piece out of the peer's memory, and with the last one, or each that may be it, its nonce: the process that is
 * read must still be the one that was met. */
static bool pull_piece(struct shm_conduit *shm, struct shm_piece piece)
{
	const struct shm_incoming *incoming = &shm->incoming;
	const uint64_t bytes = piece.bytes;
	const bool last = incoming->shared || piece.at + bytes == incoming->bytes;
	uint64_t nonce = 0;
	struct iovec into[2] = {
		{ (unsigned char *)shm->receives.first->data + piece.at, bytes },
		{ &nonce, sizeof(nonce) },
	};
	struct iovec from[2] = {
		{ (void *)(uintptr_t)(incoming->source + piece.at), bytes },
		{ (void *)(uintptr_t)shm->peer_nonce_address, sizeof(nonce) },
	};
	const size_t whole = bytes + (last ? sizeof(nonce) : 0);
	shm_count(&shm->conduit.stats.system_calls, 1);
	const ssize_t got = process_vm_readv(shm->peer_pid, into, last ? 2 : 1, from, last ? 2 : 1, 0);
	if (got != (ssize_t)whole) {
		fail_pull(shm, got < 0 ? errno : EFAULT);
		return false;
	}
	if (last && nonce != shm->peer_nonce) {
		fail_pull(shm, 0);
		return false;
	}
	return true;
}

static void copy_piece(struct shm_conduit *shm, struct shm_piece piece)
{
	memcpy((unsigned char *)shm->receives.first->data + piece.at, shm->incoming.source + piece.at, piece.bytes);
}

/* Copies a piece from a thread of this process. Its close() waits meanwhile, so that nobody reads a buffer that has
 * gone back to its owner. */
static bool copy_piece_guarded(struct shm_conduit *shm, struct shm_piece piece)
{
	const bool may = collet_shm_touch(shm, shm->in_messages);
	if (may)
		copy_piece(shm, piece);
	collet_shm_touched(shm);
	return may;
}

/* Moves a piece. False: the conduit has failed. */
static bool move_piece(struct shm_conduit *shm, struct shm_piece piece)
{
	switch (shm->incoming.kind) {
	case SHM_PULL:
		return pull_piece(shm, piece);
	case SHM_DIRECT:
		if (copy_piece_guarded(shm, piece))
			return true;
		(void)collet_shm_lose_peer(shm, "has closed its connection while its message was read");
		return false;
	default:
		copy_piece(shm, piece);
		return true;
	}
}

/* Moves the next slice of what this end reads alone. True: that was the last one. */
static bool read_slice(struct shm_conduit *shm)
{
	struct shm_incoming *incoming = &shm->incoming;
	const uint64_t left = incoming->bytes - incoming->done;
	const uint64_t bytes = left < SHM_SLICE_BYTES ? left : SHM_SLICE_BYTES;
	if (!move_piece(shm, (struct shm_piece){ incoming->done, bytes }))
		return false;
	incoming->done += bytes;
	return incoming->done == incoming->bytes;
}

/* Moves pieces of what the sender may move as well, as much as a slice is. True: all of it is there. */
static bool read_shared(struct shm_conduit *shm)
{
	struct shm_piece piece;
	for (uint64_t bytes = 0; bytes < SHM_SLICE_BYTES && collet_shm_take_piece(shm, &piece); bytes += piece.bytes)
		if (!move_piece(shm, piece))
			return false;
	const enum shm_shared shared = collet_shm_shared(shm);
	/* Then all of it is read, from the beginning: done is 0. */
	shm->incoming.shared = shared != SHM_SHARED_FAILED;
	return shared == SHM_SHARED_WHOLE;
}

/* Moves some of the message that is being read. */
static void receive_slice(struct shm_conduit *shm)
{
	struct shm_incoming *incoming = &shm->incoming;
	if (!incoming->drop) {
		if (!(incoming->shared ? read_shared(shm) : read_slice(shm)))
			return;
		fence_reads();
		if (peer_closed(shm)) {
			(void)collet_shm_lose_peer(shm, "has closed its connection while its message was read");
			return;
		}
		settle_first(shm, shm->receives.first->data, HOLDS_NOTHING, 0);
	}
	incoming->kind = 0;
	give_back(shm, incoming->token);
}

/* Begins to read what the next cell names; with a view that is all. */
static void begin_lent(struct shm_conduit *shm)
{
	struct shm_incoming *incoming = &shm->incoming;
	const uint64_t where = word_of_next(shm, 4), word = word_of_next(shm, 5);
	const uint64_t token = word & ~((uint64_t)1 << 32);
	if (token >= SHM_TOKENS || incoming->bytes == 0) {
		(void)fail_nonsense(shm, "a lent buffer's token");
		return;
	}
	if (incoming->kind == SHM_ARENA) {
		const struct collet_arena_map *arena = shm->peer_arena;
		if (!arena || where > arena->bytes || incoming->bytes > arena->bytes - where) {
			(void)fail_nonsense(shm, "a place outside its arena");
			return;
		}
		incoming->source = arena->base + where;
	} else {
		if (incoming->kind == SHM_DIRECT && !shm->same_process) {
			(void)fail_nonsense(shm, "an address for a thread");
			return;
		}
		incoming->source = (const unsigned char *)(uintptr_t)where;
	}
	incoming->token = (uint32_t)token;
	incoming->shared = word != token && incoming->kind != SHM_ARENA && !incoming->drop &&
		shm_offer_of(shm->receives.first) == SHM_OFFER_ADDRESS;
	take_cells(shm, 1);
	if (incoming->kind != SHM_ARENA || incoming->drop || !wants_view(shm->receives.first))
		return;
	if (peer_closed(shm)) {
		(void)collet_shm_lose_peer(shm, "has closed its connection before its message was read");
		return;
	}
	incoming->kind = 0;
	settle_first(shm, incoming->source, HOLDS_TOKEN, token);
}

/* ---- Messages ----------------------------------------------------------------------------------------------- */

/* Takes the cells of an inline message, and its bytes to where they belong, if anywhere. False: it fails the
 * conduit. */
static inline bool take_inline(struct shm_conduit *shm, uint64_t bytes, unsigned char *to)
{
	const unsigned cells = shm_inline_cells(bytes);
	for (unsigned i = 1; i < cells; i++) {
		const uint64_t position = shm->in_next + i;
		/* Relaxed: it was there before the first cell, whose stamp has been acquired. */
		const uint64_t stamp = atomic_load_explicit(&next_in(shm, i)->word[0], memory_order_relaxed);
		if ((uint32_t)stamp != (uint32_t)(position + 1) || stamp_kind(stamp) != SHM_REST) {
			(void)fail_nonsense(shm, "the rest of a message is missing");
			return false;
		}
	}
	if (to) {
		shm_get_bytes(next_in(shm, 0), 3, to, bytes < SHM_CELL_BYTES ? bytes : SHM_CELL_BYTES);
		for (unsigned i = 1; i < cells; i++) {
			const uint64_t at = SHM_CELL_BYTES + (i - 1) * (uint64_t)SHM_REST_BYTES;
			shm_get_bytes(
				next_in(shm, i), 1, to + at, bytes - at < SHM_REST_BYTES ? bytes - at : SHM_REST_BYTES);
		}
	}
	take_cells(shm, cells);
	return true;
}

/* The first receive expected something else: it says what came instead, and the message is dropped. */
static void settle_mismatch(struct shm_conduit *shm, const struct collet_message *came)
{
	shm->receives.first->message = *came;
	collet_transfer_queue_settle(&shm->receives, &shm->conduit, COLLET_ERR_MISMATCH);
}

/* Takes the next cell, a message's first, for the first receive. */
static void begin(struct shm_conduit *shm, uint64_t stamp)
{
	struct shm_incoming *incoming = &shm->incoming;
	const enum shm_kind kind = stamp_kind(stamp);
	const struct collet_message message = next_message(shm, stamp);
	shm->conduit.peer_cpu = (uint32_t)(stamp >> 48);
	const bool matches = collet_message_equal(&message, &shm->receives.first->message);
	shm->in_messages++;
	shm->unanswered = 0;
	if (kind == SHM_INLINE) {
		struct collet_transfer *first = shm->receives.first;
		if (message.bytes > SHM_INLINE_BYTES)
			(void)fail_nonsense(shm, "a cell longer than a cell");
		else if (!take_inline(shm, message.bytes, matches ? first->data : NULL))
			return;
		else if (matches)
			settle_first(shm, first->data, HOLDS_NOTHING, 0);
		else
			settle_mismatch(shm, &message);
		return;
	}
	if (kind == SHM_PUSHED && matches && shm_offer_of(shm->receives.first) == SHM_OFFER_ARENA) {
		take_cells(shm, 1);
		settle_first(shm, shm->receives.first->data, HOLDS_NOTHING, 0);
		return;
	}
	if (!shm_comes_in_runs(kind) && !shm_is_lent(kind)) {
		(void)fail_nonsense(shm, "a message of no known kind");
		return;
	}
	*incoming = (struct shm_incoming){ .kind = kind, .drop = !matches, .bytes = message.bytes };
	if (!matches)
		settle_mismatch(shm, &message);
	if (!shm_comes_in_runs(kind)) {
		begin_lent(shm);
		return;
	}
	if (!take_run(shm, kind == SHM_BULK))
		(void)fail_nonsense(shm, "a run of units");
}

uint32_t collet_shm_receive(struct shm_conduit *shm, bool reads)
{
	const uint32_t before = shm->conduit.posted;
	/* A bounded share of a long message in a call, however fast the peer is: others wait for their turn too. */
	unsigned runs = 0;
	while (shm->conduit.status == COLLET_OK) {
		if (shm_comes_in_runs(shm->incoming.kind)) {
			if (++runs == SHM_RUNS_IN_CALL || !receive_run(shm))
				break;
		} else if (shm->incoming.kind) {
			/* What is only given back costs nothing, and nobody makes progress for it. */
			if (reads || shm->incoming.drop)
				receive_slice(shm);
			break;
		} else {
			const uint64_t stamp = shm->receives.first ? next_stamp(shm, memory_order_acquire) : 0;
			if (!stamp)
				break;
			begin(shm, stamp);
		}
	}
	return before - shm->conduit.posted;
}

void collet_shm_release(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	const uint64_t holds = transfer->transport_private[0], what = transfer->transport_private[1];
	transfer->transport_private[0] = HOLDS_NOTHING;
	if (!shm->segment)
		return;
	if (holds == HOLDS_UNITS)
		free_units(shm, (unsigned)(uint32_t)what, (unsigned)(what >> 32));
	if (holds == HOLDS_BULK) {
		shm->in_bulk_viewed &= ~shm_bits((unsigned)(uint32_t)what, (unsigned)(what >> 32));
		free_bulk(shm, (unsigned)(uint32_t)what, (unsigned)(what >> 32));
	}
	if (holds != HOLDS_TOKEN)
		return;
	fence_reads();
	if (peer_closed(shm)) {
		transfer->status = COLLET_ERR_PEER_LOST;
		if (shm->conduit.status == COLLET_OK)
			(void)collet_shm_lose_peer(shm, "has closed its connection while its message was read");
		return;
	}
	give_back(shm, (uint32_t)what);
}

/* The whole message travels at once, not its first line alone. */
static inline void prefetch_rest(const struct shm_conduit *shm, uint64_t bytes)
{
	for (unsigned i = 1; bytes > SHM_CELL_BYTES && bytes <= SHM_INLINE_BYTES && i < shm_inline_cells(bytes); i++)
		__builtin_prefetch(next_in(shm, i));
}

/* A message that is a single run of units, which the next cell names. */
static bool receive_whole_run(struct shm_conduit *shm, struct collet_transfer *transfer)
{
	const uint64_t where = word_of_next(shm, 4);
	const uint64_t first = (uint32_t)where, bytes = where >> 32;
	const uint64_t count = (bytes + SHM_UNIT_BYTES - 1) / SHM_UNIT_BYTES;
	if (bytes != transfer->message.bytes || bytes == 0 || bytes > SHM_RUN_BYTES || first + count > SHM_UNITS)
		return false;
	take_cells(shm, 1);
	if (wants_view(transfer) && first + count <= SHM_PINNABLE_UNITS) {
		transfer->view = shm->in_units[first];
		transfer->transport_private[0] = HOLDS_UNITS;
		transfer->transport_private[1] = first | count << 32;
		return true;
	}
	memcpy(transfer->data, shm->in_units[first], bytes);
	free_units(shm, (unsigned)first, (unsigned)count);
	return true;
}

/* The sender is ahead of this rank, as a root's or a leaf's are: then the next message has mostly come, too, and its
 * lines travel while this one is worked on. Else the sender is about to write just these lines, and is left alone. */
static inline void fetch_ahead(struct shm_conduit *shm)
{
	if (++shm->prompt < SHM_AHEAD_AFTER)
		return;
	if (shm->prompt == SHM_AHEAD_AFTER) {
		__builtin_prefetch(next_in(shm, 0));
		return;
	}
	const uint64_t stamp = next_stamp(shm, memory_order_relaxed);
	if (!stamp) {
		shm->prompt = 0;
		return;
	}
	__builtin_prefetch(next_in(shm, 1));
	const uint64_t where = word_of_next(shm, 4);
	const uint64_t first = (uint32_t)where, bytes = where >> 32;
	if (stamp_kind(stamp) != SHM_RING || first >= SHM_UNITS || bytes > SHM_AHEAD_BYTES ||
		bytes > (SHM_UNITS - first) * SHM_UNIT_BYTES)
		return;
	for (uint64_t at = 0; at < bytes; at += sizeof(struct shm_cell))
		__builtin_prefetch(shm->in_units[first] + at);
}

enum collet_now collet_shm_receive_now(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	const uint64_t stamp = next_stamp(shm, memory_order_acquire);
	if (conduit->status != COLLET_OK || shm->receives.first || shm->incoming.kind)
		return COLLET_NOW_POST;
	if (!stamp) {
		prefetch_rest(shm, transfer->message.bytes);
		shm->prompt = 0;
		return COLLET_NOW_WAIT;
	}
	const enum shm_kind kind = stamp_kind(stamp);
	if (kind != SHM_INLINE && kind != SHM_RING)
		return COLLET_NOW_POST;
	const struct collet_message message = next_message(shm, stamp);
	if (!collet_message_equal(&message, &transfer->message))
		return COLLET_NOW_POST;
	shm->conduit.peer_cpu = (uint32_t)(stamp >> 48);
	transfer->view = transfer->data;
	transfer->transport_private[0] = HOLDS_NOTHING;
	if (kind == SHM_RING ? !receive_whole_run(shm, transfer) :
		message.bytes > SHM_INLINE_BYTES || !take_inline(shm, message.bytes, transfer->data))
		return COLLET_NOW_POST;
	count_received(shm, transfer);
	shm->in_posted++;
	shm->in_messages++;
	if (!shm->unanswered)  /* else this is the answer, and the sender may wait for ours in turn */
		fetch_ahead(shm);
	shm->unanswered = 0;
	transfer->status = COLLET_OK;
	return COLLET_NOW_DONE;
}

bool collet_shm_has_come(struct collet_conduit *conduit, uint64_t bytes)
{
	const struct shm_conduit *shm = (const struct shm_conduit *)conduit;
	prefetch_rest(shm, bytes);
	return next_stamp(shm, memory_order_relaxed) || shm->incoming.kind || conduit->status != COLLET_OK;
}

bool collet_shm_has_arrived(const struct shm_conduit *shm)
{
	return next_stamp(shm, memory_order_seq_cst) != 0;
}

bool collet_shm_peek(struct collet_conduit *conduit, struct collet_message *message)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	shm->peeked = true;
	if (conduit->status != COLLET_OK)
		return false;
	/* The rest of a message that is being dropped is in the way. */
	if (shm->incoming.kind)
		(void)collet_shm_receive(shm, true);
	const uint64_t stamp =
		conduit->status == COLLET_OK && !shm->incoming.kind ? next_stamp(shm, memory_order_acquire) : 0;
	if (!stamp)
		return false;
	*message = next_message(shm, stamp);
	return true;
}
