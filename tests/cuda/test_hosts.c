/* Ranks of several hosts, of which each has a GPU that its ranks share: what leaders have for each other is combined,
 * and what comes of it handed out, by the hosts' GPUs; on every rank it is, byte for byte, what `hierarchical` gives in
 * the hosts' memory (of a reduce, where no order can change it). Hosts are made by COLLET_HOST_ID, and have different
 * numbers of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/tools.h>

#include "gpu.h"
#include "sample.h"

enum { SMALL = 37, MIDDLE = 70001, LARGE = 400000 };

/* A letter a rank: the host that it is on. */
struct world {
	const char *hosts;
	const char *fail;            /* FAKE_CUDA_FAIL, of rank 0 */
	enum call_kind kind;         /* what fails */
	uint32_t root;               /* of it: nobody gets on without rank 0 */
};

static bool leads(const struct rank *rank, const struct world *world)
{
	return strchr(world->hosts, world->hosts[rank->rank]) == world->hosts + rank->rank;
}

/* Ranks are processes: each has an environment of its own. */
static bool begin(struct gpu *gpu, struct rank *rank)
{
	const struct world *world = rank->options->context;
	const char host[] = { world->hosts[rank->rank], '\0' };
	setenv("COLLET_HOST_ID", host, 1);
	return gpu_start(gpu, rank) && rank_create(rank);
}

/* By enum call_kind. */
static const char *const kind_names[] = { "all-reduce", "reduce", "broadcast" };

struct row {
	collet_dtype dtype;
	collet_op op;
	uint64_t count;
	bool in_place, request, stream;
	bool mixed;                  /* of rank 1, the buffer that is written is the host's */
	bool chosen;                 /* it is not asked for by name */
	enum call_kind kind;         /* of the first three */
	uint32_t root;
};

/* Anything; but where a float's sum is to be the same in any order, small whole numbers. */
static void fill(const struct row *row, char *bytes, size_t count, uint32_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	for (size_t b = 0; b < count; b++) {
		state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
		bytes[b] = (char)(state >> 56);
	}
	if (row->kind != REDUCE || row->dtype != COLLET_F32)
		return;
	for (size_t i = 0; i < count / sizeof(float); i++) {
		const float value = (float)(bytes[i * sizeof(float)] & 15);
		memcpy(bytes + i * sizeof(float), &value, sizeof(value));
	}
}

static collet_how how_of(const struct rank *rank, const struct row *row)
{
	collet_how how = COLLET_HOW_DEFAULT;
	how.scale = 0.5 + rank->rank;
	how.algorithm = row->chosen ? NULL : "hierarchical";
	return how;
}

static collet_status call(
	const struct rank *rank, const struct row *row, const void *send, void *recv, const collet_how *how)
{
	switch (row->kind) {
	case REDUCE:
		return collet_reduce(rank->comm, send, rank->rank == row->root ? recv : NULL, row->count, row->dtype,
			row->op, row->root, how);
	case BROADCAST:
		return collet_broadcast(rank->comm, rank->rank == row->root ? send : NULL, recv, row->count,
			row->dtype, row->root, how);
	default: return collet_allreduce(rank->comm, send, recv, row->count, row->dtype, row->op, how);
	}
}

static bool call_on_gpu(struct gpu *gpu, const struct row *row, const void *send, void *recv)
{
	struct rank *rank = gpu->rank;
	collet_request *request = NULL;
	collet_how how = how_of(rank, row);
	how.request = row->request ? &request : NULL;
	how.stream = row->stream ? gpu->stream[0] : NULL;
	return rank_ok(rank, call(rank, row, send, recv, &how), kind_names[row->kind]) &&
		rank_ok(rank, collet_request_wait(&request), "waiting") &&
		(!row->stream || gpu_synchronize(gpu, 0)) &&
		rank_ok(rank, collet_comm_error(rank->comm), "the error");
}

/* On the host, then on the GPU. */
static void compare(struct gpu *gpu, const struct row *row, const struct buffer *send, const struct buffer *recv)
{
	struct rank *rank = gpu->rank;
	const struct world *world = rank->options->context;
	const size_t bytes = row->count * collet_dtype_bytes(row->dtype);
	char *given = malloc(bytes), *on_host = calloc(bytes, 1), *on_gpu = calloc(bytes, 1);
	struct row named = *row;
	named.chosen = false;
	const collet_how how = how_of(rank, &named);
	rank_doing(rank, "%s %s %s of %llu, root %u%s%s%s%s%s", kind_names[row->kind], collet_dtype_name(row->dtype),
		collet_op_name(row->op), (unsigned long long)row->count, row->root, row->in_place ? ", in place" : "",
		row->mixed ? ", mixed" : "", row->request ? ", by a request" : "", row->stream ? ", on a stream" : "",
		row->chosen ? ", chosen" : "");
	fill(row, given, bytes, rank->rank + (uint32_t)row->count);
	bool fine = rank_ok(rank, call(rank, row, given, on_host, &how), "on the host") &&
		rank_check(rank, buffer_write(send, given), "writing");
	/* Who does not lead copies nothing. */
	if (!row->mixed && !leads(rank, world))
		setenv("FAKE_CUDA_FAIL", "cuMemcpyAsync:0:1", 1);
	fine = fine && call_on_gpu(gpu, row, send->first, recv->first);
	unsetenv("FAKE_CUDA_FAIL");
	fine = fine && rank_check(rank, buffer_read(recv, on_gpu), "reading");
	if (fine && (row->kind != REDUCE || rank->rank == row->root))
		rank_check(rank, memcmp(on_host, on_gpu, bytes) == 0, "differs");
	free(given), free(on_host), free(on_gpu);
}

