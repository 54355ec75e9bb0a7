/* Implements the faulty wrapper, which does everything that the transport contract allows, and injects failures on
 * request.
 *
 * It always delays messages (so that messages on different endpoints arrive in another order), splits them into parts
 * that arrive one by one, and skips calls of progress(). None of this may change a result. Only on request, at the nth
 * message of a rank, it loses the peer, fails, or goes silent.
 *
 * COLLET_FAULTY is a list of these, without spaces (default: delay=50,split=3,skip=4):
 *  delay=US    delays one message in two, by at most this many microseconds
 *  split=N     splits one message in N into 2 to 4 parts; 0: none. Messages in GPU memory need 0 on all ranks: the
 *              wrapped transport accepts them by their length, and a part may be a single byte
 *  skip=N      one call of progress() in N does nothing; 0: none
 *  lose=N      the endpoint of the rank's Nth message ends with COLLET_ERR_PEER_LOST
 *  fail=N      the same with COLLET_ERR_TRANSPORT
 *  drop=N      the Nth message, and all later ones of its endpoint, are not sent, and nobody is told
 *  leave=N     the Nth message's completion is reported late: by the poll that also sees its receiver gone
 *  lose, fail, drop and leave without N: at one of the first 100 messages, chosen by the seed
 *  rank=R      lose, fail, drop and leave apply to this rank only
 * COLLET_FAULTY_SEED repeats the decisions of a run. The delay and the split of a message depend only on the seed, the
 * two ranks, the channel and the message's number on it. Without it the seed is made from the job's name and bootstrap
 * address, the same on all ranks, and printed. Error sentences of injected faults include it.
 *
 * Every message travels as a header and its parts, which are messages of the wrapped transport, so the receiver need
 * not guess how the sender splits. A receive is posted to the wrapped endpoint when its header has come. The header is
 * compared with the expected message, as in any transport. The parts of a mismatched message are received with a wrong
 * signature on purpose, so that the wrapped transport drops them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"
#include "transport/wrap/faulty.h"

/* ---- Failing ---- */

static uint32_t complete_direction(
	struct faulty_endpoint *faulty, struct faulty_direction *direction, collet_status status)
{
	uint32_t completed = 0;
	for (struct faulty_slot *slot = direction->first; slot; slot = slot->next) {
		struct collet_transfer *outer = slot->outer;
		if (!outer)
			continue;
		slot->outer = NULL;
		completed++;
		faulty->endpoint.posted--;
		outer->status = status;
	}
	direction->first = direction->last = NULL;
	return completed + collet_transfer_queue_complete_all(&direction->waiting, &faulty->endpoint, status);
}

uint32_t faulty_end(struct faulty_endpoint *faulty, collet_status status)
{
	faulty->endpoint.status = status;
	return complete_direction(faulty, &faulty->out, status) + complete_direction(faulty, &faulty->in, status);
}

uint32_t faulty_mirror(struct faulty_endpoint *faulty)
{
	const struct collet_endpoint *inner = faulty_inner(faulty);
	faulty->endpoint.stats.system_calls = inner->stats.system_calls;
	faulty->endpoint.peer_cpu = inner->peer_cpu;
	if (inner->status == COLLET_OK || faulty->endpoint.status != COLLET_OK || faulty->late_send)
		return 0;
	return faulty_end(faulty, inner->status);
}

static bool is_selected(const struct faulty_device *device, uint64_t wanted, uint64_t number)
{
	return wanted && wanted == number && (device->rank == UINT64_MAX || device->rank == device->own_rank);
}

/* Injects the faults of the rank's next message. True if they ended the endpoint. */
static bool inject(struct faulty_endpoint *faulty, const struct collet_transfer *transfer)
{
	struct faulty_device *device = faulty->device;
	const uint64_t number = atomic_fetch_add_explicit(&device->messages, 1, memory_order_relaxed) + 1;
	const bool is_loss = is_selected(device, device->lose, number);
	faulty->is_silent |= is_selected(device, device->drop, number);
	if (is_selected(device, device->leave, number))
		faulty->late_send = transfer;
	if (!is_loss && !is_selected(device, device->fail, number))
		return false;
	(void)faulty_end(faulty,
		collet_fail(is_loss ? COLLET_ERR_PEER_LOST : COLLET_ERR_TRANSPORT,
			"%s: rank %u on %s, channel %u: %s on purpose at message %llu (COLLET_FAULTY_SEED=%llu)",
			device->name, faulty->endpoint.peer, faulty->peer->host, faulty->endpoint.channel,
			is_loss ? "lost" : "failed", (unsigned long long)number, (unsigned long long)device->seed));
	return true;
}

