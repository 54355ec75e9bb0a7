/* Receives messages: consumes cells in order and delivers each message to the first posted receive.
 *
 * Cells are written by the peer. Each word is loaded once, and bounded before it is used. */
#include <string.h>

#include "core/copy.h"
#include "core/status.h"
#include "transport/shm/shm_payload.h"
#include "transport/shm/shm_receive.h"

/* ---- Cells -------------------------------------------------------------------------------------------------- */

static inline enum shm_protocol stamp_kind(uint64_t stamp)
{
	return (enum shm_protocol)(stamp >> 32 & 0xff);
}

static inline struct collet_message next_message(const struct shm_endpoint *shm, uint64_t stamp)
{
	return (struct collet_message){
		.signature = shm_next_cell_word(shm, 1),
		.sequence = shm_next_cell_word(shm, 2),
		.bytes = stamp_kind(stamp) == SHM_INLINE ? stamp >> 40 & 0xff : shm_next_cell_word(shm, 3),
	};
}

/* True if the next cell's run was written past the sender's caches, so that touching its lines gains nothing. */
static inline bool bypassed_caches(const struct shm_endpoint *shm)
{
	return shm_next_cell_word(shm, 5);
}

/* Copies a run to its destination, and takes its units over. */
static inline void copy_run(struct shm_endpoint *shm, struct shm_pool *pool, const struct collet_transfer *transfer,
	uint64_t at, unsigned first, unsigned count, uint64_t bytes, bool touches)
{
	const unsigned flags = (transfer->flags & COLLET_TRANSFER_NONTEMPORAL ? COLLET_COPY_NONTEMPORAL : 0) |
			       (touches && shm_pool_should_touch(pool) ? COLLET_COPY_TOUCH : 0);
	collet_copy((unsigned char *)transfer->data + at, shm_pool_address(pool, first), bytes, flags);
	shm_pool_keep(shm, pool, first, count);
}

/* ---- Messages that come in runs of units -------------------------------------------------------------------- */

/* Consumes the run that the next cell names. False if the cell is invalid; the caller then fails the endpoint. */
static inline bool consume_run(struct shm_endpoint *shm, enum shm_pool_kind kind)
{
	struct shm_incoming *incoming = &shm->incoming;
	struct shm_pool *pool = &shm->pools[kind];
	const uint64_t location = shm_next_cell_word(shm, 4);
	const uint64_t first = (uint32_t)location, bytes = location >> 32;
	const uint64_t count = (bytes + pool->unit_bytes - 1) / pool->unit_bytes;
	const bool touches = !bypassed_caches(shm);
	if (bytes == 0 || count > SHM_RUN_UNITS || first + count > 2 * pool->half ||
		bytes > incoming->bytes - incoming->done_bytes)
		return false;
	shm_consume_cells(shm, 1);
	const unsigned char *run = shm_pool_address(pool, (unsigned)first);
	struct collet_transfer *transfer = shm->receives.first;
	incoming->done_bytes += bytes;
	const bool is_complete = incoming->done_bytes == incoming->bytes;
	if (is_complete)
		incoming->protocol = 0;
	if (!incoming->is_dropped) {
		if (bytes == incoming->bytes && shm_wants_view(transfer) &&
			shm_pool_may_view(pool, (unsigned)first, (unsigned)count)) {
			transfer->flags |= touches ? COLLET_TRANSFER_RETURNABLE : 0;
			shm_complete_first(shm, run, SHM_HOLDS_SMALL_UNITS + kind, first | count << 32);
			return true;
		}
		copy_run(shm, pool, transfer, incoming->done_bytes - bytes, (unsigned)first, (unsigned)count, bytes,
			touches);
		if (is_complete)
			shm_complete_first(shm, transfer->data, SHM_HOLDS_NOTHING, 0);
		return true;
	}
	shm_pool_keep(shm, pool, (unsigned)first, (unsigned)count);
	return true;
}

/* Consumes the next run of the current message. False if it has not come yet, or is invalid. */
static bool receive_next_run(struct shm_endpoint *shm)
{
	const uint64_t stamp = shm_next_stamp(shm, memory_order_acquire);
	if (!stamp)
		return false;
	if (stamp_kind(stamp) == SHM_NEXT_RUN && consume_run(shm, shm_pool_of(shm->incoming.protocol)))
		return true;
	(void)collet_shm_fail_corrupt(shm, "the rest of a message is missing");
	return false;
}

