/* Every rank but 0: finds rank 0, again and again until it is there, proves itself, hands in its card, waits for the
 * table. Whatever breaks before the table has come is tried again, so the order in which ranks start does not
 * matter. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/interface.h"
#include "bootstrap/meet/internal.h"
#include "bootstrap/secret.h"
#include "core/status.h"
#include "topology/machine.h"

/* A listener that accepts but says nothing is given up: sooner where the right one may be another. */
#define ATTEMPT_NS ((int64_t)5000000000)
#define ATTEMPT_OF_SEVERAL_NS ((int64_t)1000000000)
enum { PAUSE_FIRST_MS = 2, PAUSE_MOST_MS = 100 };

struct visit {
	struct collet_meeting *meeting;
	struct collet_handshake handshake;
	struct collet_link link;
	char news[COLLET_ERROR_BYTES];      /* rank 0's latest word on who is missing */
	char last[COLLET_ERROR_BYTES];      /* why the last attempt failed */
	bool last_is_refusal;
};

/* COLLET_OK: ready, or a timeout that leaves it to the deadline. */
static collet_status wait_for(int socket, bool write, int64_t deadline)
{
	struct pollfd item = { .fd = socket, .events = write ? POLLOUT : POLLIN };
	if (poll(&item, 1, collet_deadline_ms(deadline, 1000)) < 0 && errno != EINTR)
		return collet_fail(COLLET_ERR_SYSTEM, "poll: %s", strerror(errno));
	return COLLET_OK;
}

static collet_status shake_hands(struct visit *visit, int socket)
{
	const struct collet_launch *launch = visit->meeting->launch;
	int64_t deadline =
		collet_deadline_after(visit->meeting->store.kind->several ? ATTEMPT_OF_SEVERAL_NS : ATTEMPT_NS);
	if (deadline > visit->meeting->deadline)
		deadline = visit->meeting->deadline;
	const struct collet_handshake_config config = {
		.key = launch->secret,
		.key_bytes = launch->secret_bytes,
		.job = launch->job,
		.purpose = COLLET_PURPOSE_STAR,
		.from = launch->rank,
		.to = 0,
		.size = launch->size,
	};
	collet_status status = collet_handshake_dial(&visit->handshake, socket, &config);
	while (!status) {
		status = collet_handshake_step(&visit->handshake);
		if (status != COLLET_PENDING)
			break;
		if (collet_deadline_passed(deadline))
			return collet_fail(COLLET_ERR_TRANSPORT, "it does not answer");
		status = wait_for(socket, collet_handshake_wants_write(&visit->handshake), deadline);
	}
	return status;
}

/* Where the others will find this rank: at the address from which it reaches rank 0, unless that is loopback or a Unix
 * socket and ranks of other hosts may come. */
static collet_status open_listeners(struct visit *visit, const struct collet_endpoint *root)
{
	const struct collet_launch *launch = visit->meeting->launch;
	struct collet_endpoint local = { .bytes = sizeof(local.v6) };
	const bool wide = collet_store_spans_hosts(launch), is_unix = root->any.sa_family == AF_UNIX;
	if (is_unix && !wide)
		return collet_meeting_listen(visit->meeting, NULL);
	if (!is_unix && getsockname(visit->link.socket, &local.any, &local.bytes) < 0)
		return collet_fail(COLLET_ERR_SYSTEM, "getsockname: %s", strerror(errno));
	if (wide && (is_unix || collet_endpoint_is_loopback(&local))) {
		collet_status status = collet_interface_choose(launch->interface, NULL, &local);
		if (status)
			return status;
	}
	return collet_meeting_listen(visit->meeting, &local);
}

static void close_listeners(struct collet_bootstrap *b)
{
	if (b->listen_tcp >= 0)
		close(b->listen_tcp);
	if (b->listen_unix >= 0)
		close(b->listen_unix);
	b->listen_tcp = b->listen_unix = -1;
}

/* The card, and behind it where this rank is bound. */
static collet_status hand_in(struct visit *visit)
{
	const struct collet_meeting *meeting = visit->meeting;
	uint8_t text[sizeof(*meeting->card) + COLLET_BINDING_BYTES];
	memcpy(text, meeting->card, sizeof(*meeting->card));
	const uint32_t binding_bytes = collet_binding_read(text + sizeof(*meeting->card));
	const struct collet_frame frame = {
		.kind = COLLET_FRAME_CARD,
		.from = meeting->launch->rank,
		.bytes = sizeof(*meeting->card) + binding_bytes,
	};
	return collet_link_send(&visit->link, &frame, text);
}

/* Tells how this host is built. One that hwloc cannot read is no reason not to meet. */
static collet_status look_around(struct visit *visit)
{
	const struct collet_meeting *meeting = visit->meeting;
	struct collet_machine machine;
	if (collet_machine_read(&machine, NULL) != COLLET_OK)
		collet_log(
			meeting->log, COLLET_LOG_INFO, "%s; ranks of this host keep their order", collet_last_error());
	const struct collet_frame frame = {
		.kind = COLLET_FRAME_MACHINE, .from = meeting->launch->rank,
		.bytes = machine.cpu_count * (uint32_t)sizeof(*machine.cpus),
	};
	const collet_status status = collet_link_send(&visit->link, &frame, machine.cpus);
	collet_machine_deinit(&machine);
	return status;
}

