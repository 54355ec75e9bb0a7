/* Preparing one size, running it, timing it. */
#include "loop.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "values.h"

enum { DEVICE_FILL_BYTES = 8 << 20 }; /* of one copy to a GPU */

static int64_t read_clock(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t bench_clock_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

bool bench_library_can(const struct bench_library *library, const struct bench_work *work, uint64_t count)
{
	return library->run[work->collective] != NULL
		&& (library->supports == NULL || library->supports(library->context, work, count));
}

/* Selects the buffers of the next call. A rank's unused buffer is still a valid pointer, so that every library sees
 * the same. */
void bench_run_select(struct bench_run *r, uint32_t slot)
{
	r->next_slot = slot;
	r->call.send = bench_buffers_send(&r->buffers, slot);
	r->call.recv = bench_buffers_recv(&r->buffers, slot);
}

/* Returns the bytes of a slot where the host can access them. */
static uint8_t *seen(const struct bench_run *r, uint32_t slot)
{
	return r->mirror != NULL ? r->mirror : r->buffers.memory + slot * r->buffers.slot_bytes;
}

static int fill_slot(struct bench_run *r, uint32_t slot)
{
	const struct bench_library *library = r->library;
	const struct bench_buffers *b = &r->buffers;
	uint8_t *at = seen(r, slot);
	/* In place, the receive buffer covers the send buffer, so it is poisoned first. */
	bench_poison(&r->work, library->rank, library->size, r->count, at + b->recv_offset);
	bench_fill(&r->work, library->rank, library->size, r->count, at + b->send_offset);
	return r->mirror == NULL ? 0
		: b->allocator->write(b->allocator->context, b->memory + slot * b->slot_bytes, at, b->slot_bytes);
}

/* Fills all slots of a GPU alike, many with each copy: small ones take seconds one by one. */
static int fill_device(struct bench_run *r)
{
	const struct bench_buffers *b = &r->buffers;
	const uint32_t fit = (uint32_t)(DEVICE_FILL_BYTES / b->slot_bytes), most = fit > 0 ? fit : 1;
	const uint32_t batch = b->slots < most ? b->slots : most;
	uint8_t *filled = malloc(batch * b->slot_bytes);
	int failed = filled == NULL || fill_slot(r, 0);
	for (uint32_t i = 0; i < batch && !failed; i++)
		memcpy(filled + i * b->slot_bytes, r->mirror, b->slot_bytes);
	for (uint32_t slot = 0; slot < b->slots && !failed; slot += batch) {
		const uint32_t left = b->slots - slot;
		failed = b->allocator->write(b->allocator->context, b->memory + slot * b->slot_bytes, filled,
			(left < batch ? left : batch) * b->slot_bytes);
	}
	free(filled);
	return failed;
}

static int fill_slots(struct bench_run *r)
{
	if (r->mirror != NULL)
		return fill_device(r);
	for (uint32_t slot = 0; slot < r->buffers.slots; slot++)
		if (fill_slot(r, slot))
			return 1;
	return 0;
}

/* Copies what the last call left in a slot to where the host can check it. */
static int fetch_slot(struct bench_run *r, uint32_t slot)
{
	const struct bench_buffers *b = &r->buffers;
	return r->mirror == NULL ? 0
		: b->allocator->read(b->allocator->context, r->mirror, b->memory + slot * b->slot_bytes, b->slot_bytes);
}

const char *bench_run_init(struct bench_run *r, const struct bench_library *library, const struct bench_work *work,
	uint64_t count, enum bench_buffer_kind kind, bool cold, const void *how)
{
	memset(r, 0, sizeof(*r));
	const char *problem = bench_buffers_init(
		&r->buffers, kind, library->allocator, work, library->rank, library->size, count, cold);
	if (problem != NULL)
		return problem;
	if (library->in_place_at_start && work->in_place && work->collective == BENCH_REDUCE_SCATTER)
		r->buffers.recv_offset = r->buffers.send_offset;
	r->library = library;
	r->work = *work;
	r->count = count;
	r->call.count = count;
	r->call.dtype = (collet_dtype)work->dtype;
	r->call.op = (collet_op)work->op;
	r->call.root = work->root;
	r->call.in_place = work->in_place != 0;
	r->call.how = how;
	if (kind == BENCH_DEVICE) {
		r->mirror = calloc(1, r->buffers.slot_bytes);
		problem = r->mirror == NULL ? "out of memory for a copy of the buffers" : NULL;
	}
	if (problem == NULL && fill_slots(r))
		problem = "the buffers cannot be filled";
	bench_run_select(r, 0);
	if (problem != NULL)
		bench_run_deinit(r);
	return problem;
}

void bench_run_deinit(struct bench_run *r)
{
	bench_buffers_deinit(&r->buffers);
	free(r->mirror);
	memset(r, 0, sizeof(*r));
}

int bench_run_call(struct bench_run *r)
{
	return r->library->run[r->work.collective](r->library->context, &r->call);
}

int bench_run_checked(struct bench_run *r, uint64_t *wrong, uint64_t *first)
{
	return bench_run_fill(r) || bench_run_call(r) || bench_run_verify(r, wrong, first);
}

int bench_run_fill(struct bench_run *r)
{
	bench_run_select(r, 0);
	return fill_slot(r, 0);
}

int bench_run_verify(struct bench_run *r, uint64_t *wrong, uint64_t *first)
{
	if (fetch_slot(r, 0))
		return 1;
	*first = 0;
	*wrong = bench_check(&r->work, r->library->rank, r->library->size, r->count,
		seen(r, 0) + r->buffers.recv_offset, first);
	return 0;
}

int bench_run_barrier(struct bench_run *r)
{
	static const struct bench_call nothing;
	if (r->library->run[BENCH_BARRIER] == NULL)
		return 0;
	return r->library->run[BENCH_BARRIER](r->library->context, &nothing);
}

void bench_run_next(struct bench_run *r)
{
	bench_run_select(r, r->next_slot + 1 < r->buffers.slots ? r->next_slot + 1 : 0);
}

/* The loop itself, apart for warm buffers so that it holds nothing but the call. */
static int repeat(struct bench_run *r, uint64_t iterations)
{
	int (*const run)(void *, const struct bench_call *) = r->library->run[r->work.collective];
	void *const context = r->library->context;
	if (r->buffers.slots == 1) {
		for (uint64_t i = 0; i < iterations; i++)
			if (run(context, &r->call))
				return 1;
		return 0;
	}
	for (uint64_t i = 0; i < iterations; i++) {
		bench_run_next(r);
		if (run(context, &r->call))
			return 1;
	}
	return 0;
}

/* Reads what the process has used so far; a second call gives the difference. */
static void read_use(struct bench_times *times)
{
	struct rusage use;
	getrusage(RUSAGE_SELF, &use);
	times->cpu_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID) - times->cpu_ns;
	times->page_faults = use.ru_minflt - times->page_faults;
	times->switches = use.ru_nvcsw + use.ru_nivcsw - times->switches;
}

