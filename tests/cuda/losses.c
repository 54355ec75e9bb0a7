#include "losses.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <collet/tools.h>

#include "sample.h"

enum { DEATH = 40, LOST = 2 };

/* ---- Losses ---- */

enum { READY, UNDER_WAY, TOLD }; /* events */

static const char *const how_names[LOSS_HOWS] = {"dies", "aborts", "calls another", "leaves", "comes late"};
static const char *const way_names[LOSS_WAYS] = {"blocking", "a request", "on a stream", "in a graph"};
static const collet_status told[LOSS_HOWS] = {COLLET_ERR_PEER_LOST, COLLET_ERR_ABORTED, COLLET_ERR_MISMATCH,
	COLLET_ERR_PEER_LOST, COLLET_ERR_TIMEOUT};

/* A rank in a test. */
struct losing {
	const struct loss *loss;
	struct gpu gpu;
	struct buffer buffer;
	cu_graph_exec exec;          /* destroyed after the communicator */
};

static collet_status make_call(const struct losing *at, uint64_t count, const collet_how *how)
{
	collet_comm *comm = at->gpu.rank->comm;
	char *first = at->buffer.first;
	if (at->loss->call->kind == ALLREDUCE)
		return collet_allreduce(comm, first, first, count, COLLET_U32, COLLET_SUM, how);
	return collet_allgather(
		comm, first + at->gpu.rank->rank * count * sizeof(uint32_t), first, count, COLLET_U32, how);
}

/* Returns the status of the completed call; for a call on a stream, the communicator's error. */
static collet_status call_and_wait(struct losing *at, uint64_t count, int64_t timeout_ns)
{
	struct gpu *gpu = &at->gpu;
	const enum loss_way way = at->loss->way;
	const bool on_stream = way == LOSS_ON_STREAM || way == LOSS_IN_GRAPH;
	collet_request *request = NULL;
	const collet_how how = {.request = way == LOSS_BY_REQUEST ? &request : NULL,
		.stream = on_stream ? gpu->stream[0] : NULL,
		.timeout_ns = timeout_ns};
	if (way == LOSS_IN_GRAPH)
		gpu_begin_capture(gpu, 0);
	collet_status status = make_call(at, count, &how);
	if (way == LOSS_IN_GRAPH && gpu_end_capture(gpu, 0, &at->exec))
		gpu_launch(gpu, at->exec, 0);
	rank_post(gpu->rank, UNDER_WAY);
	if (on_stream)
		gpu_synchronize(gpu, 0);
	if (status == COLLET_OK)
		status = on_stream ? collet_comm_error(gpu->rank->comm) : collet_request_wait(&request);
	return status;
}

static void be_lost(struct losing *at)
{
	struct rank *rank = at->gpu.rank;
	const struct loss *loss = at->loss;
	if (loss->way != LOSS_BLOCKING && loss->how != LOSS_CALLS_ANOTHER)
		rank_await(rank, UNDER_WAY, rank->size - 1);
	switch (loss->how) {
	case LOSS_DIES: raise(SIGKILL); break;
	case LOSS_ABORTS: collet_comm_abort(rank->comm); break;
	case LOSS_CALLS_ANOTHER:
		rank_status(rank, call_and_wait(at, loss->call->count - 1, 0), COLLET_ERR_MISMATCH, "another call");
		break;
	case LOSS_COMES_LATE: rank_await(rank, TOLD, rank->size - 1); break;
	default: break;
	}
}

static void be_told(struct losing *at)
{
	struct rank *rank = at->gpu.rank;
	const struct loss *loss = at->loss;
	const int64_t timeout_ns = loss->how == LOSS_COMES_LATE ? 50 * 1000 * 1000 : 0;
	const collet_status status = call_and_wait(at, loss->call->count, timeout_ns);
	rank_status(rank, status, told[loss->how], "a call that not all make");
	rank_status(rank, make_call(at, loss->call->count, NULL), told[loss->how], "afterwards");
	rank_post(rank, TOLD);
}

/* Checks that the call takes the path that the test is about. */
static void check_plan(struct rank *rank, const struct loss_call *call)
{
	collet_plan plan;
	if (rank->rank != 0 ||
		!rank_ok(rank,
			collet_comm_plan(rank->comm, call->kind == ALLREDUCE ? "allreduce" : "allgather", call->count,
				COLLET_U32, COLLET_SUM, 0, NULL, &plan),
			"a plan"))
		return;
	rank_check(rank,
		plan.gpu_path && strcmp(plan.gpu_path, call->gpu_path) == 0 && plan.is_gpudirect == call->registered,
		"%s%s", plan.gpu_path ? plan.gpu_path : "none", plan.is_gpudirect ? ", in place" : "");
}

