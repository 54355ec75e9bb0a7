/* Tests the internals of verbs: options reach the queue pairs, the choice of adapters, their shares of a message, and
 * the limits of an adapter. Some calls of libibverbs and fopen() by the module are intercepted here. */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "verbs_ends.h"

#define EXPORTED __attribute__((visibility("default")))

/* ---- Intercepted calls ---------------------------------------------------------------------------------------- */

static struct ibv_qp_attr rtr_attributes, rts_attributes;

EXPORTED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int) = NULL;
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_modify_qp");
	if (attributes->qp_state == IBV_QPS_RTR)
		rtr_attributes = *attributes;
	if (attributes->qp_state == IBV_QPS_RTS)
		rts_attributes = *attributes;
	return real(qp, attributes, mask);
}

static uint32_t max_inline_bytes = UINT32_MAX, qps_left = UINT32_MAX;

EXPORTED struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	struct ibv_qp *(*real)(struct ibv_pd *, struct ibv_qp_init_attr *) = NULL;
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_create_qp");
	errno = attributes->cap.max_inline_data > max_inline_bytes ? EINVAL : ENOMEM;
	if (attributes->cap.max_inline_data > max_inline_bytes || qps_left == 0)
		return NULL;
	qps_left--;
	return real(pd, attributes);
}

/* Contents of local_cpulist, as for adapters that are not virtual. NULL: the real file. */
static const char *first_cpulist, *second_cpulist;

EXPORTED FILE *fopen(const char *path, const char *mode)
{
	FILE *(*real)(const char *, const char *) = NULL;
	*(void **)&real = dlsym(RTLD_NEXT, "fopen");
	const char *cpulist = strstr(path, "rxe0/device/local_cpulist")   ? first_cpulist
			      : strstr(path, "rxe1/device/local_cpulist") ? second_cpulist
									  : NULL;
	return cpulist ? fmemopen((void *)cpulist, strlen(cpulist), "r") : real(path, mode);
}

/* ---- Options ---------------------------------------------------------------------------------------------------- */

static void options_reach_the_queue_pairs(void **state)
{
	static const char *const options[][2] = {{"COLLET_VERBS_TRAFFIC_CLASS", "104"},
		{"COLLET_VERBS_SERVICE_LEVEL", "3"}, {"COLLET_VERBS_TIMEOUT", "15"}, {"COLLET_VERBS_RETRY_COUNT", "5"},
		{"COLLET_VERBS_GID_INDEX", "0"}};
	struct pair pair = {0};
	pair_open(&pair, "verbs");
	assert_int_equal(rtr_attributes.ah_attr.grh.traffic_class, 0);
	assert_int_equal(rtr_attributes.ah_attr.sl, 0);
	assert_int_equal(rtr_attributes.ah_attr.grh.sgid_index, 1);
	assert_true(rts_attributes.retry_cnt < 7);
	pair_close(&pair);
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		setenv(options[i][0], options[i][1], 1);
	pair_open(&pair, "verbs");
	assert_int_equal(rtr_attributes.ah_attr.grh.traffic_class, 104);
	assert_int_equal(rtr_attributes.ah_attr.sl, 3);
	assert_int_equal(rtr_attributes.ah_attr.grh.sgid_index, 0);
	assert_int_equal(rts_attributes.timeout, 15);
	assert_int_equal(rts_attributes.retry_cnt, 5);
	pair_close(&pair);
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		unsetenv(options[i][0]);
}

/* ---- Choice and shares ------------------------------------------------------------------------------------------ */

/* Checks the adapters of a rank that runs on this CPU. */
static void check_adapters_near(unsigned cpu, uint32_t count, const char *first)
{
	cpu_set_t all, one;
	struct pair pair = {0};
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	pair_open(&pair, "verbs");
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	const struct collet_device *device = pair.ends[0].instance->device;
	assert_int_equal(device->adapter_count, count);
	assert_string_equal(device->adapters[0].name, first);
	pair_close(&pair);
}

static void the_nearest_adapters_are_chosen(void **state)
{
	first_cpulist = "0-1\n";
	second_cpulist = "2,3\n";
	check_adapters_near(1, 1, "rxe0");
	check_adapters_near(3, 1, "rxe1");
	second_cpulist = "0,2-3\n";
	check_adapters_near(0, 2, "rxe0");
	first_cpulist = second_cpulist = "100-120\n"; /* no adapter is near */
	check_adapters_near(0, 2, "rxe0");
	first_cpulist = second_cpulist = NULL;
	check_adapters_near(0, 2, "rxe0");
}

static uint64_t sent_bytes[2];
static struct {
	const struct ibv_context *context;
	struct ibv_context_ops real;
} adapters[2];

static int count_bytes(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **refused)
{
	const int which = adapters[1].context == qp->context;
	for (int i = 0; i < request->num_sge; i++)
		sent_bytes[which] += request->sg_list[i].length;
	return adapters[which].real.post_send(qp, request, refused);
}

