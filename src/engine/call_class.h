/* Kinds and sizes of calls, by number. Transports are told with each transfer to what kind of call it belongs
 * (COLLET_TRANSFER_CALL_CLASS_SHIFT), and when a call has ended, what it took: so they learn what suits calls of a
 * number. */
#ifndef COLLET_ENGINE_CALL_CLASS_H
#define COLLET_ENGINE_CALL_CLASS_H

#include <assert.h>
#include <stdint.h>

#include "collectives/program.h"
#include "transport/registry.h"

struct collet_request;

/* Beside the collectives. */
enum {
	COLLET_CALL_SEND = COLLET_COLLECTIVE_COUNT,    /* from one rank to another */
	COLLET_CALL_SENDRECV,                          /* the same in a call that also receives */
	COLLET_CALL_KIND_COUNT,
	COLLET_CALL_SIZE_CLASSES = 13,                 /* up to 16 KiB, 32 KiB, ... 32 MiB; and larger ones */
	COLLET_CALL_MIN_LOG2 = 14,
	COLLET_CALL_REPORTED_BYTES = 8 << 10           /* what shorter calls take transports are not told */
};

static_assert(COLLET_CALL_KIND_COUNT * COLLET_CALL_SIZE_CLASSES <= COLLET_CALL_CLASSES, "all have a number");

/* Among a transfer's flags. */
static inline uint32_t collet_call_class_flags(unsigned kind, uint64_t bytes)
{
	unsigned size = 0;
	while (size + 1 < COLLET_CALL_SIZE_CLASSES && bytes > (uint64_t)1 << (COLLET_CALL_MIN_LOG2 + size))
		size++;
	return (kind * COLLET_CALL_SIZE_CLASSES + size) << COLLET_TRANSFER_CALL_CLASS_SHIFT;
}

/* Their number. */
static inline unsigned collet_call_class_of(uint32_t flags)
{
	return (uint8_t)(flags >> COLLET_TRANSFER_CALL_CLASS_SHIFT);
}

/* Of a collective. */
uint32_t collet_request_class_flags(const struct collet_request *request);
/* A collective that went by lanes has just ended, well. Under lock. */
void collet_request_report_duration(const struct collet_request *request);
/* A message of so many bytes, or an exchange with this peer among others. Under lock. */
void collet_message_report_duration(const struct collet_request *request, unsigned kind, uint32_t peer, uint64_t bytes);

#endif
