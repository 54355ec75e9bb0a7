/* Sends messages: publishes each as a cell with its bytes beside it, or lets the peer borrow the bytes in place. */
#include <string.h>

#include "core/cpu.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/shm/shm_payload.h"

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
	count_sent(shm, transfer);
}

static bool send_inline(struct shm_endpoint *shm)
{
	if (!has_cells(shm, shm_inline_cells(shm->sends.first->message.bytes)))
		return false;
	publish_inline(shm, shm->sends.first);
	collet_transfer_queue_complete(&shm->sends, &shm->endpoint, COLLET_OK);
	return true;
}

/* Allocates a run of units; -1 if none is free. */
static inline int alloc_units(struct shm_endpoint *shm, bool is_bulk, unsigned count)
{
	uint64_t *used = is_bulk ? &shm->out_bulk_used : &shm->out_units_used;
	uint64_t *freed = is_bulk ? &shm->out_bulk_freed : &shm->out_units_freed;
	const uint64_t all = shm_bits(0, is_bulk ? SHM_BULK_UNITS : SHM_UNITS);
	int first = shm_find_run(~(*used ^ *freed) & all, count);
	if (first < 0) {
		/* Acquire, pairing with the release in the peer's free_units() or free_bulk(): it has read the units
		 * that it frees. */
		*freed = atomic_load_explicit(
			is_bulk ? &shm->theirs->bulk_freed : &shm->theirs->units_freed, memory_order_acquire);
		first = shm_find_run(~(*used ^ *freed) & all, count);
	}
	if (first >= 0)
		*used ^= shm_bits((unsigned)first, count);
	return first;
}

/* True if the message is sent as one run of bulk units. */
static inline bool is_contiguous(const struct collet_transfer *transfer)
{
	const uint64_t bytes = transfer->message.bytes;
	return transfer->flags & COLLET_TRANSFER_CONTIGUOUS && bytes > SHM_RUN_BYTES && bytes <= SHM_CONTIGUOUS_BYTES;
}

/* Returns how many bytes of the first send go into the next run. */
static inline uint64_t run_bytes(const struct shm_endpoint *shm, bool is_bulk)
{
	const uint64_t all = shm->sends.first->message.bytes, left = all - shm->sent_bytes;
	const uint64_t most = !is_bulk ? SHM_RUN_BYTES :
		is_contiguous(shm->sends.first) ? SHM_CONTIGUOUS_BYTES :
		all >= SHM_LONG_BYTES ? SHM_BULK_RUN_BYTES : SHM_BULK_RUN_BYTES / 2;
	return left < most ? left : most;
}

static inline unsigned run_units(const struct shm_endpoint *shm, bool is_bulk)
{
	const uint64_t unit = is_bulk ? SHM_BULK_UNIT_BYTES : SHM_UNIT_BYTES;
	return (unsigned)((run_bytes(shm, is_bulk) + unit - 1) / unit);
}

static inline uint64_t free_units(const struct shm_endpoint *shm, uint64_t freed)
{
	return ~(shm->out_units_used ^ freed) & shm_bits(0, SHM_UNITS);
}

/* Prefetches cells for writing, except those that the peer has not read yet. */
static inline void prefetchw_cells(struct shm_endpoint *shm, uint64_t first, unsigned cells)
{
	for (uint64_t cell = first; cell < first + cells; cell++)
		if (cell - shm->out_consumed < SHM_CELLS)
			collet_cpu_prefetch_write(shm_cell_at(shm->out_cells, cell));
}

/* Prefetches for writing the run that the next message of this size would use, or the one after it. */
static inline void prefetchw_run(struct shm_endpoint *shm, uint64_t bytes, bool skips_next)
{
	const unsigned count = (unsigned)((bytes + SHM_UNIT_BYTES - 1) / SHM_UNIT_BYTES);
	uint64_t free = free_units(shm, shm->out_units_freed);
	int first = shm_find_run(free, count);
	if (first >= 0 && skips_next)
		first = shm_find_run(free &= ~shm_bits((unsigned)first, count), count);
	if (first < 0)
		return;
	unsigned char *const run = shm->out_units[first];
	for (uint64_t at = 0; at < bytes; at += sizeof(struct shm_cell))
		collet_cpu_prefetch_write(run + at);
}

