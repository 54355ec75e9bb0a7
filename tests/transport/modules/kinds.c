/* Modules of every kind, made of the skeleton: KIND_<name> says what is the matter with this one. */
#define collet_transport_module skeleton_table
#include "../../../examples/transport-skeleton/skeleton.c"
#undef collet_transport_module

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)

/* A later library's table: this library knows nothing of what is at its end. */
struct longer {
	struct collet_transport table;
	void (*later[4])(void);
};

#ifndef KIND_symbol
extern COLLET_API struct longer collet_transport_module;
struct longer collet_transport_module;
#endif

COLLET_API unsigned memory_known_count;

__attribute__((unused)) static collet_status find_no_device(
	struct collet_device **device, const struct collet_device_config *config, struct collet_device_info *info)
{
	(void)device;
	(void)info;
	return config->host->fail(COLLET_ERR_UNSUPPORTED, "no adapter of this kind in /sys/class/adapters");
}

__attribute__((unused)) static collet_status fill_the_card(
	struct collet_device **device, const struct collet_device_config *config, struct collet_device_info *info)
{
	const collet_status status = device_open(device, config, info);
	info->card_bytes = sizeof(info->card) + 1;
	return status;
}

/* Takes anything but what is smaller than a page. */
__attribute__((unused)) static collet_status learn(
	struct collet_device *device, const struct collet_memory *memory, void **registration)
{
	if (memory->bytes < 4096)
		return device->host->fail(COLLET_ERR_UNSUPPORTED, "less than a page");
	memory_known_count++;
	*registration = memory->first;
	return COLLET_OK;
}

__attribute__((unused)) static void forget(struct collet_device *device, void *registration)
{
	(void)device;
	(void)registration;
	memory_known_count--;
}

__attribute__((unused)) static bool reaches_all(const struct collet_card *self, const struct collet_card *peer)
{
	size_t bytes;
	return self->rank != peer->rank && collet_card_data(peer, NAME_OF(KIND), &bytes) && bytes == 1;
}

#ifdef KIND_unresolved
extern void collet_no_such_function(void);
__attribute__((used)) static void call_it(void)
{
	collet_no_such_function();
}
#endif

#ifndef KIND_symbol
__attribute__((constructor)) static void spoil(void)
{
	struct collet_transport *table = &collet_transport_module.table;
	*table = skeleton_table;
	table->name = NAME_OF(KIND);
	table->reaches = reaches_all;
#if defined(KIND_version)
	table->version = 99;
#elif defined(KIND_short)
	table->bytes = offsetof(struct collet_transport, progress);
#elif defined(KIND_name)
	table->name = "other";
#elif defined(KIND_head)
	table->conduit_bytes = sizeof(struct collet_conduit) - 8;
#elif defined(KIND_gap)
	table->post_recv = NULL;
#elif defined(KIND_half)
	table->device_close = NULL;
#elif defined(KIND_device)
	table->device_open = find_no_device;
#elif defined(KIND_card)
	table->device_open = fill_the_card;
#elif defined(KIND_longer)
	table->bytes = sizeof(collet_transport_module);
	table->priority = 900;           /* it is taken where both ranks have it */
#elif defined(KIND_memory)
	table->memory_register = learn;
	table->memory_deregister = forget;
#endif
}
#endif
