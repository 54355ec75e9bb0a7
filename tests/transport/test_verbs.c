/* verbs from within: what a message costs, what is registered and for how long, and faults that only an adapter tells.
 * What every transport promises is in the contract suite. Needs two RDMA devices and the module: see tests/vm. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "core/clock.h"
#include "pair.h"
#include "transport/verbs/verbs.h"

static struct verbs_conduit *verbs_of(const struct pair *pair, int which)
{
	return (struct verbs_conduit *)pair->ends[which].conduit;
}

static void post_send(struct end *end, struct collet_transfer *transfer)
{
	end->conduit->transport->post_send(end->conduit, transfer);
}

static void post_recv(struct end *end, struct collet_transfer *transfer)
{
	end->conduit->transport->post_recv(end->conduit, transfer);
}

/* One message from end 0 to end 1, checked. */
static void exchange(struct pair *pair, uint64_t sequence, uint8_t *from, uint8_t *into, size_t bytes)
{
	struct collet_transfer send = transfer_of(sequence, from, bytes), receive = transfer_of(sequence, into, bytes);
	pattern_fill(from, bytes, sequence);
	memset(into, 0xee, bytes);
	post_recv(&pair->ends[1], &receive);
	post_send(&pair->ends[0], &send);
	assert_true(pair_settle(pair, &receive) && pair_settle(pair, &send));
	assert_int_equal(receive.status, COLLET_OK);
	assert_int_equal(send.status, COLLET_OK);
	assert_true(pattern_is(into, bytes, sequence));
}

/* New conduits of the same devices. */
static void open_again(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		pair->transport->close(pair->ends[i].conduit);
		memset(pair->ends[i].conduit, 0, pair->transport->conduit_bytes);
	}
	pair_connect_tcp(pair);
	for (int i = 0; i < 2; i++) {
		struct end *end = &pair->ends[i];
		const struct collet_conduit_config config = { .self = &end->card,
			.peer = &pair->ends[!i].card,
			.channel = 3,
			.dialed = i == 0,
			.socket = pair->sockets[i],
			.wake = &end->wake,
			.log = &end->log,
			.host = &collet_host_functions,
			.device = end->offer->device };
		pair->sockets[i] = -1;
		end->conduit->transport = end->offer->transport;
		end->conduit->peer = pair->ends[!i].card.rank;
		end->conduit->channel = 3;
		assert_int_equal(pair->transport->open(end->conduit, &config), COLLET_OK);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_await(pair, i), COLLET_OK);
}

/* ---- Counting calls of libibverbs: each post of sends rings a doorbell --------------------------------------- */

struct calls {
	unsigned sends, receives, completions;
};

static struct counter {
	struct ibv_context *context;
	struct ibv_context_ops real;
	struct calls *calls;
} counters[2 * RAILS_MOST];
static unsigned counter_count;

static struct counter *counter_of(const struct ibv_context *context)
{
	unsigned i = 0;
	while (counters[i].context != context)
		i++;
	return &counters[i];
}

static int count_sends(struct ibv_qp *pair, struct ibv_send_wr *request, struct ibv_send_wr **refused)
{
	struct counter *counter = counter_of(pair->context);
	counter->calls->sends++;
	return counter->real.post_send(pair, request, refused);
}

static int count_receives(struct ibv_qp *pair, struct ibv_recv_wr *request, struct ibv_recv_wr **refused)
{
	struct counter *counter = counter_of(pair->context);
	counter->calls->receives++;
	return counter->real.post_recv(pair, request, refused);
}

static int count_completions(struct ibv_cq *queue, int most, struct ibv_wc *completions)
{
	struct counter *counter = counter_of(queue->context);
	const int some = counter->real.poll_cq(queue, most, completions);
	counter->calls->completions += some > 0 ? (unsigned)some : 0;
	return some;
}

