/* Reports the durations of calls to transports; see call_class.h. */
#include "engine/call_class.h"
#include "collectives/step.h"
#include "core/clock.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/peer_queue.h"
#include "engine/request.h"

/* Size that v-forms are reported with. They form one class, since ranks may know different counts. */
static const uint64_t VECTOR_BYTES = 1 << 20;

uint32_t collet_request_class_flags(const struct collet_request *request)
{
	const bool is_vector = request->shape.result.kind == COLLET_PARTITION_VECTOR;
	return collet_call_class_flags(request->program->collective, is_vector ? 0 : request->counted_bytes);
}

static void report_duration(const struct collet_peer_queue *peer_queue, uint32_t flags, uint64_t bytes, uint64_t ticks)
{
	struct collet_endpoint *endpoint = peer_queue ? collet_peer_queue_endpoint(peer_queue) : NULL;
	if (endpoint && endpoint->transport->report_call_time)
		endpoint->transport->report_call_time(endpoint, collet_call_class_of(flags), bytes, ticks);
}

void collet_request_report_duration(const struct collet_request *request)
{
	const bool is_vector = request->shape.result.kind == COLLET_PARTITION_VECTOR;
	const uint64_t bytes = is_vector ? VECTOR_BYTES : request->counted_bytes;
	const uint64_t ticks = collet_ticks() - request->started_ticks;
	const uint32_t flags = collet_request_class_flags(request);
	for (uint32_t channel = 0; channel < request->task_count; channel++)
		for (uint32_t peer = 0; peer < request->state->size; peer++)
			report_duration(collet_peer_queue_find(request->state, channel, peer), flags, bytes, ticks);
}

void collet_message_report_duration(const struct collet_request *request, unsigned kind, uint32_t peer, uint64_t bytes)
{
	report_duration(collet_peer_queue_find(request->state, COLLET_CHANNEL_P2P, peer),
		collet_call_class_flags(kind, bytes), bytes, collet_ticks() - request->started_ticks);
}
