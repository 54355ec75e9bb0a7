/* Tests the internals of verbs: adapters that are gone, silent or broken, and the events that they report. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <cmocka.h>

#include "core/clock.h"
#include "verbs_ends.h"

/* ---- Adapters --------------------------------------------------------------------------------------------------- */

/* The two ends may have different numbers of adapters. An adapter without an active port is skipped. */
static void another_adapter_takes_over(void **state)
{
	enum { BYTES = 300000, NO_PORT = 200 };
	struct pair pair = { 0 };
	uint8_t *from = malloc(BYTES), *into = malloc(BYTES);
	pair_open(&pair, "verbs");
	assert_int_equal(verbs_of(&pair, 0)->rail_count, 2);
	for (int who = 0; who < 2; who++) {
		struct verbs_adapter *lost = &pair.ends[who].instance->device->adapters[who];
		const uint8_t port = lost->port;
		lost->port = NO_PORT;
		reopen(&pair);
		assert_int_equal(verbs_of(&pair, who)->rail_count, 1);
		assert_int_equal(verbs_of(&pair, !who)->rail_count, 2);
		assert_ptr_not_equal(verbs_of(&pair, who)->rails[0].adapter, lost);
		exchange(&pair, 1, from, into, BYTES);
		exchange(&pair, 2, from, into, 100);
		lost->port = port;
	}
	reopen(&pair);
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

static void break_qps(struct verbs_endpoint *verbs)
{
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };
	for (uint32_t p = 0; p < verbs->qp_count; p++)
		assert_int_equal(ibv_modify_qp(verbs->qps[p].qp, &attributes, IBV_QP_STATE), 0);
}

/* Waits as the engine does, in short sleeps: some losses are only found by polling again. */
static bool complete_asleep(struct end *end, const struct collet_transfer *transfer)
{
	const struct collet_transport *transport = end->endpoint->transport;
	const int64_t deadline = collet_deadline_after(INT64_C(20000000000));
	while (transfer->status == COLLET_PENDING && !collet_deadline_passed(deadline)) {
		struct epoll_event event;
		if (transport->progress(end->endpoint) == 0 && transport->arm(end->endpoint))
			(void)epoll_wait(end->wake.epoll_fd, &event, 1, 50);
		transport->disarm(end->endpoint);
	}
	return transfer->status != COLLET_PENDING;
}

/* Replaces functions of libibverbs for the module, to inject events that rxe never reports. */
static struct ibv_async_event injected;
static struct ibv_context *injected_on;   /* device of the injected event; NULL if there is none */
static unsigned acknowledged;

__attribute__((visibility("default"))) int ibv_get_async_event(
	struct ibv_context *context, struct ibv_async_event *event)
{
	int (*real)(struct ibv_context *, struct ibv_async_event *) = NULL;
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_get_async_event");
	if (injected_on != context)
		return real(context, event);
	injected_on = NULL;
	*event = injected;
	return 0;
}

__attribute__((visibility("default"))) void ibv_ack_async_event(struct ibv_async_event *event)
{
	void (*real)(struct ibv_async_event *) = NULL;
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_ack_async_event");
	if (memcmp(event, &injected, sizeof(injected)) == 0)
		acknowledged++;
	else
		real(event);
}

static void inject(struct ibv_context *context, struct ibv_async_event event)
{
	injected = event;
	injected_on = context;
	acknowledged = 0;
}

/* An event of a queue pair or completion queue ends its endpoint, with the text of the event, and no other endpoint. */
static void a_fatal_event_ends_its_endpoint(void **state)
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
		struct verbs_endpoint *hurt = verbs_of(&pair, 0);
		struct ibv_async_event event = { .event_type = rows[i].type };
		if (rows[i].type == IBV_EVENT_CQ_ERR)
			event.element.cq = hurt->rails[1].cq;
		else
			event.element.qp = hurt->qps[1].qp;
		exchange(&pair, 1, from, into, sizeof(from));
		struct collet_transfer receive = transfer_of(2, into, sizeof(into));
		post_recv(&pair.ends[0], &receive);
		inject(hurt->rails[0].adapter->context, event);
		assert_true(end_complete(&pair.ends[0], &receive));
		assert_says(&receive, COLLET_ERR_TRANSPORT, rows[i].says);
		assert_says(&receive, COLLET_ERR_TRANSPORT, "rank 11 on beta");
		assert_int_equal(acknowledged, 1);
		reopen(&pair);
	}
	pair_close(&pair);
}

