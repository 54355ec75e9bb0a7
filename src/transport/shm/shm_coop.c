/* Sharing: a long message that is lent to its receiver's kernel, and goes one way, is moved by both ends at once. A
 * receive that is posted in time says in its line of shared memory where it wants the message (an offer, see
 * shm_put.c); from then on each end takes the next piece that nobody has taken. The receiver reads its pieces out of
 * the sender's memory, message by message; the sender, which waits, writes its own into the receiver's, of the message
 * after the one that the receiver comes to next, so that neither waits for the other. A sender that does something else
 * takes none, and the receiver reads everything, as ever.
 *
 * Both take pieces by raising one word of the line, which carries the message's number: so what is raised belongs to
 * the message for which the line was read. The receiver settles when what it has read and what the sender says that it
 * has written is the whole message; until then the line is not used again. A sender that may not write says so, and the
 * receiver reads all of the message; one that dies with a piece is a peer that is lost. Before a piece is taken and
 * until it is written the sender says that it touches the receiver's memory (collet_shm_touch()): who closes waits for
 * that. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "transport/shm/shm_endpoint.h"

enum { TAKEN = 6, WRITTEN = 7 };  /* words of an offer's line */

static inline uint64_t units_of(uint64_t bytes)
{
	return (bytes + SHM_SHARE_UNIT_BYTES - 1) / SHM_SHARE_UNIT_BYTES;
}

/* How many of the units that are left an end takes at once. Of the only message a quarter, so that the last pieces, for
 * which one end waits, are short. */
static inline uint64_t fair_units(uint64_t left, bool only)
{
	const uint64_t fair = only ? (left + 3) / 4 : left;
	return fair < SHM_PIECE_UNITS ? fair : SHM_PIECE_UNITS;
}

static inline struct shm_piece piece_of(uint64_t first, uint64_t units, uint64_t bytes)
{
	const uint64_t at = first * SHM_SHARE_UNIT_BYTES, most = units * SHM_SHARE_UNIT_BYTES;
	return (struct shm_piece){ .at = at, .bytes = bytes - at < most ? bytes - at : most };
}

bool collet_shm_may_share(const struct shm_conduit *shm, uint64_t bytes)
{
	return bytes >= SHM_SHARE_MIN && units_of(bytes) < SHM_SHARE_FAILED && !shm_is_crowded(shm) &&
		(shm->same_process || shm->peer_pid);
}

/* ---- The receiver ------------------------------------------------------------------------------------------- */

static inline struct shm_cell *incoming_line(const struct shm_conduit *shm)
{
	return shm_offer_line(shm->out_offers, shm->in_messages);
}

bool collet_shm_take_piece(struct shm_conduit *shm, struct shm_piece *piece)
{
	struct shm_incoming *incoming = &shm->incoming;
	_Atomic uint64_t *taken = &incoming_line(shm)->word[TAKEN];
	const uint64_t all = units_of(incoming->bytes);
	const bool only = !shm->receives.first->next || !collet_shm_has_arrived(shm);
	uint64_t word = atomic_load_explicit(taken, memory_order_relaxed), first, count;
	do {
		first = shm_share_units(word, shm->in_messages);
		if (first >= all)
			return false;
		/* Whose sender has not taken any while the first piece was read does not wait for it with the rest. */
		const bool alone = incoming->units && first == incoming->units;
		count = fair_units(all - first, only && !alone && all >= SHM_ALONE_UNITS);
		/* Relaxed: what an end takes it reads or writes itself, and says so otherwise. */
	} while (!atomic_compare_exchange_weak_explicit(
		taken, &word, word + count, memory_order_relaxed, memory_order_relaxed));
	incoming->units += count;
	*piece = piece_of(first, count, incoming->bytes);
	return true;
}

enum shm_shared collet_shm_shared(const struct shm_conduit *shm)
{
	const struct shm_cell *line = incoming_line(shm);
	const uint64_t number = shm->in_messages, all = units_of(shm->incoming.bytes);
	if (shm_share_units(atomic_load_explicit(&line->word[TAKEN], memory_order_relaxed), number) < all)
		return SHM_SHARED_LEFT;
	/* Acquire, pairing with the store in the peer's tell_written(): the bytes are here. Seq_cst for arm()'s
	 * handshake with shm_tell(). */
	const uint64_t written =
		shm_share_units(atomic_load_explicit(&line->word[WRITTEN], memory_order_seq_cst), number);
	if (written == SHM_SHARE_FAILED)
		return SHM_SHARED_FAILED;
	return shm->incoming.units + written == all ? SHM_SHARED_WHOLE : SHM_SHARED_AWAITED;
}

bool collet_shm_can_read(const struct shm_conduit *shm)
{
	const struct shm_incoming *incoming = &shm->incoming;
	return shm_is_lent(incoming->kind) && !(incoming->shared && collet_shm_shared(shm) == SHM_SHARED_AWAITED);
}

/* ---- The sender --------------------------------------------------------------------------------------------- */

/* A message of which this end may move a piece. */
struct open_message {
	const struct collet_transfer *transfer;  /* NULL: none */
	struct shm_cell *line;
	uint64_t number, taken, place;
};

bool collet_shm_may_help(const struct shm_conduit *shm, enum shm_kind kind, uint64_t bytes)
{
	return (kind == SHM_PULL || kind == SHM_DIRECT) && collet_shm_may_share(shm, bytes) && !shm->writes_fail;
}