/* ---- Messages ----------------------------------------------------------------------------------------------- */

/* Consumes the cells of an inline message and copies its bytes to `to`, if not NULL. False if a cell is invalid and the
 * endpoint has failed. */
static inline bool receive_inline(struct shm_endpoint *shm, uint64_t bytes, unsigned char *to)
{
	const unsigned cells = shm_inline_cells(bytes);
	for (unsigned i = 1; i < cells; i++) {
		const uint64_t position = shm->in_next + i;
		/* Relaxed: it was written before the first cell, whose stamp has been acquired. */
		const uint64_t stamp = atomic_load_explicit(&shm_cell_after(shm, i)->word[0], memory_order_relaxed);
		if ((uint32_t)stamp != (uint32_t)(position + 1) || stamp_kind(stamp) != SHM_NEXT_CELL) {
			(void)collet_shm_fail_corrupt(shm, "the rest of a message is missing");
			return false;
		}
	}
	if (to) {
		shm_load_bytes(shm_cell_after(shm, 0), 3, to, bytes < SHM_CELL_BYTES ? bytes : SHM_CELL_BYTES);
		for (unsigned i = 1; i < cells; i++) {
			const uint64_t at = SHM_CELL_BYTES + (i - 1) * (uint64_t)SHM_NEXT_CELL_BYTES;
			shm_load_bytes(shm_cell_after(shm, i), 1, to + at,
				bytes - at < SHM_NEXT_CELL_BYTES ? bytes - at : SHM_NEXT_CELL_BYTES);
		}
	}
	shm_consume_cells(shm, cells);
	return true;
}

uint32_t collet_shm_fail_corrupt(struct shm_endpoint *shm, const char *detail)
{
	char name[160];
	(void)collet_fail(COLLET_ERR_TRANSPORT, "shm: %s has written invalid data into shared memory (%s)",
		collet_shm_peer_name(shm, name, sizeof(name)), detail);
	return collet_shm_fail(shm, COLLET_ERR_TRANSPORT);
}

/* Completes the first receive as a mismatch, with the header of the message that came. The message is dropped. */
static void complete_mismatch(struct shm_endpoint *shm, const struct collet_message *actual)
{
	shm->receives.first->message = *actual;
	collet_transfer_queue_complete(&shm->receives, &shm->endpoint, COLLET_ERR_MISMATCH);
}

/* Starts the message whose first cell is next, for the first receive. */
static void begin_message(struct shm_endpoint *shm, uint64_t stamp)
{
	struct shm_incoming *incoming = &shm->incoming;
	const enum shm_protocol protocol = stamp_kind(stamp);
	const struct collet_message message = next_message(shm, stamp);
	shm->endpoint.peer_cpu = (uint32_t)(stamp >> 48);
	const bool matches = collet_message_equal(&message, &shm->receives.first->message);
	shm->in_messages++;
	shm->unanswered = 0;
	if (protocol == SHM_INLINE) {
		struct collet_transfer *first = shm->receives.first;
		if (message.bytes > SHM_INLINE_BYTES)
			(void)collet_shm_fail_corrupt(shm, "an inline message that is too long");
		else if (!receive_inline(shm, message.bytes, matches ? first->data : NULL))
			return;
		else if (matches)
			shm_complete_first(shm, first->data, SHM_HOLDS_NOTHING, 0);
		else
			complete_mismatch(shm, &message);
		return;
	}
	if (protocol == SHM_PUT && matches && shm_has_rtr(shm->receives.first)) {
		shm_consume_cells(shm, 1);
		shm_complete_first(shm, shm->receives.first->data, SHM_HOLDS_NOTHING, 0);
		return;
	}
	if (!shm_uses_runs(protocol) && protocol != SHM_ARENA && protocol != SHM_CMA) {
		(void)collet_shm_fail_corrupt(shm, "a message of unknown type");
		return;
	}
	*incoming = (struct shm_incoming){ .protocol = protocol, .is_dropped = !matches, .bytes = message.bytes };
	if (!matches)
		complete_mismatch(shm, &message);
	if (!shm_uses_runs(protocol)) {
		collet_shm_begin_borrowed(shm);
		return;
	}
	if (!consume_run(shm, shm_pool_of(protocol)))
		(void)collet_shm_fail_corrupt(shm, "an invalid run of units");
}

