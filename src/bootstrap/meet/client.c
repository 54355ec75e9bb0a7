/* Runs the bootstrap on a client, which is every rank but 0: finds rank 0, authenticates, sends its peer info and waits
 * for the peer table. If anything breaks before the table has arrived, it starts again. So the order in which ranks
 * start does not matter. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/framed_socket.h"
#include "bootstrap/interface.h"
#include "bootstrap/meet/internal.h"
#include "bootstrap/meet/peer_table.h"
#include "bootstrap/secret.h"
#include "core/status.h"
#include "topology/host_topology.h"

/* The time that a listener has to answer. It is shorter for shared addresses, where another one may be rank 0. */
#define ATTEMPT_TIMEOUT_NS ((int64_t)5000000000)
#define SHARED_ATTEMPT_TIMEOUT_NS ((int64_t)1000000000)
enum { MIN_BACKOFF_MS = 2, MAX_BACKOFF_MS = 100 };

struct client {
	struct collet_bootstrap_state *state;
	struct collet_handshake handshake;
	struct collet_framed_socket connection;
	char missing_report[COLLET_ERROR_BYTES]; /* rank 0's latest sentence on missing ranks */
	char last_failure[COLLET_ERROR_BYTES];   /* the reason of the last failed attempt */
	bool is_last_refusal;                    /* last_failure is a refusal by rank 0 */
};

/* Waits for the socket. Returns COLLET_OK also after a timeout: the caller checks its deadline. */
static collet_status wait_for(int socket, bool write, int64_t deadline)
{
	struct pollfd item = { .fd = socket, .events = write ? POLLOUT : POLLIN };
	if (poll(&item, 1, collet_deadline_ms(deadline, 1000)) < 0 && errno != EINTR)
		return collet_fail(COLLET_ERR_SYSTEM, "poll: %s", strerror(errno));
	return COLLET_OK;
}

static collet_status run_handshake(struct client *client, int socket)
{
	const struct collet_launch *launch = client->state->launch;
	int64_t deadline = collet_deadline_after(
		client->state->store.kind->is_shared ? SHARED_ATTEMPT_TIMEOUT_NS : ATTEMPT_TIMEOUT_NS);
	if (deadline > client->state->deadline)
		deadline = client->state->deadline;
	const struct collet_handshake_config config = {
		.key = launch->secret,
		.key_bytes = launch->secret_bytes,
		.job = launch->job,
		.purpose = COLLET_PURPOSE_CONTROL,
		.from = launch->rank,
		.to = 0,
		.size = launch->size,
	};
	collet_status status = collet_handshake_dial(&client->handshake, socket, &config);
	while (!status) {
		status = collet_handshake_step(&client->handshake);
		if (status != COLLET_PENDING)
			break;
		if (collet_deadline_passed(deadline))
			return collet_fail(COLLET_ERR_TRANSPORT, "it does not answer");
		status = wait_for(socket, collet_handshake_wants_write(&client->handshake), deadline);
	}
	return status;
}

/* Opens this rank's listeners, on the address from which it has reached rank 0. If that is loopback or a Unix socket,
 * and ranks of other hosts may connect, chooses another one. */
static collet_status open_listeners(struct client *client, const struct collet_address *root)
{
	const struct collet_launch *launch = client->state->launch;
	struct collet_address local = { .bytes = sizeof(local.v6) };
	const bool spans_hosts = collet_store_spans_hosts(launch), is_unix = root->any.sa_family == AF_UNIX;
	if (is_unix && !spans_hosts)
		return collet_bootstrap_listen(client->state, NULL);
	if (!is_unix && getsockname(client->connection.socket, &local.any, &local.bytes) < 0)
		return collet_fail(COLLET_ERR_SYSTEM, "getsockname: %s", strerror(errno));
	if (spans_hosts && (is_unix || collet_address_is_loopback(&local))) {
		collet_status status = collet_interface_choose(launch->interface, NULL, &local);
		if (status)
			return status;
	}
	return collet_bootstrap_listen(client->state, &local);
}

static void close_listeners(struct collet_bootstrap *b)
{
	if (b->listen_tcp >= 0)
		close(b->listen_tcp);
	if (b->listen_unix >= 0)
		close(b->listen_unix);
	b->listen_tcp = b->listen_unix = -1;
}