/* ---- Slots ---- */

struct faulty_slot *faulty_alloc_slot(struct faulty_direction *direction, struct collet_transfer *outer)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct faulty_slot *slot = &direction->slot[i];
		if (slot->is_used)
			continue;
		slot->is_used = true;
		slot->is_mismatch = slot->is_view = false;
		slot->outer = outer;
		slot->next = NULL;
		if (direction->first)
			direction->last->next = slot;
		else
			direction->first = slot;
		direction->last = slot;
		return slot;
	}
	return NULL;
}

struct collet_transfer *faulty_pop_waiting(struct faulty_direction *direction)
{
	struct collet_transfer *outer = direction->waiting.first;
	direction->waiting.first = outer->next;
	return outer;
}

bool faulty_is_complete(const struct faulty_slot *slot, collet_status *status)
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

struct collet_transfer faulty_part(struct faulty_direction *direction, const struct faulty_slot *slot, uint32_t part,
	const struct collet_transfer *outer, bool is_decoy)
{
	const uint64_t first = part ? slot->content.ends[part - 1] : 0;
	return (struct collet_transfer){
		.message = {
			.signature = is_decoy ? NO_SIGNATURE : PART_SIGNATURE,
			.sequence = direction->sequence++,
			.bytes = is_decoy ? 0 : slot->content.ends[part] - first,
		},
		.flags = is_decoy ? 0 : outer->flags & COLLET_TRANSFER_GPU,
		.data = is_decoy || !outer->data ? NULL : (char *)outer->data + first,
	};
}

/* ---- Sending ---- */

static void split_message(struct faulty_endpoint *faulty, struct faulty_header *header)
{
	const uint64_t bytes = header->message.bytes;
	const bool is_split = faulty_chance(&faulty->random_out, faulty->device->split);
	const uint64_t wanted = 2 + faulty_random(&faulty->random_out) % (PARTS_MAX - 1);
	header->parts = is_split && bytes >= wanted ? wanted : 1;
	for (uint64_t p = 0, first = 0; p < header->parts; p++) {
		/* Each part has at least one byte, and leaves one for each part after it. */
		const uint64_t most = bytes - first - (header->parts - 1 - p);
		first += p + 1 == header->parts ? bytes - first : 1 + faulty_random(&faulty->random_out) % most;
		header->ends[p] = first;
	}
}

static void begin_send(struct faulty_endpoint *faulty, struct faulty_slot *slot)
{
	const struct collet_transport *table = faulty_table(faulty);
	struct collet_endpoint *inner = faulty_inner(faulty);
	struct collet_transfer *outer = slot->outer;
	slot->content = (struct faulty_header){ .message = outer->message };
	split_message(faulty, &slot->content);
	slot->parts = (uint32_t)slot->content.parts;
	slot->header = (struct collet_transfer){
		.message = { HEADER_SIGNATURE, faulty->out.sequence++, sizeof(slot->content) }, .data = &slot->content
	};
	for (uint32_t p = 0; p < slot->parts; p++)
		slot->part[p] = faulty_part(&faulty->out, slot, p, outer, false);
	table->post_send(inner, &slot->header);
	for (uint32_t p = 0; p < slot->parts; p++)
		table->post_send(inner, &slot->part[p]);
}

/* True if the first waiting message may be sent now. Draws its delay at the first call. */
static bool is_due(struct faulty_endpoint *faulty)
{
	if (!faulty->has_due) {
		const bool is_delayed = faulty->device->delay_us && faulty_chance(&faulty->random_out, 2);
		const uint64_t us = faulty_random(&faulty->random_out) % (faulty->device->delay_us + 1);
		faulty->has_due = true;
		faulty->due_ns = is_delayed ? collet_clock_ns() + (int64_t)us * 1000 : 0;
	}
	return faulty->due_ns == 0 || collet_clock_ns() >= faulty->due_ns;
}

