/* Tests the internals of verbs: the cost of a message and the memory of an endpoint. The contract suite tests what
 * every transport promises. Needs two RDMA devices and the module, see tests/vm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "verbs_ends.h"

/* ---- Counting calls of libibverbs: each post of send requests rings a doorbell ----------------------------- */

struct calls {
	unsigned sends, receives, completions;
};

static struct counter {
	struct ibv_context *context;
	struct ibv_context_ops real;
	struct calls *calls;
} counters[2 * VERBS_RAILS_MAX];
static unsigned counter_count;

static struct counter *counter_of(const struct ibv_context *context)
{
	unsigned i = 0;
	while (counters[i].context != context)
		i++;
	return &counters[i];
}

static int count_sends(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **refused)
{
	struct counter *counter = counter_of(qp->context);
	counter->calls->sends++;
	return counter->real.post_send(qp, request, refused);
}

static int count_receives(struct ibv_qp *qp, struct ibv_recv_wr *request, struct ibv_recv_wr **refused)
{
	struct counter *counter = counter_of(qp->context);
	counter->calls->receives++;
	return counter->real.post_recv(qp, request, refused);
}

static int count_completions(struct ibv_cq *queue, int capacity, struct ibv_wc *completions)
{
	struct counter *counter = counter_of(queue->context);
	const int some = counter->real.poll_cq(queue, capacity, completions);
	counter->calls->completions += some > 0 ? (unsigned)some : 0;
	return some;
}

/* Counts the calls of both ends from now on. */
static void count_calls(const struct pair *pair, struct calls calls[2])
{
	memset(calls, 0, 2 * sizeof(*calls));
	counter_count = 0;
	for (int end = 0; end < 2; end++) {
		const struct verbs_endpoint *verbs = verbs_of(pair, end);
		for (uint32_t r = 0; r < verbs->rail_count; r++) {
			struct ibv_context *context = verbs->rails[r].adapter->context;
			counters[counter_count++] = (struct counter){ context, context->ops, &calls[end] };
			context->ops.post_send = count_sends;
			context->ops.post_recv = count_receives;
			context->ops.poll_cq = count_completions;
		}
	}
}

static void stop_counting(void)
{
	for (; counter_count; counter_count--)
		counters[counter_count - 1].context->ops = counters[counter_count - 1].real;
}

/* ---- Cost of a message ---------------------------------------------------------------------------------- */

static void a_small_message_is_one_write(void **state)
{
	enum { COUNT = 20 * VERBS_SIGNAL_EVERY, BYTES = 8 };
	struct pair pair = { 0 };
	struct calls calls[2];
	pair_open(&pair, "verbs");
	uint8_t from[BYTES], into[BYTES];
	count_calls(&pair, calls);
	for (uint64_t i = 0; i < COUNT; i++) {
		exchange(&pair, i, from, into, BYTES);
		pair.transport->progress(pair.ends[0].endpoint);
	}
	stop_counting();
	const struct verbs_profile *profile = verbs_of(&pair, 0)->profile;
	const unsigned max_credit_writes = COUNT / (profile->window / VERBS_CREDIT_PARTS);
	assert_int_equal(calls[0].sends, COUNT);
	/* No message goes the other way, so credits need writes of their own, but few. */
	assert_true(calls[1].sends <= max_credit_writes);
	assert_true(calls[0].completions <= COUNT / VERBS_SIGNAL_EVERY + 1 + calls[1].sends);
	assert_true(calls[1].completions >= COUNT &&
		    calls[1].completions <= COUNT + max_credit_writes / VERBS_SIGNAL_EVERY + 1);
	assert_true(calls[1].receives <= COUNT / profile->receive_batch + 1);
	pair_close(&pair);
}

