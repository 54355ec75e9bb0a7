/* Implements the registry: finds, orders and opens the transports of a rank, and registers memory with their
 * devices. */
#include "transport/registry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "transport/transports-built.h"
#include "transport/wrap/wrapper.h"

extern const struct collet_transport collet_self_transport;
#ifdef COLLET_HAVE_SHM
extern const struct collet_transport collet_shm_transport;
#endif
#ifdef COLLET_HAVE_TCP
extern const struct collet_transport collet_tcp_transport;
#endif

/* Adding a built-in transport takes a folder and a line here. */
const struct collet_transport *const collet_transports[] = {
#ifdef COLLET_HAVE_SELF
	&collet_self_transport,
#endif
#ifdef COLLET_HAVE_SHM
	&collet_shm_transport,
#endif
#ifdef COLLET_HAVE_TCP
	&collet_tcp_transport,
#endif
	NULL,
};

static const struct {
	const char *name;
	collet_status (*wrap)(struct collet_transport_instance *instance, const struct collet_device_config *config);
} wrappers[] = {
	{ "trace", collet_trace_wrap },
	{ "faulty", collet_faulty_wrap },
};
enum { WRAPPER_COUNT = sizeof(wrappers) / sizeof(wrappers[0]) };

/* ---- One instance ---- */

static void free_instance(struct collet_transport_instance *instance, bool forked)
{
	if (!instance)
		return;
	/* In a forked child the device belongs to the parent, and its module's threads and locks do not exist. */
	if (instance->device && !forked)
		instance->transport->device_close(instance->device);
	free_instance(instance->inner, forked);
	if (instance->module && !forked)
		dlclose(instance->module);
	free(instance);
}

static collet_status open_device(struct collet_transport_instance *instance, const struct collet_device_config *config)
{
	if (!instance->transport->device_open)
		return COLLET_OK;
	const collet_status status = instance->transport->device_open(&instance->device, config, &instance->info);
	if (status != COLLET_OK) {
		const size_t length = strlen(instance->name);
		const char *why = collet_last_error();
		instance->device = NULL;
		if (strncmp(why, instance->name, length) != 0 || why[length] != ':')
			collet_error_prefix("transport %s", instance->name);
		return status;
	}
	instance->info.description[sizeof(instance->info.description) - 1] = '\0';
	if (instance->info.peer_data_bytes > sizeof(instance->info.peer_data))
		return collet_fail(COLLET_ERR_TRANSPORT,
			"transport %s: publishes %u bytes of peer data, but only %zu fit", instance->name,
			instance->info.peer_data_bytes, sizeof(instance->info.peer_data));
	return COLLET_OK;
}

static const struct collet_transport *find_built_in(const char *name)
{
	for (uint32_t i = 0; collet_transports[i]; i++)
		if (strcmp(collet_transports[i]->name, name) == 0)
			return collet_transports[i];
	return NULL;
}

/* Opens a transport that is not a wrapper. */
static collet_status init_plain(
	struct collet_transport_instance *instance, const char *name, const struct collet_device_config *config)
{
	instance->transport = find_built_in(name);
	if (!instance->transport) {
		const collet_status status = collet_module_load(instance, name, config->log);
		if (status != COLLET_OK)
			return status;
		instance->transport = &instance->table;
	}
	return open_device(instance, config);
}

static collet_status create_instance(
	struct collet_transport_instance **instance_out, const char *name, const struct collet_device_config *config);

static collet_status init_wrapper(struct collet_transport_instance *instance, const char *name, size_t wrapper_length,
	const struct collet_device_config *config)
{
	for (uint32_t w = 0; w < WRAPPER_COUNT; w++) {
		if (strlen(wrappers[w].name) != wrapper_length ||
			memcmp(wrappers[w].name, name, wrapper_length) != 0)
			continue;
		collet_status status = create_instance(&instance->inner, name + wrapper_length + 1, config);
		if (status != COLLET_OK)
			return status;
		instance->transport = &instance->table;
		status = wrappers[w].wrap(instance, config);
		instance->info = instance->inner->info;
		return status;
	}
	return collet_fail(COLLET_ERR_CONFIG, "there is no wrapper \"%.*s\" (in \"%s\"); there are trace and faulty",
		(int)wrapper_length, name, name);
}

