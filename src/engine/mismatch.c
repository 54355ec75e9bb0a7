/* Finds out that ranks made different calls, and names who called what.
 *
 * A query starts when an unexpected message has come (collet_mismatch_suspect), or when the oldest call has waited for
 * 100 ms: ranks that disagree may wait for messages that never match. This rank then asks the ranks that it waits for,
 * over the control plane, what they called as that number. Their control threads answer from the flight recorder,
 * whatever their users' threads do. The first difference ends the communicator on all ranks and names both calls. A
 * rank that has not made the call yet is no mistake, until COLLET_ERR_TIMEOUT. After 10 s this rank asks all ranks, and
 * one warning names those that have not arrived. A call that waits behind others does not ask: its time starts when it
 * becomes the oldest. So thousands of pending calls ask no more than one.
 *
 * A connection that ends raises a suspicion too (collet_mismatch_suspect_loss). A rank that found a mistake, timed out
 * or aborted closes its connections. Its peers may see that before its message, which goes through rank 0, reaches
 * them. So a lost connection waits a moment for the true reason. The control plane reports the death of a process at
 * once.
 *
 * A communicator may end although all its ranks live: one has left because a rank outside of it has died. So every loss
 * also names the first rank of the world that died. */
#include <stdio.h>
#include <string.h>

#include "control/control.h"
#include "core/clock.h"
#include "core/log.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/control_msg.h"
#include "engine/engine.h"
#include "engine/mismatch.h"
#include "engine/peer_queue.h"
#include "engine/request.h"
#include "engine/transfer_ring.h"

static const int64_t FIRST_QUERY_NS = 100 * 1000000, QUERY_INTERVAL_NS = 400 * 1000000,
		     WARN_AFTER_NS = 10 * INT64_C(1000000000), WARN_REPLY_NS = 500 * 1000000,
		     MISMATCH_GRACE_NS = 3 * INT64_C(1000000000), LOSS_GRACE_NS = 1000 * 1000000;

/* Stages of a call's warning. */
enum { WARNING_NONE, WARNING_QUERIED, WARNING_DONE };

static void send_query(struct collet_comm_state *state, uint32_t peer, uint64_t sequence)
{
	const struct collet_control_msg_query message = {
		state->id, sequence, collet_recorder_count(&state->recorder) };
	const uint32_t to = peer == COLLET_CONTROL_ALL_RANKS ? peer : collet_comm_state_world_rank(state, peer);
	collet_control_send_droppable(
		state->engine->control, to, COLLET_CONTROL_MSG_QUERY, &message, sizeof(message));
}

static enum collet_status suspected_status(const struct collet_mismatch *mismatch)
{
	/* Relaxed: the fields that it announces are under connections_lock. */
	return (enum collet_status)atomic_load_explicit(&mismatch->suspected_status, memory_order_relaxed);
}

/* Sets a suspicion unless there is one already. Under connections_lock. */
static bool set_suspicion(struct collet_mismatch *mismatch, uint32_t peer, enum collet_status status, int64_t grace_ns)
{
	if (suspected_status(mismatch) != COLLET_OK)
		return false;
	mismatch->peer = peer;
	mismatch->grace_deadline_ns = collet_clock_ns() + grace_ns;
	atomic_store_explicit(&mismatch->suspected_status, (int)status, memory_order_relaxed);
	return true;
}

void collet_mismatch_suspect(struct collet_comm_state *state, uint32_t peer, const struct collet_request *request,
	const struct collet_message *received)
{
	struct collet_mismatch *mismatch = &state->mismatch;
	char call[160];
	collet_call_describe(&request->call, call, sizeof(call));
	const char *what = received->sequence != request->sequence ? "it belongs to another call" :
		received->signature != request->signature          ? "it is from a different call" :
                                                                 "its length differs (do the counts disagree?)";
	pthread_mutex_lock(&state->engine->connections_lock);
	if (!set_suspicion(mismatch, peer, COLLET_ERR_MISMATCH, MISMATCH_GRACE_NS)) {
		pthread_mutex_unlock(&state->engine->connections_lock);
		return;
	}
	snprintf(mismatch->error_text, sizeof(mismatch->error_text),
		"%s here received a message from rank %u on %s that does not fit: %s (its call %llu, %llu bytes)", call,
		peer, collet_comm_state_host(state, peer), what, (unsigned long long)received->sequence,
		(unsigned long long)received->bytes);
	pthread_mutex_unlock(&state->engine->connections_lock);
	send_query(state, peer, received->sequence < request->sequence ? received->sequence : request->sequence);
}

