/* verbs, opening: the ends tell each other their queue pairs over the socket, connect them, and then see by a write on
 * each that their adapters do reach each other: hosts may well be joined by one network for sockets and none, or
 * another, for RDMA, and a pair that finds out here still falls back to another transport. Each end says what it has
 * done and goes on when it has heard the same, so neither takes for ready what the other has refused. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_endpoint.h"

enum { HELLO_MAGIC = 0x76746c67, PROTOCOL_VERSION = 3 };
/* Pairs begin at different times, and ask often: see tcp.c. */
enum { KEEPALIVE_IDLE_S = 8, KEEPALIVE_SPREAD_S = 5, KEEPALIVE_INTERVAL_S = 2, KEEPALIVE_COUNT = 10 };
enum { SEQUENCE_BITS = 24, MIN_RNR_TIMER = 12, RNR_RETRIES = 6, HOP_LIMIT = 255 };

collet_status collet_verbs_refuse(const struct verbs_conduit *verbs, const char *what, const char *why)
{
	return verbs->host->fail(COLLET_ERR_TRANSPORT, "verbs: rank %u on %s, channel %u: %s: %s", verbs->conduit.peer,
		verbs->peer->host, verbs->conduit.channel, what, why);
}

/* ---- Beginning ---------------------------------------------------------------------------------------------- */

static void say_hello(struct verbs_conduit *verbs)
{
	struct verbs_hello *hello = &verbs->say;
	*hello = (struct verbs_hello){ .magic = HELLO_MAGIC, .version = PROTOCOL_VERSION, .stage = VERBS_SAY_HELLO,
		.from = verbs->self->rank, .to = verbs->peer->rank, .channel = verbs->conduit.channel,
		.rail_count = verbs->rail_count, .pair_count = verbs->pair_count,
		.lean = verbs->shape->lean, .memory = (uintptr_t)verbs->memory };
	/* Packets of a former connection that are still on their way must not fit into this one. */
	hello->start_sequence = (uint32_t)((uint64_t)collet_verbs_now_ns() >> 10) & ((1u << SEQUENCE_BITS) - 1);
	for (uint32_t r = 0; r < verbs->rail_count; r++) {
		const struct verbs_adapter *adapter = verbs->rails[r].adapter;
		memcpy(hello->rails[r].gid, adapter->gid.raw, sizeof(hello->rails[r].gid));
		hello->rails[r].key = verbs->rails[r].memory->rkey;
		hello->rails[r].rate_mbps = adapter->rate_mbps;
		hello->rails[r].message_most = adapter->message_most;
		hello->rails[r].lid = adapter->lid;
		hello->rails[r].mtu = (uint8_t)adapter->mtu;
		hello->rails[r].network = (uint8_t)adapter->network;
	}
	for (uint32_t p = 0; p < verbs->pair_count; p++) {
		hello->pairs[p].number = verbs->pairs[p].pair->qp_num;
		hello->pairs[p].rail = verbs->pairs[p].rail;
	}
}

