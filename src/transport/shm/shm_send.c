/* Sends messages: publishes each as a cell with its bytes beside it, or lets the peer borrow the bytes in place. */
#include <string.h>

#include "core/copy.h"
#include "core/cpu.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/shm/shm_payload.h"

/* ---- Cells -------------------------------------------------------------------------------------------------- */

static inline struct shm_cell *next_cell(struct shm_endpoint *shm)
{
	return shm_cell_at(shm->out_cells, shm->out_next);
}

/* True if this many cells are free. Reads the peer's word only when they seem not to be. */
static inline bool has_cells(struct shm_endpoint *shm, unsigned count)
{
	if (shm->out_next + count - shm->out_consumed <= SHM_CELLS)
		return true;
	/* Acquire, pairing with the release in the peer's shm_consume_cells(): it has read the cells that it frees. An
	 * impossible number is invalid data; it stops this endpoint and nothing else. */
	const uint64_t consumed = atomic_load_explicit(&shm->theirs->cells_consumed, memory_order_acquire);
	if (shm->out_next - consumed >= SHM_CELLS)
		return false;
	shm->out_consumed = consumed;
	return shm->out_next + count - consumed <= SHM_CELLS;
}

/* Publishes the next cell, which is complete except for its stamp. */
static inline void publish(struct shm_endpoint *shm, enum shm_protocol protocol, uint64_t inline_bytes)
{
	const uint64_t stamp = (uint32_t)(shm->out_next + 1) | (uint64_t)protocol << 32 | inline_bytes << 40 |
		(uint64_t)shm->wake->shared_cpu << 48;
	/* Pairs with the acquire in the peer's shm_next_stamp(): cell and payload are complete. */
	shm_publish(shm, &next_cell(shm)->word[0], stamp);
	shm->out_next++;
}

static inline void fill(struct shm_cell *cell, unsigned word, uint64_t value)
{
	atomic_store_explicit(&cell->word[word], value, memory_order_relaxed);
}

static inline void fill_header(struct shm_cell *cell, const struct collet_message *message)
{
	fill(cell, 1, message->signature);
	fill(cell, 2, message->sequence);
}

static void count_sent(struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	shm_count(&shm->endpoint.stats.messages_sent, 1);
	shm_count(&shm->endpoint.stats.bytes_sent, transfer->message.bytes);
}

static void complete_first(struct shm_endpoint *shm)
{
	count_sent(shm, shm->sends.first);
	collet_transfer_queue_complete(&shm->sends, &shm->endpoint, COLLET_OK);
}

/* Prefetches for writing the cells that a message like the one just sent would use, except those that the peer has not
 * read yet. The peer has read the others long ago; this core fetches them back before it writes.
 *
 * Where ranks answer each other, these are the cells of the next message, fetched while this rank waits for its peer. A
 * rank that sends one message after the other does not wait. But each of its stores, and all later ones, waits for a
 * line from the receiver's core. So it prefetches for the message after the next one. */
static inline void prefetchw_next(struct shm_endpoint *shm, unsigned cells)
{
	const bool is_one_way = shm->unanswered >= SHM_ONE_WAY_AFTER;
	shm->unanswered += !is_one_way;
	if (!is_one_way && cells > SHM_PREFETCHW_CELLS)
		return;
	const uint64_t first = shm->out_next + (is_one_way ? cells : 0);
	for (uint64_t cell = first; cell < first + cells; cell++)
		if (cell - shm->out_consumed < SHM_CELLS)
			collet_cpu_prefetch_write(shm_cell_at(shm->out_cells, cell));
}

/* ---- Inline messages ---------------------------------------------------------------------------------------- */

