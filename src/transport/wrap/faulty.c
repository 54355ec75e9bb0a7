/* faulty: a wrapper that is allowed everything that the contract allows, and does it; and breaks, if asked to.
 *
 * What it always may do: hold a message back for a while (so that what leaves by different conduits arrives in another
 * order), cut it into parts that arrive one by one, and look away when it is asked for progress. Nothing of that may
 * change a result. What it does only when asked, at the nth message of a rank: lose the peer, fail, or go silent.
 *
 * COLLET_FAULTY is a list of these, without spaces (default: delay=50,split=3,skip=4):
 *   delay=US    one message of two is held back, for up to so many microseconds
 *   split=N     one message of N is cut into 2 to 4 parts; 0: none
 *   skip=N      one call of progress in N does nothing; 0: none
 *   lose=N      the conduit of the rank's Nth message ends as COLLET_ERR_PEER_LOST
 *   fail=N      the same, as COLLET_ERR_TRANSPORT
 *   drop=N      the Nth message, and all that would follow it on its conduit, is not sent, and nobody is told
 *   rank=R      lose, fail and drop hold for this rank only
 * COLLET_FAULTY_SEED makes a run's decisions again: how long a message is held back and where it is cut depend on the
 * seed, the two ranks, the channel and its number there only. Otherwise the seed is made from the job's name and
 * meeting place, alike on all ranks, and printed. Sentences of injected faults have it too.
 *
 * How. Every message travels as a head and its parts, messages of the wrapped transport; so the receiver need not guess
 * how the sender cuts. A receive is posted to the wrapped conduit when its head has come. What the head says is
 * compared with what is expected, as by any transport; the parts of a message that does not fit are received as
 * something else on purpose, so that the wrapped transport throws them away. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/config.h"
#include "core/status.h"
#include "transport/wrap/wrapper.h"

enum {
	PARTS_MOST = 4,
	SLOTS = 32                       /* messages under way each way; more wait */
};

#define HEAD_SIGNATURE UINT64_C(0x6661756c74790001)
#define PART_SIGNATURE UINT64_C(0x6661756c74790002)
#define NO_SIGNATURE UINT64_C(0x6661756c74790003)

struct faulty_device {
	struct collet_wrapper wrapper;
	char name[COLLET_TRANSPORT_NAME_BYTES];
	uint64_t seed;
	uint64_t delay_us, split, skip, lose, fail, drop, rank;
	uint32_t own_rank;
	_Atomic uint64_t messages;       /* that this rank has sent */
};

struct faulty_head {
	struct collet_message message;
	uint64_t parts;
	uint64_t ends[PARTS_MOST];       /* of parts, in bytes of the message */
};

/* A message under way: its transfer, and the wrapped conduit's. */
struct faulty_slot {
	struct collet_transfer *outer;   /* NULL: settled; a view may still be lent */
	struct collet_transfer head, part[PARTS_MOST];
	struct faulty_head bytes;
	uint32_t parts;
	bool used, mismatched, viewed;
	struct faulty_slot *next;        /* under way after this one */
};

struct faulty_way {
	struct collet_transfer_queue waiting;  /* not begun */
	struct faulty_slot *first, *last;      /* under way, oldest first */
	struct faulty_slot slot[SLOTS];
	uint64_t sequence;                     /* of the wrapped conduit's messages */
};

struct faulty_conduit {
	struct collet_conduit conduit;
	struct faulty_device *device;
	const struct collet_card *peer;
	uint32_t process;
	bool ready, closed;
	bool silent;                     /* nothing is sent any more */
	bool timed;                      /* due holds for the first that waits */
	int64_t due_ns;
	uint64_t random_out, random_look;
	struct faulty_way out, in;
	struct collet_transfer heading;  /* the receive of the next head */
	struct faulty_head came;         /* where it lands */
	bool heading_posted, has_head;
};

static struct faulty_conduit *of(struct collet_conduit *conduit)
{
	return (struct faulty_conduit *)conduit;
}

static struct collet_conduit *inner_of(const struct faulty_conduit *faulty)
{
	return collet_wrapped((struct collet_conduit *)(uintptr_t)&faulty->conduit, sizeof(struct faulty_conduit));
}

static const struct collet_transport *table_of(const struct faulty_conduit *faulty)
{
	return inner_of(faulty)->transport;
}

/* splitmix64: good enough, and every seed will do. */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static bool one_of(uint64_t *state, uint64_t count)
{
	return count && draw(state) % count == 0;
}

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