/* Creates an instance and opens its device. name: for example "tcp", "faulty:tcp", "trace:faulty:tcp". */
static collet_status create_instance(
	struct collet_transport_instance **instance_out, const char *name, const struct collet_device_config *config)
{
	if (strlen(name) >= COLLET_TRANSPORT_NAME_BYTES)
		return collet_fail(COLLET_ERR_CONFIG, "the transport's name \"%s\" is longer than %d characters", name,
			COLLET_TRANSPORT_NAME_BYTES - 1);
	struct collet_transport_instance *instance = calloc(1, sizeof(*instance));
	if (!instance)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a transport");
	strcpy(instance->name, name);
	const char *colon = strchr(name, ':');
	const collet_status status = colon ? init_wrapper(instance, name, (size_t)(colon - name), config)
					   : init_plain(instance, name, config);
	if (status != COLLET_OK) {
		free_instance(instance, false);
		return status;
	}
	*instance_out = instance;
	return COLLET_OK;
}

/* ---- The set ---- */

static collet_status add_instance(struct collet_transport_set *set, struct collet_transport_instance *instance)
{
	if (set->count == COLLET_TRANSPORTS_MAX) {
		const collet_status status = collet_fail(COLLET_ERR_CONFIG,
			"transport %s: a rank has room for %d transports; name those wanted in COLLET_TRANSPORT",
			instance->name, COLLET_PEER_TRANSPORTS);
		free_instance(instance, false);
		return status;
	}
	/* self stays first. Instances of equal priority keep the order in which they were added. */
	uint32_t at = set->count++;
	for (; at > 1 && set->instances[at - 1]->transport->priority < instance->transport->priority; at--)
		set->instances[at] = set->instances[at - 1];
	set->instances[at] = instance;
	set->has_registration |= instance->transport->memory_register != NULL;
	return COLLET_OK;
}

/* Adds the transports that COLLET_TRANSPORT lists. Each must be available. */
static collet_status add_named(
	struct collet_transport_set *set, const char *text, const struct collet_device_config *config)
{
	for (const char *at = text;;) {
		const size_t length = strcspn(at, ",");
		char name[64];
		snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : sizeof(name) - 1), at);
		if (!collet_transports_find(set, name, NULL)) {
			struct collet_transport_instance *instance;
			collet_status status = create_instance(&instance, name, config);
			if (status == COLLET_OK)
				status = add_instance(set, instance);
			if (status != COLLET_OK)
				return status;
		}
		if (!at[length])
			return COLLET_OK;
		at += length + 1;
	}
}

/* Adds all built-in transports and all usable modules. */
static collet_status add_all(struct collet_transport_set *set, const struct collet_device_config *config)
{
	for (uint32_t i = 0; collet_transports[i]; i++) {
		struct collet_transport_instance *instance;
		if (collet_transports_find(set, collet_transports[i]->name, NULL))
			continue;
		collet_status status = create_instance(&instance, collet_transports[i]->name, config);
		if (status == COLLET_OK)
			status = add_instance(set, instance);
		if (status != COLLET_OK)
			return status;
	}
	uint32_t count;
	char (*names)[COLLET_TRANSPORT_NAME_BYTES] = collet_module_names(&count);
	for (uint32_t i = 0; i < count; i++) {
		struct collet_transport_instance *instance;
		if (collet_transports_find(set, names[i], NULL))
			continue;  /* a module cannot replace a built-in transport */
		collet_status status = create_instance(&instance, names[i], config);
		const bool is_missing = status == COLLET_ERR_UNSUPPORTED; /* as on most machines */
		if (status == COLLET_OK)
			status = add_instance(set, instance);
		if (status != COLLET_OK)
			collet_log(config->log, is_missing ? COLLET_LOG_INFO : COLLET_LOG_WARN,
				"transport module %s is passed over: %s", names[i], collet_last_error());
	}
	free(names);
	return COLLET_OK;
}

