/* Runs ranks as threads and processes: starts them, waits until they end or are stuck, and collects their reports. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <cmocka.h>

#include "crash.h"
#include "ranks_run.h"
#include "sample.h"

/* Set by LeakSanitizer where it is linked in, to check leaks of a process that ends by _exit() too. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* ---- As a thread ---- */

static void *thread_main(void *argument)
{
	struct rank_slot *slot = argument;
	rank_run(&slot->rank, slot->rank.run->body);
	close(slot->own_end_fd);
	return NULL;
}

/* ---- As a process ---- */

static void *watch_main(void *argument)
{
	struct rank_slot *slot = argument;
	char byte;
	if (read(slot->own_order_fd, &byte, 1) == 1)
		rank_end_stuck(&slot->rank);
	return NULL;
}

/* Never returns. */
static void process_main(struct rank_slot *slot, pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(1);
	static char name[64];
	snprintf(name, sizeof(name), "rank %u of %u, process %d,", slot->rank.rank, slot->rank.size, (int)getpid());
	crash_tell(name);
	pthread_t watcher;
	if (pthread_create(&watcher, NULL, watch_main, slot) != 0 || pthread_detach(watcher) != 0)
		_exit(1);
	rank_run(&slot->rank, slot->rank.run->body);
	/* The watcher blocks in a read that nothing may end: it ends with the process. */
	if (!slot->rank.leaks && __lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check() != 0)
		rank_check(&slot->rank, false, "memory leaked");
	_exit(0);
}

/* ---- The run ---- */

static void make_pipe(int ends[2])
{
	if (pipe2(ends, O_CLOEXEC) != 0)
		fail_msg("pipe: %s", strerror(errno));
}

static bool is_process(const struct ranks *ranks, uint32_t rank)
{
	return ranks->options.mode == RANKS_PROCESSES || (ranks->options.mode == RANKS_MIXED && rank % 2 == 1);
}

static void prepare(struct ranks *ranks, uint32_t r)
{
	struct rank_slot *slot = &ranks->slots[r];
	slot->rank = (struct rank){
		.rank = r,
		.size = ranks->options.size,
		.options = &ranks->options,
		.shared = ranks->shared + 1,
		.report = &ranks->shared->reports[r],
		.run = ranks,
	};
	pthread_mutex_init(&slot->rank.comm_lock, NULL);
	pthread_mutex_init(&slot->rank.report_lock, NULL);
	int ends[2];
	make_pipe(ends);
	slot->end_fd = ends[0];
	slot->own_end_fd = ends[1];
	slot->order_fd = slot->own_order_fd = -1;
}

