/* Implements the hub: every rank has one connection, to rank 0, which relays small messages. When the connection of a
 * rank ends, rank 0 reports to all others that this rank is gone. */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "control/internal.h"
#include "core/silence.h"
#include "core/status.h"

enum { MAX_FRAMES_PER_EVENT = 64 };
#define BYE_TIMEOUT_NS ((int64_t)200000000)
/* Droppable messages are dropped where more than this is queued. */
enum { DROP_BYTES = 64 << 10 };
/* A host that acknowledges nothing for so long counts as lost. Keep-alive says the same of an idle link. */
enum { SILENCE_MS = 25000 };
#define SILENCE_CHECK_NS ((int64_t)1000000000)

static void fail_link(struct collet_control *control, struct control_link *link, const char *reason)
{
	if (link->failed || control->gone[link->rank])
		return;
	link->failed = true;
	control->failed_count++;
	snprintf(link->reason, sizeof(link->reason), "%s", reason);
}

static void await_ack(struct collet_control *control, struct control_link *link)
{
	if (!link->is_tcp)
		return;
	link->awaits_ack = true;
	if (control->silence_check_at == COLLET_NEVER)
		control->silence_check_at = collet_deadline_after(SILENCE_CHECK_NS);
}

static bool is_acknowledged(const struct control_link *link)
{
	int unacknowledged = 0;
	return !collet_framed_socket_has_queued(&link->connection) &&
		ioctl(link->connection.socket, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

int64_t control_hub_timers(struct collet_control *control)
{
	if (!collet_deadline_passed(control->silence_check_at))
		return control->silence_check_at;
	control->silence_check_at = COLLET_NEVER;
	for (uint32_t i = 0; i < control->link_count; i++) {
		struct control_link *link = &control->links[i];
		if (!link->awaits_ack || link->failed || link->connection.socket < 0)
			continue;
		link->awaits_ack = false;
		if (collet_host_is_silent(link->connection.socket, SILENCE_MS))
			fail_link(control, link, "its host does not answer");
		else if (!is_acknowledged(link))
			await_ack(control, link);
	}
	return control->failed_count ? collet_clock_ns() : control->silence_check_at;
}

static void send_on(
	struct collet_control *control, struct control_link *link, const struct collet_frame *frame, const void *data)
{
	if (link->failed || link->is_send_broken || link->connection.socket < 0)
		return;
	if (frame->may_drop && collet_framed_socket_queued_bytes(&link->connection) > DROP_BYTES)
		return;
	collet_status status = collet_framed_socket_send(&link->connection, frame, data);
	if (status == COLLET_ERR_TRANSPORT) {
		/* The peer has closed its end, and may have said bye before. control_hub_serve() reads the remaining
		 * input, and then knows whether the peer left in order. */
		link->is_send_broken = true;
		return;
	}
	if (status) {
		fail_link(control, link, collet_last_error());
		return;
	}
	if (collet_framed_socket_has_queued(&link->connection) && !link->wants_write) {
		link->wants_write = true;
		control_modify(control, link->connection.socket, EPOLLIN | EPOLLOUT, &link->source);
	}
	await_ack(control, link);
}

/* Relays a frame on rank 0 to its receiver, or to all ranks except its sender and rank 0. */
static void relay(struct collet_control *control, const struct collet_frame *frame, const void *data)
{
	if (frame->to != COLLET_CONTROL_ALL_RANKS) {
		send_on(control, &control->links[frame->to], frame, data);
		return;
	}
	for (uint32_t r = 1; r < control->link_count; r++)
		if (r != frame->from)
			send_on(control, &control->links[r], frame, data);
}

void control_hub_send(struct collet_control *control, const struct collet_frame *frame, const void *data)
{
	if (control->config.rank == 0)
		relay(control, frame, data);
	else
		send_on(control, &control->links[0], frame, data);
}

static void report_gone(struct collet_control *control, uint32_t rank, bool orderly, const char *error_text)
{
	const struct collet_control_config *config = &control->config;
	if (control->gone[rank])
		return;
	control->gone[rank] = true;
	collet_log(config->log, orderly ? COLLET_LOG_DEBUG : COLLET_LOG_INFO, "%s", error_text);
	control_pending_cancel(control, rank, error_text);
	config->events->peer_gone(config->context, rank, orderly, error_text);
}

static void deliver(struct collet_control *control, const struct collet_frame *frame, const void *data)
{
	const struct collet_control_config *config = &control->config;
	config->events->message(config->context, frame->from, frame->type, data, frame->bytes);
}

void control_hub_process_died(struct collet_control *control, uint32_t rank)
{
	struct control_link *link = &control->links[control->config.rank == 0 ? rank : 0];
	control_hub_serve(control, link);  /* reads what it sent before it died */
	fail_link(control, link, "its process has ended");
}

/* True if a rank may report this death: of a rank of its own host, but not of rank 0, which is this one. */
static bool may_report(const struct collet_control *control, uint32_t rank, uint32_t dead)
{
	const struct collet_peer_info *infos = control->config.bootstrap->peer_infos;
	return dead != 0 && dead < control->config.size && infos[dead].host_id == infos[rank].host_id;
}

/* Handles a frame on rank 0. Its sender may say only what concerns itself: from is overwritten. */
static void handle_from_rank(struct collet_control *control, struct control_link *link)
{
	struct collet_frame frame = link->connection.frame;
	frame.from = link->rank;
	if (frame.kind == COLLET_FRAME_BYE) {
		link->said_bye = true;
		fail_link(control, link, "it has closed its communicators");
	} else if (frame.kind == COLLET_FRAME_MESSAGE && (frame.to < control->config.size ||
	           frame.to == COLLET_CONTROL_ALL_RANKS)) {
		if (frame.to != 0)
			relay(control, &frame, link->connection.in);
		if (frame.to == 0 || frame.to == COLLET_CONTROL_ALL_RANKS)
			deliver(control, &frame, link->connection.in);
	} else if (frame.kind == COLLET_FRAME_PROCESS_DIED && may_report(control, link->rank, frame.to)) {
		control_hub_process_died(control, frame.to);
	} else {
		fail_link(control, link, "it sent something that is no control message");
	}
}

/* Handles a frame on another rank. It is from rank 0, or relayed by it. */
static void handle_from_root(struct collet_control *control, struct control_link *link)
{
	const struct collet_frame *frame = &link->connection.frame;
	const struct collet_control_config *config = &control->config;
	if (frame->kind == COLLET_FRAME_BYE) {
		link->said_bye = true;
		fail_link(control, link, "it has closed its communicators");
	} else if (frame->kind == COLLET_FRAME_MESSAGE && frame->from < config->size && frame->from != config->rank) {
		deliver(control, frame, link->connection.in);
	} else if (frame->kind == COLLET_FRAME_PEER_GONE && frame->to < config->size && frame->to != config->rank) {
		char error_text[COLLET_CONTROL_MESSAGE_BYTES + 1];
		memcpy(error_text, link->connection.in, frame->bytes);
		error_text[frame->bytes] = 0;
		report_gone(control, frame->to, frame->type == COLLET_GONE_LEFT, error_text);
	} else {
		fail_link(control, link, "it sent something that is no control message");
	}
}

void control_hub_serve(struct collet_control *control, struct control_link *link)
{
	if (link->failed || link->connection.socket < 0)
		return;
	collet_status status = collet_framed_socket_flush(&link->connection);
	if (status == COLLET_OK && link->wants_write) {
		link->wants_write = false;
		control_modify(control, link->connection.socket, EPOLLIN, &link->source);
	}
	/* After a failed send there may still be input, such as a bye. */
	for (int i = 0; i < MAX_FRAMES_PER_EVENT && !link->failed; i++) {
		collet_status read = collet_framed_socket_read(&link->connection);
		if (read == COLLET_PENDING)
			break;
		if (read)
			fail_link(control, link, collet_last_error());
		else if (control->config.rank == 0)
			handle_from_rank(control, link);
		else
			handle_from_root(control, link);
	}
	if (status && status != COLLET_PENDING)
		fail_link(control, link, "its control connection broke");
}

static void close_failed_link(struct collet_control *control, struct control_link *link)
{
	const struct collet_control_config *config = &control->config;
	const struct collet_peer_info *info = &config->bootstrap->peer_infos[link->rank];
	char error_text[512];
	link->failed = false;
	control->failed_count--;
	if (link->connection.socket >= 0)
		control_unregister(control, link->connection.socket);
	collet_framed_socket_deinit(&link->connection);
	snprintf(error_text, sizeof(error_text), "rank %u on %s (pid %u) %s: %s", link->rank, info->host, info->pid,
		link->said_bye ? "has left" : "is gone", link->reason);
	report_gone(control, link->rank, link->said_bye, error_text);
	if (config->rank == 0) {
		const struct collet_frame frame = {
			.kind = COLLET_FRAME_PEER_GONE,
			.from = 0,
			.to = link->rank,
			.type = link->said_bye ? COLLET_GONE_LEFT : COLLET_GONE_DIED,
			.bytes = (uint32_t)strlen(error_text),
		};
		for (uint32_t r = 1; r < control->link_count; r++)
			send_on(control, &control->links[r], &frame, error_text);
	}
}

void control_hub_handle_failures(struct collet_control *control)
{
	while (control->failed_count)  /* reporting one may let others fail */
		for (uint32_t i = 0; i < control->link_count; i++)
			if (control->links[i].failed)
				close_failed_link(control, &control->links[i]);
}

void control_hub_say_bye(struct collet_control *control)
{
	const struct collet_frame frame = { .kind = COLLET_FRAME_BYE, .from = control->config.rank };
	const int64_t deadline = collet_deadline_after(BYE_TIMEOUT_NS);
	char discarded[4096];
	for (uint32_t i = 0; i < control->link_count; i++)
		send_on(control, &control->links[i], &frame, NULL);
	for (uint32_t i = 0; i < control->link_count; i++) {
		struct control_link *link = &control->links[i];
		while (link->connection.socket >= 0 &&
			collet_framed_socket_flush(&link->connection) == COLLET_PENDING) {
			struct pollfd item = { .fd = link->connection.socket, .events = POLLOUT };
			if (collet_deadline_passed(deadline))
				break;
			poll(&item, 1, collet_deadline_ms(deadline, 1000));
		}
		/* TCP resets a connection that is closed with unread input. The reset might overtake the bye. */
		for (int reads = 0; link->connection.socket >= 0 && reads < 64; reads++)
			if (recv(link->connection.socket, discarded, sizeof(discarded), MSG_DONTWAIT) <= 0)
				break;
	}
}
