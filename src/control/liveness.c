/* Detects the death of processes on this host. Sockets are not enough: a forked child that lives on has copies of all
 * its parent's sockets, so read() at the other ends does not return.
 *
 * Each rank watches the process of the next rank of its host by a pidfd, and that of rank 0 if it is on this host. When
 * a watched process ends, the watcher continues with the rank after it. A death is reported like every other loss: rank
 * 0 tells all ranks. A process that cannot be watched (another PID namespace, an old kernel) has only its sockets. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bootstrap/identity.h"
#include "control/internal.h"

/* The delay lets the last messages of a dead process arrive first: it may have left in order. */
#define DEATH_REPORT_DELAY_NS ((int64_t)100000000)

static bool is_watchable(const struct collet_control *control, uint32_t rank)
{
	const struct collet_peer_info *infos = control->config.bootstrap->peer_infos,
				      *self = &infos[control->config.rank];
	return !control->gone[rank] && infos[rank].host_id == self->host_id &&
	       infos[rank].process_id != self->process_id;
}

static bool watch_process(struct collet_control *control, struct liveness_watch *liveness, uint32_t rank)
{
	const struct collet_peer_info *info = &control->config.bootstrap->peer_infos[rank];
	const int pidfd = (int)syscall(SYS_pidfd_open, info->pid, 0);
	if (pidfd < 0)
		return false;
	/* In another PID namespace, or after a process has ended, its number may mean another process. */
	if (!collet_process_matches(info->host_id, info->pid, info->process_id) ||
	    !control_register(control, pidfd, EPOLLIN, &liveness->source)) {
		close(pidfd);
		return false;
	}
	liveness->pidfd = pidfd;
	liveness->rank = rank;
	return true;
}

/* Watches the first rank of this host behind the rank after that can be watched. */
static void watch_next(struct collet_control *control, struct liveness_watch *liveness, uint32_t after)
{
	const uint32_t size = control->config.size;
	for (uint32_t i = 1; i < size; i++) {
		const uint32_t rank = (uint32_t)(((uint64_t)after + i) % size);
		if (rank == control->config.rank)
			return;  /* there is no other */
		if (is_watchable(control, rank) && watch_process(control, liveness, rank))
			return;
	}
}

void control_liveness_start(struct collet_control *control)
{
	watch_next(control, &control->liveness[0], control->config.rank);
	if (control->config.rank != 0 && is_watchable(control, 0) &&
		!(control->liveness[0].pidfd >= 0 && control->liveness[0].rank == 0))
		(void)watch_process(control, &control->liveness[1], 0);
}

void control_liveness_stop(struct collet_control *control)
{
	for (uint32_t i = 0; i < CONTROL_LIVENESS_WATCHES; i++) {
		if (control->liveness[i].pidfd >= 0)
			close(control->liveness[i].pidfd);
		control->liveness[i].pidfd = -1;
	}
}

void control_liveness_serve(struct collet_control *control, struct liveness_watch *liveness)
{
	control_unregister(control, liveness->pidfd);
	close(liveness->pidfd);
	liveness->pidfd = -1;
	liveness->report_at = collet_deadline_after(DEATH_REPORT_DELAY_NS);
}

/* Reports all ranks of the process that are not known to be gone. */
static void report_death(struct collet_control *control, uint64_t process_id)
{
	const struct collet_peer_info *infos = control->config.bootstrap->peer_infos;
	for (uint32_t rank = 0; rank < control->config.size; rank++) {
		if (infos[rank].process_id != process_id || control->gone[rank])
			continue;
		const struct collet_frame frame = {
			.kind = COLLET_FRAME_PROCESS_DIED, .from = control->config.rank, .to = rank };
		if (control->config.rank == 0 || rank == 0)
			control_hub_process_died(control, rank);
		else
			control_hub_send(control, &frame, NULL);
	}
}

int64_t control_liveness_timers(struct collet_control *control)
{
	int64_t earliest = COLLET_NEVER;
	for (uint32_t i = 0; i < CONTROL_LIVENESS_WATCHES; i++) {
		struct liveness_watch *liveness = &control->liveness[i];
		if (collet_deadline_passed(liveness->report_at)) {
			liveness->report_at = COLLET_NEVER;
			report_death(control, control->config.bootstrap->peer_infos[liveness->rank].process_id);
			if (i == 0)
				watch_next(control, liveness, liveness->rank);
		}
		earliest = liveness->report_at < earliest ? liveness->report_at : earliest;
	}
	return earliest;
}
