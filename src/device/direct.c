#include "device/direct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "core/types.h"
#include "device/internal.h"

/* ---- Messages: point to point in the shadow ---- */

/* With the member in that place; NULL: the group has ended. */
static struct collet_request *post(
	struct collet_direct *direct, bool sends, uint32_t place, uint32_t tag, void *buffer, size_t bytes)
{
	struct collet_request *request;
	collet_status status = collet_request_new(&direct->shadow, &request);
	if (status == COLLET_OK) {
		request->point_to_point = true;
		request->key.algorithm = 0;
		/* A call has its own deadline; connecting has this one. */
		request->timeout_ns = direct->connecting ? direct->group->timeout_ns : -1;
		request->started_ticks = collet_ticks();
		request->started_ns = request->next_ask_ns = 0;
		request->warned = 0;
		request->p2p = (struct collet_p2p_call){
			.sends = sends, .peer = direct->members[place], .tag = tag,
			.buffer = buffer, .bytes = bytes, .element_bytes = 1 };
		collet_request_activate(request);
		status = collet_p2p_start(request);
		if (status == COLLET_OK)
			return request;
	}
	collet_group_end(direct->group, status, true, collet_last_error());
	return NULL;
}

static uint32_t offer_tag(const struct call *call)
{
	return (uint32_t)(2 * call->job.sequence);
}

/* Have all messages of the call arrived, or left? */
static bool messages_ended(const struct collet_direct *direct, const struct call *call)
{
	for (uint32_t i = 0; i < direct->size; i++)
		if (call->messages[i] && call->messages[i]->status == COLLET_PENDING)
			return false;
	for (uint32_t i = 0; i < direct->size; i++) {
		if (call->messages[i])
			collet_request_free(call->messages[i]);
		call->messages[i] = NULL;
	}
	return true;
}

/* ---- Calls ---- */

static void free_call(struct call *call)
{
	if (!call)
		return;
	free(call->messages);
	free(call->offers);
	free(call->opened);
	free(call);
}

struct call *collet_direct_new(struct collet_direct *direct)
{
	struct call *call = direct->spare;
	const size_t size = direct->size;
	if (call) {
		direct->spare = call->next;
		call->suspected = call->surprising = call->shared = call->over = false;
		call->verdict = (struct verdict){ 0 };
		return call;
	}
	call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->messages = calloc(size, sizeof(struct collet_request *));
	call->offers = calloc(is_leader(direct) ? size : 1, direct->offer_bytes);
	call->opened = calloc(2 * size, sizeof(struct collet_opened *));
	if (call->messages && call->offers && call->opened)
		return call;
	free_call(call);
	return NULL;
}

void collet_direct_put(struct collet_direct *direct, struct call *call)
{
	call->next = direct->spare;
	direct->spare = call;
}

collet_status collet_direct_offer(struct collet_direct *direct, struct call *call, size_t bytes)
{
	const uint32_t tag = offer_tag(call), size = direct->size;
	call->next = NULL;
	*direct->last = call;
	direct->last = &call->next;
	call->stage = is_leader(direct) ? GATHERING : WAITING;
	if (!is_leader(direct)) {
		call->messages[0] = post(direct, true, 0, tag, call->offers, bytes);
		if (!offer_of(direct, call, 0)->declined)
			call->messages[1] = post(direct, false, 0, tag + 1, &call->verdict, sizeof(call->verdict));
		return COLLET_OK;
	}
	for (uint32_t r = 1; r < size; r++)
		call->messages[r] = post(direct, false, r, tag, offer_of(direct, call, r), direct->offer_bytes);
	return COLLET_OK;
}

/* ---- Offers ---- */

