/* Tests cooperative copies of shm while both ends run: every byte comes once, and nobody waits for a peer that is
 * gone. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/status.h"
#include "shm_pair.h"

enum {
	UNIT = SHM_COOP_UNIT_BYTES,
	LEAST = SHM_COOP_MIN,
	LONG = 12 * MIB + 5,  /* more than one call of progress() reads */
	ROUNDS = 21,
	BURST = 20            /* messages at a time */
};

/* Exchanges bursts of messages of all sizes, each way in turn, then both ways together. */
static bool converse(struct end *end, bool first)
{
	static const size_t sizes[] = { LEAST, LEAST + 1, 2 * UNIT + 9, 3 * UNIT - 1, 300 * KIB, MIB, 3 * MIB };
	const size_t longest = 3 * MIB;
	unsigned char *data = malloc(2 * BURST * longest);
	struct collet_transfer transfers[2 * BURST];
	bool good = true;
	for (unsigned round = 0; good && round < ROUNDS; round++) {
		const size_t bytes = sizes[round / 3 % (sizeof(sizes) / sizeof(sizes[0]))];
		const unsigned count = bytes > 2 * UNIT ? 2 : BURST;
		const bool both = round % 3 == 2, sends = (round % 3 == 0) == first;
		for (unsigned i = 0; i < count; i++) {
			if (both || sends) {
				transfers[i] = transfer_of(round * BURST + i, data + i * bytes, bytes);
				pattern_fill(data + i * bytes, bytes, round + i);
				shm->post_send(end->conduit, &transfers[i]);
			}
			if (both || !sends) {
				unsigned char *into = data + (count + i) * bytes;
				transfers[count + i] = transfer_of(round * BURST + i, into, bytes);
				memset(into, 0x5a, bytes);
				shm->post_recv(end->conduit, &transfers[count + i]);
			}
		}
		for (unsigned i = 0; good && i < count; i++) {
			if (both || !sends)
				good = end_settle(end, &transfers[count + i]) &&
					transfers[count + i].status == COLLET_OK &&
					pattern_is(transfers[count + i].data, bytes, round + i);
			if (good && (both || sends))
				good = end_settle(end, &transfers[i]) && transfers[i].status == COLLET_OK;
		}
	}
	free(data);
	return good;
}

static void *converse_second(void *argument)
{
	struct pair *pair = argument;
	return converse(&pair->ends[1], false) ? pair : NULL;
}

static void threads_converse(void **state)
{
	struct pair pair;
	pthread_t thread;
	void *good;
	shm_pair_open(&pair, false, NULL);
	assert_int_equal(pthread_create(&thread, NULL, converse_second, &pair), 0);
	assert_true(converse(&pair.ends[0], true));
	assert_int_equal(pthread_join(thread, &good), 0);
	assert_non_null(good);
	pair_close(&pair);
}

/* Opens this process's end of a pair of processes, with CMA for all messages. */
static bool begin_end(struct pair *pair, int which)
{
	pair_begin(pair, which);
	if (pair_await(pair, which) != COLLET_OK)
		return false;
	inside(pair, which)->attach_min = LEAST;
	return inside(pair, which)->is_read_by_peer;
}

/* Forks. The child has the second end. */
static pid_t open_processes(struct pair *pair)
{
	*pair = (struct pair){ 0 };
	pair_connect(pair, "shm", true);
	const pid_t child = fork();
	assert_true(child >= 0);
	const int me = child == 0;
	/* A child that a failed test leaves behind, even stopped, dies with its parent. */
	if (me)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(pair->sockets[!me]);
	pair->sockets[!me] = -1;
	pair->ends[1].card.pid = child ? (uint32_t)child : (uint32_t)getpid();
	return child;
}

