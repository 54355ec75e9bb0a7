/* Feeds the protocol trials (shm_trials.h) with call times. The engine reports the times of this end; those of the
 * other end come through shared memory. Each shared word stands alone, so it is read and written relaxed. */
#include "transport/shm/shm_endpoint.h"

enum { USED_CMA = 1, USED_RING = 2 };

/* Returns the protocol that the other end has decided for exchanges. */
static enum shm_exchange_protocol exchange_decision(const struct shm_endpoint *shm, unsigned call_class)
{
	return shm->is_follower && shm->tuning[call_class].is_exchange
		       ? atomic_load_explicit(&shm->theirs->exchange_protocols[call_class], memory_order_relaxed)
		       : SHM_EXCHANGE_UNKNOWN;
}

static bool use_cma(const struct shm_endpoint *shm, unsigned call_class)
{
	const enum shm_exchange_protocol decision = exchange_decision(shm, call_class);
	return decision == SHM_EXCHANGE_UNKNOWN ? collet_shm_trials_next_is_cma(&shm->tuning[call_class].trials) :
                                                    decision == SHM_EXCHANGE_CMA;
}

void collet_shm_tuning_sent(struct shm_endpoint *shm, unsigned call_class, bool is_exchange, bool by_cma)
{
	struct shm_tuning *tuning = &shm->tuning[call_class];
	tuning->is_exchange = is_exchange;
	tuning->used |= by_cma ? USED_CMA : USED_RING;
}

static void log_choice(const struct shm_endpoint *shm, unsigned call_class, uint64_t bytes)
{
	const struct shm_trials *trials = &shm->tuning[call_class].trials;
	char name[160];
	collet_log(shm->log, COLLET_LOG_DEBUG,
		"shm to %s, channel %u: CMA for long messages of call class %u, for example of %llu bytes: %s "
		"(%u ticks a MiB, with the other protocol %u)", collet_shm_peer_name(shm, name, sizeof(name)),
		shm->endpoint.channel, call_class, (unsigned long long)bytes, trials->is_cma_chosen ? "yes" : "no",
		trials->chosen_cost, trials->other_cost);
}

static void update_choice(struct shm_endpoint *shm, unsigned call_class, uint32_t cost, uint64_t bytes)
{
	struct shm_tuning *tuning = &shm->tuning[call_class];
	struct shm_trials *trials = &tuning->trials;
	const uint32_t other = atomic_load_explicit(&shm->theirs->call_times[call_class], memory_order_relaxed);
	const bool was_cma_chosen = trials->is_cma_chosen, is_first = !trials->is_trained;
	/* Some messages of a call have no choice of protocol: any use of CMA counts as a CMA call. */
	if (exchange_decision(shm, call_class) == SHM_EXCHANGE_UNKNOWN)
		collet_shm_trials_add(
			trials, tuning->used & USED_CMA, cost, other < SHM_COST_MAX ? other : 0, bytes);
	atomic_store_explicit(&shm->mine->exchange_protocols[call_class],
		collet_shm_trials_next_is_cma(trials) ? SHM_EXCHANGE_CMA : SHM_EXCHANGE_RING, memory_order_relaxed);
	shm->cma_classes[call_class] = use_cma(shm, call_class);
	if (trials->is_trained && (is_first || was_cma_chosen != trials->is_cma_chosen))
		log_choice(shm, call_class, bytes);
}

void collet_shm_report_call_time(struct collet_endpoint *endpoint, uint32_t call_class, uint64_t bytes, uint64_t ticks)
{
	struct shm_endpoint *shm = (struct shm_endpoint *)endpoint;
	if (call_class >= SHM_CALL_CLASSES || !bytes || ticks > (uint64_t)1 << 43 || !shm->is_tuned || !shm->region)
		return;
	const uint64_t cost = (ticks << 20) / bytes;
	const uint32_t bounded = cost < SHM_COST_MAX ? (uint32_t)cost + 1 : SHM_COST_MAX;
	struct shm_tuning *tuning = &shm->tuning[call_class];
	atomic_store_explicit(&shm->mine->call_times[call_class], bounded, memory_order_relaxed);
	if (tuning->used)
		update_choice(shm, call_class, bounded, bytes);
	tuning->used = 0;
}