/* Publishes an inline message, for which there are cells. */
static inline void publish_inline(struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	const uint64_t bytes = transfer->message.bytes;
	const unsigned char *from = transfer->data;
	struct shm_cell *cell = next_cell(shm);
	uint64_t position = shm->out_next + 1;
	fill_header(cell, &transfer->message);
	shm_store_bytes(cell, 3, from, bytes < SHM_CELL_BYTES ? bytes : SHM_CELL_BYTES);
	for (uint64_t at = SHM_CELL_BYTES; at < bytes; at += SHM_NEXT_CELL_BYTES, position++) {
		struct shm_cell *next = shm_cell_at(shm->out_cells, position);
		shm_store_bytes(
			next, 1, from + at, bytes - at < SHM_NEXT_CELL_BYTES ? bytes - at : SHM_NEXT_CELL_BYTES);
		fill(next, 0, (uint32_t)(position + 1) | (uint64_t)SHM_NEXT_CELL << 32);
	}
	publish(shm, SHM_INLINE, bytes);
	shm->out_next = position;
	shm->out_messages++;
}

static bool send_inline(struct shm_endpoint *shm)
{
	if (!has_cells(shm, shm_inline_cells(shm->sends.first->message.bytes)))
		return false;
	publish_inline(shm, shm->sends.first);
	complete_first(shm);
	return true;
}

/* ---- Messages in runs of units ------------------------------------------------------------------------------ */

/* Publishes a run that holds `bytes` of the transfer's data from `at` on. */
static inline void publish_run(struct shm_endpoint *shm, const struct collet_transfer *transfer, uint64_t at,
	uint64_t bytes, unsigned first, enum shm_pool_kind kind, bool bypasses_caches)
{
	struct shm_cell *cell = next_cell(shm);
	fill_header(cell, &transfer->message);
	fill(cell, 3, transfer->message.bytes);
	fill(cell, 4, (uint64_t)first | bytes << 32);
	fill(cell, 5, bypasses_caches);
	shm->out_messages += !at;
	publish(shm, at ? SHM_NEXT_RUN : kind == SHM_SMALL_UNITS ? SHM_SMALL_RUN : SHM_LARGE_RUN, 0);
}

static inline void fill_run(struct shm_endpoint *shm, const struct collet_transfer *transfer, uint64_t at,
	uint64_t bytes, unsigned first, enum shm_pool_kind kind)
{
	const struct shm_pool *pool = &shm->pools[kind];
	const unsigned char *from = (const unsigned char *)transfer->data + at;
	/* Where no unit has come back with a message, this end has written these before, and the peer has touched them.
	 * If it is far, that write is still slow, and one past the caches is not. If it is near, its read would be. */
	const bool bypasses_caches = pool->rewrites_slowly && kind == SHM_LARGE_UNITS && !pool->consumed &&
		shm_distance_is_far(&shm->distance);
	collet_copy(shm_pool_address(pool, first), from, bytes, bypasses_caches ? COLLET_COPY_NONTEMPORAL : 0);
	publish_run(shm, transfer, at, bytes, first, kind, bypasses_caches);
}

/* Returns the length of the longest run of a message. What the receiver reduces, it reduces when all of it is there. So
 * that travels in one run, and is reduced in place. */
static inline uint64_t longest_run(const struct collet_transfer *transfer, enum shm_pool_kind kind)
{
	if (kind == SHM_SMALL_UNITS)
		return SHM_SMALL_RUN_BYTES;
	return transfer->flags & COLLET_TRANSFER_CONTIGUOUS ? SHM_LARGE_RUN_BYTES : SHM_COPIED_RUN_BYTES;
}

/* True if a short message may go into large units when the small ones are full. That displaces other data from the
 * caches. But where ranks outnumber cores, each message that can still be sent saves a context switch. */
static inline bool may_spill(const struct shm_endpoint *shm, enum shm_pool_kind kind)
{
	return kind == SHM_SMALL_UNITS && !shm->sent_bytes && shm_is_oversubscribed(shm);
}

