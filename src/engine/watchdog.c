/* Checks deadlines of pending requests, and suspicions and stalls of communicators. Threads that wait call it before
 * they sleep. */
#include <stdio.h>

#include "core/clock.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/mismatch.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/progress_hook.h"
#include "engine/recorder.h"
#include "engine/request.h"
#include "engine/transfer_ring.h"
#include "engine/watchdog.h"

/* Says in brackets why a rank may not answer. */
static const char *describe_connection(const struct collet_peer_queue *peer_queue)
{
	if (atomic_load_explicit(&peer_queue->endpoint, memory_order_relaxed))
		return "";
	return collet_mismatch_peer_lacks_it(peer_queue->state, peer_queue->peer)
		? " (which has not created this communicator)"
		: " (not connected)";
}

/* Names the ranks that the request, or its communicator's pending transfers, wait for, for a sentence. */
static void name_awaited(const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_comm_state *state = request->state;
	for (const struct collet_progress_hook *hook = state->hooks; hook && request->deferred; hook = hook->next)
		if (hook->table->name_awaited(hook->context, request, text, capacity))
			return;
	size_t used = 0;
	uint32_t named = 0;
	text[0] = '\0';
	for (const struct collet_peer_queue *peer_queue = state->engine->active_queues; peer_queue && named < 8;
		peer_queue = peer_queue->next_active) {
		if (peer_queue->state != state || (peer_queue->receive.completed == peer_queue->receive.tail &&
							  peer_queue->send.completed == peer_queue->send.tail))
			continue;
		const int written = snprintf(text + used, capacity - used, "%s%u on %s%s", named ? ", " : "",
			peer_queue->peer, collet_comm_state_host(state, peer_queue->peer),
			describe_connection(peer_queue));
		if (written < 0 || used + (size_t)written >= capacity)
			break;
		used += (size_t)written;
		named++;
	}
	if (!named && request->is_p2p)
		collet_p2p_list_peers(request, text, capacity);
	if (!text[0])
		snprintf(text, capacity, "none in particular");
}

static void end_by_timeout(const struct collet_request *request, int64_t now)
{
	char call[160], awaited[400], error_text[COLLET_ERROR_BYTES];
	collet_request_describe(request, call, sizeof(call));
	name_awaited(request, awaited, sizeof(awaited));
	snprintf(error_text, sizeof(error_text), "%s timed out after %.3f s, waiting for rank %s", call,
		(double)(now - request->started_ns) * 1e-9, awaited);
	collet_comm_state_end(request->state, COLLET_ERR_TIMEOUT, true, error_text);
}

void collet_engine_run_watchdog(struct collet_engine *engine)
{
	const int64_t now = collet_clock_ns();
	for (struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all) {
		if (atomic_load_explicit(&state->end_status, memory_order_relaxed) != COLLET_OK)
			continue;
		struct collet_request *expired;
		while ((expired = collet_pending_find_expired(state, now)) != NULL)
			if (!expired->is_p2p || !collet_p2p_withdraw(expired, COLLET_ERR_TIMEOUT))
				break;
		if (expired)
			end_by_timeout(expired, now);
		else
			collet_mismatch_check_pending(state, now);
	}
}
