/* Telling transports what calls take; see call_class.h. */
#include "engine/call_class.h"
#include "core/clock.h"
#include "engine/engine.h"

/* v-forms have one number: ranks may know different counts. */
static const uint64_t LISTED_BYTES = 1 << 20;

uint32_t collet_request_call_flags(const struct collet_request *request)
{
	const bool listed = request->shape.result.kind == COLLET_PARTITION_VECTOR;
	return collet_call_flags(request->program->collective, listed ? 0 : request->counted_bytes);
}

static void tell(const struct collet_route *route, uint32_t flags, uint64_t bytes, uint64_t ticks)
{
	/* Acquire, pairing with the control thread's release store of an open conduit. */
	struct collet_endpoint *conduit = route ? atomic_load_explicit(&route->conduit, memory_order_acquire) : NULL;
	if (conduit && conduit->transport->report_call_time)
		conduit->transport->report_call_time(conduit, collet_call_number(flags), bytes, ticks);
}

void collet_request_took(const struct collet_request *request)
{
	const bool listed = request->shape.result.kind == COLLET_PARTITION_VECTOR;
	const uint64_t bytes = listed ? LISTED_BYTES : request->counted_bytes;
	const uint64_t ticks = collet_ticks() - request->started_ticks;
	const uint32_t flags = collet_request_call_flags(request);
	for (uint32_t channel = 0; channel < request->lanes; channel++)
		for (uint32_t peer = 0; peer < request->group->size; peer++)
			tell(collet_route_peek(request->group, channel, peer), flags, bytes, ticks);
}

void collet_message_took(const struct collet_request *request, unsigned kind, uint32_t peer, uint64_t bytes)
{
	tell(collet_route_peek(request->group, COLLET_CHANNEL_P2P, peer), collet_call_flags(kind, bytes), bytes,
		collet_ticks() - request->started_ticks);
}
