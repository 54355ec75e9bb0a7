/* faulty: a wrapper that is allowed everything that the contract allows, and does it; and breaks, if asked to.
 *
 * What it always may do: hold a message back for a while (so that what leaves by different conduits arrives in another
 * order), cut it into parts that arrive one by one, and look away when it is asked for progress. Nothing of that may
 * change a result. What it does only when asked, at the nth message of a rank: lose the peer, fail, or go silent.
 *
 * COLLET_FAULTY is a list of these, without spaces (default: delay=50,split=3,skip=4):
 *   delay=US    one message of two is held back, for up to so many microseconds
 *   split=N     one message of N is cut into 2 to 4 parts; 0: none. Messages lie in a GPU's memory only with 0, on all
 *               ranks: the wrapped transport takes them there by their length, and a part may be a byte
 *   skip=N      one call of progress in N does nothing; 0: none
 *   lose=N      the conduit of the rank's Nth message ends as COLLET_ERR_PEER_LOST
 *   fail=N      the same, as COLLET_ERR_TRANSPORT
 *   drop=N      the Nth message, and all that would follow it on its conduit, is not sent, and nobody is told
 *   leave=N     that the Nth message has gone is seen late: in the look that sees its receiver gone too
 *   lose, fail, drop and leave alone: at one of the first 100 messages, by the seed
 *   rank=R      lose, fail, drop and leave hold for this rank only
 * COLLET_FAULTY_SEED makes a run's decisions again: how long a message is held back and where it is cut depend on the
 * seed, the two ranks, the channel and its number there only. Otherwise the seed is made from the job's name and
 * meeting place, alike on all ranks, and printed. Sentences of injected faults have it too.
 *
 * How. Every message travels as a head and its parts, messages of the wrapped transport; so the receiver need not guess
 * how the sender cuts. A receive is posted to the wrapped conduit when its head has come. What the head says is
 * compared with what is expected, as by any transport; the parts of a message that does not fit are received as
 * something else on purpose, so that the wrapped transport throws them away. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"
#include "transport/wrap/faulty.h"

/* ---- Ending ---- */

static uint32_t settle_way(struct faulty_conduit *faulty, struct faulty_way *way, collet_status status)
{
	uint32_t settled = 0;
	for (struct faulty_slot *slot = way->first; slot; slot = slot->next) {
		struct collet_transfer *outer = slot->outer;
		if (!outer)
			continue;
		slot->outer = NULL;
		settled++;
		faulty->conduit.posted--;
		outer->status = status;
	}
	way->first = way->last = NULL;
	return settled + collet_transfer_queue_settle_all(&way->waiting, &faulty->conduit, status);
}

uint32_t faulty_end(struct faulty_conduit *faulty, collet_status status)
{
	faulty->conduit.status = status;
	return settle_way(faulty, &faulty->out, status) + settle_way(faulty, &faulty->in, status);
}

uint32_t faulty_follow(struct faulty_conduit *faulty)
{
	const struct collet_conduit *inner = faulty_inner(faulty);
	faulty->conduit.stats.system_calls = inner->stats.system_calls;
	faulty->conduit.peer_cpu = inner->peer_cpu;
	faulty->conduit.reads_memory_min = inner->reads_memory_min;
	faulty->conduit.reads_calls = inner->reads_calls;
	if (inner->status == COLLET_OK || faulty->conduit.status != COLLET_OK || faulty->last)
		return 0;
	return faulty_end(faulty, inner->status);
}

static bool meant(const struct faulty_device *device, uint64_t wanted, uint64_t number)
{
	return wanted && wanted == number && (device->rank == UINT64_MAX || device->rank == device->own_rank);
}

/* The faults of the rank's message that is sent next; true: it ended the conduit. */
static bool inject(struct faulty_conduit *faulty, const struct collet_transfer *transfer)
{
	struct faulty_device *device = faulty->device;
	const uint64_t number = atomic_fetch_add_explicit(&device->messages, 1, memory_order_relaxed) + 1;
	const bool loses = meant(device, device->lose, number);
	faulty->silent |= meant(device, device->drop, number);
	if (meant(device, device->leave, number))
		faulty->last = transfer;
	if (!loses && !meant(device, device->fail, number))
		return false;
	(void)faulty_end(faulty,
		collet_fail(loses ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
			"%s: rank %u on %s, channel %u: %s by intent at message %llu (COLLET_FAULTY_SEED=%llu)",
			device->name, faulty->conduit.peer, faulty->peer->host, faulty->conduit.channel,
			loses ? "lost" : "failed", (unsigned long long)number, (unsigned long long)device->seed));
	return true;
}

