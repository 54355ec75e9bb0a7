/* Where rank 0 listens while the others come. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/interface.h"
#include "bootstrap/meet/internal.h"
#include "core/status.h"

void collet_doors_close(struct collet_doors *doors)
{
	for (uint32_t i = 0; i < COLLET_DOORS; i++) {
		if (doors->sockets[i] >= 0)
			close(doors->sockets[i]);
		doors->sockets[i] = -1;
	}
}

/* Where the name of rank 0's host is loopback on that host itself, its own ranks come there, and others elsewhere. */
static collet_status listen_wider(struct collet_doors *doors, struct collet_meeting *meeting)
{
	const struct collet_launch *launch = meeting->launch;
	struct collet_endpoint outer;
	if (!collet_store_spans_hosts(launch) || !collet_endpoint_is_loopback(&doors->tcp_at))
		return COLLET_OK;
	collet_status status = collet_interface_choose(launch->interface, NULL, &outer);
	if (status || collet_endpoint_is_loopback(&outer))
		return status;
	collet_endpoint_set_port(&outer, collet_endpoint_port(&doors->tcp_at));
	status = collet_socket_listen(&outer, 0, 0, &doors->sockets[2]);
	if (!status)
		doors->tcp_at = outer;
	return status;
}

static collet_status listen_fixed(struct collet_doors *doors, struct collet_meeting *meeting,
	const struct collet_place *place)
{
	const struct collet_launch *launch = meeting->launch;
	collet_status status = COLLET_ERR_CONFIG;
	if (place->has_local) {
		struct collet_endpoint endpoint;
		collet_endpoint_unix(&endpoint, place->local_name);
		return collet_socket_listen(&endpoint, 0, 0, &doors->sockets[0]);
	}
	for (uint32_t i = 0; i < place->count; i++) {
		struct collet_endpoint endpoint = place->at[i];
		const uint16_t port = collet_endpoint_port(&endpoint);
		status = COLLET_ERR_UNSUPPORTED;
		if (collet_interface_allows(launch->interface, &endpoint))
			status = collet_socket_listen(&endpoint, 0, 0, &doors->sockets[1]);
		if (status == COLLET_ERR_UNSUPPORTED) {
			/* The name that others use is not an address of this host (translated on the way), or one that
			 * the user does not want: the same port where he does. */
			status = collet_interface_choose(launch->interface, &place->at[i], &endpoint);
			if (status)
				continue;
			collet_endpoint_set_port(&endpoint, port);
			status = collet_socket_listen(&endpoint, 0, 0, &doors->sockets[1]);
		}
		if (status == COLLET_OK) {
			doors->tcp_at = endpoint;
			status = listen_wider(doors, meeting);
			if (status != COLLET_ERR_BUSY)
				return status;
			/* free here and taken there: another port, if there are several to try */
			collet_doors_close(doors);
		}
	}
	return status;
}

static collet_status listen_announced(struct collet_doors *doors, struct collet_meeting *meeting)
{
	struct collet_place place = { .has_local = true, .host_id = meeting->card->host_id };
	uint8_t random[16];
	char hex[33];
	collet_status status = collet_random(random, sizeof(random));
	if (status)
		return status;
	collet_hex(hex, random, sizeof(random));
	snprintf(place.local_name, sizeof(place.local_name), "collet-root-%s", hex);
	struct collet_endpoint endpoint;
	collet_endpoint_unix(&endpoint, place.local_name);
	status = collet_socket_listen(&endpoint, 0, 0, &doors->sockets[0]);
	if (!status && meeting->launch->secret_bytes) {
		status = collet_interface_choose(meeting->launch->interface, NULL, &place.at[0]);
		if (!status)
			status = collet_socket_listen(&place.at[0], meeting->launch->port_first,
				meeting->launch->port_last, &doors->sockets[1]);
		place.count = 1;
		doors->tcp_at = place.at[0];
	}
	return status ? status : meeting->store.kind->announce(&meeting->store, &place);
}

/* Again while the address is taken: by the same job's last run, as a rule. */
collet_status collet_doors_open(struct collet_doors *doors, struct collet_meeting *meeting)
{
	const struct collet_store_kind *kind = meeting->store.kind;
	for (;;) {
		struct collet_place place;
		collet_status status =
			kind->fixed ? kind->find(&meeting->store, &place) : listen_announced(doors, meeting);
		if (kind->fixed && !status)
			status = listen_fixed(doors, meeting, &place);
		if (status != COLLET_ERR_BUSY && status != COLLET_ERR_TRANSPORT)
			return status;
		collet_doors_close(doors);
		if (collet_deadline_passed(meeting->deadline))
			return collet_fail(COLLET_ERR_RENDEZVOUS, "rank 0: %s%s", collet_last_error(),
				status == COLLET_ERR_BUSY ? "; is another job of this name or on this port running "
							    "(COLLET_JOB, COLLET_PORT)?"
							  : "");
		poll(NULL, 0, collet_deadline_ms(meeting->deadline, 20));
	}
}
