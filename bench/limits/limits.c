/* Timing the limits: two processes on two cores, medians of several batches. */
#include "limits.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "pin.h"
#include "ranks/device.h"
#include "ranks/process.h"
#include "report/output.h"

enum { BATCHES = 7 };

static const struct limit_kind *const kinds[] = {
	&bench_limit_memcpy,
	&bench_limit_add,
	&bench_limit_cross_memory_read,
	&bench_limit_tcp_stream,
	&bench_limit_tcp_exchange,
	&bench_limit_tcp_allreduce,
	&bench_limit_tcp_ping_pong,
	&bench_limit_flag,
};

struct limits {
	const struct bench_options *options;
	FILE *table, *json;
	char host[65];
	bool pinned;
	cpu_set_t before_pinning;   /* where the partner finds its core */
	bool any;                   /* has been wanted */
};

/* The partner process of one measurement; pid 0: none. */
struct partner {
	pid_t pid;
	int fds[2];
};

static void become_partner(const struct limit_kind *kind, struct limit *limit, const struct limits *all, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (all->pinned && sched_setaffinity(0, sizeof(all->before_pinning), &all->before_pinning) == 0)
		bench_pin(1, 2, false);
	/* Copy-on-write would make this process fault on the first write to each page: touch them before it counts. */
	if (limit->bytes > 0) {
		memset(limit->a, 1, limit->bytes);
		memset(limit->b, 1, limit->bytes);
	}
	if (kind->begin == NULL || kind->begin(limit, true) == 0)
		kind->serve(limit);
	_exit(0);
}

/* Waits until what a partner publishes is there; it must have nothing to publish, or do so within 10 s. */
static int wait_ready(const struct limit_kind *kind, struct limit *limit)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };
	if (kind != &bench_limit_cross_memory_read)
		return 0;
	for (int i = 0; i < 10000; i++) {
		if (atomic_load_explicit(&limit->page->ready, memory_order_acquire) != 0)
			return 0;
		nanosleep(&moment, NULL);
	}
	errno = ETIMEDOUT;
	return -1;
}

static int start_partner(
	const struct limit_kind *kind, struct limit *limit, struct partner *partner, const struct limits *all)
{
	const pid_t parent = getpid();
	*partner = (struct partner){ .fds = { -1, -1 } };
	memset(limit->page, 0, sizeof(*limit->page));
	limit->fd = -1;
	if (kind->serve == NULL)
		return 0;
	if (kind->wants_tcp && bench_limit_connect(partner->fds) != 0)
		return -1;
	fflush(NULL);
	partner->pid = fork();
	if (partner->pid == 0) {
		if (partner->fds[0] >= 0)
			close(partner->fds[0]);   /* else the end of this connection would never be seen */
		limit->fd = partner->fds[1];
		become_partner(kind, limit, all, parent);
	}
	limit->fd = partner->fds[0];
	if (partner->fds[1] >= 0)
		close(partner->fds[1]);
	if (partner->pid < 0 || wait_ready(kind, limit) != 0)
		return -1;
	return kind->begin != NULL ? kind->begin(limit, false) : 0;
}

static void stop_partner(struct limit *limit, struct partner *partner)
{
	atomic_store_explicit(&limit->page->stop, 1, memory_order_relaxed);
	if (limit->fd >= 0)
		close(limit->fd);
	if (partner->pid > 0) {
		kill(partner->pid, SIGKILL);   /* it has nothing to lose, and may be yielding for long */
		waitpid(partner->pid, NULL, 0);
	}
}

static int run_batch(const struct limit_kind *kind, struct limit *limit, uint64_t iterations, int64_t *elapsed_ns)
{
	const int64_t before = bench_clock_ns();
	for (uint64_t i = 0; i < iterations; i++)
		if (kind->step(limit) != 0)
			return -1;
	*elapsed_ns = bench_clock_ns() - before;
	return 0;
}

/* Times of one step in ns, in rising order. */
static int time_steps(const struct limit_kind *kind, struct limit *limit, double seconds, double ns[BATCHES])
{
	uint64_t iterations = 1;
	int64_t elapsed = 0;
	/* A fifth of the time to warm up and to learn how long one takes. */
	while (elapsed < (int64_t)(seconds * 2e8)) {
		if (run_batch(kind, limit, iterations, &elapsed) != 0)
			return -1;
		iterations *= 2;
	}
	int64_t sample[BATCHES];
	struct bench_samples samples = { .ns = sample, .capacity = BATCHES, .count = BATCHES };
	const uint64_t each = bench_iterations_for(seconds / BATCHES, iterations / 2, elapsed);
	for (int i = 0; i < BATCHES; i++)
		if (run_batch(kind, limit, each, &sample[i]) != 0)
			return -1;
	bench_percentile(&samples, 0.5);   /* sorts */
	for (int i = 0; i < BATCHES; i++)
		ns[i] = (double)sample[i] / (double)each;
	return 0;
}