/* What each end of the pair calls from now on. */
static void count_calls(const struct pair *pair, struct calls calls[2])
{
	memset(calls, 0, 2 * sizeof(*calls));
	counter_count = 0;
	for (int end = 0; end < 2; end++) {
		const struct verbs_conduit *verbs = verbs_of(pair, end);
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

/* ---- What a message costs ------------------------------------------------------------------------------- */

static void a_small_message_is_one_write(void **state)
{
	enum { COUNT = 20 * SIGNAL_EVERY, BYTES = 8 };
	struct pair pair = { 0 };
	struct calls calls[2];
	pair_open(&pair, "verbs");
	uint8_t from[BYTES], into[BYTES];
	count_calls(&pair, calls);
	for (uint64_t i = 0; i < COUNT; i++) {
		exchange(&pair, i, from, into, BYTES);
		pair.transport->progress(pair.ends[0].conduit);
	}
	stop_counting();
	const struct verbs_shape *shape = verbs_of(&pair, 0)->shape;
	const unsigned told = COUNT / (shape->window / TELL_PARTS);
	assert_int_equal(calls[0].sends, COUNT);
	/* Nothing goes the other way, so what is free is told by writes of their own: a few. */
	assert_true(calls[1].sends <= told);
	assert_true(calls[0].completions <= COUNT / SIGNAL_EVERY + 1 + calls[1].sends);
	assert_true(calls[1].completions >= COUNT && calls[1].completions <= COUNT + told / SIGNAL_EVERY + 1);
	assert_true(calls[1].receives <= COUNT / shape->receive_batch + 1);
	pair_close(&pair);
}

/* Announced, granted, and written from memory to memory: the places that staging uses are not touched. */
static void a_large_message_is_copied_by_nobody(void **state)
{
	enum { BYTES = 300000, COUNT = 10, MARK = 0x5a };
	struct pair pair = { 0 };
	struct calls calls[2];
	pair_open(&pair, "verbs");
	uint8_t *from = malloc(BYTES), *into = malloc(BYTES);
	for (int end = 0; end < 2; end++) {
		const struct verbs_conduit *verbs = verbs_of(&pair, end);
		memset(verbs->landing, MARK, PLACES * verbs->shape->place_bytes);
		memset(verbs->staging, MARK, PLACES * verbs->shape->place_bytes);
	}
	const uint32_t parts = verbs_of(&pair, 0)->shape->data_pairs;
	uint32_t posted[2][PAIRS_MOST] = { 0 };
	for (int end = 0; end < 2; end++)
		for (uint32_t p = 0; p <= parts; p++)
			posted[end][p] = verbs_of(&pair, end)->pairs[p].posted;
	count_calls(&pair, calls);
	for (uint64_t i = 0; i < COUNT; i++)
		exchange(&pair, i, from, into, BYTES);
	stop_counting();
	for (int end = 0; end < 2; end++) {
		const struct verbs_conduit *verbs = verbs_of(&pair, end);
		/* One control message each way for each. */
		assert_int_equal(verbs->pairs[0].posted - posted[end][0], COUNT);
		for (uint32_t p = 1; p <= parts; p++)
			assert_int_equal(verbs->pairs[p].posted - posted[end][p], end == 0 ? COUNT : 0);
		assert_int_equal(calls[end].sends, end == 0 ? COUNT * (1 + parts) : COUNT);
		for (uint32_t i = 0; i < PLACES * verbs->shape->place_bytes; i++)
			if (verbs->landing[i] != MARK || verbs->staging[i] != MARK)
				fail_msg("byte %u of a place was written", i);
	}
	/* Parts and grant; announcement and ends; and every 16th write of the ring. */
	assert_true(calls[0].completions <= COUNT * (parts + 1) + 1);
	assert_true(calls[1].completions <= COUNT * (parts + 1) + 1);
	free(from);
	free(into);
	pair_close(&pair);
}

static void look_at_views(const struct verbs_shape *shape)
{
	const size_t most = verbs_small_most(shape), sizes[] = { 1, 8, 100, most / 2, most };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	const struct verbs_conduit *receiver = verbs_of(&pair, 1);
	assert_int_equal(receiver->shape->units, shape->units);
	uint8_t from[4096], into[4096];
	for (uint64_t i = 0; i < 50; i++) {
		const size_t bytes = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
		struct collet_transfer send = transfer_of(i, from, bytes), receive = transfer_of(i, into, bytes);
		receive.flags = COLLET_TRANSFER_VIEW;
		pattern_fill(from, bytes, i);
		post_recv(&pair.ends[1], &receive);
		post_send(&pair.ends[0], &send);
		assert_true(pair_settle(&pair, &receive));
		const uint8_t *view = receive.view;
		assert_true(view > receiver->ring && view + bytes <= receiver->ring + shape->units * UNIT_BYTES);
		assert_true(pattern_is(view, bytes, i));
		receive.view = receive.data;  /* as the engine does when it has taken a copy */
		pair.transport->release(pair.ends[1].conduit, &receive);
		assert_true(pair_settle(&pair, &send));
	}
	pair_close(&pair);
}

static void a_view_lies_in_the_ring(void **state)
{
	look_at_views(&collet_verbs_wide);
	setenv("COLLET_VERBS_WIDE", "0", 1);
	look_at_views(&collet_verbs_lean);
	unsetenv("COLLET_VERBS_WIDE");
}

/* ---- What a conduit takes ------------------------------------------------------------------------------------- */

/* Queues that the adapters' drivers have mapped into this process. */
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

/* Of one conduit of a pair: itself, what it has registered, and the queues. */
static size_t weigh(const struct verbs_shape *shape, size_t *queues)
{
	struct pair pair = { 0 };
	const size_t before = driver_bytes();
	pair_open(&pair, "verbs");
	const struct verbs_conduit *verbs = verbs_of(&pair, 0);
	assert_int_equal(verbs->shape->units, shape->units);
	assert_int_equal(verbs->memory_bytes, verbs_memory_bytes(shape));
	assert_int_equal(verbs->pair_count, 1 + shape->data_pairs);
	*queues = (driver_bytes() - before) / 2;
	const size_t own = pair.transport->conduit_bytes + (verbs->memory_bytes + 4095) / 4096 * 4096;
	print_message("a conduit takes %zu bytes, of them %zu registered, and %zu of queues in the driver\n", own,
		verbs->memory_bytes, *queues);
	pair_close(&pair);
	assert_true(driver_bytes() == before);
	return own;
}

static void a_conduit_takes_64_kib(void **state)
{
	size_t wide_queues, lean_queues;
	const size_t wide = weigh(&collet_verbs_wide, &wide_queues);
	setenv("COLLET_VERBS_WIDE", "0", 1);
	const size_t lean = weigh(&collet_verbs_lean, &lean_queues);
	unsetenv("COLLET_VERBS_WIDE");
	assert_true(wide <= 65536);
	assert_true(wide_queues > 0 && lean_queues > 0);
	assert_true(lean + lean_queues <= 65536);
}

/* With one end that wants to be lean, both are. */
static void the_leaner_end_counts(void **state)
{
	for (int who = 0; who < 2; who++) {
		struct pair pair = { 0 };
		pair_open(&pair, "verbs");
		pair.ends[who].offer->device->options.wide_most = 0;
		open_again(&pair);
		uint8_t *from = malloc(300000), *into = malloc(300000);
		for (int i = 0; i < 2; i++)
			assert_int_equal(verbs_of(&pair, i)->shape->units, collet_verbs_lean.units);
		assert_int_equal(verbs_of(&pair, 0)->pair_count, 1 + collet_verbs_lean.data_pairs);
		static const size_t sizes[] = { 8, 863, 864, 865, 4064, 300000 };
		for (uint64_t i = 0; i < 120; i++)
			exchange(&pair, i, from, into, i < 100 ? sizes[i % 4] : sizes[i % 6]);
		free(from);
		free(into);
		pair_close(&pair);
	}
}

/* ---- Registration --------------------------------------------------------------------------------------------- */

static void *learn(const struct end *end, void *first, size_t bytes)
{
	const struct collet_memory memory = {
		.first = first, .bytes = bytes, .kind = COLLET_MEMORY_HOST, .gpu = -1, .dmabuf = -1 };
	void *registration = NULL;
	assert_int_equal(
		end->offer->transport->memory_register(end->offer->device, &memory, &registration), COLLET_OK);
	return registration;
}

static void only_memory_whose_end_is_told_stays_registered(void **state)
{
	enum { BYTES = 300000 };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	const struct collet_device *device = pair.ends[0].offer->device;
	uint8_t *from = malloc(2 * BYTES), *into = malloc(BYTES);
	exchange(&pair, 1, from, into, BYTES);
	assert_int_equal(device->pinned_bytes, 0);

	struct verbs_region *whole = learn(&pair.ends[0], from, 2 * BYTES);
	struct verbs_region *part = learn(&pair.ends[0], from + BYTES / 2, BYTES);
	assert_int_equal(device->pinned_bytes, 0);  /* not before it is used */
	exchange(&pair, 2, from, into, BYTES);
	assert_null(part->registered[0]);
	const struct ibv_mr *kept = whole->registered[0];
	assert_non_null(kept);
	exchange(&pair, 3, from + BYTES, into, BYTES);
	assert_ptr_equal(whole->registered[0], kept);
	exchange(&pair, 4, from + BYTES / 2, into, BYTES);
	const bool either = device->pinned_bytes == 2 * BYTES || device->pinned_bytes == 3 * BYTES;
	assert_true(either);
	assert_int_equal(whole->users + part->users, 0);

	pair.ends[0].offer->transport->memory_deregister(pair.ends[0].offer->device, whole);
	exchange(&pair, 5, from, into, BYTES);
	exchange(&pair, 6, from + BYTES / 2, into, BYTES);
	assert_int_equal(device->pinned_bytes, BYTES);
	pair.ends[0].offer->transport->memory_deregister(pair.ends[0].offer->device, part);
	assert_int_equal(device->pinned_bytes, 0);
	assert_int_equal(device->region_count, 0);
	free(from);
	free(into);
	pair_close(&pair);
}

static void what_nobody_may_write_can_be_sent(void **state)
{
	enum { BYTES = 300000 };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	uint8_t *into = malloc(BYTES);
	uint8_t *from = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(from, MAP_FAILED);
	pattern_fill(from, BYTES, 1);
	assert_int_equal(mprotect(from, BYTES, PROT_READ), 0);
	struct collet_transfer send = transfer_of(1, from, BYTES), receive = transfer_of(1, into, BYTES);
	post_recv(&pair.ends[1], &receive);
	post_send(&pair.ends[0], &send);
	assert_true(pair_settle(&pair, &receive) && pair_settle(&pair, &send));
	assert_true(pattern_is(into, BYTES, 1));
	assert_false(pair.ends[0].offer->device->warned);
	munmap(from, BYTES);
	free(into);
	pair_close(&pair);
}

static void no_more_is_kept_than_allowed(void **state)
{
	enum { BYTES = 100000, COUNT = 8, MOST = 3 * BYTES };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	struct collet_device *device = pair.ends[0].offer->device;
	device->options.pinned_most = MOST;
	uint8_t *from[COUNT], *into = malloc(BYTES);
	void *registrations[COUNT];
	for (unsigned i = 0; i < COUNT; i++) {
		from[i] = malloc(BYTES);
		registrations[i] = learn(&pair.ends[0], from[i], BYTES);
	}
	for (unsigned i = 0; i < 3 * COUNT; i++) {
		exchange(&pair, i, from[i * 5 % COUNT], into, BYTES);
		assert_true(device->pinned_bytes <= MOST);
		assert_non_null(((struct verbs_region *)registrations[i * 5 % COUNT])->registered[0]);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		pair.ends[0].offer->transport->memory_deregister(device, registrations[i]);
		free(from[i]);
	}
	assert_int_equal(device->pinned_bytes, 0);
	free(into);
	pair_close(&pair);
}

/* As if the limit of locked memory were reached: at the sender, the receiver, both. */
static void what_cannot_be_registered_is_staged(void **state)
{
	static const size_t sizes[] = { 4065, 4097, 8192, 8193, 100003 };  /* places have 4096 bytes */
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LARGEST = 100003, COUNT = 6 };
	uint8_t *from = malloc(COUNT * LARGEST), *into = malloc(COUNT * LARGEST);
	for (unsigned who = 1; who < 4; who++) {
		struct pair pair = { 0 };
		pair_open(&pair, "verbs");
		for (unsigned end = 0; end < 2; end++)
			for (unsigned rail = 0; who >> end & 1 && rail < RAILS_MOST; rail++)
				pair.ends[end].offer->device->adapters[rail].limits.max_mr_size = 1024;
		for (uint64_t i = 0; i < SIZES; i++)
			exchange(&pair, i, from, into, sizes[i]);
		/* Several at once, small ones between them. */
		struct collet_transfer sends[COUNT], receives[COUNT];
		for (uint64_t i = 0; i < COUNT; i++) {
			const size_t bytes = i % 3 ? sizes[i % SIZES] : 50;
			pattern_fill(from + i * LARGEST, bytes, i);
			sends[i] = transfer_of(i, from + i * LARGEST, bytes);
			receives[i] = transfer_of(i, into + i * LARGEST, bytes);
			post_send(&pair.ends[0], &sends[i]);
		}
		for (uint64_t i = 0; i < COUNT; i++)
			post_recv(&pair.ends[1], &receives[i]);
		for (uint64_t i = 0; i < COUNT; i++) {
			assert_true(pair_settle(&pair, &receives[i]) && pair_settle(&pair, &sends[i]));
			assert_int_equal(receives[i].status, COLLET_OK);
			assert_true(pattern_is(into + i * LARGEST, receives[i].message.bytes, i));
		}
		assert_true(pair.ends[who & 1 ? 0 : 1].offer->device->warned);
		pair_close(&pair);
	}
	free(from);
	free(into);
}

static void no_write_is_longer_than_an_adapter_takes(void **state)
{
	enum { BYTES = (1 << 20) + 17, MOST = 8192 };
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	struct verbs_conduit *sender = verbs_of(&pair, 0);
	assert_true(sender->message_most <= sender->rails[0].adapter->message_most);
	sender->message_most = MOST;
	uint8_t *from = malloc(BYTES), *into = malloc(BYTES);
	uint32_t before = 0, after = 0;
	for (uint32_t p = 1; p < sender->pair_count; p++)
		before += sender->pairs[p].posted;
	exchange(&pair, 1, from, into, BYTES);
	for (uint32_t p = 1; p < sender->pair_count; p++)
		after += sender->pairs[p].posted;
	assert_true(after - before >= BYTES / MOST);
	free(from);
	free(into);
	pair_close(&pair);
}

/* ---- Adapters --------------------------------------------------------------------------------------------------- */

/* Ends may have different numbers of adapters, and an adapter whose port is not active is passed over. */
static void another_adapter_takes_over(void **state)
{
	enum { BYTES = 300000, NO_PORT = 200 };
	struct pair pair = { 0 };
	uint8_t *from = malloc(BYTES), *into = malloc(BYTES);
	pair_open(&pair, "verbs");
	assert_int_equal(verbs_of(&pair, 0)->rail_count, 2);
	for (int who = 0; who < 2; who++) {
		struct verbs_adapter *lost = &pair.ends[who].offer->device->adapters[who];
		const uint8_t port = lost->port;
		lost->port = NO_PORT;
		open_again(&pair);
		assert_int_equal(verbs_of(&pair, who)->rail_count, 1);
		assert_int_equal(verbs_of(&pair, !who)->rail_count, 2);
		assert_ptr_not_equal(verbs_of(&pair, who)->rails[0].adapter, lost);
		exchange(&pair, 1, from, into, BYTES);
		exchange(&pair, 2, from, into, 100);
		lost->port = port;
	}
	open_again(&pair);
	assert_int_equal(verbs_of(&pair, 0)->rail_count, 2);
	exchange(&pair, 3, from, into, BYTES);
	free(from);
	free(into);
	pair_close(&pair);
}

/* ---- Faults --------------------------------------------------------------------------------------------------- */

static void assert_says(const struct collet_transfer *transfer, collet_status status, const char *what)
{
	assert_int_equal(transfer->status, status);
	if (!strstr(collet_last_error(), what))
		print_error("%s\n", collet_last_error());
	assert_non_null(strstr(collet_last_error(), what));
}

static void break_pairs(struct verbs_conduit *verbs)
{
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };
	for (uint32_t p = 0; p < verbs->pair_count; p++)
		assert_int_equal(ibv_modify_qp(verbs->pairs[p].pair, &attributes, IBV_QP_STATE), 0);
}