/* A broken device ends the endpoints that use it, asleep or not. New endpoints do not use it. */
static void a_broken_device_is_abandoned(void **state)
{
	struct pair pair = { 0 };
	uint8_t *from = malloc(300000), *into = malloc(300000);
	pair_open(&pair, "verbs");
	struct verbs_adapter *broken = &pair.ends[0].instance->device->adapters[1];
	struct collet_transfer receive = transfer_of(1, into, 100);
	post_recv(&pair.ends[0], &receive);
	inject(broken->context, (struct ibv_async_event){ .event_type = IBV_EVENT_DEVICE_FATAL });
	assert_true(complete_asleep(&pair.ends[0], &receive));
	assert_says(&receive, COLLET_ERR_TRANSPORT, "local catastrophic error");
	assert_says(&receive, COLLET_ERR_TRANSPORT, broken->name);
	reopen(&pair);
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

/* With a real event: a port that goes down wakes a sleeping rank, which probes at once. A port that comes back is used
 * again. */
static void a_port_error_is_noticed(void **state)
{
	struct pair pair = { 0 };
	uint8_t into[100], from[100];
	pair_open(&pair, "verbs");
	struct verbs_endpoint *verbs = verbs_of(&pair, 0);
	struct collet_device *device = pair.ends[0].instance->device;
	assert_int_equal(atomic_load(&device->port_errors), 0);
	struct collet_transfer receive = transfer_of(1, into, sizeof(into));
	post_recv(&pair.ends[0], &receive);
	run("ip link set net1 down");
	assert_true(complete_asleep(&pair.ends[0], &receive));
	assert_true(atomic_load(&device->port_errors) > 0);
	assert_int_equal(verbs->port_errors_seen, atomic_load(&device->port_errors));
	/* Either packets of this end cannot leave, or those of the other end are not answered. */
	if (receive.status != COLLET_ERR_PEER_LOST)
		assert_int_equal(receive.status, COLLET_ERR_TRANSPORT);
	assert_says(&receive, receive.status, "rxe");
	assert_says(&receive, receive.status, "the port is down");
	run("ip link set net1 up && ip route replace 10.77.0.1 dev net1 src 10.77.0.2 table 77 && "
	    "for i in $(seq 200); do [ $(rdma link show | grep -c ' ACTIVE') = 2 ] && exit; sleep 0.05; done; exit 1");
	reopen(&pair);
	assert_int_equal(verbs_of(&pair, 0)->rail_count, 2);
	exchange(&pair, 2, from, into, sizeof(from));
	pair_close(&pair);
}

/* rxe may report the old state of a port that has just gone down, so the port is queried again. */
static unsigned stale_answers;
static int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *, size_t);

static int query_port_late(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes, size_t bytes)
{
	const int error = query_port(context, port, attributes, bytes);
	attributes->state = stale_answers ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	stale_answers -= stale_answers > 0;
	return error;
}

static void a_port_that_has_just_gone_is_not_called_active(void **state)
{
	for (unsigned late = 0; late < 2; late++) {
		struct pair pair = { 0 };
		uint8_t into[100];
		pair_open(&pair, "verbs");
		struct collet_transfer receive = transfer_of(1, into, sizeof(into));
		post_recv(&pair.ends[0], &receive);
		struct verbs_context *context = verbs_get_ctx(verbs_of(&pair, 0)->rails[0].adapter->context);
		query_port = context->query_port;
		context->query_port = query_port_late;
		stale_answers = late;
		break_qps(verbs_of(&pair, 0));
		assert_true(end_complete(&pair.ends[0], &receive));
		context->query_port = query_port;
		assert_says(&receive, COLLET_ERR_PEER_LOST, "the port is down");
		pair_close(&pair);
	}
}

/* The peer's process lives and its socket is open, but its adapter no longer answers, and this end only receives. */
static void a_silent_adapter_is_detected(void **state)
{
	for (unsigned asleep = 0; asleep < 2; asleep++) {
		struct pair pair = { 0 };
		pair_open(&pair, "verbs");
		uint8_t into[100];
		struct collet_transfer receive = transfer_of(1, into, sizeof(into));
		post_recv(&pair.ends[0], &receive);
		break_qps(verbs_of(&pair, 1));
		const int64_t began = collet_clock_ns();
		assert_true(asleep ? complete_asleep(&pair.ends[0], &receive) : end_complete(&pair.ends[0], &receive));
		assert_true(collet_clock_ns() - began < INT64_C(15000000000));
		assert_says(&receive, COLLET_ERR_PEER_LOST, "transport retry counter exceeded");
		assert_says(&receive, COLLET_ERR_PEER_LOST, "rxe");
		assert_says(&receive, COLLET_ERR_PEER_LOST, "to 10.77.0.");
		assert_says(&receive, COLLET_ERR_PEER_LOST, "rank 11 on beta");
		pair_close(&pair);
	}
}