/* A large message is announced, cleared to send, and written from memory to memory: bounce buffers stay untouched. */
static void a_large_message_is_not_copied(void **state)
{
	enum { BYTES = 300000, COUNT = 10, MARK = 0x5a };
	struct pair pair = { 0 };
	struct calls calls[2];
	pair_open(&pair, "verbs");
	uint8_t *from = malloc(BYTES), *into = malloc(BYTES);
	for (int end = 0; end < 2; end++) {
		const struct verbs_endpoint *verbs = verbs_of(&pair, end);
		memset(verbs->recv_bounce, MARK, VERBS_BOUNCE_BUFFERS * verbs->profile->bounce_bytes);
		memset(verbs->send_bounce, MARK, VERBS_BOUNCE_BUFFERS * verbs->profile->bounce_bytes);
	}
	const uint32_t parts = verbs_of(&pair, 0)->profile->data_qps;
	uint32_t posted[2][VERBS_QPS_MAX] = { 0 };
	for (int end = 0; end < 2; end++)
		for (uint32_t p = 0; p <= parts; p++)
			posted[end][p] = verbs_of(&pair, end)->qps[p].posted;
	count_calls(&pair, calls);
	for (uint64_t i = 0; i < COUNT; i++)
		exchange(&pair, i, from, into, BYTES);
	stop_counting();
	for (int end = 0; end < 2; end++) {
		const struct verbs_endpoint *verbs = verbs_of(&pair, end);
		/* Each message takes one control message each way. */
		assert_int_equal(verbs->qps[0].posted - posted[end][0], COUNT);
		for (uint32_t p = 1; p <= parts; p++)
			assert_int_equal(verbs->qps[p].posted - posted[end][p], end == 0 ? COUNT : 0);
		assert_int_equal(calls[end].sends, end == 0 ? COUNT * (1 + parts) : COUNT);
		for (uint32_t i = 0; i < VERBS_BOUNCE_BUFFERS * verbs->profile->bounce_bytes; i++)
			if (verbs->recv_bounce[i] != MARK || verbs->send_bounce[i] != MARK)
				fail_msg("byte %u of a bounce buffer was written", i);
	}
	/* The sender sees its stripes and the CTS, the receiver the announcement and the ends; both see every 16th
	 * write of the ring. */
	assert_true(calls[0].completions <= COUNT * (parts + 1) + 1);
	assert_true(calls[1].completions <= COUNT * (parts + 1) + 1);
	free(from);
	free(into);
	pair_close(&pair);
}

/* Hides the completions of the receiver's second adapter. An end of the first message then waits there, while the
 * fifth, which has the same number, is announced over the first adapter. */
static int hide_completions(struct ibv_cq *queue, int capacity, struct ibv_wc *completions)
{
	return 0;
}

static void an_announcement_may_overtake_an_end(void **state)
{
	enum { BYTES = 300000, COUNT = VERBS_LARGE_MAX + 1 };
	struct pair pair = {0};
	struct collet_transfer sends[COUNT], receives[COUNT];
	uint8_t *from = malloc(BYTES), *into = calloc(COUNT, BYTES);
	pair_open(&pair, "verbs");
	const struct verbs_endpoint *receiver = verbs_of(&pair, 1);
	assert_int_equal(receiver->rail_count, 2);
	struct ibv_context *hidden = receiver->rails[1].adapter->context;
	const struct ibv_context_ops real = hidden->ops;
	hidden->ops.poll_cq = hide_completions;
	pattern_fill(from, BYTES, 1);
	for (uint32_t i = 0; i < COUNT; i++) {
		receives[i] = transfer_of(i, into + i * (size_t)BYTES, BYTES);
		sends[i] = transfer_of(i, from, BYTES);
		post_recv(&pair.ends[1], &receives[i]);
		post_send(&pair.ends[0], &sends[i]);
	}
	const int64_t deadline = collet_deadline_after(INT64_C(20000000000));
	while (receiver->in_arrived < COUNT && !collet_deadline_passed(deadline))
		for (int i = 0; i < 2; i++)
			pair.transport->progress(pair.ends[i].endpoint);
	assert_int_equal(receiver->in_arrived, COUNT);
	pair.transport->progress(pair.ends[1].endpoint);
	assert_int_equal(receiver->in_matched, VERBS_LARGE_MAX);
	assert_int_equal(receives[0].status, COLLET_PENDING);
	hidden->ops = real;
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_true(pair_complete(&pair, &receives[i]) && pair_complete(&pair, &sends[i]));
		assert_int_equal(receives[i].status, COLLET_OK);
		assert_true(pattern_is(into + i * (size_t)BYTES, BYTES, 1));
	}
	free(from);
	free(into);
	pair_close(&pair);
}

static void check_views(const struct verbs_profile *profile)
{
	const size_t most = verbs_max_small_bytes(profile), sizes[] = { 1, 8, 100, most / 2, most };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	const struct verbs_endpoint *receiver = verbs_of(&pair, 1);
	assert_int_equal(receiver->profile->units, profile->units);
	uint8_t from[4096], into[4096];
	for (uint64_t i = 0; i < 50; i++) {
		const size_t bytes = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
		struct collet_transfer send = transfer_of(i, from, bytes), receive = transfer_of(i, into, bytes);
		receive.flags = COLLET_TRANSFER_VIEW;
		pattern_fill(from, bytes, i);
		post_recv(&pair.ends[1], &receive);
		post_send(&pair.ends[0], &send);
		assert_true(pair_complete(&pair, &receive));
		const uint8_t *view = receive.view;
		assert_true(
			view > receiver->ring && view + bytes <= receiver->ring + profile->units * VERBS_UNIT_BYTES);
		assert_true(pattern_is(view, bytes, i));
		receive.view = receive.data;  /* the engine does so after it has made a copy */
		pair.transport->release_view(pair.ends[1].endpoint, &receive);
		assert_true(pair_complete(&pair, &send));
	}
	pair_close(&pair);
}