static void lose(struct rank *rank)
{
	const struct loss *loss = rank->options->context;
	const struct loss_call *call = loss->call;
	struct losing at = {.loss = loss};
	const uint64_t all = call->count * (call->kind == ALLREDUCE ? 1 : rank->size);
	if (!call->begin(&at.gpu, rank) || !gpu_make(&at.gpu, &at.buffer, all, 1))
		return;
	if (call->registered)
		rank_ok(rank, collet_mem_register(rank->comm, at.buffer.first, at.buffer.bytes), "registering");
	check_plan(rank, call);
	rank_ok(rank, make_call(&at, call->count, NULL), "while all were there");
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	if (rank->rank == loss->lost)
		be_lost(&at);
	else
		be_told(&at);
	rank_destroy(rank);
	if (at.exec)
		(void)at.gpu.cuda.cuGraphExecDestroy(at.exec);
	buffer_free(&at.buffer);
	gpu_end(&at.gpu);
}

static void lose_one(const struct ranks_options *given, const struct loss *loss)
{
	struct ranks_options options = *given;
	options.context = loss;
	struct ranks *ranks = ranks_start(&options, lose);
	assert_true(ranks_wait(ranks));
	for (uint32_t r = 0; r < options.size; r++) {
		const struct rank_report *report = ranks_report(ranks, r);
		const bool dead = loss->how == LOSS_DIES && r == loss->lost;
		if (!dead && (report->failed || report->end != RANK_RETURNED))
			fail_msg("rank %u %s, %s: rank %u: %s", loss->lost, how_names[loss->how], way_names[loss->way],
				r, report->sentence);
	}
	ranks_free(&ranks);
}

void losses_must_be_told(const struct ranks_options *options, const struct loss_call *call, enum loss_way first)
{
	const uint32_t rows = (uint32_t)(LOSS_WAYS - first) * LOSS_HOWS;
	uint32_t turn = 0;
	for (int way = (int)first; way < LOSS_WAYS; way++)
		for (int how = 0; how < LOSS_HOWS; how++, turn++) {
			if (!sample_of(rows, turn))
				continue;
			const struct loss loss = {call, (enum loss_how)how, (enum loss_way)way, turn % options->size};
			lose_one(options, &loss);
		}
}

/* ---- Losses during launches ---- */

void losses_in_graphs(struct gpu *gpu, uint64_t count)
{
	struct rank *rank = gpu->rank;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	if (!gpu_make(gpu, &buffer, count, 1))
		return;
	gpu_begin_capture(gpu, 0);
	rank_ok(rank, gpu_allreduce(gpu, 0, &buffer), "captured");
	rank_ok(rank, gpu_allreduce(gpu, 0, &buffer), "captured");
	gpu_end_capture(gpu, 0, &exec);
	for (int i = 0; i < 2 * DEATH; i++) {
		if (rank->rank == LOST && i == DEATH) {
			gpu_synchronize(gpu, 0);
			raise(SIGKILL);
		}
		gpu_launch(gpu, exec, 0);
	}
	gpu_synchronize(gpu, 0);
	rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_PEER_LOST, "the error");
	rank_status(rank, gpu_allreduce(gpu, 0, &buffer), COLLET_ERR_PEER_LOST, "afterwards");
	gpu_launch(gpu, exec, 0);
	gpu_synchronize(gpu, 0);
	rank_destroy(rank);
	(void)gpu->cuda.cuGraphExecDestroy(exec);
	buffer_free(&buffer);
	gpu_end(gpu);
}

/* ---- Survivors ---- */

void losses_must_spare(const struct ranks_options *options, ranks_body *body, uint32_t lost)
{
	struct ranks *ranks = ranks_start(options, body);
	assert_true(ranks_wait(ranks));
	for (uint32_t r = 0; r < options->size; r++) {
		const struct rank_report *report = ranks_report(ranks, r);
		if (r != lost && (report->failed || report->end != RANK_RETURNED))
			fail_msg("rank %u: %s", r, report->sentence);
	}
	ranks_free(&ranks);
}