/* ---- Slots ---- */

struct faulty_slot *faulty_take_slot(struct faulty_way *way, struct collet_transfer *outer)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct faulty_slot *slot = &way->slot[i];
		if (slot->used)
			continue;
		slot->used = true;
		slot->mismatched = slot->viewed = false;
		slot->outer = outer;
		slot->next = NULL;
		if (way->first)
			way->last->next = slot;
		else
			way->first = slot;
		way->last = slot;
		return slot;
	}
	return NULL;
}

struct collet_transfer *faulty_take_waiting(struct faulty_way *way)
{
	struct collet_transfer *outer = way->waiting.first;
	way->waiting.first = outer->next;
	return outer;
}

bool faulty_has_settled(const struct faulty_slot *slot, collet_status *status)
{
	*status = COLLET_OK;
	for (uint32_t p = 0; p < slot->parts; p++) {
		if (slot->part[p].status == COLLET_PENDING)
			return false;
		if (slot->part[p].status != COLLET_OK && *status == COLLET_OK)
			*status = slot->part[p].status;
	}
	return true;
}

struct collet_transfer faulty_part(
	struct faulty_way *way, const struct faulty_slot *slot, uint32_t part, const struct collet_transfer *outer,
	bool wrong)
{
	const uint64_t first = part ? slot->bytes.ends[part - 1] : 0;
	return (struct collet_transfer){
		.message = {
			.signature = wrong ? NO_SIGNATURE : PART_SIGNATURE,
			.sequence = way->sequence++,
			.bytes = wrong ? 0 : slot->bytes.ends[part] - first,
		},
		.flags = wrong ? 0 : outer->flags & COLLET_TRANSFER_GPU,
		.data = wrong || !outer->data ? NULL : (char *)outer->data + first,
	};
}

/* ---- Sending ---- */

static void cut(struct faulty_conduit *faulty, struct faulty_head *head)
{
	const uint64_t bytes = head->message.bytes;
	const bool splits = faulty_one_of(&faulty->random_out, faulty->device->split);
	const uint64_t wanted = 2 + faulty_draw(&faulty->random_out) % (PARTS_MOST - 1);
	head->parts = splits && bytes >= wanted ? wanted : 1;
	for (uint64_t p = 0, first = 0; p < head->parts; p++) {
		/* At least one byte each, and enough left for the others. */
		const uint64_t most = bytes - first - (head->parts - 1 - p);
		first += p + 1 == head->parts ? bytes - first : 1 + faulty_draw(&faulty->random_out) % most;
		head->ends[p] = first;
	}
}

static void begin_send(struct faulty_conduit *faulty, struct faulty_slot *slot)
{
	const struct collet_transport *table = faulty_table(faulty);
	struct collet_conduit *inner = faulty_inner(faulty);
	struct collet_transfer *outer = slot->outer;
	slot->bytes = (struct faulty_head){ .message = outer->message };
	cut(faulty, &slot->bytes);
	slot->parts = (uint32_t)slot->bytes.parts;
	slot->head = (struct collet_transfer){
		.message = { HEAD_SIGNATURE, faulty->out.sequence++, sizeof(slot->bytes) }, .data = &slot->bytes };
	for (uint32_t p = 0; p < slot->parts; p++)
		slot->part[p] = faulty_part(&faulty->out, slot, p, outer, false);
	table->post_send(inner, &slot->head);
	for (uint32_t p = 0; p < slot->parts; p++)
		table->post_send(inner, &slot->part[p]);
}

/* May the first that waits leave now? Says when, the first time that it is asked. */
static bool is_due(struct faulty_conduit *faulty)
{
	if (!faulty->timed) {
		const bool holds = faulty->device->delay_us && faulty_one_of(&faulty->random_out, 2);
		const uint64_t us = faulty_draw(&faulty->random_out) % (faulty->device->delay_us + 1);
		faulty->timed = true;
		faulty->due_ns = holds ? collet_clock_ns() + (int64_t)us * 1000 : 0;
	}
	return faulty->due_ns == 0 || collet_clock_ns() >= faulty->due_ns;
}

