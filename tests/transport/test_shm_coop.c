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
struct batch {
	struct pair pair;
	unsigned count;
	unsigned char *from[MOST], *into[MOST];
	struct collet_transfer send[MOST], receive[MOST];
};

/* Lends one more message. unaligned: the buffers start inside a word, at different offsets in a page. flags:
 * COLLET_TRANSFER_*. */
static void post_borrowed_with(struct batch *batch, size_t bytes, bool unaligned, uint32_t flags)
{
	const unsigned i = batch->count++;
	unsigned char *from = batch->from[i] = malloc(bytes + 64), *into = batch->into[i] = malloc(bytes + 64);
	memset(into, 0x5a, bytes + 64);
	from += unaligned ? 3 : 0;
	into += unaligned ? 13 : 0;
	pattern_fill(from, bytes, i);
	batch->send[i] = transfer_of(i, from, bytes);
	batch->send[i].flags = flags;
	batch->receive[i] = transfer_of(i, into, bytes);
	shm->post_send(batch->pair.ends[0].endpoint, &batch->send[i]);
	assert_int_equal(batch->send[i].status, COLLET_PENDING);
}

static void post_borrowed(struct batch *batch, size_t bytes)
{
	post_borrowed_with(batch, bytes, false, 0);
}

static void ask(struct batch *batch)
{
	for (unsigned i = 0; i < batch->count; i++)
		shm->post_recv(batch->pair.ends[1].endpoint, &batch->receive[i]);
}

static void begin(struct batch *batch, bool processes)
{
	*batch = (struct batch){ 0 };
	shm_pair_open(&batch->pair, processes, NULL);
	inside(&batch->pair, 0)->attach_min = LEAST;
}

static void check_arrival(struct batch *batch)
{
	for (unsigned i = 0; i < batch->count; i++) {
		const size_t bytes = batch->receive[i].message.bytes;
		assert_true(pair_complete(&batch->pair, &batch->receive[i]));
		assert_int_equal(batch->receive[i].status, COLLET_OK);
		assert_true(pattern_is(batch->receive[i].data, bytes, i));
		assert_int_equal(((unsigned char *)batch->receive[i].data)[bytes], 0x5a);
		assert_true(pair_complete(&batch->pair, &batch->send[i]));
		assert_int_equal(batch->send[i].status, COLLET_OK);
	}
}

static void end(struct batch *batch)
{
	pair_close(&batch->pair);
	for (unsigned i = 0; i < batch->count; i++) {
		free(batch->from[i]);
		free(batch->into[i]);
	}
}

/* Returns the units that the sender reports as written of the message of this number (from 1). */
static uint64_t written(struct batch *batch, uint64_t number)
{
	const struct shm_cell *slot = shm_rtr_slot(inside(&batch->pair, 0)->in_rtrs, number);
	return slot->word[0] == number ? shm_coop_units(slot->word[7], number) : 0;
}