/* Ends the communicator because of a rank that does not answer any more, for no known reason. */
static void end_by_loss(struct collet_comm_state *state, enum collet_status status, const char *what)
{
	const char *death = state->engine->first_death;
	/* A connection that cannot open after a death is its consequence: the peer has ended too. */
	if (death[0] && status == COLLET_ERR_TRANSPORT)
		status = COLLET_ERR_PEER_LOST;
	char error_text[COLLET_ERROR_BYTES + sizeof(state->engine->first_death)];
	snprintf(error_text, sizeof(error_text), "%s%s%s%s", what, death[0] ? "; before that, " : "",
		death[0] && state->world_ranks ? "of all ranks, " : "", death);
	collet_comm_state_end(state, status, true, error_text);
}

/* Ends the communicator because it needs a rank that has left in order. */
static void end_by_left_peer(struct collet_comm_state *state, uint32_t peer, const char *what)
{
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "rank %u on %s has left: %s", peer,
		collet_comm_state_host(state, peer), what);
	end_by_loss(state, COLLET_ERR_PEER_LOST, error_text);
}

void collet_mismatch_suspect_loss(
	struct collet_comm_state *state, uint32_t peer, enum collet_status status, const char *error_text)
{
	struct collet_mismatch *mismatch = &state->mismatch;
	/* Only a lack of memory is certainly not caused by the peer. The death of a peer while a connection opens may
	 * cause any other status. */
	if (status == COLLET_ERR_MEMORY)
		collet_comm_state_end(state, status, true, error_text);
	else if (mismatch->replies[peer].has_left)
		end_by_left_peer(state, peer, error_text);
	else if (set_suspicion(mismatch, peer, status, LOSS_GRACE_NS))
		snprintf(mismatch->error_text, sizeof(mismatch->error_text), "%s", error_text);
}

void collet_mismatch_peer_left(struct collet_comm_state *state, uint32_t peer)
{
	struct collet_mismatch *mismatch = &state->mismatch;
	const enum collet_status suspected = suspected_status(mismatch);
	mismatch->replies[peer].has_left = true;
	if (suspected != COLLET_OK && suspected != COLLET_ERR_MISMATCH && mismatch->peer == peer)
		end_by_left_peer(state, peer, mismatch->error_text);
}

/* Ends the communicator if the reason that a suspicion waits for has not arrived in time. True if so. */
static bool end_if_grace_is_over(struct collet_comm_state *state, int64_t now)
{
	struct collet_mismatch *mismatch = &state->mismatch;
	if (suspected_status(mismatch) == COLLET_OK)
		return false;
	pthread_mutex_lock(&state->engine->connections_lock);
	const bool over = now >= mismatch->grace_deadline_ns;
	if (over && suspected_status(mismatch) == COLLET_ERR_MISMATCH)
		collet_comm_state_end(state, COLLET_ERR_MISMATCH, true, mismatch->error_text);
	else if (over)
		end_by_loss(state, suspected_status(mismatch), mismatch->error_text);
	pthread_mutex_unlock(&state->engine->connections_lock);
	return over;
}

/* Queries the ranks that the communicator's pending transfers wait for. */
static void query_awaited(struct collet_comm_state *state, const struct collet_request *request)
{
	const uint64_t sequence = request->sequence;
	if (request->deferred)
		send_query(state, COLLET_CONTROL_ALL_RANKS, sequence);
	for (const struct collet_peer_queue *peer_queue = state->engine->active_queues; peer_queue;
		peer_queue = peer_queue->next_active)
		if (peer_queue->state == state && peer_queue->channel != COLLET_CHANNEL_P2P &&
			(peer_queue->receive.completed != peer_queue->receive.tail ||
				peer_queue->send.completed != peer_queue->send.tail))
			send_query(state, peer_queue->peer, sequence);
}