/* Sends the peer info, followed by this rank's CPU binding. */
static collet_status send_peer_info(struct client *client)
{
	const struct collet_bootstrap_state *state = client->state;
	uint8_t data[sizeof(*state->peer_info) + COLLET_BINDING_BYTES];
	memcpy(data, state->peer_info, sizeof(*state->peer_info));
	const uint32_t binding_bytes = collet_binding_read(data + sizeof(*state->peer_info));
	const struct collet_frame frame = {
		.kind = COLLET_FRAME_PEER_INFO,
		.from = state->launch->rank,
		.bytes = sizeof(*state->peer_info) + binding_bytes,
	};
	return collet_framed_socket_send(&client->connection, &frame, data);
}

/* Sends this host's topology, or an empty frame if hwloc cannot read it: that is no reason to fail. */
static collet_status send_topology(struct client *client)
{
	const struct collet_bootstrap_state *state = client->state;
	struct collet_host_topology host_topology;
	if (collet_host_topology_read(&host_topology, NULL) != COLLET_OK)
		collet_log(
			state->log, COLLET_LOG_INFO, "%s; ranks of this host keep their order", collet_last_error());
	const struct collet_frame frame = {
		.kind = COLLET_FRAME_TOPOLOGY, .from = state->launch->rank,
		.bytes = host_topology.cpu_count * (uint32_t)sizeof(*host_topology.cpus),
	};
	const collet_status status = collet_framed_socket_send(&client->connection, &frame, host_topology.cpus);
	collet_host_topology_deinit(&host_topology);
	return status;
}

/* Sends the peer info and receives the peer table. Returns COLLET_ERR_TRANSPORT if the connection broke before. */
static collet_status exchange_peer_infos(struct client *client)
{
	struct collet_bootstrap_state *state = client->state;
	struct collet_framed_socket *connection = &client->connection;
	collet_status status = send_peer_info(client);
	while (!status) {
		status = collet_framed_socket_flush(connection);
		if (status && status != COLLET_PENDING)
			return status;
		const bool writing = status == COLLET_PENDING;
		status = collet_framed_socket_read(connection);
		if (status == COLLET_OK && connection->frame.kind == COLLET_FRAME_PEER_TABLE)
			return collet_peer_table_unpack(
				&connection->frame, connection->in, state->launch, state->bootstrap);
		if (status == COLLET_OK && connection->frame.kind == COLLET_FRAME_MISSING_RANKS) {
			snprintf(client->missing_report, sizeof(client->missing_report), "%.*s",
				(int)connection->frame.bytes, (const char *)connection->in);
			collet_log(state->log, COLLET_LOG_INFO, "%s", client->missing_report);
			continue;
		}
		if (status == COLLET_OK && connection->frame.kind == COLLET_FRAME_GET_TOPOLOGY) {
			status = send_topology(client);
			continue;
		}
		if (status == COLLET_OK)
			return collet_fail(COLLET_ERR_TRANSPORT, "rank 0 sent something unexpected");
		if (status != COLLET_PENDING)
			return status;
		if (collet_deadline_passed(state->deadline))
			return collet_fail(COLLET_ERR_RENDEZVOUS, "%s; this rank %u is connected",
				client->missing_report[0] ? client->missing_report
							  : "not all ranks have connected to rank 0",
				state->launch->rank);
		status = wait_for(connection->socket, writing, state->deadline);
	}
	return status;
}

/* Runs the bootstrap with the listener at this address. COLLET_OK: done. COLLET_ERR_TRANSPORT: try again. Others are
 * final. */
static collet_status join_at(struct client *client, const struct collet_address *address)
{
	struct collet_bootstrap_state *state = client->state;
	int socket;
	client->handshake.refusal = COLLET_REFUSAL_NONE;
	collet_status status = collet_socket_dial(address, &socket);
	if (status)
		return COLLET_ERR_TRANSPORT;
	collet_framed_socket_init(&client->connection, socket, COLLET_MAX_PEER_TABLE_BYTES);
	status = collet_bootstrap_check_socket(state->launch, socket);
	if (!status)
		status = run_handshake(client, socket);
	if (!status)
		status = open_listeners(client, address);
	if (!status)
		status = exchange_peer_infos(client);
	if (!status) {
		state->bootstrap->control_sockets[0] = collet_framed_socket_release(&client->connection);
		return COLLET_OK;
	}
	collet_framed_socket_deinit(&client->connection);
	close_listeners(state->bootstrap);
	return status;
}

