/* The progress thread makes progress on requests that no thread waits for. It parks while a user's thread waits. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"
#include "engine/lock.h"
#include "engine/progress_thread.h"
#include "engine/wait.h"

/* Polls before it yields. */
enum { BACKGROUND_POLLS = 32 };

void collet_progress_thread_wake(const struct collet_engine *engine, long delay_ns)
{
	const struct itimerspec delay = { .it_value = { .tv_nsec = delay_ns } };
	timerfd_settime(engine->progress_timer_fd, 0, &delay, NULL);
}

/* Parks while a user's thread waits. That thread makes all progress, and this one could only take the core or the lock
 * from it. Under the lock, which it releases meanwhile. */
static void park(struct collet_engine *engine)
{
	struct pollfd timer = { .fd = engine->progress_timer_fd, .events = POLLIN };
	uint64_t ignored;
	engine->parked = true;
	/* Threads that follow this one must now find another sleeper. */
	if (engine->followers)
		pthread_cond_broadcast(&engine->request_ended);
	collet_engine_unlock(engine);
	(void)poll(&timer, 1, -1);
	const ssize_t got = read(engine->progress_timer_fd, &ignored, sizeof(ignored));
	(void)got;  /* EAGAIN: a signal has ended the poll */
	collet_engine_lock(engine);
	engine->parked = engine->progress_timer_set = false;
}

/* Runs the progress thread. It hardly spins, since spinning would take time from its own rank's computation. It yields,
 * which costs little if a core is free. */
static void *progress_main(void *context)
{
	struct collet_engine *engine = context;
	struct collet_spin_wait spin_wait = { .spin_polls = BACKGROUND_POLLS, .until_ns = COLLET_NEVER };
	collet_engine_lock(engine);
	while (!engine->stop_progress_thread) {
		engine->progress_timer_set = false;
		if (collet_engine_has_waiters(engine)) {
			park(engine);
			continue;
		}
		if (collet_engine_progress(engine))
			collet_spin_wait_reset(&spin_wait);
		if (engine->ended_requests)
			engine->run_on_end(engine);
		collet_engine_wait_once(engine, &spin_wait);
	}
	collet_engine_unlock(engine);
	return NULL;
}

/* Opens the timer. It is edge-triggered, so that a user's thread that sleeps need not read it. */
static collet_status open_timer(struct collet_engine *engine)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = &engine->progress_timer_fd };
	engine->progress_timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (engine->progress_timer_fd >= 0 &&
		epoll_ctl(engine->wake.epoll_fd, EPOLL_CTL_ADD, engine->progress_timer_fd, &event) == 0)
		return COLLET_OK;
	const int error = errno;
	if (engine->progress_timer_fd >= 0)
		close(engine->progress_timer_fd);
	return collet_fail(COLLET_ERR_SYSTEM, "a timer for the progress thread: %s; is the limit of open files "
		"(ulimit -n) reached?", strerror(error));
}

/* Binds a thread that is to be created to a CPU. Returns 0, or the system's error. */
static int bind_to(pthread_attr_t *attributes, int cpu)
{
	cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
	const size_t bytes = CPU_ALLOC_SIZE((size_t)cpu + 1);
	if (!set)
		return ENOMEM;
	CPU_ZERO_S(bytes, set);
	CPU_SET_S((size_t)cpu, bytes, set);
	const int error = pthread_attr_setaffinity_np(attributes, bytes, set);
	CPU_FREE(set);
	return error;
}

/* Creates the thread, which leaves signals to the user's threads. Returns 0, or the system's error. */
static int create_thread(struct collet_engine *engine, int cpu)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	int error = pthread_attr_init(&attributes);
	if (error)
		return error;
	if (cpu >= 0)
		error = bind_to(&attributes, cpu);
	if (!error) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		error = pthread_create(&engine->progress_thread, &attributes, progress_main, engine);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	pthread_attr_destroy(&attributes);
	return error;
}

collet_status collet_engine_start_progress_thread(struct collet_engine *engine, int cpu)
{
	const collet_status status = open_timer(engine);
	if (status != COLLET_OK)
		return status;
	const int error = create_thread(engine, cpu);
	if (error) {
		close(engine->progress_timer_fd);
		if (cpu >= 0 && error == EINVAL)
			return collet_fail(COLLET_ERR_CONFIG,
				"COLLET_PROGRESS_CPU: the progress thread of rank %u may not run on CPU %d; lscpu "
				"shows which there are",
				engine->rank, cpu);
		return collet_fail(COLLET_ERR_SYSTEM, "cannot start the progress thread: %s", strerror(error));
	}
	pthread_setname_np(engine->progress_thread, "collet-progress");
	engine->has_progress_thread = true;
	return COLLET_OK;
}

void collet_engine_stop_progress_thread(struct collet_engine *engine)
{
	if (!engine->has_progress_thread)
		return;
	collet_engine_lock(engine);
	engine->stop_progress_thread = true;
	pthread_cond_broadcast(&engine->request_ended);
	collet_engine_unlock(engine);
	collet_progress_thread_wake(engine, 1);
	pthread_join(engine->progress_thread, NULL);
	close(engine->progress_timer_fd);
	engine->has_progress_thread = false;
}
