/* Learning which way is better: shm_trials.h decides, by what the engine says that calls have taken, here and, told
 * through shared memory, at the other end. All that is told is numbers by themselves, so it is read and written
 * relaxed. */
#include "transport/shm/shm_endpoint.h"

enum { WENT_READ = 1, WENT_KEPT = 2 };

/* Has the other end said which way both go? */
static enum shm_exchanges decided(const struct shm_conduit *shm, unsigned call)
{
	return shm->follows && shm->learning[call].mutual ?
		atomic_load_explicit(&shm->theirs->exchanges[call], memory_order_relaxed) : SHM_EXCHANGES_UNKNOWN;
}

static bool reads(const struct shm_conduit *shm, unsigned call)
{
	const enum shm_exchanges exchanges = decided(shm, call);
	return exchanges == SHM_EXCHANGES_UNKNOWN ? collet_shm_way_reads(&shm->learning[call].way) :
                                                    exchanges == SHM_EXCHANGES_READS;
}

void collet_shm_learn_sent(struct shm_conduit *shm, unsigned call, bool mutual, bool read)
{
	struct shm_learning *learning = &shm->learning[call];
	learning->mutual = mutual;
	learning->went |= read ? WENT_READ : WENT_KEPT;
}

static void log_way(const struct shm_conduit *shm, unsigned call, uint64_t bytes)
{
	const struct shm_way *way = &shm->learning[call].way;
	char name[160];
	collet_log(shm->log, COLLET_LOG_DEBUG,
		"shm to %s, channel %u: the kernel reads long messages of calls of number %u, such as one of %llu "
		"bytes: %s (they took %u ticks a MiB, the other way %u)", collet_shm_peer_name(shm, name, sizeof(name)),
		shm->conduit.channel, call, (unsigned long long)bytes, way->reads ? "yes" : "no",
		way->taken, way->other);
}

static void learn(struct shm_conduit *shm, unsigned call, uint32_t price, uint64_t bytes)
{
	struct shm_learning *learning = &shm->learning[call];
	struct shm_way *way = &learning->way;
	const uint32_t other = atomic_load_explicit(&shm->theirs->took[call], memory_order_relaxed);
	const bool before = way->reads, first = !way->learnt;
	/* Some messages of a call may have no choice. */
	if (decided(shm, call) == SHM_EXCHANGES_UNKNOWN)
		collet_shm_way_went(
			way, learning->went & WENT_READ, price, other < SHM_PRICE_MOST ? other : 0, bytes);
	atomic_store_explicit(&shm->mine->exchanges[call],
		collet_shm_way_reads(way) ? SHM_EXCHANGES_READS : SHM_EXCHANGES_RING, memory_order_relaxed);
	shm->reads_calls[call] = reads(shm, call);
	if (way->learnt && (first || before != way->reads))
		log_way(shm, call, bytes);
}

void collet_shm_took(struct collet_conduit *conduit, uint32_t call, uint64_t bytes, uint64_t ticks)
{
	struct shm_conduit *shm = (struct shm_conduit *)conduit;
	if (call >= SHM_WAY_CALLS || !bytes || ticks > (uint64_t)1 << 43 || !shm->measures || !shm->segment)
		return;
	const uint64_t price = (ticks << 20) / bytes;
	const uint32_t bounded = price < SHM_PRICE_MOST ? (uint32_t)price + 1 : SHM_PRICE_MOST;
	struct shm_learning *learning = &shm->learning[call];
	atomic_store_explicit(&shm->mine->took[call], bounded, memory_order_relaxed);
	if (learning->went)
		learn(shm, call, bounded, bytes);
	learning->went = 0;
}
