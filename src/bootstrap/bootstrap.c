/* Opens this rank's own listeners and runs the bootstrap as root, as client, or alone. */
#include "bootstrap/meet/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/identity.h"
#include "bootstrap/interface.h"
#include "bootstrap/interface_speed.h"
#include "core/status.h"

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

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

static collet_status run_single(struct collet_bootstrap_state *state)
{
	struct collet_bootstrap *b = state->bootstrap;
	uint8_t nonce[32];
	b->peer_infos = malloc(sizeof(*b->peer_infos));
	if (!b->peer_infos)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the peer info");
	b->peer_infos[0] = *state->peer_info;
	collet_status status = collet_random(nonce, sizeof(nonce));
	if (!status)
		status = collet_session_key(b->session_key, state->launch, nonce);
	if (!status && state->make_blob)
		status = state->make_blob(state->context, b->peer_infos, 1, &b->blob, &b->blob_bytes);
	return status;
}

static collet_status run(struct collet_bootstrap_state *state)
{
	const struct collet_launch *launch = state->launch;
	struct collet_peer_info *info = state->peer_info;
	collet_status status = collet_peer_info_fill_host(info);
	if (status)
		return status;
	info->rank = launch->rank;
	if (launch->size == 1)
		return run_single(state);
	status = collet_store_init(&state->store, launch);
	if (status)
		return status;
	return launch->rank == 0 ? collet_bootstrap_run_root(state) : collet_bootstrap_run_client(state);
}

collet_status collet_bootstrap_init(struct collet_bootstrap *bootstrap, const struct collet_launch *launch,
	struct collet_peer_info *info, collet_make_blob make_blob, void *context, const struct collet_log *log)
{
	struct collet_bootstrap_state state = {
		.bootstrap = bootstrap,
		.launch = launch,
		.peer_info = info,
		.make_blob = make_blob,
		.context = context,
		.log = log,
		.deadline = collet_deadline_after(launch->rendezvous_timeout_ns),
	};
	*bootstrap = (struct collet_bootstrap){ .listen_tcp = -1, .listen_unix = -1 };
	bootstrap->control_sockets = malloc(sizeof(int) * launch->size);
	if (!bootstrap->control_sockets)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for %u connections", launch->size);
	for (uint32_t i = 0; i < launch->size; i++)
		bootstrap->control_sockets[i] = -1;
	bootstrap->control_socket_count = launch->size;
	collet_status status = run(&state);
	if (status) {
		char sentence[COLLET_ERROR_BYTES];
		snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
		collet_bootstrap_deinit(bootstrap);
		return collet_fail_copy(status, sentence);
	}
	*info = bootstrap->peer_infos[launch->rank];  /* rank 0 has filled in more */
	return COLLET_OK;
}

void collet_bootstrap_deinit(struct collet_bootstrap *bootstrap)
{
	if (bootstrap->control_sockets) {  /* NULL: zeroed or already closed, so its descriptors are not ours */
		for (uint32_t i = 0; i < bootstrap->control_socket_count; i++)
			close_fd(&bootstrap->control_sockets[i]);
		close_fd(&bootstrap->listen_tcp);
		close_fd(&bootstrap->listen_unix);
	}
	free(bootstrap->control_sockets);
	free(bootstrap->peer_infos);
	free(bootstrap->blob);
	collet_wipe(bootstrap->session_key, sizeof(bootstrap->session_key));
	*bootstrap = (struct collet_bootstrap){ .listen_tcp = -1, .listen_unix = -1 };
}
