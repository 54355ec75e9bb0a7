/* Ranks of several hosts, which share a GPU there or have one each. The leaders' GPUs combine what leaders exchange,
 * and copy the result to the local ranks. On every rank it equals, byte for byte, what `hierarchical` gives in host
 * memory (for a reduce, where no order can change it). Hosts are simulated by COLLET_HOST_ID, and have different
 * numbers of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/tools.h>

#include "hierarchical.h"
#include "sample.h"

static bool call_on_gpu(struct gpu *gpu, const struct row *row, const void *send, void *recv)
{
	struct rank *rank = gpu->rank;
	collet_request *request = NULL;
	collet_how how = hosts_how(rank, row);
	how.request = row->request ? &request : NULL;
	how.stream = row->stream ? gpu->stream[0] : NULL;
	return rank_ok(rank, hosts_call(rank, row, send, recv, &how), hosts_kind_names[row->kind]) &&
		rank_ok(rank, collet_request_wait(&request), "waiting") &&
		(!row->stream || gpu_synchronize(gpu, 0)) &&
		rank_ok(rank, collet_comm_error(rank->comm), "the error");
}

/* Calls on the host, then on the GPU, with buffers of equal contents. in_place: recv is in send, or send in recv,
 * whichever is larger. */
static void compare(struct gpu *gpu, const struct row *row, const struct buffer *send, const struct buffer *recv)
{
	struct rank *rank = gpu->rank;
	const struct world *world = rank->options->context;
	const struct sides sides = hosts_sides(rank, row);
	const bool in_place = send == recv;
	const size_t send_at = in_place ? sides.send_at : 0, recv_at = in_place ? sides.recv_at : 0;
	char *from = malloc(send->bytes), *to = in_place ? from : malloc(recv->bytes), *on_gpu = malloc(recv->bytes);
	struct row named = *row;
	named.chosen = false;
	const collet_how how = hosts_how(rank, &named);
	rank_doing(rank, "%s %s %s of %llu, root %u%s%s%s%s%s", hosts_kind_names[row->kind],
		collet_dtype_name(row->dtype), collet_op_name(row->op), (unsigned long long)row->count, row->root,
		in_place ? ", in place" : "", row->mixed ? ", mixed" : "", row->request ? ", by a request" : "",
		row->stream ? ", on a stream" : "", row->chosen ? ", chosen" : "");
	memset(to, 0xa5, recv->bytes);
	hosts_fill(row, from + send_at, sides.send, rank->rank + (uint32_t)row->count);
	bool fine = rank_check(rank, buffer_write(recv, to) && (in_place || buffer_write(send, from)), "writing");
	fine = fine && rank_ok(rank, hosts_call(rank, row, from + send_at, to + recv_at, &how), "on the host");
	/* Ranks that are not leaders copy nothing. */
	if (!row->mixed && !hosts_leads(rank, world))
		setenv("FAKE_CUDA_FAIL", "cuMemcpyAsync:0:1", 1);
	fine = fine && call_on_gpu(gpu, row, send->first + send_at, recv->first + recv_at);
	unsetenv("FAKE_CUDA_FAIL");
	fine = fine && rank_check(rank, buffer_read(recv, on_gpu), "reading");
	if (fine && (row->kind != REDUCE || rank->rank == row->root))
		rank_check(rank, memcmp(to + recv_at, on_gpu + recv_at, sides.recv) == 0, "differs");
	if (!in_place)
		free(to);
	free(from), free(on_gpu);
}

/* With every root. All use the same buffers: the leader keeps those of others open, and the fake driver allows few. */
static void compare_all(struct gpu *gpu, struct row row, size_t number)
{
	struct rank *rank = gpu->rank;
	const bool mixed = row.mixed && rank->rank == 1, in_place = row.in_place && !mixed;
	const uint32_t roots = row.kind == REDUCE || row.kind == BROADCAST ? rank->size : 1;
	const struct sides sides = hosts_sides(rank, &row);
	const size_t more = sides.send > sides.recv ? sides.send : sides.recv;
	struct buffer send = { 0 }, recv = { 0 };
	rank_check(rank,
		buffer_make(&send, &gpu->program, true, in_place ? more : sides.send) &&
			(in_place || buffer_make(&recv, &gpu->program, !mixed, sides.recv)),
		"buffers");
	for (; row.root < roots && !rank->report->failed; row.root++)
		if (sample_has(number * 8 + row.root))
			compare(gpu, &row, &send, in_place ? &send : &recv);
	buffer_free(&send);
	buffer_free(&recv);
}

