/* Chooses the kind of store, and implements the two that compute the addresses of rank 0 instead of carrying them. */
#include "bootstrap/store/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/crypto.h"
#include "bootstrap/store/store_text.h"
#include "core/status.h"

collet_status collet_store_unix_name(const char *name, char unix_name[64])
{
	/* Hashing gives the name a fixed length. The user's number in it keeps users apart by accident only. Against
	 * intent, the kernel tells each end which user the other end is. */
	uint8_t mac[COLLET_MAC_BYTES];
	char hex[33];
	collet_status status = collet_mac(mac, "rendezvous", 10, name, strlen(name));
	if (status)
		return status;
	collet_hex(hex, mac, 16);
	snprintf(unix_name, 64, "collet-%lu-%s", (unsigned long)geteuid(), hex);
	return COLLET_OK;
}

uint16_t collet_store_scan_port(uint16_t port, const char *job, uint32_t i)
{
	uint32_t hash = 2166136261u;  /* FNV-1a */
	for (const char *c = job; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 16777619u;
	const uint32_t span = 128, offset = 1 + (hash % span + i) % span;
	/* Goes below the port where adding would exceed the highest port. */
	return (uint16_t)(port + offset <= UINT16_MAX ? port + offset : port - offset);
}

static collet_status unix_find(struct collet_store *store, struct collet_root_addresses *addresses)
{
	memset(addresses, 0, sizeof(*addresses));
	addresses->has_unix = true;
	return collet_store_unix_name(store->launch->store + strlen("unix:"), addresses->unix_name);
}

static collet_status tcp_find(struct collet_store *store, struct collet_root_addresses *addresses)
{
	const struct collet_launch *launch = store->launch;
	char host[256];
	uint16_t port;
	struct collet_address found[4];
	uint32_t found_count;
	memset(addresses, 0, sizeof(*addresses));
	if (!collet_host_port_parse(launch->store + strlen("tcp://"), host, sizeof(host), &port))
		return collet_fail(COLLET_ERR_CONFIG, "the store %s is not tcp://HOST:PORT", launch->store);
	collet_status status = collet_host_resolve(host, port, found, 4, &found_count);
	if (status)
		return status;
	const uint32_t ports = launch->needs_port_scan ? COLLET_SCAN_PORTS : 1;
	for (uint32_t p = 0; p < ports; p++) {
		for (uint32_t i = 0; i < found_count; i++) {
			struct collet_address *address = &addresses->tcp[addresses->tcp_count++];
			*address = found[i];
			if (launch->needs_port_scan)
				collet_address_set_port(address, collet_store_scan_port(port, launch->job, p));
		}
	}
	return COLLET_OK;
}

static collet_status announce_nothing(struct collet_store *store, const struct collet_root_addresses *addresses)
{
	return COLLET_OK;
}

static void withdraw_nothing(struct collet_store *store)
{
}

static const struct collet_store_kind unix_store = {
	.name = "unix", .is_fixed = true, .find = unix_find, .announce = announce_nothing, .withdraw = withdraw_nothing,
};
static const struct collet_store_kind tcp_store = {
	.name = "tcp", .is_fixed = true, .find = tcp_find, .announce = announce_nothing, .withdraw = withdraw_nothing,
};
static const struct collet_store_kind tcp_scan_store = {
	.name = "tcp", .is_fixed = true, .is_shared = true, .find = tcp_find, .announce = announce_nothing,
	.withdraw = withdraw_nothing,
};

void collet_store_deinit(struct collet_store *store)
{
	collet_wipe(store->announced, sizeof(store->announced));
	collet_wipe(store->made_secret, sizeof(store->made_secret));
}

collet_status collet_store_init(struct collet_store *store, struct collet_launch *launch)
{
	memset(store, 0, sizeof(*store));
	store->launch = launch;
	if (launch->store_callbacks)
		return collet_store_callback_init(store);
	if (strncmp(launch->store, "unix:", 5) == 0)
		store->kind = &unix_store;
	else if (strncmp(launch->store, "tcp://", 6) == 0)
		store->kind = launch->needs_port_scan ? &tcp_scan_store : &tcp_store;
	else if (strncmp(launch->store, "file://", 7) == 0)
		return collet_store_file_init(store);
	else
		return collet_fail(COLLET_ERR_CONFIG,
			"the store '%s' is none of tcp://HOST:PORT, file:///FOLDER, unix:NAME "
			"(COLLET_STORE)",
			launch->store);
	return COLLET_OK;
}

bool collet_store_spans_hosts(const struct collet_launch *launch)
{
	char host[256];
	uint16_t port;
	if (!launch->secret_bytes)
		return false;  /* only Unix sockets are used */
	if (launch->store_callbacks || strncmp(launch->store, "file://", 7) == 0)
		return true;
	return strncmp(launch->store, "tcp://", 6) == 0 &&
		collet_host_port_parse(launch->store + 6, host, sizeof(host), &port) && !collet_host_is_loopback(host);
}

const char *collet_store_describe(const struct collet_launch *launch)
{
	return launch->store_callbacks ? "the caller's store" : launch->store;
}
