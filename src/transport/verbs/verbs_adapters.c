/* verbs: choosing the adapter ports of a rank: those that COLLET_VERBS_DEVICES names, else the active ones near its
 * cores, at most VERBS_RAILS_MAX. With several ports, each carries a stripe of every large message. */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_adapter.h"
#include "verbs_iwarp.h"

enum { CANDIDATES_MAX = 32, GIDS_MAX = 256 };

/* Data that a rank stores in its peer info. */
struct verbs_peer_data {
	uint8_t version;                 /* protocol version */
	uint8_t networks;                /* bits of enum verbs_network */
};
enum { PEER_DATA_VERSION = 3 };

/* ---- Ports -------------------------------------------------------------------------------------------------- */

const char *collet_verbs_gid_text(const uint8_t gid[16], char *text, size_t bytes)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	if (memcmp(gid, mapped, sizeof(mapped)) == 0)
		snprintf(text, bytes, "%u.%u.%u.%u", gid[12], gid[13], gid[14], gid[15]);
	else if (!inet_ntop(AF_INET6, gid, text, (socklen_t)bytes))
		snprintf(text, bytes, "?");
	return text;
}

const char *collet_verbs_adapter_name(const struct verbs_adapter *adapter, char *text, size_t bytes)
{
	char gid[INET6_ADDRSTRLEN];
	collet_verbs_gid_text(adapter->gid.raw, gid, sizeof(gid));
	if (adapter->network == VERBS_NETWORK_IWARP)
		snprintf(text, bytes, "%s port %u (%s)", adapter->name, adapter->port, gid);
	else
		snprintf(text, bytes, "%s port %u, GID %u (%s)", adapter->name, adapter->port, adapter->gid_index, gid);
	return text;
}

/* Rates a GID; 0 means unusable. Routable addresses of RoCE v2 are best: a link-local address stays in its network
 * segment, and RoCE v1 passes no router and few firewalls. */
static unsigned gid_score(const struct ibv_gid_entry *entry)
{
	static const uint8_t none[16], mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *gid = entry->gid.raw;
	if (memcmp(gid, none, sizeof(none)) == 0)
		return 0;
	unsigned address = 1;            /* IPv6, global */
	if (memcmp(gid, mapped, sizeof(mapped)) == 0)
		address = gid[12] == 169 && gid[13] == 254 ? 0 : 2;
	else if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80)
		address = 0;
	return 1 + address + (entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? 3 : 0);
}

/* Chooses the GID of a port: the wanted index if it is not negative, else the best. Returns false if there is none. */
static bool choose_gid(struct verbs_adapter *adapter, int wanted)
{
	struct ibv_gid_entry *entries = calloc(GIDS_MAX, sizeof(*entries));
	const ssize_t count = entries ? ibv_query_gid_table(adapter->context, entries, GIDS_MAX, 0) : 0;
	unsigned best = 0;
	for (ssize_t i = 0; i < count; i++) {
		if (entries[i].port_num != adapter->port)
			continue;
		const unsigned value = gid_score(&entries[i]);
		if (wanted >= 0 ? entries[i].gid_index != (uint32_t)wanted : value <= best)
			continue;
		best = value ? value : 1;
		adapter->gid = entries[i].gid;
		adapter->gid_index = (uint8_t)entries[i].gid_index;
	}
	free(entries);
	return best != 0;
}

/* Returns the rate of a port in Mbit/s: the speed of one lane times the number of lanes, both decoded from bits. */
static uint32_t rate_mbps(const struct ibv_port_attr *port)
{
	static const uint32_t speeds[] = { 2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000, 200000 };
	static const uint32_t widths[] = { 1, 4, 8, 12, 2 };
	const unsigned speed = port->active_speed ? (unsigned)__builtin_ctz(port->active_speed) : 0;
	const unsigned width = port->active_width ? (unsigned)__builtin_ctz(port->active_width) : 0;
	return (speed < 9 ? speeds[speed] : speeds[8]) * (width < 5 ? widths[width] : 1);
}

bool collet_verbs_is_adapter_active(const struct verbs_adapter *adapter)
{
	struct ibv_port_attr port;
	/* Pairs with the release store in record_adapter_event(). */
	if (atomic_load_explicit(&adapter->is_fatal, memory_order_acquire))
		return false;
	return ibv_query_port(adapter->context, adapter->port, &port) == 0 && port.state == IBV_PORT_ACTIVE;
}

/* Returns true if the device is near a core on which this thread may run. Virtual devices, and those that sysfs tells
 * nothing about, count as near. */
