/* Opens the listeners of this rank, to which other ranks connect after the bootstrap. */
#include <string.h>
#include <unistd.h>

#include "bootstrap/interface.h"
#include "bootstrap/interface_speed.h"
#include "bootstrap/meet/internal.h"
#include "core/status.h"

static collet_status listen_unix(struct collet_bootstrap_state *state)
{
	struct collet_peer_info *info = state->peer_info;
	struct collet_address address;
	uint8_t random[16];
	collet_status status = collet_random(random, sizeof(random));
	if (status)
		return status;
	memcpy(info->unix_name, "collet-", 7);
	collet_hex(info->unix_name + 7, random, sizeof(random));
	collet_address_unix(&address, info->unix_name);
	return collet_socket_listen(&address, 0, 0, &state->bootstrap->listen_unix);
}

static collet_status listen_tcp(struct collet_bootstrap_state *state, const struct collet_address *at)
{
	const struct collet_launch *launch = state->launch;
	struct collet_peer_info *info = state->peer_info;
	struct collet_address address = *at;
	collet_address_set_port(&address, 0);
	collet_status status = collet_socket_listen(&address, launch->port_first, launch->port_last,
		&state->bootstrap->listen_tcp);
	if (status == COLLET_ERR_BUSY && launch->port_first)
		return collet_fail(COLLET_ERR_CONFIG, "no port from %u to %u is free (COLLET_PORT_RANGE)",
			launch->port_first, launch->port_last);
	if (status)
		return status;
	info->family = address.any.sa_family;
	info->port = collet_address_port(&address);
	info->scope_id = info->family == AF_INET6 ? address.v6.sin6_scope_id : 0;
	if (info->family == AF_INET)
		memcpy(info->address, &address.v4.sin_addr, 4);
	else
		memcpy(info->address, &address.v6.sin6_addr, 16);
	if (!info->link_mbps)  /* no transport has filled in the speed of its own adapter */
		info->link_mbps = collet_interface_mbps(&address);
	char text[COLLET_ADDRESS_TEXT_BYTES];
	collet_log(state->log, COLLET_LOG_DEBUG, "listens on %s and unix:%s", collet_address_print(&address, text),
		info->unix_name);
	return COLLET_OK;
}

collet_status collet_bootstrap_listen(struct collet_bootstrap_state *state, const struct collet_address *at)
{
	struct collet_address loopback, chosen;
	const char *interface = state->launch->interface;
	collet_status status = listen_unix(state);
	if (status)
		return status;
	if (*interface && !(at && collet_interface_allows(interface, at))) {
		status = collet_interface_choose(interface, at, &chosen);
		return status ? status : listen_tcp(state, &chosen);
	}
	if (at)
		return listen_tcp(state, at);
	const struct in_addr v4 = { .s_addr = htonl(INADDR_LOOPBACK) };
	collet_address_ip(&loopback, AF_INET, &v4, 0, 0);
	status = listen_tcp(state, &loopback);
	if (status != COLLET_ERR_UNSUPPORTED && status != COLLET_ERR_SYSTEM)
		return status;
	collet_address_ip(&loopback, AF_INET6, &in6addr_loopback, 0, 0);
	status = listen_tcp(state, &loopback);
	if (status)  /* one host without loopback: shared memory still works */
		collet_log(state->log, COLLET_LOG_INFO, "has no TCP address: %s", collet_last_error());
	return COLLET_OK;
}

collet_status collet_bootstrap_check_socket(const struct collet_launch *launch, int socket)
{
	uint32_t uid;
	if (launch->secret_bytes)
		return COLLET_OK;  /* the handshake authenticates the peer */
	if (!collet_socket_peer_uid(socket, &uid))
		return collet_fail(COLLET_ERR_AUTH, "without a secret only Unix sockets are accepted");
	if (uid != (uint32_t)geteuid())
		return collet_fail(COLLET_ERR_AUTH,
			"the other end belongs to user %u, this rank to user %lu, and there is no secret", uid,
			(unsigned long)geteuid());
	return COLLET_OK;
}
