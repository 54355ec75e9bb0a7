/* Measures shm beside its building blocks, to choose its thresholds: two processes, each pinned to a core. Times are
 * the minimum of several rounds, since other work on the machine only adds to them. `one way` is half a ping-pong.
 * `exchange` is the time until both ends have the other's message when they start together, as in an all-reduce of two
 * ranks. `returned` is a message that its receiver overwrites in place and sends back, and `stream` each of many that
 * go one way. Prints a table; exit status 77 on a machine with one core. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "pair.h"
#include "transport/shm/shm_endpoint.h"

extern const struct collet_transport collet_shm_transport;

enum { LARGEST = 64 << 20 };

/* Memory shared by both processes, beside the endpoint. */
struct shared {
	alignas(64) _Atomic uint64_t flag[2][8];
	alignas(64) _Atomic uint32_t arrived;
};

struct bench {
	struct shared *shared;
	struct pair pair;
	int me;
	struct collet_arena arena;
	unsigned char *out, *in, *arena_out;
	uint64_t sequence;
	uint32_t barriers;
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void barrier(struct bench *bench)
{
	bench->barriers += 2;
	atomic_fetch_add(&bench->shared->arrived, 1);
	while (atomic_load(&bench->shared->arrived) < bench->barriers)
		sched_yield();
}

/* Returns the least time of one of count repeats, in us. Rounds are short, so that some of them are undisturbed. */
static double least_us(struct bench *bench, unsigned count,
	void (*body)(struct bench *bench, unsigned count, size_t bytes), size_t bytes)
{
	int64_t least = INT64_MAX;
	const int rounds = bytes > 1 << 20 ? 7 : 100;
	for (int round = 0; round < rounds; round++) {
		barrier(bench);
		const int64_t start = collet_clock_ns();
		body(bench, count, bytes);
		const int64_t took = collet_clock_ns() - start;
		least = took < least ? took : least;
	}
	return (double)least / count / 1e3;
}

static void raw_ping_pong(struct bench *bench, unsigned count, size_t bytes)
{
	_Atomic uint64_t *mine = &bench->shared->flag[bench->me][0], *theirs = &bench->shared->flag[!bench->me][0];
	uint64_t at = atomic_load(mine);
	for (unsigned i = 0; i < count; i++) {
		at++;
		if (bench->me == 0)
			atomic_store_explicit(mine, at, memory_order_release);
		while (atomic_load_explicit(theirs, memory_order_acquire) < at)
			pause_cpu();
		if (bench->me == 1)
			atomic_store_explicit(mine, at, memory_order_release);
	}
}

static void raw_exchange(struct bench *bench, unsigned count, size_t bytes)
{
	_Atomic uint64_t *mine = &bench->shared->flag[bench->me][0], *theirs = &bench->shared->flag[!bench->me][0];
	uint64_t at = atomic_load(mine);
	for (unsigned i = 0; i < count; i++) {
		at++;
		atomic_store_explicit(mine, at, memory_order_release);
		while (atomic_load_explicit(theirs, memory_order_acquire) < at)
			pause_cpu();
	}
}

static void complete(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	while (*(volatile enum collet_status *)&transfer->status == COLLET_PENDING)
		if (!collet_shm_transport.progress(endpoint))
			pause_cpu();
	if (transfer->status != COLLET_OK) {
		fprintf(stderr, "%s\n", collet_last_error());
		_exit(1);
	}
}

/* Rewrites the buffer to send: its lines are then in this core's cache, and not in the other's from the last round. */
static void refresh(struct bench *bench, unsigned char *from, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 64)
		memcpy(from + i, &bench->sequence, 8);
}

static void exchange_from(struct bench *bench, unsigned count, size_t bytes, unsigned char *from, uint32_t flags)
{
	struct collet_endpoint *endpoint = bench->pair.ends[bench->me].endpoint;
	for (unsigned i = 0; i < count; i++) {
		struct collet_transfer send = transfer_of(bench->sequence, from, bytes);
		struct collet_transfer receive = transfer_of(bench->sequence++, bench->in, bytes);
		send.flags = flags ? COLLET_TRANSFER_CONTIGUOUS : 0;
		receive.flags = flags;
		refresh(bench, from, bytes);
		collet_shm_transport.post_send(endpoint, &send);
		collet_shm_transport.post_recv(endpoint, &receive);
		complete(endpoint, &receive);
		if (flags && receive.view != bench->in)
			memcpy(bench->in, receive.view, bytes);  /* the received bytes are read once */
		if (flags)
			collet_shm_transport.release_view(endpoint, &receive);
		complete(endpoint, &send);
	}
}

static void exchange(struct bench *bench, unsigned count, size_t bytes)
{
	exchange_from(bench, count, bytes, bench->out, 0);
}

static void exchange_view(struct bench *bench, unsigned count, size_t bytes)
{
	exchange_from(bench, count, bytes, bench->out, COLLET_TRANSFER_VIEW);
}

static void exchange_arena(struct bench *bench, unsigned count, size_t bytes)
{
	exchange_from(bench, count, bytes, bench->arena_out, COLLET_TRANSFER_VIEW);
}

static void ping_pong(struct bench *bench, unsigned count, size_t bytes)
{
	struct collet_endpoint *endpoint = bench->pair.ends[bench->me].endpoint;
	for (unsigned i = 0; i < count; i++) {
		struct collet_transfer send = transfer_of(bench->sequence, bench->out, bytes);
		struct collet_transfer receive = transfer_of(bench->sequence++, bench->in, bytes);
		if (bench->me == 0)
			collet_shm_transport.post_send(endpoint, &send);
		collet_shm_transport.post_recv(endpoint, &receive);
		complete(endpoint, &receive);
		if (bench->me == 1)
			collet_shm_transport.post_send(endpoint, &send);
		complete(endpoint, &send);
	}
}

