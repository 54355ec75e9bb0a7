/* Serves the clients on rank 0. A client finishes the handshake, sends its peer info, and is registered then. If it is
 * asked, it also sends its host's topology. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bootstrap/meet/peer_table.h"
#include "bootstrap/meet/root.h"

enum { MAX_UNREGISTERED = 4096 };        /* when there are more, the oldest is dropped */

void collet_root_drop_client(struct collet_bootstrap_root *root, struct collet_root_client *client)
{
	if (client->next)
		client->next->previous = client->previous;
	else
		root->oldest = client->previous;
	if (client->previous)
		client->previous->next = client->next;
	else
		root->newest = client->next;
	if (client->stage == CLIENT_REGISTERED) {
		root->registered[client->rank] = NULL;
		root->registered_count--;
		collet_host_table_remove_rank(&root->hosts, client->rank);
	} else {
		root->unregistered_count--;
	}
	/* close() alone would leave it in the epoll set while a forked child has a copy. */
	if (client->connection.socket >= 0)
		epoll_ctl(root->epoll_fd, EPOLL_CTL_DEL, client->connection.socket, NULL);
	collet_framed_socket_deinit(&client->connection);
	free(client);
}

static void reject(struct collet_bootstrap_root *root, struct collet_root_client *client)
{
	char text[COLLET_ADDRESS_TEXT_BYTES];
	uint32_t uid;
	if (collet_socket_peer_uid(client->connection.socket, &uid))
		snprintf(text, sizeof(text), "a process of user %u on this host", uid);
	else
		collet_address_print(&client->from, text);
	snprintf(root->last_rejected, sizeof(root->last_rejected), "%.128s: %.360s", text, collet_last_error());
	collet_log(root->state->log, COLLET_LOG_INFO, "bootstrap: rejected %s", root->last_rejected);
	collet_root_drop_client(root, client);
}

static void watch_write(struct collet_bootstrap_root *root, struct collet_root_client *client, bool write)
{
	struct epoll_event event = { .events = EPOLLIN | (write ? EPOLLOUT : 0u), .data.ptr = client };
	if (write == client->wants_write)
		return;
	client->wants_write = write;
	epoll_ctl(root->epoll_fd, EPOLL_CTL_MOD, client->connection.socket, &event);
}

void collet_root_accept_client(struct collet_bootstrap_root *root, int socket, const struct collet_address *from)
{
	const struct collet_launch *launch = root->state->launch;
	struct collet_root_client *client = calloc(1, sizeof(*client));
	if (!client) {
		close(socket);
		return;
	}
	if (root->unregistered_count >= MAX_UNREGISTERED)
		for (struct collet_root_client *old = root->oldest; old; old = old->previous)
			if (old->stage != CLIENT_REGISTERED) {
				collet_root_drop_client(root, old);
				break;
			}
	client->from = *from;
	client->deadline = collet_deadline_after(COLLET_HANDSHAKE_TIMEOUT_NS);
	collet_framed_socket_init(&client->connection, socket, sizeof(struct collet_peer_info) + COLLET_BINDING_BYTES);
	client->next = root->newest;
	if (root->newest)
		root->newest->previous = client;
	else
		root->oldest = client;
	root->newest = client;
	root->unregistered_count++;
	const struct collet_handshake_config config = {
		.key = launch->secret,
		.key_bytes = launch->secret_bytes,
		.job = launch->job,
		.purpose = COLLET_PURPOSE_CONTROL,
		.to = 0,
		.size = launch->size,
	};
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = client };
	collet_status status = collet_bootstrap_check_socket(launch, socket);
	if (!status)
		status = collet_handshake_accept(&client->handshake, socket, &config);
	if (!status && epoll_ctl(root->epoll_fd, EPOLL_CTL_ADD, socket, &event) < 0)
		status = collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	if (status)
		reject(root, client);
}

/* Rejects a client, and sends it the reason if the socket accepts it now. */
static void reject_with_reason(
	struct collet_bootstrap_root *root, struct collet_root_client *client, collet_status status)
{
	struct collet_frame frame;
	void *data;
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
	if (collet_peer_table_pack(&frame, &data, status, error_text, NULL, 0, NULL) == COLLET_OK) {
		(void)collet_framed_socket_send(&client->connection, &frame, data);
		free(data);
	}
	collet_fail_copy(status, error_text);
	reject(root, client);
}