static void a_view_lies_in_the_ring(void **state)
{
	check_views(&collet_verbs_profile_wide);
	setenv("COLLET_VERBS_WIDE", "0", 1);
	check_views(&collet_verbs_profile_lean);
	unsetenv("COLLET_VERBS_WIDE");
}

/* ---- Memory of an endpoint -------------------------------------------------------------------------------- */

/* Returns the bytes of queues that the adapters' drivers have mapped into this process. */
static size_t driver_bytes(void)
{
	char line[512];
	size_t sum = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		char *end;
		const uintptr_t first = strtoul(line, &end, 16);
		sum += strstr(line, "uverbs") ? strtoul(end + 1, NULL, 16) - first : 0;
	}
	fclose(maps);
	return sum;
}

/* Returns the bytes of one endpoint with its registered memory, and in *queues those of its queues in the driver. */
static size_t measure_endpoint(const struct verbs_profile *profile, size_t *queues)
{
	struct pair pair = { 0 };
	const size_t before = driver_bytes();
	pair_open(&pair, "verbs");
	const struct verbs_endpoint *verbs = verbs_of(&pair, 0);
	assert_int_equal(verbs->profile->units, profile->units);
	const size_t notices = verbs->memory_bytes - verbs_memory_bytes(profile);
	assert_true(verbs_is_iwarp(verbs) ? notices <= 2048 : notices == 0);
	assert_int_equal(verbs->qp_count, 1 + profile->data_qps);
	*queues = (driver_bytes() - before) / 2;
	const size_t own = pair.transport->endpoint_bytes + (verbs->memory_bytes + 4095) / 4096 * 4096;
	print_message("an endpoint takes %zu bytes, of them %zu registered, and %zu of queues in the driver\n", own,
		verbs->memory_bytes, *queues);
	pair_close(&pair);
	assert_true(driver_bytes() == before);
	return own;
}

static void an_endpoint_takes_64_kib(void **state)
{
	size_t wide_queues, lean_queues;
	const size_t wide = measure_endpoint(&collet_verbs_profile_wide, &wide_queues);
	setenv("COLLET_VERBS_WIDE", "0", 1);
	const size_t lean = measure_endpoint(&collet_verbs_profile_lean, &lean_queues);
	unsetenv("COLLET_VERBS_WIDE");
	assert_true(wide <= 65536);
	assert_true(wide_queues > 0 && lean_queues > 0);
	assert_true(lean + lean_queues <= 65536);
}

/* If one end asks for the lean profile, both use it. */
static void both_ends_use_the_leaner_profile(void **state)
{
	for (int who = 0; who < 2; who++) {
		struct pair pair = { 0 };
		pair_open(&pair, "verbs");
		pair.ends[who].instance->device->options.max_wide = 0;
		reopen(&pair);
		uint8_t *from = malloc(300000), *into = malloc(300000);
		for (int i = 0; i < 2; i++)
			assert_int_equal(verbs_of(&pair, i)->profile->units, collet_verbs_profile_lean.units);
		assert_int_equal(verbs_of(&pair, 0)->qp_count, 1 + collet_verbs_profile_lean.data_qps);
		static const size_t sizes[] = { 8, 863, 864, 865, 4064, 300000 };
		for (uint64_t i = 0; i < 120; i++)
			exchange(&pair, i, from, into, i < 100 ? sizes[i % 4] : sizes[i % 6]);
		/* The bounce buffers are small too. */
		for (unsigned rail = 0; rail < VERBS_RAILS_MAX; rail++)
			pair.ends[who].instance->device->adapters[rail].attributes.max_mr_size = 512;
		static const size_t staged[] = { 865, 1024, 1025, 2048, 2049, 50001 };
		for (uint64_t i = 0; i < 12; i++)
			exchange(&pair, i, from, into, staged[i % 6]);
		assert_true(pair.ends[who].instance->device->has_warned);
		free(from);
		free(into);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_small_message_is_one_write),
		cmocka_unit_test(a_large_message_is_not_copied),
		cmocka_unit_test(an_announcement_may_overtake_an_end),
		cmocka_unit_test(a_view_lies_in_the_ring),
		cmocka_unit_test(an_endpoint_takes_64_kib),
		cmocka_unit_test(both_ends_use_the_leaner_profile),
	};
	return cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}