/* What was sent on a conduit that has gone silent: its owner believes it. */
static void swallow(struct faulty_conduit *faulty)
{
	(void)collet_transfer_queue_settle_all(&faulty->out.waiting, &faulty->conduit, COLLET_OK);
}

/* The last message that its receiver takes: that it has gone is told by the second look after its leaving. */
static bool hides(struct faulty_conduit *faulty, const struct collet_transfer *outer)
{
	if (outer != faulty->last)
		return false;
	const bool had_left = faulty->left;
	faulty->left = faulty_inner(faulty)->status != COLLET_OK;
	return !had_left;
}

/* Begins what is due, and settles what has gone. */
static uint32_t advance_out(struct faulty_conduit *faulty)
{
	struct faulty_way *out = &faulty->out;
	uint32_t settled = 0;
	while (out->waiting.first && !faulty->silent && faulty->conduit.status == COLLET_OK && is_due(faulty)) {
		struct faulty_slot *slot = faulty_take_slot(out, out->waiting.first);
		if (!slot)
			break;
		(void)faulty_take_waiting(out);
		faulty->timed = false;
		begin_send(faulty, slot);
	}
	if (faulty->silent)
		swallow(faulty);
	while (out->first) {
		struct faulty_slot *slot = out->first;
		collet_status status;
		if (slot->head.status == COLLET_PENDING || !faulty_has_settled(slot, &status))
			break;
		if (status != COLLET_OK) {
			faulty->last = NULL;  /* the wrapped conduit has ended: faulty_follow() */
			break;
		}
		struct collet_transfer *outer = slot->outer;
		if (hides(faulty, outer))
			break;
		out->first = slot->next;
		slot->used = false;
		slot->outer = NULL;
		faulty->conduit.posted--;
		faulty->conduit.stats.messages_sent++;
		faulty->conduit.stats.bytes_sent += outer->message.bytes;
		outer->status = COLLET_OK;
		settled++;
		if (outer == faulty->last)
			faulty->last = NULL;
	}
	return settled;
}

static void post_send(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	transfer->status = conduit->status;
	if (conduit->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	conduit->posted++;
	collet_transfer_queue_add(&faulty->out.waiting, transfer);
	if (inject(faulty, transfer))
		return;
	(void)advance_out(faulty);
	(void)faulty_follow(faulty);
}

/* ---- Looking ---- */

static uint32_t progress(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	if (conduit->status != COLLET_OK || faulty_one_of(&faulty->random_look, faulty->device->skip))
		return 0;
	uint32_t settled = advance_out(faulty);
	struct collet_conduit *inner = faulty_inner(faulty);
	if (inner->posted) {
		faulty_table(faulty)->progress(inner);
		settled += advance_out(faulty);
	}
	settled += faulty_advance_in(faulty);
	return settled + faulty_follow(faulty);
}

static bool peek(struct collet_conduit *conduit, struct collet_message *message)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	if (conduit->status != COLLET_OK)
		return false;
	(void)advance_out(faulty);
	bool is_there = faulty_get_head(faulty);
	if (!is_there && conduit->status == COLLET_OK) {
		faulty_table(faulty)->progress(faulty_inner(faulty));
		is_there = faulty_get_head(faulty);
	}
	(void)advance_out(faulty);
	(void)faulty_follow(faulty);
	if (!is_there || conduit->status != COLLET_OK)
		return false;
	*message = faulty->came.message;
	return true;
}

/* Has the wrapped conduit done something that is not passed on yet? */
static bool can_move(const struct faulty_conduit *faulty)
{
	const struct faulty_slot *out = faulty->out.first, *in = faulty->in.first;
	collet_status status;
	return faulty->has_head || (faulty->heading_posted && faulty->heading.status != COLLET_PENDING) ||
		(out && out->head.status != COLLET_PENDING && faulty_has_settled(out, &status)) ||
		(in && faulty_has_settled(in, &status));
}

