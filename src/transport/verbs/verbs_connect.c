/* verbs: connection setup. The two ends exchange their queue pair numbers over the socket and connect the queue pairs.
 * Then each probes every queue pair, to check that the adapters really reach each other: hosts may share one network
 * for sockets and have none, or another one, for RDMA. If the check fails, the pair falls back to another transport.
 * Each end announces every finished state and waits for the same from its peer, so neither takes an endpoint for ready
 * that the other has refused. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_completion.h"
#include "verbs_endpoint.h"
#include "verbs_iwarp.h"

enum { HELLO_MAGIC = 0x76746c67, PROTOCOL_VERSION = 3 };
/* Keepalive of the socket. Pairs of ranks start at different times, to spread the probes; tcp.c has the same
 * numbers. */
enum { KEEPALIVE_IDLE_S = 8, KEEPALIVE_SPREAD_S = 5, KEEPALIVE_INTERVAL_S = 2, KEEPALIVE_COUNT = 10 };
enum { SEQUENCE_BITS = 24, MIN_RNR_TIMER = 12, RNR_RETRIES = 6, HOP_LIMIT = 255 };

collet_status collet_verbs_fail_connect(const struct verbs_endpoint *verbs, const char *what, const char *why)
{
	return verbs->services->fail(COLLET_ERR_TRANSPORT, "verbs: rank %u on %s, channel %u: %s: %s",
		verbs->endpoint.peer, verbs->peer->host, verbs->endpoint.channel, what, why);
}

/* ---- Opening ------------------------------------------------------------------------------------------------ */

static void fill_hello(struct verbs_endpoint *verbs)
{
	struct verbs_hello *hello = &verbs->hello_out;
	*hello = (struct verbs_hello){ .magic = HELLO_MAGIC, .version = PROTOCOL_VERSION, .state = VERBS_SEND_HELLO,
		.from = verbs->self->rank, .to = verbs->peer->rank, .channel = verbs->endpoint.channel,
		.rail_count = verbs->rail_count, .qp_count = verbs->qp_count,
		.is_lean = verbs->profile->is_lean, .memory = (uintptr_t)verbs->memory };
	/* A start number from the clock: late packets of an earlier connection must not be valid in this one. */
	hello->start_sequence = (uint32_t)((uint64_t)collet_verbs_now_ns() >> 10) & ((1u << SEQUENCE_BITS) - 1);
	for (uint32_t r = 0; r < verbs->rail_count; r++) {
		const struct verbs_adapter *adapter = verbs->rails[r].adapter;
		memcpy(hello->rails[r].gid, adapter->gid.raw, sizeof(hello->rails[r].gid));
		hello->rails[r].rkey = verbs->rails[r].mr->rkey;
		hello->rails[r].rate_mbps = adapter->rate_mbps;
		hello->rails[r].max_write_bytes = adapter->max_write_bytes;
		hello->rails[r].lid = adapter->lid;
		hello->rails[r].mtu = (uint8_t)adapter->mtu;
		hello->rails[r].network = (uint8_t)adapter->network;
	}
	for (uint32_t p = 0; p < verbs->qp_count; p++) {
		hello->qps[p].qp_number = verbs->qps[p].qp->qp_num;
		hello->qps[p].rail = verbs->qps[p].rail;
	}
}

