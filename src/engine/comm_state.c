/* Groups and requests: their lives and their ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/call_class.h"
#include "engine/pipeline.h"

/* ---- Requests ---- */

collet_status collet_request_new(struct collet_group *group, struct collet_request **request)
{
	struct collet_request *made = group->free_requests;
	if (made) {
		group->free_requests = made->next_free;
	} else {
		made = calloc(1, sizeof(*made));
		if (!made)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a request");
		made->group = group;
		made->next_made = group->made_requests;
		group->made_requests = made;
	}
	made->point_to_point = false;
	collet_request_renew(made);
	*request = made;
	return COLLET_OK;
}

void collet_request_renew(struct collet_request *request)
{
	request->status = COLLET_PENDING;
	request->lanes_entering = 0;
	request->items = request->finished_items = 0;
	request->spoilt = request->held = request->elsewhere = request->ordered = false;
	request->apart = NULL;
	request->previous_active = NULL;
}

void collet_request_free(struct collet_request *request)
{
	assert(!request->previous_active);
	request->next_free = request->group->free_requests;
	request->group->free_requests = request;
}

void collet_request_set_clock(struct collet_request *request, int64_t started_ns)
{
	const bool ends = request->timeout_ns >= 0 && request->timeout_ns < COLLET_NEVER - started_ns;
	request->started_ns = started_ns;
	request->deadline = ends ? started_ns + request->timeout_ns : COLLET_NEVER;
}

void collet_request_activate(struct collet_request *request)
{
	struct collet_engine *engine = request->group->engine;
	request->next_active = engine->requests;
	if (engine->requests)
		engine->requests->previous_active = &request->next_active;
	engine->requests = request;
	request->previous_active = &engine->requests;
}

void collet_request_end(struct collet_request *request, enum collet_status status)
{
	assert(request->status == COLLET_PENDING);
	request->status = status;
	if (request->previous_active) {
		*request->previous_active = request->next_active;
		if (request->next_active)
			request->next_active->previous_active = request->previous_active;
		request->previous_active = NULL;
	}
	struct collet_group *group = request->group;
	if (group->inlined == request) {
		group->inlined = NULL;
		group->lanes_dirty = true;  /* what has been started since may enter lane 0 now */
	}
	if (!request->point_to_point && request->counted_bytes >= COLLET_CALL_TOLD_BYTES && status == COLLET_OK &&
		!request->elsewhere)
		collet_request_took(request);
	if (!request->point_to_point)
		collet_recorder_end(request->apart ? request->apart : &group->recorder, request->sequence, status,
			request->finished_items, request->brief ? request->started_ticks : collet_ticks());
	collet_engine_ended_one(group->engine);
}

void collet_request_finish_if_done(struct collet_request *request)
{
	if (request->status == COLLET_PENDING && request->lanes_entering == 0 && request->items == 0 &&
		!request->spoilt && (!request->flow || collet_flow_is_over(request->flow)))
		collet_request_end(request, COLLET_OK);
}

void collet_request_describe(const struct collet_request *request, char *text, size_t capacity)
{
	if (request->point_to_point)
		collet_p2p_describe(request, text, capacity);
	else
		collet_call_describe(&request->call, text, capacity);
}

/* ---- Groups ---- */

