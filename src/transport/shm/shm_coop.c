/* Copies a long one-way message by both ends at once (cooperative copy).
 *
 * A receive that is posted early enough publishes an RTR with its address (shm_put.c). From then on each end claims the
 * next range that nobody has claimed. The receiver reads its ranges out of the sender's memory, message by message. The
 * sender, which would otherwise wait, writes its ranges into the receiver's memory. It works on the message after the
 * one that the receiver is at, so that neither waits for the other. A sender that is busy claims nothing, and the
 * receiver reads everything.
 *
 * Both ends claim by raising one word of the slot, which includes the message's number. So a claim always belongs to
 * the message for which the slot was read. The receiver completes when what it has read and what the sender has
 * reported as written make the whole message. Until then the slot is not reused. A sender that may not write says so,
 * and the receiver reads the whole message. A sender that dies with a claim is a lost peer. From before a claim until
 * the write has ended, the sender brackets its access (collet_shm_access_begin()): a closing receiver waits for
 * that. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "transport/shm/shm_endpoint.h"

enum { CLAIMED = 6, WRITTEN = 7 }; /* words of an RTR slot */

static inline uint64_t units_of(uint64_t bytes)
{
	return (bytes + SHM_COOP_UNIT_BYTES - 1) / SHM_COOP_UNIT_BYTES;
}

/* Returns how many of the remaining units an end claims at a time. Of the only message it is a quarter, so that the
 * last ranges, for which one end waits, are short. */
static inline uint64_t units_to_claim(uint64_t left, bool is_only)
{
	const uint64_t fair = is_only ? (left + 3) / 4 : left;
	return fair < SHM_COOP_CLAIM_UNITS ? fair : SHM_COOP_CLAIM_UNITS;
}

static inline struct shm_range range_of(uint64_t first, uint64_t units, uint64_t bytes)
{
	const uint64_t at = first * SHM_COOP_UNIT_BYTES, most = units * SHM_COOP_UNIT_BYTES;
	return (struct shm_range){ .offset = at, .bytes = bytes - at < most ? bytes - at : most };
}

bool collet_shm_may_coop(const struct shm_endpoint *shm, uint64_t bytes)
{
	return bytes >= SHM_COOP_MIN && units_of(bytes) < SHM_COOP_UNITS_FAILED && !shm_is_oversubscribed(shm) &&
		(shm->is_same_process || shm->peer_pid);
}

/* ---- The receiver ------------------------------------------------------------------------------------------- */

static inline struct shm_cell *incoming_rtr(const struct shm_endpoint *shm)
{
	return shm_rtr_slot(shm->out_rtrs, shm->in_messages);
}

bool collet_shm_claim_range(struct shm_endpoint *shm, struct shm_range *range)
{
	struct shm_incoming *incoming = &shm->incoming;
	_Atomic uint64_t *claimed = &incoming_rtr(shm)->word[CLAIMED];
	const uint64_t all = units_of(incoming->bytes);
	const bool is_only = !shm->receives.first->next || !collet_shm_has_next_cell(shm);
	uint64_t word = atomic_load_explicit(claimed, memory_order_relaxed), first, count;
	do {
		first = shm_coop_units(word, shm->in_messages);
		if (first >= all)
			return false;
		/* If the sender has claimed nothing while the first range was read, the receiver no longer leaves it a
		 * share. */
		const bool is_alone = incoming->claimed_units && first == incoming->claimed_units;
		count = units_to_claim(all - first, is_only && !is_alone && all >= SHM_COOP_ALONE_UNITS);
		/* Relaxed: each end copies what it has claimed itself, and publishes the result by other words. */
	} while (!atomic_compare_exchange_weak_explicit(
		claimed, &word, word + count, memory_order_relaxed, memory_order_relaxed));
	incoming->claimed_units += count;
	*range = range_of(first, count, incoming->bytes);
	return true;
}