static void adapters_share_by_their_rates(void **state)
{
	enum { BYTES = 1200000, SLACK = 4096, FAST = 3 };
	struct pair pair = {0};
	uint8_t *from = malloc(BYTES), *into = malloc(BYTES);
	pair_open(&pair, "verbs");
	for (int end = 0; end < 2; end++)
		for (uint32_t i = 0; i < 2; i++) {
			struct verbs_adapter *adapter = &pair.ends[end].instance->device->adapters[i];
			adapter->rate_mbps = strcmp(adapter->name, "rxe1") == 0 ? FAST * 1000 : 1000;
		}
	/* Each end numbers both adapters in another order, so a fast one is connected to a slow one. The rate of the
	 * slower end counts. */
	reopen(&pair);
	struct verbs_endpoint *sender = verbs_of(&pair, 0);
	for (uint32_t p = 1; p < sender->qp_count; p++)
		assert_int_equal(sender->rates_mbps[p], 1000);
	sender->rates_mbps[1] = FAST * 1000;
	for (uint32_t i = 0; i < 2; i++) {
		struct ibv_context *context = sender->rails[i].adapter->context;
		adapters[i].context = context;
		adapters[i].real = context->ops;
		context->ops.post_send = count_bytes;
	}
	exchange(&pair, 1, from, into, BYTES);
	for (uint32_t i = 0; i < 2; i++)
		sender->rails[i].adapter->context->ops = adapters[i].real;
	assert_true(sent_bytes[0] > BYTES / 4 * FAST - SLACK && sent_bytes[0] < BYTES / 4 * FAST + SLACK);
	assert_true(sent_bytes[1] > BYTES / 4 - SLACK && sent_bytes[1] < BYTES / 4 + SLACK);
	free(from);
	free(into);
	pair_close(&pair);
}

/* ---- Limits ----------------------------------------------------------------------------------------------------- */

static void an_adapter_may_take_less_inline(void **state)
{
	static const uint32_t most[] = {128, 100, 64, 0};
	uint8_t from[300], into[300];
	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		struct pair pair = {0};
		max_inline_bytes = most[i];
		pair_open(&pair, "verbs");
		assert_true(verbs_of(&pair, 0)->qps[0].inline_bytes <= most[i]);
		for (uint64_t s = 0; s < 60; s++)
			exchange(&pair, s, from, into, s * 5);
		pair_close(&pair);
	}
	max_inline_bytes = UINT32_MAX;
}

/* Checks that an endpoint cannot be opened, with this reason, and that nothing of it is left. */
static void assert_refused(struct pair *pair, const char *why)
{
	struct end *end = &pair->ends[0];
	const struct collet_transport *transport = pair->transport;
	struct collet_endpoint *endpoint = aligned_alloc(64, (transport->endpoint_bytes + 63) & ~(size_t)63);
	memset(endpoint, 0, transport->endpoint_bytes);
	pair_connect_tcp(pair);
	const struct collet_endpoint_config config = { .self = &end->peer_info,
		.peer = &pair->ends[1].peer_info,
		.channel = 4,
		.dialed = true,
		.socket = pair->sockets[0],
		.wake = &end->wake,
		.log = &end->log,
		.services = &collet_transport_services,
		.device = end->instance->device };
	pair->sockets[0] = -1;
	endpoint->transport = transport;
	endpoint->peer = pair->ends[1].peer_info.rank;
	endpoint->channel = 4;
	assert_int_equal(transport->open(endpoint, &config), COLLET_ERR_TRANSPORT);
	if (!strstr(collet_last_error(), why))
		fail_msg("%s", collet_last_error());
	transport->close(endpoint);
	free(endpoint);
}

static void missing_resources_are_refused(void **state)
{
	struct pair pair = {0};
	uint8_t from[100], into[100];
	pair_open(&pair, "verbs");
	struct collet_device *device = pair.ends[0].instance->device;
	for (qps_left = 0; qps_left < 3;) {
		const uint32_t left = qps_left;
		assert_refused(&pair, "no queue pair (has the adapter too many?)");
		qps_left = left + 1;
	}
	qps_left = UINT32_MAX;
	const int most = device->adapters[0].attributes.max_qp_wr;
	device->adapters[0].attributes.max_qp_wr = 16;
	assert_refused(&pair, "its queue pairs are too short");
	device->adapters[0].attributes.max_qp_wr = most;
	assert_int_equal(device->endpoint_count, 1);
	exchange(&pair, 1, from, into, sizeof(from));
	reopen(&pair);
	exchange(&pair, 2, from, into, sizeof(from));
	pair_close(&pair);
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	if (!devices || !devices[0] || !devices[1]) {
		puts("skipped: there are no two RDMA devices");
		return 77;
	}
	ibv_free_device_list(devices);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_reach_the_queue_pairs),
		cmocka_unit_test(the_nearest_adapters_are_chosen),
		cmocka_unit_test(adapters_share_by_their_rates),
		cmocka_unit_test(an_adapter_may_take_less_inline),
		cmocka_unit_test(missing_resources_are_refused),
	};
	return cmocka_run_group_tests_name("verbs, choice", tests, NULL, NULL);
}
