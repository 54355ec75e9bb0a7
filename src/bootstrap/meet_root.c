/* Rank 0: listens, takes everybody's card, then sends everybody the table. Strangers, late handshakes and ranks that
 * come and go cost a slot for a while and nothing else; only the deadline ends the wait. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bootstrap/meet.h"
#include "bootstrap/sites.h"
#include "core/status.h"

enum {
	GUESTS_MOST = 4096,              /* strangers at once; the oldest gives way */
	NEWS_EVERY_MS = 250,
	FAREWELL_MS = 1000               /* for sending why it failed */
};

enum stage { SHAKING, HANDING_IN, WAITING };

/* A connection: a stranger at first, a member when its card is there. */
struct guest {
	struct guest *next, *previous;   /* all of them, newest first */
	enum stage stage;
	int64_t deadline;
	struct collet_handshake handshake;
	struct collet_link link;
	struct collet_endpoint from;
	uint32_t rank;
	bool wants_write;
};

struct host {
	struct collet_meeting *meeting;
	int epoll_fd;
	struct collet_doors doors;
	struct guest *newest, *oldest;
	uint32_t strangers;              /* guests that are no members yet */
	struct guest **members;          /* by rank */
	uint32_t members_count;          /* this rank included */
	struct collet_sites sites;
	int64_t news_at;
	uint32_t news_count;             /* members_count when news were sent last */
	char turned_away[COLLET_ERROR_BYTES / 2];  /* the last one, and why */
};

/* ---- Guests ---- */

static void drop(struct host *host, struct guest *guest)
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

static void turn_away(struct host *host, struct guest *guest)
{
	char text[COLLET_ENDPOINT_TEXT];
	uint32_t uid;
	if (collet_socket_peer_uid(guest->link.socket, &uid))
		snprintf(text, sizeof(text), "a process of user %u on this host", uid);
	else
		collet_endpoint_print(&guest->from, text);
	snprintf(host->turned_away, sizeof(host->turned_away), "%.128s: %.360s", text, collet_last_error());
	collet_log(host->meeting->log, COLLET_LOG_INFO, "rendezvous: turned away %s", host->turned_away);
	drop(host, guest);
}

static void watch(struct host *host, struct guest *guest, bool write)
{
	struct epoll_event event = { .events = EPOLLIN | (write ? EPOLLOUT : 0u), .data.ptr = guest };
	if (write == guest->wants_write)
		return;
	guest->wants_write = write;
	epoll_ctl(host->epoll_fd, EPOLL_CTL_MOD, guest->link.socket, &event);
}

