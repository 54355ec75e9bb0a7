/* shm: two ranks of one host, processes or threads of one process, in any mix. See shm_region.h for how bytes move. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fence.h"
#include "core/status.h"
#include "transport/shm/shm_endpoint.h"

extern const struct collet_transport collet_shm_transport;

static bool reaches(const struct collet_card *self, const struct collet_card *peer)
{
	return self->host_id == peer->host_id && self->rank != peer->rank;
}

/* ---- Ending ------------------------------------------------------------------------------------------------- */

const char *collet_shm_peer_name(const struct shm_conduit *shm, char *text, size_t bytes)
{
	snprintf(text, bytes, "rank %u on %.64s (pid %u)", shm->peer->rank, shm->peer->host, shm->peer->pid);
	return text;
}

void collet_shm_wake(struct shm_conduit *shm)
{
	const uint64_t one = 1;
	/* One of the two takes the flag down and one write is enough. Relaxed: the flag carries nothing. */
	if (!atomic_exchange_explicit(&shm->theirs->sleeping, 0, memory_order_relaxed))
		return;
	shm_count(&shm->conduit.stats.system_calls, 1);
	/* It can only fail when the counter is full, and then the peer is awake. */
	if (write(shm->peer_event_fd, &one, sizeof(one)) < 0)
		return;
}

/* Is the peer gone? Nothing is said on the socket once the conduit is open, so all there can be is its end. */
static bool look_for_peer(struct shm_conduit *shm)
{
	char byte;
	if (shm->gone)
		return true;
	shm_count(&shm->conduit.stats.system_calls, 1);
	const ssize_t got = recv(shm->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	/* Acquire, pairing with the store in the peer's take_back(): all that it has published is to be seen. */
	shm->gone = (got < 0 && errno != EAGAIN && errno != EINTR) || got >= 0 ||
		atomic_load_explicit(&shm->theirs->closed, memory_order_acquire) != 0;
	return shm->gone;
}

/* The peer has been stopped while it wrote the message of this number, and would go on with that. */
static void warn_of_write(struct shm_conduit *shm, uint64_t number)
{
	const struct shm_cell *line = shm_offer_line(shm->out_offers, number);
	const uint64_t bytes = atomic_load_explicit(&line->word[3], memory_order_relaxed);
	const bool known = atomic_load_explicit(&line->word[0], memory_order_relaxed) == number;
	char name[160];
	collet_log(shm->log, COLLET_LOG_WARN,
		"shm: %s was stopped while it wrote into this rank's memory: up to %llu bytes of the call's result "
		"may still change when it goes on (kill it, or do not use that memory before it has)",
		collet_shm_peer_name(shm, name, sizeof(name)), (unsigned long long)(known ? bytes : 0));
}

/* Waits until the peer, amidst a piece or a message, no longer touches this rank's memory: it ends by itself, and no
 * next one begins. A process may be killed amidst it, or stopped; in the latter case nothing but a second helps. */
static void await_touched(struct shm_conduit *shm)
{
	const int64_t deadline = collet_deadline_after(SHM_TOUCHED_NS);
	uint64_t number;
	/* Acquire (and more), pairing with the release in collet_shm_touched(). */
	while ((number = atomic_load_explicit(&shm->theirs->touching, memory_order_seq_cst)) != 0) {
		if (!shm->same_process && look_for_peer(shm))
			return;
		if (!shm->same_process && collet_deadline_passed(deadline)) {
			warn_of_write(shm, number);
			return;
		}
		sched_yield();
	}
}

/* From here on the peer reads nothing of this rank's memory that it would report as received, and writes nothing. */
static void take_back(struct shm_conduit *shm)
{
	/* Pairs with peer_closed(): whoever reads what a caller writes from now on finds this when it looks, after. */
	atomic_store_explicit(&shm->mine->closed, 1, memory_order_seq_cst);
#ifndef __SANITIZE_THREAD__  /* which does not know fences */
	atomic_thread_fence(memory_order_seq_cst);
#endif
	await_touched(shm);
	if (atomic_load_explicit(&shm->theirs->sleeping, memory_order_seq_cst))
		collet_shm_wake(shm);
}

static uint32_t settle_all(struct shm_conduit *shm, collet_status status)
{
	uint32_t settled = 0;
	for (uint64_t lent = shm->tokens_lent; lent; lent &= lent - 1, settled++) {
		struct collet_transfer *transfer = shm->lent[__builtin_ctzll(lent)];
		shm->conduit.posted--;
		transfer->status = status;
	}
	shm->tokens_lent = 0;
	settled += collet_transfer_queue_settle_all(&shm->sends, &shm->conduit, status);
	settled += collet_transfer_queue_settle_all(&shm->receives, &shm->conduit, status);
	shm->incoming = (struct shm_incoming){ 0 };
	return settled;
}

uint32_t collet_shm_fail(struct shm_conduit *shm, collet_status status)
{
	shm->conduit.status = status;
	take_back(shm);
	return settle_all(shm, status);
}

uint32_t collet_shm_lose_peer(struct shm_conduit *shm, const char *why)
{
	char name[160];
	(void)collet_fail(COLLET_ERR_PEER_LOST, "shm: %s %s", collet_shm_peer_name(shm, name, sizeof(name)), why);
	return collet_shm_fail(shm, COLLET_ERR_PEER_LOST);
}

static void close_conduit(struct collet_conduit *conduit)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	if (shm->state == SHM_CLOSED)
		return;
	const bool forked = shm->owner != getpid();  /* then the conduit is the parent's */
	if (conduit->status == COLLET_OK)
		conduit->status = COLLET_CANCELLED;
	if (shm->segment && !forked)
		take_back(shm);
	/* A fork may have come amidst a change of the queues, and in the child nobody waits for transfers. */
	if (!forked)
		(void)settle_all(shm, COLLET_CANCELLED);
	shm->state = SHM_CLOSED;
	collet_shm_let_go(shm, forked);
}

