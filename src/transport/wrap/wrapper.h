/* Declares the wrappers and what they share: an endpoint with the wrapped one behind it in the same memory, and a
 * device that forwards registrations. */
#ifndef COLLET_TRANSPORT_WRAP_WRAPPER_H
#define COLLET_TRANSPORT_WRAP_WRAPPER_H

#include "transport/registry.h"

/* The first member of every wrapper's device. */
struct collet_wrapper {
	const struct collet_transport *inner;
	struct collet_device *inner_device;
	struct collet_log log; /* prints all levels whatever COLLET_LOG says: a user who wraps wants to see them */
};

/* Fills instance->table with a copy of the wrapped table, whose device functions forward to the wrapped device, and
 * instance->device. The wrapper sets the other slots. */
void collet_wrapper_init(struct collet_transport_instance *instance, struct collet_wrapper *wrapper,
	const struct collet_device_config *config, size_t endpoint_bytes);

/* Returns the wrapped endpoint behind a wrapper's endpoint of this size. */
static inline struct collet_endpoint *collet_wrapper_inner(struct collet_endpoint *endpoint, size_t endpoint_bytes)
{
	return (struct collet_endpoint *)(void *)((char *)endpoint + ((endpoint_bytes + 63) & ~(size_t)63));
}

/* Opens the wrapped endpoint. */
collet_status collet_wrapper_open(struct collet_endpoint *endpoint, struct collet_endpoint *inner,
	const struct collet_endpoint_config *config);

/* Each fills instance->table and ->device of a wrapper around instance->inner, which is open. */
COLLET_MUST_USE collet_status collet_trace_wrap(
	struct collet_transport_instance *instance, const struct collet_device_config *config);
COLLET_MUST_USE collet_status collet_faulty_wrap(
	struct collet_transport_instance *instance, const struct collet_device_config *config);

#endif
