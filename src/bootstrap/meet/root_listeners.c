#include "bootstrap/meet/root_listeners.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/interface.h"
#include "core/status.h"

void collet_root_listeners_close(struct collet_root_listeners *listeners)
{
	for (uint32_t i = 0; i < COLLET_ROOT_LISTENERS; i++) {
		if (listeners->sockets[i] >= 0)
			close(listeners->sockets[i]);
		listeners->sockets[i] = -1;
	}
}

/* Listens on a second address if the name of rank 0's host resolves to loopback on that host itself. Then ranks of this
 * host connect to loopback, and ranks of other hosts to the second address. */
static collet_status listen_second(struct collet_root_listeners *listeners, struct collet_bootstrap_state *state)
{
	const struct collet_launch *launch = state->launch;
	struct collet_address outer;
	if (!collet_store_spans_hosts(launch) || !collet_address_is_loopback(&listeners->tcp_address))
		return COLLET_OK;
	collet_status status = collet_interface_choose(launch->interface, NULL, &outer);
	if (status || collet_address_is_loopback(&outer))
		return status;
	collet_address_set_port(&outer, collet_address_port(&listeners->tcp_address));
	status = collet_socket_listen(&outer, 0, 0, &listeners->sockets[2]);
	if (!status)
		listeners->tcp_address = outer;
	return status;
}

static collet_status listen_fixed(struct collet_root_listeners *listeners, struct collet_bootstrap_state *state,
	const struct collet_root_addresses *addresses)
{
	const struct collet_launch *launch = state->launch;
	collet_status status = COLLET_ERR_CONFIG;
	if (addresses->has_unix) {
		struct collet_address address;
		collet_address_unix(&address, addresses->unix_name);
		return collet_socket_listen(&address, 0, 0, &listeners->sockets[0]);
	}
	for (uint32_t i = 0; i < addresses->tcp_count; i++) {
		struct collet_address address = addresses->tcp[i];
		const uint16_t port = collet_address_port(&address);
		status = COLLET_ERR_UNSUPPORTED;
		if (collet_interface_allows(launch->interface, &address))
			status = collet_socket_listen(&address, 0, 0, &listeners->sockets[1]);
		if (status == COLLET_ERR_UNSUPPORTED) {
			/* The name is not an address of this host (it may be translated on the way), or the user's
			 * list excludes it: take an allowed address with the same port. */
			status = collet_interface_choose(launch->interface, &addresses->tcp[i], &address);
			if (status)
				continue;
			collet_address_set_port(&address, port);
			status = collet_socket_listen(&address, 0, 0, &listeners->sockets[1]);
		}
		if (status == COLLET_OK) {
			listeners->tcp_address = address;
			status = listen_second(listeners, state);
			if (status != COLLET_ERR_BUSY)
				return status;
			/* The port is free on one address and in use on the other: try the next one. */
			collet_root_listeners_close(listeners);
		}
	}
	return status;
}

static collet_status listen_announced(struct collet_root_listeners *listeners, struct collet_bootstrap_state *state)
{
	struct collet_root_addresses addresses = { .has_unix = true, .host_id = state->peer_info->host_id };
	uint8_t random[16];
	char hex[33];
	collet_status status = collet_random(random, sizeof(random));
	if (status)
		return status;
	collet_hex(hex, random, sizeof(random));
	snprintf(addresses.unix_name, sizeof(addresses.unix_name), "collet-root-%s", hex);
	struct collet_address address;
	collet_address_unix(&address, addresses.unix_name);
	status = collet_socket_listen(&address, 0, 0, &listeners->sockets[0]);
	if (!status && state->launch->secret_bytes) {
		status = collet_interface_choose(state->launch->interface, NULL, &addresses.tcp[0]);
		if (!status)
			status = collet_socket_listen(&addresses.tcp[0], state->launch->port_first,
				state->launch->port_last, &listeners->sockets[1]);
		addresses.tcp_count = 1;
		listeners->tcp_address = addresses.tcp[0];
	}
	return status ? status : state->store.kind->announce(&state->store, &addresses);
}

/* Retries while the address is in use, usually by the last run of the same job. */
collet_status collet_root_listeners_open(struct collet_root_listeners *listeners, struct collet_bootstrap_state *state)
{
	const struct collet_store_kind *kind = state->store.kind;
	for (;;) {
		struct collet_root_addresses addresses;
		collet_status status =
			kind->is_fixed ? kind->find(&state->store, &addresses) : listen_announced(listeners, state);
		if (kind->is_fixed && !status)
			status = listen_fixed(listeners, state, &addresses);
		if (status != COLLET_ERR_BUSY && status != COLLET_ERR_TRANSPORT)
			return status;
		collet_root_listeners_close(listeners);
		if (collet_deadline_passed(state->deadline))
			return collet_fail(COLLET_ERR_RENDEZVOUS, "rank 0: %s%s", collet_last_error(),
				status == COLLET_ERR_BUSY ? "; is another job of this name or on this port running "
							    "(COLLET_JOB, COLLET_PORT)?"
							  : "");
		poll(NULL, 0, collet_deadline_ms(state->deadline, 20));
	}
}