/* True if the client is connected, and silent or about to send the topology that it was asked for. */
static bool is_alive(const struct collet_bootstrap_root *root, const struct collet_root_client *client)
{
	char byte;
	ssize_t got = recv(client->connection.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (got > 0)
		return collet_host_table_is_asked(&root->hosts, client->rank);
	return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/* Adds a client to the host table. The second rank of a host is asked for the topology. */
static void add_to_host_table(struct collet_bootstrap_root *root, struct collet_root_client *client,
	const uint8_t *binding, uint32_t binding_bytes)
{
	const struct collet_frame frame = { .kind = COLLET_FRAME_GET_TOPOLOGY };
	bool must_ask;
	collet_status status = collet_host_table_add_rank(&root->hosts, client->rank,
		root->state->bootstrap->peer_infos[client->rank].host_id, binding, binding_bytes, &must_ask);
	if (!status && must_ask) {
		client->connection.frame_limit = COLLET_MAX_CPUS * sizeof(struct collet_locality);
		status = collet_framed_socket_send(&client->connection, &frame, NULL);
	}
	if (status)
		reject(root, client);
}

/* Receives a host's topology, the only frame that a registered client may send before the table. */
static void receive_topology(struct collet_bootstrap_root *root, struct collet_root_client *client)
{
	const struct collet_framed_socket *connection = &client->connection;
	if (connection->frame.kind == COLLET_FRAME_TOPOLOGY &&
	    collet_host_table_set_topology(&root->hosts, client->rank, connection->in, connection->frame.bytes))
		return;
	collet_fail(COLLET_ERR_TRANSPORT, "rank %u sent something unexpected", client->rank);
	reject(root, client);
}

static void receive_peer_info(struct collet_bootstrap_root *root, struct collet_root_client *client)
{
	struct collet_bootstrap_state *state = root->state;
	struct collet_peer_info info;
	const uint32_t bytes = client->connection.frame.bytes;
	if (client->connection.frame.kind != COLLET_FRAME_PEER_INFO || bytes < sizeof(info) ||
		bytes > sizeof(info) + COLLET_BINDING_BYTES) {
		collet_fail(COLLET_ERR_TRANSPORT, "it sent no peer info");
		reject(root, client);
		return;
	}
	memcpy(&info, client->connection.in, sizeof(info));
	info.host[sizeof(info.host) - 1] = info.unix_name[sizeof(info.unix_name) - 1] = 0;
	info.settings[sizeof(info.settings) - 1] = 0;
	const uint32_t rank = client->handshake.from;
	if (info.rank != rank || rank == 0) {
		reject_with_reason(root, client,
			collet_fail(COLLET_ERR_CONFIG,
				"a process on %s (pid %u) claims to be rank %u, which is another process", info.host,
				info.pid, rank));
		return;
	}
	struct collet_root_client *other = root->registered[rank];
	if (other && is_alive(root, other)) {
		const struct collet_peer_info *first = &state->bootstrap->peer_infos[rank];
		reject_with_reason(root, client,
			collet_fail(COLLET_ERR_CONFIG,
				"two processes claim to be rank %u: pid %u on %s and pid %u on %s; do two "
				"jobs have one name (COLLET_JOB)?",
				rank, first->pid, first->host, info.pid, info.host));
		return;
	}
	if (other)
		collet_root_drop_client(root, other);
	state->bootstrap->peer_infos[rank] = info;
	client->rank = rank;
	client->stage = CLIENT_REGISTERED;
	root->registered[rank] = client;
	root->registered_count++;
	root->unregistered_count--;
	collet_log(state->log, COLLET_LOG_DEBUG, "rank %u has connected from %s (%u of %u)", rank, info.host,
		root->registered_count, state->launch->size);
	add_to_host_table(
		root, client, (const uint8_t *)client->connection.in + sizeof(info), bytes - (uint32_t)sizeof(info));
}

void collet_root_serve_client(struct collet_bootstrap_root *root, struct collet_root_client *client)
{
	collet_status status = COLLET_OK;
	if (client->stage == CLIENT_HANDSHAKE) {
		status = collet_handshake_step(&client->handshake);
		if (status == COLLET_PENDING) {
			watch_write(root, client, collet_handshake_wants_write(&client->handshake));
			return;
		}
		if (status) {
			reject(root, client);
			return;
		}
		watch_write(root, client, false);
		client->stage = CLIENT_REGISTERING;
	}
	if (client->stage == CLIENT_REGISTERING) {
		status = collet_framed_socket_read(&client->connection);
		if (status == COLLET_OK)
			receive_peer_info(root, client);
		else if (status != COLLET_PENDING)
			reject(root, client);
		return;
	}
	/* A registered client that was not asked must be silent until it has the table. Input means that it is gone or
	 * faulty. It may connect again. */
	status = collet_framed_socket_flush(&client->connection);
	watch_write(root, client, status == COLLET_PENDING);
	if (!(status && status != COLLET_PENDING) && collet_host_table_is_asked(&root->hosts, client->rank)) {
		const collet_status read_status = collet_framed_socket_read(&client->connection);
		if (read_status == COLLET_OK)
			receive_topology(root, client);
		if (read_status == COLLET_OK || read_status == COLLET_PENDING)
			return;
		status = read_status;
	}
	if ((status && status != COLLET_PENDING) || !is_alive(root, client)) {
		collet_fail(COLLET_ERR_TRANSPORT, "rank %u left before all ranks were connected", client->rank);
		reject(root, client);
	}
}

/* Walks the unregistered clients, oldest first. All have the same time limit, so the first one with time left ends the
 * walk. */
int64_t collet_root_expire_clients(struct collet_bootstrap_root *root)
{
	for (struct collet_root_client *client = root->oldest, *newer; client; client = newer) {
		newer = client->previous;
		if (client->stage == CLIENT_REGISTERED)
			continue;
		/* With unread input it is this rank that is late: serve that input first. */
		if (!collet_deadline_passed(client->deadline) || collet_socket_has_input(client->connection.socket))
			return client->deadline;
		collet_fail(COLLET_ERR_TRANSPORT, "it did not finish the handshake in time");
		reject(root, client);
	}
	return COLLET_NEVER;
}