uint32_t collet_shm_receive(struct shm_endpoint *shm, bool may_read)
{
	const uint32_t before = shm->endpoint.posted;
	/* A call moves a bounded part of a long message, however fast the peer is: others wait for their turn too. */
	unsigned runs = 0;
	while (shm->endpoint.status == COLLET_OK) {
		if (shm_uses_runs(shm->incoming.protocol)) {
			if (++runs == SHM_RUNS_PER_CALL || !receive_next_run(shm))
				break;
		} else if (shm->incoming.protocol) {
			/* A dropped message is only released. That costs nothing, and no posted receive would make
			 * progress for it. */
			if (may_read || shm->incoming.is_dropped)
				collet_shm_progress_borrowed(shm);
			break;
		} else {
			const uint64_t stamp = shm->receives.first ? shm_next_stamp(shm, memory_order_acquire) : 0;
			if (!stamp)
				break;
			begin_message(shm, stamp);
		}
	}
	return before - shm->endpoint.posted;
}

/* Takes over a run that was viewed. */
static void release_run(
	struct shm_endpoint *shm, struct shm_pool *pool, unsigned first, unsigned count, bool is_overwritten)
{
	if (!is_overwritten && shm_pool_should_touch(pool))
		collet_touch(shm_pool_address(pool, first), (uint64_t)count * pool->unit_bytes);
	shm_pool_keep(shm, pool, first, count);
}

void collet_shm_release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	const uint64_t holds = transfer->transport_private[0], detail = transfer->transport_private[1];
	transfer->transport_private[0] = SHM_HOLDS_NOTHING;
	if (!shm->region)
		return;
	if (holds == SHM_HOLDS_SMALL_UNITS || holds == SHM_HOLDS_LARGE_UNITS)
		release_run(shm, &shm->pools[holds - SHM_HOLDS_SMALL_UNITS],
			(unsigned)(uint32_t)detail, (unsigned)(detail >> 32),
			!(transfer->flags & COLLET_TRANSFER_RETURNABLE));
	if (holds != SHM_HOLDS_TOKEN)
		return;
	shm_fence_reads();
	if (shm_is_peer_closed(shm)) {
		transfer->status = COLLET_ERR_PEER_LOST;
		if (shm->endpoint.status == COLLET_OK)
			(void)collet_shm_lose_peer(shm, "has closed its connection while its message was read");
		return;
	}
	shm_release_token(shm, (uint32_t)detail);
}

/* Prefetches the next cells, so that all lines of an inline message travel together. */
static inline void prefetch_next_cells(const struct shm_endpoint *shm, uint64_t bytes)
{
	for (unsigned i = 1; bytes > SHM_CELL_BYTES && bytes <= SHM_INLINE_BYTES && i < shm_inline_cells(bytes); i++)
		__builtin_prefetch(shm_cell_after(shm, i));
}

/* Receives a message that is one run of units, which the next cell names. False if it is anything else. */
static bool try_receive_run(struct shm_endpoint *shm, struct collet_transfer *transfer, enum shm_pool_kind kind)
{
	const uint64_t location = shm_next_cell_word(shm, 4);
	const uint64_t first = (uint32_t)location, bytes = location >> 32;
	struct shm_pool *pool = &shm->pools[kind];
	const uint64_t count = (bytes + pool->unit_bytes - 1) / pool->unit_bytes;
	const bool touches = !bypassed_caches(shm);
	if (bytes != transfer->message.bytes || bytes == 0 || count > SHM_RUN_UNITS || first + count > 2 * pool->half)
		return false;
	shm_consume_cells(shm, 1);
	if (shm_wants_view(transfer) && shm_pool_may_view(pool, (unsigned)first, (unsigned)count)) {
		transfer->view = shm_pool_address(pool, (unsigned)first);
		transfer->flags |= touches ? COLLET_TRANSFER_RETURNABLE : 0;
		transfer->transport_private[0] = SHM_HOLDS_SMALL_UNITS + kind;
		transfer->transport_private[1] = first | count << 32;
		return true;
	}
	copy_run(shm, pool, transfer, 0, (unsigned)first, (unsigned)count, bytes, touches);
	return true;
}