static void welcome(struct host *host, int socket, const struct collet_endpoint *from)
{
	const struct collet_launch *launch = host->meeting->launch;
	struct guest *guest = calloc(1, sizeof(*guest));
	if (!guest) {
		close(socket);
		return;
	}
	if (host->strangers >= GUESTS_MOST)
		for (struct guest *old = host->oldest; old; old = old->previous)
			if (old->stage != WAITING) {
				drop(host, old);
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
static void refuse(struct host *host, struct guest *guest, collet_status status)
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

static bool is_alive(const struct host *host, const struct guest *member)
{
	char byte;
	ssize_t got = recv(member->link.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (got > 0)
		return collet_sites_asked(&host->sites, member->rank);
	return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/* Its place in the list of hosts; the second of a host to come is asked how it is built. */
static void note_host(struct host *host, struct guest *member, const uint8_t *binding, uint32_t binding_bytes)
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
static void take_machine(struct host *host, struct guest *member)
{
	const struct collet_link *link = &member->link;
	if (link->frame.kind == COLLET_FRAME_MACHINE &&
	    collet_sites_answer(&host->sites, member->rank, link->in, link->frame.bytes))
		return;
	collet_fail(COLLET_ERR_TRANSPORT, "rank %u said something unexpected", member->rank);
	turn_away(host, member);
}

static void take_card(struct host *host, struct guest *guest)
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
	struct guest *other = host->members[rank];
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
		drop(host, other);
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

static void serve(struct host *host, struct guest *guest)
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
static int64_t expire(struct host *host)
{
	for (struct guest *guest = host->oldest, *newer; guest; guest = newer) {
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

/* ---- Who is missing ---- */

/* "ranks 3, 5-7 and 12 of 16 have not come to STORE, job 'x'". */
static void describe_missing(const struct host *host, char *text, size_t bytes)
{
	const struct collet_launch *launch = host->meeting->launch;
	const uint32_t missing = launch->size - host->members_count;
	size_t used = (size_t)snprintf(text, bytes, "rank%s ", missing == 1 ? "" : "s");
	uint32_t told = 0;
	for (uint32_t r = 1; r < launch->size; r++) {
		if (host->members[r])
			continue;
		uint32_t last = r;
		while (last + 1 < launch->size && !host->members[last + 1])
			last++;
		/* the rest of the sentence matters more than the last of a thousand ranks */
		if (used + 64 > bytes / 2) {
			used += (size_t)snprintf(text + used, bytes - used, ", ... (%u in all)", missing);
			break;
		}
		used += (size_t)snprintf(
			text + used, bytes - used, last > r ? "%s%u-%u" : "%s%u", told ? ", " : "", r, last);
		told += last - r + 1;
		r = last;
	}
	snprintf(text + used, bytes - used, " of %u ha%s not come to %s, job '%s'%s%s", launch->size,
		missing == 1 ? "s" : "ve", collet_store_describe(launch), launch->job,
		host->turned_away[0] ? "; turned away: " : "", host->turned_away);
}

/* All are there, but one that was asked about its host. */
static void describe_silent(const struct host *host, char *text, size_t bytes)
{
	uint32_t rank = 1;
	while (rank + 1 < host->meeting->launch->size && !collet_sites_asked(&host->sites, rank))
		rank++;
	snprintf(text, bytes,
		"rank %u has not said how its host %s is built, which hwloc reads from /sys; is it stopped?", rank,
		host->meeting->bootstrap->cards[rank].host);
}

static void tell_news(struct host *host)
{
	char sentence[COLLET_ERROR_BYTES];
	if (host->news_count == host->members_count || !collet_deadline_passed(host->news_at))
		return;
	describe_missing(host, sentence, sizeof(sentence));
	collet_log(host->meeting->log, COLLET_LOG_INFO, "rendezvous: %s", sentence);
	const struct collet_frame frame = { .kind = COLLET_FRAME_NEWS, .bytes = (uint32_t)strlen(sentence) };
	for (uint32_t r = 1; r < host->meeting->launch->size; r++)
		if (host->members[r] && collet_link_send(&host->members[r]->link, &frame, sentence) != COLLET_OK)
			drop(host, host->members[r]);
	host->news_count = host->members_count;
	host->news_at = collet_deadline_after((int64_t)NEWS_EVERY_MS * 1000000);
}

/* ---- The doors ---- */

static collet_status watch_doors(struct host *host)
{
	for (uint32_t i = 0; i < COLLET_DOORS; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = &host->doors.sockets[i] };
		if (host->doors.sockets[i] >= 0 &&
			epoll_ctl(host->epoll_fd, EPOLL_CTL_ADD, host->doors.sockets[i], &event) < 0)
			return collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	}
	return COLLET_OK;
}

static int *door_of(struct host *host, void *source)
{
	for (uint32_t i = 0; i < COLLET_DOORS; i++)
		if (source == &host->doors.sockets[i])
			return &host->doors.sockets[i];
	return NULL;
}

static void accept_all(struct host *host, int listener)
{
	struct collet_endpoint from;
	for (int i = 0; i < 64; i++) {  /* then look at those inside again */
		int socket = collet_socket_accept(listener, &from);
		if (socket >= 0) {
			welcome(host, socket, &from);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			poll(NULL, 0, 10);  /* no descriptor is free; strangers will time out */
		return;
	}
}

/* ---- The two halves ---- */

/* This rank is a member from the start. */
static collet_status come_first(struct host *host)
{
	uint8_t binding[COLLET_BINDING_BYTES];
	const uint32_t bytes = collet_binding_read(binding);
	bool ask;
	return collet_sites_arrive(&host->sites, 0, host->meeting->card->host_id, binding, bytes, &ask);
}

static collet_status gather(struct host *host)
{
	struct collet_meeting *meeting = host->meeting;
	host->news_at = collet_deadline_after((int64_t)NEWS_EVERY_MS * 1000000);
	while (host->members_count < meeting->launch->size || host->sites.unanswered) {
		struct epoll_event event;
		int64_t wake = expire(host);
		if (wake > meeting->deadline)
			wake = meeting->deadline;
		if (host->news_count != host->members_count && wake > host->news_at)
			wake = host->news_at;
		/* One event a time: serving one guest may drop another whose event would still be in the array. */
		int count = epoll_wait(host->epoll_fd, &event, 1, collet_deadline_ms(wake, 1000));
		if (count < 0 && errno != EINTR)
			return collet_fail(COLLET_ERR_SYSTEM, "epoll_wait: %s", strerror(errno));
		if (count > 0) {
			int *door = door_of(host, event.data.ptr);
			if (door)
				accept_all(host, *door);
			else
				serve(host, event.data.ptr);
		}
		tell_news(host);
		if (collet_deadline_passed(meeting->deadline) &&
		    (host->members_count < meeting->launch->size || host->sites.unanswered)) {
			char sentence[COLLET_ERROR_BYTES];
			if (host->members_count < meeting->launch->size)
				describe_missing(host, sentence, sizeof(sentence));
			else
				describe_silent(host, sentence, sizeof(sentence));
			return collet_fail(COLLET_ERR_RENDEZVOUS, "after %.3g s %.900s",
				(double)meeting->launch->rendezvous_timeout_ns / 1e9, sentence);
		}
	}
	return COLLET_OK;
}

/* Gives everybody the same bytes; waits while some of them do not leave, until the deadline. A member that breaks now
 * is left to the control plane, which tells the others. */
static void scatter(struct host *host, const struct collet_frame *frame, const void *data, int64_t deadline)
{
	const uint32_t size = host->meeting->launch->size;
	for (uint32_t r = 1; r < size; r++)
		if (host->members[r])
			(void)collet_link_send(&host->members[r]->link, frame, data);
	for (uint32_t r = 1; r < size; r++) {
		while (host->members[r] && collet_link_flush(&host->members[r]->link) == COLLET_PENDING) {
			struct pollfd item = { .fd = host->members[r]->link.socket, .events = POLLOUT };
			if (collet_deadline_passed(deadline))
				return;
			poll(&item, 1, collet_deadline_ms(deadline, 1000));
		}
	}
}

static collet_status finish(struct host *host, collet_status status)
{
	struct collet_meeting *meeting = host->meeting;
	struct collet_bootstrap *b = meeting->bootstrap;
	const uint32_t size = meeting->launch->size;
	uint8_t nonce[32];
	struct collet_frame frame;
	void *data;
	char sentence[COLLET_ERROR_BYTES];
	if (!status)
		status = collet_random(nonce, sizeof(nonce));
	if (!status)
		status = collet_session_key(b->session_key, meeting->launch, nonce);
	if (!status)
		collet_sites_place(&host->sites, b->cards);
	if (!status && meeting->make_blob)
		status = meeting->make_blob(meeting->context, b->cards, size, &b->blob, &b->blob_bytes);
	collet_status packed = status ? COLLET_ERR_MEMORY :
		collet_table_pack(&frame, &data, COLLET_OK, NULL, b, size, nonce);
	if (!status && packed)
		status = packed;
	snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
	if (packed)
		packed = collet_table_pack(&frame, &data, status, sentence, b, 0, NULL);
	if (!packed) {
		scatter(host, &frame, data,
			status ? collet_deadline_after((int64_t)FAREWELL_MS * 1000000) : meeting->deadline);
		free(data);
	}
	collet_wipe(nonce, sizeof(nonce));
	return status ? collet_fail_again(status, sentence) : COLLET_OK;
}

static void take_over(struct host *host)
{
	struct collet_bootstrap *b = host->meeting->bootstrap;
	for (uint32_t r = 1; r < b->star_count; r++) {
		struct collet_link *link = &host->members[r]->link;
		if (collet_link_has_queued(link))
			/* the deadline passed before it had its table: it is lost, and closed with the guests */
			continue;
		epoll_ctl(host->epoll_fd, EPOLL_CTL_DEL, link->socket, NULL);
		b->star[r] = collet_link_release(link);
	}
}

static collet_status run(struct host *host)
{
	struct collet_meeting *meeting = host->meeting;
	collet_status status = collet_doors_open(&host->doors, meeting);
	if (!status)
		status = collet_meeting_listen(meeting, host->doors.tcp_at.bytes ? &host->doors.tcp_at : NULL);
	if (!status)
		status = watch_doors(host);
	if (!status) {
		meeting->bootstrap->cards[0] = *meeting->card;
		status = come_first(host);
	}
	if (!status)
		status = gather(host);
	/* Before anybody hears that all is well: who has heard may start the next rendezvous of this name at once, and
	 * must not knock at the door of this one. */
	collet_doors_close(&host->doors);
	meeting->store.kind->withdraw(&meeting->store);
	status = finish(host, status);
	if (!status)
		take_over(host);
	return status;
}

collet_status collet_meet_as_root(struct collet_meeting *meeting)
{
	const uint32_t size = meeting->launch->size;
	struct host host = { .meeting = meeting, .doors.sockets = { -1, -1, -1 }, .members_count = 1, .news_count = 1 };
	meeting->bootstrap->cards = calloc(size, sizeof(*meeting->bootstrap->cards));
	host.members = calloc(size, sizeof(*host.members));
	host.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	collet_status status;
	if (!meeting->bootstrap->cards || !host.members)
		status = collet_fail(COLLET_ERR_MEMORY, "no memory for %u ranks", size);
	else if (host.epoll_fd < 0)
		status = collet_fail(COLLET_ERR_SYSTEM, "epoll_create: %s", strerror(errno));
	else
		status = collet_sites_init(&host.sites, size);
	if (!status)
		status = run(&host);
	while (host.newest)
		drop(&host, host.newest);
	collet_sites_deinit(&host.sites);
	if (host.epoll_fd >= 0)
		close(host.epoll_fd);
	free(host.members);
	return status;
}