static collet_status locate(struct collet_direct *direct, const char *which, struct collet_direct_side *side)
{
	struct collet_residence residence;
	side->place = side->bytes ? COLLET_PLACE_HOST : COLLET_PLACE_NONE;
	collet_status status =
		collet_residence_find(direct->device->cuda, which, side->first, side->bytes, &residence);
	if (status != COLLET_OK || !residence.device)
		return status;
	side->place = residence.ordinal == direct->device->ordinal ? COLLET_PLACE_GPU : COLLET_PLACE_BEYOND;
	side->context = (uintptr_t)residence.context;
	side->shared = (struct collet_shared){ .process = direct->device->process };
	if (direct->one_process || is_leader(direct) || side->place == COLLET_PLACE_BEYOND)
		return COLLET_OK;
	/* Other threads may call in other communicators of the context. */
	pthread_mutex_lock(&direct->group->engine->lock);
	status = collet_device_describe(direct->device, &residence, side->first, &side->shared);
	pthread_mutex_unlock(&direct->group->engine->lock);
	return status;
}

collet_status collet_direct_locate(struct collet_direct *direct, struct collet_direct_sides *sides)
{
	static const char *const names[2] = { "the buffer that is read", "the buffer that is written" };
	for (uint32_t s = 0; s < 2; s++) {
		const collet_status status = locate(direct, names[s], &sides->side[s]);
		if (status != COLLET_OK) {
			collet_error_prefix("%s", sides->function);
			return status;
		}
	}
	return COLLET_OK;
}

/* Cuts go along with a v-form's offer; how long that is. */
static size_t add_lists(struct collet_direct *direct, struct offer *offer, const struct collet_shape *shape)
{
	const size_t size = direct->group->size, bytes = size * sizeof(uint64_t);
	uint64_t *lists = (uint64_t *)(void *)(offer + 1);
	const struct collet_cut *cuts[2] = { &shape->input, &shape->result };
	offer->input_count = shape->input.count;
	offer->result_count = shape->result.count;
	offer->input_listed = shape->input.counts != NULL;
	offer->result_listed = shape->result.counts != NULL;
	for (uint32_t c = 0; c < 2; c++, lists += 2 * size) {
		memset(lists, 0, 2 * bytes);
		if (cuts[c]->counts) {
			memcpy(lists, cuts[c]->counts, bytes);
			memcpy(lists + size, cuts[c]->displacements, bytes);
		}
	}
	return sizeof(*offer) + 4 * bytes;
}

static struct job job_of(const struct collet_direct *direct, const struct collet_request *request)
{
	const struct collet_call *call = &request->call;
	const collet_op op = call->op == UINT8_MAX ? COLLET_OP_COUNT : (collet_op)call->op;
	const char *name = request->program->name;
	return (struct job){
		.collective = (enum collet_collective)call->collective,
		.listed = call->listed,
		.between_hosts = direct->by_host,
		.any_order = !request->named || collet_op_is_exact(op, (collet_dtype)call->dtype) ||
			strcmp(name, "direct") == 0 || strcmp(name, "two_shot") == 0,
		.dtype = (collet_dtype)call->dtype,
		.op = op,
		.root = call->root,
		.count = request->shape.count,
		.signature = request->signature,
		.sequence = request->sequence,
	};
}

/* The first of the undecided calls, on the host's memory. The leader must have this rank's offer before the call ends
 * here, since nobody may hear of this rank for long then; and those of others that await a verdict must have theirs
 * from the leader. So it is held until messages have left, or come. Mostly they have, at once, and nobody awaits
 * anything: then it is a call like any other. */
static void let_go_at_once(struct collet_direct *direct, struct call *call)
{
	/* Ended: some message could not even be posted. */
	if (atomic_load_explicit(&direct->group->ended, memory_order_acquire) != COLLET_OK ||
		!messages_ended(direct, call))
		return;
	for (uint32_t r = 1; is_leader(direct) && r < direct->size; r++)
		if (!offer_of(direct, call, r)->declined)
			return;
	if (is_leader(direct) && !collet_leader_agrees(direct, call))
		return;
	direct->first = NULL;
	direct->last = &direct->first;
	call->request->held = false;
	collet_direct_put(direct, call);
}

