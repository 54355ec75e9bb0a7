/* Tests shm alone, with peers that misbehave: they cannot be read, die or stop during a transfer, fork, corrupt shared
 * memory, or are another process. */
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
#include <sys/random.h>
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

/* Forks. The child runs body and exits with its result. The parent's end is open when this returns. */
/* Does the same with an arena for end 0; NULL: none. */
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

enum { EXCHANGED = 3 * MIB + 5 };

/* Sends and receives a large message; both ends do the same. */
static bool exchange(struct end *end, uint64_t mine, uint64_t theirs)
{
	unsigned char *out = malloc(EXCHANGED), *in = calloc(1, EXCHANGED);
	struct collet_transfer send = transfer_of(1, out, EXCHANGED), receive = transfer_of(1, in, EXCHANGED);
	pattern_fill(out, EXCHANGED, mine);
	shm->post_send(end->endpoint, &send);
	shm->post_recv(end->endpoint, &receive);
	const bool good = end_complete(end, &receive) && end_complete(end, &send) && receive.status == COLLET_OK &&
		send.status == COLLET_OK && pattern_is(in, EXCHANGED, theirs);
	free(out);
	free(in);
	return good;
}

static int exchange_openly(struct pair *pair, struct shared *shared)
{
	if (begin_child(pair) || !inside(pair, 1)->is_read_by_peer)
		return 1;
	inside(pair, 1)->attach_min = MIB;
	return !exchange(&pair->ends[1], 1, 0);
}

static int exchange_as_nobody(struct pair *pair, struct shared *shared)
{
	/* From here on this process may not read the memory of its parent, which is root's. */
	if (setgid(65534) != 0 || setuid(65534) != 0)
		return 2;
	if (begin_child(pair) || inside(pair, 1)->peer_pid)
		return 1;
	inside(pair, 1)->attach_min = MIB;
	return !exchange(&pair->ends[1], 1, 0);
}

/* Each end learns from the other whether it can be read. If not, messages go through the units, even if CMA is
 * requested. */