/* Like a device that was removed: it reports neither completions nor errors. */
static void an_adapter_without_completions_is_lost(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	uint8_t into[100];
	struct collet_transfer receive = transfer_of(1, into, sizeof(into));
	post_recv(&pair.ends[0], &receive);
	struct verbs_qp *quiet = &verbs_of(&pair, 0)->qps[2];
	quiet->is_probing = true;
	quiet->probed_ns = collet_clock_ns() - INT64_C(60000000000);
	assert_true(end_complete(&pair.ends[0], &receive));
	assert_says(&receive, COLLET_ERR_TRANSPORT, "reports no completions any more");
	assert_says(&receive, COLLET_ERR_TRANSPORT, verbs_of(&pair, 0)->rails[1].adapter->name);
	assert_says(&receive, COLLET_ERR_TRANSPORT, "the port is active");
	pair_close(&pair);
}

static void a_broken_queue_pair_fails_both_ends(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	uint8_t into[2][100];
	struct collet_transfer receives[2];
	for (int i = 0; i < 2; i++) {
		receives[i] = transfer_of(1, into[i], sizeof(into[i]));
		post_recv(&pair.ends[i], &receives[i]);
	}
	break_qps(verbs_of(&pair, 0));
	assert_true(end_complete(&pair.ends[0], &receives[0]));
	assert_says(&receives[0], COLLET_ERR_PEER_LOST, "Work Request Flushed Error");
	assert_true(end_complete(&pair.ends[1], &receives[1]));
	assert_says(&receives[1], COLLET_ERR_PEER_LOST, "rank 10 on alpha");
	pair_close(&pair);
}

/* Nobody acknowledges the last message, although the path is still open. Takes the least of several times, because the
 * machine may be busy. */
static void nobody_waits_for_a_peer_that_has_closed(void **state)
{
	int64_t least = INT64_MAX;
	for (int i = 0; i < 4; i++) {
		struct pair pair = { 0 };
		uint8_t from[100] = { 0 };
		pair_open(&pair, "verbs");
		pair.transport->close(pair.ends[1].endpoint);
		struct collet_transfer send = transfer_of(1, from, sizeof(from));
		post_send(&pair.ends[0], &send);
		assert_int_equal(send.status, COLLET_OK);
		const int64_t began = collet_clock_ns();
		pair.transport->close(pair.ends[0].endpoint);
		const int64_t took = collet_clock_ns() - began;
		least = took < least ? took : least;
		pair_close(&pair);
	}
	assert_true(least < INT64_C(700000000));  /* less than the second that it waits for a live peer */
}

static void an_invalid_message_ends_the_connection(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "verbs");
	const struct verbs_endpoint *evil = verbs_of(&pair, 0);
	uint8_t into[100], rubbish[64];
	memset(rubbish, 0x5a, sizeof(rubbish));
	struct ibv_sge part = { .addr = (uintptr_t)rubbish, .length = sizeof(rubbish) };
	struct ibv_send_wr *refused, request = { .sg_list = &part,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_INLINE,
		.wr.rdma = { .remote_addr = evil->peer_memory, .rkey = evil->peer_rkeys[evil->qps[0].peer_rail] } };
	struct collet_transfer receive = transfer_of(1, into, sizeof(into));
	post_recv(&pair.ends[1], &receive);
	assert_int_equal(ibv_post_send(evil->qps[0].qp, &request, &refused), 0);
	assert_true(end_complete(&pair.ends[1], &receive));
	assert_says(&receive, COLLET_ERR_TRANSPORT, "are no valid message");
	pair_close(&pair);
}

int main(void)
{
	/* Lets adapters give up sooner: 2^14 * 4.096 us, 7 times. */
	setenv("COLLET_VERBS_TIMEOUT", "14", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_adapter_takes_over),
		cmocka_unit_test(a_fatal_event_ends_its_endpoint),
		cmocka_unit_test(a_broken_device_is_abandoned),
		cmocka_unit_test(a_port_error_is_noticed),
		cmocka_unit_test(a_port_that_has_just_gone_is_not_called_active),
		cmocka_unit_test(a_silent_adapter_is_detected),
		cmocka_unit_test(an_adapter_without_completions_is_lost),
		cmocka_unit_test(a_broken_queue_pair_fails_both_ends),
		cmocka_unit_test(nobody_waits_for_a_peer_that_has_closed),
		cmocka_unit_test(an_invalid_message_ends_the_connection),
	};
	return cmocka_run_group_tests_name("verbs, faults", tests, NULL, NULL);
}