/* Sends the next run of the first send. False if there is no room. */
static bool send_run(struct shm_endpoint *shm, enum shm_pool_kind kind)
{
	const struct collet_transfer *transfer = shm->sends.first;
	struct shm_pool *pool = &shm->pools[kind];
	const uint64_t left = transfer->message.bytes - shm->sent_bytes, most = longest_run(transfer, kind);
	uint64_t bytes = left < most ? left : most;
	unsigned units = shm_pool_units(pool, bytes);
	int first = shm_pool_take(shm, pool, units);
	if (first < 0 && may_spill(shm, kind))
		return send_run(shm, SHM_LARGE_UNITS);
	if (first < 0 && transfer->flags & COLLET_TRANSFER_CONTIGUOUS && shm->starved_polls++ < SHM_PATIENCE_POLLS)
		return false;
	while (first < 0 && units > 1) {  /* what is free may be in pieces */
		units /= 2;
		bytes = (uint64_t)units * pool->unit_bytes;
		first = shm_pool_take(shm, pool, units);
	}
	if (first < 0)
		return false;
	shm->starved_polls = 0;
	fill_run(shm, transfer, shm->sent_bytes, bytes, (unsigned)first, kind);
	shm->sent_protocol = kind == SHM_SMALL_UNITS ? SHM_SMALL_RUN : SHM_LARGE_RUN;
	shm->sent_bytes += bytes;
	if (shm->sent_bytes == transfer->message.bytes) {
		shm->sent_bytes = 0;
		complete_first(shm);
		if (kind == SHM_SMALL_UNITS)
			prefetchw_next(shm, 1);
	}
	return true;
}

/* Sends a run back to the peer that it came from. There is a free cell. */
static void return_run(struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	const unsigned char *run = transfer->data;
	const enum shm_pool_kind kind = run >= shm->pools[SHM_LARGE_UNITS].base ? SHM_LARGE_UNITS : SHM_SMALL_UNITS;
	const struct shm_pool *pool = &shm->pools[kind];
	const unsigned first = (unsigned)((size_t)(run - pool->base) / pool->unit_bytes);
	publish_run(shm, transfer, 0, transfer->message.bytes, first, kind, false);
}

/* True if the bytes are a run of the peer's that goes back to it. */
static inline bool is_returned(const struct collet_transfer *transfer)
{
	return transfer->flags & COLLET_TRANSFER_RETURN;
}

/* ---- Messages in this rank's memory ------------------------------------------------------------------------- */

/* Returns the free tokens, given the peer's tokens_done. */
static inline uint64_t free_tokens(const struct shm_endpoint *shm, uint64_t done)
{
	return ~(shm->tokens_used ^ done) & ~shm->tokens_borrowed;
}

/* Lets the peer borrow the buffer of the first send, and release it by its token. location: the offset in the arena,
 * or the address. False if all tokens are in use. */
static bool publish_borrowed(struct shm_endpoint *shm, enum shm_protocol protocol, uint64_t location)
{
	struct collet_transfer *transfer = shm->sends.first;
	const uint64_t free = free_tokens(shm, shm->tokens_done);
	if (!free)
		return false;
	const unsigned token = (unsigned)__builtin_ctzll(free);
	shm->tokens_used ^= (uint64_t)1 << token;
	shm->tokens_borrowed |= (uint64_t)1 << token;
	shm->borrowed[token] = transfer;
	shm->sends.first = transfer->next;
	struct shm_cell *cell = next_cell(shm);
	fill_header(cell, &transfer->message);
	fill(cell, 3, transfer->message.bytes);
	fill(cell, 4, location);
	fill(cell, 5, token);
	shm->out_messages++;
	publish(shm, protocol, 0);
	return true;
}

/* Puts the first send into the peer's receive buffer, and publishes that it is there. False if the endpoint has
 * failed. */
static bool publish_put(struct shm_endpoint *shm)
{
	if (!collet_shm_put(shm))
		return false;
	struct shm_cell *cell = next_cell(shm);
	fill_header(cell, &shm->sends.first->message);
	fill(cell, 3, shm->sends.first->message.bytes);
	shm->out_messages++;
	publish(shm, SHM_PUT, 0);
	complete_first(shm);
	return true;
}

