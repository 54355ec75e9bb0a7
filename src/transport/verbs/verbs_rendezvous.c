/* verbs, large messages: announced, granted, written by all data queue pairs from the sender's memory into the
 * receiver's. The parts are cut by the queue pairs' rates, so that they end together; which bytes go where says nothing
 * about who combines what, since a message is combined when it is there. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "verbs_endpoint.h"

/* The argument of the immediate that ends a part. */
enum { END_WHICH = 3, END_PARTS_SHIFT = 2, END_PARTS = 7, END_PLACE = 1 << 5 };

static uint32_t adapter_of(const struct verbs_conduit *verbs, uint32_t rail)
{
	return (uint32_t)(verbs->rails[rail].adapter - verbs->device->adapters);
}

/* False: its memory cannot be registered, so it goes through places; but not that of a GPU, which nobody here can copy
 * from or to: then the conduit has ended. */
static bool use(struct verbs_conduit *verbs, struct verbs_use *use, const struct collet_transfer *transfer,
	enum verbs_access access)
{
	const uint64_t bytes = transfer->message.bytes;
	if (!(transfer->flags & COLLET_TRANSFER_GPU))
		return collet_verbs_use(verbs->device, use, transfer->data, bytes, access);
	if (!collet_verbs_use_gpu(verbs->device, use, transfer->data, bytes))
		collet_verbs_lose(verbs, COLLET_ERR_ARGUMENT,
			"%llu bytes of GPU memory at %p were deregistered before a message there had ended",
			(unsigned long long)bytes, transfer->data);
	return true;
}

/* ---- Receiving ---------------------------------------------------------------------------------------------- */

void collet_verbs_expect(struct verbs_conduit *verbs, uint32_t which, struct collet_transfer *transfer)
{
	struct verbs_incoming *incoming = &verbs->incoming[which];
	assert(incoming->mode == GRANT_NONE);
	*incoming = (struct verbs_incoming){ .transfer = transfer, .mode = GRANT_DISCARD };
	if (!transfer)
		return;
	const uint64_t bytes = transfer->message.bytes, places = (uint64_t)PLACES * verbs->shape->place_bytes;
	incoming->allowed = bytes < places ? bytes : places;
	incoming->mode = use(verbs, &incoming->use, transfer, ACCESS_WRITE) ? GRANT_DIRECT : GRANT_PLACES;
}

/* False: it has to wait. */
static bool grant(struct verbs_conduit *verbs, uint32_t which)
{
	struct verbs_incoming *incoming = &verbs->incoming[which];
	const struct verbs_pair *pair = &verbs->pairs[0];
	const bool places = incoming->mode == GRANT_PLACES;
	if (!collet_verbs_room(pair) || (places && verbs->in_places && verbs->in_places != incoming))
		return false;
	if (places)
		verbs->in_places = incoming;
	struct verbs_grant *granted = &verbs->memory->granted[which];
	*granted = (struct verbs_grant){ .mode = incoming->mode, .allowed = incoming->allowed };
	if (incoming->mode == GRANT_DIRECT) {
		granted->address = (uintptr_t)incoming->transfer->data;
		for (uint32_t r = 0; r < verbs->rail_count; r++)
			granted->keys[r] = collet_verbs_used(&incoming->use, adapter_of(verbs, r))->rkey;
	}
	const struct verbs_write write = {
		.parts = { { .addr = (uintptr_t)granted, .length = sizeof(*granted),
			.lkey = verbs->rails[pair->rail].memory->lkey } },
		.part_count = 1,
		.to = verbs->peer_memory + offsetof(struct verbs_memory, grants) + which * sizeof(*granted),
		.peer_key = verbs->peer_keys[pair->peer_rail],
		.has_immediate = true,
		.immediate = collet_verbs_immediate(verbs, KIND_GRANT, which),
		.tag = TAG_RING };
	collet_verbs_write(verbs, 0, &write);
	incoming->granted = true;
	if (incoming->mode == GRANT_DISCARD)
		*incoming = (struct verbs_incoming){ 0 };
	return true;
}

static void come(struct verbs_conduit *verbs, struct verbs_incoming *incoming)
{
	collet_verbs_unuse(verbs->device, &incoming->use);
	incoming->transfer->view = incoming->transfer->data;
	incoming->transfer->transport_private[0] = PHASE_DONE;
	if (verbs->in_places == incoming)
		verbs->in_places = NULL;
	*incoming = (struct verbs_incoming){ 0 };
}