/* Says what a rank that has not arrived did last. */
static void describe_last_call(const struct collet_peer_reply *reply, char *text, size_t capacity)
{
	char call[128] = "nothing yet";
	if (reply->call_count)
		collet_call_describe(&reply->last_call, call, sizeof(call));
	if (reply->lacks_communicator)
		snprintf(text, capacity, "has not created this communicator");
	else
		snprintf(text, capacity, "last called %s", call);
}

static void warn_of_stall(struct collet_comm_state *state, const struct collet_request *request, int64_t now)
{
	struct collet_mismatch *mismatch = &state->mismatch;
	char call[160], missing[500] = "";
	size_t used = 0;
	uint32_t lowest_arrived = state->rank, missing_count = 0;
	pthread_mutex_lock(&state->engine->connections_lock);
	for (uint32_t r = 0; r < state->size; r++) {
		const struct collet_peer_reply *reply = &mismatch->replies[r];
		if (r == state->rank || reply->queried_sequence != request->sequence || !reply->has_replied)
			continue;
		if (reply->arrived) {
			lowest_arrived = r < lowest_arrived ? r : lowest_arrived;
			continue;
		}
		char last[160];
		describe_last_call(reply, last, sizeof(last));
		const int written = snprintf(missing + used, sizeof(missing) - used, "%srank %u on %s (%s)",
			missing_count++ ? ", " : "", r, collet_comm_state_host(state, r), last);
		used = written > 0 && used + (size_t)written < sizeof(missing) ? used + (size_t)written : used;
	}
	pthread_mutex_unlock(&state->engine->connections_lock);
	if (lowest_arrived != state->rank)
		return;  /* one warning is enough */
	collet_call_describe(&request->call, call, sizeof(call));
	collet_log(&state->engine->log, COLLET_LOG_WARN, "%s has waited for %.0f s; %s%s", call,
		(double)(now - request->started_ns) * 1e-9,
		missing_count ? "not arrived: " : "all ranks that answered have arrived", missing);
}

/* Starts to watch a call that has become the oldest. */
static void watch_oldest(struct collet_comm_state *state, struct collet_request *oldest)
{
	collet_request_compute_deadline(oldest);
	const struct collet_recorder *recorder = &state->recorder;
	const uint64_t since_ticks = state->pending.oldest_since_ticks;
	const int64_t since_ns = since_ticks ? collet_recorder_time(recorder, since_ticks) : 0;
	state->stall = (struct collet_stall){
		.call_count = oldest->sequence + 1,
		.since_ns = since_ns > oldest->started_ns ? since_ns : oldest->started_ns,
	};
}

void collet_mismatch_check_pending(struct collet_comm_state *state, int64_t now)
{
	struct collet_request *oldest = state->pending.calls.first;
	struct collet_stall *stall = &state->stall;
	if (!collet_pending_next(&state->pending, NULL) || end_if_grace_is_over(state, now) || !oldest)
		return;
	if (stall->call_count != oldest->sequence + 1)
		watch_oldest(state, oldest);
	if (now - stall->since_ns < FIRST_QUERY_NS)
		return;
	if (now >= stall->next_query_ns) {
		stall->next_query_ns = now + QUERY_INTERVAL_NS;
		query_awaited(state, oldest);
	}
	if (now - stall->since_ns < WARN_AFTER_NS || stall->warning_stage == WARNING_DONE)
		return;
	if (stall->warning_stage == WARNING_NONE) {
		stall->warning_stage = WARNING_QUERIED;
		send_query(state, COLLET_CONTROL_ALL_RANKS, oldest->sequence);
	} else if (now - stall->since_ns >= WARN_AFTER_NS + WARN_REPLY_NS) {
		stall->warning_stage = WARNING_DONE;
		warn_of_stall(state, oldest, now);
	}
}

