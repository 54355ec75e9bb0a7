/* The star: every rank has one connection, to rank 0, which relays. It carries small messages, and the news that a rank
 * is gone, which the closing of its connection tells rank 0 first. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "control/internal.h"
#include "core/status.h"

enum { FRAMES_AT_ONCE = 64 };
#define FAREWELL_NS ((int64_t)200000000)

static void fail_ray(struct collet_control *control, struct ray *ray, const char *reason)
{
	if (ray->failed || control->gone[ray->rank])
		return;
	ray->failed = true;
	control->failed_count++;
	snprintf(ray->reason, sizeof(ray->reason), "%s", reason);
}

static void send_on(struct collet_control *control, struct ray *ray, const struct collet_frame *frame, const void *data)
{
	if (ray->failed || ray->mute || ray->link.socket < 0)
		return;
	collet_status status = collet_link_send(&ray->link, frame, data);
	if (status == COLLET_ERR_TRANSPORT) {
		/* It has closed its end, perhaps after a good-bye that waits on the way in: the end of that, which
		 * wakes control_star_serve(), decides whether it has left or is lost. */
		ray->mute = true;
		return;
	}
	if (status) {
		fail_ray(control, ray, collet_last_error());
		return;
	}
	if (collet_link_has_queued(&ray->link) && !ray->wants_write) {
		ray->wants_write = true;
		control_modify(control, ray->link.socket, EPOLLIN | EPOLLOUT, &ray->source);
	}
}

/* Rank 0: to whom it is for, but for who sent it and this rank. */
static void relay(struct collet_control *control, const struct collet_frame *frame, const void *data)
{
	if (frame->to != COLLET_CONTROL_EVERYBODY) {
		send_on(control, &control->rays[frame->to], frame, data);
		return;
	}
	for (uint32_t r = 1; r < control->rays_count; r++)
		if (r != frame->from)
			send_on(control, &control->rays[r], frame, data);
}

void control_star_send(struct collet_control *control, const struct collet_frame *frame, const void *data)
{
	if (control->config.rank == 0)
		relay(control, frame, data);
	else
		send_on(control, &control->rays[0], frame, data);
}

static void tell_gone(struct collet_control *control, uint32_t rank, bool left, const char *sentence)
{
	const struct collet_control_config *config = &control->config;
	if (control->gone[rank])
		return;
	control->gone[rank] = true;
	collet_log(config->log, left ? COLLET_LOG_DEBUG : COLLET_LOG_INFO, "%s", sentence);
	control_door_forsake(control, rank, sentence);
	config->events->peer_gone(config->context, rank, left, sentence);
}

static void deliver(struct collet_control *control, const struct collet_frame *frame, const void *data)
{
	const struct collet_control_config *config = &control->config;
	config->events->message(config->context, frame->from, frame->type, data, frame->bytes);
}

void control_star_mourn(struct collet_control *control, uint32_t rank)
{
	struct ray *ray = &control->rays[control->config.rank == 0 ? rank : 0];
	control_star_serve(control, ray);  /* its last words */
	fail_ray(control, ray, "its process has ended");
}

/* Of its own host's ranks, but not of rank 0, which is here. */
static bool may_tell(const struct collet_control *control, uint32_t rank, uint32_t died)
{
	const struct collet_card *cards = control->config.bootstrap->cards;
	return died != 0 && died < control->config.size && cards[died].host_id == cards[rank].host_id;
}

/* Rank 0: a frame from a rank, believed only in what that rank may say. */
static void hear_rank(struct collet_control *control, struct ray *ray)
{
	struct collet_frame frame = ray->link.frame;
	frame.from = ray->rank;
	if (frame.kind == COLLET_FRAME_BYE) {
		ray->left = true;
		fail_ray(control, ray, "it has closed its communicators");
	} else if (frame.kind == COLLET_FRAME_MESSAGE && (frame.to < control->config.size ||
	           frame.to == COLLET_CONTROL_EVERYBODY)) {
		if (frame.to != 0)
			relay(control, &frame, ray->link.in);
		if (frame.to == 0 || frame.to == COLLET_CONTROL_EVERYBODY)
			deliver(control, &frame, ray->link.in);
	} else if (frame.kind == COLLET_FRAME_DIED && may_tell(control, ray->rank, frame.to)) {
		control_star_mourn(control, frame.to);
	} else {
		fail_ray(control, ray, "it sent something that is no control message");
	}
}