static void all_rows(struct rank *rank)
{
	static const struct row rows[] = {
		{ COLLET_F32, COLLET_SUM, 1, .in_place = true },
		{ COLLET_F32, COLLET_SUM, SMALL },
		{ COLLET_F16, COLLET_SUM, MIDDLE, .in_place = true },
		{ COLLET_F16, COLLET_PREMUL_SUM, MIDDLE, .request = true },
		{ COLLET_BF16, COLLET_AVERAGE, LARGE, .chosen = true },
		{ COLLET_F32, COLLET_AVERAGE, MIDDLE, .chosen = true, .stream = true },
		{ COLLET_F32, COLLET_PREMUL_SUM, LARGE, .in_place = true, .chosen = true },
		{ COLLET_F64, COLLET_MAX, SMALL, .stream = true, .in_place = true },
		{ COLLET_F8E4M3, COLLET_SUM, MIDDLE },
		{ COLLET_I32, COLLET_SUM, LARGE, .request = true, .chosen = true },
		{ COLLET_I8, COLLET_AVERAGE, MIDDLE },
		{ COLLET_F32, COLLET_SUM, LARGE, .mixed = true },
		{ COLLET_F16, COLLET_SUM, MIDDLE, .mixed = true, .stream = true },
		{ COLLET_I32, COLLET_SUM, 1, .kind = REDUCE },
		{ COLLET_F32, COLLET_MAX, LARGE, .kind = REDUCE, .in_place = true },
		{ COLLET_F32, COLLET_PREMUL_SUM, LARGE, .kind = REDUCE, .chosen = true },
		{ COLLET_F32, COLLET_AVERAGE, MIDDLE, .kind = REDUCE, .chosen = true, .stream = true },
		{ COLLET_I8, COLLET_AVERAGE, MIDDLE, .kind = REDUCE, .request = true, .in_place = true },
		{ COLLET_U32, COLLET_SUM, MIDDLE, .kind = REDUCE, .mixed = true, .chosen = true },
		{ COLLET_U8, COLLET_SUM, 1, .kind = BROADCAST },
		{ COLLET_F16, COLLET_SUM, LARGE, .kind = BROADCAST, .in_place = true, .chosen = true },
		{ COLLET_F64, COLLET_SUM, LARGE, .kind = BROADCAST, .request = true, .chosen = true },
		{ COLLET_F32, COLLET_SUM, MIDDLE, .kind = BROADCAST, .stream = true, .chosen = true },
		{ COLLET_F32, COLLET_SUM, MIDDLE, .kind = BROADCAST, .mixed = true },
		{ COLLET_U8, COLLET_SUM, 1, .kind = ALLGATHER },
		{ COLLET_F32, COLLET_SUM, MIDDLE, .kind = ALLGATHER, .chosen = true },
		{ COLLET_F16, COLLET_SUM, MIDDLE, .kind = ALLGATHER, .in_place = true, .request = true },
		{ COLLET_F64, COLLET_SUM, MIDDLE, .kind = ALLGATHER, .stream = true, .chosen = true },
		{ COLLET_F32, COLLET_SUM, MIDDLE, .kind = ALLGATHER, .mixed = true },
		{ COLLET_U8, COLLET_SUM, 0, .kind = ALLGATHERV },
		{ COLLET_U8, COLLET_SUM, SMALL, .kind = ALLGATHERV },
		{ COLLET_F32, COLLET_SUM, MIDDLE, .kind = ALLGATHERV, .chosen = true },
		{ COLLET_I8, COLLET_SUM, MIDDLE, .kind = ALLGATHERV, .in_place = true, .chosen = true },
		{ COLLET_F16, COLLET_SUM, MIDDLE, .kind = ALLGATHERV, .stream = true, .chosen = true },
		{ COLLET_I32, COLLET_SUM, 1, .kind = REDUCE_SCATTER },
		{ COLLET_F32, COLLET_SUM, MIDDLE, .kind = REDUCE_SCATTER, .chosen = true },
		{ COLLET_U32, COLLET_SUM, MIDDLE, .kind = REDUCE_SCATTER, .in_place = true },
		{ COLLET_F32, COLLET_MAX, MIDDLE, .kind = REDUCE_SCATTER, .request = true, .chosen = true },
		{ COLLET_F32, COLLET_PREMUL_SUM, MIDDLE, .kind = REDUCE_SCATTER, .in_place = true, .chosen = true },
		{ COLLET_F32, COLLET_AVERAGE, MIDDLE, .kind = REDUCE_SCATTER, .stream = true, .chosen = true },
		{ COLLET_I8, COLLET_AVERAGE, MIDDLE, .kind = REDUCE_SCATTER, .stream = true, .in_place = true },
		{ COLLET_U32, COLLET_SUM, MIDDLE, .kind = REDUCE_SCATTER, .mixed = true, .chosen = true },
	};
	struct gpu gpu;
	if (!hosts_begin(&gpu, rank))
		return;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && !rank->report->failed; i++)
		compare_all(&gpu, rows[i], rank->size * 100 + i);
	gpu_end(&gpu);
}

