/* Implements the shm transport, between two ranks of one host: processes, threads of one process, or both. shm_region.h
 * says how bytes move. */
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

static bool reaches(const struct collet_peer_info *self, const struct collet_peer_info *peer)
{
	return self->host_id == peer->host_id && self->rank != peer->rank;
}

/* ---- Failing and closing ------------------------------------------------------------------------------------ */

const char *collet_shm_peer_name(const struct shm_endpoint *shm, char *text, size_t bytes)
{
	snprintf(text, bytes, "rank %u on %.64s (pid %u)", shm->peer->rank, shm->peer->host, shm->peer->pid);
	return text;
}

void collet_shm_wake(struct shm_endpoint *shm)
{
	const uint64_t one = 1;
	/* Either end may clear the flag, and one write is enough. Relaxed: the flag carries no data. */
	if (!atomic_exchange_explicit(&shm->theirs->sleeping, 0, memory_order_relaxed))
		return;
	shm_count(&shm->endpoint.stats.system_calls, 1);
	/* The write fails only when the counter is full, and then the peer is awake. */
	if (write(shm->peer_event_fd, &one, sizeof(one)) < 0)
		return;
}

/* Checks whether the peer is gone. Nothing is sent over the socket once the endpoint is open, so only its end can be
 * read. */
bool collet_shm_is_peer_gone(struct shm_endpoint *shm)
{
	char byte;
	if (shm->is_peer_gone)
		return true;
	shm_count(&shm->endpoint.stats.system_calls, 1);
	const ssize_t got = recv(shm->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	/* Acquire, pairing with the store in the peer's revoke_access(): everything that it has published is
	 * visible. */
	shm->is_peer_gone = (got < 0 && errno != EAGAIN && errno != EINTR) || got >= 0 ||
		atomic_load_explicit(&shm->theirs->closed, memory_order_acquire) != 0;
	return shm->is_peer_gone;
}

/* Warns that the peer was stopped while it wrote the message of this number, and may continue the write later. */
static void warn_of_stopped_writer(struct shm_endpoint *shm, uint64_t number)
{
	const struct shm_cell *slot = shm_rtr_slot(shm->out_rtrs, number);
	const uint64_t bytes = atomic_load_explicit(&slot->word[3], memory_order_relaxed);
	const bool is_known = atomic_load_explicit(&slot->word[0], memory_order_relaxed) == number;
	char name[160];
	collet_log(shm->log, COLLET_LOG_WARN,
		"shm: %s was stopped while it wrote into this rank's memory: up to %llu bytes of the call's result "
		"may still change when it goes on (kill it, or do not use that memory before it has)",
		collet_shm_peer_name(shm, name, sizeof(name)), (unsigned long long)(is_known ? bytes : 0));
}

/* Waits until the peer no longer touches this rank's memory. A copy in progress ends by itself, and no other starts. A
 * process may be killed or stopped during the copy. For a stopped one the wait ends by a timeout of one second. */
static void await_peer_access_end(struct shm_endpoint *shm)
{
	const int64_t deadline = collet_deadline_after(SHM_REVOKE_TIMEOUT_NS);
	uint64_t number;
	/* Acquire (and more), pairing with the release in access_end(). */
	while ((number = atomic_load_explicit(&shm->theirs->accessing, memory_order_seq_cst)) != 0) {
		if (!shm->is_same_process && collet_shm_is_peer_gone(shm))
			return;
		if (!shm->is_same_process && collet_deadline_passed(deadline)) {
			warn_of_stopped_writer(shm, number);
			return;
		}
		sched_yield();
	}
}

/* Revokes the peer's access: it reports nothing as received that it reads from now on, and writes nothing. */
static void revoke_access(struct shm_endpoint *shm)
{
	/* Pairs with shm_is_peer_closed(): a peer that reads what the owner writes from now on sees this store when it
	 * checks. */
	atomic_store_explicit(&shm->mine->closed, 1, memory_order_seq_cst);
#ifndef __SANITIZE_THREAD__  /* ThreadSanitizer does not know fences */
	atomic_thread_fence(memory_order_seq_cst);
#endif
	await_peer_access_end(shm);
	if (atomic_load_explicit(&shm->theirs->sleeping, memory_order_seq_cst))
		collet_shm_wake(shm);
}

static uint32_t complete_all(struct shm_endpoint *shm, collet_status status)
{
	uint32_t completed = 0;
	for (uint64_t borrowed = shm->tokens_borrowed; borrowed; borrowed &= borrowed - 1, completed++) {
		struct collet_transfer *transfer = shm->borrowed[__builtin_ctzll(borrowed)];
		shm->endpoint.posted--;
		transfer->status = status;
	}
	shm->tokens_borrowed = 0;
	completed += collet_transfer_queue_complete_all(&shm->sends, &shm->endpoint, status);
	completed += collet_transfer_queue_complete_all(&shm->receives, &shm->endpoint, status);
	shm->incoming = (struct shm_incoming){ 0 };
	return completed;
}

uint32_t collet_shm_fail(struct shm_endpoint *shm, collet_status status)
{
	shm->endpoint.status = status;
	revoke_access(shm);
	return complete_all(shm, status);
}

uint32_t collet_shm_lose_peer(struct shm_endpoint *shm, const char *why)
{
	char name[160];
	(void)collet_fail(COLLET_ERR_PEER_LOST, "shm: %s %s", collet_shm_peer_name(shm, name, sizeof(name)), why);
	return collet_shm_fail(shm, COLLET_ERR_PEER_LOST);
}

static void close_endpoint(struct collet_endpoint *endpoint)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	if (shm->state == SHM_CLOSED)
		return;
	const bool forked = shm->owner_pid != getpid(); /* the endpoint then belongs to the parent */
	if (endpoint->status == COLLET_OK)
		endpoint->status = COLLET_CANCELLED;
	if (shm->region && !forked)
		revoke_access(shm);
	/* The fork may have interrupted a change of the queues, and the child has no transfers to complete. */
	if (!forked)
		(void)complete_all(shm, COLLET_CANCELLED);
	shm->state = SHM_CLOSED;
	collet_shm_free_resources(shm, forked);
}