/* Prefetches for writing what a message like the one just sent would use: its cells and its bytes in units. The peer
 * has read these lines long ago; this core fetches them back before it writes.
 *
 * Where ranks answer each other, these are the lines of the next message, fetched while this rank waits for its peer:
 * the cells of a message in a few cells, or the units of one in units. A rank that sends one message after the other
 * does not wait. But each of its stores, and all later ones, waits for a line from the receiver's core. So it
 * prefetches for the message after the next one: up to a unit's bytes, with its cells. */
static inline void prefetchw_next(struct shm_endpoint *shm, unsigned cells, uint64_t bytes)
{
	const bool is_one_way = shm->unanswered >= SHM_ONE_WAY_AFTER;
	shm->unanswered += !is_one_way;
	if (is_one_way ? bytes <= SHM_UNIT_BYTES : !bytes && cells <= SHM_PREFETCHW_CELLS)
		prefetchw_cells(shm, shm->out_next + (is_one_way ? cells : 0), cells);
	if (bytes && bytes <= SHM_PREFETCHW_BYTES)
		prefetchw_run(shm, bytes, is_one_way);
}

/* Fills a run with `bytes` of the transfer's data from `at` on, and publishes it. */
static inline void publish_run(struct shm_endpoint *shm, const struct collet_transfer *transfer, uint64_t at,
	uint64_t bytes, unsigned first, bool is_bulk)
{
	/* Plain stores: with non-temporal stores the reader takes 2 to 3 times as long where the cores share a cache,
	 * and no less time elsewhere (measured). */
	memcpy(is_bulk ? shm->out_bulk[first] : shm->out_units[first], (const unsigned char *)transfer->data + at,
		bytes);
	struct shm_cell *cell = next_cell(shm);
	fill_header(cell, &transfer->message);
	fill(cell, 3, transfer->message.bytes);
	fill(cell, 4, (uint64_t)first | bytes << 32);
	shm->out_messages += !at;
	publish(shm, at ? SHM_NEXT_RUN : is_bulk ? SHM_BULK : SHM_RING, 0);
}

/* Sends the next run of the first send. False if there is no room. */
static inline bool send_run(struct shm_endpoint *shm, bool is_bulk)
{
	struct collet_transfer *transfer = shm->sends.first;
	const uint64_t bytes = run_bytes(shm, is_bulk);
	const int first = alloc_units(shm, is_bulk, run_units(shm, is_bulk));
	if (first < 0)
		return false;
	publish_run(shm, transfer, shm->sent_bytes, bytes, (unsigned)first, is_bulk);
	shm->sent_protocol = is_bulk ? SHM_BULK : SHM_RING;
	shm->sent_bytes += bytes;
	if (shm->sent_bytes == transfer->message.bytes) {
		shm->sent_bytes = 0;
		complete_first(shm);
		if (!is_bulk)
			prefetchw_next(shm, 1, bytes);
	}
	return true;
}

/* Returns the free tokens, given the peer's tokens_done. */
static inline uint64_t free_tokens(const struct shm_endpoint *shm, uint64_t done)
{
	return ~(shm->tokens_used ^ done) & ~shm->tokens_borrowed;
}

/* Lets the peer borrow the buffer of the first send, and release it by its token. False if all tokens are in use. */
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
	const bool is_coop = !(transfer->flags & COLLET_TRANSFER_EXCHANGE) &&
		collet_shm_may_coop_write(shm, protocol, transfer->message.bytes);
	fill(cell, 5, token | (uint64_t)is_coop << 32);
	shm->out_messages++;
	shm->tokens_coop = (shm->tokens_coop & ~((uint64_t)1 << token)) | (uint64_t)is_coop << token;
	transfer->transport_private[0] = shm->out_messages;
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

/* True if the sender continues in the bulk units when the units are full. So many more messages displace other data
 * from the caches. But where ranks outnumber cores, each message that can still be sent saves a context switch. */
static inline bool may_spill_to_bulk(const struct shm_endpoint *shm)
{
	return shm_is_oversubscribed(shm);
}

static inline bool fits_in_units(uint64_t free, uint64_t bytes)
{
	return (unsigned)__builtin_popcountll(free) * (uint64_t)SHM_UNIT_BYTES >= bytes;
}