/* ---- Moving ------------------------------------------------------------------------------------------------- */

static void post_send(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	transfer->status = conduit->status;
	if (conduit->status != COLLET_OK ||
		(!shm->sends.first && collet_shm_send_now(conduit, transfer) == COLLET_NOW_DONE))
		return;
	transfer->status = COLLET_PENDING;
	conduit->posted++;
	const bool first = !shm->sends.first;
	collet_transfer_queue_add(&shm->sends, transfer);
	if (first)
		collet_shm_send_some(shm);
}

static void post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	transfer->status = conduit->status;
	shm->peeked = false;
	if (conduit->status != COLLET_OK ||
		(!shm->receives.first && collet_shm_receive_now(conduit, transfer) == COLLET_NOW_DONE))
		return;
	/* Trying may have failed it. */
	transfer->status = conduit->status;
	if (conduit->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	conduit->posted++;
	collet_shm_offer(shm, transfer);
	shm->in_posted++;
	const bool first = !shm->receives.first;
	collet_transfer_queue_add(&shm->receives, transfer);
	if (first)
		(void)collet_shm_receive(shm, false);
}

static uint32_t move(struct shm_conduit *shm)
{
	uint32_t settled = 0;
	if (shm->receives.first || shm->incoming.kind)
		settled += collet_shm_receive(shm, true);
	if ((shm->sends.first || shm->tokens_lent) && shm->conduit.status == COLLET_OK)
		settled += collet_shm_send(shm);
	return settled;
}

static bool is_waited_for(const struct shm_conduit *shm)
{
	return shm->conduit.posted != 0 || shm->peeked;
}

/* Nothing has moved for long. What a peer published before it went is still delivered; what needs it to act is not. */
static uint32_t check_peer(struct shm_conduit *shm)
{
	shm->idle = 0;
	if (!look_for_peer(shm))
		return 0;
	const uint64_t cells = shm->in_next;
	const uint32_t settled = move(shm);
	const bool moves = settled || shm->in_next != cells || collet_shm_can_read(shm);
	if (moves || shm->conduit.status != COLLET_OK || !is_waited_for(shm))
		return settled;
	if (shm->conduit.posted == 0 && collet_shm_has_arrived(shm))
		return settled;  /* the next look finds it */
	const bool closed = atomic_load_explicit(&shm->theirs->closed, memory_order_relaxed) != 0;
	return collet_shm_lose_peer(shm, closed ? "has closed its connection" : "has died (its socket has hung up)");
}

static uint32_t progress(struct collet_conduit *conduit)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	if (conduit->status != COLLET_OK)
		return 0;
	const uint32_t settled = move(shm);
	if (settled || conduit->posted == 0) {
		shm->idle = 0;
		return settled;
	}
	if (shm->gone || ++shm->idle >= SHM_IDLE_POLLS)
		return check_peer(shm);
	return 0;
}

static bool peek(struct collet_conduit *conduit, struct collet_message *message)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	const bool is_there = collet_shm_peek(conduit, message);
	if (is_there)
		shm->idle = 0;
	else if (conduit->status == COLLET_OK && conduit->posted == 0 && (shm->gone || ++shm->idle >= SHM_IDLE_POLLS))
		(void)check_peer(shm);
	return is_there;
}

/* ---- Sleeping ----------------------------------------------------------------------------------------------- */

static bool can_move(const struct shm_conduit *shm)
{
	if (collet_shm_can_read(shm))
		return true;
	const bool waits = shm->receives.first || shm->incoming.kind || shm->peeked;
	return (waits && collet_shm_has_arrived(shm)) || collet_shm_can_send(shm);
}

static bool arm(struct collet_conduit *conduit)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	if (conduit->status != COLLET_OK)
		return false;
	/* Both sides store first and look then: see shm_tell(). */
	atomic_store_explicit(&shm->mine->sleeping, 1, memory_order_seq_cst);
	if (shm->barrier)
		collet_fence_all();
	/* The socket is in the epoll set edge-triggered, lest one peer that has left keeps the rank awake for ever; so
	 * a hang-up that came before now is found here. It matters only to who waits for something. */
	if (!can_move(shm) && (!is_waited_for(shm) || !look_for_peer(shm)))
		return true;
	atomic_store_explicit(&shm->mine->sleeping, 0, memory_order_relaxed);
	return false;
}

static void disarm(struct collet_conduit *conduit)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	/* Relaxed: a wake too many is all that can come of it. */
	if (shm->segment)
		atomic_store_explicit(&shm->mine->sleeping, 0, memory_order_relaxed);
}

const struct collet_transport collet_shm_transport = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "shm",
	.summary = "ranks of one host: rings in shared memory, reads of the peer's arena",
	.caps = COLLET_CAP_VIEW | COLLET_CAP_LOCAL,
	.priority = 800,
	.conduit_bytes = sizeof(struct shm_conduit),
	.reaches = reaches,
	.open = collet_shm_open,
	.opening = collet_shm_opening,
	.close = close_conduit,
	.post_send = post_send,
	.post_recv = post_recv,
	.release = collet_shm_release,
	.progress = progress,
	.has_come = collet_shm_has_come,
	.peek = peek,
	.arm = arm,
	.disarm = disarm,
	.send_now = collet_shm_send_now,
	.recv_now = collet_shm_receive_now,
	.took = collet_shm_took,
};
