/* What whoever waits in earnest looks at: deadlines, suspicions and warnings of everything pending. */
#include <stdio.h>

#include "engine/wait.h"

/* Which ranks the request, or its group's pending transfers, wait for, for a sentence. */
static void name_awaited(const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_group *group = request->group;
	for (const struct collet_group_hook *hook = group->hooks; hook && request->held; hook = hook->next)
		if (hook->hooks->name_awaited(hook->hooked, request, text, capacity))
			return;
	size_t used = 0;
	uint32_t named = 0;
	text[0] = '\0';
	for (const struct collet_route *route = group->engine->active; route && named < 8; route = route->next_active) {
		if (route->group != group ||
			(route->receive.settled == route->receive.tail && route->send.settled == route->send.tail))
			continue;
		const int more = snprintf(text + used, capacity - used, "%s%u on %s%s", named ? ", " : "", route->peer,
			group->engine->cards[collet_group_world_rank(group, route->peer)].host,
			atomic_load_explicit(&route->conduit, memory_order_relaxed) ? "" : " (not connected)");
		if (more < 0 || used + (size_t)more >= capacity)
			break;
		used += (size_t)more;
		named++;
	}
	if (!named && request->point_to_point)
		collet_p2p_list_peers(request, text, capacity);
	if (!text[0])
		snprintf(text, capacity, "none in particular");
}

void collet_engine_look_around(struct collet_engine *engine)
{
	const int64_t now = collet_clock_ns();
	for (struct collet_request *request = engine->requests, *next; request; request = next) {
		next = request->next_active;
		struct collet_group *group = request->group;
		if (atomic_load_explicit(&group->ended, memory_order_relaxed) != COLLET_OK)
			continue;
		if (!request->started_ns)
			collet_request_set_clock(
				request, collet_recorder_time(&group->recorder, request->started_ticks));
		if (request->deadline != COLLET_NEVER && now >= request->deadline) {
			char call[160], awaited[400], sentence[COLLET_ERROR_BYTES];
			collet_request_describe(request, call, sizeof(call));
			name_awaited(request, awaited, sizeof(awaited));
			snprintf(sentence, sizeof(sentence), "%s timed out after %.3f s, waiting for rank %s", call,
				(double)(now - request->started_ns) * 1e-9, awaited);
			collet_group_end(group, COLLET_ERR_TIMEOUT, true, sentence);
			continue;
		}
		collet_board_waited(request, now);
	}
}