static void keep_alive(const struct verbs_conduit *verbs)
{
	const uint32_t pair = verbs->self->rank + verbs->conduit.peer + verbs->conduit.channel;
	const struct {
		int level, name, value;
	} rows[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, 0 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S + (int)(pair % KEEPALIVE_SPREAD_S) },
		{ IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		(void)setsockopt(verbs->socket, rows[i].level, rows[i].name, &rows[i].value, sizeof(rows[i].value));
}

collet_status collet_verbs_open(struct collet_conduit *conduit, const struct collet_conduit_config *config)
{
	struct verbs_conduit *verbs = (struct verbs_conduit *)conduit;
	conduit->status = COLLET_OK;
	verbs->state = VERBS_SAY_HELLO;
	verbs->host = config->host;
	verbs->device = config->device;
	verbs->self = config->self;
	verbs->peer = config->peer;
	verbs->log = config->log;
	verbs->socket = config->socket;
	verbs->epoll_fd = config->wake->epoll_fd;
	verbs->owner = getpid();
	verbs->dialed = config->dialed;
	keep_alive(verbs);
	conduit->status = collet_verbs_make(verbs);
	if (conduit->status != COLLET_OK)
		return conduit->status;
	say_hello(verbs);
	if (verbs_is_iwarp(verbs) && !verbs->dialed)
		conduit->status = collet_verbs_iwarp_await(verbs);
	return conduit->status;
}

/* ---- Talking ------------------------------------------------------------------------------------------------ */

static collet_status ended(const struct verbs_conduit *verbs, int error)
{
	return collet_verbs_refuse(verbs, "the connection ended before it was ready",
		error ? strerror(error) : "closed by the peer");
}

static collet_status say(struct verbs_conduit *verbs)
{
	const uint8_t *bytes = (const uint8_t *)&verbs->say;
	while (verbs->said < sizeof(verbs->say)) {
		verbs->conduit.stats.system_calls++;
		const ssize_t written = send(verbs->socket, bytes + verbs->said, sizeof(verbs->say) - verbs->said,
			MSG_DONTWAIT | MSG_NOSIGNAL);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : ended(verbs, errno);
		verbs->said += (size_t)written;
	}
	verbs->said = 0;
	return COLLET_OK;
}

/* Until a whole hello of this stage has come. */
static collet_status hear(struct verbs_conduit *verbs, enum verbs_state stage)
{
	uint8_t *bytes = (uint8_t *)&verbs->hear;
	while (verbs->heard_bytes < sizeof(verbs->hear)) {
		verbs->conduit.stats.system_calls++;
		const ssize_t got = recv(verbs->socket, bytes + verbs->heard_bytes,
			sizeof(verbs->hear) - verbs->heard_bytes, MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return COLLET_PENDING;
		if (got <= 0)
			return ended(verbs, got < 0 ? errno : 0);
		verbs->heard_bytes += (size_t)got;
	}
	verbs->heard_bytes = 0;
	const struct verbs_hello *heard = &verbs->hear;
	if (heard->magic != HELLO_MAGIC || heard->version != PROTOCOL_VERSION)
		return collet_verbs_refuse(verbs, "what came is no greeting of this version of verbs",
			"is something else talking to this port, or another version of the transport?");
	if (heard->stage != stage || heard->from != verbs->peer->rank || heard->to != verbs->self->rank ||
		heard->channel != verbs->conduit.channel)
		return collet_verbs_refuse(
			verbs, "the greeting that came is for another connection", "this should not happen");
	return COLLET_OK;
}

/* ---- Connecting --------------------------------------------------------------------------------------------- */

static bool sane(const struct verbs_hello *hello)
{
	bool sane = hello->rail_count >= 1 && hello->rail_count <= RAILS_MOST && hello->pair_count >= 2 &&
		hello->pair_count <= PAIRS_MOST;
	for (uint32_t r = 0; sane && r < hello->rail_count; r++)
		sane = hello->rails[r].mtu >= IBV_MTU_256 && hello->rails[r].mtu <= IBV_MTU_4096 &&
			hello->rails[r].message_most >= collet_verbs_wide.place_bytes;
	for (uint32_t p = 0; sane && p < hello->pair_count; p++)
		sane = hello->pairs[p].rail < hello->rail_count;
	return sane;
}

static collet_status connect_pair(struct verbs_conduit *verbs, uint32_t index)
{
	const struct verbs_hello *hello = &verbs->hear;
	struct verbs_pair *pair = &verbs->pairs[index];
	const struct verbs_adapter *adapter = verbs->rails[pair->rail].adapter;
	const struct verbs_options *options = &verbs->device->options;
	pair->peer_rail = hello->pairs[index].rail;
	if ((uint8_t)adapter->network != hello->rails[pair->peer_rail].network)
		return collet_verbs_refuse(verbs, "its two ends are on networks of different kinds", adapter->name);
	if (adapter->network == NETWORK_IWARP)
		return COLLET_OK;
	const uint8_t mtu = hello->rails[pair->peer_rail].mtu;
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_RTR,
		.path_mtu = mtu < (uint8_t)adapter->mtu ? (enum ibv_mtu)mtu : adapter->mtu,
		.dest_qp_num = hello->pairs[index].number,
		.rq_psn = hello->start_sequence,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = { .dlid = hello->rails[pair->peer_rail].lid,
			.sl = options->service_level,
			.port_num = adapter->port,
			.is_global = adapter->network == NETWORK_ROCE,
			.grh = { .sgid_index = adapter->gid_index,
				.hop_limit = HOP_LIMIT,
				.traffic_class = options->traffic_class } } };
	memcpy(attributes.ah_attr.grh.dgid.raw, hello->rails[pair->peer_rail].gid, 16);
	int error = ibv_modify_qp(pair->pair, &attributes,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!error) {
		attributes = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
			.timeout = options->timeout,
			.retry_cnt = options->retries,
			.rnr_retry = RNR_RETRIES,
			.sq_psn = verbs->say.start_sequence,
			.max_rd_atomic = 1 };
		error = ibv_modify_qp(pair->pair, &attributes,
			IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC);
	}
	if (!error)
		return COLLET_OK;
	char here[INET6_ADDRSTRLEN], there[INET6_ADDRSTRLEN], what[200];
	snprintf(what, sizeof(what), "cannot connect %s port %u (%s) to %s", adapter->name, adapter->port,
		collet_verbs_gid_text(adapter->gid.raw, here, sizeof(here)),
		collet_verbs_gid_text(hello->rails[pair->peer_rail].gid, there, sizeof(there)));
	return collet_verbs_refuse(verbs, what, strerror(error));
}