/* A piece lies in a landing place. False: it is none. */
static bool take_piece(struct verbs_conduit *verbs, struct verbs_incoming *incoming, uint32_t bytes)
{
	const uint64_t total = incoming->transfer->message.bytes, left = total - incoming->received;
	const uint64_t most = verbs->shape->place_bytes;
	if (bytes != (left < most ? left : most) || incoming->received >= incoming->allowed)
		return false;
	memcpy((uint8_t *)incoming->transfer->data + incoming->received,
		verbs->landing + incoming->received / most % PLACES * most, bytes);
	incoming->received += bytes;
	if (incoming->received == total) {
		come(verbs, incoming);
	} else if (incoming->allowed < total) {
		incoming->allowed += total - incoming->allowed < most ? total - incoming->allowed : most;
		incoming->granted = false;
	}
	return true;
}

void collet_verbs_end(struct verbs_conduit *verbs, uint32_t argument, uint32_t bytes)
{
	struct verbs_incoming *incoming = &verbs->incoming[argument & END_WHICH];
	const uint32_t parts = argument >> END_PARTS_SHIFT & END_PARTS;
	const bool place = argument & END_PLACE;
	/* A grant of places is given again and again, the last may still wait for room. */
	const bool expected = incoming->transfer && parts > 0 && parts <= DATA_PAIRS_MOST &&
		(place ? incoming->mode == GRANT_PLACES : incoming->mode == GRANT_DIRECT && incoming->granted);
	if (!expected || (place && !take_piece(verbs, incoming, bytes))) {
		collet_verbs_lose(verbs, COLLET_ERR_TRANSPORT,
			"it ends large message %u with %u bytes, which is not due", argument & END_WHICH, bytes);
		return;
	}
	if (!place && ++incoming->ends == parts)
		come(verbs, incoming);
}

/* ---- Sending ------------------------------------------------------------------------------------------------ */

void collet_verbs_announced(struct verbs_conduit *verbs, uint32_t which, struct collet_transfer *transfer)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[which];
	*outgoing = (struct verbs_outgoing){ .transfer = transfer };
	/* The announcement is under way meanwhile. */
	outgoing->staged = !use(verbs, &outgoing->use, transfer, ACCESS_READ);
}

/* A part for each data queue pair, by rate; whole units, the last takes the rest. */
static void cut(const struct verbs_conduit *verbs, struct verbs_outgoing *outgoing)
{
	const uint64_t bytes = outgoing->transfer->message.bytes;
	const uint32_t pairs = verbs->pair_count - 1;
	const bool whole = outgoing->staged || outgoing->grant.mode == GRANT_PLACES;
	uint64_t rates = 0, at = 0;
	outgoing->parts = whole || bytes / STRIPE_BYTES < 2 ? 1
			: bytes / STRIPE_BYTES < pairs	    ? (uint32_t)(bytes / STRIPE_BYTES)
							    : pairs;
	for (uint32_t p = 0; p < outgoing->parts; p++)
		rates += verbs->rates[1 + p];
	for (uint32_t p = 0; p < outgoing->parts; p++) {
		/* No part is empty: each ends with an immediate. */
		const uint64_t most = bytes - at - (outgoing->parts - 1 - p) * (uint64_t)UNIT_BYTES;
		uint64_t share = (uint64_t)((unsigned __int128)bytes * verbs->rates[1 + p] / rates) | (UNIT_BYTES - 1);
		share = share + 1 < most && p + 1 < outgoing->parts ? share + 1 : most;
		outgoing->at[p] = at;
		at += share;
		outgoing->end[p] = at;
	}
}

static void over(struct verbs_conduit *verbs, struct verbs_outgoing *outgoing)
{
	collet_verbs_unuse(verbs->device, &outgoing->use);
	outgoing->transfer->transport_private[0] = PHASE_DONE;
	*outgoing = (struct verbs_outgoing){ 0 };
}

void collet_verbs_granted(struct verbs_conduit *verbs, uint32_t which)
{
	struct verbs_outgoing *outgoing = which < LARGE_MOST ? &verbs->outgoing[which] : NULL;
	struct verbs_grant told;
	if (outgoing)
		memcpy(&told, &verbs->memory->grants[which], sizeof(told));
	const bool first = outgoing && outgoing->grant.mode == GRANT_NONE;
	if (!outgoing || !outgoing->transfer || told.mode == GRANT_NONE || told.mode > GRANT_DISCARD ||
		(!first && (told.mode != GRANT_PLACES || outgoing->grant.mode != GRANT_PLACES))) {
		collet_verbs_lose(verbs, COLLET_ERR_TRANSPORT,
			"it grants large message %u, which was not announced", which);
		return;
	}
	outgoing->grant = told;
	if (told.mode == GRANT_DISCARD)
		over(verbs, outgoing);
	else if (first)
		cut(verbs, outgoing);
}