enum shm_coop_state collet_shm_coop_state(const struct shm_endpoint *shm)
{
	const struct shm_cell *slot = incoming_rtr(shm);
	const uint64_t number = shm->in_messages, all = units_of(shm->incoming.bytes);
	if (shm_coop_units(atomic_load_explicit(&slot->word[CLAIMED], memory_order_relaxed), number) < all)
		return SHM_COOP_UNCLAIMED;
	/* Acquire, pairing with the store in the peer's publish_written(): the bytes are here. Seq_cst for arm()'s
	 * handshake with shm_publish(). */
	const uint64_t written =
		shm_coop_units(atomic_load_explicit(&slot->word[WRITTEN], memory_order_seq_cst), number);
	if (written == SHM_COOP_UNITS_FAILED)
		return SHM_COOP_FAILED;
	return shm->incoming.claimed_units + written == all ? SHM_COOP_COMPLETE : SHM_COOP_WRITING;
}

bool collet_shm_can_read(const struct shm_endpoint *shm)
{
	const struct shm_incoming *incoming = &shm->incoming;
	return shm_is_borrowed(incoming->protocol) &&
	       !(incoming->is_coop && collet_shm_coop_state(shm) == SHM_COOP_WRITING);
}

/* ---- The sender --------------------------------------------------------------------------------------------- */

/* Describes a message of which this end may write a range. */
struct coop_message {
	const struct collet_transfer *transfer;  /* NULL if there is none */
	struct shm_cell *slot;
	uint64_t number, claimed, address;
};

bool collet_shm_may_coop_write(const struct shm_endpoint *shm, enum shm_protocol protocol, uint64_t bytes)
{
	return (protocol == SHM_CMA || protocol == SHM_SAME_PROCESS) && collet_shm_may_coop(shm, bytes) &&
	       !shm->is_write_denied;
}

static struct coop_message coop_message_of(const struct shm_endpoint *shm, const struct collet_transfer *transfer)
{
	struct coop_message candidate = { .number = transfer->transport_private[0] };
	candidate.slot = shm_rtr_slot(shm->in_rtrs, candidate.number);
	if (!collet_shm_match_rtr(
		    candidate.slot, candidate.number, &transfer->message, SHM_RTR_ADDRESS, &candidate.address))
		return candidate;
	candidate.claimed = atomic_load_explicit(&candidate.slot->word[CLAIMED], memory_order_relaxed);
	if (shm_coop_units(candidate.claimed, candidate.number) < units_of(transfer->message.bytes))
		candidate.transfer = transfer;
	return candidate;
}

/* Returns the message to write a range of. It is the second one with unclaimed units, since the receiver comes to the
 * first. If there is only one, it is that one, unless it is short. *is_only says which case it is. */
static struct coop_message find_coop_message(const struct shm_endpoint *shm, bool *is_only)
{
	struct coop_message first = { 0 }, second = { 0 };
	for (uint64_t borrowed = shm->tokens_coop & shm->tokens_borrowed; borrowed; borrowed &= borrowed - 1) {
		const struct collet_transfer *transfer = shm->borrowed[__builtin_ctzll(borrowed)];
		const uint64_t number = transfer->transport_private[0];
		if (second.transfer && number > second.number)
			continue;
		const struct coop_message candidate = coop_message_of(shm, transfer);
		if (!candidate.transfer)
			continue;
		const bool is_first = !first.transfer || number < first.number;
		second = is_first ? first : candidate;
		first = is_first ? candidate : first;
	}
	*is_only = !second.transfer;
	if (!*is_only)
		return second;
	const bool is_short = first.transfer && units_of(first.transfer->message.bytes) < SHM_COOP_ALONE_UNITS;
	return is_short ? (struct coop_message){ 0 } : first;
}

/* True if this end has something to read. Reading comes first: if both ends send each other borrowed messages, both
 * copy already. */
static bool must_read_first(const struct shm_endpoint *shm)
{
	return collet_shm_can_read(shm) || (shm->receives.first && collet_shm_has_next_cell(shm));
}