collet_status collet_direct_begin(
	struct collet_direct *direct, struct collet_request *request, const struct collet_direct_sides *sides)
{
	struct call *call = collet_direct_new(direct);
	collet_status status;
	if (!call)
		return collet_fail(COLLET_ERR_MEMORY, "%s: no memory for a call of ranks that share a GPU",
			sides->function);
	call->request = request;
	call->job = job_of(direct, request);
	call->sides = *sides;
	struct offer *offer = offer_of(direct, call, 0);
	collet_direct_tell_owed(direct);
	*offer = (struct offer){ .signature = request->signature, .sequence = request->sequence, .fine = 1,
		.scale = sides->scale, .side = { sides->side[0], sides->side[1] } };
	const size_t bytes = call->job.listed ? add_lists(direct, offer, &request->shape) : sizeof(*offer);
	for (uint32_t s = 0; s < 2; s++) {
		struct collet_direct_side *side = &offer->side[s];
		if (side->place != COLLET_PLACE_GPU || is_leader(direct) || direct->one_process ||
			side->shared.kind == COLLET_SHARED_HANDLE)
			continue;
		if (side->shared.kind == COLLET_SHARED_NOT || collet_direct_show(direct, &side->shared) != COLLET_OK)
			side->place = COLLET_PLACE_BEYOND;
	}
	offer->notes = direct->shown.notes;
	request->held = true;
	/* Then the verdict is known, whatever others offer. */
	const bool declines = collet_direct_is_hosts(sides) &&
		(sides->side[0].place == COLLET_PLACE_HOST || sides->side[1].place == COLLET_PLACE_HOST);
	offer->declined = declines && !is_leader(direct);
	call->verdict.staged = offer->declined;
	status = collet_direct_offer(direct, call, bytes);
	if (status == COLLET_OK && declines && direct->first == call)
		let_go_at_once(direct, call);
	return status;
}

void collet_direct_over(void *data)
{
	struct call *call = data;
	call->over = true;
}

/* ---- Progress ---- */

static void tell(struct collet_direct *direct, struct call *call)
{
	call->stage = TELLING;
	for (uint32_t r = 1; r < direct->size; r++)
		if (!offer_of(direct, call, r)->declined)
			call->messages[r] = post(
				direct, true, r, offer_tag(call) + 1, &call->verdict, sizeof(call->verdict));
}

/* The call is decided, on this rank too. */
static void settle(struct collet_direct *direct, struct call *call)
{
	struct collet_request *request = call->request;
	call->stage = OVER;
	if (call->verdict.again)
		collet_shown_all_again(&direct->shown);
	if (call->shared)
		collet_direct_put(direct, call);
	if (call->shared || !request)
		return;
	if (!call->verdict.staged) {
		request->elsewhere = true;
		direct->events->done(request);
	} else if (direct->events->stage(request, &call->sides) != COLLET_OK) {
		/* The others go on without this rank. */
		collet_group_end(direct->group, COLLET_ERR_SYSTEM, true, collet_last_error());
	}
	request->held = false;
	direct->group->lanes_dirty = true;
	collet_direct_put(direct, call);
}

/* Goes on with the first undecided call; false: it has to wait. */
static bool step(struct collet_direct *direct, struct call *call)
{
	switch (call->stage) {
	case GATHERING:
		if (!messages_ended(direct, call) || !collet_leader_decide(direct, call))
			return false;
		if (call->stage == GATHERING)
			tell(direct, call);
		return true;
	case SHARING:
		if (!call->over)
			return false;
		collet_leader_release(direct, call);
		tell(direct, call);
		return true;
	case RUNNING:
		if (!collet_leader_finished(direct, call))
			return false;
		tell(direct, call);
		return true;
	default:
		if (!messages_ended(direct, call))
			return false;
		direct->first = call->next;
		if (!direct->first)
			direct->last = &direct->first;
		settle(direct, call);
		return true;
	}
}

static bool has_ended(const struct collet_group *group)
{
	return atomic_load_explicit(&group->ended, memory_order_acquire) != COLLET_OK;
}