int bench_run_batch(struct bench_run *r, uint64_t iterations, struct bench_times *times)
{
	if (bench_run_barrier(r))
		return 1;
	memset(times, 0, sizeof(*times));
	read_use(times);
	const int64_t before = bench_clock_ns();
	const int failed = repeat(r, iterations);
	times->elapsed_ns = bench_clock_ns() - before;
	read_use(times);
	return failed;
}

int bench_run_synced_batch(struct bench_run *r, uint64_t iterations, struct bench_times *times)
{
	memset(times, 0, sizeof(*times));
	read_use(times);
	for (uint64_t i = 0; i < iterations; i++) {
		bench_run_next(r);
		if (bench_run_barrier(r))
			return 1;
		const int64_t before = bench_clock_ns();
		if (bench_run_call(r))
			return 1;
		times->elapsed_ns += bench_clock_ns() - before;
	}
	read_use(times);
	return 0;
}

int bench_run_samples(struct bench_run *r, uint64_t iterations, struct bench_samples *samples)
{
	samples->count = 0;
	if (bench_run_barrier(r))
		return 1;
	int64_t before = bench_clock_ns();
	for (uint64_t i = 0; i < iterations && samples->count < samples->capacity; i++) {
		bench_run_next(r);
		if (bench_run_call(r))
			return 1;
		const int64_t after = bench_clock_ns();
		samples->ns[samples->count++] = after - before;
		before = after;
	}
	return 0;
}