static bool is_near(const char *name)
{
	char path[300], text[4096] = "";
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/local_cpulist", name);
	FILE *file = fopen(path, "re");
	if (!file)
		return true;
	const bool is_known = fgets(text, sizeof(text), file);
	fclose(file);
	cpu_set_t own_cpus;
	if (!is_known || sched_getaffinity(0, sizeof(own_cpus), &own_cpus) != 0)
		return true;
	for (char *at = text; *at >= '0' && *at <= '9';) {
		const unsigned long first = strtoul(at, &at, 10);
		const unsigned long last = *at == '-' ? strtoul(at + 1, &at, 10) : first;
		for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &own_cpus))
				return true;
		at += *at == ',';
	}
	return false;
}

/* Returns true if the comma-separated list contains "name" or "name:port". NULL contains everything. */
static bool is_listed(const char *list, const char *name, uint8_t port)
{
	if (!list)
		return true;
	const size_t length = strlen(name);
	for (const char *at = list;; at++) {
		const size_t item = strcspn(at, ",");
		if (item >= length && strncmp(at, name, length) == 0 &&
			(item == length || (at[length] == ':' && strtoul(at + length + 1, NULL, 10) == port)))
			return true;
		at += item;
		if (!*at)
			return false;
	}
}

/* ---- Choice ------------------------------------------------------------------------------------------------- */

struct candidate {
	struct verbs_adapter adapter;
	bool is_near;
};

/* Ports that were looked at and rejected, with reasons, for the error text. */
struct rejected_ports {
	char text[400];
	size_t used;
};

static void reject_port(struct rejected_ports *rejected, const char *name, unsigned port, const char *why)
{
	const int written = snprintf(rejected->text + rejected->used, sizeof(rejected->text) - rejected->used,
		"%s%s port %u %s", rejected->used ? ", " : "", name, port, why);
	if (written > 0 && rejected->used + (size_t)written < sizeof(rejected->text))
		rejected->used += (size_t)written;
	else
		rejected->text[rejected->used] = '\0';
}

/* Finds the adapter's address in its network: a GID or an IP address. Returns false if it has none. */
static bool find_address(struct collet_device *device, struct verbs_adapter *adapter, struct rejected_ports *rejected)
{
	const int wanted = device->options.gid_index;
	const char *why = NULL;
	if (adapter->network == VERBS_NETWORK_IWARP)
		why = collet_verbs_iwarp_address(device, adapter);
	else if (!choose_gid(adapter, wanted))
		why = wanted < 0 ? "has no GID" : "has no such GID";
	if (why)
		reject_port(rejected, adapter->name, adapter->port, why);
	return !why;
}

static enum verbs_network network_of(const struct ibv_context *context, const struct ibv_port_attr *port)
{
	if (context->device->transport_type == IBV_TRANSPORT_IWARP)
		return VERBS_NETWORK_IWARP;
	return port->link_layer == IBV_LINK_LAYER_ETHERNET ? VERBS_NETWORK_ROCE : VERBS_NETWORK_INFINIBAND;
}

static bool probe_port(struct collet_device *device, struct ibv_context *context,
	const struct ibv_device_attr *limits, uint8_t number, struct rejected_ports *rejected, struct candidate *found)
{
	const char *name = ibv_get_device_name(context->device);
	struct ibv_port_attr port;
	if (ibv_query_port(context, number, &port) != 0) {
		reject_port(rejected, name, number, "cannot be queried");
		return false;
	}
	if (port.state != IBV_PORT_ACTIVE) {
		reject_port(rejected, name, number, ibv_port_state_str(port.state));
		return false;
	}
	struct verbs_adapter *adapter = &found->adapter;
	*adapter = (struct verbs_adapter){ .context = context,
		.port = number,
		.network = network_of(context, &port),
		.lid = port.lid,
		.mtu = port.active_mtu,
		.rate_mbps = rate_mbps(&port),
		.max_write_bytes = port.max_msg_sz,
		.attributes = *limits };
	snprintf(adapter->name, sizeof(adapter->name), "%s", name);
	return find_address(device, adapter, rejected);
}

