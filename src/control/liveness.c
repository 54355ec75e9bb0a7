/* The deaths of neighbours' processes, seen at once whatever keeps their connections open: a forked child that lives on
 * has copies of all its parent's sockets, and as long as it has, nobody's read() ends.
 *
 * Each rank watches the process of the next rank of its host, by a pidfd, and rank 0's if that is on its host; when one
 * ends, it takes the watch over from there. The news goes the way of all losses: rank 0 tells everybody. A process that
 * cannot be watched (another PID namespace, an old kernel) is left to its sockets. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bootstrap/identity.h"
#include "control/internal.h"

/* What the dead one said last is to be heard first: it may have left in order. */
#define CONDOLENCE_NS ((int64_t)100000000)

static bool is_neighbour(const struct collet_control *control, uint32_t rank)
{
	const struct collet_card *cards = control->config.bootstrap->cards, *self = &cards[control->config.rank];
	return !control->gone[rank] && cards[rank].host_id == self->host_id &&
	       cards[rank].process_id != self->process_id;
}

static bool watch(struct collet_control *control, struct kin *kin, uint32_t rank)
{
	const struct collet_card *card = &control->config.bootstrap->cards[rank];
	const int pidfd = (int)syscall(SYS_pidfd_open, card->pid, 0);
	if (pidfd < 0)
		return false;
	/* A number means another process in another namespace, or when the one that was meant is gone. */
	if (!collet_process_is(card->host_id, card->pid, card->process_id) ||
	    !control_register(control, pidfd, EPOLLIN, &kin->source)) {
		close(pidfd);
		return false;
	}
	kin->pidfd = pidfd;
	kin->rank = rank;
	return true;
}

/* The first rank of this host after that one that can be watched. */
static void watch_next(struct collet_control *control, struct kin *kin, uint32_t after)
{
	const uint32_t size = control->config.size;
	for (uint32_t i = 1; i < size; i++) {
		const uint32_t rank = (uint32_t)(((uint64_t)after + i) % size);
		if (rank == control->config.rank)
			return;  /* once round */
		if (is_neighbour(control, rank) && watch(control, kin, rank))
			return;
	}
}

void control_kin_start(struct collet_control *control)
{
	watch_next(control, &control->kin[0], control->config.rank);
	if (control->config.rank != 0 && is_neighbour(control, 0) &&
		!(control->kin[0].pidfd >= 0 && control->kin[0].rank == 0))
		(void)watch(control, &control->kin[1], 0);
}

void control_kin_stop(struct collet_control *control)
{
	for (uint32_t i = 0; i < CONTROL_KIN; i++) {
		if (control->kin[i].pidfd >= 0)
			close(control->kin[i].pidfd);
		control->kin[i].pidfd = -1;
	}
}

void control_kin_serve(struct collet_control *control, struct kin *kin)
{
	control_unregister(control, kin->pidfd);
	close(kin->pidfd);
	kin->pidfd = -1;
	kin->report_at = collet_deadline_after(CONDOLENCE_NS);
}

/* All ranks of the process that are not known to be gone. */
static void report(struct collet_control *control, uint64_t process_id)
{
	const struct collet_card *cards = control->config.bootstrap->cards;
	for (uint32_t rank = 0; rank < control->config.size; rank++) {
		if (cards[rank].process_id != process_id || control->gone[rank])
			continue;
		const struct collet_frame frame = {
			.kind = COLLET_FRAME_DIED, .from = control->config.rank, .to = rank };
		if (control->config.rank == 0 || rank == 0)
			control_star_mourn(control, rank);
		else
			control_star_send(control, &frame, NULL);
	}
}

int64_t control_kin_timers(struct collet_control *control)
{
	int64_t earliest = COLLET_NEVER;
	for (uint32_t i = 0; i < CONTROL_KIN; i++) {
		struct kin *kin = &control->kin[i];
		if (collet_deadline_passed(kin->report_at)) {
			kin->report_at = COLLET_NEVER;
			report(control, control->config.bootstrap->cards[kin->rank].process_id);
			if (i == 0)
				watch_next(control, kin, kin->rank);
		}
		earliest = kin->report_at < earliest ? kin->report_at : earliest;
	}
	return earliest;
}
