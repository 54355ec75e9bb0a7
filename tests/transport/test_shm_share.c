/* Tests cooperative copies of shm step by step. Whatever either end does, every byte comes once, and nothing is written
 * that is no longer wanted. test_shm_coop_both.c runs both ends at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm_pair.h"

enum {
	UNIT = SHM_COOP_UNIT_BYTES,
	LEAST = SHM_COOP_MIN,
	LONG = 12 * MIB + 5,  /* more than one call of progress() reads */
	MOST = 20             /* messages at a time */
};

/* Borrowed messages from end 0 to end 1. */
struct passage {
	struct pair pair;
	unsigned count;
	unsigned char *from[MOST], *into[MOST];
	struct collet_transfer send[MOST], receive[MOST];
};

/* Lends one more message. askew: the buffers start inside a word, at different offsets in a page. flags:
 * COLLET_TRANSFER_*. */
static void lend_so(struct passage *passage, size_t bytes, bool askew, uint32_t flags)
{
	const unsigned i = passage->count++;
	unsigned char *from = passage->from[i] = malloc(bytes + 64), *into = passage->into[i] = malloc(bytes + 64);
	memset(into, 0x5a, bytes + 64);
	from += askew ? 3 : 0;
	into += askew ? 13 : 0;
	pattern_fill(from, bytes, i);
	passage->send[i] = transfer_of(i, from, bytes);
	passage->send[i].flags = flags;
	passage->receive[i] = transfer_of(i, into, bytes);
	shm->post_send(passage->pair.ends[0].conduit, &passage->send[i]);
	assert_int_equal(passage->send[i].status, COLLET_PENDING);
}

static void lend(struct passage *passage, size_t bytes)
{
	lend_so(passage, bytes, false, 0);
}

static void ask(struct passage *passage)
{
	for (unsigned i = 0; i < passage->count; i++)
		shm->post_recv(passage->pair.ends[1].conduit, &passage->receive[i]);
}

static void begin(struct passage *passage, bool processes)
{
	*passage = (struct passage){ 0 };
	shm_pair_open(&passage->pair, processes, NULL);
	inside(&passage->pair, 0)->attach_min = LEAST;
}

static void check_arrival(struct passage *passage)
{
	for (unsigned i = 0; i < passage->count; i++) {
		const size_t bytes = passage->receive[i].message.bytes;
		assert_true(pair_settle(&passage->pair, &passage->receive[i]));
		assert_int_equal(passage->receive[i].status, COLLET_OK);
		assert_true(pattern_is(passage->receive[i].data, bytes, i));
		assert_int_equal(((unsigned char *)passage->receive[i].data)[bytes], 0x5a);
		assert_true(pair_settle(&passage->pair, &passage->send[i]));
		assert_int_equal(passage->send[i].status, COLLET_OK);
	}
}

static void end(struct passage *passage)
{
	pair_close(&passage->pair);
	for (unsigned i = 0; i < passage->count; i++) {
		free(passage->from[i]);
		free(passage->into[i]);
	}
}

/* Returns the units that the sender reports as written of the message of this number (from 1). */
static uint64_t written(struct passage *passage, uint64_t number)
{
	const struct shm_cell *line = shm_rtr_slot(inside(&passage->pair, 0)->in_rtrs, number);
	return line->word[0] == number ? shm_coop_units(line->word[7], number) : 0;
}