/* Returns the free units for the first send. Reads the peer's word if they seem too few. */
static inline uint64_t free_units_for_first(struct shm_endpoint *shm)
{
	const uint64_t bytes = shm->sends.first->message.bytes;
	const uint64_t free = free_units(shm, shm->out_units_freed);
	if (!may_spill_to_bulk(shm) || shm->sent_bytes || bytes >= shm->bulk_min || fits_in_units(free, bytes))
		return free;
	/* Acquire, as in alloc_units(). */
	shm->out_units_freed = atomic_load_explicit(&shm->theirs->units_freed, memory_order_acquire);
	return free_units(shm, shm->out_units_freed);
}

static inline bool sends_exchange(const struct collet_transfer *transfer)
{
	return transfer->flags & COLLET_TRANSFER_EXCHANGE;
}

/* True if the tuning may choose CMA for this message. Never for eager sends, whose sender wants them completed soon. */
static inline bool is_tuned_send(const struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	return transfer->message.bytes >= SHM_TUNED_MIN && shm->is_tuned && shm->is_read_by_peer &&
		!(transfer->flags & COLLET_TRANSFER_EAGER);
}

static inline bool uses_cma(const struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	return (transfer->message.bytes >= shm->attach_min && shm->is_read_by_peer) ||
		(is_tuned_send(shm, transfer) && shm->cma_classes[shm_call_class(transfer)]);
}

/* True if the peer borrows the message in place, in the arena. *location is then its offset there. */
static inline bool uses_arena(
	const struct shm_endpoint *shm, const struct collet_transfer *transfer, uint64_t *location)
{
	const uint64_t bytes = transfer->message.bytes;
	const bool is_waiting = sends_exchange(transfer) && !shm_is_oversubscribed(shm);
	const uint64_t arena_min =
		is_waiting && shm->arena_min > SHM_ARENA_EXCHANGE_MIN ? SHM_ARENA_EXCHANGE_MIN : shm->arena_min;
	return bytes >= arena_min && shm->is_mapped_by_peer &&
		collet_arena_contains(shm->arena, transfer->data, bytes, location);
}

static_assert(SHM_TUNED_MIN <= SHM_RUN_BYTES, "collet_shm_try_send() sends a single run");

/* Returns the protocol of the first send, given the free units. *location is then what the cell of a borrowed buffer
 * says. */
static enum shm_protocol protocol_of_first(const struct shm_endpoint *shm, uint64_t units_free, uint64_t *location)
{
	const struct collet_transfer *transfer = shm->sends.first;
	const uint64_t bytes = transfer->message.bytes;
	if (shm->sent_bytes)
		return shm->sent_protocol;
	if (bytes <= SHM_INLINE_BYTES)
		return SHM_INLINE;
	if (collet_shm_may_put(shm))
		return SHM_PUT;
	if (uses_arena(shm, transfer, location))
		return SHM_ARENA;
	const bool by_cma = !shm->is_same_process && uses_cma(shm, transfer);
	if (bytes < shm->bulk_min && !by_cma)
		return is_contiguous(transfer) || (may_spill_to_bulk(shm) && !fits_in_units(units_free, bytes))
			       ? SHM_BULK
			       : SHM_RING;
	*location = (uintptr_t)transfer->data;
	return by_cma ? SHM_CMA : shm->is_same_process ? SHM_SAME_PROCESS : SHM_BULK;
}

enum collet_try_result collet_shm_try_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	const uint64_t bytes = transfer->message.bytes;
	if (endpoint->status != COLLET_OK || shm->sends.first)
		return COLLET_TRY_POST;
	if (bytes <= SHM_INLINE_BYTES) {
		if (!has_cells(shm, shm_inline_cells(bytes)))
			return COLLET_TRY_POST;
		publish_inline(shm, transfer);
		prefetchw_next(shm, shm_inline_cells(bytes), 0);
	} else {
		/* A message that may use another protocol is left to protocol_of_first(). */
		uint64_t location;
		if (bytes >= SHM_TUNED_MIN || bytes >= shm->bulk_min || bytes >= shm->attach_min ||
			uses_arena(shm, transfer, &location) || !has_cells(shm, 1))
			return COLLET_TRY_POST;
		const int first = alloc_units(shm, false, (unsigned)((bytes + SHM_UNIT_BYTES - 1) / SHM_UNIT_BYTES));
		if (first < 0)
			return COLLET_TRY_POST;
		publish_run(shm, transfer, 0, bytes, (unsigned)first, false);
		count_sent(shm, transfer);
		prefetchw_next(shm, 1, bytes);
	}
	transfer->status = COLLET_OK;
	return COLLET_TRY_DONE;
}