/* True if the refusal may come from another job, which listens at the same shared address. Or from this run's rank 0 at
 * the address of an earlier run, whose secret the store still had. */
static bool is_other_job(const struct client *client)
{
	const struct collet_store *store = &client->state->store;
	const enum collet_refusal refusal = client->handshake.refusal;
	return (store->kind->is_shared && refusal == COLLET_REFUSAL_JOB) ||
	       (store->hands_secret_on && refusal == COLLET_REFUSAL_SECRET);
}

static collet_status try_address(struct client *client, const struct collet_address *address)
{
	char text[COLLET_ADDRESS_TEXT_BYTES];
	collet_status status = join_at(client, address);
	if (status != COLLET_ERR_TRANSPORT && !(status && is_other_job(client)))
		return status;
	/* A refusal says more than a failed connection: keep it. */
	const bool refusal = client->handshake.refusal != COLLET_REFUSAL_NONE;
	if (refusal || !client->is_last_refusal)
		snprintf(client->last_failure, sizeof(client->last_failure), "%.128s: %.800s",
			collet_address_print(address, text), collet_last_error());
	client->is_last_refusal |= refusal;
	collet_log(client->state->log, COLLET_LOG_DEBUG, "rank 0 at %s: %s", text, collet_last_error());
	return COLLET_ERR_TRANSPORT;
}

static collet_status try_addresses(struct client *client, const struct collet_root_addresses *addresses)
{
	const struct collet_bootstrap_state *state = client->state;
	collet_status status = COLLET_ERR_TRANSPORT;
	if (addresses->has_unix && (addresses->host_id == 0 || addresses->host_id == state->peer_info->host_id)) {
		struct collet_address address;
		collet_address_unix(&address, addresses->unix_name);
		return try_address(client, &address);
	}
	if (!state->launch->secret_bytes)
		return collet_fail_no_secret("rank 0 runs on another host");
	for (uint32_t i = 0; i < addresses->tcp_count && status == COLLET_ERR_TRANSPORT; i++) {
		if (i && collet_deadline_passed(state->deadline))
			break;
		status = try_address(client, &addresses->tcp[i]);
	}
	return status;
}

collet_status collet_bootstrap_run_client(struct collet_bootstrap_state *state)
{
	struct client client = { .state = state };
	const struct collet_launch *launch = state->launch;
	collet_framed_socket_init(&client.connection, -1, 0);
	for (int backoff_ms = MIN_BACKOFF_MS;;
		backoff_ms = backoff_ms < MAX_BACKOFF_MS / 2 ? backoff_ms * 2 : MAX_BACKOFF_MS) {
		struct collet_root_addresses addresses;
		collet_status status = state->store.kind->find(&state->store, &addresses);
		if (status == COLLET_OK)
			status = try_addresses(&client, &addresses);
		else if (status == COLLET_PENDING)
			snprintf(
				client.last_failure, sizeof(client.last_failure), "rank 0 has not written its address");
		else if (status == COLLET_ERR_TRANSPORT)
			snprintf(client.last_failure, sizeof(client.last_failure), "%.900s", collet_last_error());
		if (status == COLLET_OK || (status != COLLET_PENDING && status != COLLET_ERR_TRANSPORT))
			return status;
		if (collet_deadline_passed(state->deadline))
			return collet_fail(COLLET_ERR_RENDEZVOUS,
				"rank %u waited %.3g s for rank 0 at %s, job '%s' (%s): %s", launch->rank,
				(double)launch->rendezvous_timeout_ns / 1e9, collet_store_describe(launch), launch->job,
				launch->launcher,
				client.missing_report[0] ? client.missing_report : client.last_failure);
		poll(NULL, 0, collet_deadline_ms(state->deadline, backoff_ms));
	}
}