static void print(struct limits *all, const struct limit_kind *kind, uint64_t bytes, const double ns[BATCHES])
{
	const bool rate = kind->unit == LIMIT_GBS;
	const double us = kind->unit == LIMIT_ONE_WAY_US ? 2e3 : 1e3;
	const double median = rate ? bench_gbs(bytes, ns[BATCHES / 2]) : ns[BATCHES / 2] / us;
	const double least = rate ? bench_gbs(bytes, ns[BATCHES - 1]) : ns[0] / us;
	const double most = rate ? bench_gbs(bytes, ns[0]) : ns[BATCHES - 1] / us;
	const char *unit = rate ? "GB/s" : "us";
	char size[24];
	bench_progress_clear();
	if (all->table != NULL) {
		fprintf(all->table, "%-46s %10s", kind->what, bench_bytes_text(bytes, size));
		bench_table_number(all->table, median, 10);
		fprintf(all->table, " %-5s", unit);
		bench_table_number(all->table, least, 10);
		bench_table_number(all->table, most, 10);
		putc('\n', all->table);
		fflush(all->table);
	}
	if (all->json != NULL) {
		fputs("{\"limit\":", all->json);
		bench_json_string(all->json, kind->name);
		fputs(",\"host\":", all->json);
		bench_json_string(all->json, all->host);
		fprintf(all->json, ",\"bytes\":%" PRIu64 ",\"pinned\":%s,\"unit\":\"%s\",\"median\":", bytes,
			all->pinned ? "true" : "false", unit);
		bench_json_number(all->json, median);
		fputs(",\"least\":", all->json);
		bench_json_number(all->json, least);
		fputs(",\"most\":", all->json);
		bench_json_number(all->json, most);
		fputs("}\n", all->json);
		fflush(all->json);
	}
}

