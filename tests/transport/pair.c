/* Implements the connected pair of endpoints that the tests of transports start from. */
#include "pair.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/config.h"

static const int64_t patience_ns = INT64_C(20000000000);

static void set_buffers(int socket, int bytes)
{
	if (!bytes)
		return;
	assert_int_equal(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
	assert_int_equal(setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
}

static void connect_loopback(int sockets[2], int buffer_bytes)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	set_buffers(listener, buffer_bytes);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
	sockets[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	set_buffers(sockets[0], buffer_bytes);
	assert_int_equal(connect(sockets[0], (struct sockaddr *)&address, bytes), 0);
	sockets[1] = accept(listener, NULL, NULL);
	assert_true(sockets[1] >= 0);
	close(listener);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fcntl(sockets[i], F_SETFL, O_NONBLOCK), 0);
}

void pair_connect_tcp(struct pair *pair)
{
	connect_loopback(pair->sockets, pair->socket_buffer_bytes);
}

static void make_wake(struct collet_wake *wake)
{
	wake->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	wake->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
	assert_int_equal(epoll_ctl(wake->epoll_fd, EPOLL_CTL_ADD, wake->event_fd, &event), 0);
}

/* Opens the end's own device, in the process that will use it. */
static void open_transport(struct pair *pair, struct end *end)
{
	const struct collet_device_config config = {
		.services = &collet_transport_services,
		.log = &end->log,
		.self = &end->peer_info,
		.arena = end->arena,
		.wake = &end->wake,
		.job_id = 1,
	};
	const collet_status status = collet_transports_open(&end->set, pair->name, &config, &end->peer_info);
	if (status != COLLET_OK)
		print_error("%s\n", collet_last_error());
	assert_int_equal(status, COLLET_OK);
	end->instance = collet_transports_find(&end->set, pair->name, NULL);
}

void pair_connect(struct pair *pair, const char *name, bool processes)
{
	bool allows_cma = false;
	pair->name = name;
	assert_int_equal(collet_env_bool("COLLET_SHM_CMA", &allows_cma), COLLET_OK);
	for (uint32_t i = 0; i < 2; i++) {
		struct end *end = &pair->ends[i];
		*end = (struct end){ .peer_info = { .rank = FIRST_RANK + i,
					    .pid = (uint32_t)getpid() + (processes ? i : 0),
					    .host_id = 1,
					    .process_id = processes ? i : 0,
					    .uid = getuid(),
					    .allows_cma = allows_cma,
					    .family = AF_INET,
					    .usable_cores = 2 } };
		strcpy(end->peer_info.host, i ? "beta" : "alpha");
		make_wake(&end->wake);
	}
	/* Opened only to fill in the peer infos and to query the transport: the processes of the ends are not known
	 * here. */
	for (int i = 0; i < 2; i++)
		open_transport(pair, &pair->ends[i]);
	const struct collet_transport_instance *instance = pair->ends[0].instance;
	const bool local = instance->transport->caps & COLLET_CAP_LOCAL;
	pair->single = !collet_transport_instance_reaches(instance, &pair->ends[0].peer_info, &pair->ends[1].peer_info);
	pair->sockets[0] = pair->sockets[1] = -1;
	if (pair->single)
		assert_true(collet_transport_instance_reaches(
			instance, &pair->ends[0].peer_info, &pair->ends[0].peer_info));
	for (int i = 0; i < 2; i++)
		collet_transports_close(&pair->ends[i].set, false);
	if (pair->single)
		return;
	if (local)
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair->sockets), 0);
	else
		connect_loopback(pair->sockets, pair->socket_buffer_bytes);
}

void pair_begin(struct pair *pair, int which)
{
	struct end *end = &pair->ends[which];
	open_transport(pair, end);
	pair->transport = end->instance->transport;
	const struct collet_endpoint_config config = {
		.self = &end->peer_info,
		.peer = pair->single ? &end->peer_info : &pair->ends[!which].peer_info,
		.channel = 3,
		.dialed = which == 0,
		.socket = pair->sockets[which],
		.wake = &end->wake,
		.arena = end->arena,
		.log = &end->log,
		.services = &collet_transport_services,
		.device = end->instance->device,
	};
	const size_t bytes = (pair->transport->endpoint_bytes + 63) / 64 * 64;
	end->endpoint = aligned_alloc(64, bytes);
	memset(end->endpoint, 0, bytes);
	end->endpoint->transport = pair->transport;
	end->endpoint->peer = config.peer->rank;
	end->endpoint->channel = config.channel;
	pair->sockets[which] = -1;
	const collet_status status = pair->transport->open(end->endpoint, &config);
	if (status != COLLET_OK)
		print_error("open: %s\n", collet_last_error());
	assert_int_equal(status, COLLET_OK);
}

