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
static bool exchange(struct end *end, bool first)
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
				shm->post_send(end->endpoint, &transfers[i]);
			}
			if (both || !sends) {
				unsigned char *into = data + (count + i) * bytes;
				transfers[count + i] = transfer_of(round * BURST + i, into, bytes);
				memset(into, 0x5a, bytes);
				shm->post_recv(end->endpoint, &transfers[count + i]);
			}
		}
		for (unsigned i = 0; good && i < count; i++) {
			if (both || !sends)
				good = end_complete(end, &transfers[count + i]) &&
					transfers[count + i].status == COLLET_OK &&
					pattern_is(transfers[count + i].data, bytes, round + i);
			if (good && (both || sends))
				good = end_complete(end, &transfers[i]) && transfers[i].status == COLLET_OK;
		}
	}
	free(data);
	return good;
}

static void *converse_second(void *argument)
{
	struct pair *pair = argument;
	return exchange(&pair->ends[1], false) ? pair : NULL;
}

static void threads_exchange(void **state)
{
	struct pair pair;
	pthread_t thread;
	void *good;
	shm_pair_open(&pair, false, NULL);
	assert_int_equal(pthread_create(&thread, NULL, converse_second, &pair), 0);
	assert_true(exchange(&pair.ends[0], true));
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
	pair->ends[1].peer_info.pid = child ? (uint32_t)child : (uint32_t)getpid();
	return child;
}

static int exit_of(pid_t child)
{
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void processes_exchange(void **state)
{
	struct pair pair;
	const pid_t child = open_processes(&pair);
	if (child == 0)
		_exit(!(begin_end(&pair, 1) && exchange(&pair.ends[1], false)));
	assert_true(begin_end(&pair, 0));
	assert_true(exchange(&pair.ends[0], true));
	assert_int_equal(exit_of(child), 0);
	pair_close(&pair);
}

/* ---- Ends that die or stop with a claim --------------------------------------------------------------------- */

/* A child that lends a message and, on request, claims a range of it as if it were about to write it; then it waits. */
struct claimer {
	struct pair pair;
	pid_t child;
	int requested, claimed;
	unsigned char *into;
	struct collet_transfer receive;
};

static int claim_and_wait(struct pair *pair, int requested, int claimed)
{
	unsigned char *from = malloc(LONG);
	struct collet_transfer send = transfer_of(1, from, LONG);
	eventfd_t value;
	if (!begin_end(pair, 1))
		return 1;
	pattern_fill(from, LONG, 1);
	shm->post_send(pair->ends[1].endpoint, &send);
	if (eventfd_read(requested, &value) != 0)
		return 2;
	struct shm_endpoint *sender = inside(pair, 1);
	if (!collet_shm_access_begin(sender, 1))
		return 3;
	atomic_fetch_add(&shm_rtr_slot(sender->in_rtrs, 1)->word[6], 1);
	return eventfd_write(claimed, 1) != 0 || eventfd_read(requested, &value) != 0 ? 4 : 0;
}

static void begin_claimer(struct claimer *claimer)
{
	claimer->requested = eventfd(0, EFD_CLOEXEC);
	claimer->claimed = eventfd(0, EFD_CLOEXEC);
	assert_true(claimer->requested >= 0 && claimer->claimed >= 0);
	claimer->child = open_processes(&claimer->pair);
	if (claimer->child == 0)
		_exit(claim_and_wait(&claimer->pair, claimer->requested, claimer->claimed));
	assert_true(begin_end(&claimer->pair, 0));
	claimer->into = malloc(LONG);
	claimer->receive = transfer_of(1, claimer->into, LONG);
	shm->post_recv(claimer->pair.ends[0].endpoint, &claimer->receive);
	const struct shm_endpoint *receiver = inside(&claimer->pair, 0);
	while (!receiver->incoming.is_coop && receiver->endpoint.status == COLLET_OK)
		shm->progress(claimer->pair.ends[0].endpoint);
	eventfd_t value;
	assert_int_equal(eventfd_write(claimer->requested, 1), 0);
	assert_int_equal(eventfd_read(claimer->claimed, &value), 0);
}

static void end_claimer(struct claimer *claimer)
{
	pair_close(&claimer->pair);
	free(claimer->into);
	close(claimer->requested);
	close(claimer->claimed);
}

static void a_peer_that_dies_with_a_claim_is_lost(void **state)
{
	/* The receiver finds out by the range that does not come, when all others have been read, or by reading the
	 * next one. */
	for (unsigned awaited = 0; awaited < 2; awaited++) {
		struct claimer claimer;
		begin_claimer(&claimer);
		struct end *end = &claimer.pair.ends[0];
		const struct shm_endpoint *receiver = inside(&claimer.pair, 0);
		while (awaited && receiver->endpoint.status == COLLET_OK &&
			collet_shm_coop_state(receiver) != SHM_COOP_WRITING)
			shm->progress(end->endpoint);
		assert_int_equal(claimer.receive.status, COLLET_PENDING);
		kill(claimer.child, SIGKILL);
		assert_int_equal(exit_of(claimer.child), 1000 + SIGKILL);
		assert_true(end_complete_asleep(end, &claimer.receive));
		assert_int_equal(claimer.receive.status, COLLET_ERR_PEER_LOST);
		assert_non_null(strstr(collet_last_error(), "rank 11 on beta"));
		end_claimer(&claimer);
	}
}

/* A stopped writer may continue later: the closing end waits a second, and then warns what may still be written. */
static void a_peer_that_stops_with_a_claim_is_awaited_and_named(void **state)
{
	struct claimer claimer;
	begin_claimer(&claimer);
	struct end *end = &claimer.pair.ends[0];
	int status;
	kill(claimer.child, SIGSTOP);
	assert_int_equal(waitpid(claimer.child, &status, WUNTRACED), claimer.child);
	assert_true(WIFSTOPPED(status));
	for (unsigned i = 0; i < 2 * SHM_IDLE_POLLS; i++)
		shm->progress(end->endpoint);
	assert_int_equal(claimer.receive.status, COLLET_PENDING);
	struct shm_log_capture capture;
	shm_log_capture_begin(&capture, end);
	const int64_t before = collet_clock_ns();
	shm->close(end->endpoint);
	const int64_t took = collet_clock_ns() - before;
	shm_log_capture_end(&capture);
	assert_int_equal(claimer.receive.status, COLLET_CANCELLED);
	assert_in_range(took, SHM_REVOKE_TIMEOUT_NS, 10 * INT64_C(1000000000));
	char bytes[40];
	snprintf(bytes, sizeof(bytes), "%d bytes", LONG);
	if (!strstr(capture.text, "rank 11 on beta") || !strstr(capture.text, bytes))
		fail_msg("said: '%s'", capture.text);
	kill(claimer.child, SIGKILL);
	assert_int_equal(exit_of(claimer.child), 1000 + SIGKILL);
	end_claimer(&claimer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_exchange),
		cmocka_unit_test(processes_exchange),
		cmocka_unit_test(a_peer_that_dies_with_a_claim_is_lost),
		cmocka_unit_test(a_peer_that_stops_with_a_claim_is_awaited_and_named),
	};
	return cmocka_run_group_tests_name("shm_coop_both", tests, NULL, NULL);
}
