/* Messages of GPU memory that a transport accesses directly. It sends and receives long ones in place, where both ends
 * support it; everything else is staged through the host. The transport belongs to the tests
 * (transport/modules/kinds.c): it sees the pages of a dma-buf, as an adapter does. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu.h"

enum { CELL = (512 << 10) / sizeof(uint32_t), SHORT = (64 << 10) / sizeof(uint32_t), LONG = 11 * CELL + 77, TAG = 5 };

enum place { ON_HOST, ON_GPU, REGISTERED, PLACES };

struct wrapped_case {
	const char *transport, *faulty; /* value of COLLET_FAULTY; "" */
	bool has_gpudirect;
};

struct message {
	uint64_t count;
	enum place from, to;
	bool on_stream;
};

static unsigned posted(struct rank *rank, const char *what)
{
	char path[400];
	snprintf(path, sizeof(path), "%s/libcollet-transport-gpu.so", getenv("COLLET_TRANSPORT_PATH"));
	void *module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	atomic_uint *count = module ? dlsym(module, what) : NULL;
	const unsigned found = count ? atomic_load(count) : 0;
	rank_check(rank, count != NULL, "the module is not loaded: %s", path);
	if (module)
		dlclose(module);
	return found;
}

/* True if it is sent, or received, in place. A receiver with GPUDirect asks for everything at once. A sender without
 * sends segments of a cell each; there may be only one. */
static bool is_in_place(const struct rank *rank, const struct message *message, bool sends)
{
	const struct wrapped_case *wrapped = rank->options->context;
	if (!wrapped->has_gpudirect || message->count <= SHORT || (sends ? message->from : message->to) != REGISTERED)
		return false;
	return sends ? message->to != ON_GPU : message->from != ON_GPU || message->count <= CELL;
}

static void pass(struct gpu *gpu, const struct message *message, uint32_t seed)
{
	struct rank *rank = gpu->rank;
	const bool sends = rank->rank == 0;
	const enum place place = sends ? message->from : message->to;
	const size_t bytes = message->count * sizeof(uint32_t);
	const char *what = sends ? "gpu_sent_count" : "gpu_received_count";
	const collet_how how = { .stream = message->on_stream ? gpu->stream[0] : NULL };
	uint32_t *values = malloc(bytes);
	struct buffer buffer;
	rank_doing(rank, "%llu elements from %d to %d%s", (unsigned long long)message->count, message->from,
		message->to, message->on_stream ? ", on a stream" : "");
	for (uint64_t i = 0; i < message->count; i++)
		values[i] = sends ? seed + (uint32_t)i : 0;
	const bool made = buffer_make(&buffer, &gpu->program, place != ON_HOST, bytes) && buffer_write(&buffer, values);
	if (!rank_check(rank, made, "a buffer"))
		return;
	if (place == REGISTERED)
		rank_ok(rank, collet_mem_register(rank->comm, buffer.first, bytes), "registering");
	const unsigned before = posted(rank, what);
	rank_ok(rank, sends ? collet_send(rank->comm, buffer.first, message->count, COLLET_U32, 1, TAG, &how)
			    : collet_recv(rank->comm, buffer.first, message->count, COLLET_U32, 0, TAG, NULL, &how),
		"passing");
	if (message->on_stream)
		gpu_synchronize(gpu, 0);
	const unsigned in_place = posted(rank, what) - before;
	rank_check(rank, in_place == is_in_place(rank, message, sends), "%s: %u messages in place", rank->report->doing,
		in_place);
	bool fine = rank_check(rank, buffer_read(&buffer, values), "reading a buffer");
	for (uint64_t i = 0; i < message->count && fine; i++)
		fine = rank_check(rank, values[i] == seed + (uint32_t)i, "%s: element %llu is %u", rank->report->doing,
			(unsigned long long)i, values[i]);
	if (place == REGISTERED)
		rank_ok(rank, collet_mem_deregister(rank->comm, buffer.first), "deregistering");
	buffer_free(&buffer);
	free(values);
}

static void pass_all(struct rank *rank)
{
	static const uint64_t counts[] = {1, SHORT, SHORT + 1, CELL, CELL + 1, LONG};
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	uint32_t seed = 1;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
		for (uint32_t row = 0; row < 2 * PLACES * PLACES && !rank->report->failed; row++) {
			const struct message message = {counts[c], (enum place)(row / 2 / PLACES),
				(enum place)(row / 2 % PLACES), row % 2};
			pass(&gpu, &message, seed++);
		}
	gpu_end(&gpu);
}

static void long_ones_go_as_they_are_where_both_ends_are_reached(void **state)
{
	static const struct wrapped_case plain = { .has_gpudirect = true };
	const struct ranks_options options = { .size = 2, .transport = "gpu", .context = &plain };
	ranks_must_pass(&options, pass_all);
}

static void pass_some(struct rank *rank)
{
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	for (uint32_t row = 0; row < 4 && !rank->report->failed; row++) {
		const struct message message = { LONG, row & 1 ? ON_GPU : REGISTERED, REGISTERED, row & 2 };
		pass(&gpu, &message, row + 1);
	}
	gpu_end(&gpu);
}

/* A divided message may be too short for the transport to send it in place. */
static void they_do_through_wrappers_that_cut_nothing(void **state)
{
	static const struct wrapped_case cases[] = {
		{ "trace:gpu", "", true },
		{ "faulty:gpu", "delay=50,split=0,skip=4", true },
		{ "faulty:gpu", "", false },
	};
	setenv("COLLET_TRACE", "quiet", 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct ranks_options options = {
			.size = 2, .transport = cases[i].transport, .context = &cases[i]
		};
		setenv("COLLET_FAULTY", cases[i].faulty, 1);
		ranks_must_pass(&options, pass_some);
	}
	unsetenv("COLLET_FAULTY");
	unsetenv("COLLET_TRACE");
}

/* If the GPU's memory cannot be accessed, and the log says why, registering changes nothing. */
static void pass_by_way_of_the_host(struct rank *rank)
{
	static const char *const lacks[] = {"dma-bufs", "ordered writes"};
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	const unsigned before = posted(rank, "gpu_sent_count") + posted(rank, "gpu_received_count");
	for (size_t i = 0; i < 2; i++) {
		struct buffer buffer;
		setenv("FAKE_CUDA_WITHOUT", lacks[i], 1);
		if (!gpu_make(&gpu, &buffer, LONG, 3))
			return;
		rank_ok(rank, collet_mem_register(rank->comm, buffer.first, buffer.bytes), "registering");
		const collet_status status =
			rank->rank == 0 ? collet_send(rank->comm, buffer.first, LONG, COLLET_U32, 1, TAG, NULL)
					: collet_recv(rank->comm, buffer.first, LONG, COLLET_U32, 0, TAG, NULL, NULL);
		rank_ok(rank, status, lacks[i]);
		gpu_holds(&gpu, &buffer, 3, lacks[i]);
		rank_ok(rank, collet_mem_deregister(rank->comm, buffer.first), "deregistering");
		buffer_free(&buffer);
	}
	unsetenv("FAKE_CUDA_WITHOUT");
	rank_check(
		rank, posted(rank, "gpu_sent_count") + posted(rank, "gpu_received_count") == before, "used GPUDirect");
	gpu_end(&gpu);
}

static void inaccessible_memory_is_staged(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "gpu" };
	ranks_must_pass(&options, pass_by_way_of_the_host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_ones_go_as_they_are_where_both_ends_are_reached),
		cmocka_unit_test(they_do_through_wrappers_that_cut_nothing),
		cmocka_unit_test(inaccessible_memory_is_staged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