/* Writes into the peer info what other ranks need to know about this rank's transports. */
static collet_status fill_peer_info(const struct collet_transport_set *set, struct collet_peer_info *peer_info)
{
	uint32_t used = 0;
	memset(peer_info->transports, 0, sizeof(peer_info->transports));
	memset(peer_info->data, 0, sizeof(peer_info->data));
	peer_info->link_mbps = 0;
	for (uint32_t i = 1; i < set->count; i++) {
		const struct collet_transport_instance *instance = set->instances[i];
		struct collet_peer_transport *row = &peer_info->transports[i - 1];
		if (instance->info.peer_data_bytes > sizeof(peer_info->data) - used)
			return collet_fail(COLLET_ERR_CONFIG,
				"transport %s: no room is left in the rank's peer info for its %u bytes; name fewer "
				"transports in COLLET_TRANSPORT",
				instance->name, instance->info.peer_data_bytes);
		strcpy(row->name, instance->name);
		row->data_offset = (uint8_t)used;
		row->data_bytes = (uint8_t)instance->info.peer_data_bytes;
		memcpy(peer_info->data + used, instance->info.peer_data, instance->info.peer_data_bytes);
		used += instance->info.peer_data_bytes;
		if (!peer_info->link_mbps) /* of the best transport that reports one; TCP's comes with its address */
			peer_info->link_mbps = instance->info.link_mbps;
	}
	return COLLET_OK;
}

collet_status collet_transports_open(struct collet_transport_set *set, const char *text,
	const struct collet_device_config *config, struct collet_peer_info *peer_info)
{
	struct collet_transport_instance *self;
	*set = (struct collet_transport_set){ .owner_pid = (uint32_t)getpid() };
	pthread_mutex_init(&set->lock, NULL);
	collet_status status = create_instance(&self, "self", config);
	if (status == COLLET_OK)
		status = add_instance(set, self);
	if (status == COLLET_OK)
		status = text ? add_named(set, text, config) : add_all(set, config);
	if (status == COLLET_OK)
		status = fill_peer_info(set, peer_info);
	if (status != COLLET_OK) {
		collet_transports_close(set, false);
		return status;
	}
	for (uint32_t i = 0; i < set->count; i++)
		if (set->instances[i]->info.description[0])
			collet_log(config->log, COLLET_LOG_INFO, "transport %s: %s", set->instances[i]->name,
				set->instances[i]->info.description);
	return COLLET_OK;
}

void collet_transports_close(struct collet_transport_set *set, bool forked)
{
	if (!set->count)
		return;
	while (set->registered_count && !forked)
		collet_transports_deregister(set, set->registered[set->registered_count - 1].base);
	for (uint32_t i = 0; i < set->count; i++)
		free_instance(set->instances[i], forked);
	free(set->registered);
	if (!forked)
		pthread_mutex_destroy(&set->lock);
	*set = (struct collet_transport_set){ 0 };
}

/* ---- Lookup ---- */

const struct collet_transport_instance *collet_transports_find(
	const struct collet_transport_set *set, const char *name, uint32_t *index)
{
	for (uint32_t i = 0; i < set->count; i++) {
		if (strcmp(set->instances[i]->name, name) != 0)
			continue;
		if (index)
			*index = i;
		return set->instances[i];
	}
	return NULL;
}

static bool lists_transport(const struct collet_peer_info *peer_info, const char *name)
{
	for (uint32_t i = 0; i < COLLET_PEER_TRANSPORTS; i++)
		if (strncmp(peer_info->transports[i].name, name, COLLET_TRANSPORT_NAME_BYTES) == 0)
			return true;
	return false;
}

bool collet_transport_instance_reaches(const struct collet_transport_instance *instance,
	const struct collet_peer_info *self, const struct collet_peer_info *peer)
{
	if (strcmp(instance->name, "self") != 0 && !lists_transport(peer, instance->name))
		return false;
	while (instance->inner)
		instance = instance->inner;
	return instance->transport->reaches(self, peer);
}

/* True if the listed name is this one, or that of a wrapper around it. */
static bool matches_name(const char *listed, const char *name)
{
	const size_t length = strlen(name), bytes = strnlen(listed, COLLET_TRANSPORT_NAME_BYTES);
	return bytes >= length && memcmp(listed + bytes - length, name, length) == 0 &&
		(bytes == length || listed[bytes - length - 1] == ':');
}

bool collet_peer_info_offers(const struct collet_peer_info *peer_info, const char *name)
{
	for (uint32_t i = 0; i < COLLET_PEER_TRANSPORTS; i++)
		if (matches_name(peer_info->transports[i].name, name))
			return true;
	return false;
}