/* The next write of a part; false: there is nothing to write now. */
static bool push_piece(struct verbs_conduit *verbs, uint32_t which, uint32_t part)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[which];
	const struct verbs_pair *pair = &verbs->pairs[1 + part];
	const bool places = outgoing->grant.mode == GRANT_PLACES;
	const uint64_t place_bytes = verbs->shape->place_bytes;
	const uint64_t at = outgoing->at[part], most = places || outgoing->staged ? place_bytes : verbs->message_most;
	uint64_t bytes = outgoing->end[part] - at;
	bytes = bytes < most ? bytes : most;
	if (!bytes || !collet_verbs_room(pair) || (places && at + bytes > outgoing->grant.allowed))
		return false;
	uint8_t *from = (uint8_t *)outgoing->transfer->data + at;
	uint32_t key, staging = 0;
	if (outgoing->staged) {
		while (staging < PLACES && (verbs->staging_busy >> staging & 1))
			staging++;
		if (staging == PLACES)
			return false;
		from = memcpy(verbs->staging + staging * place_bytes, from, bytes);
		verbs->staging_busy |= 1u << staging++;
		key = verbs->rails[pair->rail].memory->lkey;
	} else {
		key = collet_verbs_used(&outgoing->use, adapter_of(verbs, pair->rail))->lkey;
	}
	const struct verbs_write write = {
		.parts = { { .addr = (uintptr_t)from, .length = (uint32_t)bytes, .lkey = key } },
		.part_count = 1,
		.to = places ? verbs->peer_memory + verbs_memory_offset(verbs, verbs->landing) +
				at / place_bytes % PLACES * place_bytes
			     : outgoing->grant.address + at,
		.peer_key = places ? verbs->peer_keys[pair->peer_rail] : outgoing->grant.keys[pair->peer_rail],
		.has_immediate = places || at + bytes == outgoing->end[part],
		.immediate = (uint32_t)KIND_END << 30 |
			(which | outgoing->parts << END_PARTS_SHIFT | (places ? END_PLACE : 0)) << 20,
		.tag = TAG_DATA | which << 8 | staging << 16 };
	outgoing->at[part] += bytes;
	outgoing->flying++;
	collet_verbs_write(verbs, 1 + part, &write);
	return !verbs->gone;
}

void collet_verbs_data_done(struct verbs_conduit *verbs, uint32_t tag)
{
	struct verbs_outgoing *outgoing = &verbs->outgoing[tag & 0xff];
	const uint32_t staging = tag >> 8;
	if (staging)
		verbs->staging_busy &= ~(1u << (staging - 1));
	if (!outgoing->transfer)
		return;
	outgoing->flying--;
	for (uint32_t p = 0; p < outgoing->parts; p++)
		if (outgoing->at[p] != outgoing->end[p])
			return;
	if (!outgoing->flying)
		over(verbs, outgoing);
}

/* ---- Both --------------------------------------------------------------------------------------------------- */

void collet_verbs_push(struct verbs_conduit *verbs)
{
	for (uint32_t which = 0; which < LARGE_MOST && !verbs->gone; which++)
		if (verbs->incoming[which].mode != GRANT_NONE && !verbs->incoming[which].granted)
			(void)grant(verbs, which);
	for (uint32_t i = 0; i < LARGE_MOST && !verbs->gone; i++) {
		const uint32_t which = (verbs->large_sent + i) % LARGE_MOST;  /* the oldest first */
		if (!verbs->outgoing[which].transfer || verbs->outgoing[which].grant.mode == GRANT_NONE)
			continue;
		for (uint32_t p = 0; p < verbs->outgoing[which].parts; p++)
			while (!verbs->gone && push_piece(verbs, which, p)) {
			}
	}
}

void collet_verbs_forget_large(struct verbs_conduit *verbs)
{
	for (uint32_t which = 0; which < LARGE_MOST; which++) {
		collet_verbs_unuse(verbs->device, &verbs->outgoing[which].use);
		collet_verbs_unuse(verbs->device, &verbs->incoming[which].use);
		verbs->outgoing[which] = (struct verbs_outgoing){ 0 };
		verbs->incoming[which] = (struct verbs_incoming){ 0 };
	}
	verbs->in_places = NULL;
}