bool collet_mismatch_peer_lacks_it(struct collet_comm_state *state, uint32_t peer)
{
	pthread_mutex_lock(&state->engine->connections_lock);
	const bool lacks = state->mismatch.replies[peer].lacks_communicator;
	pthread_mutex_unlock(&state->engine->connections_lock);
	return lacks;
}

/* ---- On the control thread, under connections_lock ---- */

static void send_reply(struct collet_comm_state *state, uint32_t from, const struct collet_control_msg_query *query)
{
	struct collet_control_msg_reply message = {
		.communicator = state->id, .sequence = query->sequence, .has_communicator = 1
	};
	struct collet_record record;
	message.call_count = collet_recorder_count(&state->recorder);
	if (collet_recorder_find(&state->recorder, query->sequence, &record)) {
		message.has_call = 1;
		message.call = record.call;
		message.history_hash = record.history_hash;
	}
	if (message.call_count && collet_recorder_find(&state->recorder, message.call_count - 1, &record))
		message.last = record.call;
	const uint64_t common = message.call_count < query->call_count ? message.call_count : query->call_count;
	if (common && collet_recorder_find(&state->recorder, common - 1, &record)) {
		message.has_common = 1;
		message.common_sequence = common - 1;
		message.common_history_hash = record.history_hash;
	}
	collet_control_send_droppable(
		state->engine->control, from, COLLET_CONTROL_MSG_REPLY, &message, sizeof(message));
}

void collet_mismatch_reply_unknown(struct collet_engine *engine, uint32_t from, const void *data, size_t bytes)
{
	struct collet_control_msg_query query;
	if (bytes != sizeof(query))
		return;
	memcpy(&query, data, sizeof(query));
	const struct collet_control_msg_reply message = {
		.communicator = query.communicator, .sequence = query.sequence
	};
	collet_control_send_droppable(engine->control, from, COLLET_CONTROL_MSG_REPLY, &message, sizeof(message));
}

/* Ends the communicator after a mismatch so old that the flight recorder has lost the call. */
static void end_by_old_mismatch(struct collet_comm_state *state, uint32_t peer, uint64_t sequence)
{
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text),
		"ranks disagree: rank %u on %s and rank %u on %s have called different things before "
		"call %llu",
		state->rank, collet_comm_state_host(state, state->rank), peer, collet_comm_state_host(state, peer),
		(unsigned long long)sequence);
	collet_comm_state_end(state, COLLET_ERR_MISMATCH, true, error_text);
}

/* Asks about a call in the middle of those among which the first difference must be. When one is left, its reply names
 * the calls. */
static void search_difference(struct collet_comm_state *state, uint32_t peer)
{
	struct collet_peer_reply *reply = &state->mismatch.replies[peer];
	if (reply->agreed_count > reply->differing_sequence)
		end_by_old_mismatch(state, peer, reply->differing_sequence);
	else
		send_query(
			state, peer, reply->agreed_count + (reply->differing_sequence - reply->agreed_count) / 2);
	/* Each reply halves what is left to search, so a suspicion waits for the next one. */
	if (suspected_status(&state->mismatch) == COLLET_ERR_MISMATCH)
		state->mismatch.grace_deadline_ns = collet_clock_ns() + MISMATCH_GRACE_NS;
}

/* Notes that the histories of the two ranks differ at this call, though its signature may not. */
static void note_difference(struct collet_peer_reply *reply, uint64_t sequence)
{
	if (!reply->has_difference || sequence < reply->differing_sequence)
		reply->differing_sequence = sequence;
	reply->has_difference = true;
}

/* Notes that no difference can be found up to this call: the ranks agree, or one has forgotten it. */
static void note_agreement(struct collet_peer_reply *reply, uint64_t sequence)
{
	if (sequence >= reply->agreed_count)
		reply->agreed_count = sequence + 1;
}

