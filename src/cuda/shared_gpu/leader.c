/* The leader's part: from all ranks' offers to a launch, or to the reason why there is none. */
#include <string.h>

#include "core/status.h"
#include "core/types.h"
#include "cuda/driver/peer_mapping.h"
#include "cuda/shared_gpu/internal.h"

/* ---- Reach ---- */

static const char *place_name(uint32_t place)
{
	return place == COLLET_PLACE_HOST ? "the host's memory" : "memory that the leader cannot reach";
}

/* NULL, and all buffers are within reach; or why not. */
static const char *reach_all(struct collet_direct *direct, struct call *call)
{
	for (uint32_t r = 0; r < direct->size; r++) {
		const struct offer *offer = offer_of(direct, call, r);
		struct collet_span_plan_rank *rank = &direct->ranks[r];
		char *reached[2] = { NULL, NULL };
		for (uint32_t s = 0; s < 2; s++) {
			const struct collet_direct_side *side = &offer->side[s];
			const char *why = NULL;
			bool refused = false;
			if (side->place == COLLET_PLACE_NONE)
				continue;
			if (side->place != COLLET_PLACE_GPU)
				return place_name(side->place);
			reached[s] = collet_device_reach(direct->device, direct->copier, side,
				&call->opened[2 * r + s], &why, &refused);
			call->surprising |= refused;
			if (!reached[s]) {
				call->verdict.again |= side->shared.kind == COLLET_SHARED_DESCRIPTOR;
				return why;
			}
		}
		*rank = (struct collet_span_plan_rank){ .send = reached[0], .recv = reached[1],
			.send_bytes = offer->side[0].bytes, .recv_bytes = offer->side[1].bytes,
			.scale = offer->scale };
	}
	return NULL;
}

/* A v-form's cut, as a rank has offered it. */
static struct collet_partition cut_of(uint64_t count, bool listed, const uint64_t *lists, uint32_t size)
{
	return (struct collet_partition){ .kind = COLLET_PARTITION_VECTOR,
		.count = count,
		.counts = listed ? lists : NULL,
		.displacements = listed ? lists + size : NULL };
}

/* false: a rank that must list blocks has listed none. */
static bool take_cuts(struct collet_direct *direct, struct call *call)
{
	const uint32_t size = direct->group->size;
	const enum collet_collective collective = call->job.collective;
	for (uint32_t r = 0; r < direct->size; r++) {
		const struct offer *offer = offer_of(direct, call, r);
		const uint64_t *lists = (const uint64_t *)(const void *)(offer + 1);
		struct collet_span_plan_rank *rank = &direct->ranks[r];
		rank->input = cut_of(offer->input_count, offer->input_listed, lists, size);
		rank->result = cut_of(offer->result_count, offer->result_listed, lists + 2 * size, size);
		const bool is_root = r == call->job.root;
		const bool lists_input = collective == COLLET_ALLTOALL || (collective == COLLET_SCATTER && is_root);
		const bool lists_result = collective == COLLET_ALLTOALL || collective == COLLET_ALLGATHER ||
			(collective == COLLET_GATHER && is_root);
		if ((lists_input && !rank->input.counts) || (lists_result && !rank->result.counts))
			return false;
	}
	return true;
}

/* ---- Deciding ---- */

bool collet_leader_agrees(struct collet_direct *direct, struct call *call)
{
	for (uint32_t r = 1; r < direct->size; r++) {
		const struct offer *offer = offer_of(direct, call, r);
		if (offer->signature == call->job.signature)
			continue;
		const struct collet_message came = { .signature = offer->signature, .sequence = offer->sequence };
		if (call->request && !call->suspected)
			collet_mismatch_suspect(direct->group, direct->members[r], call->request, &came);
		call->suspected = true;
		return false;
	}
	return true;
}

/* Puts it on the stream; NULL, or why not. */
static const char *launch(struct collet_direct *direct, struct call *call)
{
	const struct job *job = &call->job;
	const bool combines = job->op != COLLET_OP_COUNT;
	const struct collet_span_plan_call planned = { .collective = job->collective, .listed = job->listed,
		.size = direct->size, .root = job->root, .count = job->count,
		.element_bytes = collet_dtype_bytes(job->dtype), .scales = job->op == COLLET_PREMUL_SUM };
	const char *why = collet_span_plan_make(&direct->plan, &planned, direct->ranks);
	if (why)
		return why;
	const struct collet_fold fold = { .dtype = job->dtype, .op = combines ? job->op : COLLET_SUM,
		.average_of = job->op == COLLET_AVERAGE ? direct->size : 1 };
	collet_status status = collet_copier_begin(direct->device->cuda, direct->copier);
	if (status != COLLET_OK)
		return collet_last_error();
	status = collet_fold_launch(
		direct->kernels, &fold, direct->plan.spans, direct->plan.span_count, direct->stream);
	if (status != COLLET_OK)
		why = collet_last_error();
	call->surprising = why != NULL;
	call->verdict.ordered = !why && collet_order_put(direct, call);
	call->launch = direct->order.launched;
	/* Of several launches some may be on their way. */
	if (why && direct->device->cuda->cuStreamSynchronize(direct->stream) != CU_OK)
		collet_comm_state_end(direct->group, status, true, why);
	collet_copier_end(direct->device->cuda);
	return why;
}