static void stream(struct bench *bench, unsigned count, size_t bytes)
{
	struct collet_endpoint *endpoint = bench->pair.ends[bench->me].endpoint;
	for (unsigned i = 0; i < count; i++) {
		struct collet_transfer transfer =
			transfer_of(bench->sequence++, bench->me ? bench->in : bench->out, bytes);
		if (bench->me == 0)
			collet_shm_transport.post_send(endpoint, &transfer);
		else
			collet_shm_transport.post_recv(endpoint, &transfer);
		complete(endpoint, &transfer);
	}
}

/* Rank 1 overwrites what it has received where that is possible, and sends it back. */
static void returned(struct bench *bench, unsigned count, size_t bytes)
{
	struct collet_endpoint *endpoint = bench->pair.ends[bench->me].endpoint;
	for (unsigned i = 0; i < count; i++) {
		struct collet_transfer send = transfer_of(bench->sequence, bench->out, bytes);
		struct collet_transfer receive = transfer_of(bench->sequence++, bench->in, bytes);
		send.flags = COLLET_TRANSFER_CONTIGUOUS;
		if (bench->me == 0)
			collet_shm_transport.post_send(endpoint, &send);
		else
			receive.flags = COLLET_TRANSFER_VIEW;
		collet_shm_transport.post_recv(endpoint, &receive);
		complete(endpoint, &receive);
		if (receive.flags & COLLET_TRANSFER_RETURNABLE) {
			send.data = (void *)(uintptr_t)receive.view;
			send.flags |= COLLET_TRANSFER_RETURN;
			memcpy(send.data, bench->out, bytes);
		} else if (bench->me == 1) {
			collet_shm_transport.release_view(endpoint, &receive);
		}
		if (bench->me == 1)
			collet_shm_transport.post_send(endpoint, &send);
		complete(endpoint, &send);
	}
}

static void copy(struct bench *bench, unsigned count, size_t bytes)
{
	for (unsigned i = 0; i < count; i++)
		memcpy(bench->in, bench->out, bytes);
}

static void print_table(struct bench *bench)
{
	const bool says = bench->me == 0;
	const double flag = least_us(bench, 500, raw_ping_pong, 0) / 2, flags = least_us(bench, 500, raw_exchange, 0);
	if (says)
		printf("%-28s%8.3f us\n%-28s%8.3f us\n", "raw flag, one way", flag, "raw flags, exchange", flags);
	const double one_way = least_us(bench, 500, ping_pong, 8) / 2, both = least_us(bench, 500, exchange, 8);
	if (says)
		printf("%-28s%8.3f us\n%-28s%8.3f us\n\n%12s%10s%10s%10s%10s%10s%10s%10s\n", "shm 8 B, one way",
			one_way, "shm 8 B, exchange", both, "us", "exchange", "view", "arena", "one way", "returned",
			"stream", "memcpy");
	for (size_t bytes = 8; bytes <= LARGEST; bytes *= bytes < 1 << 20 ? 2 : 4) {
		const unsigned count = bytes <= 4096 ? 200 : bytes <= 65536 ? 20 : 2;
		const double times[] = { least_us(bench, count, exchange, bytes),
			least_us(bench, count, exchange_view, bytes), least_us(bench, count, exchange_arena, bytes),
			least_us(bench, count, ping_pong, bytes) / 2, least_us(bench, count, returned, bytes) / 2,
			least_us(bench, count, stream, bytes), least_us(bench, count, copy, bytes) };
		if (!says)
			continue;
		printf("%10zu B", bytes);
		for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
			printf("%10.2f", times[i]);
		puts("");
		fflush(stdout);
	}
}

static int run(struct bench *bench)
{
	struct end *end = &bench->pair.ends[bench->me];
	cpu_set_t core;
	CPU_ZERO(&core);
	CPU_SET((size_t)bench->me, &core);
	(void)sched_setaffinity(0, sizeof(core), &core);
	if (collet_arena_init(&bench->arena, 0) != COLLET_OK)
		return 1;
	void *memory;
	if (collet_arena_alloc(&bench->arena, &memory, LARGEST) != COLLET_OK)
		return 1;
	bench->arena_out = memset(memory, 1, LARGEST);
	memset(bench->out, 2, LARGEST);
	memset(bench->in, 3, LARGEST);
	end->arena = &bench->arena;
	close(bench->pair.sockets[!bench->me]);
	bench->pair.sockets[!bench->me] = -1;
	pair_begin(&bench->pair, bench->me);
	if (pair_await(&bench->pair, bench->me) != COLLET_OK) {
		fprintf(stderr, "%s\n", collet_last_error());
		return 1;
	}
	print_table(bench);
	barrier(bench);
	pair_close(&bench->pair);
	collet_arena_deinit(&bench->arena);
	return 0;
}

int main(void)
{
	struct bench bench = { 0 };
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		puts("skipped: needs two cores");
		return 77;
	}
	bench.shared = mmap(NULL, sizeof(*bench.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench.out = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bench.in = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bench.shared == MAP_FAILED || bench.out == MAP_FAILED || bench.in == MAP_FAILED)
		return 1;
	pair_connect(&bench.pair, "shm", true);
	const pid_t child = fork();
	if (child < 0)
		return 1;
	bench.me = child == 0;
	if (bench.me)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	else
		bench.pair.ends[1].peer_info.pid = (uint32_t)child;
	const int failed = run(&bench);
	if (bench.me)
		_exit(failed);
	int status = 0;
	waitpid(child, &status, 0);
	return failed || status;
}