/* Waits until the clock reads the next multiple of 8 us, which is the same one for nearly all ranks that have left a
 * barrier. Otherwise a short call would take as long as ranks leave the barrier apart. Not where ranks share cores: a
 * rank that waits for the clock keeps another one from running. */
static void start_together(void)
{
	enum { WINDOW_NS = 8000 };
	const int64_t start_ns = (bench_clock_ns() / WINDOW_NS + 1) * WINDOW_NS;
	while (bench_clock_ns() < start_ns)
		;
}

/* Verifying reads every element of the result. */
int bench_run_rewritten(struct bench_run *r, uint64_t iterations, struct bench_samples *samples, uint64_t *wrong)
{
	const struct bench_library *library = r->library;
	samples->count = 0;
	*wrong = 0;
	for (uint64_t i = 0; i < iterations && samples->count < samples->capacity; i++) {
		uint64_t first;
		bench_run_next(r);
		bench_fill(&r->work, library->rank, library->size, r->count,
			bench_buffers_send(&r->buffers, r->next_slot));
		if (bench_run_barrier(r))
			return 1;
		if (library->one_host && library->size <= sysconf(_SC_NPROCESSORS_ONLN))
			start_together();
		const int64_t before = bench_clock_ns();
		if (bench_run_call(r))
			return 1;
		samples->ns[samples->count++] = bench_clock_ns() - before;
		*wrong += bench_check(&r->work, library->rank, library->size, r->count, r->call.recv, &first);
	}
	return 0;
}

uint64_t bench_iterations_for(double seconds, uint64_t iterations, int64_t elapsed_ns)
{
	const double each_ns = (double)(elapsed_ns > 0 ? elapsed_ns : 1) / (double)iterations;
	const double fit = seconds * 1e9 / each_ns;
	return fit < 1 ? 1 : fit > BENCH_ITERATIONS_MAX ? BENCH_ITERATIONS_MAX : (uint64_t)fit;
}

struct bench_calibration bench_calibration_begin(double seconds)
{
	return (struct bench_calibration){ .seconds = seconds, .batch = 1 };
}

uint64_t bench_calibration_next(struct bench_calibration *c, int64_t elapsed_ns)
{
	c->calls += c->batch;
	c->spent_ns += elapsed_ns;
	const bool again = c->enough;
	const bool settled = c->calls >= BENCH_FIRST_CALLS || (double)c->spent_ns >= c->seconds * 1e9;
	c->enough = (double)elapsed_ns >= c->seconds * 1e8 || c->batch >= BENCH_ITERATIONS_MAX;
	if (c->enough && again && settled)
		return bench_iterations_for(c->seconds, c->batch, elapsed_ns);
	c->batch *= c->enough ? 1 : 2;
	return 0;
}

uint64_t bench_warm_iterations(uint64_t iterations)
{
	return 1 + iterations / 20;
}

uint64_t bench_rewritten_iterations(uint64_t iterations)
{
	return iterations / 4 < 2000 ? 1 + iterations / 4 : 2000;
}

static int by_value(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

int64_t bench_percentile(struct bench_samples *samples, double part)
{
	if (samples->count == 0)
		return 0;
	qsort(samples->ns, samples->count, sizeof(samples->ns[0]), by_value);
	const size_t at = (size_t)(part * (double)(samples->count - 1) + 0.5);
	return samples->ns[at];
}
