/* verbs: posting to queue pairs and polling their completions.
 *
 * On iWARP a write with an immediate becomes two requests, a write and a send of the notice, and only one is signalled.
 * In the ring it is the notice, which comes last: the memory of the write is not reused before the peer has confirmed
 * the message. For large messages it is the write, because its completion releases the user's memory; siw, for one,
 * reads the memory of unsignalled writes later. */
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "verbs_completion.h"
#include "verbs_endpoint.h"

enum { COUNT_BITS = 20, ARGUMENT_BITS = 10, BATCH = 16 };

/* ---- Posting ------------------------------------------------------------------------------------------------ */

uint32_t collet_verbs_immediate(struct verbs_endpoint *verbs, enum verbs_immediate_kind kind, uint32_t argument)
{
	verbs->in_credited = verbs->in_freed;
	verbs->in_units_uncredited = 0;
	return (uint32_t)kind << (COUNT_BITS + ARGUMENT_BITS) | argument << COUNT_BITS |
		(verbs->in_freed & ((1u << COUNT_BITS) - 1));
}

static uint32_t write_bytes(const struct verbs_write *write)
{
	uint32_t bytes = 0;
	for (int i = 0; i < write->part_count; i++)
		bytes += write->parts[i].length;
	return bytes;
}

/* Appends the notice to a write and moves the signal to one of the two. Returns the first request to post: the notice
 * alone if there is nothing to write. */
static struct ibv_send_wr *append_notice(
	struct ibv_send_wr *request, struct ibv_send_wr *notice, struct ibv_sge *part, bool is_data)
{
	*notice = (struct ibv_send_wr){ .wr_id = request->wr_id,
		.sg_list = part,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE | (request->send_flags & IBV_SEND_SIGNALED) };
	request->opcode = IBV_WR_RDMA_WRITE;
	if (request->num_sge == 0)
		return notice;
	request->next = notice;
	(is_data ? notice : request)->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	return request;
}

void collet_verbs_post_write(struct verbs_endpoint *verbs, uint32_t index, const struct verbs_write *write)
{
	struct verbs_qp *qp = &verbs->qps[index];
	const bool is_signalled =
		index > 0 || write->is_signalled || qp->posted % VERBS_SIGNAL_EVERY == VERBS_SIGNAL_EVERY - 1;
	/* The CPU copies inline data. The other queue pairs may carry GPU memory, which it must not touch. */
	const bool is_inline =
		index == 0 && write->part_count && !write->is_read && write_bytes(write) <= qp->inline_bytes;
	struct ibv_send_wr request = { .wr_id = (uint64_t)qp->posted << 32 | write->tag,
		.sg_list = (struct ibv_sge *)write->parts,
		.num_sge = write->part_count,
		.opcode = write->has_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM
			  : write->is_read     ? IBV_WR_RDMA_READ
					       : IBV_WR_RDMA_WRITE,
		.send_flags = (is_signalled ? IBV_SEND_SIGNALED : 0) | (is_inline ? IBV_SEND_INLINE : 0),
		.imm_data = htobe32(write->immediate),
		.wr.rdma = { .remote_addr = write->to, .rkey = write->rkey } };
	struct ibv_send_wr notice, *first = &request, *refused;
	struct verbs_notice payload = { .immediate = request.imm_data, .bytes = write_bytes(write) };
	struct ibv_sge part = { .addr = (uintptr_t)&payload, .length = sizeof(payload) };
	if (write->has_immediate && verbs_is_iwarp(verbs))
		first = append_notice(&request, &notice, &part, index > 0);
	const int error = ibv_post_send(qp->qp, first, &refused);
	if (error)
		collet_verbs_mark_lost(
			verbs, COLLET_ERR_TRANSPORT, "cannot post to its queue pair: %s", strerror(error));
	else
		qp->posted++;
}

