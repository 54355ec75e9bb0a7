/* Receives messages whose bytes stay in the sender's memory.
 *
 * The receiver reads the bytes in slices, so that no call of progress() takes long. After the last slice it checks the
 * sender's `closed` word. If the sender has closed meanwhile, its owner may have refilled the buffer, and what was read
 * is discarded. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "core/status.h"
#include "transport/shm/shm_receive.h"

static void fail_cma_read(struct shm_endpoint *shm, int error)
{
	char name[160];
	if (shm_is_peer_closed(shm) || error == ESRCH) {
		(void)collet_shm_lose_peer(shm, error == ESRCH
							? "has died while its message was read"
							: "has closed its connection while its message was read");
		return;
	}
	(void)collet_fail(COLLET_ERR_TRANSPORT,
		"shm: reading the memory of %s: %s (COLLET_SHM_ATTACH_MIN=never avoids such reads)",
		collet_shm_peer_name(shm, name, sizeof(name)), error ? strerror(error) : "it is another process now");
	(void)collet_shm_fail(shm, COLLET_ERR_TRANSPORT);
}

/* Reads a range of the peer's memory by process_vm_readv. The last range, or each one that may be the last, comes with
 * the peer's nonce: the process that was read must still be the one of the connection setup. */
static bool read_range_cma(struct shm_endpoint *shm, struct shm_range range)
{
	const struct shm_incoming *incoming = &shm->incoming;
	const uint64_t bytes = range.bytes;
	const bool is_last = incoming->is_coop || range.offset + bytes == incoming->bytes;
	uint64_t nonce = 0;
	struct iovec into[2] = {
		{ (unsigned char *)shm->receives.first->data + range.offset, bytes },
		{ &nonce, sizeof(nonce) },
	};
	struct iovec from[2] = {
		{ (void *)(uintptr_t)(incoming->source + range.offset), bytes },
		{ (void *)(uintptr_t)shm->peer_nonce_address, sizeof(nonce) },
	};
	const size_t whole = bytes + (is_last ? sizeof(nonce) : 0);
	shm_count(&shm->endpoint.stats.system_calls, 1);
	const ssize_t got = process_vm_readv(shm->peer_pid, into, is_last ? 2 : 1, from, is_last ? 2 : 1, 0);
	if (got != (ssize_t)whole) {
		fail_cma_read(shm, got < 0 ? errno : EFAULT);
		return false;
	}
	if (is_last && nonce != shm->peer_nonce) {
		fail_cma_read(shm, 0);
		return false;
	}
	return true;
}

static void copy_range(struct shm_endpoint *shm, struct shm_range range)
{
	memcpy((unsigned char *)shm->receives.first->data + range.offset, shm->incoming.source + range.offset,
		range.bytes);
}

/* Copies a range from a thread of this process. That thread's close() waits meanwhile, so that nobody reads a buffer
 * that its owner may use again. */
static bool copy_range_guarded(struct shm_endpoint *shm, struct shm_range range)
{
	const bool is_allowed = collet_shm_access_begin(shm, shm->in_messages);
	if (is_allowed)
		copy_range(shm, range);
	collet_shm_access_end(shm);
	return is_allowed;
}

/* Reads a range. False if the endpoint has failed. */
static bool read_range(struct shm_endpoint *shm, struct shm_range range)
{
	switch (shm->incoming.protocol) {
	case SHM_CMA: return read_range_cma(shm, range);
	case SHM_SAME_PROCESS:
		if (copy_range_guarded(shm, range))
			return true;
		(void)collet_shm_lose_peer(shm, "has closed its connection while its message was read");
		return false;
	default: copy_range(shm, range); return true;
	}
}

/* Reads the next slice of a message that this end reads alone. True if it was the last one. */
static bool read_slice(struct shm_endpoint *shm)
{
	struct shm_incoming *incoming = &shm->incoming;
	const uint64_t left = incoming->bytes - incoming->done_bytes;
	const uint64_t bytes = left < SHM_SLICE_BYTES ? left : SHM_SLICE_BYTES;
	if (!read_range(shm, (struct shm_range){ incoming->done_bytes, bytes }))
		return false;
	incoming->done_bytes += bytes;
	return incoming->done_bytes == incoming->bytes;
}

/* Reads ranges of a cooperative copy, about a slice in a call. True if the whole message is there. */
static bool read_coop(struct shm_endpoint *shm)
{
	struct shm_range range;
	for (uint64_t bytes = 0; bytes < SHM_SLICE_BYTES && collet_shm_claim_range(shm, &range); bytes += range.bytes)
		if (!read_range(shm, range))
			return false;
	const enum shm_coop_state coop_state = collet_shm_coop_state(shm);
	/* On failure this end reads all of it from the beginning: done_bytes is 0. */
	shm->incoming.is_coop = coop_state != SHM_COOP_FAILED;
	return coop_state == SHM_COOP_COMPLETE;
}

/* Moves some of the message that is being read. */
void collet_shm_progress_borrowed(struct shm_endpoint *shm)
{
	struct shm_incoming *incoming = &shm->incoming;
	if (!incoming->is_dropped) {
		if (!(incoming->is_coop ? read_coop(shm) : read_slice(shm)))
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
	const uint64_t location = shm_next_cell_word(shm, 4), word = shm_next_cell_word(shm, 5);
	const uint64_t token = word & ~((uint64_t)1 << 32);
	if (token >= SHM_TOKENS || incoming->bytes == 0) {
		(void)collet_shm_fail_corrupt(shm, "an invalid buffer token");
		return;
	}
	if (incoming->protocol == SHM_ARENA) {
		const struct collet_arena_map *arena = shm->peer_arena;
		if (!arena || location > arena->bytes || incoming->bytes > arena->bytes - location) {
			(void)collet_shm_fail_corrupt(shm, "an address outside its arena");
			return;
		}
		incoming->source = arena->base + location;
	} else {
		if (incoming->protocol == SHM_SAME_PROCESS && !shm->is_same_process) {
			(void)collet_shm_fail_corrupt(shm, "an address of another process");
			return;
		}
		incoming->source = (const unsigned char *)(uintptr_t)location;
	}
	incoming->token = (uint32_t)token;
	incoming->is_coop = word != token && incoming->protocol != SHM_ARENA && !incoming->is_dropped &&
			    shm_rtr_of(shm->receives.first) == SHM_RTR_ADDRESS;
	shm_consume_cells(shm, 1);
	if (incoming->protocol != SHM_ARENA || incoming->is_dropped || !shm_wants_view(shm->receives.first))
		return;
	if (shm_is_peer_closed(shm)) {
		(void)collet_shm_lose_peer(shm, "has closed its connection before its message was read");
		return;
	}
	incoming->protocol = 0;
	shm_complete_first(shm, incoming->source, SHM_HOLDS_TOKEN, token);
}
