/* Ranks of several hosts with GPUs of their own: which of the other local ranks' memory a host's first rank can access,
 * if they are threads of its process or other processes, and what happens on hosts where its GPU can access none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <collet/cuda.h>
#include <collet/tools.h>

#include "api/comm.h"
#include "cuda/gpu_context.h"
#include "hierarchical.h"

/* A rank whose local part the GPU executes sends its leader a call descriptor, and no more. */
enum { OFFER_MOST_BYTES = 8 << 10 };

/* LARGE elements, in place, on every rank. */
static bool sum(struct gpu *gpu, const struct buffer *buffer, cu_stream stream)
{
	struct rank *rank = gpu->rank;
	collet_how how = COLLET_HOW_DEFAULT;
	how.stream = stream;
	return rank_ok(rank,
		       collet_allreduce(rank->comm, buffer->first, buffer->first, LARGE, COLLET_U32, COLLET_SUM, &how),
		       "a sum") &&
		(!stream || gpu_synchronize(gpu, 0));
}

/* ---- Memory of every kind ---- */

static bool make(struct gpu *gpu, struct buffer *buffer, bool librarys)
{
	struct rank *rank = gpu->rank;
	const size_t bytes = LARGE * sizeof(uint32_t);
	uint32_t *ones = malloc(bytes);
	void *memory = NULL;
	for (int i = 0; i < LARGE; i++)
		ones[i] = 1;
	*buffer = (struct buffer){ .program = &gpu->program, .gpu = true, .bytes = bytes };
	bool fine = librarys ? rank_ok(rank, collet_mem_alloc_device(rank->comm, &memory, bytes), "allocating")
			     : rank_check(rank, buffer_make(buffer, &gpu->program, true, bytes), "allocating");
	if (librarys)
		buffer->first = memory;
	fine = fine && rank_check(rank, buffer_write(buffer, ones), "writing");
	free(ones);
	return fine;
}

static void drop(struct gpu *gpu, struct buffer *buffer, bool librarys)
{
	if (librarys)
		rank_ok(gpu->rank, collet_mem_free(gpu->rank->comm, buffer->first), "freeing");
	else
		buffer_free(buffer);
}

static void reach(struct rank *rank)
{
	const struct world *world = rank->options->context;
	struct gpu gpu;
	struct buffer buffer;
	if (!hosts_begin(&gpu, rank))
		return;
	for (int way = 0; way < 4 && !rank->report->failed; way++) {
		const bool librarys = way & 1, on_stream = way & 2;
		rank_doing(rank, "%s memory%s", librarys ? "the library's" : "the driver's",
			on_stream ? ", on a stream" : "");
		if (!make(&gpu, &buffer, librarys))
			return;
		const uint64_t before = rank_sent(rank).bytes;
		if (!sum(&gpu, &buffer, on_stream ? gpu.stream[0] : NULL))
			return;
		gpu_holds(&gpu, &buffer, rank->size, "the sum");
		const uint64_t sent = rank_sent(rank).bytes - before;
		rank_check(rank, hosts_leads(rank, world) || sent < OFFER_MOST_BYTES, "has sent %llu bytes",
			(unsigned long long)sent);
		drop(&gpu, &buffer, librarys);
	}
	gpu_end(&gpu);
}

static void a_leader_reaches_threads_and_processes(void **state)
{
	/* Of RANKS_MIXED, even ranks are threads of this process, odd ones processes. */
	static const struct {
		struct world world;
		enum ranks_mode mode;
	} rows[] = {
		{ { "aabbb", "01210" }, RANKS_PROCESSES },
		{ { "ababa", "01210" }, RANKS_MIXED },
		{ { "ababa", "00203" }, RANKS_MIXED },
		{ { "ababab", "010111" }, RANKS_MIXED },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ranks_options options = { .size = (uint32_t)strlen(rows[i].world.hosts), .bare = true,
			.mode = rows[i].mode, .context = &rows[i].world };
		ranks_must_pass(&options, reach);
	}
}

/* ---- Inaccessible memory ---- */

/* Reads what the library has logged; a process of its own may lose its stderr. */
static void read_log(int file, char *text, size_t capacity)
{
	const ssize_t got = pread(file, text, capacity - 1, 0);
	text[got > 0 ? got : 0] = '\0';
}

/* The GPUs of host a cannot access each other. */
static void go_without(struct rank *rank)
{
	const struct world *world = rank->options->context;
	const bool apart = world->hosts[rank->rank] == 'a', leads = hosts_leads(rank, world);
	const int log = memfd_create("log", MFD_CLOEXEC);
	struct gpu gpu;
	struct buffer buffer;
	collet_plan plan;
	char text[4096];
	if (!rank_check(rank, log >= 0 && dup2(log, STDERR_FILENO) >= 0, "no log"))
		return;
	setenv("COLLET_LOG", "warn", 1);
	if (apart)
		setenv("FAKE_CUDA_WITHOUT", "peer access", 1);
	if (!hosts_begin(&gpu, rank) || !make(&gpu, &buffer, false))
		return;
	rank_check(rank, !rank->comm->gpu->shared_gpu == apart, "the host's ranks go together, or not");
	read_log(log, text, sizeof(text));
	rank_check(rank,
		!strstr(text, "collectives of this host's ranks, on several GPUs, go by way of the host") ==
				!(apart && leads) &&
			!strstr(text, "opening another process's allocation") == !(apart && leads),
		"it has logged: %s", text);
	rank_ok(rank, collet_comm_plan(rank->comm, "allreduce", LARGE, COLLET_U32, COLLET_SUM, 0, NULL, &plan), "plan");
	/* Over a link between GPUs, which is slower than a GPU's own memory. */
	const double links_ns = LARGE * sizeof(uint32_t) / 200.;
	rank_check(rank,
		strcmp(plan.gpu_path, apart ? "pipelined" : "hierarchical") == 0 && plan.gpu_ns > plan.gpu_memory_ns,
		"the plan is %s, in %g ns", plan.gpu_path, plan.gpu_ns);
	rank_check(rank, apart || (plan.gpu_memory_ns > 0.99 * links_ns && plan.gpu_memory_ns < 2.51 * links_ns),
		"links take %g ns", plan.gpu_memory_ns);
	if (sum(&gpu, &buffer, NULL))
		gpu_holds(&gpu, &buffer, rank->size, "the sum");
	if (sum(&gpu, &buffer, gpu.stream[0]))
		gpu_holds(&gpu, &buffer, rank->size * rank->size, "the second sum");
	buffer_free(&buffer);
	gpu_end(&gpu);
	close(log);
}

static void gpus_without_peer_access_are_staged(void **state)
{
	static const struct world worlds[] = { { "aabb", "0101" }, { "abbaa", "21001" } };
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = (uint32_t)strlen(worlds[w].hosts), .bare = true,
			.context = &worlds[w] };
		ranks_must_pass(&options, go_without);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_leader_reaches_threads_and_processes),
		cmocka_unit_test(gpus_without_peer_access_are_staged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