static bool arm(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	if (conduit->status != COLLET_OK || can_move(faulty))
		return false;
	/* Held back, it is due within microseconds, which is no time to sleep. */
	if (faulty->out.waiting.first && !faulty->silent)
		return false;
	return faulty_inner(faulty)->posted == 0 || faulty_table(faulty)->arm(faulty_inner(faulty));
}

static void took(struct collet_conduit *conduit, uint32_t call, uint64_t bytes, uint64_t ticks)
{
	const struct faulty_conduit *faulty = faulty_of(conduit);
	faulty_table(faulty)->took(faulty_inner(faulty), call, bytes, ticks);
}

static bool takes_gpu(struct collet_conduit *conduit, const void *data, uint64_t bytes)
{
	const struct faulty_conduit *faulty = faulty_of(conduit);
	return faulty_table(faulty)->takes_gpu(faulty_inner(faulty), data, bytes);
}

static void disarm(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	faulty_table(faulty)->disarm(faulty_inner(faulty));
}

/* ---- Beginning and end ---- */

static collet_status open_conduit(struct collet_conduit *conduit, const struct collet_conduit_config *config)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	struct faulty_device *device = (struct faulty_device *)(void *)config->device;
	faulty->device = device;
	faulty->peer = config->peer;
	faulty->process = (uint32_t)getpid();
	uint64_t mixed = device->seed;
	mixed = faulty_draw(&mixed) ^ config->self->rank;
	mixed = faulty_draw(&mixed) ^ config->peer->rank;
	mixed = faulty_draw(&mixed) ^ config->channel;
	faulty->random_out = faulty_draw(&mixed);
	faulty->random_look = faulty_draw(&mixed);
	conduit->status = collet_wrapper_open(conduit, faulty_inner(faulty), config);
	return conduit->status;
}

static collet_status opening(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	const struct collet_conduit *inner = faulty_inner(faulty);
	const collet_status status = faulty_table(faulty)->opening(faulty_inner(faulty));
	conduit->status = inner->status;
	conduit->stats.system_calls = inner->stats.system_calls;
	conduit->reads_arena = inner->reads_arena;
	return status;
}

static void close_conduit(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = faulty_of(conduit);
	if (faulty->closed || !faulty->device)
		return;
	faulty->closed = true;
	faulty_table(faulty)->close(faulty_inner(faulty));
	if (conduit->status == COLLET_OK)
		conduit->status = COLLET_CANCELLED;
	if (faulty->process == (uint32_t)getpid())
		(void)faulty_end(faulty, conduit->status);
}

static void close_device(struct collet_device *device)
{
	free(device);
}

collet_status collet_faulty_wrap(struct collet_offer *offer, const struct collet_device_config *config)
{
	struct faulty_device *device = calloc(1, sizeof(*device));
	if (!device)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a transport");
	bool drawn;
	const collet_status status = faulty_read_settings(device, config->job, &drawn);
	if (status != COLLET_OK) {
		free(device);
		return status;
	}
	struct collet_wrapper *wrapper = &device->wrapper;
	collet_wrapper_begin(offer, wrapper, config, sizeof(struct faulty_conduit));
	memcpy(device->name, offer->name, sizeof(device->name));
	device->own_rank = config->self->rank;
	if (drawn)
		collet_log(&wrapper->log, COLLET_LOG_INFO,
			"%s: COLLET_FAULTY_SEED=%llu (lose=%llu, fail=%llu, drop=%llu)", device->name,
			(unsigned long long)device->seed, (unsigned long long)device->lose,
			(unsigned long long)device->fail, (unsigned long long)device->drop);
	struct collet_transport *own = &offer->own;
	own->device_close = close_device;
	own->open = open_conduit;
	own->opening = opening;
	own->close = close_conduit;
	own->post_send = post_send;
	own->post_recv = faulty_post_recv;
	own->release = faulty_release;
	own->progress = progress;
	own->has_come = NULL;
	own->send_now = own->recv_now = NULL;
	own->peek = peek;
	own->arm = arm;
	own->disarm = disarm;
	/* Parts may be too short for what the wrapped one takes in a GPU's memory. */
	own->takes_gpu = wrapper->inner->takes_gpu && !device->split ? takes_gpu : NULL;
	own->took = wrapper->inner->took ? took : NULL;
	return COLLET_OK;
}