/* Finds all usable ports. The context of a device stays open if it has one. */
static uint32_t probe_devices(struct collet_device *device, struct ibv_device **devices, const char *list,
	struct rejected_ports *rejected, struct candidate *candidates)
{
	uint32_t count = 0;
	for (; *devices; devices++) {
		const char *name = ibv_get_device_name(*devices);
		const enum ibv_transport_type type = (*devices)->transport_type;
		if (type != IBV_TRANSPORT_IB && type != IBV_TRANSPORT_IWARP) {
			reject_port(rejected, name, 1, "is not an InfiniBand, RoCE or iWARP device");
			continue;
		}
		struct ibv_context *context = ibv_open_device(*devices);
		if (!context) {
			reject_port(rejected, name, 1, strerror(errno));
			continue;
		}
		struct ibv_device_attr limits = { 0 };
		const uint32_t before = count;
		if (ibv_query_device(context, &limits) == 0)
			for (unsigned port = 1; port <= limits.phys_port_cnt && count < CANDIDATES_MAX; port++) {
				if (!is_listed(list, name, (uint8_t)port) ||
					!probe_port(
						device, context, &limits, (uint8_t)port, rejected, &candidates[count]))
					continue;
				candidates[count++].is_near = is_near(name);
			}
		if (count == before)
			ibv_close_device(context);
	}
	return count;
}

static bool is_iwarp(const struct candidate *candidate)
{
	return candidate->adapter.network == VERBS_NETWORK_IWARP;
}

static void select_adapter(struct collet_device *device, struct candidate *candidate)
{
	device->is_iwarp = is_iwarp(candidate);
	device->adapters[device->adapter_count++] = candidate->adapter;
	candidate->adapter.context = NULL;
}

/* Selects the adapters in the list, in its order. Without a list, selects the near ones, and starts at another one on
 * each rank so that the ranks of a host share them. A rank uses only iWARP adapters or none, since they move bytes in
 * another way: the first listed adapter decides; without a list, iWARP is used if there is nothing else. Candidates
 * that are not selected keep their context. */
static void select_adapters(struct collet_device *device, const char *list, uint32_t rank, struct candidate *candidates,
	uint32_t count)
{
	if (list) {
		for (const char *at = list;; at++) {
			const size_t length = strcspn(at, ",");
			char entry[64];
			snprintf(entry, sizeof(entry), "%.*s", (int)(length < 63 ? length : 63), at);
			for (uint32_t i = 0; i < count && device->adapter_count < VERBS_RAILS_MAX; i++) {
				const struct verbs_adapter *adapter = &candidates[i].adapter;
				if (!adapter->context || !is_listed(entry, adapter->name, adapter->port) ||
					(device->adapter_count && device->is_iwarp != is_iwarp(&candidates[i])))
					continue;
				select_adapter(device, &candidates[i]);
			}
			at += length;
			if (!*at)
				return;
		}
	}
	bool has_near = false, is_all_iwarp = true;
	for (uint32_t i = 0; i < count; i++)
		is_all_iwarp &= is_iwarp(&candidates[i]);
	for (uint32_t i = 0; i < count; i++)
		has_near |= candidates[i].is_near && is_iwarp(&candidates[i]) == is_all_iwarp;
	for (uint32_t i = 0; i < count && device->adapter_count < VERBS_RAILS_MAX; i++) {
		struct candidate *candidate = &candidates[(i + rank) % count];
		if ((candidate->is_near || !has_near) && is_iwarp(candidate) == is_all_iwarp)
			select_adapter(device, candidate);
	}
}

static bool is_selected(const struct collet_device *device, const struct ibv_context *context)
{
	for (uint32_t i = 0; i < device->adapter_count; i++)
		if (device->adapters[i].context == context)
			return true;
	return false;
}

static void close_unselected(const struct collet_device *device, struct candidate *candidates, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct ibv_context *context = candidates[i].adapter.context;
		if (!context || is_selected(device, context))
			continue;
		for (uint32_t later = i; later < count; later++)
			if (candidates[later].adapter.context == context)
				candidates[later].adapter.context = NULL;
		ibv_close_device(context);
	}
}

static collet_status alloc_pds(struct collet_device *device)
{
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		struct verbs_adapter *adapter = &device->adapters[i];
		adapter->pd = ibv_alloc_pd(adapter->context);
		if (!adapter->pd)
			return device->services->fail(COLLET_ERR_TRANSPORT, "verbs: no protection domain on %s: %s",
				adapter->name, strerror(errno));
	}
	return COLLET_OK;
}

static const char *network_name(enum verbs_network network)
{
	return network == VERBS_NETWORK_IWARP ? "iWARP" : network == VERBS_NETWORK_ROCE ? "RoCE" : "InfiniBand";
}

/* Returns false for software adapters, whose rate is not a real one. */
static bool is_hardware(const struct verbs_adapter *adapter)
{
	char path[300];
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", adapter->name);
	return access(path, F_OK) == 0;
}