/* As the engine sleeps: not for long, since some things are only found out by looking again. */
static bool settle_asleep(struct end *end, const struct collet_transfer *transfer)
{
	const struct collet_transport *transport = end->conduit->transport;
	const int64_t deadline = collet_deadline_after(INT64_C(20000000000));
	while (transfer->status == COLLET_PENDING && !collet_deadline_passed(deadline)) {
		struct epoll_event event;
		if (transport->progress(end->conduit) == 0 && transport->arm(end->conduit))
			(void)epoll_wait(end->wake.epoll_fd, &event, 1, 50);
		transport->disarm(end->conduit);
	}
	return transfer->status != COLLET_PENDING;
}

/* What rxe never tells: the module calls these in place of libibverbs's, and made-up events come before real ones. */
static struct ibv_async_event made_up;
static struct ibv_context *made_up_on;   /* NULL: none is waiting */
static unsigned acknowledged;

__attribute__((visibility("default"))) int ibv_get_async_event(
	struct ibv_context *context, struct ibv_async_event *event)
{
	int (*real)(struct ibv_context *, struct ibv_async_event *) = NULL;
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_get_async_event");
	if (made_up_on != context)
		return real(context, event);
	made_up_on = NULL;
	*event = made_up;
	return 0;
}

__attribute__((visibility("default"))) void ibv_ack_async_event(struct ibv_async_event *event)
{
	void (*real)(struct ibv_async_event *) = NULL;
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_ack_async_event");
	if (memcmp(event, &made_up, sizeof(made_up)) == 0)
		acknowledged++;
	else
		real(event);
}