/* Completes sends on a silent endpoint without sending them. */
static void discard_waiting(struct faulty_endpoint *faulty)
{
	(void)collet_transfer_queue_complete_all(&faulty->out.waiting, &faulty->endpoint, COLLET_OK);
}

/* True if the completion of the late send is still to be hidden: until the second poll after its receiver has left. */
static bool hides_completion(struct faulty_endpoint *faulty, const struct collet_transfer *outer)
{
	if (outer != faulty->late_send)
		return false;
	const bool had_left = faulty->has_receiver_left;
	faulty->has_receiver_left = faulty_inner(faulty)->status != COLLET_OK;
	return !had_left;
}

/* Starts the sends that are due, and completes those that were sent. */
static uint32_t advance_out(struct faulty_endpoint *faulty)
{
	struct faulty_direction *out = &faulty->out;
	uint32_t completed = 0;
	while (out->waiting.first && !faulty->is_silent && faulty->endpoint.status == COLLET_OK && is_due(faulty)) {
		struct faulty_slot *slot = faulty_alloc_slot(out, out->waiting.first);
		if (!slot)
			break;
		(void)faulty_pop_waiting(out);
		faulty->has_due = false;
		begin_send(faulty, slot);
	}
	if (faulty->is_silent)
		discard_waiting(faulty);
	while (out->first) {
		struct faulty_slot *slot = out->first;
		collet_status status;
		if (slot->header.status == COLLET_PENDING || !faulty_is_complete(slot, &status))
			break;
		if (status != COLLET_OK) {
			faulty->late_send = NULL; /* the wrapped endpoint has ended: see faulty_mirror() */
			break;
		}
		struct collet_transfer *outer = slot->outer;
		if (hides_completion(faulty, outer))
			break;
		out->first = slot->next;
		slot->is_used = false;
		slot->outer = NULL;
		faulty->endpoint.posted--;
		faulty->endpoint.stats.messages_sent++;
		faulty->endpoint.stats.bytes_sent += outer->message.bytes;
		outer->status = COLLET_OK;
		completed++;
		if (outer == faulty->late_send)
			faulty->late_send = NULL;
	}
	return completed;
}

static void post_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	transfer->status = endpoint->status;
	if (endpoint->status != COLLET_OK)
		return;
	transfer->status = COLLET_PENDING;
	endpoint->posted++;
	collet_transfer_queue_add(&faulty->out.waiting, transfer);
	if (inject(faulty, transfer))
		return;
	(void)advance_out(faulty);
	(void)faulty_mirror(faulty);
}

/* ---- Polling ---- */

static uint32_t progress(struct collet_endpoint *endpoint)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	if (endpoint->status != COLLET_OK || faulty_chance(&faulty->random_poll, faulty->device->skip))
		return 0;
	uint32_t completed = advance_out(faulty);
	struct collet_endpoint *inner = faulty_inner(faulty);
	if (inner->posted) {
		faulty_table(faulty)->progress(inner);
		completed += advance_out(faulty);
	}
	completed += faulty_advance_in(faulty);
	return completed + faulty_mirror(faulty);
}

static bool peek(struct collet_endpoint *endpoint, struct collet_message *message)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	if (endpoint->status != COLLET_OK)
		return false;
	(void)advance_out(faulty);
	bool has_message = faulty_get_header(faulty);
	if (!has_message && endpoint->status == COLLET_OK) {
		faulty_table(faulty)->progress(faulty_inner(faulty));
		has_message = faulty_get_header(faulty);
	}
	(void)advance_out(faulty);
	(void)faulty_mirror(faulty);
	if (!has_message || endpoint->status != COLLET_OK)
		return false;
	*message = faulty->header.message;
	return true;
}

/* True if the wrapped endpoint has completed something that is not reported yet. */
static bool can_progress(const struct faulty_endpoint *faulty)
{
	const struct faulty_slot *out = faulty->out.first, *in = faulty->in.first;
	collet_status status;
	return faulty->has_header || (faulty->is_header_posted && faulty->header_receive.status != COLLET_PENDING) ||
		(out && out->header.status != COLLET_PENDING && faulty_is_complete(out, &status)) ||
		(in && faulty_is_complete(in, &status));
}

