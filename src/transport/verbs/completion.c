/* verbs, queue pairs at work: posting writes, giving receive requests, taking completions. */
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "verbs.h"

enum { COUNT_BITS = 20, ARGUMENT_BITS = 10, BATCH = 16 };

/* ---- Giving ------------------------------------------------------------------------------------------------- */

uint32_t collet_verbs_immediate(struct verbs_conduit *verbs, enum verbs_kind kind, uint32_t argument)
{
	verbs->in_told = verbs->in_freed;
	verbs->in_units_untold = 0;
	return (uint32_t)kind << (COUNT_BITS + ARGUMENT_BITS) | argument << COUNT_BITS |
		(verbs->in_freed & ((1u << COUNT_BITS) - 1));
}

static uint32_t length(const struct verbs_write *write)
{
	uint32_t bytes = 0;
	for (int i = 0; i < write->part_count; i++)
		bytes += write->parts[i].length;
	return bytes;
}

void collet_verbs_write(struct verbs_conduit *verbs, uint32_t index, const struct verbs_write *write)
{
	struct verbs_pair *pair = &verbs->pairs[index];
	const bool signalled = index > 0 || write->signalled || pair->posted % SIGNAL_EVERY == SIGNAL_EVERY - 1;
	struct ibv_send_wr request = { .wr_id = (uint64_t)pair->posted << 32 | write->tag,
		.sg_list = (struct ibv_sge *)write->parts, .num_sge = write->part_count,
		.opcode = write->has_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
		.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) |
			(write->part_count && length(write) <= pair->inline_bytes ? IBV_SEND_INLINE : 0),
		.imm_data = htobe32(write->immediate),
		.wr.rdma = { .remote_addr = write->to, .rkey = write->peer_key } };
	struct ibv_send_wr *refused;
	const int error = ibv_post_send(pair->pair, &request, &refused);
	if (error)
		collet_verbs_lose(
			verbs, COLLET_ERR_TRANSPORT, "its queue pair takes no more writes: %s", strerror(error));
	else
		pair->posted++;
}

void collet_verbs_write_empty(struct verbs_conduit *verbs, uint32_t index, uint32_t tag)
{
	const struct verbs_write write = { .to = verbs->peer_memory + offsetof(struct verbs_memory, probe),
		.peer_key = verbs->peer_keys[verbs->pairs[index].peer_rail], .signalled = true, .tag = tag };
	collet_verbs_write(verbs, index, &write);
}

bool collet_verbs_give_receives(struct verbs_pair *pair, uint32_t count)
{
	struct ibv_recv_wr requests[BATCH], *refused;
	while (count) {
		const uint32_t some = count < BATCH ? count : BATCH;
		for (uint32_t i = 0; i < some; i++)
			requests[i] = (struct ibv_recv_wr){ .next = i + 1 < some ? &requests[i + 1] : NULL };
		if (ibv_post_recv(pair->pair, requests, &refused) != 0)
			return false;
		count -= some;
	}
	return true;
}

/* ---- Taking ------------------------------------------------------------------------------------------------- */

/* Two devices may give the same number. */
static uint32_t find(const struct verbs_conduit *verbs, uint32_t rail, uint32_t number)
{
	uint32_t index = 0;
	while (index < verbs->pair_count &&
		(verbs->pairs[index].rail != rail || verbs->pairs[index].pair->qp_num != number))
		index++;
	return index;
}

static void received(struct verbs_conduit *verbs, uint32_t index, const struct ibv_wc *completion)
{
	const uint32_t immediate = be32toh(completion->imm_data);
	const enum verbs_kind kind = immediate >> (COUNT_BITS + ARGUMENT_BITS);
	const uint32_t argument = immediate >> COUNT_BITS & ((1u << ARGUMENT_BITS) - 1);
	verbs->pairs[index].taken++;
	if (verbs->closing)
		return;
	if (index > 0 || kind == KIND_END) {
		/* Queue pairs overtake each other, so what is told of freed messages counts on the first alone. */
		collet_verbs_end(verbs, argument, completion->byte_len);
		return;
	}
	collet_verbs_credit(verbs, immediate & ((1u << COUNT_BITS) - 1));
	if (kind == KIND_MESSAGE)
		collet_verbs_arrived(verbs, argument, completion->byte_len);
	else if (kind == KIND_GRANT)
		collet_verbs_granted(verbs, argument);
}

static void sent(struct verbs_conduit *verbs, uint32_t index, uint64_t id)
{
	const uint32_t tag = (uint32_t)id;
	verbs->pairs[index].done = (uint32_t)(id >> 32) + 1;
	switch (tag & 0xff) {
	case TAG_EMPTY: verbs->pairs[index].asking = false; break;
	case TAG_PROBE: verbs->probes_pending--; break;
	case TAG_LAST: verbs->last_pending = false; break;
	case TAG_DATA: collet_verbs_data_done(verbs, tag >> 8); break;
	default: break;
	}
}

static void take(struct verbs_conduit *verbs, uint32_t rail, const struct ibv_wc *completion)
{
	const uint32_t index = find(verbs, rail, completion->qp_num);
	if (index == verbs->pair_count)
		return;
	verbs->heard = true;
	if (completion->status != IBV_WC_SUCCESS)
		collet_verbs_completion_failed(verbs, index, completion);
	else if (completion->opcode & IBV_WC_RECV)
		received(verbs, index, completion);
	else
		sent(verbs, index, completion->wr_id);
}

uint32_t collet_verbs_poll(struct verbs_conduit *verbs)
{
	uint32_t count = 0;
	for (uint32_t r = 0; r < verbs->rail_count; r++) {
		struct ibv_wc completions[BATCH];
		int some;
		do {
			some = ibv_poll_cq(verbs->rails[r].completions, BATCH, completions);
			for (int i = 0; i < some; i++)
				take(verbs, r, &completions[i]);
			count += some > 0 ? (uint32_t)some : 0;
		} while (some == BATCH);
		if (some < 0)
			collet_verbs_lose(verbs, COLLET_ERR_TRANSPORT, "%s gives no completions any more",
				verbs->rails[r].adapter->name);
	}
	if (!count || verbs->gone)
		return count;
	for (uint32_t p = 0; p < verbs->pair_count; p++) {
		struct verbs_pair *pair = &verbs->pairs[p];
		if (pair->taken < verbs->shape->receive_batch)
			continue;
		if (!collet_verbs_give_receives(pair, pair->taken))
			collet_verbs_lose(
				verbs, COLLET_ERR_TRANSPORT, "its queue pair takes no more receive requests");
		pair->taken = 0;
	}
	return count;
}