/* The wrapped conduit is not asked any more, so it moves nothing of what it still holds; close() closes it. */
static uint32_t end(struct faulty_conduit *faulty, collet_status status)
{
	faulty->conduit.status = status;
	return settle_way(faulty, &faulty->out, status) + settle_way(faulty, &faulty->in, status);
}

/* Has the wrapped conduit ended? Then so has this one. */
static uint32_t follow(struct faulty_conduit *faulty)
{
	const struct collet_conduit *inner = inner_of(faulty);
	faulty->conduit.stats.system_calls = inner->stats.system_calls;
	faulty->conduit.peer_cpu = inner->peer_cpu;
	if (inner->status == COLLET_OK || faulty->conduit.status != COLLET_OK)
		return 0;
	return end(faulty, inner->status);
}

static bool meant(const struct faulty_device *device, uint64_t wanted, uint64_t number)
{
	return wanted && wanted == number && (device->rank == UINT64_MAX || device->rank == device->own_rank);
}

/* The faults of the rank's message that is sent next; true: it ended the conduit. */
static bool inject(struct faulty_conduit *faulty)
{
	struct faulty_device *device = faulty->device;
	const uint64_t number = atomic_fetch_add_explicit(&device->messages, 1, memory_order_relaxed) + 1;
	const bool loses = meant(device, device->lose, number);
	faulty->silent |= meant(device, device->drop, number);
	if (!loses && !meant(device, device->fail, number))
		return false;
	(void)end(faulty,
		collet_fail(loses ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
			"%s: rank %u on %s, channel %u: %s by intent at message %llu (COLLET_FAULTY_SEED=%llu)",
			device->name, faulty->conduit.peer, faulty->peer->host, faulty->conduit.channel,
			loses ? "lost" : "failed", (unsigned long long)number, (unsigned long long)device->seed));
	return true;
}

/* ---- Slots ---- */

static struct faulty_slot *take_slot(struct faulty_way *way, struct collet_transfer *outer)
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

static struct collet_transfer *take_waiting(struct faulty_way *way)
{
	struct collet_transfer *outer = way->waiting.first;
	way->waiting.first = outer->next;
	return outer;
}

/* Whether all of the slot's parts have settled; *status the first that did not go well. */
static bool has_settled(const struct faulty_slot *slot, collet_status *status)
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

static struct collet_transfer part_of(
	struct faulty_way *way, const struct faulty_slot *slot, uint32_t part, void *data, bool wrong)
{
	const uint64_t first = part ? slot->bytes.ends[part - 1] : 0;
	return (struct collet_transfer){
		.message = {
			.signature = wrong ? NO_SIGNATURE : PART_SIGNATURE,
			.sequence = way->sequence++,
			.bytes = wrong ? 0 : slot->bytes.ends[part] - first,
		},
		.data = wrong || !data ? NULL : (char *)data + first,
	};
}

/* ---- Sending ---- */

static void cut(struct faulty_conduit *faulty, struct faulty_head *head)
{
	const uint64_t bytes = head->message.bytes;
	const bool splits = one_of(&faulty->random_out, faulty->device->split);
	const uint64_t wanted = 2 + draw(&faulty->random_out) % (PARTS_MOST - 1);
	head->parts = splits && bytes >= wanted ? wanted : 1;
	for (uint64_t p = 0, first = 0; p < head->parts; p++) {
		/* At least one byte each, and enough left for the others. */
		const uint64_t most = bytes - first - (head->parts - 1 - p);
		first += p + 1 == head->parts ? bytes - first : 1 + draw(&faulty->random_out) % most;
		head->ends[p] = first;
	}
}

static void begin_send(struct faulty_conduit *faulty, struct faulty_slot *slot)
{
	const struct collet_transport *table = table_of(faulty);
	struct collet_conduit *inner = inner_of(faulty);
	struct collet_transfer *outer = slot->outer;
	slot->bytes = (struct faulty_head){ .message = outer->message };
	cut(faulty, &slot->bytes);
	slot->parts = (uint32_t)slot->bytes.parts;
	slot->head = (struct collet_transfer){
		.message = { HEAD_SIGNATURE, faulty->out.sequence++, sizeof(slot->bytes) }, .data = &slot->bytes };
	for (uint32_t p = 0; p < slot->parts; p++)
		slot->part[p] = part_of(&faulty->out, slot, p, outer->data, false);
	table->post_send(inner, &slot->head);
	for (uint32_t p = 0; p < slot->parts; p++)
		table->post_send(inner, &slot->part[p]);
}