static bool advance(struct collet_group *group, void *hooked)
{
	struct collet_direct *direct = hooked;
	bool any = false, some = true;
	while (direct->first && some && !has_ended(group)) {
		if (has_ended(&direct->shadow)) {
			const int status = atomic_load_explicit(&direct->shadow.ended, memory_order_relaxed);
			collet_group_end(group, (enum collet_status)status, true, direct->shadow.sentence);
			return true;
		}
		some = step(direct, direct->first);
		any |= some;
	}
	return any;
}

/* No message comes of what the GPU has done. */
static bool rests(const void *hooked)
{
	const struct collet_direct *direct = hooked;
	return !direct->first || direct->first->stage != RUNNING;
}

static bool name_awaited(const void *hooked, const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_direct *direct = hooked;
	const struct call *call = direct->first;
	size_t used = 0;
	while (call && call->request != request)
		call = call->next;
	if (!call)
		return false;
	if (call->stage == RUNNING)
		snprintf(text, capacity, "none, but for the GPU");
	else
		snprintf(text, capacity, "%u, which leads", direct->members[0]);
	if (call->stage != GATHERING)
		return true;
	for (uint32_t r = 1; r < direct->size; r++) {
		if (!call->messages[r] || call->messages[r]->status != COLLET_PENDING)
			continue;
		const int more = snprintf(text + used, capacity - used, "%s%u", used ? ", " : "", direct->members[r]);
		if (more < 0 || used + (size_t)more >= capacity)
			break;
		used += (size_t)more;
	}
	return true;
}

const struct collet_group_hooks collet_direct_hooks = { advance, rests, name_awaited };

/* ---- A communicator's ---- */

static const struct collet_card *card_of(const struct collet_group *group, uint32_t rank)
{
	return &group->engine->cards[collet_group_world_rank(group, rank)];
}

static bool has_gpu(const struct collet_card *card)
{
	static const uint8_t none[sizeof(card->gpu)];
	return memcmp(card->gpu, none, sizeof(none)) != 0;
}

/* How many share this rank's host; 0: not all of them share its GPU. */
static uint32_t ranks_of_host(const struct collet_group *group, uint32_t rank)
{
	const struct collet_card *own = card_of(group, rank);
	uint32_t count = 0;
	for (uint32_t r = 0; r < group->size; r++) {
		const struct collet_card *card = card_of(group, r);
		if (card->host_id != own->host_id)
			continue;
		if (!has_gpu(card) || memcmp(card->gpu, own->gpu, sizeof(own->gpu)) != 0)
			return 0;
		count++;
	}
	return count;
}

enum collet_direct_fit collet_direct_fits(const struct collet_group *group)
{
	uint32_t most = 0;
	for (uint32_t r = 0; r < group->size; r++) {
		/* Once a host: at its first rank. */
		bool first = true;
		for (uint32_t s = 0; s < r && first; s++)
			first = card_of(group, s)->host_id != card_of(group, r)->host_id;
		if (!first)
			continue;
		const uint32_t count = ranks_of_host(group, r);
		if (!count || count > COLLET_DIRECT_RANKS)
			return COLLET_DIRECT_NONE;
		most = count > most ? count : most;
	}
	return most < 2 ? COLLET_DIRECT_NONE : most == group->size ? COLLET_DIRECT_ALL : COLLET_DIRECT_BY_HOST;
}

/* Who goes together, and the place among them; of one process or of several. */
static collet_status find_members(struct collet_direct *direct)
{
	const struct collet_group *group = direct->group;
	const struct collet_card *own = card_of(group, group->rank);
	direct->members = calloc(group->size, sizeof(*direct->members));
	if (!direct->members)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for ranks that share a GPU");
	direct->one_process = true;
	for (uint32_t r = 0; r < group->size; r++) {
		const struct collet_card *card = card_of(group, r);
		if (card->host_id != own->host_id)
			continue;
		if (r == group->rank)
			direct->place = direct->size;
		direct->one_process &= card->process_id == own->process_id;
		direct->members[direct->size++] = r;
	}
	direct->by_host = direct->size != group->size;
	return COLLET_OK;
}