void collet_verbs_post_probe(struct verbs_endpoint *verbs, uint32_t index, uint32_t tag)
{
	struct verbs_qp *qp = &verbs->qps[index];
	struct verbs_write write = { .to = verbs->peer_memory + offsetof(struct verbs_memory, probe),
		.rkey = verbs->peer_rkeys[qp->peer_rail],
		.is_signalled = true,
		.tag = tag };
	if (verbs_is_iwarp(verbs)) {
		write.is_read = true;
		write.parts[0] = (struct ibv_sge){ .addr = (uintptr_t)&verbs->memory->probe[1],
			.length = sizeof(verbs->memory->probe[0]),
			.lkey = verbs->rails[qp->rail].mr->lkey };
		write.part_count = 1;
	}
	collet_verbs_post_write(verbs, index, &write);
}

static void send_probe_notice(struct verbs_endpoint *verbs, uint32_t index)
{
	const struct verbs_write write = { .has_immediate = true,
		.is_signalled = true,
		.tag = VERBS_TAG_RING,
		.immediate = collet_verbs_immediate(verbs, VERBS_KIND_CREDIT, 0) };
	collet_verbs_post_write(verbs, index, &write);
}

void collet_verbs_begin_probes(struct verbs_endpoint *verbs)
{
	verbs->completed_ns = collet_verbs_now_ns();
	verbs->probes_pending = verbs->qp_count;
	/* With iWARP the connecting end must send first, so the accepting end waits for a notice. */
	for (uint32_t p = 0; p < verbs->qp_count && (verbs->is_dialer || !verbs_is_iwarp(verbs)); p++) {
		collet_verbs_post_probe(verbs, p, VERBS_TAG_PROBE);
		if (verbs_is_iwarp(verbs))
			send_probe_notice(verbs, p);
	}
}

bool collet_verbs_post_receives(struct verbs_qp *qp, uint32_t count)
{
	struct ibv_recv_wr requests[BATCH], *refused;
	struct ibv_sge parts[BATCH];
	while (count) {
		const uint32_t count_now = count < BATCH ? count : BATCH;
		for (uint32_t i = 0; i < count_now; i++) {
			requests[i] = (struct ibv_recv_wr){ .next = i + 1 < count_now ? &requests[i + 1] : NULL };
			if (!qp->notices)
				continue;
			const uint32_t slot = qp->notice_next++ % qp->notice_count;
			parts[i] = (struct ibv_sge){ .addr = (uintptr_t)&qp->notices[slot],
				.length = sizeof(qp->notices[slot]),
				.lkey = qp->notice_lkey };
			requests[i].wr_id = slot;
			requests[i].sg_list = &parts[i];
			requests[i].num_sge = 1;
		}
		if (ibv_post_recv(qp->qp, requests, &refused) != 0)
			return false;
		count -= count_now;
	}
	return true;
}

/* ---- Polling ------------------------------------------------------------------------------------------------ */

/* Returns the index of a queue pair. The rail matters too: two devices may use the same number. */
static uint32_t find_qp(const struct verbs_endpoint *verbs, uint32_t rail, uint32_t number)
{
	uint32_t index = 0;
	while (index < verbs->qp_count &&
		(verbs->qps[index].rail != rail || verbs->qps[index].qp->qp_num != number))
		index++;
	return index;
}

static void answer_probe(struct verbs_endpoint *verbs, uint32_t index)
{
	struct verbs_qp *qp = &verbs->qps[index];
	if (verbs->is_dialer || qp->is_answered) {
		collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT, "it sent a notice before it was ready");
		return;
	}
	qp->is_answered = true;
	collet_verbs_post_probe(verbs, index, VERBS_TAG_PROBE);
}