/* May the first that waits leave now? Says when, the first time that it is asked. */
static bool is_due(struct faulty_conduit *faulty)
{
	if (!faulty->timed) {
		const bool holds = faulty->device->delay_us && one_of(&faulty->random_out, 2);
		const uint64_t us = draw(&faulty->random_out) % (faulty->device->delay_us + 1);
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

/* Begins what is due, and settles what has gone. */
static uint32_t advance_out(struct faulty_conduit *faulty)
{
	struct faulty_way *out = &faulty->out;
	uint32_t settled = 0;
	while (out->waiting.first && !faulty->silent && faulty->conduit.status == COLLET_OK && is_due(faulty)) {
		struct faulty_slot *slot = take_slot(out, out->waiting.first);
		if (!slot)
			break;
		(void)take_waiting(out);
		faulty->timed = false;
		begin_send(faulty, slot);
	}
	if (faulty->silent)
		swallow(faulty);
	while (out->first) {
		struct faulty_slot *slot = out->first;
		collet_status status;
		if (slot->head.status == COLLET_PENDING || !has_settled(slot, &status))
			break;
		if (status != COLLET_OK)
			break;  /* the wrapped conduit has ended: follow() */
		struct collet_transfer *outer = slot->outer;
		out->first = slot->next;
		slot->used = false;
		slot->outer = NULL;
		faulty->conduit.posted--;
		faulty->conduit.stats.messages_sent++;
		faulty->conduit.stats.bytes_sent += outer->message.bytes;
		outer->status = COLLET_OK;
		settled++;
	}
	return settled;
}

static void post_send(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct faulty_conduit *faulty = of(conduit);
	transfer->status = conduit->status;
	if (conduit->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	conduit->posted++;
	collet_transfer_queue_add(&faulty->out.waiting, transfer);
	if (inject(faulty))
		return;
	(void)advance_out(faulty);
	(void)follow(faulty);
}

/* ---- Receiving ---- */

/* A head that no sender of ours makes: as with any transport, what comes from a peer is not believed. */
static bool is_sound(const struct faulty_head *head)
{
	if (head->parts < 1 || head->parts > PARTS_MOST || head->ends[head->parts - 1] != head->message.bytes)
		return false;
	for (uint64_t p = 1; p < head->parts; p++)
		if (head->ends[p] < head->ends[p - 1])
			return false;
	return true;
}

/* Has a head: receives what it announces, into the first receive that waits. False: no room now. */
static bool begin_receive(struct faulty_conduit *faulty)
{
	const struct collet_transport *table = table_of(faulty);
	struct collet_conduit *inner = inner_of(faulty);
	struct faulty_slot *slot = take_slot(&faulty->in, faulty->in.waiting.first);
	if (!slot)
		return false;
	struct collet_transfer *outer = take_waiting(&faulty->in);
	faulty->has_head = false;
	slot->bytes = faulty->came;
	slot->parts = (uint32_t)slot->bytes.parts;
	slot->mismatched = !collet_message_equal(&slot->bytes.message, &outer->message);
	slot->viewed = !slot->mismatched && slot->parts == 1 && outer->flags & COLLET_TRANSFER_VIEW;
	for (uint32_t p = 0; p < slot->parts; p++) {
		slot->part[p] = part_of(&faulty->in, slot, p, outer->data, slot->mismatched);
		slot->part[p].flags = slot->viewed ? COLLET_TRANSFER_VIEW : 0;
	}
	for (uint32_t p = 0; p < slot->parts; p++)
		table->post_recv(inner, &slot->part[p]);
	return true;
}

/* The next head, if it has come; asks for it if somebody waits. */
static bool get_head(struct faulty_conduit *faulty)
{
	if (faulty->has_head)
		return true;
	if (!faulty->heading_posted) {
		faulty->heading = (struct collet_transfer){
			.message = { HEAD_SIGNATURE, faulty->in.sequence++, sizeof(faulty->came) },
			.data = &faulty->came,
		};
		faulty->heading_posted = true;
		table_of(faulty)->post_recv(inner_of(faulty), &faulty->heading);
	}
	if (faulty->heading.status == COLLET_PENDING)
		return false;
	if (faulty->heading.status == COLLET_OK && is_sound(&faulty->came)) {
		faulty->heading_posted = false;
		faulty->has_head = true;
		return true;
	}
	if (inner_of(faulty)->status == COLLET_OK && faulty->conduit.status == COLLET_OK)
		(void)end(faulty,
			collet_fail(COLLET_ERR_TRANSPORT,
				"%s: rank %u on %s, channel %u: what came is no message of this wrapper",
				faulty->device->name, faulty->conduit.peer, faulty->peer->host,
				faulty->conduit.channel));
	return false;
}

static void settle_receive(struct faulty_conduit *faulty, struct faulty_slot *slot)
{
	struct collet_transfer *outer = slot->outer;
	slot->outer = NULL;
	faulty->conduit.posted--;
	if (slot->mismatched) {
		slot->used = false;
		outer->message = slot->bytes.message;
		outer->status = COLLET_ERR_MISMATCH;
		return;
	}
	/* A view's slot is kept until it is released. */
	outer->transport_private[0] = slot->viewed ? (uint64_t)(slot - faulty->in.slot) + 1 : 0;
	outer->view = slot->viewed ? slot->part[0].view : outer->data;
	slot->used = slot->viewed;
	faulty->conduit.stats.messages_received++;
	faulty->conduit.stats.bytes_received += outer->message.bytes;
	outer->status = COLLET_OK;
}

static uint32_t advance_in(struct faulty_conduit *faulty)
{
	struct faulty_way *in = &faulty->in;
	uint32_t settled = 0;
	while (in->waiting.first && faulty->conduit.status == COLLET_OK && get_head(faulty) && begin_receive(faulty))
		;
	while (in->first) {
		struct faulty_slot *slot = in->first;
		collet_status status;
		if (!has_settled(slot, &status))
			break;
		if (status != (slot->mismatched ? COLLET_ERR_MISMATCH : COLLET_OK))
			break;  /* the wrapped conduit has ended: follow() */
		in->first = slot->next;
		settle_receive(faulty, slot);
		settled++;
	}
	return settled;
}

static void post_recv(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct faulty_conduit *faulty = of(conduit);
	transfer->status = conduit->status;
	if (conduit->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	conduit->posted++;
	collet_transfer_queue_add(&faulty->in.waiting, transfer);
	(void)advance_in(faulty);
	(void)follow(faulty);
}

static void release(struct collet_conduit *conduit, struct collet_transfer *transfer)
{
	struct faulty_conduit *faulty = of(conduit);
	const uint64_t place = transfer->transport_private[0];
	if (!place || place > SLOTS)
		return;
	struct faulty_slot *slot = &faulty->in.slot[place - 1];
	transfer->transport_private[0] = 0;
	table_of(faulty)->release(inner_of(faulty), &slot->part[0]);
	transfer->status = slot->part[0].status;
	slot->used = false;
}

/* ---- Looking ---- */

static uint32_t progress(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = of(conduit);
	if (conduit->status != COLLET_OK || one_of(&faulty->random_look, faulty->device->skip))
		return 0;
	uint32_t settled = advance_out(faulty);
	struct collet_conduit *inner = inner_of(faulty);
	if (inner->posted) {
		table_of(faulty)->progress(inner);
		settled += advance_out(faulty);
	}
	settled += advance_in(faulty);
	return settled + follow(faulty);
}

static bool peek(struct collet_conduit *conduit, struct collet_message *message)
{
	struct faulty_conduit *faulty = of(conduit);
	if (conduit->status != COLLET_OK)
		return false;
	(void)advance_out(faulty);
	bool is_there = get_head(faulty);
	if (!is_there && conduit->status == COLLET_OK) {
		table_of(faulty)->progress(inner_of(faulty));
		is_there = get_head(faulty);
	}
	(void)advance_out(faulty);
	(void)follow(faulty);
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
		(out && out->head.status != COLLET_PENDING && has_settled(out, &status)) ||
		(in && has_settled(in, &status));
}

static bool arm(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = of(conduit);
	if (conduit->status != COLLET_OK || can_move(faulty))
		return false;
	/* Held back, it is due within microseconds, which is no time to sleep. */
	if (faulty->out.waiting.first && !faulty->silent)
		return false;
	return inner_of(faulty)->posted == 0 || table_of(faulty)->arm(inner_of(faulty));
}

static void disarm(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = of(conduit);
	table_of(faulty)->disarm(inner_of(faulty));
}

/* ---- Beginning and end ---- */

static collet_status open_conduit(struct collet_conduit *conduit, const struct collet_conduit_config *config)
{
	struct faulty_conduit *faulty = of(conduit);
	struct faulty_device *device = (struct faulty_device *)(void *)config->device;
	faulty->device = device;
	faulty->peer = config->peer;
	faulty->process = (uint32_t)getpid();
	uint64_t mixed = device->seed;
	mixed = draw(&mixed) ^ config->self->rank;
	mixed = draw(&mixed) ^ config->peer->rank;
	mixed = draw(&mixed) ^ config->channel;
	faulty->random_out = draw(&mixed);
	faulty->random_look = draw(&mixed);
	conduit->status = collet_wrapper_open(conduit, inner_of(faulty), config);
	return conduit->status;
}

static collet_status opening(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = of(conduit);
	const struct collet_conduit *inner = inner_of(faulty);
	const collet_status status = table_of(faulty)->opening(inner_of(faulty));
	conduit->status = inner->status;
	conduit->stats.system_calls = inner->stats.system_calls;
	conduit->reads_arena = inner->reads_arena;
	return status;
}

static void close_conduit(struct collet_conduit *conduit)
{
	struct faulty_conduit *faulty = of(conduit);
	if (faulty->closed || !faulty->device)
		return;
	faulty->closed = true;
	table_of(faulty)->close(inner_of(faulty));
	if (conduit->status == COLLET_OK)
		conduit->status = COLLET_CANCELLED;
	if (faulty->process == (uint32_t)getpid())
		(void)end(faulty, conduit->status);
}

static void close_device(struct collet_device *device)
{
	free(device);
}

/* ---- Settings ---- */

static collet_status read_settings(struct faulty_device *device, const char *text)
{
	const struct {
		const char *name;
		uint64_t *value, most;
	} known[] = {
		{ "delay", &device->delay_us, 1000000 }, { "split", &device->split, UINT32_MAX },
		{ "skip", &device->skip, UINT32_MAX }, { "lose", &device->lose, UINT64_MAX },
		{ "fail", &device->fail, UINT64_MAX }, { "drop", &device->drop, UINT64_MAX },
		{ "rank", &device->rank, UINT32_MAX },
	};
	for (const char *at = text; *at;) {
		char name[16], value[32];
		int used = 0;
		uint32_t k = 0;
		if (sscanf(at, "%15[a-z]=%31[0-9]%n", name, value, &used) == 2)
			while (k < sizeof(known) / sizeof(known[0]) && strcmp(known[k].name, name) != 0)
				k++;
		if (!used || k == sizeof(known) / sizeof(known[0]) ||
			!collet_parse_u64(value, known[k].most, known[k].value) ||
			(at[used] != ',' && at[used] != '\0'))
			return collet_fail(COLLET_ERR_CONFIG,
				"COLLET_FAULTY=%s: \"%s\" is none of delay=US (up to 1000000), split=N, skip=N, "
				"lose=N, fail=N, drop=N, rank=R",
				text, at);
		at += used + (at[used] == ',');
	}
	if (device->skip == 1)
		return collet_fail(COLLET_ERR_CONFIG, "COLLET_FAULTY=%s: skip=1 would never make progress", text);
	return COLLET_OK;
}

collet_status collet_faulty_wrap(struct collet_offer *offer, const struct collet_device_config *config)
{
	struct faulty_device *device = calloc(1, sizeof(*device));
	if (!device)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a transport");
	const char *text = collet_env("COLLET_FAULTY");
	const bool given = collet_env("COLLET_FAULTY_SEED");
	device->rank = UINT64_MAX;
	collet_status status = read_settings(device, text ? text : "delay=50,split=3,skip=4");
	if (status == COLLET_OK)
		status = collet_env_u64("COLLET_FAULTY_SEED", UINT64_MAX, &device->seed);
	if (status != COLLET_OK) {
		free(device);
		return status;
	}
	if (!given)
		device->seed = (config->job ^ config->job >> 32) & UINT32_MAX;
	struct collet_wrapper *wrapper = &device->wrapper;
	collet_wrapper_begin(offer, wrapper, config, sizeof(struct faulty_conduit));
	memcpy(device->name, offer->name, sizeof(device->name));
	device->own_rank = config->self->rank;
	if (!given)
		collet_log(&wrapper->log, COLLET_LOG_INFO, "%s: COLLET_FAULTY_SEED=%llu", device->name,
			(unsigned long long)device->seed);
	struct collet_transport *own = &offer->own;
	own->device_close = close_device;
	own->open = open_conduit;
	own->opening = opening;
	own->close = close_conduit;
	own->post_send = post_send;
	own->post_recv = post_recv;
	own->release = release;
	own->progress = progress;
	own->has_come = NULL;
	own->peek = peek;
	own->arm = arm;
	own->disarm = disarm;
	return COLLET_OK;
}