static void start_process(struct ranks *ranks, struct rank_slot *slot)
{
	int ends[2];
	make_pipe(ends);
	slot->own_order_fd = ends[0];
	slot->order_fd = ends[1];
	fflush(NULL);
	const pid_t parent = getpid();
	slot->pid = fork();
	if (slot->pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (slot->pid == 0) {
		/* Open copies of the others' ends would hide their end from the test. */
		for (uint32_t r = 0; r < ranks->options.size; r++)
			if (&ranks->slots[r] != slot)
				close(ranks->slots[r].own_end_fd);
		process_main(slot, parent);
	}
	close(slot->own_end_fd);
	close(slot->own_order_fd);
	slot->own_end_fd = slot->own_order_fd = -1;
}

/* Returns the transport to use. COLLET_TEST_INSTEAD=verbs replaces every transport that a test asks for.
 * COLLET_TEST_THROUGH=faulty: wraps each one. */
static void wrap_transports(struct ranks *ranks)
{
	const char *through = getenv("COLLET_TEST_THROUGH"), *instead = getenv("COLLET_TEST_INSTEAD");
	if (instead)
		ranks->options.transport = instead;
	if (!through)
		return;
	const char *name = ranks->options.transport ? ranks->options.transport : "shm,tcp";
	size_t used = 0;
	while (*name) {
		const size_t length = strcspn(name, ",");
		used += (size_t)snprintf(ranks->transport + used, sizeof(ranks->transport) - used, "%s%s%.*s",
			used ? "," : "", through, (int)length, name);
		assert_true(used < sizeof(ranks->transport));
		name += length + (name[length] == ',');
	}
	ranks->options.transport = ranks->transport;
}

struct ranks *ranks_start(const struct ranks_options *options, ranks_body *body)
{
	static atomic_uint runs;
	assert_true(options->size >= 1 && options->size <= RANKS_MOST);
	struct ranks *ranks = calloc(1, sizeof(*ranks) + options->size * sizeof(ranks->slots[0]));
	assert_non_null(ranks);
	ranks->options = *options;
	const char *mode = getenv("COLLET_TEST_RANKS");
	if (mode)
		ranks->options.mode = strcmp(mode, "threads") == 0 ? RANKS_THREADS : RANKS_PROCESSES;
	wrap_transports(ranks);
	ranks->body = body;
	snprintf(ranks->store, sizeof(ranks->store), "unix:ranks-%d-%u", (int)getpid(),
		atomic_fetch_add_explicit(&runs, 1, memory_order_relaxed));
	const char *given = getenv("COLLET_TEST_DEADLINE_MS");  /* for debugging a hang */
	const int64_t deadline_ms = given ? atoll(given) : DEADLINE_MS;
	ranks->patience_ns = (options->deadline_ms ? options->deadline_ms : deadline_ms) * 1000000 * SLOWNESS;
	ranks->shared_bytes = sizeof(*ranks->shared) + options->shared_bytes;
	ranks->shared = mmap(NULL, ranks->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ranks->shared == MAP_FAILED)
		fail_msg("mmap: %s", strerror(errno));
	if (options->initial_shared)
		memcpy(ranks->shared + 1, options->initial_shared, options->shared_bytes);
	ranks_give_sign(ranks);
	crash_tell(NULL);
	for (uint32_t r = 0; r < options->size; r++)
		prepare(ranks, r);
	/* Processes first: a fork copies no other thread. */
	for (uint32_t r = 0; r < options->size; r++)
		if (is_process(ranks, r))
			start_process(ranks, &ranks->slots[r]);
	for (uint32_t r = 0; r < options->size; r++) {
		if (is_process(ranks, r))
			continue;
		const int error = pthread_create(&ranks->slots[r].thread, NULL, thread_main, &ranks->slots[r]);
		if (error)
			fail_msg("pthread_create: %s", strerror(error));
	}
	return ranks;
}

pid_t ranks_pid(const struct ranks *ranks, uint32_t rank)
{
	return ranks->slots[rank].pid;
}

void *ranks_shared(struct ranks *ranks)
{
	return ranks->shared + 1;
}

const struct rank_report *ranks_report(const struct ranks *ranks, uint32_t rank)
{
	return &ranks->shared->reports[rank];
}

static bool has_ended(const struct rank_slot *slot)
{
	struct pollfd end = { .fd = slot->end_fd, .events = POLLIN };
	return poll(&end, 1, 0) == 1;
}

/* Waits until the rank has ended; false at the deadline. */
static bool wait_for(const struct rank_slot *slot, int64_t deadline_ns)
{
	struct pollfd end = { .fd = slot->end_fd, .events = POLLIN };
	for (;;) {
		const int64_t left_ms = (deadline_ns - ranks_now_ns() + 999999) / 1000000;
		const int ready = poll(&end, 1, left_ms > 0 ? (int)left_ms : 0);
		if (ready >= 0)
			return ready == 1;
	}
}

/* Waits until all have ended; false if none makes progress for too long. */
static bool wait_for_all(struct ranks *ranks)
{
	for (uint32_t r = 0; r < ranks->options.size; r++) {
		int64_t deadline_ns;
		do {
			deadline_ns = ranks_deadline(ranks);
			if (wait_for(&ranks->slots[r], deadline_ns))
				break;
			if (deadline_ns == ranks_deadline(ranks))
				return false;
		} while (true);
	}
	return true;
}

static void end_all_stuck(struct ranks *ranks)
{
	for (uint32_t r = 0; r < ranks->options.size; r++) {
		struct rank_slot *slot = &ranks->slots[r];
		if (has_ended(slot))
			continue;
		slot->rank.report->end = RANK_STUCK;
		if (!slot->pid)
			rank_end_stuck(&slot->rank);
		else if (write(slot->order_fd, "", 1) != 1)
			fprintf(stderr, "rank %u does not listen: %s\n", r, strerror(errno));
	}
	const int64_t deadline_ns = ranks_now_ns() + (int64_t)GRACE_MS * 1000000 * SLOWNESS;
	uint32_t ended = 0;
	while (ended < ranks->options.size && wait_for(&ranks->slots[ended], deadline_ns))
		ended++;
	if (ended == ranks->options.size)
		return;
	for (uint32_t r = 0; r < ranks->options.size; r++) {
		const struct rank_slot *slot = &ranks->slots[r];
		if (slot->pid) {
			kill(slot->pid, SIGKILL);
		} else if (!has_ended(slot)) {
			fprintf(stderr, "rank %u is a thread that even an abort does not end: the test cannot go on\n",
				r);
			abort();
		}
	}
}

/* Collects a rank that has ended, or is about to: its last descriptor is closed. */
static void collect(struct rank_slot *slot)
{
	struct rank_report *report = slot->rank.report;
	if (!slot->pid) {
		pthread_join(slot->thread, NULL);
		if (report->end != RANK_STUCK)
			report->end = RANK_RETURNED;
		return;
	}
	int status;
	while (waitpid(slot->pid, &status, 0) != slot->pid)
		if (errno != EINTR)
			fail_msg("waitpid: %s", strerror(errno));
	report->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
	if (report->end != RANK_STUCK)
		report->end = WIFSIGNALED(status)               ? RANK_KILLED :
			report->returned && report->code == 0 ? RANK_RETURNED :
								RANK_EXITED;
}

bool ranks_wait(struct ranks *ranks)
{
	if (ranks->waited)
		return !ranks->stuck;
	ranks->stuck = !wait_for_all(ranks);
	if (ranks->stuck)
		end_all_stuck(ranks);
	for (uint32_t r = 0; r < ranks->options.size; r++)
		collect(&ranks->slots[r]);
	ranks->waited = true;
	return !ranks->stuck;
}

bool ranks_all_passed(const struct ranks *ranks)
{
	static const char *const ends[] = { "runs", "returned", "exited", "was killed", "was stuck" };
	bool passed = true;
	for (uint32_t r = 0; r < ranks->options.size; r++) {
		const struct rank_report *report = ranks_report(ranks, r);
		if (report->end == RANK_RETURNED && !report->failed)
			continue;
		passed = false;
		fprintf(stderr, "rank %u of %u %s (%d), last doing: %s%s%s\n", r, ranks->options.size,
			ends[report->end], report->code, report->doing, report->failed ? "\n\t" : "",
			report->failed ? report->sentence : "");
	}
	return passed;
}

void ranks_free(struct ranks **ranks)
{
	struct ranks *gone = *ranks;
	if (!gone)
		return;
	ranks_wait(gone);
	for (uint32_t r = 0; r < gone->options.size; r++) {
		close(gone->slots[r].end_fd);
		if (gone->slots[r].order_fd >= 0)
			close(gone->slots[r].order_fd);
		pthread_mutex_destroy(&gone->slots[r].rank.comm_lock);
		pthread_mutex_destroy(&gone->slots[r].rank.report_lock);
	}
	munmap(gone->shared, gone->shared_bytes);
	free(gone);
	*ranks = NULL;
}

void ranks_must_pass(const struct ranks_options *options, ranks_body *body)
{
	struct ranks *ranks = ranks_start(options, body);
	ranks_wait(ranks);
	const bool passed = ranks_all_passed(ranks);
	ranks_free(&ranks);
	assert_true(passed);
}

void ranks_must_pass_everywhere(const struct ranks_options *options, ranks_body *body)
{
	enum { MODES = 3, TRANSPORTS = 2, RUNS = MODES * TRANSPORTS };
	static const char *const transports[TRANSPORTS] = { "shm", "tcp" };
	static const char *const modes[MODES] = { "processes", "threads", "mixed" };
#if defined(__SANITIZE_THREAD__)
	const uint32_t first = TRANSPORTS; /* it sees both sides only of threads */
#else
	const uint32_t first = 0;
#endif
	/* A sample takes each body somewhere, and those of one program in different places. */
	static uint64_t rows;
	const uint64_t always = first + sample_from(rows) % (RUNS - first);
	for (uint32_t r = first; r < RUNS; r++) {
		if (!sample_has(rows++) && r != always)
			continue;
		struct ranks_options run = *options;
		run.mode = (enum ranks_mode)(r / TRANSPORTS);
		run.transport = transports[r % TRANSPORTS];
		struct ranks *ranks = ranks_start(&run, body);
		ranks_wait(ranks);
		const bool passed = ranks_all_passed(ranks);
		ranks_free(&ranks);
		if (!passed)
			fail_msg("%u ranks as %s over %s", options->size, modes[r / TRANSPORTS],
				transports[r % TRANSPORTS]);
	}
}

bool ranks_are_slow(void)
{
	return SLOWNESS > 1 || getenv("COLLET_TEST_SLOW");
}