static collet_status make_shadow(struct collet_direct *direct)
{
	struct collet_group *shadow = &direct->shadow, *group = direct->group;
	*shadow = (struct collet_group){ .engine = group->engine, .rank = group->rank, .size = group->size,
		.world = group->world, .timeout_ns = group->timeout_ns, .id = ~group->id * 0x9e3779b97f4a7c15 };
	const collet_status status = collet_group_init(shadow);
	if (status != COLLET_OK)
		return status;
	pthread_mutex_lock(&group->engine->lock);
	collet_fabric_add(shadow);
	group->shadow = shadow;
	direct->hook = (struct collet_group_hook){ .hooks = &collet_direct_hooks, .hooked = direct };
	collet_group_add_hook(group, &direct->hook);
	pthread_mutex_unlock(&group->engine->lock);
	return COLLET_OK;
}

static void remove_shadow(struct collet_direct *direct)
{
	struct collet_group *group = direct->group;
	struct collet_engine *engine = group->engine;
	if (!group->shadow)
		return;
	pthread_mutex_lock(&engine->lock);
	if (!direct->shadow.torn_down)
		collet_group_tear_down(&direct->shadow);
	for (struct collet_group **at = &engine->used_groups; *at; at = &(*at)->next_used) {
		if (*at == &direct->shadow) {
			*at = direct->shadow.next_used;
			break;
		}
	}
	collet_group_remove_hook(group, &direct->hook);
	group->shadow = NULL;
	pthread_mutex_unlock(&engine->lock);
	collet_group_deinit(&direct->shadow);
}

collet_status collet_direct_make(struct collet_direct **made, struct collet_device *device, struct collet_group *group,
	const struct collet_direct_events *events)
{
	struct collet_direct *direct = calloc(1, sizeof(*direct));
	bool fine = false;
	*made = NULL;
	if (!direct)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for ranks that share a GPU");
	direct->device = device;
	direct->group = group;
	direct->events = events;
	direct->last = &direct->first;
	collet_status status = find_members(direct);
	direct->offer_bytes = sizeof(struct offer) + 4 * sizeof(uint64_t) * group->size;
	if (status == COLLET_OK)
		status = make_shadow(direct);
	if (status == COLLET_OK)
		status = collet_direct_connect(direct, &fine);
	if (status != COLLET_OK || !fine)
		collet_direct_free(direct);
	else
		*made = direct;
	return status;
}

/* The GPU may still work for a call that has ended: what it works on is other ranks' memory too. */
static void stop_leading(struct collet_direct *direct)
{
	const struct collet_cuda *cuda = direct->device->cuda;
	if (direct->stream && collet_cuda_enter(cuda, direct->copier->context) == CU_OK) {
		(void)cuda->cuStreamSynchronize(direct->stream);
		(void)cuda->cuStreamDestroy(direct->stream);
		collet_cuda_leave(cuda);
	}
	for (struct call *call = direct->first; call; call = call->next)
		collet_leader_release(direct, call);
}

/* What is neither the driver's nor the group's. */
static void free_memory(struct collet_direct *direct)
{
	*direct->last = direct->spare;
	for (struct call *call = direct->first, *next; call; call = next) {
		next = call->next;
		free_call(call);
	}
	collet_span_plan_deinit(&direct->plan);
	free(direct->ranks);
	free(direct->seen);
	free(direct->members);
	free(direct);
}

void collet_direct_free(struct collet_direct *direct)
{
	if (!direct)
		return;
	stop_leading(direct);
	remove_shadow(direct);
	free_memory(direct);
}

/* What is the driver's is the parent's. */
void collet_direct_forget(struct collet_direct *direct)
{
	if (!direct)
		return;
	collet_group_remove_hook(direct->group, &direct->hook);
	collet_fabric_forget(&direct->shadow);
	collet_group_deinit(&direct->shadow);
	free_memory(direct);
}
