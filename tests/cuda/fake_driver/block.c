#include "block.h"

#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "cuda/kernels/device_code.h"
#include "fake.h"

enum { THREADS_MOST = 8, STACK_BYTES = 128 << 10, GUARD_BYTES = 64 << 10 };

/* State of a thread. */
enum standing { GOES, AT_BARRIER, ENDED };

struct thread {
	ucontext_t context;
	void *sanitizer;             /* ThreadSanitizer's handle of the fibre */
	enum standing standing;
	int line;                    /* of the barrier */
	bool agreed;
};

/* The block that this thread of the system runs. */
static _Thread_local struct {
	const struct block_run *run;
	struct thread threads[THREADS_MOST];
	struct thread keeper;        /* the fibre that chooses who runs next */
	uint32_t slow;               /* this thread seldom runs; the number of threads if none */
	uint64_t state;
	uint64_t faster;             /* factor of the clock's speed */
	bool agreed;                 /* all threads agreed at the last barrier */
	cu_result fault;
	jmp_buf alone;               /* target of faults if the only thread is no fibre */
} block;

_Thread_local struct host_block host_block;

uint32_t block_threads(unsigned int launched)
{
	const char *wanted = getenv("FAKE_CUDA_THREADS");
	const unsigned long threads = wanted ? strtoul(wanted, NULL, 10) : 1;
	if (threads == 0 || threads > THREADS_MOST)
		abort();
	return threads < launched ? (uint32_t)threads : launched;
}

/* ---- Turns ---- */

static uint32_t draw(uint32_t below)
{
	block.state = block.state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(block.state >> 33) % below;
}

static void switch_to(struct thread *from, struct thread *to)
{
#ifdef __SANITIZE_THREAD__
	__tsan_switch_to_fiber(to->sanitizer, 0);
#endif
	if (swapcontext(&from->context, &to->context) != 0)
		abort();
}

/* Returns when it is the calling thread's turn again, which may be at once. */
static void yield_turn(void)
{
	switch_to(&block.threads[host_block.thread], &block.keeper);
}

static void fail(cu_result fault)
{
	block.fault = fault;
	if (block.run->threads == 1)
		longjmp(block.alone, 1);
	yield_turn(); /* never returns */
}

static uint32_t nth_that_goes(uint32_t nth)
{
	uint32_t t = 0;
	while (block.threads[t].standing != GOES || nth-- > 0)
		t++;
	return t;
}

/* Chooses one of the threads that can run. */
static uint32_t choose(uint32_t going)
{
	const uint32_t nth = draw(going), chosen = nth_that_goes(nth);
	return chosen == block.slow && draw(8) ? nth_that_goes((nth + 1) % going) : chosen;
}

/* If no thread can run, lets all continue from the barrier. If some have ended, or wait at another one, a GPU's
 * behaviour is undefined. */
static void open_barrier(void)
{
	block.agreed = true;
	for (uint32_t t = 0; t < block.run->threads; t++) {
		if (block.threads[t].standing == ENDED || block.threads[t].line != block.threads[0].line)
			block.fault = CU_LAUNCH_TIMEOUT;
		block.agreed = block.agreed && block.threads[t].agreed;
		block.threads[t].standing = GOES;
	}
}

static uint32_t count(enum standing standing)
{
	uint32_t are = 0;
	for (uint32_t t = 0; t < block.run->threads; t++)
		are += block.threads[t].standing == standing;
	return are;
}

/* Runs on the keeper. */
static void take_turns(void)
{
	while (count(ENDED) < block.run->threads) {
		if (!count(GOES))
			open_barrier();
		if (block.fault != CU_OK)
			return;
		host_block.thread = choose(count(GOES));
		switch_to(&block.keeper, &block.threads[host_block.thread]);
	}
}

/* ---- Functions that kernels call ---- */

unsigned char *host_pointer(uint64_t address, uint64_t bytes)
{
	char *found = bytes ? fake_reach_from(block.run->context, address, bytes) : (char *)(uintptr_t)address;
	if (!found && bytes)
		fail(CU_ILLEGAL_ADDRESS);
	return (unsigned char *)found;
}

void host_pause(void)
{
	if (fake_is_broken(block.run->context))
		fail(CU_ILLEGAL_ADDRESS);
	if (!block.run->schedule)
		sched_yield();
	else if (!schedule_pause(block.run->schedule, block.run->number))
		fail(CU_LAUNCH_TIMEOUT);
	if (block.run->threads > 1 && draw(2))
		yield_turn();
}

bool host_block_barrier(int line, bool agreed)
{
	if (block.run->threads == 1)
		return agreed;
	struct thread *self = &block.threads[host_block.thread];
	self->line = line;
	self->agreed = agreed;
	self->standing = AT_BARRIER;
	yield_turn();
	return block.agreed;
}

uint64_t host_clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) * block.faster;
}

/* ---- Blocks ---- */

static void run_thread(void)
{
	block.run->kernel->run(block.run->argument);
	block.threads[host_block.thread].standing = ENDED;
	yield_turn();
}

/* Gives it a stack of its own, with an inaccessible page below. */
static void begin_thread(struct thread *thread, char *guard)
{
	if (mprotect(guard, GUARD_BYTES, PROT_NONE) != 0 || getcontext(&thread->context) != 0)
		abort();
	thread->context.uc_stack = (stack_t){ .ss_sp = guard + GUARD_BYTES, .ss_size = STACK_BYTES };
	thread->context.uc_link = NULL;
	thread->standing = GOES;
#ifdef __SANITIZE_THREAD__
	thread->sanitizer = __tsan_create_fiber(0);
#endif
	makecontext(&thread->context, run_thread, 0);
}

static void end_threads(void)
{
#ifdef __SANITIZE_THREAD__
	for (uint32_t t = 0; t < block.run->threads; t++)
		__tsan_destroy_fiber(block.threads[t].sanitizer);
#endif
}

static void run_threads(void)
{
	const size_t bytes = (size_t)block.run->threads * (GUARD_BYTES + STACK_BYTES);
	char *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (stacks == MAP_FAILED)
		abort();
	for (uint32_t t = 0; t < block.run->threads; t++)
		begin_thread(&block.threads[t], stacks + t * (GUARD_BYTES + STACK_BYTES));
#ifdef __SANITIZE_THREAD__
	block.keeper.sanitizer = __tsan_get_current_fiber();
#endif
	take_turns();
	end_threads();
	munmap(stacks, bytes);
}

static void run_alone(void)
{
	if (setjmp(block.alone) == 0)
		block.run->kernel->run(block.run->argument);
}

cu_result block_run(const struct block_run *run)
{
	host_block = (struct host_block){ .column = run->number % run->columns, .columns = run->columns,
		.row = run->number / run->columns, .threads = run->threads };
	const char *faster = getenv("FAKE_CUDA_CLOCK");
	block.run = run;
	block.faster = faster ? strtoul(faster, NULL, 10) : 1;
	block.fault = CU_OK;
	block.state = run->seed * 0x9e3779b97f4a7c15 + run->number;
	block.slow = draw(2 * run->threads);
	schedule_join(run->schedule, run->number);
	if (!run->schedule)
		fake_delay();
	if (run->threads > 1)
		run_threads();
	else
		run_alone();
	schedule_leave(run->schedule, run->number);
	return block.fault;
}
