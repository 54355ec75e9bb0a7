/* Queue pairs for limits: made, connected, and their completions taken. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "limits_verbs.h"

enum { GIDS_MOST = 256, COMPLETIONS = 256, BATCH = 16, SPINS_BEFORE_YIELD = 20000, HOP_LIMIT = 255, RNR_TIMER = 12 };
enum { TIMEOUT = 16, RETRIES = 6 }; /* as the transport's defaults */

static int complain(const char *what)
{
	const int reason = errno ? errno : EIO;
	fprintf(stderr, "collet-bench: verbs: %s: %s\n", what, strerror(reason));
	errno = reason;
	return -1;
}

void raw_relax(uint32_t *spins)
{
	if (++*spins > SPINS_BEFORE_YIELD)
		sched_yield();
}

/* ---- Adapters ---- */

/* RoCE v2 by an IPv4 address is what most networks pass on; else whatever there is. */
static void choose_gid(struct raw_rail *rail)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry *entries = calloc(GIDS_MOST, sizeof(*entries));
	const ssize_t count = entries ? ibv_query_gid_table(rail->context, entries, GIDS_MOST, 0) : 0;
	bool found = false;
	for (ssize_t i = 0; i < count; i++) {
		const bool best = entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
				  memcmp(entries[i].gid.raw, mapped, sizeof(mapped)) == 0;
		if (entries[i].port_num != rail->port || (found && !best))
			continue;
		found = true;
		rail->gid = entries[i].gid;
		rail->gid_index = (uint8_t)entries[i].gid_index;
		if (best)
			break;
	}
	free(entries);
}

/* Opens the first port of an adapter, if it is active. */
static bool open_rail(struct ibv_device *device, struct raw_rail *rail)
{
	struct ibv_port_attr port;
	if (device->transport_type != IBV_TRANSPORT_IB || !(rail->context = ibv_open_device(device)))
		return false;
	if (ibv_query_port(rail->context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE) {
		rail->port = 1;
		rail->lid = port.lid;
		rail->mtu = port.active_mtu;
		choose_gid(rail);
		return true;
	}
	ibv_close_device(rail->context);
	rail->context = NULL;
	return false;
}

static int open_rails(struct raw *raw, bool partner)
{
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	for (int i = 0; i < count && raw->rail_count < RAW_RAILS; i++)
		raw->rail_count += open_rail(devices[i], &raw->rails[raw->rail_count]);
	if (devices)
		ibv_free_device_list(devices);
	if (raw->rail_count == 0) {
		errno = ENODEV;
		return complain("no device with an active port");
	}
	if (partner && raw->rail_count == 2) {
		const struct raw_rail first = raw->rails[0];
		raw->rails[0] = raw->rails[1];
		raw->rails[1] = first;
	}
	return 0;
}

static int make_rail(struct raw *raw, struct raw_rail *rail, const struct limit *limit)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	rail->protection = ibv_alloc_pd(rail->context);
	rail->completions = ibv_create_cq(rail->context, COMPLETIONS, NULL, NULL, 0);
	if (!rail->protection || !rail->completions)
		return complain("no completion queue");
	rail->small = ibv_reg_mr(rail->protection, raw->small, RAW_SLOTS * RAW_SLOT_BYTES, access);
	rail->landing = ibv_reg_mr(rail->protection, raw->landing, RAW_SLOTS * raw->landing_bytes, access);
	rail->input = ibv_reg_mr(rail->protection, limit->a, limit->bytes, access);
	if (!rail->small || !rail->landing || !rail->input)
		return complain("cannot register memory (ulimit -l?)");
	return 0;
}

/* ---- Queue pairs ---- */

static int give_receives(struct raw_pair *pair, uint32_t count)
{
	struct ibv_recv_wr requests[BATCH], *refused;
	for (; count; count -= count < BATCH ? count : BATCH) {
		const uint32_t some = count < BATCH ? count : BATCH;
		for (uint32_t i = 0; i < some; i++)
			requests[i] = (struct ibv_recv_wr){ .next = i + 1 < some ? &requests[i + 1] : NULL };
		if (ibv_post_recv(pair->pair, requests, &refused) != 0)
			return -1;
	}
	return 0;
}

