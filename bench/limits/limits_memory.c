/* Limits of memory: copying, adding, reading another process. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"

static int copy(struct limit *l)
{
	memcpy(l->a, l->b, l->bytes);
	__asm__ volatile("" : : "r"(l->a) : "memory");   /* the copy is looked at, so it cannot be left out */
	return 0;
}

typedef float vector __attribute__((vector_size(64), aligned(64)));

/* One body; the compiler makes of it what the instruction set of each caller has. */
static inline __attribute__((always_inline)) void add_vectors(vector *a, const vector *b, size_t vectors)
{
	for (size_t i = 0; i < vectors; i++)
		a[i] += b[i];
}

static void add_plain(vector *a, const vector *b, size_t vectors)
{
	add_vectors(a, b, vectors);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_avx2(vector *a, const vector *b, size_t vectors)
{
	add_vectors(a, b, vectors);
}

__attribute__((target("avx512f"))) static void add_avx512(vector *a, const vector *b, size_t vectors)
{
	add_vectors(a, b, vectors);
}
#endif

static int add(struct limit *l)
{
	vector *a = (vector *)(void *)l->a;
	const vector *b = (const vector *)(const void *)l->b;
	const size_t vectors = l->bytes / sizeof(vector);
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		add_avx512(a, b, vectors);
	else if (__builtin_cpu_supports("avx2"))
		add_avx2(a, b, vectors);
	else
#endif
		add_plain(a, b, vectors);
	return 0;
}

static int read_partner(struct limit *l)
{
	uint64_t done = 0;
	while (done < l->bytes) {
		const struct iovec mine = { .iov_base = l->a + done, .iov_len = l->bytes - done };
		const struct iovec its = { .iov_base = (void *)(uintptr_t)(l->page->partner_address + done),
			.iov_len = l->bytes - done };
		const ssize_t got = process_vm_readv(l->page->partner_pid, &mine, 1, &its, 1, 0);
		if (got <= 0)
			return -1;
		done += (uint64_t)got;
	}
	return 0;
}

/* Fills its buffer, so that it lies in its cache as a collective's result would; then sleeps. */
static void sleep_until_stopped(struct limit *l)
{
	static const struct timespec moment = { .tv_nsec = 5000000 };
	memset(l->b, 1, l->bytes);
	l->page->partner_address = (uint64_t)(uintptr_t)l->b;
	l->page->partner_pid = getpid();
	/* release: pairs with the acquire in limits.c, so that address and pid are there when ready is */
	atomic_store_explicit(&l->page->ready, 1, memory_order_release);
	while (atomic_load_explicit(&l->page->stop, memory_order_relaxed) == 0)
		nanosleep(&moment, NULL);
}

const struct limit_kind bench_limit_memcpy = { .name = "memcpy", .what = "memcpy, one process", .unit = LIMIT_GBS,
	.by_size = true, .step = copy };
const struct limit_kind bench_limit_add = { .name = "add", .what = "a += b in f32, one process", .unit = LIMIT_GBS,
	.by_size = true, .step = add };
const struct limit_kind bench_limit_cross_memory_read = { .name = "cross_memory_read",
	.what = "process_vm_readv of another process's buffer",
	.unit = LIMIT_GBS,
	.by_size = true,
	.transport = "shm",
	.step = read_partner,
	.serve = sleep_until_stopped };
