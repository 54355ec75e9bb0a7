/* Tests shm alone, with peers that misbehave: they die or stop during a transfer, or fork.
 * test_shm_hostile.c tests peers that write nonsense. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/status.h"
#include "shm_pair.h"

/* ---- Processes ---------------------------------------------------------------------------------------------- */

/* Shared by parent and child, to communicate outside the endpoint. */
struct shared {
	_Atomic uint32_t steps;
	int signal;                  /* an eventfd: the child has started, or may leave */
};

enum { OVER = UINT32_MAX };  /* value of steps: the child makes no more */

static struct shared *create_shared(void)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	shared->signal = eventfd(0, EFD_CLOEXEC);
	assert_true(shared->signal >= 0);
	return shared;
}

static void free_shared(struct shared *shared)
{
	close(shared->signal);
	munmap(shared, sizeof(*shared));
}

static bool await_signal(const struct shared *shared)
{
	struct pollfd event = { .fd = shared->signal, .events = POLLIN };
	return poll(&event, 1, 20000) == 1;
}

/* Forks. The child runs body and exits with its result. The parent's end is open when this returns. arena: of end 0, or
 * NULL. */
static pid_t open_processes_with(struct collet_arena *arena, struct pair *pair,
	int (*body)(struct pair *pair, struct shared *shared), struct shared *shared)
{
	*pair = (struct pair){ 0 };
	pair_connect(pair, "shm", true);
	pair->ends[0].arena = arena;
	const pid_t child = fork();
	assert_true(child >= 0);
	const int me = child == 0;
	close(pair->sockets[!me]);
	pair->sockets[!me] = -1;
	pair->ends[1].peer_info.pid = child ? (uint32_t)child : (uint32_t)getpid();
	if (me) {
		/* A child that a failed test leaves behind, even stopped, dies with its parent. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		static struct collet_arena own;
		if (arena && collet_arena_init(&own, 0) == COLLET_OK)
			pair->ends[1].arena = &own;
		_exit(body(pair, shared));
	}
	pair_begin(pair, 0);
	assert_int_equal(pair_await(pair, 0), COLLET_OK);
	return child;
}

static pid_t open_processes(
	struct pair *pair, int (*body)(struct pair *pair, struct shared *shared), struct shared *shared)
{
	return open_processes_with(NULL, pair, body, shared);
}

static int exit_of(pid_t child)
{
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int begin_child(struct pair *pair)
{
	pair_begin(pair, 1);
	return pair_await(pair, 1) == COLLET_OK ? 0 : 1;
}

enum { HUGE = 48 * MIB };

/* Sends a small message, then a huge one, and never exits by itself. */
static int send_and_stay(struct pair *pair, struct shared *shared)
{
	unsigned char *out = malloc(HUGE);
	struct collet_transfer small = transfer_of(1, out, 1000), huge = transfer_of(2, out, HUGE);
	if (begin_child(pair))
		return 1;
	pattern_fill(out, HUGE, 5);
	shm->post_send(pair->ends[1].endpoint, &small);
	shm->post_send(pair->ends[1].endpoint, &huge);
	if (eventfd_write(shared->signal, 1) != 0)
		return 2;
	for (;;)
		shm->progress(pair->ends[1].endpoint);
}

static void killed_in_mid_transfer(void **state)
{
	for (unsigned slices = 0; slices < 5; slices += 2) {
		for (unsigned early = 0; early < 2; early++) {
			struct pair pair;
			struct shared *shared = create_shared();
			unsigned char *in = calloc(1, HUGE), small_in[1000];
			const pid_t child = open_processes(&pair, send_and_stay, shared);
			struct end *end = &pair.ends[0];
			assert_true(await_signal(shared));
			struct collet_transfer small = transfer_of(1, small_in, 1000), huge = transfer_of(2, in, HUGE);
			if (!early) {
				shm->post_recv(end->endpoint, &small);
				shm->post_recv(end->endpoint, &huge);
				for (unsigned i = 0; i < slices; i++)
					shm->progress(end->endpoint);
			}
			kill(child, SIGKILL);
			assert_int_equal(exit_of(child), 1000 + SIGKILL);
			if (early) {
				shm->post_recv(end->endpoint, &small);
				shm->post_recv(end->endpoint, &huge);
			}
			/* A completely published message arrives; a borrowed one is lost with its owner. */
			assert_true(end_complete(end, &small) && small.status == COLLET_OK &&
				    pattern_is(small_in, 1000, 5));
			assert_true(end_complete(end, &huge));
			assert_int_equal(huge.status, COLLET_ERR_PEER_LOST);
			assert_int_equal(end->endpoint->status, COLLET_ERR_PEER_LOST);
			assert_non_null(strstr(collet_last_error(), "rank 11 on beta"));
			free(in);
			pair_close(&pair);
			free_shared(shared);
		}
	}
}

enum { RETURNED = 20000 };

/* Receives a message as a view, overwrites it and sends it back; and then another view that it never sends back. */
static int return_and_stay(struct pair *pair, struct shared *shared)
{
	unsigned char *in = malloc(RETURNED);
	if (begin_child(pair))
		return 1;
	for (unsigned i = 0; i < 2; i++) {
		struct collet_transfer view = transfer_of(i, in, RETURNED);
		view.flags = COLLET_TRANSFER_VIEW;
		shm->post_recv(pair->ends[1].endpoint, &view);
		if (!end_complete(&pair->ends[1], &view) || !(view.flags & COLLET_TRANSFER_RETURNABLE))
			return 2;
		struct collet_transfer back = transfer_of(i, (void *)(uintptr_t)view.view, RETURNED);
		back.flags = COLLET_TRANSFER_RETURN;
		pattern_fill(back.data, RETURNED, 100 + i);
		if (i == 0)
			shm->post_send(pair->ends[1].endpoint, &back);
	}
	if (eventfd_write(shared->signal, 1) != 0)
		return 3;
	for (;;)
		pause();
}

/* What the peer had sent back when it died arrives, and may even be sent back again. What it had not is lost. */
static void killed_with_a_returned_view_in_flight(void **state)
{
	struct pair pair;
	struct shared *shared = create_shared();
	unsigned char out[RETURNED], in[RETURNED];
	const pid_t child = open_processes(&pair, return_and_stay, shared);
	struct end *end = &pair.ends[0];
	for (unsigned i = 0; i < 2; i++) {
		struct collet_transfer send = transfer_of(i, out, RETURNED);
		shm->post_send(end->endpoint, &send);
		assert_true(end_complete(end, &send) && send.status == COLLET_OK);
	}
	assert_true(await_signal(shared));
	kill(child, SIGKILL);
	assert_int_equal(exit_of(child), 1000 + SIGKILL);
	struct collet_transfer view = transfer_of(0, in, RETURNED), next = transfer_of(1, in, RETURNED);
	view.flags = COLLET_TRANSFER_VIEW;
	shm->post_recv(end->endpoint, &view);
	assert_true(end_complete(end, &view) && view.status == COLLET_OK && pattern_is(view.view, RETURNED, 100));
	struct collet_transfer back = transfer_of(2, (void *)(uintptr_t)view.view, RETURNED);
	back.flags = COLLET_TRANSFER_RETURN;
	shm->post_send(end->endpoint, &back);
	assert_int_equal(back.status, COLLET_OK);  /* published, though nobody will read it */
	shm->post_recv(end->endpoint, &next);
	assert_true(end_complete(end, &next));
	assert_int_equal(next.status, COLLET_ERR_PEER_LOST);
	shm->post_send(end->endpoint, &back);
	assert_int_equal(back.status, COLLET_ERR_PEER_LOST);
	pair_close(&pair);
	free_shared(shared);
}

/* Receives a huge message slice by slice, and counts its calls for the parent. Stays until it is told to leave. */
static int receive_counting(struct pair *pair, struct shared *shared)
{
	unsigned char *in = calloc(1, HUGE);
	struct collet_transfer receive = transfer_of(1, in, HUGE);
	if (begin_child(pair))
		return 1;
	shm->post_recv(pair->ends[1].endpoint, &receive);
	while (receive.status == COLLET_PENDING) {
		atomic_fetch_add(&shared->steps, 1);
		shm->progress(pair->ends[1].endpoint);
	}
	atomic_store(&shared->steps, OVER);
	if (!await_signal(shared))
		return 30;
	/* The sender has closed and refilled its buffer: what was read must not be reported as a message. */
	return receive.status == COLLET_ERR_PEER_LOST                   ? 0
	       : receive.status == COLLET_OK && pattern_is(in, HUGE, 1) ? 10
									: 20;
}

/* The sender closes while its reader is stopped during the transfer. */
static void a_late_reader_reports_nothing(void **state)
{
	unsigned char *own = malloc(HUGE);
	unsigned cut_short = 0;
	struct collet_arena arena;
	void *borrowed;
	assert_int_equal(collet_arena_init(&arena, 0), COLLET_OK);
	assert_int_equal(collet_arena_alloc(&arena, &borrowed, HUGE), COLLET_OK);
	for (unsigned through_units = 0; through_units < 2; through_units++) {
		unsigned char *out = through_units ? own : borrowed;
		for (uint32_t steps = 1; steps < 30; steps += 9) {
			struct pair pair;
			struct shared *shared = create_shared();
			pattern_fill(out, HUGE, 1);
			const pid_t child = open_processes_with(&arena, &pair, receive_counting, shared);
			struct collet_transfer send = transfer_of(1, out, HUGE);
			shm->post_send(pair.ends[0].endpoint, &send);
			const int64_t deadline = collet_deadline_after(INT64_C(20000000000));
			while (atomic_load(&shared->steps) < steps && !collet_deadline_passed(deadline))
				shm->progress(pair.ends[0].endpoint);
			kill(child, SIGSTOP);
			int status;
			assert_int_equal(waitpid(child, &status, WUNTRACED), child);
			assert_true(WIFSTOPPED(status));
			const bool over = send.status != COLLET_PENDING;
			shm->close(pair.ends[0].endpoint);
			assert_int_equal(send.status, over ? COLLET_OK : COLLET_CANCELLED);
			memset(out, 0xff, HUGE);
			kill(child, SIGCONT);
			assert_int_equal(eventfd_write(shared->signal, 1), 0);
			/* The reader may have read everything before it was stopped, before the sender noticed. Then it
			 * reports the correct message. */
			const int verdict = exit_of(child);
			assert_true(verdict == 10 || (verdict == 0 && !over));
			cut_short += verdict == 0;
			pair_close(&pair);
			free_shared(shared);
		}
	}
	assert_true(cut_short > 0);
	collet_arena_deinit(&arena);
	free(own);
}

/* Sends, is stopped during the transfer, and continues later. */
static int send_counting(struct pair *pair, struct shared *shared)
{
	unsigned char *out = malloc(HUGE);
	struct collet_transfer send = transfer_of(1, out, HUGE);
	if (begin_child(pair))
		return 1;
	pattern_fill(out, HUGE, 1);
	shm->post_send(pair->ends[1].endpoint, &send);
	while (send.status == COLLET_PENDING) {
		atomic_fetch_add(&shared->steps, 1);
		shm->progress(pair->ends[1].endpoint);
	}
	return send.status == COLLET_ERR_PEER_LOST ? 0 : 20;
}

static void a_late_sender_touches_nothing(void **state)
{
	struct pair pair;
	struct shared *shared = create_shared();
	unsigned char *in = calloc(1, HUGE), *refilled = malloc(HUGE);
	const pid_t child = open_processes(&pair, send_counting, shared);
	struct collet_transfer receive = transfer_of(1, in, HUGE);
	shm->post_recv(pair.ends[0].endpoint, &receive);
	const int64_t deadline = collet_deadline_after(INT64_C(20000000000));
	while (inside(&pair, 0)->incoming.done_bytes < HUGE / 8 && !collet_deadline_passed(deadline))
		shm->progress(pair.ends[0].endpoint);
	kill(child, SIGSTOP);
	int status;
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	shm->close(pair.ends[0].endpoint);
	assert_int_equal(receive.status, COLLET_CANCELLED);
	memset(in, 0x77, HUGE);
	memset(refilled, 0x77, HUGE);
	kill(child, SIGCONT);
	assert_int_equal(exit_of(child), 0);
	assert_memory_equal(in, refilled, HUGE);
	free(in);
	free(refilled);
	pair_close(&pair);
	free_shared(shared);
}

/* A child of one end's process has a copy of its endpoint. Closing the copy must not close the endpoint. */
static void a_forked_copy_is_only_a_copy(void **state)
{
	struct pair pair;
	struct collet_arena arenas[2];
	shm_pair_open(&pair, true, arenas);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		shm->close(pair.ends[0].endpoint);
		shm->close(pair.ends[1].endpoint);
		_exit(0);
	}
	assert_int_equal(exit_of(child), 0);
	unsigned char out[100], in[100];
	struct collet_transfer send = transfer_of(1, out, 100), receive = transfer_of(1, in, 100);
	pattern_fill(out, 100, 3);
	shm->post_send(pair.ends[0].endpoint, &send);
	shm->post_recv(pair.ends[1].endpoint, &receive);
	assert_true(pair_complete(&pair, &receive) && receive.status == COLLET_OK && pattern_is(in, 100, 3));
	for (int i = 0; i < 2; i++) {
		struct collet_transfer next = transfer_of(9, in, 100);
		shm->post_recv(pair.ends[i].endpoint, &next);
		if (shm->arm(pair.ends[i].endpoint))
			shm->disarm(pair.ends[i].endpoint);
		assert_int_equal(next.status, COLLET_PENDING);  /* the peer has not closed */
		shm->close(pair.ends[i].endpoint);
	}
	pair_close(&pair);
	collet_arena_deinit(&arenas[0]);
	collet_arena_deinit(&arenas[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_in_mid_transfer),
		cmocka_unit_test(killed_with_a_returned_view_in_flight),
		cmocka_unit_test(a_late_reader_reports_nothing),
		cmocka_unit_test(a_late_sender_touches_nothing),
		cmocka_unit_test(a_forked_copy_is_only_a_copy),
	};
	return cmocka_run_group_tests_name("shm faults", tests, NULL, NULL);
}
