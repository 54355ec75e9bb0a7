#include "engine/watch.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/status.h"
#include "engine/sleep.h"

static bool add(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

collet_status collet_watch_open(struct collet_engine *engine)
{
	if (engine->watch_fd >= 0)
		return COLLET_OK;
	engine->watch_timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	engine->watch_fd = engine->watch_timer_fd >= 0 ? epoll_create1(EPOLL_CLOEXEC) : -1;
	if (engine->watch_fd >= 0 && add(engine->watch_fd, engine->wake.epoll_fd) &&
		add(engine->watch_fd, engine->watch_timer_fd)) {
		collet_watch_interrupt(engine);
		return COLLET_OK;
	}
	const int error = errno;
	collet_watch_close(engine);
	return collet_fail(COLLET_ERR_SYSTEM,
		"a descriptor to poll: %s; is the limit of open files (ulimit -n) reached?", strerror(error));
}

void collet_watch_close(struct collet_engine *engine)
{
	if (engine->watch_fd >= 0)
		close(engine->watch_fd);
	if (engine->watch_timer_fd >= 0)
		close(engine->watch_timer_fd);
	engine->watch_fd = engine->watch_timer_fd = -1;
}

/* ms < 0: never; 0: at once. */
static void set_timer(const struct collet_engine *engine, int ms)
{
	const struct itimerspec delay = {
		.it_value = { .tv_sec = ms > 0 ? ms / 1000 : 0, .tv_nsec = ms > 0 ? ms % 1000 * 1000000L : ms == 0 } };
	timerfd_settime(engine->watch_timer_fd, 0, &delay, NULL);
}

void collet_watch_begin(struct collet_engine *engine)
{
	if (engine->watch_fd < 0)
		return;
	engine->is_watched = true;
	if (engine->ended_requests || !collet_engine_arm(engine))
		collet_watch_interrupt(engine);
	else
		set_timer(engine, engine->pending_count ? collet_engine_sleep_limit_ms(engine) : -1);
}

/* A thread that sleeps needs what is armed, and disarms it. */
static void stop(struct collet_engine *engine)
{
	engine->is_watched = false;
	if (!engine->has_sleeper)
		collet_engine_disarm(engine);
}

void collet_watch_end(struct collet_engine *engine)
{
	if (engine->watch_fd < 0)
		return;
	if (engine->is_watched)
		stop(engine);
	/* Setting a timer also forgets that it has expired. */
	set_timer(engine, -1);
	if (!engine->has_sleeper)
		collet_engine_clear_events(engine, 0);
}

void collet_watch_interrupt(struct collet_engine *engine)
{
	if (engine->is_watched)
		stop(engine);
	set_timer(engine, 0);
}