/* ---- Moving ------------------------------------------------------------------------------------------------- */

static void post_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	transfer->status = endpoint->status;
	if (endpoint->status != COLLET_OK ||
		(!shm->sends.first && collet_shm_try_send(endpoint, transfer) == COLLET_TRY_DONE))
		return;
	transfer->status = COLLET_PENDING;
	endpoint->posted++;
	const bool is_first = !shm->sends.first;
	collet_transfer_queue_add(&shm->sends, transfer);
	if (is_first)
		collet_shm_send_some(shm);
}

static void post_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	transfer->status = endpoint->status;
	shm->is_peeked = false;
	if (endpoint->status != COLLET_OK ||
		(!shm->receives.first && collet_shm_try_recv(endpoint, transfer) == COLLET_TRY_DONE))
		return;
	/* The try may have failed the endpoint. */
	transfer->status = endpoint->status;
	if (endpoint->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	endpoint->posted++;
	collet_shm_publish_rtr(shm, transfer);
	shm->in_posted++;
	const bool is_first = !shm->receives.first;
	collet_transfer_queue_add(&shm->receives, transfer);
	if (is_first)
		(void)collet_shm_receive(shm, false);
}

static uint32_t progress_queues(struct shm_endpoint *shm)
{
	uint32_t completed = 0;
	if (shm->receives.first || shm->incoming.protocol)
		completed += collet_shm_receive(shm, true);
	if ((shm->sends.first || shm->tokens_borrowed) && shm->endpoint.status == COLLET_OK)
		completed += collet_shm_send(shm);
	return completed;
}

static bool is_waited_for(const struct shm_endpoint *shm)
{
	return shm->endpoint.posted != 0 || shm->is_peeked;
}

/* Checks after many empty polls whether the peer is gone. What it published before it left is still delivered. What
 * needs the peer to act is not. */
