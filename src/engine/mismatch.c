/* Disagreement: finding out that ranks called different things, and saying who called what.
 *
 * Two ways lead here. A message came that nobody expected (suspect); or a call has waited for more than 100 ms, since
 * ranks that disagree may wait for messages that never meet. Either way this rank asks the ranks that it waits for,
 * over the control plane, what they called as that number; their control threads answer from the flight recorder,
 * whatever their users do. The first difference ends the communicator for everybody, naming both. A rank that has not
 * got there is no mistake, until COLLET_ERR_TIMEOUT; after 10 s everybody is asked, and one warning names who has not
 * arrived.
 *
 * A connection that ends is a suspicion too (doubt): a rank that has found a mistake, timed out or aborted closes its
 * connections, and its peers may see that before its word, which goes by way of rank 0, has reached them. So a lost
 * connection waits a moment for the true reason; the death of a process is told by the control plane at once.
 *
 * A communicator of some ranks may end although all of them live: one has left since another rank, which is not in this
 * communicator, has died. So who died first in the world is told with every loss. */
#include <stdio.h>
#include <string.h>

#include "engine/control_msg.h"
#include "engine/engine.h"

static const int64_t FIRST_ASK_NS = 100 * 1000000, ASK_EVERY_NS = 400 * 1000000,
		     WARN_AFTER_NS = 10 * INT64_C(1000000000), WARN_GATHER_NS = 500 * 1000000,
		     SUSPECT_NS = 800 * 1000000, DOUBT_NS = 1000 * 1000000;

static const char *host_of(const struct collet_group *group, uint32_t rank)
{
	return group->engine->cards[collet_group_world_rank(group, rank)].host;
}

static void ask(struct collet_group *group, uint32_t peer, uint64_t sequence)
{
	const struct collet_control_msg_query message = { group->id, sequence };
	const uint32_t to = peer == COLLET_CONTROL_ALL_RANKS ? peer : collet_group_world_rank(group, peer);
	collet_control_send(group->engine->control, to, COLLET_CONTROL_MSG_QUERY, &message, sizeof(message));
}

static enum collet_status suspicion(const struct collet_board *board)
{
	/* Relaxed: what it is about is under fabric_lock. */
	return (enum collet_status)atomic_load_explicit(&board->suspected, memory_order_relaxed);
}

/* The first suspicion counts. Under fabric_lock. */
static bool suspect(struct collet_board *board, uint32_t peer, enum collet_status status, int64_t patience_ns)
{
	if (suspicion(board) != COLLET_OK)
		return false;
	board->peer = peer;
	board->give_up_ns = collet_clock_ns() + patience_ns;
	atomic_store_explicit(&board->suspected, (int)status, memory_order_relaxed);
	return true;
}

void collet_board_suspect(struct collet_group *group, uint32_t peer, const struct collet_request *request,
	const struct collet_message *came)
{
	struct collet_board *board = &group->board;
	char call[160];
	collet_call_describe(&request->call, call, sizeof(call));
	const char *what = came->sequence != request->sequence ? "it belongs to another call" :
		came->signature != request->signature          ? "it is from a different call" :
                                                                 "its length differs (do the counts disagree?)";
	pthread_mutex_lock(&group->engine->fabric_lock);
	if (!suspect(board, peer, COLLET_ERR_MISMATCH, SUSPECT_NS)) {
		pthread_mutex_unlock(&group->engine->fabric_lock);
		return;
	}
	snprintf(board->sentence, sizeof(board->sentence),
		"%s here received a message from rank %u on %s that does not fit: %s (its call %llu, %llu bytes)", call,
		peer, host_of(group, peer), what, (unsigned long long)came->sequence, (unsigned long long)came->bytes);
	pthread_mutex_unlock(&group->engine->fabric_lock);
	ask(group, peer, came->sequence < request->sequence ? came->sequence : request->sequence);
}

/* The group ends over a rank of which nothing is known but that it does not answer any more. */
static void end_over_loss(struct collet_group *group, enum collet_status status, const char *what)
{
	const char *death = group->engine->first_death;
	/* A connection that will not open after a death is its consequence: who should answer has ended too. */
	if (death[0] && status == COLLET_ERR_TRANSPORT)
		status = COLLET_ERR_PEER_LOST;
	char sentence[COLLET_ERROR_BYTES + sizeof(group->engine->first_death)];
	snprintf(sentence, sizeof(sentence), "%s%s%s%s", what, death[0] ? "; before that, " : "",
		death[0] && group->world ? "of all ranks, " : "", death);
	collet_group_end(group, status, true, sentence);
}