static bool send_by(struct shm_endpoint *shm, enum shm_protocol protocol, uint64_t location)
{
	switch (protocol) {
	case SHM_INLINE:
		return send_inline(shm);
	case SHM_RING:
		return send_run(shm, false);
	case SHM_BULK:
		return send_run(shm, true);
	case SHM_PUT:
		return publish_put(shm);
	default:
		return publish_borrowed(shm, protocol, location);
	}
}

/* Publishes the next part of the first send. False if there was no room. */
static bool send_first(struct shm_endpoint *shm)
{
	uint64_t location = 0;
	if (!has_cells(shm, 1))
		return false;
	const struct collet_transfer *transfer = shm->sends.first;
	/* Read before the send: afterwards the transfer may belong to its owner again. */
	const bool is_tuned = !shm->sent_bytes && is_tuned_send(shm, transfer);
	const bool is_exchange = sends_exchange(transfer);
	const unsigned call_class = shm_call_class(transfer);
	const enum shm_protocol protocol = protocol_of_first(shm, free_units_for_first(shm), &location);
	if (!send_by(shm, protocol, location))
		return false;
	if (is_tuned)
		collet_shm_tuning_sent(shm, call_class, is_exchange, protocol == SHM_CMA);
	return true;
}

void collet_shm_send_some(struct shm_endpoint *shm)
{
	unsigned runs = 0;
	while (shm->sends.first && send_first(shm) && (!shm->sent_bytes || ++runs < SHM_RUNS_PER_CALL))
		;
}

/* Completes the sends whose buffers the peer has released. Returns how many. */
static uint32_t complete_released(struct shm_endpoint *shm)
{
	uint32_t completed = 0;
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
		completed++;
	}
	return completed;
}

uint32_t collet_shm_send(struct shm_endpoint *shm)
{
	const uint32_t before = shm->endpoint.posted;
	if (shm->tokens_borrowed)
		complete_released(shm);
	collet_shm_send_some(shm);
	/* Reading comes before writing: if both ends send each other borrowed messages, both copy already. */
	if (collet_shm_can_coop_write(shm)) {
		collet_shm_coop_write(shm);
		complete_released(shm);
	}
	return before - shm->endpoint.posted;
}

bool collet_shm_can_send(const struct shm_endpoint *shm)
{
	/* Seq_cst: the second half of arm()'s handshake with shm_publish(). */
	const uint64_t done = atomic_load_explicit(&shm->theirs->tokens_done, memory_order_seq_cst);
	const uint64_t freed = atomic_load_explicit(&shm->theirs->units_freed, memory_order_seq_cst);
	const uint64_t bulk_freed = atomic_load_explicit(&shm->theirs->bulk_freed, memory_order_seq_cst);
	const uint64_t consumed = atomic_load_explicit(&shm->theirs->cells_consumed, memory_order_seq_cst);
	if (shm->tokens_borrowed & ~(shm->tokens_used ^ done) || collet_shm_can_coop_write(shm))
		return true;
	if (!shm->sends.first || shm->out_next - consumed >= SHM_CELLS)
		return false;
	uint64_t location;
	const uint64_t units_free = free_units(shm, freed);
	const enum shm_protocol protocol = protocol_of_first(shm, units_free, &location);
	if (protocol == SHM_INLINE)
		return shm->out_next + shm_inline_cells(shm->sends.first->message.bytes) - consumed <= SHM_CELLS;
	if (protocol == SHM_RING)
		return shm_find_run(units_free, run_units(shm, false)) >= 0;
	if (protocol == SHM_BULK)
		return shm_find_run(~(shm->out_bulk_used ^ bulk_freed), run_units(shm, true)) >= 0;
	if (protocol == SHM_PUT)
		return true;
	return free_tokens(shm, done) != 0;
}
