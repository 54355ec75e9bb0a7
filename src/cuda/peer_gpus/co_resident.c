#include "cuda/peer_gpus/co_resident.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/recorder.h"

enum {
	MAX_GPUS = 64,
	DEFAULT_CONNECTIONS = 8,     /* the driver's default number of hardware queues per process */
	STREAMS_PER_RANK = 2         /* the application's, and the communicator's own */
};

/* Call count of a rank that has left: nobody waits for it. */
static const uint64_t LEFT = UINT64_MAX;

struct collet_co_resident {
	struct collet_co_resident *next;
	uint64_t comm_id;
	uint32_t size, ref_count;
	struct member {
		/* Number of calls made; LEFT also for ranks that are not in this process. */
		_Atomic uint64_t calls;
		/* NULL if the rank keeps no records. After it has left: a copy, since others may find a mismatch
		 * only then. Under the lock. */
		const struct collet_recorder *recorder;
		struct collet_recorder last_records;
	} members[]; /* by rank */
};

/* Shared by the process: library contexts belong to their ranks, but all ranks share a GPU's blocks. */
static struct {
	pthread_mutex_t lock;
	uint32_t reserved[MAX_GPUS];    /* blocks, by GPU */
	struct collet_co_resident *first;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- Driver settings ---- */

static bool is_set(const char *name)
{
	const char *value = getenv(name);
	return value && *value && strcmp(value, "0") != 0;
}

static uint32_t connections(void)
{
	const char *value = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	const long number = value ? strtol(value, NULL, 10) : DEFAULT_CONNECTIONS;
	return number < 1 ? DEFAULT_CONNECTIONS : number > UINT16_MAX ? UINT16_MAX : (uint32_t)number;
}

const char *collet_co_resident_obstacle(uint32_t ranks)
{
	if (is_set("CUDA_LAUNCH_BLOCKING"))
		return "CUDA_LAUNCH_BLOCKING is set, and each launch waits for its kernel's end";
	if (is_set("NV_SANITIZER_INJECTION_PORT_BASE"))
		return "compute-sanitizer may have one kernel run after the other";
	if (ranks * STREAMS_PER_RANK > connections())
		return "the ranks' streams would share the driver's queues, where one waits for another; "
		       "CUDA_DEVICE_MAX_CONNECTIONS, set before the driver is initialised, to twice the ranks (at most "
		       "32) gives more";
	return NULL;
}

/* ---- Blocks ---- */

bool collet_co_resident_reserve_blocks(int ordinal, uint32_t blocks, uint32_t resident, bool is_forced)
{
	if (ordinal < 0 || ordinal >= MAX_GPUS)
		return is_forced;
	pthread_mutex_lock(&process.lock);
	uint32_t *reserved = &process.reserved[ordinal];
	const bool fits = *reserved <= resident && blocks <= resident - *reserved;
	if (fits || is_forced)
		*reserved += blocks;
	pthread_mutex_unlock(&process.lock);
	return fits || is_forced;
}

void collet_co_resident_release_blocks(int ordinal, uint32_t blocks)
{
	if (ordinal < 0 || ordinal >= MAX_GPUS)
		return;
	pthread_mutex_lock(&process.lock);
	process.reserved[ordinal] -= blocks;
	pthread_mutex_unlock(&process.lock);
}

/* ---- Calls ---- */

/* Needs the lock. */
static struct collet_co_resident *find_comm(uint64_t comm_id)
{
	struct collet_co_resident *found = process.first;
	while (found && found->comm_id != comm_id)
		found = found->next;
	return found;
}

/* Needs the lock. */
static struct collet_co_resident *create_comm(uint64_t comm_id, uint32_t size)
{
	struct collet_co_resident *made = malloc(sizeof(*made) + size * sizeof(made->members[0]));
	if (!made)
		return NULL;
	*made = (struct collet_co_resident){ .next = process.first, .comm_id = comm_id, .size = size };
	memset(made->members, 0, size * sizeof(made->members[0]));
	for (uint32_t r = 0; r < size; r++)
		atomic_init(&made->members[r].calls, LEFT);
	process.first = made;
	return made;
}

struct collet_co_resident *collet_co_resident_join(uint64_t comm_id, uint32_t rank, uint32_t size)
{
	pthread_mutex_lock(&process.lock);
	struct collet_co_resident *co_resident = find_comm(comm_id);
	if (!co_resident)
		co_resident = create_comm(comm_id, size);
	if (co_resident) {
		co_resident->ref_count++;
		atomic_store_explicit(&co_resident->members[rank].calls, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&process.lock);
	return co_resident;
}

void collet_co_resident_leave(struct collet_co_resident *co_resident, uint32_t rank)
{
	if (!co_resident)
		return;
	pthread_mutex_lock(&process.lock);
	struct member *member = &co_resident->members[rank];
	const bool last = !--co_resident->ref_count;
	if (member->recorder && !last && collet_recorder_copy(&member->last_records, member->recorder) == COLLET_OK)
		member->recorder = &member->last_records;
	else
		member->recorder = NULL;
	atomic_store_explicit(&member->calls, LEFT, memory_order_relaxed);
	struct collet_co_resident **at = &process.first;
	while (last && *at != co_resident)
		at = &(*at)->next;
	if (last)
		*at = co_resident->next;
	pthread_mutex_unlock(&process.lock);
	if (!last)
		return;
	for (uint32_t r = 0; r < co_resident->size; r++)
		collet_recorder_deinit(&co_resident->members[r].last_records);
	free(co_resident);
}

/* Relaxed, as is the load below: they only order driver calls, and the driver has locks of its own. */
uint64_t collet_co_resident_count_call(struct collet_co_resident *co_resident, uint32_t rank)
{
	return atomic_fetch_add_explicit(&co_resident->members[rank].calls, 1, memory_order_relaxed) + 1;
}

bool collet_co_resident_all_called(const struct collet_co_resident *co_resident, uint64_t number)
{
	for (uint32_t r = 0; r < co_resident->size; r++)
		if (atomic_load_explicit(&co_resident->members[r].calls, memory_order_relaxed) < number)
			return false;
	return true;
}

void collet_co_resident_set_recorder(
	struct collet_co_resident *co_resident, uint32_t rank, const struct collet_recorder *recorder)
{
	pthread_mutex_lock(&process.lock);
	co_resident->members[rank].recorder = recorder;
	pthread_mutex_unlock(&process.lock);
}

/* Needs the lock, which keeps both recorders alive. */
static bool records_differ(const struct collet_recorder *own, const struct collet_recorder *others,
	struct collet_record *mine, struct collet_record *theirs)
{
	const uint64_t own_calls = collet_recorder_count(own), others_calls = collet_recorder_count(others);
	const uint64_t calls = own_calls < others_calls ? own_calls : others_calls;
	for (uint64_t call = calls > COLLET_RECORDS ? calls - COLLET_RECORDS : 0; call < calls; call++)
		if (collet_recorder_find(own, call, mine) && collet_recorder_find(others, call, theirs) &&
			collet_call_signature(&mine->call) != collet_call_signature(&theirs->call))
			return true;
	return false;
}

bool collet_co_resident_has_left(const struct collet_co_resident *co_resident, uint32_t rank)
{
	return atomic_load_explicit(&co_resident->members[rank].calls, memory_order_relaxed) == LEFT;
}

bool collet_co_resident_find_mismatch(const struct collet_co_resident *co_resident, uint32_t rank, uint32_t other,
	struct collet_call *own, struct collet_call *others)
{
	struct collet_record mine, theirs;
	pthread_mutex_lock(&process.lock);
	const struct collet_recorder *recorder = co_resident->members[rank].recorder,
				     *another = co_resident->members[other].recorder;
	const bool found = recorder && another && records_differ(recorder, another, &mine, &theirs);
	pthread_mutex_unlock(&process.lock);
	if (found) {
		*own = mine.call;
		*others = theirs.call;
	}
	return found;
}