/* The memory may be larger than the shape that both have. */
static void lay_out(struct verbs_conduit *verbs)
{
	const size_t ring = (size_t)verbs->shape->units * UNIT_BYTES, places = PLACES * verbs->shape->place_bytes;
	verbs->ring = verbs->memory->rest;
	verbs->landing = verbs->ring + ring;
	verbs->mirror = verbs->landing + places;
	verbs->staging = verbs->mirror + ring;
	verbs->out_free = verbs->shape->units;
}

static collet_status connect_all(struct verbs_conduit *verbs)
{
	const struct verbs_hello *hello = &verbs->hear;
	if (!sane(hello))
		return collet_verbs_refuse(verbs, "the peer's greeting makes no sense", "this should not happen");
	if (hello->lean)
		verbs->shape = &collet_verbs_lean;
	lay_out(verbs);
	/* The smaller number counts at both ends. */
	while (verbs->pair_count > hello->pair_count)
		ibv_destroy_qp(verbs->pairs[--verbs->pair_count].pair);
	verbs->peer_memory = hello->memory;
	verbs->message_most = PIECE_BYTES;
	for (uint32_t r = 0; r < hello->rail_count; r++) {
		verbs->peer_keys[r] = hello->rails[r].key;
		if (hello->rails[r].message_most < verbs->message_most)
			verbs->message_most = hello->rails[r].message_most;
	}
	collet_status status = COLLET_OK;
	for (uint32_t p = 0; p < verbs->pair_count && status == COLLET_OK; p++) {
		status = connect_pair(verbs, p);
		const struct verbs_adapter *adapter = verbs->rails[verbs->pairs[p].rail].adapter;
		const uint32_t theirs = hello->rails[verbs->pairs[p].peer_rail].rate_mbps;
		verbs->rates[p] = theirs < adapter->rate_mbps ? theirs : adapter->rate_mbps;
		verbs->rates[p] += verbs->rates[p] == 0;
		if (adapter->message_most < verbs->message_most)
			verbs->message_most = adapter->message_most;
	}
	if (status == COLLET_OK && verbs_is_iwarp(verbs) && verbs->dialed)
		status = collet_verbs_iwarp_connect(verbs);
	return status;
}

