/* Tests the control plane with real processes: one is killed, is stopped, or does nothing. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../bootstrap/world.h"
#include "control/control.h"
#include "core/status.h"

enum { SIZE = 4 };
#define PATIENCE_NS ((int64_t)20000000000)

/* A child's report to the parent. */
enum kind { READY, GONE, LEFT, MESSAGES, ENDED, CPU };
struct report {
	uint32_t kind, rank, peer;
	int64_t value;
};

/* The parent's request to a child. */
struct request {
	enum { SEND, QUIT, REST } what;
	uint32_t count;
};

struct child {
	pid_t pid;
	int requests;            /* the parent's end */
};

struct family {
	struct child children[SIZE];
	int reports;             /* the parent's end */
	struct report seen[1024];
	uint32_t seen_count;
};

/* ---- In the child ---- */

struct self {
	uint32_t rank;
	int out;
	int64_t messages;
};

static void tell(const struct self *self, uint32_t kind, uint32_t peer, int64_t value)
{
	const struct report report = { .kind = kind, .rank = self->rank, .peer = peer, .value = value };
	if (write(self->out, &report, sizeof(report)) != sizeof(report))
		_exit(3);
}

static void connected(void *context, const struct collet_hello *hello, bool dialed, int socket)
{
	close(socket);
}

static void dial_failed(void *context, const struct collet_hello *hello, collet_status status, const char *sentence)
{
}

static void peer_gone(void *context, uint32_t rank, bool left, const char *sentence)
{
	tell(context, left ? LEFT : GONE, rank, collet_clock_ns());
}

static void message(void *context, uint32_t from, uint32_t type, const void *data, size_t bytes)
{
	struct self *self = context;
	if (type == (uint32_t)self->messages)  /* in order */
		self->messages++;
	uint32_t last;
	memcpy(&last, data, sizeof(last));
	if (type + 1 == last) {
		tell(self, MESSAGES, from, self->messages);
		self->messages = 0;
	}
}

static void tick(void *context)
{
}

static void send_many(struct collet_control *control, uint32_t count)
{
	char data[COLLET_CONTROL_MESSAGE_BYTES] = { 0 };
	memcpy(data, &count, sizeof(count));
	for (uint32_t i = 0; i < count; i++)
		collet_control_send(control, COLLET_CONTROL_ALL_RANKS, i, data, sizeof(data));
}

static int64_t cpu_ns(void)
{
	struct timespec used;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static int be_rank(uint32_t number, const char *store, int requests, int reports)
{
	static const struct collet_control_events events = {
		.connected = connected,
		.dial_failed = dial_failed,
		.peer_gone = peer_gone,
		.message = message,
		.tick = tick,
	};
	struct test_rank rank;
	struct self self = { .rank = number, .out = reports };
	struct collet_control *control;
	struct request request;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	test_rank_set(&rank, number, SIZE, store, NULL, 20000);
	if (collet_bootstrap_init(&rank.bootstrap, &rank.launch, &rank.peer_info, NULL, NULL, &rank.log))
		return 1;
	const struct collet_control_config config = {
		.rank = number,
		.size = SIZE,
		.launch = &rank.launch,
		.bootstrap = &rank.bootstrap,
		.events = &events,
		.context = &self,
		.log = &rank.log,
	};
	if (collet_control_create(&control, &config))
		return 1;
	tell(&self, READY, 0, 0);
	while (read(requests, &request, sizeof(request)) == sizeof(request) && request.what != QUIT) {
		if (request.what == SEND)
			send_many(control, request.count);
		if (request.what == REST) {
			const int64_t before = cpu_ns();
			poll(NULL, 0, 200);
			tell(&self, CPU, 0, cpu_ns() - before);
		}
	}
	collet_control_destroy(&control);
	collet_bootstrap_deinit(&rank.bootstrap);
	tell(&self, ENDED, 0, collet_clock_ns());
	return 0;
}

/* ---- In the parent ---- */

static void ask(struct family *family, uint32_t rank, struct request request)
{
	assert_int_equal(write(family->children[rank].requests, &request, sizeof(request)), sizeof(request));
}

/* Waits for the nth report of this kind from this rank about this peer. */
static struct report await_nth(struct family *family, enum kind kind, uint32_t rank, uint32_t peer, uint32_t n)
{
	const int64_t deadline = collet_deadline_after(PATIENCE_NS);
	uint32_t looked = 0;
	for (;;) {
		for (; looked < family->seen_count; looked++) {
			const struct report *seen = &family->seen[looked];
			if (seen->kind == kind && seen->rank == rank && seen->peer == peer && n-- == 0)
				return *seen;
		}
		struct pollfd item = { .fd = family->reports, .events = POLLIN };
		if (poll(&item, 1, collet_deadline_ms(deadline, 60000)) != 1)
			fail_msg("rank %u did not report %d about %u", rank, kind, peer);
		assert_true(family->seen_count < 1024);
		assert_int_equal(read(family->reports, &family->seen[family->seen_count++], sizeof(struct report)),
			sizeof(struct report));
	}
}

/* Counts the reports of this kind that have been read so far. */
static uint32_t count_of(const struct family *family, enum kind kind, uint32_t rank, uint32_t peer)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < family->seen_count; i++)
		count += family->seen[i].kind == kind && family->seen[i].rank == rank && family->seen[i].peer == peer;
	return count;
}

static struct report await(struct family *family, enum kind kind, uint32_t rank, uint32_t peer)
{
	return await_nth(family, kind, rank, peer, 0);
}