static int measure(struct limits *all, const struct limit_kind *kind, uint64_t bytes)
{
	const size_t memory_bytes = (bytes + 4095) / 4096 * 4096;
	struct limit limit = {
		.bytes = bytes, .fd = -1, .a = aligned_alloc(4096, memory_bytes), .b = aligned_alloc(4096, memory_bytes)
	};
	struct partner partner = { 0 };
	double ns[BATCHES];
	char size[24];
	int failed = -1;
	limit.page = mmap(NULL, sizeof(*limit.page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench_progress("%s, %s", kind->what, bench_bytes_text(bytes, size));
	if (limit.a != NULL && limit.b != NULL && limit.page != MAP_FAILED) {
		memset(limit.a, 1, memory_bytes);
		memset(limit.b, 1, memory_bytes);
		failed = start_partner(kind, &limit, &partner, all);
		if (failed == 0)
			failed = time_steps(kind, &limit, all->options->mode.seconds, ns);
		const int reason = errno;
		if (kind->end != NULL)
			kind->end(&limit);
		stop_partner(&limit, &partner);
		errno = reason;
	}
	if (failed) {
		bench_progress_clear();
		fprintf(stderr, "collet-bench: %s, %s: %s\n", kind->what, bench_bytes_text(bytes, size),
			strerror(errno));
	} else {
		print(all, kind, bytes, ns);
	}
	if (limit.page != MAP_FAILED)
		munmap(limit.page, sizeof(*limit.page));
	free(limit.a);
	free(limit.b);
	return failed != 0;
}

static int measure_kind(struct limits *all, const struct limit_kind *kind)
{
	const struct bench_sizes *sizes = &all->options->sizes;
	int failed = 0;
	all->any = true;
	for (size_t i = 0; kind->small_bytes[i] > 0; i++)
		failed |= measure(all, kind, kind->small_bytes[i]);
	for (size_t i = 0; kind->by_size && i < sizes->count; i++)
		if (sizes->bytes[i] >= 64)   /* a rate of less says nothing */
			failed |= measure(all, kind, sizes->bytes[i]);
	return failed;
}

/* Is it a limit of one of these transports? */
static bool is_wanted(const struct limit_kind *kind, const char *transports)
{
	if (transports == NULL)
		return true;
	const size_t length = kind->transport != NULL ? strlen(kind->transport) : 0;
	for (const char *at = transports; length > 0; at += strcspn(at, ",") + 1) {
		if (strcspn(at, ",") == length && strncmp(at, kind->transport, length) == 0)
			return true;
		if (at[strcspn(at, ",")] == '\0')
			return false;
	}
	return false;
}

/* Beside this program in the build, or where it was installed. */
static void *load_module(const char *name, char file[4300])
{
	const char *own = bench_own_path();
	snprintf(file, 4300, "%.*scollet-limits-%s.so", own != NULL ? (int)(strrchr(own, '/') + 1 - own) : 0,
		own != NULL ? own : "", name);
	if (own == NULL || access(file, R_OK) != 0)
		snprintf(file, 4300, "%s/collet-limits-%s.so", BENCH_PEERS_INSTALLED, name);
	return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

/* Measures the limits of a module. Without the module or a device there are none; that is a failure if they were
 * asked for. */
static int measure_module(struct limits *all, const char *name)
{
	const struct limit_kind any = { .transport = name };
	char file[4300];
	int failed = 0;
	if (!is_wanted(&any, all->options->transport))
		return 0;
	void *library = load_module(name, file);
	const char *why = library != NULL ? "there is no device" : dlerror();
	const struct limits_module *module = library != NULL ? dlsym(library, BENCH_LIMITS_MODULE_SYMBOL) : NULL;
	const bool usable = module != NULL && module->is_there();
	for (size_t i = 0; usable && module->kinds[i] != NULL; i++)
		failed |= measure_kind(all, module->kinds[i]);
	if (!usable && all->options->transport != NULL) {
		fprintf(stderr, "collet-bench: no limits of %s: %s\n", name, why);
		all->any = true;
		failed = 1;
	}
	if (library != NULL)
		dlclose(library);
	return failed;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Measures the memory of a GPU: copies within it, timed by the GPU. */
static int measure_device(struct limits *all)
{
	static const struct limit_kind kind = { .name = "device_copy", .what = "copy within a GPU's memory",
		.unit = LIMIT_GBS };
	const struct bench_sizes *sizes = &all->options->sizes;
	struct bench_device device;
	int failed = !bench_device_open(&device, 0);
	if (!failed && all->table != NULL)
		fprintf(all->table, "# %s, of %d; its cache has %.1f MiB\n", device.device.name, device.device.count,
			(double)device.device.cache_bytes / (1 << 20));
	for (size_t i = 0; !failed && i < sizes->count; i++) {
		double ns[BATCHES], gbs = 0;
		for (int b = 0; !failed && b < BATCHES; b++) {
			failed = !bench_device_copy(
				&device, sizes->bytes[i], all->options->mode.seconds / BATCHES, &gbs);
			ns[b] = gbs > 0 ? (double)sizes->bytes[i] / gbs : 0;
		}
		qsort(ns, BATCHES, sizeof(ns[0]), by_value);
		if (!failed)
			print(all, &kind, sizes->bytes[i], ns);
	}
	bench_device_close(&device);
	return failed;
}

static int measure_host(struct limits *all)
{
	int status = 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (is_wanted(kinds[i], all->options->transport))
			status |= measure_kind(all, kinds[i]);
	status |= measure_module(all, "verbs");
	if (!all->any) {
		fprintf(stderr, "collet-bench: limits --transport %s: there are limits of shm, tcp and verbs\n",
			all->options->transport);
		status = 2;
	}
	return status;
}

int bench_limits(const struct bench_options *options)
{
	struct limits all = { .options = options };
	bool json_failed;
	int status = 0;
	gethostname(all.host, sizeof(all.host) - 1);
	all.json = bench_json_open(options->json, &json_failed);
	if (json_failed)
		return 1;
	all.table = all.json == stdout ? NULL : stdout;
	sched_getaffinity(0, sizeof(all.before_pinning), &all.before_pinning);
	all.pinned = options->mode.pin && !options->mode.device && bench_pin(0, 2, false);
	if (all.table != NULL && options->mode.device)
		fprintf(all.table, "# limits of a GPU of %s; medians of %d, least and most; GB = 10^9 bytes\n",
			all.host, BATCHES);
	else if (all.table != NULL)
		fprintf(all.table, "# limits of %s, two processes%s; medians of %d, least and most; GB = 10^9 bytes\n",
			all.host, all.pinned ? " bound to two cores" : "", BATCHES);
	status = options->mode.device ? measure_device(&all) : measure_host(&all);
	if (!bench_json_close(all.json))
		status = 1;
	return status;
}