/* Something needs a rank that has left in order. */
static void end_without(struct collet_group *group, uint32_t peer, const char *what)
{
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence), "rank %u on %s has left: %s", peer, host_of(group, peer), what);
	end_over_loss(group, COLLET_ERR_PEER_LOST, sentence);
}

void collet_board_doubt(struct collet_group *group, uint32_t peer, enum collet_status status, const char *sentence)
{
	struct collet_board *board = &group->board;
	/* Only a lack of memory is surely not the peer's doing: one that dies while a connection opens shows in many
	 * ways. */
	if (status == COLLET_ERR_MEMORY)
		collet_group_end(group, status, true, sentence);
	else if (board->arrivals[peer].left)
		end_without(group, peer, sentence);
	else if (suspect(board, peer, status, DOUBT_NS))
		snprintf(board->sentence, sizeof(board->sentence), "%s", sentence);
}

void collet_board_left(struct collet_group *group, uint32_t peer)
{
	struct collet_board *board = &group->board;
	const enum collet_status suspected = suspicion(board);
	board->arrivals[peer].left = true;
	if (suspected != COLLET_OK && suspected != COLLET_ERR_MISMATCH && board->peer == peer)
		end_without(group, peer, board->sentence);
}

/* Has the word that a suspicion waits for not come in time? */
static bool give_up(struct collet_group *group, int64_t now)
{
	struct collet_board *board = &group->board;
	if (suspicion(board) == COLLET_OK)
		return false;
	pthread_mutex_lock(&group->engine->fabric_lock);
	const bool over = now >= board->give_up_ns;
	if (over && suspicion(board) == COLLET_ERR_MISMATCH)
		collet_group_end(group, COLLET_ERR_MISMATCH, true, board->sentence);
	else if (over)
		end_over_loss(group, suspicion(board), board->sentence);
	pthread_mutex_unlock(&group->engine->fabric_lock);
	return over;
}

/* Asks whoever the group's pending transfers wait for. */
static void ask_awaited(struct collet_group *group, const struct collet_request *request)
{
	const uint64_t sequence = request->sequence;
	if (request->held)
		ask(group, COLLET_CONTROL_ALL_RANKS, sequence);
	for (const struct collet_route *route = group->engine->active; route; route = route->next_active)
		if (route->group == group && route->channel != COLLET_CHANNEL_P2P &&
			(route->receive.settled != route->receive.tail || route->send.settled != route->send.tail))
			ask(group, route->peer, sequence);
}

static void warn(struct collet_group *group, struct collet_request *request, int64_t now)
{
	struct collet_board *board = &group->board;
	char call[160], absent[500] = "";
	size_t used = 0;
	uint32_t lowest_arrived = group->rank, absents = 0;
	pthread_mutex_lock(&group->engine->fabric_lock);
	for (uint32_t r = 0; r < group->size; r++) {
		const struct collet_arrival *arrival = &board->arrivals[r];
		if (r == group->rank || arrival->asked_sequence != request->sequence || !arrival->known)
			continue;
		if (arrival->arrived) {
			lowest_arrived = r < lowest_arrived ? r : lowest_arrived;
			continue;
		}
		char last[160] = "nothing yet";
		if (arrival->calls)
			collet_call_describe(&arrival->last, last, sizeof(last));
		const int more = snprintf(absent + used, sizeof(absent) - used, "%srank %u on %s (last called %s)",
			absents++ ? ", " : "", r, host_of(group, r), last);
		used = more > 0 && used + (size_t)more < sizeof(absent) ? used + (size_t)more : used;
	}
	pthread_mutex_unlock(&group->engine->fabric_lock);
	if (lowest_arrived != group->rank)
		return;  /* one warning is enough */
	collet_call_describe(&request->call, call, sizeof(call));
	collet_log(&group->engine->log, COLLET_LOG_WARN, "%s has waited for %.0f s; %s%s", call,
		(double)(now - request->started_ns) * 1e-9,
		absents ? "not arrived: " : "all ranks that answered have arrived", absent);
}

