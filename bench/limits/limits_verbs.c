/* Limits of RDMA: what a loop of verbs costs that does nothing but what an exchange needs. One write with immediate
 * carries a small message, one for each queue pair a large one; memory is registered beforehand. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "limits_verbs.h"

__attribute__((visibility("default"))) extern const struct limits_module bench_limits_module;

static int post(struct raw *raw, uint32_t index, struct ibv_sge *part, uint64_t to, uint32_t key, bool immediate)
{
	struct raw_pair *pair = &raw->pairs[index];
	if (raw_room(raw, index) != 0)
		return -1;
	const bool small = part->length <= RAW_INLINE && index == 0;
	const bool signalled = index > 0 || pair->posted % RAW_SIGNAL_EVERY == RAW_SIGNAL_EVERY - 1;
	struct ibv_send_wr *refused,
		request = { .wr_id = pair->posted,
			.sg_list = part,
			.num_sge = 1,
			.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
			.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) | (small ? IBV_SEND_INLINE : 0),
			.wr.rdma = { .remote_addr = to, .rkey = key} };
	errno = ibv_post_send(pair->pair, &request, &refused);
	pair->posted += errno == 0;
	return errno ? -1 : 0;
}

/* Writes a into the peer's slot of this turn; returns how many immediates that makes there, or -1. */
static int write_out(struct limit *l, bool immediate)
{
	struct raw *raw = l->own;
	const uint64_t slot = raw->turn % RAW_SLOTS;
	if (l->bytes <= RAW_SLOT_BYTES) {
		const struct raw_pair *pair = &raw->pairs[0];
		struct ibv_sge part = { (uintptr_t)l->a, (uint32_t)l->bytes, raw->rails[pair->rail].input->lkey };
		return post(raw, 0, &part, raw->peer.small + slot * RAW_SLOT_BYTES,
			       raw->peer.rails[raw->peer.rails_of[0]].small_key, immediate) != 0
			       ? -1
			       : 1;
	}
	const uint32_t parts = RAW_PAIRS - 1;
	const uint64_t each = (l->bytes / parts + 63) & ~UINT64_C(63);
	for (uint32_t p = 0; p < parts; p++) {
		const uint32_t rail = raw->pairs[1 + p].rail;
		const uint64_t at = p * each, end = p + 1 < parts ? at + each : l->bytes;
		struct ibv_sge part = { (uintptr_t)l->a + at, (uint32_t)(end - at), raw->rails[rail].input->lkey };
		if (post(raw, 1 + p, &part, raw->peer.landing + slot * raw->landing_bytes + at,
			    raw->peer.rails[raw->peer.rails_of[1 + p]].landing_key, immediate) != 0)
			return -1;
	}
	return (int)parts;
}

/* ---- Two-way ---- */

static int exchange(struct limit *l)
{
	struct raw *raw = l->own;
	const int expected = write_out(l, true);
	uint32_t spins = 0;
	if (expected < 0)
		return -1;
	for (; raw->ends < (uint32_t)expected; raw_relax(&spins))
		if (raw_poll(raw) != 0)
			return -1;
	raw->ends -= (uint32_t)expected;
	raw->turn++;
	return 0;
}

static int exchange_and_add(struct limit *l)
{
	struct raw *raw = l->own;
	const uint64_t slot = raw->turn % RAW_SLOTS;
	if (exchange(l) != 0)
		return -1;
	const uint8_t *came = l->bytes <= RAW_SLOT_BYTES ? raw->small + slot * RAW_SLOT_BYTES
							 : raw->landing + slot * raw->landing_bytes;
	const float *theirs = (const float *)(const void *)came, *own = (const float *)(const void *)l->a;
	float *sum = (float *)(void *)l->b;
	for (uint64_t i = 0; i < l->bytes / sizeof(float); i++)
		sum[i] = own[i] + theirs[i];
	return 0;
}

static void exchange_for_ever(struct limit *l)
{
	while (exchange(l) == 0)
		;
}

static void exchange_and_add_for_ever(struct limit *l)
{
	while (exchange_and_add(l) == 0)
		;
}

/* ---- One way ---- */