static void make_up(struct ibv_context *context, struct ibv_async_event event)
{
	made_up = event;
	made_up_on = context;
	acknowledged = 0;
}

/* A broken queue pair or completion queue ends its conduit, in the event's words; and no other. */
static void what_an_adapter_tells_of_a_conduit_ends_it(void **state)
{
	static const struct {
		enum ibv_event_type type;
		const char *says;
	} rows[] = {
		{ IBV_EVENT_QP_FATAL, "local work queue catastrophic error" },
		{ IBV_EVENT_QP_REQ_ERR, "invalid request local work queue error" },
		{ IBV_EVENT_QP_ACCESS_ERR, "local access violation work queue error" },
		{ IBV_EVENT_PATH_MIG_ERR, "path migration request error" },
		{ IBV_EVENT_CQ_ERR, "CQ error" },
	};
	struct pair pair = { 0 };
	uint8_t from[100], into[100];
	pair_open(&pair, "verbs");
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct verbs_conduit *hurt = verbs_of(&pair, 0);
		struct ibv_async_event event = { .event_type = rows[i].type };
		if (rows[i].type == IBV_EVENT_CQ_ERR)
			event.element.cq = hurt->rails[1].completions;
		else
			event.element.qp = hurt->pairs[1].pair;
		exchange(&pair, 1, from, into, sizeof(from));
		struct collet_transfer receive = transfer_of(2, into, sizeof(into));
		post_recv(&pair.ends[0], &receive);
		make_up(hurt->rails[0].adapter->context, event);
		assert_true(end_settle(&pair.ends[0], &receive));
		assert_says(&receive, COLLET_ERR_TRANSPORT, rows[i].says);
		assert_says(&receive, COLLET_ERR_TRANSPORT, "rank 11 on beta");
		assert_int_equal(acknowledged, 1);
		open_again(&pair);
	}
	pair_close(&pair);
}

