/* Rank 0: listens, takes everybody's card, then sends everybody the table. Strangers, late handshakes and ranks that
 * come and go cost a slot for a while and nothing else; only the deadline ends the wait. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bootstrap/meet/root.h"

enum { FAREWELL_MS = 1000 };             /* for sending why it failed */

/* ---- The doors ---- */

static collet_status watch_doors(struct collet_meet_host *host)
{
	for (uint32_t i = 0; i < COLLET_DOORS; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = &host->doors.sockets[i] };
		if (host->doors.sockets[i] >= 0 &&
			epoll_ctl(host->epoll_fd, EPOLL_CTL_ADD, host->doors.sockets[i], &event) < 0)
			return collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	}
	return COLLET_OK;
}

static int *door_of(struct collet_meet_host *host, void *source)
{
	for (uint32_t i = 0; i < COLLET_DOORS; i++)
		if (source == &host->doors.sockets[i])
			return &host->doors.sockets[i];
	return NULL;
}

static void accept_all(struct collet_meet_host *host, int listener)
{
	struct collet_endpoint from;
	for (int i = 0; i < 64; i++) {  /* then look at those inside again */
		int socket = collet_socket_accept(listener, &from);
		if (socket >= 0) {
			collet_reception_welcome(host, socket, &from);
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
static collet_status come_first(struct collet_meet_host *host)
{
	uint8_t binding[COLLET_BINDING_BYTES];
	const uint32_t bytes = collet_binding_read(binding);
	bool ask;
	return collet_sites_arrive(&host->sites, 0, host->meeting->card->host_id, binding, bytes, &ask);
}

static collet_status gather(struct collet_meet_host *host)
{
	struct collet_meeting *meeting = host->meeting;
	host->news_at = collet_deadline_after((int64_t)COLLET_NEWS_EVERY_MS * 1000000);
	while (host->members_count < meeting->launch->size || host->sites.unanswered) {
		struct epoll_event event;
		int64_t wake = collet_reception_expire(host);
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
				collet_reception_serve(host, event.data.ptr);
		}
		collet_absent_tell(host);
		if (collet_deadline_passed(meeting->deadline) &&
		    (host->members_count < meeting->launch->size || host->sites.unanswered)) {
			char sentence[COLLET_ERROR_BYTES];
			if (host->members_count < meeting->launch->size)
				collet_absent_describe(host, sentence, sizeof(sentence));
			else
				collet_absent_describe_silent(host, sentence, sizeof(sentence));
			return collet_fail(COLLET_ERR_RENDEZVOUS, "after %.3g s %.900s",
				(double)meeting->launch->rendezvous_timeout_ns / 1e9, sentence);
		}
	}
	return COLLET_OK;
}

/* Gives everybody the same bytes; waits while some of them do not leave, until the deadline. A member that breaks now
 * is left to the control plane, which tells the others. */
static void scatter(struct collet_meet_host *host, const struct collet_frame *frame, const void *data, int64_t deadline)
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

static collet_status finish(struct collet_meet_host *host, collet_status status)
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

static void take_over(struct collet_meet_host *host)
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

static collet_status run(struct collet_meet_host *host)
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
	struct collet_meet_host host = {
		.meeting = meeting, .doors.sockets = { -1, -1, -1 }, .members_count = 1, .news_count = 1 };
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
		collet_reception_drop(&host, host.newest);
	collet_sites_deinit(&host.sites);
	if (host.epoll_fd >= 0)
		close(host.epoll_fd);
	free(host.members);
	return status;
}