static void bits_are_those_of_the_hosts_hierarchical(void **state)
{
	static const struct world worlds[] = {
		{ .hosts = "aabb" },
		{ .hosts = "aaaaab" },
		{ .hosts = "abbabbbc" },
		{ .hosts = "aabb", .gpus = "0110" },
		{ .hosts = "aaaaab", .gpus = "201300" },
		{ .hosts = "abbabbbc", .gpus = "00100112" },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = (uint32_t)strlen(worlds[w].hosts), .bare = true,
			.context = &worlds[w] };
		ranks_must_pass(&options, all_rows);
	}
}

/* ---- The order of a reduce-scatter's operands ---- */

static float operand(uint32_t rank, uint64_t element)
{
	return (float)((rank * 7919 + element * 104729) % 1000003) / 997;
}

/* As a leader adds them: the host's, in order of rank. */
static float host_sum(const struct world *world, char host, uint64_t element)
{
	float sum = 0;
	bool first = true;
	for (uint32_t r = 0; world->hosts[r]; r++) {
		if (world->hosts[r] != host)
			continue;
		sum = first ? operand(r, element) : sum + operand(r, element);
		first = false;
	}
	return sum;
}

/* Hosts in ring order, from the one after this rank's; they are numbered by their lowest ranks. */
static float ring_sum(const struct world *world, uint32_t rank, uint64_t element)
{
	char ring[RANKS_MOST + 1] = "";
	for (uint32_t r = 0; world->hosts[r]; r++)
		if (!strchr(ring, world->hosts[r]))
			strncat(ring, &world->hosts[r], 1);
	const size_t hosts = strlen(ring), own = (size_t)(strchr(ring, world->hosts[rank]) - ring);
	float sum = host_sum(world, ring[(own + 1) % hosts], element);
	for (size_t h = 2; h <= hosts; h++)
		sum += host_sum(world, ring[(own + h) % hosts], element);
	return sum;
}

static void add_up(struct rank *rank)
{
	const struct world *world = rank->options->context;
	const uint64_t all = (uint64_t)rank->size * MIDDLE;
	struct gpu gpu;
	struct buffer send = { 0 }, recv = { 0 };
	float *values = malloc(all * sizeof(*values));
	if (!hosts_begin(&gpu, rank))
		return;
	for (uint64_t i = 0; i < all; i++)
		values[i] = operand(rank->rank, i);
	if (!rank_check(rank,
		    buffer_make(&send, &gpu.program, true, all * sizeof(*values)) &&
			    buffer_make(&recv, &gpu.program, true, MIDDLE * sizeof(*values)) &&
			    buffer_write(&send, values),
		    "buffers"))
		return;
	rank_ok(rank,
		collet_reduce_scatter(rank->comm, send.first, recv.first, MIDDLE, COLLET_F32, COLLET_SUM, NULL),
		"adding up");
	rank_check(rank, buffer_read(&recv, values), "reading");
	for (uint64_t i = 0; i < MIDDLE && !rank->report->failed; i++) {
		const float expected = ring_sum(world, rank->rank, (uint64_t)rank->rank * MIDDLE + i);
		rank_check(rank, values[i] == expected, "element %llu: %a, not %a", (unsigned long long)i,
			(double)values[i], (double)expected);
	}
	buffer_free(&send);
	buffer_free(&recv);
	free(values);
	gpu_end(&gpu);
}