bool collet_peer_info_lacks_rdma(const struct collet_peer_info *peer_info)
{
	for (uint32_t i = 0; i < COLLET_PEER_TRANSPORTS; i++) {
		const char *listed = peer_info->transports[i].name;
		if (listed[0] && !matches_name(listed, "self") && !matches_name(listed, "shm") &&
			!matches_name(listed, "tcp"))
			return false;
	}
	return true;
}

/* ---- Registered memory ---- */

/* Appends an entry, under the lock. Returns NULL if there is no memory. */
static struct collet_registered_memory *append_registered(struct collet_transport_set *set)
{
	if (set->registered_count == set->registered_capacity) {
		const size_t capacity = set->registered_capacity ? 2 * set->registered_capacity : 16;
		struct collet_registered_memory *registered = realloc(set->registered, capacity * sizeof(*registered));
		if (!registered)
			return NULL;
		set->registered = registered;
		set->registered_capacity = capacity;
	}
	struct collet_registered_memory *next = &set->registered[set->registered_count];
	*next = (struct collet_registered_memory){ 0 };
	return next;
}

collet_status collet_transports_register(
	struct collet_transport_set *set, const struct collet_log *log, const struct collet_memory *memory)
{
	collet_status failed = COLLET_OK;
	if (!set->has_registration)
		return COLLET_OK;
	pthread_mutex_lock(&set->lock);
	struct collet_registered_memory *registered = append_registered(set);
	if (!registered)
		failed = collet_fail(COLLET_ERR_MEMORY, "no memory to register memory");
	for (uint32_t i = 0; registered && i < set->count; i++) {
		const struct collet_transport_instance *instance = set->instances[i];
		if (!instance->transport->memory_register)
			continue;
		const collet_status status =
			instance->transport->memory_register(instance->device, memory, &registered->registration[i]);
		if (status == COLLET_OK)
			continue;
		registered->registration[i] = NULL;
		collet_log(log, COLLET_LOG_INFO, "transport %s does not register %llu bytes at %p: %s", instance->name,
			(unsigned long long)memory->bytes, memory->base, collet_last_error());
		if (memory->kind == COLLET_MEMORY_GPU)
			failed = status;
	}
	if (registered) {
		registered->base = memory->base;
		registered->bytes = memory->bytes;
		set->registered_count++;
	}
	pthread_mutex_unlock(&set->lock);
	if (failed != COLLET_OK && registered)
		collet_transports_deregister(set, memory->base);
	return failed;
}

void collet_transports_deregister(struct collet_transport_set *set, const void *base)
{
	if (!set->has_registration || set->owner_pid != (uint32_t)getpid())
		return;
	pthread_mutex_lock(&set->lock);
	for (size_t k = set->registered_count; k-- > 0;) {
		if (set->registered[k].base != base)
			continue;
		const struct collet_registered_memory registered = set->registered[k];
		set->registered[k] = set->registered[--set->registered_count];
		for (uint32_t i = 0; i < set->count; i++)
			if (registered.registration[i])
				set->instances[i]->transport->memory_deregister(
					set->instances[i]->device, registered.registration[i]);
		break;
	}
	pthread_mutex_unlock(&set->lock);
}

/* True if a transport that has registered this memory accepts messages in GPU memory. Called under the lock. */
static bool accepts_gpu_memory(
	const struct collet_transport_set *set, const struct collet_registered_memory *registered)
{
	for (uint32_t i = 0; i < set->count; i++)
		if (registered->registration[i] && set->instances[i]->transport->accepts_gpu)
			return true;
	return false;
}

bool collet_transports_gpu_registered(struct collet_transport_set *set, const void *base, uint64_t bytes)
{
	const char *begin = base;
	bool found = false;
	pthread_mutex_lock(&set->lock);
	for (size_t k = 0; k < set->registered_count && !found; k++) {
		const char *registered = set->registered[k].base;
		found = begin >= registered && bytes <= set->registered[k].bytes &&
			(uint64_t)(begin - registered) <= set->registered[k].bytes - bytes &&
			accepts_gpu_memory(set, &set->registered[k]);
	}
	pthread_mutex_unlock(&set->lock);
	return found;
}

bool collet_transports_accept_gpu(const struct collet_transport_set *set, const struct collet_peer_info *self,
	const struct collet_peer_info *peer)
{
	for (uint32_t i = 0; i < set->count; i++)
		if (collet_transport_instance_reaches(set->instances[i], self, peer))
			return set->instances[i]->transport->accepts_gpu;
	return false;
}
