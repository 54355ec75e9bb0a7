/* Tests what ranks are told when a transport breaks. The wrapper "faulty" loses, fails or drops the nth message of
 * one rank. Every rank gets the resulting status, in bounded time, with a sentence that names the rank. Also tests
 * ranks with different modules, which use what both have, and what a module's device is told of memory.
 *
 * Usage: test_faults_transport FOLDER, the folder of the modules of tests/transport/modules. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ranks.h"

enum { SIZE = 3, BREAKS = 1, CALLS_MOST = 100000 };
static const uint64_t counts[] = { 1, 1000, 100000 };
static const char *modules;

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* ---- Faults ---- */

struct fault {
	const char *name, *says;
	collet_status status;
	int64_t timeout_ns;
	double least_ms, most_ms;        /* since the last successful call */
};

/* A lost peer has a grace period of a second; a dropped message shows at the deadline. */
static const struct fault faults[] = {
	{ "fail", "failed on purpose at message", COLLET_ERR_TRANSPORT, 0, 0, 5000 },
	{ "lose", "lost on purpose at message", COLLET_ERR_PEER_LOST, 0, 0, 10000 },
	{ "drop", NULL, COLLET_ERR_TIMEOUT, INT64_C(1500000000), 1000, 10000 },
};
enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

struct fault_row {
	const struct fault *fault;
	uint64_t count;
};

static void call_until_it_breaks(struct rank *rank)
{
	const struct fault_row *row = rank->options->context;
	float *data = calloc(row->count, sizeof(*data));
	collet_status status = COLLET_OK;
	double began = now_ms();
	uint32_t calls = 0;
	for (; status == COLLET_OK && calls < CALLS_MOST; calls++) {
		began = now_ms();
		status = collet_allreduce(rank->comm, data, data, row->count, COLLET_F32, COLLET_SUM, NULL);
	}
	const double took = now_ms() - began;
	const double most = row->fault->most_ms * (ranks_are_slow() ? 4 : 1);
	if (rank_status(rank, status, row->fault->status, "the call that breaks")) {
		rank_check(rank, took >= row->fault->least_ms && took < most, "it took %.0f ms", took);
		if (rank->rank == BREAKS && row->fault->says)
			rank_check(rank,
				strstr(collet_last_error(), row->fault->says) &&
					strstr(collet_last_error(), "COLLET_FAULTY_SEED="),
				"nobody says that it was meant: %s", collet_last_error());
		rank_check(rank, strstr(collet_last_error(), "rank ") != NULL, "no rank is named: %s",
			collet_last_error());
		rank_status(rank, collet_barrier(rank->comm, NULL), row->fault->status, "a later call");
		rank_status(rank, collet_comm_error(rank->comm), row->fault->status, "collet_comm_error");
	}
	rank_destroy(rank);
	free(data);
}

static void every_rank_is_told(void **state)
{
	const struct fault *fault = *state;
	static const char *const transports[] = { "faulty:shm", "faulty:tcp", "trace:faulty:tcp" };
	static const char *const messages[] = { "=1", "=8", "" };  /* "": drawn by the seed */
	setenv("COLLET_TRACE", "quiet", 1);
	for (unsigned t = 0; t < sizeof(transports) / sizeof(transports[0]); t++) {
		for (unsigned m = 0; m < sizeof(messages) / sizeof(messages[0]); m++) {
			const unsigned variant = t + m;
			const struct fault_row row = { fault, counts[variant % 3] };
			char text[80];
			if (variant % 2)
				continue;  /* half of them are enough: each waits for a second or more */
			snprintf(text, sizeof(text), "delay=20,split=3,skip=4,%s%s,rank=%d", fault->name, messages[m],
				BREAKS);
			setenv("COLLET_FAULTY", text, 1);
			const struct ranks_options options = {
				.mode = m % 2 ? RANKS_THREADS : RANKS_PROCESSES,
				.size = SIZE,
				.transport = transports[t],
				.timeout_ns = fault->timeout_ns,
				.progress_thread = variant == 2,
				.context = &row,
			};
			printf("COLLET_FAULTY=%s over %s, %llu elements\n", text, transports[t],
				(unsigned long long)row.count);
			ranks_must_pass(&options, call_until_it_breaks);
		}
	}
	unsetenv("COLLET_FAULTY");
}