static void reading_the_peer_is_probed(void **state)
{
	struct pair pair;
	pid_t child = open_processes(&pair, exchange_openly, NULL);
	if (!inside(&pair, 0)->is_read_by_peer) {
		exit_of(child);
		pair_close(&pair);
		skip();  /* cross-memory attach is not allowed here */
	}
	inside(&pair, 0)->attach_min = MIB;
	assert_true(exchange(&pair.ends[0], 0, 1));
	assert_true(inside(&pair, 0)->tokens_used != 0 && inside(&pair, 0)->out_bulk_used == 0);
	assert_int_equal(exit_of(child), 0);
	pair_close(&pair);
	if (getuid() != 0)
		skip();  /* only root can change its user id */
	child = open_processes(&pair, exchange_as_nobody, NULL);
	assert_false(inside(&pair, 0)->is_read_by_peer);
	inside(&pair, 0)->attach_min = MIB;
	assert_true(exchange(&pair.ends[0], 0, 1));
	assert_true(inside(&pair, 0)->tokens_used == 0);
	assert_int_equal(exit_of(child), 0);
	pair_close(&pair);
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

/* ---- Hostile peers ------------------------------------------------------------------------------------------ */

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Returns a number that is likely to cause damage somewhere. */
static uint64_t nasty(uint64_t *random, const struct shm_endpoint *victim)
{
	static const uint64_t values[] = {0, 1, 39, 40, 41, 51, 52, 63, 64, 96, 208, 209, 511, 8192, 8193, 1 << 20,
		UINT32_MAX, UINT64_MAX, (uint64_t)1 << 63, ARENA_BYTES - 1, ARENA_BYTES, 0x1000, 0x7fffffffffffULL};
	const uint64_t pick = next_random(random);
	const uint64_t value = values[pick / 8 % (sizeof(values) / sizeof(values[0]))];
	switch (pick % 8) {
	case 0: return next_random(random);
	case 1: return value | value << 32;
	case 2: return value << 32;
	case 3: return (uint32_t)(victim->in_next + 1) | (uint64_t)(next_random(random) % 9) << 32 | value << 40;
	default: return value;
	}
}

/* Writes random data where the peer may write; sometimes a whole invalid message at the next cell of the victim. */
static void scribble(struct shm_endpoint *attacker, const struct shm_endpoint *victim, uint64_t bytes, uint64_t *random)
{
	struct shm_cell *cell = shm_cell_at(attacker->out_cells, victim->in_next);
	for (unsigned word = 3; word < SHM_CELL_WORDS; word++)
		atomic_store(&cell->word[word], nasty(random, victim));
	atomic_store(&cell->word[1], 7);
	atomic_store(&cell->word[2], next_random(random) % 3);
	if (next_random(random) % 2)
		atomic_store(&cell->word[3], bytes);
	if (next_random(random) % 4 == 0)
		atomic_store(&attacker->mine->tokens_done, nasty(random, victim));
	if (next_random(random) % 4 == 0)
		atomic_store(&attacker->mine->units_freed, nasty(random, victim));
	if (next_random(random) % 4 == 0)
		atomic_store(&attacker->mine->bulk_freed, nasty(random, victim));
	if (next_random(random) % 4 == 0)
		atomic_store(&attacker->mine->cells_consumed, nasty(random, victim));
	if (next_random(random) % 16 == 0)
		atomic_store(&attacker->mine->sleeping, (uint32_t)nasty(random, victim));
	for (unsigned i = 1; i < 4 && next_random(random) % 4; i++) {
		struct shm_cell *rest = shm_cell_at(attacker->out_cells, victim->in_next + i);
		atomic_store(&rest->word[0], (uint32_t)(victim->in_next + i + 1) | (uint64_t)SHM_NEXT_CELL << 32);
	}
	for (unsigned i = 0; i < SHM_RTR_SLOTS && next_random(random) % 4 == 0; i++)
		for (unsigned word = 6; word < SHM_CELL_WORDS; word++)
			atomic_store(&attacker->in_rtrs[i].word[word], nasty(random, victim));
	const uint64_t kind = next_random(random) % 9;
	const uint64_t inline_bytes = kind == SHM_INLINE ? nasty(random, victim) & 0xff : 0;
	atomic_store(&cell->word[0], (uint32_t)(victim->in_next + 1) | kind << 32 | inline_bytes << 40);
}

static void corrupt_memory_is_survived(void **state)
{
	enum { GAMES = 400, MOVES = 30, LARGEST = 1 << 16 };
	static const size_t sizes[] = { 0, 8, 40, 41, 208, 209, 512, 4000, 8192, 8193, LARGEST };
	uint64_t seed;
	assert_int_equal(getrandom(&seed, sizeof(seed), 0), sizeof(seed));
	const char *given = getenv("COLLET_TEST_SEED");
	seed = given ? strtoull(given, NULL, 0) : seed;
	uint64_t random = seed ? seed : 1;  /* 0 would only give zeros */
	unsigned char *in = malloc(LARGEST), *out = calloc(1, LARGEST);
	printf("COLLET_TEST_SEED=%#llx\n", (unsigned long long)seed);
	fflush(stdout);
	for (unsigned game = 0; game < GAMES; game++) {
		struct pair pair;
		shm_pair_open(&pair, true, NULL);
		struct shm_endpoint *attacker = inside(&pair, 0), *victim = inside(&pair, 1);
		for (unsigned i = 0; i < MOVES && victim->endpoint.status == COLLET_OK; i++) {
			const size_t bytes = sizes[next_random(&random) % (sizeof(sizes) / sizeof(sizes[0]))];
			struct collet_transfer receive = transfer_of(next_random(&random) % 3, in, bytes);
			struct collet_transfer send = transfer_of(i, out, bytes);
			struct collet_message message;
			receive.flags = next_random(&random) % 2 ? COLLET_TRANSFER_VIEW : 0;
			scribble(attacker, victim, bytes, &random);
			(void)shm->peek(&victim->endpoint, &message);
			shm->post_send(&victim->endpoint, &send);
			shm->post_recv(&victim->endpoint, &receive);
			for (unsigned turns = 0; turns < 4; turns++)
				shm->progress(&victim->endpoint);
			if (shm->arm(&victim->endpoint))
				shm->disarm(&victim->endpoint);
			if (receive.status == COLLET_OK && receive.flags) {
				assert_true(bytes == 0 ||
					    ((const volatile unsigned char *)receive.view)[bytes - 1] <= 0xff);
				shm->release_view(&victim->endpoint, &receive);
			}
			if (receive.status == COLLET_PENDING || send.status == COLLET_PENDING) {
				/* Their buffers do not outlive this round. */
				shm->close(&victim->endpoint);
				break;
			}
		}
		const enum collet_status status = victim->endpoint.status;
		assert_true(status == COLLET_OK || status == COLLET_CANCELLED || status == COLLET_ERR_TRANSPORT ||
			status == COLLET_ERR_PEER_LOST);
		pair_close(&pair);
	}
	free(in);
	free(out);
}

/* Bytes on the socket are not trusted either. */
static void invalid_bytes_on_the_socket_are_refused(void **state)
{
	struct shm_hello hello = { 0 };
	for (unsigned dialed = 0; dialed < 2; dialed++) {
		for (size_t bytes = 1; bytes <= sizeof(hello); bytes += bytes == 1 ? sizeof(hello) - 2 : 1) {
			struct pair pair = { 0 };
			pair_connect(&pair, "shm", false);
			const int which = !dialed;
			pair_begin(&pair, which);
			assert_int_equal(send(pair.sockets[!which], &hello, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
			close(pair.sockets[!which]);
			pair.sockets[!which] = -1;
			const collet_status status = pair_await(&pair, which);
			assert_true(status != COLLET_OK && status != COLLET_ERR_TIMEOUT);
			pair_close(&pair);
		}
	}
}

static void another_users_socket_is_refused(void **state)
{
	struct pair pair = { 0 };
	pair_connect(&pair, "shm", false);
	pair.ends[1].peer_info.uid = getuid() + 1;
	const struct collet_endpoint_config config = { .self = &pair.ends[0].peer_info,
		.peer = &pair.ends[1].peer_info,
		.dialed = true,
		.socket = pair.sockets[0],
		.wake = &pair.ends[0].wake,
		.log = &pair.ends[0].log };
	struct shm_endpoint *endpoint = aligned_alloc(64, (sizeof(*endpoint) + 63) / 64 * 64);
	memset(endpoint, 0, sizeof(*endpoint));
	pair.sockets[0] = -1;
	assert_int_equal(shm->open(&endpoint->endpoint, &config), COLLET_ERR_AUTH);
	shm->close(&endpoint->endpoint);
	free(endpoint);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reading_the_peer_is_probed),
		cmocka_unit_test(killed_in_mid_transfer),
		cmocka_unit_test(a_late_reader_reports_nothing),
		cmocka_unit_test(a_late_sender_touches_nothing),
		cmocka_unit_test(a_forked_copy_is_only_a_copy),
		cmocka_unit_test(corrupt_memory_is_survived),
		cmocka_unit_test(invalid_bytes_on_the_socket_are_refused),
		cmocka_unit_test(another_users_socket_is_refused),
	};
	return cmocka_run_group_tests_name("shm faults", tests, NULL, NULL);
}
