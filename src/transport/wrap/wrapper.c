#include "transport/wrap/wrapper.h"

static collet_status memory_register(
	struct collet_device *device, const struct collet_memory *memory, void **registration)
{
	const struct collet_wrapper *wrapper = (const struct collet_wrapper *)(void *)device;
	return wrapper->inner->memory_register(wrapper->inner_device, memory, registration);
}

static void memory_deregister(struct collet_device *device, void *registration)
{
	const struct collet_wrapper *wrapper = (const struct collet_wrapper *)(void *)device;
	wrapper->inner->memory_deregister(wrapper->inner_device, registration);
}

void collet_wrapper_begin(struct collet_offer *offer, struct collet_wrapper *wrapper,
	const struct collet_device_config *config, size_t conduit_bytes)
{
	const struct collet_transport *inner = offer->inner->transport;
	*wrapper = (struct collet_wrapper){
		.inner = inner,
		.inner_device = offer->inner->device,
		.log = { .level = COLLET_LOG_DEBUG, .rank = config->self->rank },
	};
	offer->own = *inner;
	offer->own.name = offer->name;
	offer->own.conduit_bytes = ((conduit_bytes + 63) & ~(size_t)63) + inner->conduit_bytes;
	offer->own.device_open = NULL;  /* the wrapped device is open */
	offer->own.memory_register = inner->memory_register ? memory_register : NULL;
	offer->own.memory_deregister = inner->memory_register ? memory_deregister : NULL;
	offer->own.takes_gpu = NULL;  /* of the wrapped one's conduits */
	offer->own.took = NULL;
	offer->device = (struct collet_device *)(void *)wrapper;
}

collet_status collet_wrapper_open(struct collet_conduit *conduit, struct collet_conduit *inner,
	const struct collet_conduit_config *config)
{
	const struct collet_wrapper *wrapper = (const struct collet_wrapper *)(const void *)config->device;
	struct collet_conduit_config own = *config;
	own.device = wrapper->inner_device;
	inner->transport = wrapper->inner;
	inner->peer = conduit->peer;
	inner->channel = conduit->channel;
	return wrapper->inner->open(inner, &own);
}
