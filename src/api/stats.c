/* Counts what a communicator has moved, by transport, endpoint and algorithm. */
#include <stdio.h>
#include <string.h>

#include "api/call.h"
#include "core/status.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/request.h"
#include "transport/registry.h"

void collet_comm_count_call(collet_comm *comm, const struct collet_request *request)
{
	assert(request->call.algorithm < COLLET_PROGRAMS_MAX);
	struct collet_algorithm_use *use = &comm->algorithm_uses[request->call.collective][request->call.algorithm];
	use->calls++;
	use->bytes += request->counted_bytes;
}

/* The caller's rows. Those beyond capacity are counted and not written. */
struct rows {
	collet_stat *rows;
	size_t capacity, count;
};

static collet_stat *next_row(struct rows *rows, collet_stat *spare)
{
	collet_stat *row = rows->count < rows->capacity ? &rows->rows[rows->count] : spare;
	rows->count++;
	memset(row, 0, sizeof(*row));
	return row;
}

static void add(collet_stat *row, const struct collet_endpoint_stats *stats)
{
	row->bytes_sent += stats->bytes_sent;
	row->bytes_received += stats->bytes_received;
	row->messages_sent += stats->messages_sent;
	row->messages_received += stats->messages_received;
	row->system_calls += stats->system_calls;
}

static void add_endpoints(const struct collet_comm_state *state, struct rows *rows)
{
	collet_stat spare;
	const struct collet_transport_set *set = state->engine->transports;
	for (uint32_t t = 0; t < set->count; t++) {
		collet_stat total = { .kind = COLLET_STAT_TRANSPORT };
		snprintf(total.name, sizeof(total.name), "%s", set->instances[t]->name);
		bool used = false;
		for (const struct collet_peer_queue *peer_queue = state->all_peer_queues; peer_queue;
			peer_queue = peer_queue->next_in_state) {
			const struct collet_endpoint *endpoint =
				atomic_load_explicit(&peer_queue->endpoint, memory_order_acquire);
			if (!endpoint || endpoint->transport != set->instances[t]->transport)
				continue;
			used = true;
			collet_stat *row = next_row(rows, &spare);
			row->kind = COLLET_STAT_ENDPOINT;
			row->peer = peer_queue->peer;
			row->channel = peer_queue->channel;
			memcpy(row->name, total.name, sizeof(row->name));
			add(row, &endpoint->stats);
			add(&total, &endpoint->stats);
		}
		if (used)
			*next_row(rows, &spare) = total;
	}
}

/* Adds what went from GPU to GPU, past all endpoints. */
static void add_pulled(const struct collet_comm_state *state, struct rows *rows)
{
	collet_stat spare, total = { .kind = COLLET_STAT_TRANSPORT, .name = "cuda_ipc" };
	for (uint32_t peer = 0; peer < state->size; peer++) {
		const struct collet_endpoint_stats *pulled = collet_p2p_pull_stats(state, peer);
		if (!pulled)
			continue;
		collet_stat *row = next_row(rows, &spare);
		*row = (collet_stat){ .kind = COLLET_STAT_ENDPOINT, .peer = peer, .channel = COLLET_CHANNEL_P2P,
			.name = "cuda_ipc" };
		add(row, pulled);
		add(&total, pulled);
	}
	if (total.messages_sent || total.messages_received)
		*next_row(rows, &spare) = total;
}

static void add_algorithms(const collet_comm *comm, struct rows *rows)
{
	collet_stat spare;
	for (uint32_t c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t programs;
		const struct collet_program *const *list = collet_programs((enum collet_collective)c, &programs);
		for (size_t p = 0; p < programs; p++) {
			if (!comm->algorithm_uses[c][p].calls)
				continue;
			collet_stat *row = next_row(rows, &spare);
			row->kind = COLLET_STAT_ALGORITHM;
			snprintf(row->name, sizeof(row->name), "%s:%s",
				collet_collective_name((enum collet_collective)c), list[p]->name);
			row->calls = comm->algorithm_uses[c][p].calls;
			row->bytes_sent = comm->algorithm_uses[c][p].bytes;
		}
	}
}

collet_status collet_comm_stats(collet_comm *comm, collet_stat *rows, size_t capacity, size_t *count)
{
	if (!comm || !count || (!rows && capacity))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_stats: an argument is NULL");
	if (collet_context_forked(comm->context))
		return collet_fail(COLLET_ERR_FORKED,
			"collet_comm_stats: this process is a fork of the one that created the "
			"communicator");
	if (collet_check_nested("collet_comm_stats") != COLLET_OK)
		return COLLET_ERR_ARGUMENT;
	struct collet_engine *engine = &comm->context->engine;
	struct rows written = { rows, capacity, 0 };
	collet_stat spare;
	collet_engine_lock(engine);
	pthread_mutex_lock(&engine->connections_lock);
	add_endpoints(&comm->state, &written);
	add_pulled(&comm->state, &written);
	add_algorithms(comm, &written);
	collet_stat *row = next_row(&written, &spare);
	row->kind = COLLET_STAT_ROUNDING;
	snprintf(row->name, sizeof(row->name), "rounding");
	row->messages_sent = comm->state.roundings;
	pthread_mutex_unlock(&engine->connections_lock);
	collet_engine_unlock(engine);
	*count = written.count;
	return COLLET_OK;
}