static void handle_receive(struct verbs_endpoint *verbs, uint32_t index, const struct ibv_wc *completion)
{
	struct verbs_qp *qp = &verbs->qps[index];
	struct verbs_notice notice = { completion->imm_data, completion->byte_len };
	if (qp->notices)
		memcpy(&notice, &qp->notices[completion->wr_id], sizeof(notice));
	const uint32_t immediate = be32toh(notice.immediate);
	const enum verbs_immediate_kind kind = immediate >> (COUNT_BITS + ARGUMENT_BITS);
	const uint32_t argument = immediate >> COUNT_BITS & ((1u << ARGUMENT_BITS) - 1);
	qp->consumed_receives++;
	if (verbs->is_closing)
		return;
	if (qp->notices && completion->byte_len != sizeof(notice)) {
		collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT, "it sent %u bytes instead of a notice of %zu",
			completion->byte_len, sizeof(notice));
		return;
	}
	if (verbs->state == VERBS_PROBE && qp->notices) {
		answer_probe(verbs, index);
		return;
	}
	if (index > 0 || kind == VERBS_KIND_END) {
		/* Queue pairs overtake each other, so only immediates of the first one have valid credits. */
		collet_verbs_handle_end(verbs, argument, notice.bytes);
		return;
	}
	collet_verbs_handle_credit(verbs, immediate & ((1u << COUNT_BITS) - 1));
	if (kind == VERBS_KIND_MESSAGE)
		collet_verbs_handle_arrival(verbs, argument, notice.bytes);
	else if (kind == VERBS_KIND_CTS)
		collet_verbs_handle_cts(verbs, argument);
}

static void handle_send(struct verbs_endpoint *verbs, uint32_t index, uint64_t id)
{
	const uint32_t tag = (uint32_t)id;
	/* iWARP reads may complete after requests that were posted behind them. */
	const uint32_t done = (uint32_t)(id >> 32) + 1;
	if ((int32_t)(done - verbs->qps[index].completed) > 0)
		verbs->qps[index].completed = done;
	switch (tag & 0xff) {
	case VERBS_TAG_EMPTY: verbs->qps[index].is_probing = false; break;
	case VERBS_TAG_PROBE: verbs->probes_pending--; break;
	case VERBS_TAG_FLUSH: verbs->is_flush_pending = false; break;
	case VERBS_TAG_DATA: collet_verbs_handle_data_done(verbs, tag >> 8); break;
	default: break;
	}
}

static void handle_completion(struct verbs_endpoint *verbs, uint32_t rail, const struct ibv_wc *completion)
{
	const uint32_t index = find_qp(verbs, rail, completion->qp_num);
	if (index == verbs->qp_count)
		return;
	verbs->has_completed = true;
	if (completion->status != IBV_WC_SUCCESS)
		collet_verbs_completion_failed(verbs, index, completion);
	else if (completion->opcode & IBV_WC_RECV)
		handle_receive(verbs, index, completion);
	else
		handle_send(verbs, index, completion->wr_id);
}

uint32_t collet_verbs_poll(struct verbs_endpoint *verbs)
{
	uint32_t count = 0;
	for (uint32_t r = 0; r < verbs->rail_count; r++) {
		struct ibv_wc completions[BATCH];
		int count_now;
		do {
			count_now = ibv_poll_cq(verbs->rails[r].cq, BATCH, completions);
			for (int i = 0; i < count_now; i++)
				handle_completion(verbs, r, &completions[i]);
			count += count_now > 0 ? (uint32_t)count_now : 0;
		} while (count_now == BATCH);
		if (count_now < 0)
			collet_verbs_mark_lost(verbs, COLLET_ERR_TRANSPORT, "cannot poll completions of %s",
				verbs->rails[r].adapter->name);
	}
	if (!count || verbs->is_lost)
		return count;
	for (uint32_t p = 0; p < verbs->qp_count; p++) {
		struct verbs_qp *qp = &verbs->qps[p];
		if (qp->consumed_receives < verbs->profile->receive_batch)
			continue;
		if (!collet_verbs_post_receives(qp, qp->consumed_receives))
			collet_verbs_mark_lost(
				verbs, COLLET_ERR_TRANSPORT, "cannot post receive requests to its queue pair");
		qp->consumed_receives = 0;
	}
	return count;
}