void collet_board_waited(struct collet_request *request, int64_t now)
{
	struct collet_group *group = request->group;
	if (give_up(group, now))
		return;
	if (request->point_to_point || request->apart || now - request->started_ns < FIRST_ASK_NS)
		return;
	if (now >= request->next_ask_ns) {
		request->next_ask_ns = now + ASK_EVERY_NS;
		ask_awaited(group, request);
	}
	if (now - request->started_ns < WARN_AFTER_NS || request->warned == 2)
		return;
	if (request->warned == 0) {
		request->warned = 1;
		ask(group, COLLET_CONTROL_ALL_RANKS, request->sequence);
	} else if (now - request->started_ns >= WARN_AFTER_NS + WARN_GATHER_NS) {
		request->warned = 2;
		warn(group, request, now);
	}
}

/* ---- On the control thread, under fabric_lock ---- */

static void answer(struct collet_group *group, uint32_t from, const struct collet_control_msg_query *asked)
{
	struct collet_control_msg_reply message = { .communicator = group->id, .sequence = asked->sequence };
	struct collet_record record;
	message.call_count = collet_recorder_count(&group->recorder);
	if (collet_recorder_find(&group->recorder, asked->sequence, &record)) {
		message.has_call = 1;
		message.call = record.call;
		message.history = record.history;
	}
	if (message.call_count && collet_recorder_find(&group->recorder, message.call_count - 1, &record))
		message.last = record.call;
	collet_control_send(group->engine->control, from, COLLET_CONTROL_MSG_REPLY, &message, sizeof(message));
}

/* What was called differently is in no flight recorder any more. */
static void end_over_the_past(struct collet_group *group, uint32_t peer, uint64_t sequence)
{
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence),
		"ranks disagree: rank %u on %s and rank %u on %s have called different things before "
		"call %llu",
		group->rank, host_of(group, group->rank), peer, host_of(group, peer), (unsigned long long)sequence);
	collet_group_end(group, COLLET_ERR_MISMATCH, true, sentence);
}

static void compare(struct collet_group *group, uint32_t peer, const struct collet_control_msg_reply *answered)
{
	struct collet_board *board = &group->board;
	struct collet_arrival *arrival = &board->arrivals[peer];
	arrival->asked_sequence = answered->sequence;
	arrival->known = true;
	arrival->arrived = answered->call_count > answered->sequence;
	arrival->calls = answered->call_count;
	arrival->last = answered->last;
	struct collet_record own;
	if (!answered->has_call || !collet_recorder_find(&group->recorder, answered->sequence, &own))
		return;
	if (collet_call_signature(&own.call) != collet_call_signature(&answered->call)) {
		char mine[160], theirs[160], sentence[COLLET_ERROR_BYTES];
		collet_call_describe(&own.call, mine, sizeof(mine));
		collet_call_describe(&answered->call, theirs, sizeof(theirs));
		snprintf(sentence, sizeof(sentence), "ranks disagree: rank %u on %s called %s, rank %u on %s called %s",
			group->rank, host_of(group, group->rank), mine, peer, host_of(group, peer), theirs);
		collet_group_end(group, COLLET_ERR_MISMATCH, true, sentence);
	} else if (own.history != answered->history) {
		/* The disagreement is older. */
		if (collet_recorder_find(&group->recorder, answered->sequence - 1, &own))
			ask(group, peer, answered->sequence - 1);
		else
			end_over_the_past(group, peer, answered->sequence);
	} else if (suspicion(board) == COLLET_ERR_MISMATCH && board->peer == peer) {
		collet_group_end(group, COLLET_ERR_MISMATCH, true, board->sentence);
	}
}

void collet_board_message(struct collet_group *group, uint32_t from, uint32_t type, const void *data, size_t bytes)
{
	if (type == COLLET_CONTROL_MSG_END && bytes == sizeof(struct collet_control_msg_end)) {
		struct collet_control_msg_end end;
		memcpy(&end, data, sizeof(end));
		end.sentence[sizeof(end.sentence) - 1] = '\0';
		if (end.status > COLLET_PENDING && end.status < COLLET_STATUS_COUNT)
			collet_group_end(group, (enum collet_status)end.status, false, end.sentence);
	} else if (type == COLLET_CONTROL_MSG_QUERY && bytes == sizeof(struct collet_control_msg_query)) {
		struct collet_control_msg_query asked;
		memcpy(&asked, data, sizeof(asked));
		answer(group, from, &asked);
	} else if (type == COLLET_CONTROL_MSG_REPLY && bytes == sizeof(struct collet_control_msg_reply)) {
		struct collet_control_msg_reply answered;
		memcpy(&answered, data, sizeof(answered));
		for (uint32_t r = 0; r < group->size; r++)
			if (collet_group_world_rank(group, r) == from)
				compare(group, r, &answered);
	}
}