static void an_active_sender_copies_a_part(void **state)
{
	static const struct {
		const char *what;
		bool processes, active, oversubscribed, unaligned, exchange;
		unsigned count;
		size_t bytes;
		/* Whether the sender, which makes progress first, has written some of the first and of the second
		 * message. */
		bool written[2];
	} rows[] = {
		{ "one", true, .active = true, .count = 1, .bytes = LONG, .written = { true } },
		{ "one, threads", false, .active = true, .count = 1, .bytes = LONG, .written = { true } },
		{ "one, unaligned", true, .active = true, .unaligned = true, .count = 1, .bytes = LONG,
			.written = { true } },
		{ "the shortest alone", true, .active = true, .count = 1, .bytes = 3 * UNIT + 1, .written = { true } },
		{ "a byte less than four units", true, .active = true, .unaligned = true, .count = 1,
			.bytes = 4 * UNIT - 1, .written = { true } },
		{ "short and alone", true, .active = true, .count = 1, .bytes = 3 * UNIT },
		{ "short and alone, threads", false, .active = true, .count = 1, .bytes = LEAST },
		{ "of two short ones the second", true, .active = true, .count = 2, .bytes = LEAST,
			.written = { false, true } },
		{ "of two short ones the second, unaligned", true, .active = true, .unaligned = true, .count = 2,
			.bytes = 2 * UNIT - 1, .written = { false, true } },
		{ "too short", true, .active = true, .count = 2, .bytes = LEAST - 1 },
		{ "the second, then the first", true, .active = true, .count = 2, .bytes = 4 * UNIT + 7,
			.written = { true, true } },
		{ "more than the RTR slots", true, .active = true, .count = MOST, .bytes = LEAST + 1,
			.written = { false, true } },
		{ "the sender is inactive", true, .count = 1, .bytes = LONG },
		{ "the sender is inactive, threads", false, .count = 2, .bytes = LONG },
		{ "ranks outnumber cores", true, .active = true, .oversubscribed = true, .count = 2, .bytes = LONG },
		{ "an exchange", true, .active = true, .exchange = true, .count = 2, .bytes = LONG },
		{ "an exchange, threads", false, .active = true, .exchange = true, .count = 1, .bytes = LONG },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct batch batch;
		begin(&batch, rows[row].processes);
		struct end *ends = batch.pair.ends;
		for (int i = 0; i < 2; i++)
			ends[i].wake.shared_cpu = rows[row].oversubscribed;
		inside(&batch.pair, 0)->attach_min = LEAST - 1;
		for (unsigned i = 0; i < rows[row].count; i++)
			post_borrowed_with(&batch, rows[row].bytes, rows[row].unaligned,
				rows[row].exchange ? COLLET_TRANSFER_EXCHANGE : 0);
		ask(&batch);
		if (rows[row].active)
			shm->progress(ends[0].endpoint);
		for (unsigned i = 0; i < 2; i++)
			if (rows[row].count > i && (written(&batch, i + 1) != 0) != rows[row].written[i])
				fail_msg("%s: of message %u the sender has written %llu units", rows[row].what, i,
					(unsigned long long)written(&batch, i + 1));
		for (unsigned i = 0; !rows[row].active && i < rows[row].count; i++)
			assert_true(end_complete(&ends[1], &batch.receive[i]));
		check_arrival(&batch);
		end(&batch);
	}
}

/* If both ends lend each other a message, each reads before it writes. */
static void reading_comes_first(void **state)
{
	struct batch batch;
	begin(&batch, true);
	struct collet_endpoint *sender = batch.pair.ends[0].endpoint, *receiver = batch.pair.ends[1].endpoint;
	unsigned char *back = malloc(LEAST), *own = malloc(LEAST);
	struct collet_transfer back_send = transfer_of(1, back, LEAST), back_receive = transfer_of(1, own, LEAST);
	inside(&batch.pair, 1)->attach_min = LEAST;
	pattern_fill(back, LEAST, 9);
	post_borrowed(&batch, LONG);
	ask(&batch);
	shm->post_send(receiver, &back_send);
	assert_true(collet_shm_can_coop_write(inside(&batch.pair, 0)));
	shm->post_recv(sender, &back_receive);
	assert_false(collet_shm_can_coop_write(inside(&batch.pair, 0)));
	shm->progress(sender);
	assert_int_equal(back_receive.status, COLLET_OK);
	assert_true(pattern_is(own, LEAST, 9));
	check_arrival(&batch);
	assert_true(pair_complete(&batch.pair, &back_send));
	end(&batch);
	free(back);
	free(own);
}

/* The receiver waits for what the sender has claimed, asleep if it takes long. It is not complete before the sender
 * reports it. */
static void claimed_ranges_are_awaited(void **state)
{
	struct batch batch;
	begin(&batch, true);
	struct collet_endpoint *receiver = batch.pair.ends[1].endpoint;
	struct shm_endpoint *sender = inside(&batch.pair, 0);
	post_borrowed(&batch, LONG);
	ask(&batch);
	shm->progress(receiver);
	struct shm_cell *slot = shm_rtr_slot(sender->in_rtrs, 1);
	const uint64_t at = shm_coop_units(atomic_fetch_add(&slot->word[6], 1), 1) * UNIT;
	for (unsigned i = 0; i < 2 * SHM_IDLE_POLLS; i++)
		shm->progress(receiver);
	assert_int_equal(batch.receive[0].status, COLLET_PENDING);
	assert_int_equal(receiver->status, COLLET_OK);
	assert_true(shm->arm(receiver));
	memcpy(batch.into[0] + at, batch.from[0] + at, UNIT);
	shm_publish(sender, &slot->word[7], shm_coop_word(1, 1));
	assert_int_equal(atomic_load(&inside(&batch.pair, 1)->mine->sleeping), 0);
	assert_false(shm->arm(receiver));
	assert_int_equal(shm->progress(receiver), 1);
	check_arrival(&batch);
	end(&batch);
}