/* ---- The protocol of a message ------------------------------------------------------------------------------ */

/* True if the peer borrows the message in place, in the arena. *offset is then where it is there. */
static inline bool uses_arena(
	const struct shm_endpoint *shm, const struct collet_transfer *transfer, uint64_t *offset)
{
	const uint64_t bytes = transfer->message.bytes;
	const bool is_waiting = transfer->flags & COLLET_TRANSFER_EXCHANGE && !shm_is_oversubscribed(shm);
	return bytes >= (is_waiting ? SHM_ARENA_EXCHANGE_MIN : SHM_ARENA_MIN) && shm->is_mapped_by_peer &&
		collet_arena_contains(shm->arena, transfer->data, bytes, offset);
}

/* True if the peer reads the message in this rank's memory. What it reduces comes in units, and is reduced there. An
 * eager message does not wait for its receiver. Where ranks outnumber cores, the wait would cost context switches. */
static inline bool uses_cma(struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	return shm->is_read_by_peer && transfer->message.bytes >= SHM_CMA_MIN &&
		!(transfer->flags & (COLLET_TRANSFER_CONTIGUOUS | COLLET_TRANSFER_EAGER)) &&
		!shm_is_oversubscribed(shm) &&
		collet_shm_cma_is_readable(shm, transfer->data, transfer->message.bytes);
}

/* Returns the protocol of the first send. *location is then what the cell of a borrowed buffer says. */
static enum shm_protocol protocol_of_first(struct shm_endpoint *shm, uint64_t *location)
{
	const struct collet_transfer *transfer = shm->sends.first;
	const uint64_t bytes = transfer->message.bytes;
	if (shm->sent_bytes)
		return shm->sent_protocol;
	if (bytes <= SHM_INLINE_BYTES)
		return SHM_INLINE;
	if (collet_shm_may_put(shm, transfer))
		return SHM_PUT;
	if (uses_arena(shm, transfer, location))
		return SHM_ARENA;
	if (uses_cma(shm, transfer)) {
		*location = (uintptr_t)transfer->data;
		return SHM_CMA;
	}
	return bytes > SHM_SMALL_RUN_BYTES ? SHM_LARGE_RUN : SHM_SMALL_RUN;
}

/* ---- Sending ------------------------------------------------------------------------------------------------ */

/* Publishes a message that is a run. False if there is no room, or it needs another protocol. */
static inline bool try_send_run(struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	const uint64_t bytes = transfer->message.bytes;
	const enum shm_pool_kind kind = bytes > SHM_SMALL_RUN_BYTES ? SHM_LARGE_UNITS : SHM_SMALL_UNITS;
	struct shm_pool *pool = &shm->pools[kind];
	uint64_t offset;
	if (bytes > longest_run(transfer, kind) || uses_arena(shm, transfer, &offset) ||
		uses_cma(shm, transfer) || collet_shm_may_put(shm, transfer))
		return false;
	const int first = shm_pool_take(shm, pool, shm_pool_units(pool, bytes));
	if (first < 0)
		return false;
	fill_run(shm, transfer, 0, bytes, (unsigned)first, kind);
	if (kind == SHM_SMALL_UNITS)
		prefetchw_next(shm, 1);
	return true;
}

enum collet_try_result collet_shm_try_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	const uint64_t bytes = transfer->message.bytes;
	const bool is_inline = bytes <= SHM_INLINE_BYTES && !is_returned(transfer);
	const unsigned cells = is_inline ? shm_inline_cells(bytes) : 1;
	if (endpoint->status != COLLET_OK || shm->sends.first || !has_cells(shm, cells))
		return COLLET_TRY_POST;
	if (is_inline) {
		publish_inline(shm, transfer);
		prefetchw_next(shm, cells);
	} else if (is_returned(transfer)) {
		return_run(shm, transfer);
	} else if (!try_send_run(shm, transfer)) {
		return COLLET_TRY_POST;
	}
	count_sent(shm, transfer);
	transfer->status = COLLET_OK;
	return COLLET_TRY_DONE;
}