static int make_pair(struct raw *raw, uint32_t index)
{
	struct raw_pair *pair = &raw->pairs[index];
	pair->rail = index ? (index - 1) % raw->rail_count : 0;
	const struct raw_rail *rail = &raw->rails[pair->rail];
	struct ibv_qp_init_attr wish = { .send_cq = rail->completions,
		.recv_cq = rail->completions,
		.cap = { .max_send_wr = RAW_DEPTH,
			.max_recv_wr = RAW_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = index ? 0 : RAW_INLINE},
		.qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT, .port_num = rail->port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	pair->pair = ibv_create_qp(rail->protection, &wish);
	if (!pair->pair)
		return complain("no queue pair");
	errno = ibv_modify_qp(
		pair->pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (errno || give_receives(pair, RAW_DEPTH) != 0)
		return complain("cannot set up a queue pair");
	return 0;
}

static int connect_pair(struct raw *raw, uint32_t index)
{
	const struct raw_pair *pair = &raw->pairs[index];
	const struct raw_rail *rail = &raw->rails[pair->rail];
	const uint32_t there = raw->peer.rails_of[index];
	const enum ibv_mtu mtu = (enum ibv_mtu)raw->peer.rails[there].mtu;
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_RTR,
		.path_mtu = mtu < rail->mtu ? mtu : rail->mtu,
		.dest_qp_num = raw->peer.numbers[index],
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = { .dlid = raw->peer.rails[there].lid,
			.port_num = rail->port,
			.is_global = rail->lid == 0,
			.grh = { .sgid_index = rail->gid_index, .hop_limit = HOP_LIMIT}} };
	memcpy(attributes.ah_attr.grh.dgid.raw, raw->peer.rails[there].gid, 16);
	errno = ibv_modify_qp(pair->pair, &attributes,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		return complain("cannot connect a queue pair");
	attributes = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RETRIES,
		.max_rd_atomic = 1 };
	errno = ibv_modify_qp(pair->pair, &attributes,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
	return errno ? complain("cannot connect a queue pair") : 0;
}

static int swap(int fd, const void *own, void *theirs, size_t bytes)
{
	errno = 0;
	return send(fd, own, bytes, MSG_NOSIGNAL) == (ssize_t)bytes &&
			       recv(fd, theirs, bytes, MSG_WAITALL) == (ssize_t)bytes
		       ? 0
		       : complain("the two processes did not get to talk");
}

static int connect_all(struct raw *raw, const struct limit *limit)
{
	struct raw_hello own = { .small = (uintptr_t)raw->small, .landing = (uintptr_t)raw->landing };
	for (uint32_t r = 0; r < raw->rail_count; r++) {
		const struct raw_rail *rail = &raw->rails[r];
		memcpy(own.rails[r].gid, rail->gid.raw, 16);
		own.rails[r].small_key = rail->small->rkey;
		own.rails[r].landing_key = rail->landing->rkey;
		own.rails[r].lid = rail->lid;
		own.rails[r].mtu = (uint8_t)rail->mtu;
	}
	for (uint32_t p = 0; p < RAW_PAIRS; p++) {
		own.numbers[p] = raw->pairs[p].pair->qp_num;
		own.rails_of[p] = raw->pairs[p].rail;
	}
	int failed = swap(limit->fd, &own, &raw->peer, sizeof(own));
	for (uint32_t p = 0; p < RAW_PAIRS && !failed; p++)
		failed = connect_pair(raw, p);
	char ready = 'r', heard;
	return failed ? failed : swap(limit->fd, &ready, &heard, 1); /* nobody writes before both can receive */
}

int raw_begin(struct limit *limit, bool partner)
{
	struct raw *raw = calloc(1, sizeof(*raw));
	limit->own = raw;
	if (!raw)
		return complain("no memory");
	raw->landing_bytes = (limit->bytes + 4095) / 4096 * 4096;
	raw->small = aligned_alloc(4096, RAW_SLOTS * RAW_SLOT_BYTES);
	raw->landing = aligned_alloc(4096, RAW_SLOTS * raw->landing_bytes);
	if (!raw->small || !raw->landing)
		return complain("no memory");
	memset(raw->small, 0, RAW_SLOTS * RAW_SLOT_BYTES);
	memset(raw->landing, 0, RAW_SLOTS * raw->landing_bytes);
	int failed = open_rails(raw, partner);
	for (uint32_t r = 0; r < raw->rail_count && !failed; r++)
		failed = make_rail(raw, &raw->rails[r], limit);
	for (uint32_t p = 0; p < RAW_PAIRS && !failed; p++)
		failed = make_pair(raw, p);
	return failed ? failed : connect_all(raw, limit);
}

void raw_end(struct limit *limit)
{
	struct raw *raw = limit->own;
	if (!raw)
		return;
	for (uint32_t p = 0; p < RAW_PAIRS; p++)
		if (raw->pairs[p].pair)
			ibv_destroy_qp(raw->pairs[p].pair);
	for (uint32_t r = 0; r < raw->rail_count; r++) {
		struct raw_rail *rail = &raw->rails[r];
		struct ibv_mr *const registered[] = { rail->small, rail->landing, rail->input };
		for (unsigned i = 0; i < 3; i++)
			if (registered[i])
				ibv_dereg_mr(registered[i]);
		if (rail->completions)
			ibv_destroy_cq(rail->completions);
		if (rail->protection)
			ibv_dealloc_pd(rail->protection);
		ibv_close_device(rail->context);
	}
	free(raw->small);
	free(raw->landing);
	free(raw);
	limit->own = NULL;
}

/* ---- Completions ---- */

static struct raw_pair *find(struct raw *raw, uint32_t rail, uint32_t number)
{
	uint32_t index = 0;
	while (index + 1 < RAW_PAIRS && (raw->pairs[index].rail != rail || raw->pairs[index].pair->qp_num != number))
		index++;
	return &raw->pairs[index];
}

static int take(struct raw *raw, uint32_t rail, const struct ibv_wc *completion)
{
	struct raw_pair *pair = find(raw, rail, completion->qp_num);
	if (completion->status != IBV_WC_SUCCESS) {
		errno = EIO;
		return complain(ibv_wc_status_str(completion->status));
	}
	if (!(completion->opcode & IBV_WC_RECV)) {
		pair->done = (uint32_t)completion->wr_id + 1;
		return 0;
	}
	raw->ends++;
	if (++pair->taken < RAW_RECEIVE_BATCH)
		return 0;
	pair->taken = 0;
	return give_receives(pair, RAW_RECEIVE_BATCH);
}

int raw_poll(struct raw *raw)
{
	int failed = 0;
	for (uint32_t r = 0; r < raw->rail_count && !failed; r++) {
		struct ibv_wc completions[BATCH];
		const int some = ibv_poll_cq(raw->rails[r].completions, BATCH, completions);
		for (int i = 0; i < some && !failed; i++)
			failed = take(raw, r, &completions[i]);
		failed = some < 0 ? -1 : failed;
	}
	return failed;
}

int raw_room(struct raw *raw, uint32_t pair)
{
	uint32_t spins = 0;
	for (; raw->pairs[pair].posted - raw->pairs[pair].done == RAW_DEPTH; raw_relax(&spins))
		if (raw_poll(raw) != 0)
			return -1;
	return 0;
}
