/* An asynchronous parameter server with bounded staleness. Each worker steps on its own, with its own optimiser state.
 * It sends the servers the change of its values, divided by the number of workers, and gets the current values back. A
 * server answers a worker only if no other worker is more than --staleness steps behind it. So a worker's values miss
 * at most the last few steps of each other worker. With staleness 0 all go in step. (Ho et al., "More Effective
 * Distributed ML via a Stale Synchronous Parallel Parameter Server", 2013.)
 *
 * The order of changes, and so the result, differs from run to run. */
#include <stdlib.h>

#include "error.h"
#include "strategies/compute.h"
#include "strategies/local_state.h"
#include "strategies/servers.h"

enum { STALENESS = 2 };

/* A server's record of a worker. */
struct pace {
	uint64_t steps;    /* whose changes have come */
	bool waits;        /* for values */
};

struct async {
	collet_request **requests;
	uint32_t bound;
	float *change;     /* on a worker as long as flat; on a server one worker's, of its part */
	/* On servers. */
	struct pace *paces;
	uint64_t steps;    /* that every worker has taken */
	uint64_t answers;
	uint64_t staleness_sum, staleness_most;  /* of answers: steps by which the slowest was behind */
};

static bool async_create(struct trainer *trainer)
{
	struct flat *flat = trainer->work;
	const struct options *options = trainer->options;
	struct async *state = trainer->strategy_state = calloc(1, sizeof(*state));
	const bool server = servers_is_one(trainer);
	if (!state)
		return train_fail("no memory");
	state->bound = options->staleness == OPTIONS_NOT_GIVEN ? STALENESS : options->staleness;
	state->paces = calloc(trainer->workers, sizeof(*state->paces));
	if (!state->paces)
		return train_fail("no memory for %u workers", trainer->workers);
	return servers_create(trainer, &state->requests) && flat_gradients(flat, &trainer->model) &&
		strategy_state(trainer, 0, server ? 0 : flat->count) &&
		flat_allocate(flat, &state->change, server ? servers_own_part(trainer).count : flat->count);
}

/* ---- A worker -------------------------------------------------------------------------------------------------- */

static bool work(struct trainer *trainer, struct async *state, uint32_t images, struct outcome *outcome)
{
	const struct flat *flat = trainer->work;
	const struct backend *backend = trainer->backend;
	const double share = (double)(1 / (float)trainer->workers);
	bool take;
	if (!compute_step(trainer, 0, images, compute_till_all, NULL, outcome) ||
		!scaling_unscale_local(trainer, &take))
		return false;
	return backend->add(trainer->network, state->change, flat->values, NULL, -1, flat->count) &&
		(!take || strategy_update(trainer)) &&
		backend->add(trainer->network, state->change, flat->values, state->change, share, flat->count) &&
		servers_exchange(trainer, state->change, state->requests);
}

/* ---- A server -------------------------------------------------------------------------------------------------- */

static uint64_t slowest(const struct trainer *trainer, const struct async *state)
{
	uint64_t least = UINT64_MAX;
	for (uint32_t w = 0; w < trainer->workers; w++)
		least = state->paces[w].steps < least ? state->paces[w].steps : least;
	return least;
}

static bool take_change(struct trainer *trainer, struct async *state, struct range part)
{
	collet_received received;
	if (!train_check(collet_recv(trainer->step_comm, state->change, part.count, COLLET_F32, COLLET_ANY_SOURCE,
				 SERVERS_GRADIENTS, &received, NULL),
		    "receiving changes"))
		return false;
	float *values = trainer->work->values + part.first;
	if (!trainer->backend->add(trainer->network, values, values, state->change, 1, part.count) ||
		!trainer->backend->wait(trainer->network))
		return false;
	struct pace *pace = &state->paces[received.source];
	pace->steps++;
	pace->waits = true;
	return true;
}

/* A worker that waits has its receive posted, so no send here waits for long. */
static bool answer(struct trainer *trainer, struct async *state, struct range part)
{
	for (uint32_t w = 0; w < trainer->workers; w++) {
		struct pace *pace = &state->paces[w];
		const uint64_t ahead = pace->steps - state->steps;
		if (!pace->waits || ahead > state->bound)
			continue;
		if (!train_check(collet_send(trainer->step_comm, trainer->work->values + part.first, part.count,
					 COLLET_F32, w, SERVERS_VALUES, NULL),
			    "sending values"))
			return false;
		pace->waits = false;
		state->answers++;
		state->staleness_sum += ahead;
		state->staleness_most = ahead > state->staleness_most ? ahead : state->staleness_most;
	}
	return true;
}

/* Waits until the slowest worker has taken one more step; others may have taken more. */
static bool serve(struct trainer *trainer, struct async *state)
{
	const struct range part = servers_own_part(trainer);
	const uint64_t until = state->steps + 1;
	while (state->steps < until) {
		if (!take_change(trainer, state, part))
			return false;
		state->steps = slowest(trainer, state);
		if (!answer(trainer, state, part))
			return false;
	}
	return true;
}

/* ---- Both ------------------------------------------------------------------------------------------------------ */

static bool async_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	struct async *state = trainer->strategy_state;
	*outcome = (struct outcome){ 0 };
	return servers_is_one(trainer) ? serve(trainer, state) : work(trainer, state, images, outcome);
}

static bool async_report(struct trainer *trainer, struct trainer_epoch *epoch)
{
	const struct async *state = trainer->strategy_state;
	uint64_t sums[2] = { state->staleness_sum, state->answers }, most = state->staleness_most;
	if (!train_check(collet_allreduce(trainer->comm, sums, sums, 2, COLLET_U64, COLLET_SUM, NULL),
		    "adding up staleness") ||
		!train_check(collet_allreduce(trainer->comm, &most, &most, 1, COLLET_U64, COLLET_MAX, NULL),
			"comparing staleness"))
		return false;
	epoch->staleness_bound = state->bound;
	epoch->staleness_mean = sums[1] ? (double)sums[0] / (double)sums[1] : 0;
	epoch->staleness_most = most;
	return true;
}

/* All ranks have taken the same number of steps here, so nothing is in flight. But no worker has the last changes of
 * the others. */
static bool async_save(struct trainer *trainer, void *state, uint64_t bytes)
{
	if (!servers_share(trainer) || !trainer->backend->fetch(trainer->network))
		return false;
	local_state_save(trainer, trainer->flat.values, state);
	return true;
}

static bool async_load(struct trainer *trainer, const void *state, uint64_t bytes)
{
	return local_state_load(trainer, trainer->flat.values, state, bytes);
}

static void async_destroy(struct trainer *trainer)
{
	struct async *state = trainer->strategy_state;
	if (!state)
		return;
	flat_free(trainer->work, state->change);
	free(state->paces);
	free(state->requests);
	free(state);
}

const struct strategy strategy_async = {
	.name = "async",
	.sentence = "workers step on their own; servers add up changes, no worker more than --staleness steps ahead",
	.supports = SUPPORTS_ACCUMULATE | SUPPORTS_SERVERS | SUPPORTS_STALENESS,
	.state = STATE_OWN,
	.servers = servers_count,
	.create = async_create,
	.step = async_step,
	.end_epoch = servers_share,
	.destroy = async_destroy,
	.traffic = strategy_step_traffic,
	.report = async_report,
	.saved_bytes = local_state_bytes,
	.save = async_save,
	.load = async_load,
};
