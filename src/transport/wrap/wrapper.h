/* What wrappers have in common: a conduit with the wrapped one behind it in the same memory, and a device that passes
 * on what the wrapped one is told. */
#ifndef COLLET_TRANSPORT_WRAP_WRAPPER_H
#define COLLET_TRANSPORT_WRAP_WRAPPER_H

#include "transport/registry.h"

/* The head of every wrapper's device. */
struct collet_wrapper {
	const struct collet_transport *inner;
	struct collet_device *inner_device;
	struct collet_log log;           /* whose lines are shown whatever COLLET_LOG says: who wraps wants to see */
};

/* Fills offer->own, as the wrapped table with nothing taken over but what is about devices, and offer->device. */
void collet_wrapper_begin(struct collet_offer *offer, struct collet_wrapper *wrapper,
	const struct collet_device_config *config, size_t conduit_bytes);

/* The wrapped conduit of one that is so many bytes long. */
static inline struct collet_conduit *collet_wrapped(struct collet_conduit *conduit, size_t conduit_bytes)
{
	return (struct collet_conduit *)(void *)((char *)conduit + ((conduit_bytes + 63) & ~(size_t)63));
}

/* Opens the wrapped conduit. */
collet_status collet_wrapper_open(struct collet_conduit *conduit, struct collet_conduit *inner,
	const struct collet_conduit_config *config);

#endif