collet_status pair_await(struct pair *pair, int which)
{
	collet_status status = COLLET_PENDING;
	for (const int64_t deadline = collet_deadline_after(patience_ns); status == COLLET_PENDING;) {
		struct end *other = &pair->ends[!which];
		if (other->endpoint && !pair->single)
			(void)other->endpoint->transport->open_progress(other->endpoint);
		status = pair->transport->open_progress(pair->ends[which].endpoint);
		if (status == COLLET_PENDING && collet_deadline_passed(deadline))
			return COLLET_ERR_TIMEOUT;
	}
	return status;
}

void pair_open(struct pair *pair, const char *name)
{
	pair_connect(pair, name, false);
	pair_begin(pair, 0);
	if (pair->single)
		pair->ends[1].endpoint = pair->ends[0].endpoint;
	else
		pair_begin(pair, 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_await(pair, i), COLLET_OK);
	for (int i = 0; i < 2; i++) {
		const struct collet_endpoint *endpoint = pair->ends[i].endpoint;
		assert_ptr_equal(endpoint->transport, pair->ends[pair->single ? 0 : i].instance->transport);
		assert_int_equal(endpoint->status, COLLET_OK);
		assert_int_equal(endpoint->peer, pair->single ? FIRST_RANK : FIRST_RANK + !i);
		assert_int_equal(endpoint->channel, 3);
		assert_int_equal(endpoint->posted, 0);
	}
}

void pair_close(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		struct end *end = &pair->ends[i];
		if (end->endpoint && !(i == 1 && pair->single)) {
			pair->transport->close(end->endpoint);
			free(end->endpoint);
		}
		collet_transports_close(&end->set, false);
		if (pair->sockets[i] >= 0)
			close(pair->sockets[i]);
		close(end->wake.epoll_fd);
		close(end->wake.event_fd);
	}
	*pair = (struct pair){ 0 };
}

bool pair_complete(struct pair *pair, const struct collet_transfer *transfer)
{
	for (const int64_t deadline = collet_deadline_after(patience_ns); transfer->status == COLLET_PENDING;) {
		for (int i = 0; i < 2; i++)
			if (pair->ends[i].endpoint && pair->ends[i].endpoint->posted)
				pair->transport->progress(pair->ends[i].endpoint);
		if (collet_deadline_passed(deadline))
			return false;
	}
	return true;
}

bool end_complete(struct end *end, const struct collet_transfer *transfer)
{
	for (const int64_t deadline = collet_deadline_after(patience_ns); transfer->status == COLLET_PENDING;) {
		if (end->endpoint->transport->progress(end->endpoint) == 0)
			sched_yield();
		if (collet_deadline_passed(deadline))
			return false;
	}
	return true;
}

static void sleep_once(struct collet_wake *wake, int64_t deadline)
{
	struct epoll_event events[4];
	const int count = epoll_wait(wake->epoll_fd, events, 4, collet_deadline_ms(deadline, 20000));
	for (int i = 0; i < count; i++) {
		uint64_t rung;
		if (!events[i].data.ptr && read(wake->event_fd, &rung, sizeof(rung)) < 0)
			continue;  /* another call has read it */
	}
}

bool end_complete_asleep(struct end *end, const struct collet_transfer *transfer)
{
	const struct collet_transport *transport = end->endpoint->transport;
	for (const int64_t deadline = collet_deadline_after(patience_ns); transfer->status == COLLET_PENDING;) {
		transport->progress(end->endpoint);
		if (transfer->status != COLLET_PENDING)
			break;
		if (transport->arm(end->endpoint))
			sleep_once(&end->wake, deadline);
		transport->disarm(end->endpoint);
		if (collet_deadline_passed(deadline))
			return false;
	}
	return true;
}