static void set_keepalive(const struct verbs_endpoint *verbs)
{
	const uint32_t spread = verbs->self->rank + verbs->endpoint.peer + verbs->endpoint.channel;
	const struct {
		int level, name, value;
	} rows[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, 0 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S + (int)(spread % KEEPALIVE_SPREAD_S) },
		{ IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		(void)setsockopt(verbs->socket, rows[i].level, rows[i].name, &rows[i].value, sizeof(rows[i].value));
}

collet_status collet_verbs_open(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config)
{
	struct verbs_endpoint *verbs = (struct verbs_endpoint *)endpoint;
	endpoint->status = COLLET_OK;
	verbs->state = VERBS_SEND_HELLO;
	verbs->services = config->services;
	verbs->device = config->device;
	verbs->self = config->self;
	verbs->peer = config->peer;
	verbs->log = config->log;
	verbs->socket = config->socket;
	verbs->epoll_fd = config->wake->epoll_fd;
	verbs->owner_pid = getpid();
	verbs->is_dialer = config->dialed;
	set_keepalive(verbs);
	endpoint->status = collet_verbs_create_resources(verbs);
	if (endpoint->status != COLLET_OK)
		return endpoint->status;
	fill_hello(verbs);
	if (verbs_is_iwarp(verbs) && !verbs->is_dialer)
		endpoint->status = collet_verbs_iwarp_listen(verbs);
	return endpoint->status;
}

/* ---- Hello -------------------------------------------------------------------------------------------------- */

static collet_status fail_closed(const struct verbs_endpoint *verbs, int error)
{
	return collet_verbs_fail_connect(verbs, "the connection ended before it was ready",
		error ? strerror(error) : "closed by the peer");
}

static collet_status send_hello(struct verbs_endpoint *verbs)
{
	const uint8_t *bytes = (const uint8_t *)&verbs->hello_out;
	while (verbs->hello_sent_bytes < sizeof(verbs->hello_out)) {
		verbs->endpoint.stats.system_calls++;
		const ssize_t written = send(verbs->socket, bytes + verbs->hello_sent_bytes,
			sizeof(verbs->hello_out) - verbs->hello_sent_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : fail_closed(verbs, errno);
		verbs->hello_sent_bytes += (size_t)written;
	}
	verbs->hello_sent_bytes = 0;
	return COLLET_OK;
}

/* Receives the peer's hello of this state. Returns COLLET_PENDING until it is complete. */
static collet_status receive_hello(struct verbs_endpoint *verbs, enum verbs_state state)
{
	uint8_t *bytes = (uint8_t *)&verbs->hello_in;
	while (verbs->hello_received_bytes < sizeof(verbs->hello_in)) {
		verbs->endpoint.stats.system_calls++;
		const ssize_t got = recv(verbs->socket, bytes + verbs->hello_received_bytes,
			sizeof(verbs->hello_in) - verbs->hello_received_bytes, MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return COLLET_PENDING;
		if (got <= 0)
			return fail_closed(verbs, got < 0 ? errno : 0);
		verbs->hello_received_bytes += (size_t)got;
	}
	verbs->hello_received_bytes = 0;
	const struct verbs_hello *hello = &verbs->hello_in;
	if (hello->magic != HELLO_MAGIC || hello->version != PROTOCOL_VERSION)
		return collet_verbs_fail_connect(verbs, "received no hello of this version of verbs",
			"is something else talking to this port, or another version of the transport?");
	if (hello->state != state || hello->from != verbs->peer->rank || hello->to != verbs->self->rank ||
		hello->channel != verbs->endpoint.channel)
		return collet_verbs_fail_connect(
			verbs, "received a hello for another connection", "this should not happen");
	return COLLET_OK;
}

/* ---- Connecting --------------------------------------------------------------------------------------------- */

static bool is_hello_valid(const struct verbs_hello *hello)
{
	bool is_valid = hello->rail_count >= 1 && hello->rail_count <= VERBS_RAILS_MAX && hello->qp_count >= 2 &&
			hello->qp_count <= VERBS_QPS_MAX;
	for (uint32_t r = 0; is_valid && r < hello->rail_count; r++)
		is_valid = hello->rails[r].mtu >= IBV_MTU_256 && hello->rails[r].mtu <= IBV_MTU_4096 &&
			hello->rails[r].max_write_bytes >= collet_verbs_profile_wide.bounce_bytes;
	for (uint32_t p = 0; is_valid && p < hello->qp_count; p++)
		is_valid = hello->qps[p].rail < hello->rail_count;
	return is_valid;
}

static collet_status connect_qp(struct verbs_endpoint *verbs, uint32_t index)
{
	const struct verbs_hello *hello = &verbs->hello_in;
	struct verbs_qp *qp = &verbs->qps[index];
	const struct verbs_adapter *adapter = verbs->rails[qp->rail].adapter;
	const struct verbs_options *options = &verbs->device->options;
	qp->peer_rail = hello->qps[index].rail;
	if ((uint8_t)adapter->network != hello->rails[qp->peer_rail].network)
		return collet_verbs_fail_connect(
			verbs, "its two ends are on networks of different kinds", adapter->name);
	if (adapter->network == VERBS_NETWORK_IWARP)
		return COLLET_OK;
	const uint8_t mtu = hello->rails[qp->peer_rail].mtu;
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_RTR,
		.path_mtu = mtu < (uint8_t)adapter->mtu ? (enum ibv_mtu)mtu : adapter->mtu,
		.dest_qp_num = hello->qps[index].qp_number,
		.rq_psn = hello->start_sequence,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = { .dlid = hello->rails[qp->peer_rail].lid,
			.sl = options->service_level,
			.port_num = adapter->port,
			.is_global = adapter->network == VERBS_NETWORK_ROCE,
			.grh = { .sgid_index = adapter->gid_index,
				.hop_limit = HOP_LIMIT,
				.traffic_class = options->traffic_class } } };
	memcpy(attributes.ah_attr.grh.dgid.raw, hello->rails[qp->peer_rail].gid, 16);
	int error = ibv_modify_qp(qp->qp, &attributes,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!error) {
		attributes = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
			.timeout = options->timeout,
			.retry_cnt = options->retries,
			.rnr_retry = RNR_RETRIES,
			.sq_psn = verbs->hello_out.start_sequence,
			.max_rd_atomic = 1 };
		error = ibv_modify_qp(qp->qp, &attributes,
			IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC);
	}
	if (!error)
		return COLLET_OK;
	char own_gid[INET6_ADDRSTRLEN], peer_gid[INET6_ADDRSTRLEN], what[200];
	snprintf(what, sizeof(what), "cannot connect %s port %u (%s) to %s", adapter->name, adapter->port,
		collet_verbs_gid_text(adapter->gid.raw, own_gid, sizeof(own_gid)),
		collet_verbs_gid_text(hello->rails[qp->peer_rail].gid, peer_gid, sizeof(peer_gid)));
	return collet_verbs_fail_connect(verbs, what, strerror(error));
}

/* Divides the registered memory by the profile that both ends use. The memory may be larger than that needs. */
static void lay_out_memory(struct verbs_endpoint *verbs)
{
	const size_t ring = (size_t)verbs->profile->units * VERBS_UNIT_BYTES,
		     bounce = VERBS_BOUNCE_BUFFERS * verbs->profile->bounce_bytes;
	verbs->ring = verbs->memory->rest;
	verbs->recv_bounce = verbs->ring + ring;
	verbs->mirror = verbs->recv_bounce + bounce;
	verbs->send_bounce = verbs->mirror + ring;
	verbs->out_free_units = verbs->profile->units;
}

static collet_status connect_qps(struct verbs_endpoint *verbs)
{
	const struct verbs_hello *hello = &verbs->hello_in;
	if (!is_hello_valid(hello))
		return collet_verbs_fail_connect(verbs, "the peer's hello is invalid", "this should not happen");
	if (hello->is_lean)
		verbs->profile = &collet_verbs_profile_lean;
	lay_out_memory(verbs);
	/* Both ends use the smaller number of queue pairs. */
	while (verbs->qp_count > hello->qp_count)
		ibv_destroy_qp(verbs->qps[--verbs->qp_count].qp);
	verbs->peer_memory = hello->memory;
	verbs->max_write_bytes = VERBS_SEGMENT_BYTES;
	for (uint32_t r = 0; r < hello->rail_count; r++) {
		verbs->peer_rkeys[r] = hello->rails[r].rkey;
		if (hello->rails[r].max_write_bytes < verbs->max_write_bytes)
			verbs->max_write_bytes = hello->rails[r].max_write_bytes;
	}
	collet_status status = COLLET_OK;
	for (uint32_t p = 0; p < verbs->qp_count && status == COLLET_OK; p++) {
		status = connect_qp(verbs, p);
		const struct verbs_adapter *adapter = verbs->rails[verbs->qps[p].rail].adapter;
		const uint32_t peer_rate = hello->rails[verbs->qps[p].peer_rail].rate_mbps;
		verbs->rates_mbps[p] = peer_rate < adapter->rate_mbps ? peer_rate : adapter->rate_mbps;
		verbs->rates_mbps[p] += verbs->rates_mbps[p] == 0;
		if (adapter->max_write_bytes < verbs->max_write_bytes)
			verbs->max_write_bytes = adapter->max_write_bytes;
	}
	if (status == COLLET_OK && verbs_is_iwarp(verbs) && verbs->is_dialer)
		status = collet_verbs_iwarp_connect(verbs);
	return status;
}

static collet_status poll_probes(struct verbs_endpoint *verbs)
{
	/* Probes take some µs, and the next call comes only after ms: so poll for up to 200 µs. */
	for (const int64_t start_ns = collet_verbs_now_ns();
		verbs->probes_pending && !verbs->is_lost && collet_verbs_now_ns() - start_ns < 200000;)
		collet_verbs_poll(verbs);
	(void)collet_verbs_handle_events(verbs);
	if (verbs->is_lost)
		return verbs->services->fail(verbs->lost_status, "%s", verbs->lost_reason);
	/* An rxe adapter that may not send retries for ever. */
	if (verbs->probes_pending &&
		collet_verbs_now_ns() - verbs->completed_ns > collet_verbs_probe_timeout_ns(&verbs->device->options))
		return collet_verbs_fail_connect(verbs, "its adapter did not answer", verbs->rails[0].adapter->name);
	return verbs->probes_pending ? COLLET_PENDING : COLLET_OK;
}

static collet_status watch(struct verbs_endpoint *verbs)
{
	for (uint32_t r = 0; r <= verbs->rail_count; r++) {
		const int fd = r < verbs->rail_count ? verbs->rails[r].comp_channel->fd : verbs->socket;
		/* Non-blocking, because disarm() reads events until there are none. */
		const int flags = fcntl(fd, F_GETFL);
		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
			return collet_verbs_fail_connect(verbs, "cannot set up its completions", strerror(errno));
		struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = &verbs->endpoint };
		if (epoll_ctl(verbs->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
			return collet_verbs_fail_connect(verbs, "cannot watch its completions", strerror(errno));
	}
	return COLLET_OK;
}

static void log_ready(const struct verbs_endpoint *verbs)
{
	for (uint32_t p = 0; p < verbs->qp_count; p++) {
		char name[160], peer_gid[INET6_ADDRSTRLEN];
		verbs->services->log(verbs->log, COLLET_LOG_DEBUG,
			"verbs: rank %u, channel %u: %s by %s to %s, %u Mb/s", verbs->endpoint.peer,
			verbs->endpoint.channel, p ? "large messages" : "small messages",
			collet_verbs_adapter_name(verbs->rails[verbs->qps[p].rail].adapter, name, sizeof(name)),
			collet_verbs_gid_text(
				verbs->hello_in.rails[verbs->qps[p].peer_rail].gid, peer_gid, sizeof(peer_gid)),
			verbs->rates_mbps[p]);
	}
}

static collet_status await_rdma_cm(struct verbs_endpoint *verbs)
{
	char byte;
	const collet_status status = verbs_is_iwarp(verbs) ? collet_verbs_iwarp_connect_progress(verbs) : COLLET_OK;
	/* rdma_cm keeps waiting for a peer that has given up, so check the socket. */
	if (status == COLLET_PENDING && recv(verbs->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		return fail_closed(verbs, 0);
	return status;
}

/* Does the work of the current state. Returns COLLET_OK when the state is finished. */
static collet_status advance(struct verbs_endpoint *verbs)
{
	collet_status status;
	switch (verbs->state) {
	case VERBS_SEND_HELLO:
	case VERBS_SEND_CONNECTED:
	case VERBS_SEND_READY:
		verbs->hello_out.state = (uint16_t)verbs->state;
		return send_hello(verbs);
	case VERBS_AWAIT_HELLO:
		status = receive_hello(verbs, VERBS_SEND_HELLO);
		return status == COLLET_OK ? connect_qps(verbs) : status;
	case VERBS_CONNECT: return await_rdma_cm(verbs);
	case VERBS_AWAIT_CONNECTED:
		status = receive_hello(verbs, VERBS_SEND_CONNECTED);
		if (status == COLLET_OK)
			collet_verbs_begin_probes(verbs);
		return status;
	case VERBS_PROBE:
		return poll_probes(verbs);
	case VERBS_AWAIT_READY:
		status = receive_hello(verbs, VERBS_SEND_READY);
		if (status == COLLET_OK)
			log_ready(verbs);
		return status == COLLET_OK ? watch(verbs) : status;
	default:
		return COLLET_OK;
	}
}

collet_status collet_verbs_open_progress(struct collet_endpoint *endpoint)
{
	struct verbs_endpoint *verbs = (struct verbs_endpoint *)endpoint;
	while (endpoint->status == COLLET_OK && verbs->state < VERBS_READY) {
		const collet_status status = advance(verbs);
		if (status == COLLET_PENDING)
			return status;
		if (status == COLLET_OK)
			verbs->state++;
		else
			endpoint->status = status;
	}
	return endpoint->status;
}