/* The request goes between hosts for all ranks of this one, on its own from here on. NULL, or why not. */
static const char *share(struct collet_direct *direct, struct call *call)
{
	uint32_t root = 0;
	while (root < direct->size && direct->members[root] != call->job.root)
		root++;
	const struct collet_direct_local local = { .kernels = direct->kernels, .copier = direct->copier,
		.ranks = direct->ranks, .members = direct->members, .size = direct->size, .root = root, .call = call };
	if (direct->events->share(call->request, &local) != COLLET_OK) {
		call->surprising = true;
		return collet_last_error();
	}
	call->shared = true;
	call->request->deferred = false;
	call->request = NULL;
	direct->group->tasks_need_progress = true;
	return NULL;
}

/* NULL: the GPU works at it. */
static const char *run(struct collet_direct *direct, struct call *call)
{
	for (uint32_t r = 0; r < direct->size; r++)
		if (!offer_of(direct, call, r)->fine)
			return "a rank has a complaint";
	if (!call->job.between_hosts && !call->job.any_order)
		return "the algorithm that was asked for has another order of operands";
	const char *why = reach_all(direct, call);
	if (!why && call->job.listed && !take_cuts(direct, call))
		why = "a rank has listed no blocks";
	if (!why && call->job.between_hosts)
		return share(direct, call);
	return why ? why : launch(direct, call);
}

/* What followers have handed in at the desk is taken in, whether it is asked for now or not: it is full soon. */
static void look_at_desk(struct collet_direct *direct, const struct call *call)
{
	bool look = false;
	for (uint32_t r = 1; r < direct->size; r++) {
		const uint32_t notes = offer_of(direct, call, r)->notes;
		look |= notes != direct->seen[r];
		direct->seen[r] = notes;
	}
	if (look)
		collet_device_look(direct->device);
}

bool collet_leader_decide(struct collet_direct *direct, struct call *call)
{
	if (!collet_leader_agrees(direct, call))
		return false;
	/* Progress is made by whichever thread waits, the program's own among them. */
	const int mode = collet_cuda_relax(direct->device->cuda);
	if (direct->seen)
		look_at_desk(direct, call);
	const char *why = run(direct, call);
	collet_cuda_relax_no_more(direct->device->cuda, mode);
	call->verdict.staged = why != NULL;
	if (!why) {
		call->stage = call->shared ? SHARING : RUNNING;
		return true;
	}
	collet_log(&direct->group->engine->log, call->surprising ? COLLET_LOG_WARN : COLLET_LOG_DEBUG,
		"cuda: %s by way of the host, and not on the GPU in one go: %s", call->sides.function, why);
	collet_leader_release(direct, call);
	return true;
}

bool collet_leader_finished(struct collet_direct *direct, struct call *call)
{
	const struct collet_cuda *cuda = direct->device->cuda;
	/* The progress thread has no context of its own. */
	cu_result result = collet_cuda_enter(cuda, direct->copier->context);
	if (result == CU_OK) {
		result = cuda->cuStreamQuery(direct->stream);
		collet_cuda_leave(cuda);
	}
	if (result == CU_NOT_READY)
		return false;
	collet_leader_release(direct, call);
	if (result != CU_OK) {
		(void)collet_cuda_fail(cuda, result, "what a leader has its GPU do for all");
		collet_comm_state_end(direct->group, COLLET_ERR_SYSTEM, true, collet_last_error());
		return false;
	}
	return true;
}

void collet_leader_release(struct collet_direct *direct, struct call *call)
{
	for (uint32_t i = 0; i < 2 * direct->size; i++) {
		if (direct->connecting)
			collet_ipc_close(&direct->device->ipc, call->opened[i]);
		else
			collet_ipc_put(&direct->device->ipc, call->opened[i]);
		call->opened[i] = NULL;
	}
}