bool end_peek(struct end *end, struct collet_message *message, bool asleep)
{
	const struct collet_transport *transport = end->endpoint->transport;
	for (const int64_t deadline = collet_deadline_after(patience_ns); !transport->peek(end->endpoint, message);) {
		if (end->endpoint->status != COLLET_OK || collet_deadline_passed(deadline))
			return false;
		if (!asleep)
			continue;
		if (transport->arm(end->endpoint))
			sleep_once(&end->wake, deadline);
		transport->disarm(end->endpoint);
	}
	return true;
}

struct collet_transfer transfer_of(uint64_t sequence, void *data, size_t bytes)
{
	return (struct collet_transfer){
		.message = { .signature = 7, .sequence = sequence, .bytes = bytes }, .data = data };
}

static uint8_t pattern_at(size_t place, uint64_t seed)
{
	const uint64_t mixed =
		((uint64_t)place / 8 + seed * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
	return (uint8_t)(mixed >> (place % 8 * 8));
}

void pattern_fill(void *data, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)data)[i] = pattern_at(i, seed);
}

bool pattern_is(const void *data, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		if (((const uint8_t *)data)[i] != pattern_at(i, seed))
			return false;
	return true;
}

/* Sends messages until one arrives as a view that may be returned. True also if one fails. */
static bool returns_views(struct pair *pair)
{
	/* Static, because the endpoint keeps failed ones until it closes. */
	static uint8_t from[1 << 20], into[1 << 20];
	static struct collet_transfer send, view;
	for (size_t bytes = 1; bytes <= sizeof(from); bytes *= 4) {
		send = transfer_of(bytes, from, bytes);
		view = transfer_of(bytes, into, bytes);
		send.flags = COLLET_TRANSFER_CONTIGUOUS;
		view.flags = COLLET_TRANSFER_VIEW;
		pair->transport->post_send(pair->ends[0].endpoint, &send);
		pair->transport->post_recv(pair->ends[1].endpoint, &view);
		if (!pair_complete(pair, &view) || view.status != COLLET_OK)
			return true;
		const bool is_returnable = view.flags & COLLET_TRANSFER_RETURNABLE;
		pair->transport->release_view(pair->ends[1].endpoint, &view);
		if (!pair_complete(pair, &send) || is_returnable)
			return true;
	}
	return false;
}

unsigned transport_features(const char *name)
{
	enum { ANSWERED = HAS_ALL + 1 };
	const pid_t child = fork();
	if (child == 0) {
		struct pair pair = { 0 };
		unsigned has = ANSWERED;
		pair_open(&pair, name);
		has |= pair.single ? 0 : HAS_PEERS;
		has |= pair.transport->is_recv_ready ? HAS_RECV_READY : 0;
		has |= pair.transport->try_send ? HAS_TRIES : 0;
		has |= returns_views(&pair) ? HAS_RETURNED_VIEWS : 0;
		pair_close(&pair);
		_exit((int)has);
	}
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return HAS_ALL;
	return WEXITSTATUS(status) & ANSWERED ? WEXITSTATUS(status) & HAS_ALL : HAS_ALL;
}

int run_on_transports(const char *group, const struct promise *promises, size_t count, const struct subject *subjects)
{
	size_t transports = 0, rows = 0;
	while (subjects[transports].name)
		transports++;
	char (*row_names)[80] = calloc(transports * count, sizeof(*row_names));
	struct CMUnitTest *tests = calloc(transports * count, sizeof(*tests));
	for (size_t t = 0; t < transports; t++) {
		for (size_t p = 0; p < count; p++) {
			if (promises[p].needs & ~subjects[t].has)
				continue;
			snprintf(row_names[rows], sizeof(row_names[rows]), "%s/%s", subjects[t].name, promises[p].name);
			tests[rows] = (struct CMUnitTest){ .name = row_names[rows], .test_func = promises[p].run,
				.initial_state = (void *)(uintptr_t)subjects[t].name };
			rows++;
		}
	}
	const int failed = _cmocka_run_group_tests(group, tests, rows, NULL, NULL);
	free(tests);
	free(row_names);
	return failed;
}