/* Publishes the next part of the first send. False if there was no room. */
static bool send_first(struct shm_endpoint *shm)
{
	uint64_t location = 0;
	if (!has_cells(shm, 1))
		return false;
	if (is_returned(shm->sends.first)) {
		return_run(shm, shm->sends.first);
		complete_first(shm);
		return true;
	}
	const enum shm_protocol protocol = protocol_of_first(shm, &location);
	switch (protocol) {
	case SHM_INLINE:
		return send_inline(shm);
	case SHM_SMALL_RUN:
		return send_run(shm, SHM_SMALL_UNITS);
	case SHM_LARGE_RUN:
		return send_run(shm, SHM_LARGE_UNITS);
	case SHM_PUT:
		return publish_put(shm);
	default:
		return publish_borrowed(shm, protocol, location);
	}
}

void collet_shm_send_some(struct shm_endpoint *shm)
{
	unsigned runs = 0;
	while (shm->sends.first && send_first(shm) && (!shm->sent_bytes || ++runs < SHM_RUNS_PER_CALL))
		;
}

/* Completes the sends whose buffers the peer has released. */
static void complete_released(struct shm_endpoint *shm)
{
	/* Acquire, pairing with the release in the peer's shm_release_token(): it has read the buffers. */
	shm->tokens_done = atomic_load_explicit(&shm->theirs->tokens_done, memory_order_acquire);
	for (uint64_t released = shm->tokens_borrowed & ~(shm->tokens_used ^ shm->tokens_done); released;
		released &= released - 1) {
		const unsigned token = (unsigned)__builtin_ctzll(released);
		struct collet_transfer *transfer = shm->borrowed[token];
		shm->tokens_borrowed &= ~((uint64_t)1 << token);
		shm->borrowed[token] = NULL;
		count_sent(shm, transfer);
		shm->endpoint.posted--;
		transfer->status = COLLET_OK;
	}
}

uint32_t collet_shm_send(struct shm_endpoint *shm)
{
	const uint32_t before = shm->endpoint.posted;
	if (shm->tokens_borrowed)
		complete_released(shm);
	collet_shm_send_some(shm);
	return before - shm->endpoint.posted;
}

/* True if a unit is free, or the peer has returned one. */
static bool has_units(const struct shm_endpoint *shm, enum shm_pool_kind kind)
{
	const struct shm_pool *pool = &shm->pools[kind];
	return pool->free || atomic_load_explicit(&shm->theirs->returned[kind], memory_order_seq_cst) != pool->taken;
}

bool collet_shm_can_send(struct shm_endpoint *shm)
{
	/* Seq_cst: the second half of arm()'s handshake with shm_publish(). */
	const uint64_t done = atomic_load_explicit(&shm->theirs->tokens_done, memory_order_seq_cst);
	const uint64_t consumed = atomic_load_explicit(&shm->theirs->cells_consumed, memory_order_seq_cst);
	const struct collet_transfer *first = shm->sends.first;
	if (shm->tokens_borrowed & ~(shm->tokens_used ^ done))
		return true;
	if (!first || shm->out_next - consumed >= SHM_CELLS)
		return false;
	if (is_returned(first))
		return true;
	uint64_t location;
	switch (protocol_of_first(shm, &location)) {
	case SHM_INLINE:
		return shm->out_next + shm_inline_cells(first->message.bytes) - consumed <= SHM_CELLS;
	case SHM_SMALL_RUN:
		return has_units(shm, SHM_SMALL_UNITS) ||
		       (may_spill(shm, SHM_SMALL_UNITS) && has_units(shm, SHM_LARGE_UNITS));
	case SHM_LARGE_RUN:
		return has_units(shm, SHM_LARGE_UNITS);
	case SHM_PUT:
		return true;
	default:
		return free_tokens(shm, done) != 0;
	}
}