/* ---- A receiver that leaves ---- */

/* The receiver has all its data: the message counts as sent, though its sender learns both at the same time. */
static void send_to_who_leaves(struct rank *rank)
{
	const uint64_t *count = rank->options->context;
	float *data = calloc(*count, sizeof(*data));
	if (rank->rank == 0)
		rank_ok(rank, collet_recv(rank->comm, data, *count, COLLET_F32, 1, 0, NULL, NULL), "collet_recv");
	else
		rank_ok(rank, collet_send(rank->comm, data, *count, COLLET_F32, 0, 0, NULL), "collet_send");
	free(data);
}

static void who_leaves_has_got_its_message(void **state)
{
	static const char *const transports[] = { "faulty:shm", "faulty:tcp" };
	/* leave: after the data, which follow the RTS of a large message. */
	static const struct {
		uint64_t count;
		const char *faults;
	} rows[] = { { 10, "leave=1" }, { 100000, "leave=2" } };
	for (unsigned i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		const unsigned row = i / 2;
		char text[80];
		snprintf(text, sizeof(text), "delay=0,split=0,skip=0,%s,rank=1", rows[row].faults);
		setenv("COLLET_FAULTY", text, 1);
		const struct ranks_options options = {
			.size = 2, .transport = transports[i % 2], .context = &rows[row].count
		};
		ranks_must_pass(&options, send_to_who_leaves);
	}
	unsetenv("COLLET_FAULTY");
}

/* ---- Modules ---- */

static bool uses(struct rank *rank, const char *transport)
{
	collet_stat rows[64];
	size_t count;
	if (!rank_ok(rank, collet_comm_stats(rank->comm, rows, 64, &count), "collet_comm_stats"))
		return false;
	for (size_t i = 0; i < count && i < 64; i++)
		if (rows[i].kind == COLLET_STAT_ENDPOINT && strcmp(rows[i].name, transport) == 0)
			return true;
	return false;
}

/* Only rank 2 has no modules. The others' best transport is "longer". */
static void use_what_both_have(struct rank *rank)
{
	if (rank->rank == 2)
		unsetenv("COLLET_TRANSPORT_PATH");
	if (!rank_create(rank))
		return;
	uint32_t all = rank->rank + 1, sum = 0;
	for (uint32_t peer = 0; peer < rank->size; peer++) {
		uint32_t theirs = 0;
		if (peer == rank->rank)
			continue;
		const collet_status status = collet_sendrecv(rank->comm, &all, 1, peer, 5, &theirs, 1, peer,
			5, COLLET_U32, NULL, NULL);
		if (rank_ok(rank, status, "collet_sendrecv"))
			rank_check(rank, theirs == peer + 1, "rank %u said %u", peer, theirs);
	}
	const collet_status summed = collet_allreduce(rank->comm, &all, &sum, 1, COLLET_U32, COLLET_SUM, NULL);
	if (rank_ok(rank, summed, "collet_allreduce"))
		rank_check(rank, sum == 6, "the sum is %u", sum);
	rank_check(rank, uses(rank, "longer") == (rank->rank != 2), "longer is%s used", rank->rank != 2 ? " not" : "");
	rank_check(rank, uses(rank, "shm") || uses(rank, "tcp"), "nothing that is built in is used");
	rank_destroy(rank);
}

static void a_pair_uses_what_both_have(void **state)
{
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	ranks_must_pass(&(struct ranks_options){ .size = SIZE, .bare = true }, use_what_both_have);
	unsetenv("COLLET_TRANSPORT_PATH");
}

/* ---- Memory ---- */

/* Reads the module's own count of known memory, as it is loaded in this process. */
static bool knows(struct rank *rank, const unsigned *known, unsigned wanted, const char *when)
{
	return rank_check(rank, *known == wanted, "%s: %u pieces of memory are known, not %u", when, *known, wanted);
}

