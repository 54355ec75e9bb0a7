/* Implements what wrappers share: the table, the device and the opening of the wrapped endpoint. */
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

void collet_wrapper_init(struct collet_transport_instance *instance, struct collet_wrapper *wrapper,
	const struct collet_device_config *config, size_t endpoint_bytes)
{
	const struct collet_transport *inner = instance->inner->transport;
	*wrapper = (struct collet_wrapper){
		.inner = inner,
		.inner_device = instance->inner->device,
		.log = { .level = COLLET_LOG_DEBUG, .rank = config->self->rank },
	};
	instance->table = *inner;
	instance->table.name = instance->name;
	instance->table.endpoint_bytes = ((endpoint_bytes + 63) & ~(size_t)63) + inner->endpoint_bytes;
	instance->table.device_open = NULL; /* the wrapped device is already open */
	instance->table.memory_register = inner->memory_register ? memory_register : NULL;
	instance->table.memory_deregister = inner->memory_register ? memory_deregister : NULL;
	instance->table.accepts_gpu = NULL; /* takes an endpoint, so the wrapper sets it */
	instance->device = (struct collet_device *)(void *)wrapper;
}

collet_status collet_wrapper_open(struct collet_endpoint *endpoint, struct collet_endpoint *inner,
	const struct collet_endpoint_config *config)
{
	const struct collet_wrapper *wrapper = (const struct collet_wrapper *)(const void *)config->device;
	struct collet_endpoint_config inner_config = *config;
	inner_config.device = wrapper->inner_device;
	inner->transport = wrapper->inner;
	inner->peer = endpoint->peer;
	inner->channel = endpoint->channel;
	return wrapper->inner->open(inner, &inner_config);
}