static struct open_message look_at(const struct shm_conduit *shm, const struct collet_transfer *transfer)
{
	struct open_message open = { .number = transfer->transport_private[0] };
	open.line = shm_offer_line(shm->in_offers, open.number);
	if (!collet_shm_find_offer(open.line, open.number, &transfer->message, SHM_OFFER_ADDRESS, &open.place))
		return open;
	open.taken = atomic_load_explicit(&open.line->word[TAKEN], memory_order_relaxed);
	if (shm_share_units(open.taken, open.number) < units_of(transfer->message.bytes))
		open.transfer = transfer;
	return open;
}

/* The message to write a piece of: the second one that is open, since the receiver comes to the first; if there is only
 * one, that, unless it is short. *only: it was. */
static struct open_message find_open(const struct shm_conduit *shm, bool *only)
{
	struct open_message first = { 0 }, second = { 0 };
	for (uint64_t lent = shm->tokens_shared & shm->tokens_lent; lent; lent &= lent - 1) {
		const struct collet_transfer *transfer = shm->lent[__builtin_ctzll(lent)];
		const uint64_t number = transfer->transport_private[0];
		if (second.transfer && number > second.number)
			continue;
		const struct open_message open = look_at(shm, transfer);
		if (!open.transfer)
			continue;
		const bool is_first = !first.transfer || number < first.number;
		second = is_first ? first : open;
		first = is_first ? open : first;
	}
	*only = !second.transfer;
	if (!*only)
		return second;
	const bool few = first.transfer && units_of(first.transfer->message.bytes) < SHM_ALONE_UNITS;
	return few ? (struct open_message){ 0 } : first;
}

/* Is this end to read something itself? That comes first: of two that lend each other something, both copy already. */
static bool has_to_read(const struct shm_conduit *shm)
{
	return collet_shm_can_read(shm) || (shm->receives.first && collet_shm_has_arrived(shm));
}

bool collet_shm_can_help(const struct shm_conduit *shm)
{
	bool only;
	return shm->tokens_shared & shm->tokens_lent && !shm->writes_fail && !has_to_read(shm) &&
		find_open(shm, &only).transfer;
}

/* Is the process that is to be written to still the one that was met? errno tells why not; 0: it is another. */
static bool is_still_there(struct shm_conduit *shm)
{
	uint64_t nonce = 0;
	struct iovec into = { &nonce, sizeof(nonce) };
	struct iovec from = { (void *)(uintptr_t)shm->peer_nonce_address, sizeof(nonce) };
	errno = 0;
	shm_count(&shm->conduit.stats.system_calls, 1);
	return process_vm_readv(shm->peer_pid, &into, 1, &from, 1, 0) == (ssize_t)sizeof(nonce) &&
		nonce == shm->peer_nonce;
}

/* The same for errno: fewer bytes than were given are a fault at the first one that is missing. */
static bool write_by_kernel(struct shm_conduit *shm, void *data, uintptr_t place, uint64_t bytes)
{
	struct iovec from = { data, bytes };
	struct iovec into = { (void *)place, bytes };
	errno = EFAULT;
	shm_count(&shm->conduit.stats.system_calls, 1);
	return process_vm_writev(shm->peer_pid, &from, 1, &into, 1, 0) == (ssize_t)bytes;
}

/* False, once and for good: this end cannot write. */
static bool write_piece(struct shm_conduit *shm, const struct open_message *open, struct shm_piece piece)
{
	unsigned char *data = (unsigned char *)open->transfer->data + piece.at;
	const uintptr_t place = open->place + piece.at;
	if (shm->same_process) {
		memcpy((void *)place, data, piece.bytes);
		return true;
	}
	if (is_still_there(shm) && write_by_kernel(shm, data, place, piece.bytes))
		return true;
	const int error = errno;
	char name[160];
	collet_log(shm->log, COLLET_LOG_INFO,
		"shm: %s reads long messages alone from here on, since this rank could not write into its memory: %s",
		collet_shm_peer_name(shm, name, sizeof(name)), error ? strerror(error) : "it is another process now");
	return false;
}

/* Says that so many more units are written; or, for good, that this end cannot write. Only this end stores here. */
static void tell_written(struct shm_conduit *shm, const struct open_message *open, uint64_t units, bool good)
{
	_Atomic uint64_t *written = &open->line->word[WRITTEN];
	const uint64_t before = atomic_load_explicit(written, memory_order_relaxed);
	/* Pairs with the acquire in the peer's collet_shm_shared(). */
	shm_tell(shm, written, good ? before + units : shm_share_word(open->number, SHM_SHARE_FAILED));
}

/* Takes a piece and writes it: its bytes; 0: there was none, or no more is to be written. */
static uint64_t help_once(struct shm_conduit *shm)
{
	bool only;
	struct open_message open = find_open(shm, &only);
	/* A peer that has closed, or closes now, is for whoever looks after the peer to find. */
	if (!open.transfer || !collet_shm_touch(shm, open.number))
		return 0;
	const uint64_t bytes = open.transfer->message.bytes, all = units_of(bytes);
	uint64_t first, count;
	do {
		first = shm_share_units(open.taken, open.number);
		if (first >= all)
			return 0;
		count = fair_units(all - first, only);
		/* Relaxed, as in collet_shm_take_piece(). */
	} while (!atomic_compare_exchange_weak_explicit(
		&open.line->word[TAKEN], &open.taken, open.taken + count, memory_order_relaxed, memory_order_relaxed));
	const struct shm_piece piece = piece_of(first, count, bytes);
	shm->writes_fail = !write_piece(shm, &open, piece);
	tell_written(shm, &open, count, !shm->writes_fail);
	return piece.bytes;
}

void collet_shm_help(struct shm_conduit *shm)
{
	for (uint64_t bytes = 0, some = 1; some && bytes < SHM_PUSH_MAX && !shm->writes_fail; bytes += some)
		some = help_once(shm);
	collet_shm_touched(shm);
}