static collet_status probe(struct verbs_conduit *verbs)
{
	/* They take as long as the network: some µs. Asked again only after ms, so it is worth looking twice. */
	for (const int64_t begun = collet_verbs_now_ns();
		verbs->probes_pending && !verbs->gone && collet_verbs_now_ns() - begun < 200000;)
		collet_verbs_poll(verbs);
	(void)collet_verbs_heed_events(verbs);
	if (verbs->gone)
		return verbs->host->fail(verbs->gone_status, "%s", verbs->reason);
	/* rxe that may not send tries for ever. */
	if (verbs->probes_pending &&
		collet_verbs_now_ns() - verbs->heard_ns > collet_verbs_answer_ns(&verbs->device->options))
		return collet_verbs_refuse(verbs, "its adapter did not answer", verbs->rails[0].adapter->name);
	return verbs->probes_pending ? COLLET_PENDING : COLLET_OK;
}

static collet_status watch(struct verbs_conduit *verbs)
{
	for (uint32_t r = 0; r <= verbs->rail_count; r++) {
		const int fd = r < verbs->rail_count ? verbs->rails[r].channel->fd : verbs->socket;
		/* Asked for events until there are none, see disarm(). */
		const int flags = fcntl(fd, F_GETFL);
		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
			return collet_verbs_refuse(verbs, "cannot set up its completions", strerror(errno));
		struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = &verbs->conduit };
		if (epoll_ctl(verbs->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
			return collet_verbs_refuse(verbs, "cannot watch its completions", strerror(errno));
	}
	return COLLET_OK;
}

static void log_ready(const struct verbs_conduit *verbs)
{
	for (uint32_t p = 0; p < verbs->pair_count; p++) {
		char name[160], there[INET6_ADDRSTRLEN];
		verbs->host->log(verbs->log, COLLET_LOG_DEBUG, "verbs: rank %u, channel %u: %s by %s to %s, %u Mb/s",
			verbs->conduit.peer, verbs->conduit.channel, p ? "large messages" : "small messages",
			collet_verbs_adapter_name(verbs->rails[verbs->pairs[p].rail].adapter, name, sizeof(name)),
			collet_verbs_gid_text(verbs->hear.rails[verbs->pairs[p].peer_rail].gid, there, sizeof(there)),
			verbs->rates[p]);
	}
}

static collet_status connecting(struct verbs_conduit *verbs)
{
	char byte;
	const collet_status status = verbs_is_iwarp(verbs) ? collet_verbs_iwarp_connecting(verbs) : COLLET_OK;
	/* rdma_cm waits for one who has given up, too. */
	if (status == COLLET_PENDING && recv(verbs->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		return ended(verbs, 0);
	return status;
}

/* What the state waits for; COLLET_OK: it is over. */
static collet_status step(struct verbs_conduit *verbs)
{
	collet_status status;
	switch (verbs->state) {
	case VERBS_SAY_HELLO:
	case VERBS_SAY_CONNECTED:
	case VERBS_SAY_READY:
		verbs->say.stage = (uint16_t)verbs->state;
		return say(verbs);
	case VERBS_HEAR_HELLO:
		status = hear(verbs, VERBS_SAY_HELLO);
		return status == COLLET_OK ? connect_all(verbs) : status;
	case VERBS_CONNECT: return connecting(verbs);
	case VERBS_HEAR_CONNECTED:
		status = hear(verbs, VERBS_SAY_CONNECTED);
		if (status == COLLET_OK)
			collet_verbs_begin_probes(verbs);
		return status;
	case VERBS_PROBE:
		return probe(verbs);
	case VERBS_HEAR_READY:
		status = hear(verbs, VERBS_SAY_READY);
		if (status == COLLET_OK)
			log_ready(verbs);
		return status == COLLET_OK ? watch(verbs) : status;
	default:
		return COLLET_OK;
	}
}

collet_status collet_verbs_opening(struct collet_conduit *conduit)
{
	struct verbs_conduit *verbs = (struct verbs_conduit *)conduit;
	while (conduit->status == COLLET_OK && verbs->state < VERBS_READY) {
		const collet_status status = step(verbs);
		if (status == COLLET_PENDING)
			return status;
		if (status == COLLET_OK)
			verbs->state++;
		else
			conduit->status = status;
	}
	return conduit->status;
}