static void end_by_mismatch(
	struct collet_comm_state *state, uint32_t peer, const struct collet_call *own, const struct collet_call *other)
{
	char mine[160], theirs[160], error_text[COLLET_ERROR_BYTES];
	collet_call_describe(own, mine, sizeof(mine));
	collet_call_describe(other, theirs, sizeof(theirs));
	snprintf(error_text, sizeof(error_text), "ranks disagree: rank %u on %s called %s, rank %u on %s called %s",
		state->rank, collet_comm_state_host(state, state->rank), mine, peer,
		collet_comm_state_host(state, peer), theirs);
	collet_comm_state_end(state, COLLET_ERR_MISMATCH, true, error_text);
}

/* Compares the call that was asked about. */
static void compare_call(
	struct collet_comm_state *state, uint32_t peer, const struct collet_control_msg_reply *message)
{
	struct collet_mismatch *mismatch = &state->mismatch;
	struct collet_peer_reply *reply = &mismatch->replies[peer];
	struct collet_record own;
	if (!collet_recorder_find(&state->recorder, message->sequence, &own)) {
		if (collet_recorder_count(&state->recorder) > message->sequence)
			note_agreement(reply, message->sequence);
		return;
	}
	if (message->has_call && collet_call_signature(&own.call) != collet_call_signature(&message->call)) {
		end_by_mismatch(state, peer, &own.call, &message->call);
		return;
	}
	if (message->has_call && own.history_hash != message->history_hash) {
		/* The mismatch is in an earlier call. */
		note_difference(reply, message->sequence);
		if (reply->agreed_count == message->sequence)
			end_by_old_mismatch(state, peer, message->sequence);
		return;
	}
	if (reply->arrived)
		note_agreement(reply, message->sequence);
	if (message->has_call && suspected_status(mismatch) == COLLET_ERR_MISMATCH && mismatch->peer == peer)
		collet_comm_state_end(state, COLLET_ERR_MISMATCH, true, mismatch->error_text);
}

/* Compares the latest call that both ranks have made, and with it all before. */
static void compare_common(
	struct collet_comm_state *state, uint32_t peer, const struct collet_control_msg_reply *message)
{
	struct collet_record own;
	if (message->has_common && collet_recorder_find(&state->recorder, message->common_sequence, &own) &&
		own.history_hash != message->common_history_hash)
		note_difference(&state->mismatch.replies[peer], message->common_sequence);
}

static void handle_reply(
	struct collet_comm_state *state, uint32_t peer, const struct collet_control_msg_reply *message)
{
	struct collet_peer_reply *reply = &state->mismatch.replies[peer];
	reply->queried_sequence = message->sequence;
	reply->has_replied = true;
	reply->lacks_communicator = !message->has_communicator;
	if (reply->lacks_communicator)
		return;
	reply->arrived = message->call_count > message->sequence;
	reply->call_count = message->call_count;
	reply->last_call = message->last;
	compare_common(state, peer, message);
	compare_call(state, peer, message);
	/* Relaxed: a hint, since a second end has no effect. */
	if (reply->has_difference && atomic_load_explicit(&state->end_status, memory_order_relaxed) == COLLET_OK)
		search_difference(state, peer);
}

void collet_mismatch_handle_message(
	struct collet_comm_state *state, uint32_t from, uint32_t type, const void *data, size_t bytes)
{
	if (type == COLLET_CONTROL_MSG_END && bytes == sizeof(struct collet_control_msg_end)) {
		struct collet_control_msg_end end;
		memcpy(&end, data, sizeof(end));
		end.error_text[sizeof(end.error_text) - 1] = '\0';
		if (end.status > COLLET_PENDING && end.status < COLLET_STATUS_COUNT)
			collet_comm_state_end(state, (enum collet_status)end.status, false, end.error_text);
	} else if (type == COLLET_CONTROL_MSG_QUERY && bytes == sizeof(struct collet_control_msg_query)) {
		struct collet_control_msg_query query;
		memcpy(&query, data, sizeof(query));
		send_reply(state, from, &query);
	} else if (type == COLLET_CONTROL_MSG_REPLY && bytes == sizeof(struct collet_control_msg_reply)) {
		struct collet_control_msg_reply message;
		memcpy(&message, data, sizeof(message));
		for (uint32_t r = 0; r < state->size; r++)
			if (collet_comm_state_world_rank(state, r) == from)
				handle_reply(state, r, &message);
	}
}