/* Other ranks: a frame from rank 0, its own or relayed. */
static void hear_root(struct collet_control *control, struct ray *ray)
{
	const struct collet_frame *frame = &ray->link.frame;
	const struct collet_control_config *config = &control->config;
	if (frame->kind == COLLET_FRAME_BYE) {
		ray->left = true;
		fail_ray(control, ray, "it has closed its communicators");
	} else if (frame->kind == COLLET_FRAME_MESSAGE && frame->from < config->size && frame->from != config->rank) {
		deliver(control, frame, ray->link.in);
	} else if (frame->kind == COLLET_FRAME_GONE && frame->to < config->size && frame->to != config->rank) {
		char sentence[COLLET_CONTROL_MESSAGE_BYTES + 1];
		memcpy(sentence, ray->link.in, frame->bytes);
		sentence[frame->bytes] = 0;
		tell_gone(control, frame->to, frame->type == 1, sentence);
	} else {
		fail_ray(control, ray, "it sent something that is no control message");
	}
}

void control_star_serve(struct collet_control *control, struct ray *ray)
{
	if (ray->failed || ray->link.socket < 0)
		return;
	collet_status status = collet_link_flush(&ray->link);
	if (status == COLLET_OK && ray->wants_write) {
		ray->wants_write = false;
		control_modify(control, ray->link.socket, EPOLLIN, &ray->source);
	}
	/* A broken way out may still have its last words on the way in. */
	for (int i = 0; i < FRAMES_AT_ONCE && !ray->failed; i++) {
		collet_status read = collet_link_read(&ray->link);
		if (read == COLLET_PENDING)
			break;
		if (read)
			fail_ray(control, ray, collet_last_error());
		else if (control->config.rank == 0)
			hear_rank(control, ray);
		else
			hear_root(control, ray);
	}
	if (status && status != COLLET_PENDING)
		fail_ray(control, ray, "its control connection broke");
}

static void bury(struct collet_control *control, struct ray *ray)
{
	const struct collet_control_config *config = &control->config;
	const struct collet_card *card = &config->bootstrap->cards[ray->rank];
	char sentence[512];
	ray->failed = false;
	control->failed_count--;
	if (ray->link.socket >= 0)
		control_unregister(control, ray->link.socket);
	collet_link_deinit(&ray->link);
	snprintf(sentence, sizeof(sentence), "rank %u on %s (pid %u) %s: %s", ray->rank, card->host, card->pid,
		ray->left ? "has left" : "is gone", ray->reason);
	tell_gone(control, ray->rank, ray->left, sentence);
	if (config->rank == 0) {
		const struct collet_frame frame = {
			.kind = COLLET_FRAME_GONE,
			.from = 0,
			.to = ray->rank,
			.type = ray->left,
			.bytes = (uint32_t)strlen(sentence),
		};
		for (uint32_t r = 1; r < control->rays_count; r++)
			send_on(control, &control->rays[r], &frame, sentence);
	}
}

void control_star_sweep(struct collet_control *control)
{
	while (control->failed_count)  /* telling of one may find others */
		for (uint32_t i = 0; i < control->rays_count; i++)
			if (control->rays[i].failed)
				bury(control, &control->rays[i]);
}

void control_star_farewell(struct collet_control *control)
{
	const struct collet_frame frame = { .kind = COLLET_FRAME_BYE, .from = control->config.rank };
	const int64_t deadline = collet_deadline_after(FAREWELL_NS);
	char rest[4096];
	for (uint32_t i = 0; i < control->rays_count; i++)
		send_on(control, &control->rays[i], &frame, NULL);
	for (uint32_t i = 0; i < control->rays_count; i++) {
		struct ray *ray = &control->rays[i];
		while (ray->link.socket >= 0 && collet_link_flush(&ray->link) == COLLET_PENDING) {
			struct pollfd item = { .fd = ray->link.socket, .events = POLLOUT };
			if (collet_deadline_passed(deadline))
				break;
			poll(&item, 1, collet_deadline_ms(deadline, 1000));
		}
		/* TCP resets a connection that is closed with something unread, which might overtake the good-bye. */
		for (int reads = 0; ray->link.socket >= 0 && reads < 64; reads++)
			if (recv(ray->link.socket, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
				break;
	}
}