static void whoever_looks_moves_a_part(void **state)
{
	static const struct {
		const char *what;
		bool processes, looks, crowded, askew, exchange;
		unsigned count;
		size_t bytes;
		/* Whether the sender, which makes progress first, has written some of the first and of the second
		 * message. */
		bool written[2];
	} rows[] = {
		{ "one", true, .looks = true, .count = 1, .bytes = LONG, .written = { true } },
		{ "one, threads", false, .looks = true, .count = 1, .bytes = LONG, .written = { true } },
		{ "one, askew", true, .looks = true, .askew = true, .count = 1, .bytes = LONG, .written = { true } },
		{ "the shortest alone", true, .looks = true, .count = 1, .bytes = 3 * UNIT + 1, .written = { true } },
		{ "a byte less than four units", true, .looks = true, .askew = true, .count = 1, .bytes = 4 * UNIT - 1,
			.written = { true } },
		{ "short and alone", true, .looks = true, .count = 1, .bytes = 3 * UNIT },
		{ "short and alone, threads", false, .looks = true, .count = 1, .bytes = LEAST },
		{ "of two short ones the second", true, .looks = true, .count = 2, .bytes = LEAST,
			.written = { false, true } },
		{ "of two short ones the second, askew", true, .looks = true, .askew = true, .count = 2,
			.bytes = 2 * UNIT - 1, .written = { false, true } },
		{ "too short", true, .looks = true, .count = 2, .bytes = LEAST - 1 },
		{ "the second, then the first", true, .looks = true, .count = 2, .bytes = 4 * UNIT + 7,
			.written = { true, true } },
		{ "more than are told", true, .looks = true, .count = MOST, .bytes = LEAST + 1,
			.written = { false, true } },
		{ "the sender never looks", true, .count = 1, .bytes = LONG },
		{ "the sender never looks, threads", false, .count = 2, .bytes = LONG },
		{ "ranks outnumber cores", true, .looks = true, .crowded = true, .count = 2, .bytes = LONG },
		{ "an exchange", true, .looks = true, .exchange = true, .count = 2, .bytes = LONG },
		{ "an exchange, threads", false, .looks = true, .exchange = true, .count = 1, .bytes = LONG },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct passage passage;
		begin(&passage, rows[row].processes);
		struct end *ends = passage.pair.ends;
		for (int i = 0; i < 2; i++)
			ends[i].wake.shared_cpu = rows[row].crowded;
		inside(&passage.pair, 0)->attach_min = LEAST - 1;
		for (unsigned i = 0; i < rows[row].count; i++)
			lend_so(&passage, rows[row].bytes, rows[row].askew,
				rows[row].exchange ? COLLET_TRANSFER_EXCHANGE : 0);
		ask(&passage);
		if (rows[row].looks)
			shm->progress(ends[0].conduit);
		for (unsigned i = 0; i < 2; i++)
			if (rows[row].count > i && (written(&passage, i + 1) != 0) != rows[row].written[i])
				fail_msg("%s: of message %u the sender has written %llu units", rows[row].what, i,
					(unsigned long long)written(&passage, i + 1));
		for (unsigned i = 0; !rows[row].looks && i < rows[row].count; i++)
			assert_true(end_settle(&ends[1], &passage.receive[i]));
		check_arrival(&passage);
		end(&passage);
	}
}

/* If both ends lend each other a message, each reads before it writes. */
static void who_has_something_to_read_does_that_first(void **state)
{
	struct passage passage;
	begin(&passage, true);
	struct collet_endpoint *sender = passage.pair.ends[0].conduit, *receiver = passage.pair.ends[1].conduit;
	unsigned char *back = malloc(LEAST), *own = malloc(LEAST);
	struct collet_transfer back_send = transfer_of(1, back, LEAST), back_receive = transfer_of(1, own, LEAST);
	inside(&passage.pair, 1)->attach_min = LEAST;
	pattern_fill(back, LEAST, 9);
	lend(&passage, LONG);
	ask(&passage);
	shm->post_send(receiver, &back_send);
	assert_true(collet_shm_can_coop_write(inside(&passage.pair, 0)));
	shm->post_recv(sender, &back_receive);
	assert_false(collet_shm_can_coop_write(inside(&passage.pair, 0)));
	shm->progress(sender);
	assert_int_equal(back_receive.status, COLLET_OK);
	assert_true(pattern_is(own, LEAST, 9));
	check_arrival(&passage);
	assert_true(pair_settle(&passage.pair, &back_send));
	end(&passage);
	free(back);
	free(own);
}

/* The receiver waits for what the sender has claimed, asleep if it takes long. It is not complete before the sender
 * reports it. */
