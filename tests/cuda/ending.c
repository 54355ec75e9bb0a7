#include "ending.h"

static void note(void *context, collet_status status)
{
	struct ending *ending = context;
	ending->status = status;
	atomic_store(&ending->is_told, true);
}

void ending_use(struct ending *ending, collet_how *how, bool by_on_end)
{
	*ending = (struct ending){ .request = NULL };
	if (!by_on_end) {
		how->request = &ending->request;
		return;
	}
	how->on_end = note;
	how->on_end_context = ending;
}

bool ending_wait(struct rank *rank, struct ending *ending, const collet_how *how)
{
	while (how->on_end && !atomic_load(&ending->is_told))
		if (!rank_ok(rank, collet_progress(rank->comm, COLLET_NO_TIMEOUT), "progress"))
			return false;
	return rank_ok(rank, collet_request_wait(&ending->request), "waiting") &&
	       (!how->on_end || rank_ok(rank, ending->status, "what on_end() was told"));
}