collet_status collet_group_init(struct collet_group *group)
{
	collet_status status = collet_recorder_init(&group->recorder);
	if (status != COLLET_OK)
		return status;
	atomic_init(&group->ended, COLLET_OK);
	/* Address space only, as a lane's staging. */
	void *scratch = mmap(NULL, COLLET_SCRATCH_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (scratch == MAP_FAILED) {
		collet_recorder_deinit(&group->recorder);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator's scratch");
	}
	group->scratch = scratch;
	group->board.arrivals = calloc(group->size, sizeof(*group->board.arrivals));
	group->routes = calloc((size_t)COLLET_CHANNELS * group->size, sizeof(*group->routes));
	if (!group->board.arrivals || !group->routes) {
		collet_group_deinit(group);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator of %u ranks", group->size);
	}
	return COLLET_OK;
}

void collet_group_deinit(struct collet_group *group)
{
	for (uint32_t i = 0; i < COLLET_LANES; i++) {
		collet_lane_free(group->lanes[i]);
		group->lanes[i] = NULL;
	}
	free(group->routes);
	group->routes = NULL;
	collet_p2p_deinit(group);
	for (struct collet_request *request = group->made_requests, *next; request; request = next) {
		next = request->next_made;
		free(request->listed);
		collet_inline_forget(request);
		free(request);
	}
	group->made_requests = group->free_requests = NULL;
	if (group->scratch)
		munmap(group->scratch, COLLET_SCRATCH_BYTES);
	group->scratch = NULL;
	free(group->board.arrivals);
	group->board.arrivals = NULL;
	collet_recorder_deinit(&group->recorder);
}

void collet_group_end(struct collet_group *group, enum collet_status status, bool tell, const char *sentence)
{
	struct collet_engine *engine = group->engine;
	pthread_mutex_lock(&engine->end_lock);
	const bool first = atomic_load_explicit(&group->ended, memory_order_relaxed) == COLLET_OK;
	if (first) {
		snprintf(group->sentence, sizeof(group->sentence), "rank %u on %s: %s", group->rank,
			engine->cards[engine->rank].host, sentence);
		/* Pairs with the acquire loads of whoever looks: the sentence is there once the status is. */
		atomic_store_explicit(&group->ended, (int)status, memory_order_release);
		if (group->abort_word)
			atomic_store_explicit(group->abort_word, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&engine->end_lock);
	if (!first)
		return;
	collet_log(&engine->log, status == COLLET_ERR_ABORTED ? COLLET_LOG_INFO : COLLET_LOG_ERROR, "%s: %s",
		collet_status_name(status), group->sentence);
	if (tell)
		collet_fabric_tell_end(group, status, sentence);
	collet_engine_wake(engine);
}

/* Without a word: whoever ended the group has said why. */
static void end_shadow(struct collet_group *shadow, const struct collet_group *group)
{
	int status = atomic_load_explicit(&group->ended, memory_order_acquire);
	status = status == COLLET_OK ? COLLET_ERR_ABORTED : status;
	pthread_mutex_lock(&group->engine->end_lock);
	if (atomic_load_explicit(&shadow->ended, memory_order_relaxed) == COLLET_OK) {
		memcpy(shadow->sentence, group->sentence, sizeof(shadow->sentence));
		atomic_store_explicit(&shadow->ended, status, memory_order_release);
	}
	pthread_mutex_unlock(&group->engine->end_lock);
	collet_group_tear_down(shadow);
}

void collet_group_tear_down(struct collet_group *group)
{
	if (group->torn_down)
		return;
	group->torn_down = true;
	if (group->shadow)
		end_shadow(group->shadow, group);
	/* Conduits first: after that no peer and no transport reads or writes a buffer of ours. */
	collet_fabric_remove(group);
	for (struct collet_group_hook *hook = group->hooks; hook; hook = hook->next)
		if (hook->hooks->let_go)
			hook->hooks->let_go(hook->hooked);
	const enum collet_status status = (enum collet_status)atomic_load_explicit(&group->ended, memory_order_acquire);
	for (struct collet_request *request = group->engine->requests, *next; request; request = next) {
		next = request->next_active;
		if (request->group == group)
			collet_request_end(request, status == COLLET_OK ? COLLET_ERR_ABORTED : status);
	}
}

void collet_group_add_hook(struct collet_group *group, struct collet_group_hook *hook)
{
	hook->next = group->hooks;
	group->hooks = hook;
}

void collet_group_remove_hook(struct collet_group *group, const struct collet_group_hook *hook)
{
	struct collet_group_hook **at = &group->hooks;
	while (*at && *at != hook)
		at = &(*at)->next;
	if (*at)
		*at = hook->next;
}