static void a_reduce_scatter_adds_hosts_in_a_ring(void **state)
{
	static const struct world worlds[] = {
		{ .hosts = "abbab" },
		{ .hosts = "aaccbb" },
		{ .hosts = "aaccbb", .gpus = "012301" },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = (uint32_t)strlen(worlds[w].hosts), .bare = true,
			.context = &worlds[w] };
		ranks_must_pass(&options, add_up);
	}
}

/* ---- Other call paths ---- */

/* An all-reduce made of the two, in place, repeatedly; mixed with one without a graph. */
static void replay(struct rank *rank)
{
	const uint32_t launches = ranks_are_slow() ? 20 : 100;
	const struct row scatter = { COLLET_U32, COLLET_SUM, MIDDLE, .kind = REDUCE_SCATTER, .chosen = true };
	const struct row gather = { COLLET_U32, COLLET_SUM, MIDDLE, .kind = ALLGATHER, .chosen = true };
	const size_t own = (size_t)rank->rank * MIDDLE * sizeof(uint32_t);
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	if (!hosts_begin(&gpu, rank) || !gpu_make(&gpu, &buffer, (uint64_t)rank->size * MIDDLE, 1))
		return;
	collet_how how = COLLET_HOW_DEFAULT;
	how.stream = gpu.stream[0];
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, hosts_call(rank, &scatter, buffer.first, buffer.first + own, &how), "captured");
	rank_ok(rank, hosts_call(rank, &gather, buffer.first + own, buffer.first, &how), "captured");
	gpu_end_capture(&gpu, 0, &exec);
	uint32_t calls = launches;
	for (uint32_t i = 0; i < launches && !rank->report->failed; i++) {
		rank_doing(rank, "launch %u", i);
		gpu_launch(&gpu, exec, 0);
		if (i % 3)
			continue;
		rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "in no graph");
		calls++;
	}
	gpu_synchronize(&gpu, 0);
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, calls, 1), "after all");
	rank_destroy(rank);
	rank_check(rank, gpu.cuda.cuGraphExecDestroy(exec) == CU_OK, "destroying a graph");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_graph_goes_by_hosts_at_each_launch(void **state)
{
	static const struct world worlds[] = { { .hosts = "abbca" }, { .hosts = "abbca", .gpus = "01210" } };
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = 5, .bare = true, .context = &worlds[w] };
		ranks_must_pass(&options, replay);
	}
}

/* Collectives that are not combined within hosts take the usual path, and keep their order. */
static void go_in_turn(struct rank *rank)
{
	enum { ROUNDS = 6 };
	struct gpu gpu;
	struct buffer buffer = { 0 };
	collet_request *requests[ROUNDS] = { NULL };
	uint32_t value = rank->rank == 1;
	if (!hosts_begin(&gpu, rank) || !gpu_make(&gpu, &buffer, MIDDLE, 1))
		return;
	for (int i = 0; i < ROUNDS && !rank->report->failed; i++) {
		collet_how how = COLLET_HOW_DEFAULT;
		how.request = &requests[i];
		how.algorithm = i % 3 == 1 ? "ring" : NULL;
		rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, MIDDLE, COLLET_U32, COLLET_SUM,
			&how), "starting");
		if (i % 3 == 2)
			rank_ok(rank, collet_broadcast(rank->comm, &value, &value, 1, COLLET_U32, 1, NULL), "between");
		rank_ok(rank, collet_request_wait(&requests[i]), "waiting");
	}
	rank_check(rank, value == 1, "a broadcast has given %u", value);
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, ROUNDS, 1), "after all");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void other_calls_go_by_way_of_the_host(void **state)
{
	static const struct world world = { .hosts = "abbaa" };
	const struct ranks_options options = { .size = 5, .bare = true, .context = &world };
	ranks_must_pass(&options, go_in_turn);
}

/* ---- Plans ---- */