static int write_one_way(struct limit *l)
{
	struct raw *raw = l->own;
	if (write_out(l, false) < 0)
		return -1;
	/* A queue may hold more than a batch of steps. With few in flight, each step completes an earlier one. */
	uint32_t spins = 0;
	for (uint32_t p = 0; p < RAW_PAIRS; p++)
		for (; raw->pairs[p].posted - raw->pairs[p].done > (p ? 1 : 2 * RAW_SIGNAL_EVERY); raw_relax(&spins))
			if (raw_poll(raw) != 0)
				return -1;
	raw->turn++;
	return 0;
}

static void stay(struct limit *l)
{
	uint32_t spins = 20000; /* it has nothing to look for */
	while (atomic_load_explicit(&l->page->stop, memory_order_relaxed) == 0)
		raw_relax(&spins);
}

/* ---- Write latency: the last byte of what comes is looked at, no completion is waited for ---- */

static int write_turn(struct limit *l)
{
	struct raw *raw = l->own;
	memset(l->a + l->bytes - 1, (int)(raw->turn % 250 + 1), 1);
	return write_out(l, false);
}

static int await_turn(struct limit *l)
{
	struct raw *raw = l->own;
	const volatile uint8_t *last = raw->small + raw->turn % RAW_SLOTS * RAW_SLOT_BYTES + l->bytes - 1;
	uint32_t spins = 0;
	while (*last != (uint8_t)(raw->turn % 250 + 1)) {
		raw_relax(&spins);
		if (spins % 1024 == 0 && raw_poll(raw) != 0)
			return -1;
	}
	return 0;
}

static int ping(struct limit *l)
{
	struct raw *raw = l->own;
	if (write_turn(l) < 0 || await_turn(l) != 0)
		return -1;
	raw->turn++;
	return 0;
}

static void pong_for_ever(struct limit *l)
{
	struct raw *raw = l->own;
	while (await_turn(l) == 0 && write_turn(l) >= 0)
		raw->turn++;
}

/* ---- Registration ---- */

static int register_once(struct limit *l)
{
	struct raw *raw = l->own;
	struct ibv_mr *registered =
		ibv_reg_mr(raw->rails[0].protection, l->b, l->bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return registered ? ibv_dereg_mr(registered) : -1;
}

/* Measured over a pair of queue pairs of our own. */
#define OVER_A_PAIR .wants_tcp = true, .transport = "verbs", .begin = raw_begin, .end = raw_end

static const struct limit_kind write_latency = { .name = "verbs_write_latency",
	.what = "RDMA write, one way",
	.unit = LIMIT_ONE_WAY_US,
	.small_bytes = { 8, 1024 },
	OVER_A_PAIR,
	.step = ping,
	.serve = pong_for_ever };
static const struct limit_kind write_stream = { .name = "verbs_write",
	.what = "RDMA writes, one way",
	.unit = LIMIT_GBS,
	.by_size = true,
	OVER_A_PAIR,
	.step = write_one_way,
	.serve = stay };
static const struct limit_kind two_way = { .name = "verbs_exchange",
	.what = "RDMA writes both ways at once",
	.unit = LIMIT_US,
	.small_bytes = { 8 },
	.by_size = true,
	OVER_A_PAIR,
	.step = exchange,
	.serve = exchange_for_ever };
static const struct limit_kind two_way_add = { .name = "verbs_exchange_add",
	.what = "the same, and what has come is added",
	.unit = LIMIT_US,
	.small_bytes = { 8 },
	.by_size = true,
	OVER_A_PAIR,
	.step = exchange_and_add,
	.serve = exchange_and_add_for_ever };
static const struct limit_kind registration = { .name = "verbs_register",
	.what = "registering memory, and its end",
	.unit = LIMIT_US,
	.small_bytes = { 4096 },
	.by_size = true,
	OVER_A_PAIR,
	.step = register_once,
	.serve = stay };

static bool is_there(void)
{
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	if (devices)
		ibv_free_device_list(devices);
	return count > 0;
}

static const struct limit_kind *const kinds[] = {
	&write_latency, &write_stream, &two_way, &two_way_add, &registration, NULL };

const struct limits_module bench_limits_module = { .is_there = is_there, .kinds = kinds };