static uint32_t check_idle_peer(struct shm_endpoint *shm)
{
	shm->empty_polls = 0;
	if (!collet_shm_is_peer_gone(shm))
		return 0;
	const uint64_t cells = shm->in_next;
	const uint32_t completed = progress_queues(shm);
	const bool has_progress = completed || shm->in_next != cells || shm_is_reading(&shm->incoming);
	if (has_progress || shm->endpoint.status != COLLET_OK || !is_waited_for(shm))
		return completed;
	if (shm->endpoint.posted == 0 && collet_shm_has_next_cell(shm))
		return completed; /* the next poll finds it */
	const bool is_closed = atomic_load_explicit(&shm->theirs->closed, memory_order_relaxed) != 0;
	return collet_shm_lose_peer(shm, is_closed ? "has closed its connection" : "has died (its socket has hung up)");
}

static uint32_t progress(struct collet_endpoint *endpoint)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	if (endpoint->status != COLLET_OK)
		return 0;
	const uint32_t completed = progress_queues(shm);
	if (completed || endpoint->posted == 0) {
		shm->empty_polls = 0;
		return completed;
	}
	if (shm->is_peer_gone || ++shm->empty_polls >= SHM_IDLE_POLLS)
		return check_idle_peer(shm);
	return 0;
}

static bool peek(struct collet_endpoint *endpoint, struct collet_message *message)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	const bool has_message = collet_shm_peek(endpoint, message);
	if (has_message)
		shm->empty_polls = 0;
	else if (endpoint->status == COLLET_OK && endpoint->posted == 0 &&
		 (shm->is_peer_gone || ++shm->empty_polls >= SHM_IDLE_POLLS))
		(void)check_idle_peer(shm);
	return has_message;
}

/* ---- Sleeping ----------------------------------------------------------------------------------------------- */

static bool can_progress(struct shm_endpoint *shm)
{
	if (shm_is_reading(&shm->incoming))
		return true;
	const bool is_receiving = shm->receives.first || shm->incoming.protocol || shm->is_peeked;
	return (is_receiving && collet_shm_has_next_cell(shm)) || collet_shm_can_send(shm);
}

static bool arm(struct collet_endpoint *endpoint)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	if (endpoint->status != COLLET_OK)
		return false;
	/* Both ends store first and load then: see shm_publish(). */
	atomic_store_explicit(&shm->mine->sleeping, 1, memory_order_seq_cst);
	if (shm->has_membarrier)
		collet_fence_all();
	/* The socket is edge-triggered in the epoll set, so that one peer that has left does not keep the rank awake
	 * forever. A hang-up that came before now is therefore checked here. It matters only to a rank that waits for
	 * something. */
	if (!can_progress(shm) && (!is_waited_for(shm) || !collet_shm_is_peer_gone(shm)))
		return true;
	atomic_store_explicit(&shm->mine->sleeping, 0, memory_order_relaxed);
	return false;
}

static void disarm(struct collet_endpoint *endpoint)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	/* Relaxed: the worst outcome is an unneeded wake. */
	if (shm->region)
		atomic_store_explicit(&shm->mine->sleeping, 0, memory_order_relaxed);
}

const struct collet_transport collet_shm_transport = {
	.version = COLLET_TRANSPORT_VERSION,
	.bytes = sizeof(struct collet_transport),
	.name = "shm",
	.summary = "ranks of one host: copies through shared memory, reads of the peer's memory",
	.caps = COLLET_CAP_VIEW | COLLET_CAP_LOCAL,
	.priority = 800,
	.endpoint_bytes = sizeof(struct shm_endpoint),
	.reaches = reaches,
	.open = collet_shm_open,
	.open_progress = collet_shm_open_progress,
	.close = close_endpoint,
	.post_send = post_send,
	.post_recv = post_recv,
	.release_view = collet_shm_release_view,
	.progress = progress,
	.is_recv_ready = collet_shm_is_recv_ready,
	.peek = peek,
	.arm = arm,
	.disarm = disarm,
	.try_send = collet_shm_try_send,
	.try_recv = collet_shm_try_recv,
};