static struct family *family_create(void)
{
	struct family *family = calloc(1, sizeof(*family));
	char name[32], store[64];
	int reports[2];
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	assert_int_equal(pipe(reports), 0);
	family->reports = reports[0];
	fflush(NULL);
	for (uint32_t r = 0; r < SIZE; r++) {
		int requests[2];
		assert_int_equal(pipe(requests), 0);
		family->children[r].requests = requests[1];
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			_exit(be_rank(r, store, requests[0], reports[1]));
		family->children[r].pid = pid;
		close(requests[0]);
	}
	close(reports[1]);
	for (uint32_t r = 0; r < SIZE; r++)
		await(family, READY, r, 0);
	return family;
}

static void family_destroy(struct family *family)
{
	for (uint32_t r = 0; r < SIZE; r++) {
		int status;
		kill(family->children[r].pid, SIGKILL);
		waitpid(family->children[r].pid, &status, 0);
		close(family->children[r].requests);
	}
	close(family->reports);
	free(family);
}

static void a_killed_rank_is_told_to_all_others(void **state)
{
	for (uint32_t victim = 0; victim < SIZE; victim++) {
		struct family *family = family_create();
		int64_t latest = 0;
		const int64_t killed = collet_clock_ns();
		kill(family->children[victim].pid, SIGKILL);
		for (uint32_t r = 0; r < SIZE; r++) {
			if (r == victim)
				continue;
			const int64_t took = await(family, GONE, r, victim).value - killed;
			latest = took > latest ? took : latest;
		}
		print_message("rank %u killed: all others know after %.2f ms\n", victim, (double)latest / 1e6);
		assert_true(latest < 5000000000);
		family_destroy(family);
	}
}

static void a_stopped_rank_holds_up_nobody_and_misses_nothing(void **state)
{
	struct family *family = family_create();
	const uint32_t count = 2000;  /* 2 MB: more than sockets hold */
	kill(family->children[2].pid, SIGSTOP);
	ask(family, 1, (struct request){ .what = SEND, .count = count });
	assert_int_equal(await(family, MESSAGES, 0, 1).value, count);
	assert_int_equal(await(family, MESSAGES, 3, 1).value, count);
	kill(family->children[2].pid, SIGCONT);
	assert_int_equal(await(family, MESSAGES, 2, 1).value, count);
	family_destroy(family);
}

/* However much waits for it, a rank is lost only by the end of its connection: here, when it is killed afterwards. */
static void who_never_reads_is_no_dead_rank(void **state)
{
	struct family *family = family_create();
	kill(family->children[2].pid, SIGSTOP);
	for (uint32_t i = 0; i < 4; i++) {  /* 12 MB in all; rank 0 has relayed each part before the next */
		ask(family, 1, (struct request){ .what = SEND, .count = 3000 });
		assert_int_equal(await_nth(family, MESSAGES, 3, 1, i).value, 3000);
	}
	for (uint32_t r = 0; r < SIZE; r++)
		assert_int_equal(count_of(family, GONE, r, 2), 0);
	kill(family->children[2].pid, SIGCONT);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(await_nth(family, MESSAGES, 2, 1, i).value, 3000);
	kill(family->children[2].pid, SIGKILL);
	await(family, GONE, 0, 2);
	await(family, GONE, 1, 2);
	await(family, GONE, 3, 2);
	family_destroy(family);
}

/* A rank that is killed while much waits for it is reported as soon as any other. */
static void who_dies_with_a_full_queue_is_told_at_once(void **state)
{
	struct family *family = family_create();
	kill(family->children[2].pid, SIGSTOP);
	ask(family, 1, (struct request){ .what = SEND, .count = 12000 });
	assert_int_equal(await(family, MESSAGES, 3, 1).value, 12000);
	const int64_t killed = collet_clock_ns();
	kill(family->children[2].pid, SIGKILL);
	for (uint32_t r = 0; r < SIZE; r++)
		if (r != 2)
			assert_true(await(family, GONE, r, 2).value - killed < 5000000000);
	family_destroy(family);
}

static void leaving_waits_for_no_stopped_rank(void **state)
{
	struct family *family = family_create();
	kill(family->children[0].pid, SIGSTOP);
	ask(family, 1, (struct request){ .what = SEND, .count = 2000 });
	const int64_t start = collet_clock_ns();
	ask(family, 1, (struct request){ .what = QUIT });
	assert_true(await(family, ENDED, 1, 0).value - start < 5000000000);
	kill(family->children[0].pid, SIGCONT);
	await(family, GONE, 0, 1);  /* its bye did not fit into the socket, so it counts as lost */
	family_destroy(family);
}

static void idle_ranks_use_no_cpu(void **state)
{
	struct family *family = family_create();
	for (uint32_t r = 0; r < SIZE; r++)
		ask(family, r, (struct request){ .what = REST });
	for (uint32_t r = 0; r < SIZE; r++)
		/* of 200 ms; under a sanitizer a poll() alone takes some */
		assert_true(await(family, CPU, r, 0).value < 10000000);
	family_destroy(family);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_rank_is_told_to_all_others),
		cmocka_unit_test(a_stopped_rank_holds_up_nobody_and_misses_nothing),
		cmocka_unit_test(who_never_reads_is_no_dead_rank),
		cmocka_unit_test(who_dies_with_a_full_queue_is_told_at_once),
		cmocka_unit_test(leaving_waits_for_no_stopped_rank),
		cmocka_unit_test(idle_ranks_use_no_cpu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
