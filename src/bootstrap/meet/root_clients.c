/* Rank 0's side of each connection of a rendezvous: a stranger shakes hands, hands in its card and is a member then. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bootstrap/meet/root.h"

enum { GUESTS_MOST = 4096 };             /* strangers at once; the oldest gives way */

void collet_reception_drop(struct collet_meet_host *host, struct collet_meet_guest *guest)
{
	if (guest->next)
		guest->next->previous = guest->previous;
	else
		host->oldest = guest->previous;
	if (guest->previous)
		guest->previous->next = guest->next;
	else
		host->newest = guest->next;
	if (guest->stage == WAITING) {
		host->members[guest->rank] = NULL;
		host->members_count--;
		collet_sites_leave(&host->sites, guest->rank);
	} else {
		host->strangers--;
	}
	/* Closing alone would leave it in the set while a forked child has a copy. */
	if (guest->link.socket >= 0)
		epoll_ctl(host->epoll_fd, EPOLL_CTL_DEL, guest->link.socket, NULL);
	collet_link_deinit(&guest->link);
	free(guest);
}

static void turn_away(struct collet_meet_host *host, struct collet_meet_guest *guest)
{
	char text[COLLET_ENDPOINT_TEXT];
	uint32_t uid;
	if (collet_socket_peer_uid(guest->link.socket, &uid))
		snprintf(text, sizeof(text), "a process of user %u on this host", uid);
	else
		collet_endpoint_print(&guest->from, text);
	snprintf(host->turned_away, sizeof(host->turned_away), "%.128s: %.360s", text, collet_last_error());
	collet_log(host->meeting->log, COLLET_LOG_INFO, "rendezvous: turned away %s", host->turned_away);
	collet_reception_drop(host, guest);
}

static void watch(struct collet_meet_host *host, struct collet_meet_guest *guest, bool write)
{
	struct epoll_event event = { .events = EPOLLIN | (write ? EPOLLOUT : 0u), .data.ptr = guest };
	if (write == guest->wants_write)
		return;
	guest->wants_write = write;
	epoll_ctl(host->epoll_fd, EPOLL_CTL_MOD, guest->link.socket, &event);
}

void collet_reception_welcome(struct collet_meet_host *host, int socket, const struct collet_endpoint *from)
{
	const struct collet_launch *launch = host->meeting->launch;
	struct collet_meet_guest *guest = calloc(1, sizeof(*guest));
	if (!guest) {
		close(socket);
		return;
	}
	if (host->strangers >= GUESTS_MOST)
		for (struct collet_meet_guest *old = host->oldest; old; old = old->previous)
			if (old->stage != WAITING) {
				collet_reception_drop(host, old);
				break;
			}
	guest->from = *from;
	guest->deadline = collet_deadline_after(COLLET_HANDSHAKE_NS);
	collet_link_init(&guest->link, socket, sizeof(struct collet_card) + COLLET_BINDING_BYTES);
	guest->next = host->newest;
	if (host->newest)
		host->newest->previous = guest;
	else
		host->oldest = guest;
	host->newest = guest;
	host->strangers++;
	const struct collet_handshake_config config = {
		.key = launch->secret,
		.key_bytes = launch->secret_bytes,
		.job = launch->job,
		.purpose = COLLET_PURPOSE_STAR,
		.to = 0,
		.size = launch->size,
	};
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = guest };
	collet_status status = collet_meeting_admit(launch, socket);
	if (!status)
		status = collet_handshake_accept(&guest->handshake, socket, &config);
	if (!status && epoll_ctl(host->epoll_fd, EPOLL_CTL_ADD, socket, &event) < 0)
		status = collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	if (status)
		turn_away(host, guest);
}

/* Sends one guest the sentence that ends its wait, as well as it can at once. */
static void refuse(struct collet_meet_host *host, struct collet_meet_guest *guest, collet_status status)
{
	struct collet_frame frame;
	void *data;
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
	if (collet_table_pack(&frame, &data, status, sentence, NULL, 0, NULL) == COLLET_OK) {
		(void)collet_link_send(&guest->link, &frame, data);
		free(data);
	}
	collet_fail_again(status, sentence);
	turn_away(host, guest);
}

