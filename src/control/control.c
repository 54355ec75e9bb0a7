/* Runs the control thread. Other threads queue commands for it and wake it by an eventfd. It runs commands, timers and
 * one epoll event in turn, and sleeps until the next timer. */
#include "control/internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bootstrap/address.h"
#include "core/status.h"

/* While an endpoint opens, its watch is called at least this often. */
#define WATCH_INTERVAL_NS ((int64_t)10000000)

bool control_register(struct collet_control *control, int fd, uint32_t events, struct source *source)
{
	struct epoll_event event = { .events = events, .data.ptr = source };
	return epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void control_modify(struct collet_control *control, int fd, uint32_t events, struct source *source)
{
	struct epoll_event event = { .events = events, .data.ptr = source };
	epoll_ctl(control->epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

/* Must precede close(): close() alone leaves a descriptor in the epoll set while a forked child has a copy. */
void control_unregister(struct collet_control *control, int fd)
{
	epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* ---- Any thread ---- */

static void wake(struct collet_control *control)
{
	const uint64_t one = 1;
	ssize_t written = write(control->wake_fd, &one, sizeof(one));
	(void)written;  /* fails only if the counter is full, and then the thread is awake */
}

static void submit_command(struct collet_control *control, struct control_command *command)
{
	command->next = NULL;
	pthread_mutex_lock(&control->mutex);
	const bool first = control->commands == NULL;
	*control->commands_end = command;
	control->commands_end = &command->next;
	pthread_mutex_unlock(&control->mutex);
	if (first)
		wake(control);
}

void collet_control_dial(struct collet_control *control, const struct collet_hello *hello, bool local)
{
	assert(hello->from == control->config.rank && hello->to < control->config.size && hello->to != hello->from);
	struct control_command *command = calloc(1, sizeof(*command));
	if (!command) {
		collet_log(control->config.log, COLLET_LOG_ERROR, "no memory to dial rank %u", hello->to);
		return;
	}
	command->is_dial = true;
	command->is_local = local;
	command->hello = *hello;
	submit_command(control, command);
}

static void submit_message(struct collet_control *control, uint32_t to, uint32_t type, const void *data, size_t bytes,
	bool may_drop)
{
	assert(bytes <= COLLET_CONTROL_MESSAGE_BYTES && (to < control->config.size || to == COLLET_CONTROL_ALL_RANKS));
	struct control_command *command = calloc(1, sizeof(*command) + bytes);
	if (!command) {
		collet_log(control->config.log, COLLET_LOG_ERROR, "no memory for a control message to rank %u", to);
		return;
	}
	command->frame = (struct collet_frame){
		.kind = COLLET_FRAME_MESSAGE,
		.from = control->config.rank,
		.to = to,
		.type = type,
		.bytes = (uint32_t)bytes,
		.may_drop = may_drop,
	};
	if (bytes)
		memcpy(command->data, data, bytes);
	submit_command(control, command);
}

void collet_control_send(struct collet_control *control, uint32_t to, uint32_t type, const void *data, size_t bytes)
{
	submit_message(control, to, type, data, bytes, false);
}

void collet_control_send_droppable(
	struct collet_control *control, uint32_t to, uint32_t type, const void *data, size_t bytes)
{
	submit_message(control, to, type, data, bytes, true);
}

void collet_control_tick(struct collet_control *control, uint32_t interval_ms)
{
	pthread_mutex_lock(&control->mutex);
	const bool changed = control->tick_ms != interval_ms;
	control->tick_ms = interval_ms;
	pthread_mutex_unlock(&control->mutex);
	if (changed)
		wake(control);
}

/* ---- Watches ---- */

bool collet_control_watch(struct collet_control *control, int fd, bool (*ready)(void *context), void *context)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	if (!watch)
		return false;
	watch->source.kind = SOURCE_WATCH;
	watch->ready = ready;
	watch->context = context;
	watch->socket = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	/* Edge triggered, because input that ready() leaves unread must not keep the thread busy. If it cannot be
	 * registered, the timer still calls ready(). */
	if (watch->socket >= 0)
		(void)control_register(control, watch->socket, EPOLLIN | EPOLLET, &watch->source);
	watch->next = control->watches;
	control->watches = watch;
	if (control->watches_at == COLLET_NEVER)
		control->watches_at = collet_deadline_after(WATCH_INTERVAL_NS);
	return true;
}

static void drop_watch(struct collet_control *control, struct watch *watch)
{
	struct watch **link = &control->watches;
	while (*link != watch)
		link = &(*link)->next;
	*link = watch->next;
	if (watch->socket >= 0) {
		control_unregister(control, watch->socket);
		close(watch->socket);
	}
	free(watch);
}

static void serve_watch(struct collet_control *control, struct watch *watch)
{
	if (!watch->ready(watch->context))
		drop_watch(control, watch);
}

static int64_t watch_timers(struct collet_control *control)
{
	if (collet_deadline_passed(control->watches_at)) {
		/* ready() may add watches in front of these; only drop_watch() removes any. */
		for (struct watch *watch = control->watches, *next; watch; watch = next) {
			next = watch->next;
			serve_watch(control, watch);
		}
		control->watches_at = control->watches ? collet_deadline_after(WATCH_INTERVAL_NS) : COLLET_NEVER;
	}
	return control->watches_at;
}

/* ---- The thread ---- */

static void run_commands(struct collet_control *control, struct control_command *commands)
{
	const struct collet_control_config *config = &control->config;
	for (struct control_command *command = commands, *next; command; command = next) {
		next = command->next;
		if (command->is_dial)
			control_pending_dial(control, &command->hello, command->is_local);
		else if (command->frame.to == config->rank)
			config->events->message(config->context, config->rank, command->frame.type, command->data,
				command->frame.bytes);
		else
			control_hub_send(control, &command->frame, command->data);
		free(command);
	}
}

static struct control_command *take_commands(struct collet_control *control, uint32_t *tick_ms, bool *stopping)
{
	pthread_mutex_lock(&control->mutex);
	struct control_command *commands = control->commands;
	control->commands = NULL;
	control->commands_end = &control->commands;
	*tick_ms = control->tick_ms;
	*stopping = control->stopping;
	pthread_mutex_unlock(&control->mutex);
	return commands;
}

static int64_t tick_timer(struct collet_control *control, uint32_t tick_ms)
{
	const struct collet_control_config *config = &control->config;
	if (tick_ms == 0) {
		control->tick_at = COLLET_NEVER;
		return COLLET_NEVER;
	}
	const int64_t interval = (int64_t)tick_ms * 1000000;
	if (collet_deadline_passed(control->tick_at)) {
		config->events->tick(config->context);
		control->tick_at = collet_deadline_after(interval);
	} else if (control->tick_at > collet_deadline_after(interval)) {
		control->tick_at = collet_deadline_after(interval);  /* the interval is new or shorter than before */
	}
	return control->tick_at;
}

static void serve(struct collet_control *control, struct source *source)
{
	uint64_t count;
	switch (source->kind) {
	case SOURCE_WAKE: {
		ssize_t got = read(control->wake_fd, &count, sizeof(count));
		(void)got;  /* only resets the eventfd; its value has no meaning */
		break;
	}
	case SOURCE_LISTENER:
		control_listener_accept(control, (struct listener *)source);
		break;
	case SOURCE_LINK:
		control_hub_serve(control, (struct control_link *)source);
		break;
	case SOURCE_PENDING:
		control_pending_serve(control, (struct pending_connection *)source);
		break;
	case SOURCE_WATCH:
		serve_watch(control, (struct watch *)source);
		break;
	case SOURCE_LIVENESS:
		control_liveness_serve(control, (struct liveness_watch *)source);
		break;
	}
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void *run(void *data)
{
	struct collet_control *control = data;
	for (;;) {
		uint32_t tick_ms;
		bool stopping;
		run_commands(control, take_commands(control, &tick_ms, &stopping));
		int64_t wake_at = control_liveness_timers(control);
		control_hub_handle_failures(control);
		if (stopping)
			break;
		wake_at = earlier(wake_at, tick_timer(control, tick_ms));
		wake_at = earlier(wake_at, control_pending_timers(control));
		wake_at = earlier(wake_at, watch_timers(control));
		wake_at = earlier(wake_at, control_hub_timers(control));
		/* One event at a time: serving one source may free another whose event would still be in the array. */
		struct epoll_event event;
		int timeout = wake_at == COLLET_NEVER ? -1 : collet_deadline_ms(wake_at, 60000);
		if (epoll_wait(control->epoll_fd, &event, 1, timeout) > 0)
			serve(control, event.data.ptr);
	}
	control_hub_say_bye(control);
	return NULL;
}

/* ---- Creation and destruction ---- */

static void free_all(struct collet_control *control)
{
	for (struct control_command *command = control->commands, *next; command; command = next) {
		next = command->next;
		free(command);
	}
	for (uint32_t i = 0; control->links && i < control->link_count; i++)
		collet_framed_socket_deinit(&control->links[i].connection);
	free(control->links);
	free(control->gone);
	control_liveness_stop(control);
	if (control->epoll_fd >= 0)
		close(control->epoll_fd);
	if (control->wake_fd >= 0)
		close(control->wake_fd);
	pthread_mutex_destroy(&control->mutex);
	free(control);
}

static collet_status create_links(struct collet_control *control)
{
	const struct collet_control_config *config = &control->config;
	control->link_count = config->rank == 0 ? config->size : 1;
	control->links = calloc(control->link_count, sizeof(*control->links));
	control->gone = calloc(config->size, sizeof(*control->gone));
	/* Also after a failed allocation: free_all() would close descriptor 0 of a zeroed link. */
	for (uint32_t i = 0; control->links && i < control->link_count; i++) {
		struct control_link *link = &control->links[i];
		link->source.kind = SOURCE_LINK;
		link->rank = config->rank == 0 ? i : 0;
		collet_framed_socket_init(&link->connection, -1, COLLET_CONTROL_MESSAGE_BYTES);
		/* Keeps what must arrive for a rank that does not read: it may be stopped, and is not dead. */
		link->connection.queue_limit = SIZE_MAX;
	}
	if (!control->links || !control->gone)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for %u control connections", control->link_count);
	return COLLET_OK;
}

static collet_status register_all(struct collet_control *control)
{
	const struct collet_control_config *config = &control->config;
	const struct collet_bootstrap *b = config->bootstrap;
	const int listeners[2] = { b->listen_unix, b->listen_tcp };
	bool ok = control_register(control, control->wake_fd, EPOLLIN, &control->wake_source);
	for (uint32_t i = 0; i < 2; i++) {
		control->listeners[i] = (struct listener){ .source.kind = SOURCE_LISTENER, .socket = listeners[i] };
		if (ok && listeners[i] >= 0)
			ok = control->listeners[i].registered =
				control_register(control, listeners[i], EPOLLIN, &control->listeners[i].source);
	}
	for (uint32_t i = 0; ok && i < control->link_count; i++) {
		struct control_link *link = &control->links[i];
		if (link->rank == config->rank)
			continue;
		if (b->control_sockets[i] >= 0) {
			link->is_tcp = collet_socket_tolerate_slow_peer(b->control_sockets[i]);
			ok = control_register(control, b->control_sockets[i], EPOLLIN, &link->source);
		} else {  /* it was lost while the bootstrap ended */
			link->failed = true;
			control->failed_count++;
			strcpy(link->reason, "its connection broke at the end of the bootstrap");
		}
	}
	return ok ? COLLET_OK : collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
}

static collet_status start_thread(struct collet_control *control)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);  /* leaves signals to the user's threads */
	int error = pthread_create(&control->thread, NULL, run, control);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return collet_fail(COLLET_ERR_SYSTEM, "pthread_create: %s", strerror(error));
	pthread_setname_np(control->thread, "collet-control");
	return COLLET_OK;
}

static void move_sockets(struct collet_control *control, bool take)
{
	struct collet_bootstrap *b = control->config.bootstrap;
	for (uint32_t i = 0; i < control->link_count; i++) {
		int *from = take ? &b->control_sockets[i] : &control->links[i].connection.socket;
		int *to = take ? &control->links[i].connection.socket : &b->control_sockets[i];
		*to = *from;
		*from = -1;
	}
}

collet_status collet_control_create(struct collet_control **out, const struct collet_control_config *config)
{
	struct collet_control *control = calloc(1, sizeof(*control));
	if (!control)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the control plane");
	control->config = *config;
	pthread_mutex_init(&control->mutex, NULL);
	control->commands_end = &control->commands;
	control->wake_source.kind = SOURCE_WAKE;
	for (uint32_t i = 0; i < CONTROL_LIVENESS_WATCHES; i++)
		control->liveness[i] = (struct liveness_watch){
			.source.kind = SOURCE_LIVENESS, .pidfd = -1, .report_at = COLLET_NEVER
		};
	control->listeners_resume_at = control->watches_at = control->tick_at = COLLET_NEVER;
	control->silence_check_at = COLLET_NEVER;
	control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	control->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	collet_status status = control->epoll_fd < 0 || control->wake_fd < 0 ?
		collet_fail(COLLET_ERR_SYSTEM, "epoll_create, eventfd: %s", strerror(errno)) : create_links(control);
	if (!status)
		status = register_all(control);
	if (!status) {
		control_liveness_start(control);
		move_sockets(control, true);
		/* Before the thread starts: its events may send messages. */
		*out = control;
		status = start_thread(control);
		if (status)
			move_sockets(control, false);
	}
	if (status) {
		*out = NULL;
		free_all(control);
		return status;
	}
	config->bootstrap->listen_tcp = config->bootstrap->listen_unix = -1;
	return COLLET_OK;
}

void collet_control_destroy(struct collet_control **out)
{
	struct collet_control *control = *out;
	if (!control)
		return;
	*out = NULL;
	assert(!pthread_equal(pthread_self(), control->thread));
	pthread_mutex_lock(&control->mutex);
	control->stopping = true;
	pthread_mutex_unlock(&control->mutex);
	wake(control);
	pthread_join(control->thread, NULL);
	while (control->watches)
		drop_watch(control, control->watches);
	control_pending_close(control);
	free_all(control);
}

void collet_control_atfork_child(struct collet_control **out)
{
	struct collet_control *control = *out;
	if (!control)
		return;
	*out = NULL;
	/* The child shares the epoll set with the parent. Without our copy of its descriptor, the calls below cannot
	 * change it. */
	close(control->epoll_fd);
	control->epoll_fd = -1;
	while (control->watches)
		drop_watch(control, control->watches);
	control_pending_close(control);
	free_all(control);
}