bool collet_shm_can_coop_write(const struct shm_endpoint *shm)
{
	bool is_only;
	return shm->tokens_coop & shm->tokens_borrowed && !shm->is_write_denied && !must_read_first(shm) &&
		find_coop_message(shm, &is_only).transfer;
}

/* True if the process to write to is still the peer of the connection setup. Otherwise errno says why; 0: it is another
 * process. */
static bool is_same_peer(struct shm_endpoint *shm)
{
	shm_count(&shm->endpoint.stats.system_calls, 1);
	return collet_shm_check_nonce(shm, shm->peer_pid);
}

/* Writes into the peer's memory. False with errno set; a short write counts as EFAULT at the first missing byte. */
static bool write_cma(struct shm_endpoint *shm, void *data, uintptr_t address, uint64_t bytes)
{
	struct iovec from = { data, bytes };
	struct iovec into = { (void *)address, bytes };
	errno = EFAULT;
	shm_count(&shm->endpoint.stats.system_calls, 1);
	return process_vm_writev(shm->peer_pid, &from, 1, &into, 1, 0) == (ssize_t)bytes;
}

/* Writes a range. False if this end cannot write at all; it then never tries again. */
static bool write_range(struct shm_endpoint *shm, const struct coop_message *candidate, struct shm_range range)
{
	unsigned char *data = (unsigned char *)candidate->transfer->data + range.offset;
	const uintptr_t address = candidate->address + range.offset;
	if (shm->is_same_process) {
		memcpy((void *)address, data, range.bytes);
		return true;
	}
	if (is_same_peer(shm) && write_cma(shm, data, address, range.bytes))
		return true;
	const int error = errno;
	char name[160];
	collet_log(shm->log, COLLET_LOG_INFO,
		"shm: %s reads long messages alone from here on, since this rank could not write into its memory: %s",
		collet_shm_peer_name(shm, name, sizeof(name)), error ? strerror(error) : "it is another process now");
	return false;
}

/* Publishes how many more units are written, or that this end cannot write. Only this end stores the word. */
static void publish_written(
	struct shm_endpoint *shm, const struct coop_message *candidate, uint64_t units, bool is_good)
{
	_Atomic uint64_t *written = &candidate->slot->word[WRITTEN];
	const uint64_t before = atomic_load_explicit(written, memory_order_relaxed);
	/* Pairs with the acquire in the peer's collet_shm_coop_state(). */
	shm_publish(shm, written, is_good ? before + units : shm_coop_word(candidate->number, SHM_COOP_UNITS_FAILED));
}

/* Claims a range and writes it. Returns its bytes; 0 if there was none, or this end must not write any more. */
static uint64_t coop_write_once(struct shm_endpoint *shm)
{
	bool is_only;
	struct coop_message candidate = find_coop_message(shm, &is_only);
	/* A peer that has closed is detected by the liveness checks. */
	if (!candidate.transfer || !collet_shm_access_begin(shm, candidate.number))
		return 0;
	const uint64_t bytes = candidate.transfer->message.bytes, all = units_of(bytes);
	uint64_t first, count;
	do {
		first = shm_coop_units(candidate.claimed, candidate.number);
		if (first >= all)
			return 0;
		count = units_to_claim(all - first, is_only);
		/* Relaxed, as in collet_shm_claim_range(). */
	} while (!atomic_compare_exchange_weak_explicit(&candidate.slot->word[CLAIMED], &candidate.claimed,
		candidate.claimed + count, memory_order_relaxed, memory_order_relaxed));
	const struct shm_range range = range_of(first, count, bytes);
	shm->is_write_denied = !write_range(shm, &candidate, range);
	publish_written(shm, &candidate, count, !shm->is_write_denied);
	return range.bytes;
}

void collet_shm_coop_write(struct shm_endpoint *shm)
{
	for (uint64_t bytes = 0, some = 1; some && bytes < SHM_PUT_MAX && !shm->is_write_denied; bytes += some)
		some = coop_write_once(shm);
	collet_shm_access_end(shm);
}