static bool is_alive(const struct collet_meet_host *host, const struct collet_meet_guest *member)
{
	char byte;
	ssize_t got = recv(member->link.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (got > 0)
		return collet_sites_asked(&host->sites, member->rank);
	return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/* Its place in the list of hosts; the second of a host to come is asked how it is built. */
static void note_host(struct collet_meet_host *host, struct collet_meet_guest *member, const uint8_t *binding,
	uint32_t binding_bytes)
{
	const struct collet_frame frame = { .kind = COLLET_FRAME_LOOK };
	bool ask;
	collet_status status = collet_sites_arrive(&host->sites, member->rank,
		host->meeting->bootstrap->cards[member->rank].host_id, binding, binding_bytes, &ask);
	if (!status && ask) {
		member->link.frame_limit = COLLET_CPUS_MOST * sizeof(struct collet_spot);
		status = collet_link_send(&member->link, &frame, NULL);
	}
	if (status)
		turn_away(host, member);
}

/* The one thing that a member has to say before the table, if it was asked. */
static void take_machine(struct collet_meet_host *host, struct collet_meet_guest *member)
{
	const struct collet_link *link = &member->link;
	if (link->frame.kind == COLLET_FRAME_MACHINE &&
	    collet_sites_answer(&host->sites, member->rank, link->in, link->frame.bytes))
		return;
	collet_fail(COLLET_ERR_TRANSPORT, "rank %u said something unexpected", member->rank);
	turn_away(host, member);
}

static void take_card(struct collet_meet_host *host, struct collet_meet_guest *guest)
{
	struct collet_meeting *meeting = host->meeting;
	struct collet_card card;
	const uint32_t bytes = guest->link.frame.bytes;
	if (guest->link.frame.kind != COLLET_FRAME_CARD || bytes < sizeof(card) ||
		bytes > sizeof(card) + COLLET_BINDING_BYTES) {
		collet_fail(COLLET_ERR_TRANSPORT, "it sent no card");
		turn_away(host, guest);
		return;
	}
	memcpy(&card, guest->link.in, sizeof(card));
	card.host[sizeof(card.host) - 1] = card.unix_name[sizeof(card.unix_name) - 1] = 0;
	card.settings[sizeof(card.settings) - 1] = 0;
	const uint32_t rank = guest->handshake.from;
	if (card.rank != rank || rank == 0) {
		refuse(host, guest,
			collet_fail(COLLET_ERR_CONFIG,
				"a process on %s (pid %u) comes as rank %u, which is here already", card.host, card.pid,
				rank));
		return;
	}
	struct collet_meet_guest *other = host->members[rank];
	if (other && is_alive(host, other)) {
		const struct collet_card *first = &meeting->bootstrap->cards[rank];
		refuse(host, guest,
			collet_fail(COLLET_ERR_CONFIG,
				"two processes come as rank %u: pid %u on %s and pid %u on %s; do two "
				"jobs have one name (COLLET_JOB)?",
				rank, first->pid, first->host, card.pid, card.host));
		return;
	}
	if (other)
		collet_reception_drop(host, other);
	meeting->bootstrap->cards[rank] = card;
	guest->rank = rank;
	guest->stage = WAITING;
	host->members[rank] = guest;
	host->members_count++;
	host->strangers--;
	collet_log(meeting->log, COLLET_LOG_DEBUG, "rank %u has come from %s (%u of %u)", rank, card.host,
		host->members_count, meeting->launch->size);
	note_host(host, guest, (const uint8_t *)guest->link.in + sizeof(card), bytes - (uint32_t)sizeof(card));
}

void collet_reception_serve(struct collet_meet_host *host, struct collet_meet_guest *guest)
{
	collet_status status = COLLET_OK;
	if (guest->stage == SHAKING) {
		status = collet_handshake_step(&guest->handshake);
		if (status == COLLET_PENDING) {
			watch(host, guest, collet_handshake_wants_write(&guest->handshake));
			return;
		}
		if (status) {
			turn_away(host, guest);
			return;
		}
		watch(host, guest, false);
		guest->stage = HANDING_IN;
	}
	if (guest->stage == HANDING_IN) {
		status = collet_link_read(&guest->link);
		if (status == COLLET_OK)
			take_card(host, guest);
		else if (status != COLLET_PENDING)
			turn_away(host, guest);
		return;
	}
	/* A member says nothing more before the table: it is gone, or out of its mind. It may come again. */
	status = collet_link_flush(&guest->link);
	watch(host, guest, status == COLLET_PENDING);
	if (!(status && status != COLLET_PENDING) && collet_sites_asked(&host->sites, guest->rank)) {
		const collet_status heard = collet_link_read(&guest->link);
		if (heard == COLLET_OK)
			take_machine(host, guest);
		if (heard == COLLET_OK || heard == COLLET_PENDING)
			return;
		status = heard;
	}
	if ((status && status != COLLET_PENDING) || !is_alive(host, guest)) {
		collet_fail(COLLET_ERR_TRANSPORT, "rank %u left before all had come", guest->rank);
		turn_away(host, guest);
	}
}

/* Strangers, oldest first; all have the same time, so the first that has some left ends it. */
int64_t collet_reception_expire(struct collet_meet_host *host)
{
	for (struct collet_meet_guest *guest = host->oldest, *newer; guest; guest = newer) {
		newer = guest->previous;
		if (guest->stage == WAITING)
			continue;
		/* With something of its unheard it is we who are late: the next event is heard first. */
		if (!collet_deadline_passed(guest->deadline) || collet_socket_has_input(guest->link.socket))
			return guest->deadline;
		collet_fail(COLLET_ERR_TRANSPORT, "it did not finish the handshake in time");
		turn_away(host, guest);
	}
	return COLLET_NEVER;
}