static bool arm(struct collet_endpoint *endpoint)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	if (endpoint->status != COLLET_OK || can_progress(faulty))
		return false;
	/* A delayed message is due within microseconds, too soon to sleep. */
	if (faulty->out.waiting.first && !faulty->is_silent)
		return false;
	return faulty_inner(faulty)->posted == 0 || faulty_table(faulty)->arm(faulty_inner(faulty));
}

static bool accepts_gpu(struct collet_endpoint *endpoint, const void *data, uint64_t bytes)
{
	const struct faulty_endpoint *faulty = faulty_of(endpoint);
	return faulty_table(faulty)->accepts_gpu(faulty_inner(faulty), data, bytes);
}

static void disarm(struct collet_endpoint *endpoint)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	faulty_table(faulty)->disarm(faulty_inner(faulty));
}

/* ---- Opening and closing ---- */

static collet_status open_endpoint(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	struct faulty_device *device = (struct faulty_device *)(void *)config->device;
	faulty->device = device;
	faulty->peer = config->peer;
	faulty->owner_pid = (uint32_t)getpid();
	uint64_t state = device->seed;
	state = faulty_random(&state) ^ config->self->rank;
	state = faulty_random(&state) ^ config->peer->rank;
	state = faulty_random(&state) ^ config->channel;
	faulty->random_out = faulty_random(&state);
	faulty->random_poll = faulty_random(&state);
	endpoint->status = collet_wrapper_open(endpoint, faulty_inner(faulty), config);
	return endpoint->status;
}

static collet_status open_progress(struct collet_endpoint *endpoint)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	const struct collet_endpoint *inner = faulty_inner(faulty);
	const collet_status status = faulty_table(faulty)->open_progress(faulty_inner(faulty));
	endpoint->status = inner->status;
	endpoint->stats.system_calls = inner->stats.system_calls;
	endpoint->peer_reads_arena = inner->peer_reads_arena;
	return status;
}

static void close_endpoint(struct collet_endpoint *endpoint)
{
	struct faulty_endpoint *faulty = faulty_of(endpoint);
	if (faulty->is_closed || !faulty->device)
		return;
	faulty->is_closed = true;
	faulty_table(faulty)->close(faulty_inner(faulty));
	if (endpoint->status == COLLET_OK)
		endpoint->status = COLLET_CANCELLED;
	if (faulty->owner_pid == (uint32_t)getpid())
		(void)faulty_end(faulty, endpoint->status);
}

static void close_device(struct collet_device *device)
{
	free(device);
}

collet_status collet_faulty_wrap(struct collet_transport_instance *instance, const struct collet_device_config *config)
{
	struct faulty_device *device = calloc(1, sizeof(*device));
	if (!device)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a transport");
	bool is_random;
	const collet_status status = faulty_read_settings(device, config->job_id, &is_random);
	if (status != COLLET_OK) {
		free(device);
		return status;
	}
	struct collet_wrapper *wrapper = &device->wrapper;
	collet_wrapper_init(instance, wrapper, config, sizeof(struct faulty_endpoint));
	memcpy(device->name, instance->name, sizeof(device->name));
	device->own_rank = config->self->rank;
	if (is_random)
		collet_log(&wrapper->log, COLLET_LOG_INFO,
			"%s: COLLET_FAULTY_SEED=%llu (lose=%llu, fail=%llu, drop=%llu)", device->name,
			(unsigned long long)device->seed, (unsigned long long)device->lose,
			(unsigned long long)device->fail, (unsigned long long)device->drop);
	struct collet_transport *table = &instance->table;
	table->device_close = close_device;
	table->open = open_endpoint;
	table->open_progress = open_progress;
	table->close = close_endpoint;
	table->post_send = post_send;
	table->post_recv = faulty_post_recv;
	table->release_view = faulty_release_view;
	table->progress = progress;
	table->is_recv_ready = NULL;
	table->try_send = table->try_recv = NULL;
	table->peek = peek;
	table->arm = arm;
	table->disarm = disarm;
	/* Parts may be too short for what the wrapped transport accepts in GPU memory. */
	table->accepts_gpu = wrapper->inner->accepts_gpu && !device->split ? accepts_gpu : NULL;
	return COLLET_OK;
}