/* A broken device ends what uses it, asleep or not, and new conduits do without it. */
static void a_broken_device_is_given_up(void **state)
{
	struct pair pair = { 0 };
	uint8_t *from = malloc(300000), *into = malloc(300000);
	pair_open(&pair, "verbs");
	struct verbs_adapter *broken = &pair.ends[0].offer->device->adapters[1];
	struct collet_transfer receive = transfer_of(1, into, 100);
	post_recv(&pair.ends[0], &receive);
	make_up(broken->context, (struct ibv_async_event){ .event_type = IBV_EVENT_DEVICE_FATAL });
	assert_true(settle_asleep(&pair.ends[0], &receive));
	assert_says(&receive, COLLET_ERR_TRANSPORT, "local catastrophic error");
	assert_says(&receive, COLLET_ERR_TRANSPORT, broken->name);
	open_again(&pair);
	assert_int_equal(verbs_of(&pair, 0)->rail_count, 1);
	assert_ptr_not_equal(verbs_of(&pair, 0)->rails[0].adapter, broken);
	exchange(&pair, 2, from, into, 300000);
	free(from);
	free(into);
	pair_close(&pair);
}

static void run(const char *command)
{
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

/* For real: a port that goes down says so, which wakes a sleeper, who asks at once; one that is back is used again. */
static void a_port_that_goes_is_heard_of(void **state)
{
	struct pair pair = { 0 };
	uint8_t into[100], from[100];
	pair_open(&pair, "verbs");
	struct verbs_conduit *verbs = verbs_of(&pair, 0);
	struct collet_device *device = pair.ends[0].offer->device;
	assert_int_equal(atomic_load(&device->alarms), 0);
	struct collet_transfer receive = transfer_of(1, into, sizeof(into));
	post_recv(&pair.ends[0], &receive);
	run("ip link set net1 down");
	assert_true(settle_asleep(&pair.ends[0], &receive));
	assert_true(atomic_load(&device->alarms) > 0);
	assert_int_equal(verbs->alarms, atomic_load(&device->alarms));
	/* Its own end's packets cannot leave, or the other's are not answered. */
	if (receive.status != COLLET_ERR_PEER_LOST)
		assert_int_equal(receive.status, COLLET_ERR_TRANSPORT);
	assert_says(&receive, receive.status, "rxe");
	assert_says(&receive, receive.status, "the port is down");
	run("ip link set net1 up && ip route replace 10.77.0.1 dev net1 src 10.77.0.2 table 77 && "
	    "for i in $(seq 200); do rdma link show rxe1/1 | grep -q ACTIVE && exit 0; sleep 0.05; done; exit 1");
	open_again(&pair);
	assert_int_equal(verbs_of(&pair, 0)->rail_count, 2);
	exchange(&pair, 2, from, into, sizeof(from));
	pair_close(&pair);
}

/* The peer's process lives and its socket is open; only its adapter answers no more, and this end merely receives. */
static void a_silent_adapter_is_found_out(void **state)
{
	for (unsigned asleep = 0; asleep < 2; asleep++) {
		struct pair pair = { 0 };
		pair_open(&pair, "verbs");
		uint8_t into[100];
		struct collet_transfer receive = transfer_of(1, into, sizeof(into));
		post_recv(&pair.ends[0], &receive);
		break_pairs(verbs_of(&pair, 1));
		const int64_t began = collet_clock_ns();
		assert_true(asleep ? settle_asleep(&pair.ends[0], &receive) : end_settle(&pair.ends[0], &receive));
		assert_true(collet_clock_ns() - began < INT64_C(15000000000));
		assert_says(&receive, COLLET_ERR_PEER_LOST, "transport retry counter exceeded");
		assert_says(&receive, COLLET_ERR_PEER_LOST, "rxe");
		assert_says(&receive, COLLET_ERR_PEER_LOST, "to 10.77.0.");
		assert_says(&receive, COLLET_ERR_PEER_LOST, "rank 11 on beta");
		pair_close(&pair);
	}
}

/* As one that was removed: it says nothing, not even that nothing comes. */
static void an_adapter_that_completes_nothing_is_given_up(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	uint8_t into[100];
	struct collet_transfer receive = transfer_of(1, into, sizeof(into));
	post_recv(&pair.ends[0], &receive);
	struct verbs_pair *quiet = &verbs_of(&pair, 0)->pairs[2];
	quiet->asking = true;
	quiet->asked_ns = collet_clock_ns() - INT64_C(60000000000);
	assert_true(end_settle(&pair.ends[0], &receive));
	assert_says(&receive, COLLET_ERR_TRANSPORT, "completes nothing any more");
	assert_says(&receive, COLLET_ERR_TRANSPORT, verbs_of(&pair, 0)->rails[1].adapter->name);
	pair_close(&pair);
}

static void a_broken_queue_pair_is_told_at_both_ends(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	uint8_t into[2][100];
	struct collet_transfer receives[2];
	for (int i = 0; i < 2; i++) {
		receives[i] = transfer_of(1, into[i], sizeof(into[i]));
		post_recv(&pair.ends[i], &receives[i]);
	}
	break_pairs(verbs_of(&pair, 0));
	assert_true(end_settle(&pair.ends[0], &receives[0]));
	assert_says(&receives[0], COLLET_ERR_PEER_LOST, "Work Request Flushed Error");
	assert_true(end_settle(&pair.ends[1], &receives[1]));
	assert_says(&receives[1], COLLET_ERR_PEER_LOST, "rank 10 on alpha");
	pair_close(&pair);
}

static void what_is_no_message_ends_the_connection(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	const struct verbs_conduit *evil = verbs_of(&pair, 0);
	uint8_t into[100], rubbish[64];
	memset(rubbish, 0x5a, sizeof(rubbish));
	struct ibv_sge part = { .addr = (uintptr_t)rubbish, .length = sizeof(rubbish) };
	struct ibv_send_wr *refused, request = { .sg_list = &part,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_INLINE,
		.wr.rdma = { .remote_addr = evil->peer_memory, .rkey = evil->peer_keys[evil->pairs[0].peer_rail] } };
	struct collet_transfer receive = transfer_of(1, into, sizeof(into));
	post_recv(&pair.ends[1], &receive);
	assert_int_equal(ibv_post_send(evil->pairs[0].pair, &request, &refused), 0);
	assert_true(end_settle(&pair.ends[1], &receive));
	assert_says(&receive, COLLET_ERR_TRANSPORT, "is no message");
	pair_close(&pair);
}

int main(void)
{
	/* So that an adapter gives up sooner: 2^14 * 4.096 us, 7 times. */
	setenv("COLLET_VERBS_TIMEOUT", "14", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_small_message_is_one_write),
		cmocka_unit_test(a_large_message_is_copied_by_nobody),
		cmocka_unit_test(a_view_lies_in_the_ring),
		cmocka_unit_test(a_conduit_takes_64_kib),
		cmocka_unit_test(the_leaner_end_counts),
		cmocka_unit_test(only_memory_whose_end_is_told_stays_registered),
		cmocka_unit_test(what_nobody_may_write_can_be_sent),
		cmocka_unit_test(no_more_is_kept_than_allowed),
		cmocka_unit_test(what_cannot_be_registered_is_staged),
		cmocka_unit_test(no_write_is_longer_than_an_adapter_takes),
		cmocka_unit_test(another_adapter_takes_over),
		cmocka_unit_test(what_an_adapter_tells_of_a_conduit_ends_it),
		cmocka_unit_test(a_broken_device_is_given_up),
		cmocka_unit_test(a_port_that_goes_is_heard_of),
		cmocka_unit_test(a_silent_adapter_is_found_out),
		cmocka_unit_test(an_adapter_that_completes_nothing_is_given_up),
		cmocka_unit_test(a_broken_queue_pair_is_told_at_both_ends),
		cmocka_unit_test(what_is_no_message_ends_the_connection),
	};
	return cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}
