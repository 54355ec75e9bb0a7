/* What a communicator has for ranks that go together: how it is made, and how it ends. */
#include "cuda/shared_gpu/shared_gpu.h"

#include <stdlib.h>

#include "core/status.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/lock.h"

static collet_status make_shadow(struct collet_direct *direct)
{
	struct collet_comm_state *shadow = &direct->shadow, *group = direct->group;
	*shadow = (struct collet_comm_state){ .engine = group->engine,
		.rank = group->rank,
		.size = group->size,
		.world_ranks = group->world_ranks,
		.timeout_ns = group->timeout_ns,
		.id = ~group->id * 0x9e3779b97f4a7c15 };
	const collet_status status = collet_comm_state_init(shadow);
	if (status != COLLET_OK)
		return status;
	collet_engine_lock(group->engine);
	collet_connections_add(shadow);
	group->internal = shadow;
	direct->hook = (struct collet_progress_hook){ .table = &collet_direct_hooks, .context = direct };
	collet_comm_state_add_hook(group, &direct->hook);
	collet_engine_unlock(group->engine);
	return COLLET_OK;
}

static void remove_shadow(struct collet_direct *direct)
{
	struct collet_comm_state *group = direct->group;
	struct collet_engine *engine = group->engine;
	if (!group->internal)
		return;
	collet_engine_lock(engine);
	if (!direct->shadow.torn_down)
		collet_comm_state_tear_down(&direct->shadow);
	for (struct collet_comm_state **at = &engine->all_states; *at; at = &(*at)->next_in_all) {
		if (*at == &direct->shadow) {
			*at = direct->shadow.next_in_all;
			break;
		}
	}
	collet_comm_state_remove_hook(group, &direct->hook);
	group->internal = NULL;
	collet_engine_unlock(engine);
	collet_comm_state_deinit(&direct->shadow);
}

collet_status collet_direct_make(struct collet_direct **made, struct collet_device *device,
	struct collet_comm_state *group, const struct collet_direct_events *events)
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
	collet_status status = collet_direct_find_members(direct);
	direct->offer_bytes = sizeof(struct offer) + 4 * sizeof(uint64_t) * group->size;
	if (status == COLLET_OK)
		status = make_shadow(direct);
	if (status == COLLET_OK)
		status = collet_direct_connect(direct, &fine);
	if (status != COLLET_OK || !fine)
		collet_direct_free(direct, false);
	else
		*made = direct;
	return status;
}

/* false: its context, which has not gone, cannot be entered. A wait that fails says that nothing runs there any more.
 */
static bool wait_for_stream(struct collet_direct *direct)
{
	const struct collet_cuda *cuda = direct->device->cuda;
	if (!direct->stream)
		return true;
	const cu_result result = collet_cuda_enter(cuda, direct->copier->context);
	if (result != CU_OK)
		return collet_cuda_is_gone(result);
	(void)cuda->cuStreamSynchronize(direct->stream);
	(void)cuda->cuStreamDestroy(direct->stream);
	collet_cuda_leave(cuda);
	return true;
}

/* The GPU may still work for a call that has ended: what it works on is other ranks' memory too, which stays open if
 * nobody can wait for that. */
static void stop_leading(struct collet_direct *direct, bool streams)
{
	const bool waited = wait_for_stream(direct);
	for (struct call *call = direct->first; waited && call; call = call->next)
		collet_leader_release(direct, call);
	if (!waited) {
		collet_engine_lock(direct->group->engine);
		direct->device->kept = true;
		collet_engine_unlock(direct->group->engine);
	}
	collet_order_end(direct, streams || !waited);
}

/* What is neither the driver's nor the group's. */
static void free_memory(struct collet_direct *direct)
{
	*direct->last = direct->spare;
	for (struct call *call = direct->first, *next; call; call = next) {
		next = call->next;
		collet_direct_free_call(call);
	}
	collet_span_plan_deinit(&direct->plan);
	free(direct->ranks);
	free(direct->seen);
	free(direct->members);
	free(direct);
}

void collet_direct_free(struct collet_direct *direct, bool streams)
{
	if (!direct)
		return;
	stop_leading(direct, streams);
	remove_shadow(direct);
	free_memory(direct);
}

/* What is the driver's is the parent's. */
void collet_direct_forget(struct collet_direct *direct)
{
	if (!direct)
		return;
	collet_comm_state_remove_hook(direct->group, &direct->hook);
	collet_connections_atfork_child(&direct->shadow);
	collet_comm_state_deinit(&direct->shadow);
	collet_order_forget(&direct->order);
	free_memory(direct);
}