static void what_is_taken_is_waited_for(void **state)
{
	struct passage passage;
	begin(&passage, true);
	struct collet_endpoint *receiver = passage.pair.ends[1].conduit;
	struct shm_endpoint *sender = inside(&passage.pair, 0);
	lend(&passage, LONG);
	ask(&passage);
	shm->progress(receiver);
	struct shm_cell *line = shm_rtr_slot(sender->in_rtrs, 1);
	const uint64_t at = shm_coop_units(atomic_fetch_add(&line->word[6], 1), 1) * UNIT;
	for (unsigned i = 0; i < 2 * SHM_IDLE_POLLS; i++)
		shm->progress(receiver);
	assert_int_equal(passage.receive[0].status, COLLET_PENDING);
	assert_int_equal(receiver->status, COLLET_OK);
	assert_true(shm->arm(receiver));
	memcpy(passage.into[0] + at, passage.from[0] + at, UNIT);
	shm_publish(sender, &line->word[7], shm_coop_word(1, 1));
	assert_int_equal(atomic_load(&inside(&passage.pair, 1)->mine->sleeping), 0);
	assert_false(shm->arm(receiver));
	assert_int_equal(shm->progress(receiver), 1);
	check_arrival(&passage);
	end(&passage);
}

static void who_may_not_write_says_so_once(void **state)
{
	static const struct {
		bool fault;       /* the receiver's memory faults; else another process seems to have its place */
		const char *why;
	} rows[] = { { false, "it is another process now" }, { true, "Bad address" } };
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++)
		for (unsigned count = 1; count <= 3; count++) {
			struct passage passage;
			struct shm_ear ear;
			begin(&passage, true);
			struct shm_endpoint *sender = inside(&passage.pair, 0);
			sender->peer_nonce += !rows[row].fault;
			for (unsigned i = 0; i < count; i++)
				lend(&passage, LONG);
			ask(&passage);
			for (unsigned i = 0; rows[row].fault && i < count; i++)
				atomic_store(&shm_rtr_slot(sender->in_rtrs, i + 1)->word[4], 4096);
			shm_ear_open(&ear, &passage.pair.ends[0]);
			shm->progress(passage.pair.ends[0].conduit);
			assert_true(sender->is_write_denied);
			assert_false(collet_shm_can_coop_write(sender));
			check_arrival(&passage);
			/* The sender does not offer cooperation again. */
			lend(&passage, LONG);
			assert_true(
				sender->tokens_borrowed != 0 && (sender->tokens_coop & sender->tokens_borrowed) == 0);
			shm->post_recv(passage.pair.ends[1].conduit, &passage.receive[count]);
			check_arrival(&passage);
			shm_ear_close(&ear);
			const char *peer = strstr(ear.said, "rank 11 on beta"), *why = strstr(ear.said, rows[row].why);
			if (!peer || !why || strstr(why, "shm:"))
				fail_msg("said: '%s'", ear.said);
			end(&passage);
		}
}

/* The RTR of a receive of another message is not used for this one. */
static void only_what_is_expected_is_written(void **state)
{
	struct passage passage;
	begin(&passage, true);
	lend(&passage, LONG);
	passage.receive[0].message.sequence++;
	ask(&passage);
	assert_false(collet_shm_can_coop_write(inside(&passage.pair, 0)));
	shm->progress(passage.pair.ends[0].conduit);
	assert_true(end_settle(&passage.pair.ends[1], &passage.receive[0]));
	assert_int_equal(passage.receive[0].status, COLLET_ERR_MISMATCH);
	assert_int_equal(passage.into[0][0], 0x5a);
	assert_true(pair_settle(&passage.pair, &passage.send[0]));
	end(&passage);
}

static void who_has_closed_is_not_written_to(void **state)
{
	for (unsigned processes = 0; processes < 2; processes++) {
		struct passage passage;
		begin(&passage, processes);
		lend(&passage, LONG);
		ask(&passage);
		assert_true(collet_shm_can_coop_write(inside(&passage.pair, 0)));
		shm->close(passage.pair.ends[1].conduit);
		assert_int_equal(passage.receive[0].status, COLLET_CANCELLED);
		assert_true(end_settle(&passage.pair.ends[0], &passage.send[0]));
		assert_int_equal(passage.send[0].status, COLLET_ERR_PEER_LOST);
		assert_true(passage.into[0][0] == 0x5a && passage.into[0][LONG - 1] == 0x5a);
		end(&passage);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whoever_looks_moves_a_part),
		cmocka_unit_test(who_has_something_to_read_does_that_first),
		cmocka_unit_test(what_is_taken_is_waited_for),
		cmocka_unit_test(who_may_not_write_says_so_once),
		cmocka_unit_test(only_what_is_expected_is_written),
		cmocka_unit_test(who_has_closed_is_not_written_to),
	};
	return cmocka_run_group_tests_name("shm_share", tests, NULL, NULL);
}
