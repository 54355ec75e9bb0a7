/* The engine's life, and one round of progress. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/fence.h"
#include "engine/pipeline.h"

collet_status collet_engine_init(struct collet_engine *engine)
{
	engine->wake.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	engine->wake.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct epoll_event event = { .events = EPOLLIN };
	if (engine->wake.epoll_fd < 0 || engine->wake.event_fd < 0 ||
		epoll_ctl(engine->wake.epoll_fd, EPOLL_CTL_ADD, engine->wake.event_fd, &event) != 0) {
		const int error = errno;
		if (engine->wake.epoll_fd >= 0)
			close(engine->wake.epoll_fd);
		if (engine->wake.event_fd >= 0)
			close(engine->wake.event_fd);
		return collet_fail(COLLET_ERR_SYSTEM,
			"epoll or eventfd for a rank's sleep: %s; is the limit of open files "
			"(ulimit -n) reached?",
			strerror(error));
	}
	/* Now, while there may be no other thread yet. */
	engine->fences = collet_fence_register();
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&engine->something_ended, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_mutex_init(&engine->mutex, NULL);
	pthread_mutex_init(&engine->fabric_lock, NULL);
	pthread_mutex_init(&engine->end_lock, NULL);
	return COLLET_OK;
}

void collet_engine_forget(struct collet_engine *engine)
{
	collet_fabric_deinit(engine);
	close(engine->wake.epoll_fd);
	close(engine->wake.event_fd);
	if (engine->has_progress_thread)  /* in a child */
		close(engine->rouse_fd);
}

void collet_engine_deinit(struct collet_engine *engine)
{
	collet_engine_forget(engine);
	pthread_cond_destroy(&engine->something_ended);
	pthread_mutex_destroy(&engine->mutex);
	pthread_mutex_destroy(&engine->fabric_lock);
	pthread_mutex_destroy(&engine->end_lock);
}

uint32_t collet_engine_progress(struct collet_engine *engine)
{
	uint32_t settled = 0;
	for (struct collet_route *route = engine->active, *next; route; route = next) {
		next = route->next_active;
		settled += collet_route_progress(route);
	}
	for (struct collet_flow *flow = engine->flows, *next; flow; flow = next) {
		next = flow->next;
		if (flow->request->status == COLLET_PENDING)
			settled += flow->advance(flow);
	}
	for (struct collet_group *group = engine->used_groups; group; group = group->next_used) {
		if (atomic_load_explicit(&group->ended, memory_order_acquire) != COLLET_OK) {
			collet_group_tear_down(group);
			continue;
		}
		settled += collet_p2p_progress(group);
		for (struct collet_group_hook *hook = group->hooks; hook; hook = hook->next)
			settled += hook->hooks->advance(group, hook->hooked);
		if (group->inlined)
			collet_inline_advance(group->inlined);
		if (!group->lanes_dirty)
			continue;
		group->lanes_dirty = false;
		for (uint32_t i = 0; i < COLLET_LANES && group->lanes[i]; i++)
			collet_lane_progress(group->lanes[i]);
	}
	return settled;
}