static int exit_of(pid_t child)
{
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void processes_converse(void **state)
{
	struct pair pair;
	const pid_t child = open_processes(&pair);
	if (child == 0)
		_exit(!(begin_end(&pair, 1) && converse(&pair.ends[1], false)));
	assert_true(begin_end(&pair, 0));
	assert_true(converse(&pair.ends[0], true));
	assert_int_equal(exit_of(child), 0);
	pair_close(&pair);
}

/* ---- Ends that die or stop with a piece ------------------------------------------------------------------------- */

/* A child that lends a message and, on request, claims a range of it as if it were about to write it; then it waits. */
struct taker {
	struct pair pair;
	pid_t child;
	int told, taken;
	unsigned char *into;
	struct collet_transfer receive;
};

static int take_and_wait(struct pair *pair, int told, int taken)
{
	unsigned char *from = malloc(LONG);
	struct collet_transfer send = transfer_of(1, from, LONG);
	eventfd_t word;
	if (!begin_end(pair, 1))
		return 1;
	pattern_fill(from, LONG, 1);
	shm->post_send(pair->ends[1].conduit, &send);
	if (eventfd_read(told, &word) != 0)
		return 2;
	struct shm_endpoint *sender = inside(pair, 1);
	if (!collet_shm_access_begin(sender, 1))
		return 3;
	atomic_fetch_add(&shm_rtr_slot(sender->in_rtrs, 1)->word[6], 1);
	return eventfd_write(taken, 1) != 0 || eventfd_read(told, &word) != 0 ? 4 : 0;
}

static void begin_taker(struct taker *taker)
{
	taker->told = eventfd(0, EFD_CLOEXEC);
	taker->taken = eventfd(0, EFD_CLOEXEC);
	assert_true(taker->told >= 0 && taker->taken >= 0);
	taker->child = open_processes(&taker->pair);
	if (taker->child == 0)
		_exit(take_and_wait(&taker->pair, taker->told, taker->taken));
	assert_true(begin_end(&taker->pair, 0));
	taker->into = malloc(LONG);
	taker->receive = transfer_of(1, taker->into, LONG);
	shm->post_recv(taker->pair.ends[0].conduit, &taker->receive);
	const struct shm_endpoint *receiver = inside(&taker->pair, 0);
	while (!receiver->incoming.is_coop && receiver->endpoint.status == COLLET_OK)
		shm->progress(taker->pair.ends[0].conduit);
	eventfd_t word;
	assert_int_equal(eventfd_write(taker->told, 1), 0);
	assert_int_equal(eventfd_read(taker->taken, &word), 0);
}

static void end_taker(struct taker *taker)
{
	pair_close(&taker->pair);
	free(taker->into);
	close(taker->told);
	close(taker->taken);
}

static void who_dies_with_a_piece_is_lost(void **state)
{
	/* The receiver finds out by the range that does not come, when all others have been read, or by reading the
	 * next one. */
	for (unsigned awaited = 0; awaited < 2; awaited++) {
		struct taker taker;
		begin_taker(&taker);
		struct end *end = &taker.pair.ends[0];
		const struct shm_endpoint *receiver = inside(&taker.pair, 0);
		while (awaited && receiver->endpoint.status == COLLET_OK &&
			collet_shm_coop_state(receiver) != SHM_COOP_WRITING)
			shm->progress(end->conduit);
		assert_int_equal(taker.receive.status, COLLET_PENDING);
		kill(taker.child, SIGKILL);
		assert_int_equal(exit_of(taker.child), 1000 + SIGKILL);
		assert_true(end_settle_asleep(end, &taker.receive));
		assert_int_equal(taker.receive.status, COLLET_ERR_PEER_LOST);
		assert_non_null(strstr(collet_last_error(), "rank 11 on beta"));
		end_taker(&taker);
	}
}

/* A stopped writer may continue later: the closing end waits a second, and then warns what may still be written. */
static void who_is_stopped_with_a_piece_is_waited_for_and_named(void **state)
{
	struct taker taker;
	begin_taker(&taker);
	struct end *end = &taker.pair.ends[0];
	int status;
	kill(taker.child, SIGSTOP);
	assert_int_equal(waitpid(taker.child, &status, WUNTRACED), taker.child);
	assert_true(WIFSTOPPED(status));
	for (unsigned i = 0; i < 2 * SHM_IDLE_POLLS; i++)
		shm->progress(end->conduit);
	assert_int_equal(taker.receive.status, COLLET_PENDING);
	struct shm_ear ear;
	shm_ear_open(&ear, end);
	const int64_t before = collet_clock_ns();
	shm->close(end->conduit);
	const int64_t took = collet_clock_ns() - before;
	shm_ear_close(&ear);
	assert_int_equal(taker.receive.status, COLLET_CANCELLED);
	assert_in_range(took, SHM_REVOKE_TIMEOUT_NS, 10 * INT64_C(1000000000));
	char bytes[40];
	snprintf(bytes, sizeof(bytes), "%d bytes", LONG);
	if (!strstr(ear.said, "rank 11 on beta") || !strstr(ear.said, bytes))
		fail_msg("said: '%s'", ear.said);
	kill(taker.child, SIGKILL);
	assert_int_equal(exit_of(taker.child), 1000 + SIGKILL);
	end_taker(&taker);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_converse),
		cmocka_unit_test(processes_converse),
		cmocka_unit_test(who_dies_with_a_piece_is_lost),
		cmocka_unit_test(who_is_stopped_with_a_piece_is_waited_for_and_named),
	};
	return cmocka_run_group_tests_name("shm_share_both", tests, NULL, NULL);
}