/* With every root. All have the same buffers: the leader keeps those of others open, and the stand-in few. */
static void compare_all(struct gpu *gpu, struct row row, size_t number)
{
	struct rank *rank = gpu->rank;
	const bool mixed = row.mixed && rank->rank == 1, in_place = row.in_place && !mixed;
	const uint32_t roots = row.kind == ALLREDUCE ? 1 : rank->size;
	const size_t bytes = row.count * collet_dtype_bytes(row.dtype);
	struct buffer send = { 0 }, recv = { 0 };
	rank_check(rank,
		buffer_make(&send, &gpu->program, true, bytes) &&
			(in_place || buffer_make(&recv, &gpu->program, !mixed, bytes)),
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
	};
	struct gpu gpu;
	if (!begin(&gpu, rank))
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
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = (uint32_t)strlen(worlds[w].hosts), .bare = true,
			.context = &worlds[w] };
		ranks_must_pass(&options, all_rows);
	}
}

/* What is not combined inside hosts goes as it always has, and in its turn. */
static void go_in_turn(struct rank *rank)
{
	enum { ROUNDS = 6 };
	struct gpu gpu;
	struct buffer buffer = { 0 };
	collet_request *requests[ROUNDS] = { NULL };
	uint32_t value = rank->rank == 1;
	if (!begin(&gpu, rank) || !gpu_make(&gpu, &buffer, MIDDLE, 1))
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

/* ---- What a plan says ---- */

static void plan_is(struct rank *rank, const char *collective, uint64_t count, const char *asked, const char *way,
	const char *algorithm)
{
	collet_plan plan;
	rank_doing(rank, "the plan of %s of %llu", collective, (unsigned long long)count);
	if (!rank_ok(rank,
		    collet_comm_plan(rank->comm, collective, count, COLLET_F32, COLLET_SUM, 0, asked, &plan), "plan"))
		return;
	rank_check(rank, plan.gpu && strcmp(plan.gpu, way) == 0, "%s, not %s", plan.gpu ? plan.gpu : "none", way);
	rank_check(rank, !algorithm || (plan.gpu_algorithm && strcmp(plan.gpu_algorithm, algorithm) == 0), "by %s",
		plan.gpu_algorithm ? plan.gpu_algorithm : "none");
}

static void ask_for_plans(struct rank *rank)
{
	const struct world *world = rank->options->context;
	const bool alone = world->hosts[rank->rank] == 'b';
	struct gpu gpu;
	collet_plan plan;
	if (!begin(&gpu, rank))
		return;
	if (!strchr(world->hosts, 'b')) {
		plan_is(rank, "allreduce", LARGE, NULL, "direct", "direct");
		plan_is(rank, "allreduce", LARGE, "doubling", "piped", "doubling");
		plan_is(rank, "broadcast", LARGE, "tree", "direct", "direct");
	} else {
		plan_is(rank, "allreduce", LARGE, NULL, alone ? "piped" : "hosted", "hierarchical");
		plan_is(rank, "reduce", MIDDLE, NULL, alone ? "staged" : "hosted", "hierarchical");
		plan_is(rank, "reduce", LARGE, "hierarchical", "piped", "hierarchical");
		plan_is(rank, "broadcast", LARGE, NULL, alone ? "piped" : "hosted", "hierarchical");
		plan_is(rank, "broadcast", SMALL, "tree", "staged", "tree");
		plan_is(rank, "allgather", LARGE, NULL, "piped", NULL);
	}
	rank_ok(rank, collet_comm_plan(rank->comm, "barrier", 0, COLLET_F32, COLLET_SUM, 0, NULL, &plan), "plan");
	rank_check(rank, !plan.gpu && !plan.gpu_algorithm, "a barrier has no buffers");
	gpu_end(&gpu);
}

static void plans_say_which_way(void **state)
{
	static const struct world worlds[] = { { .hosts = "aab" }, { .hosts = "aa" } };
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = (uint32_t)strlen(worlds[w].hosts), .bare = true,
			.context = &worlds[w] };
		ranks_must_pass(&options, ask_for_plans);
	}
}

/* ---- What fails ---- */

static void fail_once(struct rank *rank)
{
	const struct world *world = rank->options->context;
	const struct row row = {
		COLLET_F32, COLLET_SUM, LARGE, .kind = world->kind, .root = world->root, .chosen = true };
	const collet_how how = how_of(rank, &row);
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!begin(&gpu, rank) || !gpu_make(&gpu, &buffer, LARGE, 1))
		return;
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);  /* else it may fail while others are about to begin */
	if (rank->rank == 0)
		setenv("FAKE_CUDA_FAIL", world->fail, 1);
	rank_status(rank, call(rank, &row, buffer.first, buffer.first, &how), COLLET_ERR_SYSTEM, world->fail);
	unsetenv("FAKE_CUDA_FAIL");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_leaders_failure_is_everybodys(void **state)
{
	static const struct world worlds[] = {
		{ "aabb", "cuLaunchKernel:0:700" },
		{ "aabb", "cuMemcpyAsync:0:1" },
		{ "aabb", "cuLaunchKernel:0:700", REDUCE, .root = 3 },
		{ "aabb", "cuLaunchKernel:0:700", BROADCAST },
		{ "aabb", "cuMemcpyAsync:0:1", BROADCAST },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = 4, .bare = true, .context = &worlds[w] };
		ranks_must_pass(&options, fail_once);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_are_those_of_the_hosts_hierarchical),
		cmocka_unit_test(other_calls_go_by_way_of_the_host),
		cmocka_unit_test(plans_say_which_way),
		cmocka_unit_test(a_leaders_failure_is_everybodys),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
