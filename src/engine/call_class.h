/* Numbers classes of calls by kind and size. Each transfer tells its transport the class of its call
 * (COLLET_TRANSFER_CALL_CLASS_SHIFT), and each call that ends reports how long it took. So transports learn which
 * protocol suits a class. */
#ifndef COLLET_ENGINE_CALL_CLASS_H
#define COLLET_ENGINE_CALL_CLASS_H

#include <assert.h>
#include <stdint.h>

#include "collectives/program.h"
#include "transport/registry.h"

struct collet_request;

/* Kinds of calls that follow the collectives, and limits. */
enum {
	COLLET_CALL_SEND = COLLET_COLLECTIVE_COUNT,    /* a message from one rank to another */
	COLLET_CALL_SENDRECV,                          /* a message of a call that also receives */
	COLLET_CALL_KIND_COUNT,
	COLLET_CALL_SIZE_CLASSES = 13,                 /* up to 16 KiB, 32 KiB, ... 32 MiB, and larger */
	COLLET_CALL_MIN_LOG2 = 14,
	COLLET_CALL_REPORTED_BYTES = 8 << 10           /* the durations of shorter calls are not reported */
};

static_assert(COLLET_CALL_KIND_COUNT * COLLET_CALL_SIZE_CLASSES <= COLLET_CALL_CLASSES, "all have a number");

/* Returns a transfer's flags for a class. */
static inline uint32_t collet_call_class_flags(unsigned kind, uint64_t bytes)
{
	unsigned size = 0;
	while (size + 1 < COLLET_CALL_SIZE_CLASSES && bytes > (uint64_t)1 << (COLLET_CALL_MIN_LOG2 + size))
		size++;
	return (kind * COLLET_CALL_SIZE_CLASSES + size) << COLLET_TRANSFER_CALL_CLASS_SHIFT;
}

/* Returns the class in a transfer's flags. */
static inline unsigned collet_call_class_of(uint32_t flags)
{
	return (uint8_t)(flags >> COLLET_TRANSFER_CALL_CLASS_SHIFT);
}

/* Returns a transfer's flags for the class of a collective. */
uint32_t collet_request_class_flags(const struct collet_request *request);
/* Reports how long a collective took that tasks executed and that has just succeeded. Under the lock. */
void collet_request_report_duration(const struct collet_request *request);
/* Reports how long a message, or an exchange with this peer among others, took. Under the lock. */
void collet_message_report_duration(const struct collet_request *request, unsigned kind, uint32_t peer, uint64_t bytes);

#endif