/* Prefetches the next message if the sender is ahead of this rank, as a broadcast's root is. Most of that message has
 * then arrived too, and its lines travel while this one is processed. Otherwise the sender is about to write exactly
 * these lines, and they are left alone. */
static inline void prefetch_next_message(struct shm_endpoint *shm)
{
	if (++shm->early_count < SHM_PREFETCH_AFTER)
		return;
	if (shm->early_count == SHM_PREFETCH_AFTER) {
		__builtin_prefetch(shm_cell_after(shm, 0));
		return;
	}
	const uint64_t stamp = shm_next_stamp(shm, memory_order_relaxed);
	if (!stamp) {
		shm->early_count = 0;
		return;
	}
	__builtin_prefetch(shm_cell_after(shm, 1));
	const uint64_t location = shm_next_cell_word(shm, 4);
	const uint64_t first = (uint32_t)location, bytes = location >> 32;
	if (stamp_kind(stamp) != SHM_SMALL_RUN || bytes > SHM_PREFETCH_BYTES || first >= SHM_SMALL_UNIT_COUNT ||
		bytes > (SHM_SMALL_UNIT_COUNT - first) * SHM_SMALL_UNIT_BYTES)
		return;
	for (uint64_t at = 0; at < bytes; at += sizeof(struct shm_cell))
		__builtin_prefetch(shm_pool_address(&shm->pools[SHM_SMALL_UNITS], (unsigned)first) + at);
}

enum collet_try_result collet_shm_try_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	const uint64_t stamp = shm_next_stamp(shm, memory_order_acquire);
	if (endpoint->status != COLLET_OK || shm->receives.first || shm->incoming.protocol)
		return COLLET_TRY_POST;
	if (!stamp) {
		prefetch_next_cells(shm, transfer->message.bytes);
		shm->early_count = 0;
		return COLLET_TRY_AGAIN;
	}
	const enum shm_protocol protocol = stamp_kind(stamp);
	if (protocol != SHM_INLINE && !shm_uses_runs(protocol))
		return COLLET_TRY_POST;
	const struct collet_message message = next_message(shm, stamp);
	if (!collet_message_equal(&message, &transfer->message))
		return COLLET_TRY_POST;
	shm->endpoint.peer_cpu = (uint32_t)(stamp >> 48);
	transfer->view = transfer->data;
	transfer->transport_private[0] = SHM_HOLDS_NOTHING;
	if (shm_uses_runs(protocol) ? !try_receive_run(shm, transfer, shm_pool_of(protocol)) :
		message.bytes > SHM_INLINE_BYTES || !receive_inline(shm, message.bytes, transfer->data))
		return COLLET_TRY_POST;
	shm_count_received(shm, transfer);
	shm->in_posted++;
	shm->in_messages++;
	if (!shm->unanswered)  /* else this is an answer, and the sender may wait for ours in turn */
		prefetch_next_message(shm);
	shm->unanswered = 0;
	transfer->status = COLLET_OK;
	return COLLET_TRY_DONE;
}

bool collet_shm_is_recv_ready(struct collet_endpoint *endpoint, uint64_t bytes)
{
	const struct shm_endpoint *shm = (const struct shm_endpoint *)endpoint;
	prefetch_next_cells(shm, bytes);
	return shm_next_stamp(shm, memory_order_relaxed) || shm->incoming.protocol || endpoint->status != COLLET_OK;
}

bool collet_shm_has_next_cell(const struct shm_endpoint *shm)
{
	return shm_next_stamp(shm, memory_order_seq_cst) != 0;
}

bool collet_shm_peek(struct collet_endpoint *endpoint, struct collet_message *message)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	shm->is_peeked = true;
	if (endpoint->status != COLLET_OK)
		return false;
	/* The rest of a dropped message comes before the next header. */
	if (shm->incoming.protocol)
		(void)collet_shm_receive(shm, true);
	if (endpoint->status != COLLET_OK || shm->incoming.protocol)
		return false;
	const uint64_t stamp = shm_next_stamp(shm, memory_order_acquire);
	if (!stamp)
		return false;
	*message = next_message(shm, stamp);
	return true;
}