/* Card out, table in. COLLET_ERR_TRANSPORT: the connection broke before the table. */
static collet_status converse(struct visit *visit)
{
	struct collet_meeting *meeting = visit->meeting;
	struct collet_link *link = &visit->link;
	collet_status status = hand_in(visit);
	while (!status) {
		status = collet_link_flush(link);
		if (status && status != COLLET_PENDING)
			return status;
		const bool writing = status == COLLET_PENDING;
		status = collet_link_read(link);
		if (status == COLLET_OK && link->frame.kind == COLLET_FRAME_TABLE)
			return collet_table_unpack(&link->frame, link->in, meeting->launch, meeting->bootstrap);
		if (status == COLLET_OK && link->frame.kind == COLLET_FRAME_NEWS) {
			snprintf(visit->news, sizeof(visit->news), "%.*s", (int)link->frame.bytes,
				(const char *)link->in);
			collet_log(meeting->log, COLLET_LOG_INFO, "%s", visit->news);
			continue;
		}
		if (status == COLLET_OK && link->frame.kind == COLLET_FRAME_LOOK) {
			status = look_around(visit);
			continue;
		}
		if (status == COLLET_OK)
			return collet_fail(COLLET_ERR_TRANSPORT, "rank 0 sent something unexpected");
		if (status != COLLET_PENDING)
			return status;
		if (collet_deadline_passed(meeting->deadline))
			return collet_fail(COLLET_ERR_RENDEZVOUS, "%s; this rank %u was there",
				visit->news[0] ? visit->news : "not all ranks have come to rank 0",
				meeting->launch->rank);
		status = wait_for(link->socket, writing, meeting->deadline);
	}
	return status;
}

/* COLLET_OK: met. COLLET_ERR_TRANSPORT: try again. Else it is over. */
static collet_status visit_one(struct visit *visit, const struct collet_endpoint *endpoint)
{
	struct collet_meeting *meeting = visit->meeting;
	int socket;
	visit->handshake.refusal = COLLET_REFUSAL_NONE;
	collet_status status = collet_socket_dial(endpoint, &socket);
	if (status)
		return COLLET_ERR_TRANSPORT;
	collet_link_init(&visit->link, socket, COLLET_TABLE_LIMIT);
	status = collet_meeting_admit(meeting->launch, socket);
	if (!status)
		status = shake_hands(visit, socket);
	if (!status)
		status = open_listeners(visit, endpoint);
	if (!status)
		status = converse(visit);
	if (!status) {
		meeting->bootstrap->star[0] = collet_link_release(&visit->link);
		return COLLET_OK;
	}
	collet_link_deinit(&visit->link);
	close_listeners(meeting->bootstrap);
	return status;
}

/* Is this refusal perhaps somebody else's, met at a place where several may listen? */
static bool passes_by(const struct visit *visit)
{
	return visit->meeting->store.kind->several && visit->handshake.refusal == COLLET_REFUSAL_JOB;
}

static collet_status visit_endpoint(struct visit *visit, const struct collet_endpoint *endpoint)
{
	char text[COLLET_ENDPOINT_TEXT];
	collet_status status = visit_one(visit, endpoint);
	if (status != COLLET_ERR_TRANSPORT && !(status && passes_by(visit)))
		return status;
	/* What says more is kept: a refusal rather than a closed door. */
	const bool refusal = visit->handshake.refusal != COLLET_REFUSAL_NONE;
	if (refusal || !visit->last_is_refusal)
		snprintf(visit->last, sizeof(visit->last), "%.128s: %.800s", collet_endpoint_print(endpoint, text),
			collet_last_error());
	visit->last_is_refusal |= refusal;
	collet_log(visit->meeting->log, COLLET_LOG_DEBUG, "rank 0 at %s: %s", text, collet_last_error());
	return COLLET_ERR_TRANSPORT;
}

static collet_status visit_place(struct visit *visit, const struct collet_place *place)
{
	const struct collet_meeting *meeting = visit->meeting;
	collet_status status = COLLET_ERR_TRANSPORT;
	if (place->has_local && (place->host_id == 0 || place->host_id == meeting->card->host_id)) {
		struct collet_endpoint endpoint;
		collet_endpoint_unix(&endpoint, place->local_name);
		return visit_endpoint(visit, &endpoint);
	}
	if (!meeting->launch->secret_bytes)
		return collet_secret_needed("rank 0 runs on another host");
	for (uint32_t i = 0; i < place->count && status == COLLET_ERR_TRANSPORT; i++) {
		if (i && collet_deadline_passed(meeting->deadline))
			break;
		status = visit_endpoint(visit, &place->at[i]);
	}
	return status;
}

collet_status collet_meet_as_guest(struct collet_meeting *meeting)
{
	struct visit visit = { .meeting = meeting };
	const struct collet_launch *launch = meeting->launch;
	collet_link_init(&visit.link, -1, 0);
	for (int pause_ms = PAUSE_FIRST_MS;; pause_ms = pause_ms < PAUSE_MOST_MS / 2 ? pause_ms * 2 : PAUSE_MOST_MS) {
		struct collet_place place;
		collet_status status = meeting->store.kind->find(&meeting->store, &place);
		if (status == COLLET_OK)
			status = visit_place(&visit, &place);
		else if (status == COLLET_PENDING)
			snprintf(visit.last, sizeof(visit.last), "rank 0 has not written its address");
		else if (status == COLLET_ERR_TRANSPORT)
			snprintf(visit.last, sizeof(visit.last), "%.900s", collet_last_error());
		if (status == COLLET_OK || (status != COLLET_PENDING && status != COLLET_ERR_TRANSPORT))
			return status;
		if (collet_deadline_passed(meeting->deadline))
			return collet_fail(COLLET_ERR_RENDEZVOUS,
				"rank %u waited %.3g s for rank 0 at %s, job '%s' (%s): %s", launch->rank,
				(double)launch->rendezvous_timeout_ns / 1e9, collet_store_describe(launch), launch->job,
				launch->launcher, visit.news[0] ? visit.news : visit.last);
		poll(NULL, 0, collet_deadline_ms(meeting->deadline, pause_ms));
	}
}