static void tell_of_memory(struct rank *rank)
{
	char path[512];
	static char own[8192];
	void *large = NULL, *small = NULL;
	snprintf(path, sizeof(path), "%s/libcollet-transport-memory.so", modules);
	if (!rank_create(rank))
		return;
	void *module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	const unsigned *known = module ? dlsym(module, "memory_known_count") : NULL;
	if (!rank_check(rank, known != NULL, "%s is not loaded", path) || !knows(rank, known, 0, "created"))
		return;
	if (rank_ok(rank, collet_mem_alloc(rank->comm, &large, 1 << 20), "collet_mem_alloc") &&
		rank_ok(rank, collet_mem_alloc(rank->comm, &small, 64), "collet_mem_alloc") &&
		knows(rank, known, 1, "allocated") &&
		rank_ok(rank, collet_mem_register(rank->comm, own, sizeof(own)), "collet_mem_register"))
		knows(rank, known, 2, "registered");
	rank_ok(rank, collet_allreduce(rank->comm, large, large, 1 << 18, COLLET_F32, COLLET_SUM, NULL), "allreduce");
	const unsigned staging = *known - 2;
	rank_check(rank, staging > 0, "nobody has told of the engine's staging");
	rank_ok(rank, collet_mem_free(rank->comm, small), "collet_mem_free");
	knows(rank, known, 2 + staging, "what it did not take was freed");
	rank_ok(rank, collet_mem_free(rank->comm, large), "collet_mem_free");
	knows(rank, known, 1 + staging, "freed");
	rank_ok(rank, collet_mem_deregister(rank->comm, own), "collet_mem_deregister");
	knows(rank, known, staging, "deregistered");
	rank_status(rank, collet_mem_deregister(rank->comm, own), COLLET_ERR_ARGUMENT, "once more");
	rank_destroy(rank);
	knows(rank, known, 0, "destroyed");
	dlclose(module);
}

static void devices_are_told_of_memory(void **state)
{
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	ranks_must_pass(&(struct ranks_options){ .size = 2, .bare = true, .transport = "memory" }, tell_of_memory);
	unsetenv("COLLET_TRANSPORT_PATH");
}

static void cannot_be_created(struct rank *rank)
{
	char store[64];
	collet_options options;
	collet_comm *comm = NULL;
	rank_fill_options(rank, 0, &options, store);
	rank_status(rank, collet_comm_create(&comm, &options), COLLET_ERR_UNSUPPORTED, "collet_comm_create");
	rank_check(rank, strstr(collet_last_error(), "no adapter of this kind in /sys/class/adapters") != NULL,
		"it is not said why: %s", collet_last_error());
	rank_check(rank, !comm, "there is a communicator");
}

static void a_module_without_device_ends_creation_if_named(void **state)
{
	setenv("COLLET_TRANSPORT_PATH", modules, 1);
	ranks_must_pass(&(struct ranks_options){ .size = 2, .bare = true, .transport = "device" }, cannot_be_created);
	unsetenv("COLLET_TRANSPORT_PATH");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest others[] = {
		cmocka_unit_test(who_leaves_has_got_its_message),
		cmocka_unit_test(a_pair_uses_what_both_have),
		cmocka_unit_test(a_module_without_device_ends_creation_if_named),
		cmocka_unit_test(devices_are_told_of_memory),
	};
	struct CMUnitTest tests[FAULTS + sizeof(others) / sizeof(others[0])];
	if (argc != 2)
		return 2;
	modules = argv[1];
	for (unsigned i = 0; i < FAULTS; i++)
		tests[i] = (struct CMUnitTest){ .name = faults[i].name, .test_func = every_rank_is_told,
			.initial_state = (void *)(uintptr_t)&faults[i] };
	memcpy(tests + FAULTS, others, sizeof(others));
	return cmocka_run_group_tests_name("faults of transports", tests, NULL, NULL);
}