static void a_denied_write_is_reported_once(void **state)
{
	static const struct {
		bool fault;       /* the receiver's memory faults; else another process seems to have its place */
		const char *why;
	} rows[] = { { false, "it is another process now" }, { true, "Bad address" } };
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++)
		for (unsigned count = 1; count <= 3; count++) {
			struct batch batch;
			struct shm_log_capture capture;
			begin(&batch, true);
			struct shm_endpoint *sender = inside(&batch.pair, 0);
			sender->peer_nonce += !rows[row].fault;
			for (unsigned i = 0; i < count; i++)
				post_borrowed(&batch, LONG);
			ask(&batch);
			for (unsigned i = 0; rows[row].fault && i < count; i++)
				atomic_store(&shm_rtr_slot(sender->in_rtrs, i + 1)->word[4], 4096);
			shm_log_capture_begin(&capture, &batch.pair.ends[0]);
			shm->progress(batch.pair.ends[0].endpoint);
			assert_true(sender->is_write_denied);
			assert_false(collet_shm_can_coop_write(sender));
			check_arrival(&batch);
			/* The sender does not offer cooperation again. */
			post_borrowed(&batch, LONG);
			assert_true(
				sender->tokens_borrowed != 0 && (sender->tokens_coop & sender->tokens_borrowed) == 0);
			shm->post_recv(batch.pair.ends[1].endpoint, &batch.receive[count]);
			check_arrival(&batch);
			shm_log_capture_end(&capture);
			const char *peer = strstr(capture.text, "rank 11 on beta");
			const char *why = strstr(capture.text, rows[row].why);
			if (!peer || !why || strstr(why, "shm:"))
				fail_msg("said: '%s'", capture.text);
			end(&batch);
		}
}

/* The RTR of a receive of another message is not used for this one. */
static void only_expected_messages_are_written(void **state)
{
	struct batch batch;
	begin(&batch, true);
	post_borrowed(&batch, LONG);
	batch.receive[0].message.sequence++;
	ask(&batch);
	assert_false(collet_shm_can_coop_write(inside(&batch.pair, 0)));
	shm->progress(batch.pair.ends[0].endpoint);
	assert_true(end_complete(&batch.pair.ends[1], &batch.receive[0]));
	assert_int_equal(batch.receive[0].status, COLLET_ERR_MISMATCH);
	assert_int_equal(batch.into[0][0], 0x5a);
	assert_true(pair_complete(&batch.pair, &batch.send[0]));
	end(&batch);
}

static void a_closed_peer_is_not_written_to(void **state)
{
	for (unsigned processes = 0; processes < 2; processes++) {
		struct batch batch;
		begin(&batch, processes);
		post_borrowed(&batch, LONG);
		ask(&batch);
		assert_true(collet_shm_can_coop_write(inside(&batch.pair, 0)));
		shm->close(batch.pair.ends[1].endpoint);
		assert_int_equal(batch.receive[0].status, COLLET_CANCELLED);
		assert_true(end_complete(&batch.pair.ends[0], &batch.send[0]));
		assert_int_equal(batch.send[0].status, COLLET_ERR_PEER_LOST);
		assert_true(batch.into[0][0] == 0x5a && batch.into[0][LONG - 1] == 0x5a);
		end(&batch);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_active_sender_copies_a_part),
		cmocka_unit_test(reading_comes_first),
		cmocka_unit_test(claimed_ranges_are_awaited),
		cmocka_unit_test(a_denied_write_is_reported_once),
		cmocka_unit_test(only_expected_messages_are_written),
		cmocka_unit_test(a_closed_peer_is_not_written_to),
	};
	return cmocka_run_group_tests_name("shm_coop", tests, NULL, NULL);
}