static void describe(const struct collet_device *device, struct collet_device_info *info)
{
	struct verbs_peer_data peer_data = { .version = PEER_DATA_VERSION };
	size_t used = 0;
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		const struct verbs_adapter *adapter = &device->adapters[i];
		char gid[INET6_ADDRSTRLEN];
		const int written =
			snprintf(info->description + used, sizeof(info->description) - used, "%s%s:%u %s %s %u Gb/s",
				i ? ", " : "", adapter->name, adapter->port, network_name(adapter->network),
				collet_verbs_gid_text(adapter->gid.raw, gid, sizeof(gid)), adapter->rate_mbps / 1000);
		if (written > 0 && used + (size_t)written < sizeof(info->description))
			used += (size_t)written;
		peer_data.networks |= (uint8_t)adapter->network;
		info->link_mbps += is_hardware(adapter) ? adapter->rate_mbps : 0;
	}
	memcpy(info->peer_data, &peer_data, sizeof(peer_data));
	info->peer_data_bytes = sizeof(peer_data);
}

static collet_status open_adapters(struct collet_device *device, const struct collet_device_config *config)
{
	const struct collet_services *services = config->services;
	const char *list = services->option("COLLET_VERBS_DEVICES");
	collet_status status = collet_verbs_read_options(services, &device->options);
	if (status != COLLET_OK)
		return status;
	int device_count = 0;
	struct ibv_device **devices = ibv_get_device_list(&device_count);
	if (!devices || device_count == 0) {
		if (devices)
			ibv_free_device_list(devices);
		return services->fail(COLLET_ERR_UNSUPPORTED,
			"verbs: there is no RDMA device (is a driver loaded, and is /dev/infiniband accessible?)");
	}
	struct candidate candidates[CANDIDATES_MAX];
	struct rejected_ports rejected = { 0 };
	const uint32_t count = probe_devices(device, devices, list, &rejected, candidates);
	ibv_free_device_list(devices);
	select_adapters(device, list, config->self->rank, candidates, count);
	close_unselected(device, candidates, count);
	if (device->adapter_count == 0)
		return services->fail(COLLET_ERR_UNSUPPORTED, "verbs: no port to use%s%s (%s)",
			list ? " among COLLET_VERBS_DEVICES=" : "", list ? list : "",
			rejected.used ? rejected.text : "no port has such a name");
	status = alloc_pds(device);
	return status == COLLET_OK ? collet_verbs_watch_events(device) : status;
}

collet_status collet_verbs_device_open(struct collet_device **result, const struct collet_device_config *config,
	struct collet_device_info *info)
{
	struct collet_device *device = calloc(1, sizeof(*device));
	if (!device)
		return config->services->fail(COLLET_ERR_MEMORY, "verbs: no memory for the list of adapters");
	device->services = config->services;
	device->log = config->log;
	device->epoll_fd = config->wake->epoll_fd;
	pthread_mutex_init(&device->lock, NULL);
	const collet_status status = open_adapters(device, config);
	if (status != COLLET_OK) {
		collet_verbs_device_close(device);
		return status;
	}
	describe(device, info);
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		char name[160];
		config->services->log(config->log, COLLET_LOG_INFO, "verbs: rail %u is %s, %u Mb/s, MTU %u", i,
			collet_verbs_adapter_name(&device->adapters[i], name, sizeof(name)),
			device->adapters[i].rate_mbps, 128u << device->adapters[i].mtu);
	}
	*result = device;
	return COLLET_OK;
}

void collet_verbs_close_fds_in_child(const struct collet_device *device)
{
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		bool is_duplicate = false;
		for (uint32_t before = 0; before < i; before++)
			is_duplicate |= device->adapters[before].context == device->adapters[i].context;
		if (is_duplicate)
			continue;
		close(device->adapters[i].context->async_fd);
		close(device->adapters[i].context->cmd_fd);
	}
}

void collet_verbs_device_close(struct collet_device *device)
{
	while (device->region_count)
		collet_verbs_memory_deregister(device, device->regions[0]);
	free(device->regions);
	collet_verbs_unwatch_events(device);
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		struct verbs_adapter *adapter = &device->adapters[i];
		if (adapter->pd)
			ibv_dealloc_pd(adapter->pd);
		bool is_duplicate = false;
		for (uint32_t later = i + 1; later < device->adapter_count; later++)
			is_duplicate |= device->adapters[later].context == adapter->context;
		if (!is_duplicate)
			ibv_close_device(adapter->context);
	}
	collet_verbs_unload_rdmacm(device->rdmacm);
	pthread_mutex_destroy(&device->lock);
	free(device);
}
