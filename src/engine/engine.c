/* Creates and frees the engine, and makes one round of progress. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/fence.h"
#include "core/status.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/engine.h"
#include "engine/fast_path.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/pipeline.h"
#include "engine/progress_hook.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/watch.h"

collet_status collet_engine_init(struct collet_engine *engine)
{
	engine->last_ended = &engine->ended_requests;
	engine->watch_fd = engine->watch_timer_fd = -1;
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
	/* Registers now, while the process may have no other thread yet. */
	engine->has_fence = collet_fence_register();
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&engine->request_ended, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_mutex_init(&engine->mutex, NULL);
	pthread_mutex_init(&engine->connections_lock, NULL);
	pthread_mutex_init(&engine->end_lock, NULL);
	return COLLET_OK;
}

void collet_engine_atfork_child(struct collet_engine *engine)
{
	collet_connections_deinit(engine);
	close(engine->wake.epoll_fd);
	close(engine->wake.event_fd);
	collet_watch_close(engine);
	if (engine->has_progress_thread)  /* only in a forked child: else the thread has been stopped */
		close(engine->progress_timer_fd);
}

void collet_engine_deinit(struct collet_engine *engine)
{
	collet_engine_atfork_child(engine);
	pthread_cond_destroy(&engine->request_ended);
	pthread_mutex_destroy(&engine->mutex);
	pthread_mutex_destroy(&engine->connections_lock);
	pthread_mutex_destroy(&engine->end_lock);
}

uint32_t collet_engine_progress(struct collet_engine *engine)
{
	uint32_t completed = 0;
	if (engine->is_watched)
		collet_watch_interrupt(engine);
	for (struct collet_peer_queue *peer_queue = engine->active_queues, *next; peer_queue; peer_queue = next) {
		next = peer_queue->next_active;
		completed += collet_peer_queue_progress(peer_queue);
	}
	for (struct collet_pipeline *pipeline = engine->pipelines, *next; pipeline; pipeline = next) {
		next = pipeline->next;
		if (pipeline->request->status == COLLET_PENDING)
			completed += pipeline->progress(pipeline);
	}
	for (struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all) {
		if (atomic_load_explicit(&state->end_status, memory_order_acquire) != COLLET_OK) {
			collet_comm_state_tear_down(state);
			continue;
		}
		completed += collet_p2p_progress(state);
		for (struct collet_progress_hook *hook = state->hooks; hook; hook = hook->next)
			completed += hook->table->progress(state, hook->context);
		if (state->fast_path_request)
			collet_fast_path_progress_queue(state, 0);
		if (!state->tasks_need_progress)
			continue;
		state->tasks_need_progress = false;
		for (uint32_t i = 0; i < COLLET_TASKS && state->tasks[i]; i++)
			collet_task_progress(state->tasks[i]);
	}
	return completed;
}
