/* Runs the bootstrap on rank 0, the root: listens, collects the peer infos of all ranks, then sends all ranks the peer
 * table. Strangers, slow handshakes and ranks that reconnect only use a slot for a while. The wait ends when all ranks
 * are registered, or at the deadline. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bootstrap/meet/peer_table.h"
#include "bootstrap/meet/root.h"

enum { SEND_ERROR_MS = 1000 };           /* time limit for sending the error */

/* ---- Listeners ---- */

static collet_status register_listeners(struct collet_bootstrap_root *root)
{
	for (uint32_t i = 0; i < COLLET_ROOT_LISTENERS; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = &root->listeners.sockets[i] };
		if (root->listeners.sockets[i] >= 0 &&
			epoll_ctl(root->epoll_fd, EPOLL_CTL_ADD, root->listeners.sockets[i], &event) < 0)
			return collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	}
	return COLLET_OK;
}

static int *find_listener(struct collet_bootstrap_root *root, void *source)
{
	for (uint32_t i = 0; i < COLLET_ROOT_LISTENERS; i++)
		if (source == &root->listeners.sockets[i])
			return &root->listeners.sockets[i];
	return NULL;
}

static void accept_all(struct collet_bootstrap_root *root, int listener)
{
	struct collet_address from;
	for (int i = 0; i < 64; i++) {  /* then serve the accepted clients again */
		int socket = collet_socket_accept(listener, &from);
		if (socket >= 0) {
			collet_root_accept_client(root, socket, &from);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			poll(NULL, 0, 10);  /* no descriptor is free until some clients time out */
		return;
	}
}

/* ---- Collecting peer infos, sending the table ---- */

/* Adds rank 0, which is registered from the start. */
static collet_status add_own_rank(struct collet_bootstrap_root *root)
{
	uint8_t binding[COLLET_BINDING_BYTES];
	const uint32_t bytes = collet_binding_read(binding);
	bool must_ask;
	return collet_host_table_add_rank(&root->hosts, 0, root->state->peer_info->host_id, binding, bytes, &must_ask);
}

static collet_status collect_peer_infos(struct collet_bootstrap_root *root)
{
	struct collet_bootstrap_state *state = root->state;
	root->report_at = collet_deadline_after((int64_t)COLLET_MISSING_REPORT_MS * 1000000);
	while (root->registered_count < state->launch->size || root->hosts.unanswered_count) {
		struct epoll_event event;
		int64_t wake = collet_root_expire_clients(root);
		if (wake > state->deadline)
			wake = state->deadline;
		if (root->reported_count != root->registered_count && wake > root->report_at)
			wake = root->report_at;
		/* One event at a time: serving one client may free another whose event would still be in the array. */
		int count = epoll_wait(root->epoll_fd, &event, 1, collet_deadline_ms(wake, 1000));
		if (count < 0 && errno != EINTR)
			return collet_fail(COLLET_ERR_SYSTEM, "epoll_wait: %s", strerror(errno));
		if (count > 0) {
			int *listener = find_listener(root, event.data.ptr);
			if (listener)
				accept_all(root, *listener);
			else
				collet_root_serve_client(root, event.data.ptr);
		}
		collet_missing_report(root);
		if (collet_deadline_passed(state->deadline) &&
		    (root->registered_count < state->launch->size || root->hosts.unanswered_count)) {
			char error_text[COLLET_ERROR_BYTES];
			if (root->registered_count < state->launch->size)
				collet_missing_describe(root, error_text, sizeof(error_text));
			else
				collet_missing_describe_topology(root, error_text, sizeof(error_text));
			return collet_fail(COLLET_ERR_RENDEZVOUS, "after %.3g s %.900s",
				(double)state->launch->rendezvous_timeout_ns / 1e9, error_text);
		}
	}
	return COLLET_OK;
}

/* Sends the same frame to all registered clients, and waits until it is sent or the deadline passes. If a connection
 * breaks now, the control plane will notice and tell the others. */
static void send_to_all(
	struct collet_bootstrap_root *root, const struct collet_frame *frame, const void *data, int64_t deadline)
{
	const uint32_t size = root->state->launch->size;
	for (uint32_t r = 1; r < size; r++)
		if (root->registered[r])
			(void)collet_framed_socket_send(&root->registered[r]->connection, frame, data);
	for (uint32_t r = 1; r < size; r++) {
		while (root->registered[r] &&
			collet_framed_socket_flush(&root->registered[r]->connection) == COLLET_PENDING) {
			struct pollfd item = { .fd = root->registered[r]->connection.socket, .events = POLLOUT };
			if (collet_deadline_passed(deadline))
				return;
			poll(&item, 1, collet_deadline_ms(deadline, 1000));
		}
	}
}

static collet_status send_peer_table(struct collet_bootstrap_root *root, collet_status status)
{
	struct collet_bootstrap_state *state = root->state;
	struct collet_bootstrap *b = state->bootstrap;
	const uint32_t size = state->launch->size;
	uint8_t nonce[32];
	struct collet_frame frame;
	void *data;
	char error_text[COLLET_ERROR_BYTES];
	if (!status)
		status = collet_random(nonce, sizeof(nonce));
	if (!status)
		status = collet_session_key(b->session_key, state->launch, nonce);
	if (!status)
		collet_host_table_fill_infos(&root->hosts, b->peer_infos);
	if (!status && state->make_blob)
		status = state->make_blob(state->context, b->peer_infos, size, &b->blob, &b->blob_bytes);
	collet_status packed = status ? COLLET_ERR_MEMORY :
		collet_peer_table_pack(&frame, &data, COLLET_OK, NULL, b, size, nonce);
	if (!status && packed)
		status = packed;
	snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
	if (packed)
		packed = collet_peer_table_pack(&frame, &data, status, error_text, b, 0, NULL);
	if (!packed) {
		send_to_all(root, &frame, data,
			status ? collet_deadline_after((int64_t)SEND_ERROR_MS * 1000000) : state->deadline);
		free(data);
	}
	collet_wipe(nonce, sizeof(nonce));
	return status ? collet_fail_copy(status, error_text) : COLLET_OK;
}

static void keep_control_sockets(struct collet_bootstrap_root *root)
{
	struct collet_bootstrap *b = root->state->bootstrap;
	for (uint32_t r = 1; r < b->control_socket_count; r++) {
		struct collet_framed_socket *connection = &root->registered[r]->connection;
		if (collet_framed_socket_has_queued(connection))
			continue;  /* the deadline passed before it had the table: the rank is lost */
		epoll_ctl(root->epoll_fd, EPOLL_CTL_DEL, connection->socket, NULL);
		b->control_sockets[r] = collet_framed_socket_release(connection);
	}
}

static collet_status run(struct collet_bootstrap_root *root)
{
	struct collet_bootstrap_state *state = root->state;
	collet_status status = collet_root_listeners_open(&root->listeners, state);
	if (!status)
		status = collet_bootstrap_listen(
			state, root->listeners.tcp_address.bytes ? &root->listeners.tcp_address : NULL);
	if (!status)
		status = register_listeners(root);
	if (!status) {
		state->bootstrap->peer_infos[0] = *state->peer_info;
		status = add_own_rank(root);
	}
	if (!status)
		status = collect_peer_infos(root);
	/* Close before sending the table. A rank that has it may start another bootstrap of the same name, and must not
	 * reach the listeners of this one. */
	collet_root_listeners_close(&root->listeners);
	state->store.kind->withdraw(&state->store);
	status = send_peer_table(root, status);
	if (!status)
		keep_control_sockets(root);
	return status;
}

collet_status collet_bootstrap_run_root(struct collet_bootstrap_state *state)
{
	const uint32_t size = state->launch->size;
	struct collet_bootstrap_root root = {
		.state = state, .listeners.sockets = { -1, -1, -1 }, .registered_count = 1, .reported_count = 1 };
	state->bootstrap->peer_infos = calloc(size, sizeof(*state->bootstrap->peer_infos));
	root.registered = calloc(size, sizeof(*root.registered));
	root.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	collet_status status;
	if (!state->bootstrap->peer_infos || !root.registered)
		status = collet_fail(COLLET_ERR_MEMORY, "no memory for %u ranks", size);
	else if (root.epoll_fd < 0)
		status = collet_fail(COLLET_ERR_SYSTEM, "epoll_create: %s", strerror(errno));
	else
		status = collet_host_table_init(&root.hosts, size);
	if (!status)
		status = run(&root);
	while (root.newest)
		collet_root_drop_client(&root, root.newest);
	collet_host_table_deinit(&root.hosts);
	if (root.epoll_fd >= 0)
		close(root.epoll_fd);
	free(root.registered);
	return status;
}
