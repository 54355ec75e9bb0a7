/* Runs the bootstrap as root, as client, or alone. */
#include "bootstrap/meet/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bootstrap/identity.h"
#include "bootstrap/meet/peer_table.h"
#include "core/status.h"

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
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
	struct collet_launch *launch = state->launch;
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
	status = launch->rank == 0 ? collet_bootstrap_run_root(state) : collet_bootstrap_run_client(state);
	collet_store_deinit(&state->store);
	return status;
}

collet_status collet_bootstrap_init(struct collet_bootstrap *bootstrap, struct collet_launch *launch,
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
		char error_text[COLLET_ERROR_BYTES];
		snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
		collet_bootstrap_deinit(bootstrap);
		return collet_fail_copy(status, error_text);
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