static void plan_is(struct rank *rank, const char *collective, uint64_t count, const char *asked, const char *call_path,
	const char *algorithm)
{
	collet_plan plan;
	rank_doing(rank, "the plan of %s of %llu", collective, (unsigned long long)count);
	if (!rank_ok(rank,
		    collet_comm_plan(rank->comm, collective, count, COLLET_F32, COLLET_SUM, 0, asked, &plan), "plan"))
		return;
	rank_check(rank, plan.gpu_path && strcmp(plan.gpu_path, call_path) == 0, "%s, not %s",
		plan.gpu_path ? plan.gpu_path : "none", call_path);
	rank_check(rank, !algorithm || (plan.gpu_algorithm && strcmp(plan.gpu_algorithm, algorithm) == 0), "by %s",
		plan.gpu_algorithm ? plan.gpu_algorithm : "none");
	rank_check(rank, plan.gpu_ns > plan.gpu_messages_ns && plan.gpu_ns > plan.gpu_memory_ns && !plan.gpu_measured,
		"%g ns, of which %g of messages and %g of memory", plan.gpu_ns, plan.gpu_messages_ns,
		plan.gpu_memory_ns);
}

/* The tuning chooses the algorithm, and the call path follows. */
static void chosen_plan_fits(struct rank *rank, const char *collective, uint64_t count, bool alone)
{
	collet_plan plan;
	if (!rank_ok(rank,
		    collet_comm_plan(rank->comm, collective, count, COLLET_F32, COLLET_SUM, 0, NULL, &plan), "plan"))
		return;
	const bool hierarchical = !alone && strcmp(plan.algorithm, "hierarchical") == 0;
	plan_is(rank, collective, count, NULL, hierarchical ? "hierarchical" : "copied", plan.algorithm);
}

static void ask_for_plans(struct rank *rank)
{
	const struct world *world = rank->options->context;
	const bool alone = world->hosts[rank->rank] == 'b';
	struct gpu gpu;
	collet_plan plan;
	if (!hosts_begin(&gpu, rank))
		return;
	if (!strchr(world->hosts, 'b')) {
		plan_is(rank, "allreduce", LARGE, NULL, "shared_gpu", "direct");
		plan_is(rank, "allreduce", LARGE, "doubling", "pipelined", "doubling");
		plan_is(rank, "broadcast", LARGE, "tree", "shared_gpu", "direct");
	} else {
		plan_is(rank, "allreduce", LARGE, NULL, alone ? "pipelined" : "hierarchical", "hierarchical");
		plan_is(rank, "reduce", MIDDLE, NULL, alone ? "copied" : "hierarchical", "hierarchical");
		plan_is(rank, "reduce", LARGE, "hierarchical", "pipelined", "hierarchical");
		plan_is(rank, "broadcast", LARGE, NULL, alone ? "pipelined" : "hierarchical", "hierarchical");
		plan_is(rank, "broadcast", SMALL, "tree", "copied", "tree");
		plan_is(rank, "allgather", LARGE, NULL, alone ? "pipelined" : "hierarchical", "hierarchical");
		plan_is(rank, "allgather", SMALL, "direct", "copied", "direct");
		chosen_plan_fits(rank, "allgather", SMALL, alone);
		plan_is(rank, "reduce_scatter", LARGE, NULL, alone ? "pipelined" : "hierarchical", "hierarchical");
		plan_is(rank, "reduce_scatter", LARGE, "hierarchical", "pipelined", "hierarchical");
		plan_is(rank, "alltoall", LARGE, NULL, "pipelined", NULL);
		plan_is(rank, "gather", LARGE, NULL, "pipelined", NULL);
		plan_is(rank, "scatter", LARGE, NULL, "pipelined", NULL);
	}
	rank_ok(rank, collet_comm_plan(rank->comm, "barrier", 0, COLLET_F32, COLLET_SUM, 0, NULL, &plan), "plan");
	rank_check(rank, !plan.gpu_path && !plan.gpu_algorithm, "a barrier has no buffers");
	gpu_end(&gpu);
}

static void plans_name_the_call_path(void **state)
{
	static const struct world worlds[] = { { .hosts = "aab" }, { .hosts = "aa" } };
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = (uint32_t)strlen(worlds[w].hosts), .bare = true,
			.context = &worlds[w] };
		ranks_must_pass(&options, ask_for_plans);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_are_those_of_the_hosts_hierarchical),
		cmocka_unit_test(a_reduce_scatter_adds_hosts_in_a_ring),
		cmocka_unit_test(a_graph_goes_by_hosts_at_each_launch),
		cmocka_unit_test(other_calls_go_by_way_of_the_host),
		cmocka_unit_test(plans_name_the_call_path),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
