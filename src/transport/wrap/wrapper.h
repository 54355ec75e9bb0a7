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
void collet_wrapper_init(struct collet_transport_instance *instance, struct collet_wrapper *wrapper,
	const struct collet_device_config *config, size_t conduit_bytes);

/* The wrapped conduit of one that is so many bytes long. */
static inline struct collet_endpoint *collet_wrapper_inner(struct collet_endpoint *endpoint, size_t conduit_bytes)
{
	return (struct collet_endpoint *)(void *)((char *)endpoint + ((conduit_bytes + 63) & ~(size_t)63));
}

/* Opens the wrapped conduit. */
collet_status collet_wrapper_open(struct collet_endpoint *endpoint, struct collet_endpoint *inner,
	const struct collet_endpoint_config *config);

#endif
