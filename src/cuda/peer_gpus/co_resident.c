#include "cuda/peer_gpus/co_resident.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
	GPUS = 64,
	CONNECTIONS = 8,             /* a driver's queues for kernels of one process, unless it is told otherwise */
	STREAMS_OF_A_RANK = 2        /* its program's, and its communicator's own */
};

/* A rank that has left is waited for no more. */
static const uint64_t LEFT = UINT64_MAX;

struct collet_together {
	struct collet_together *next;
	uint64_t group;
	uint32_t size, users;
	struct member {
		_Atomic uint64_t calls; /* made; LEFT, too, of those that are not of this process */
		/* NULL: it shows none. Of one that has left, what it had called: others may find out only then that
		 * they disagree. Under lock. */
		const struct collet_recorder *recorder;
		struct collet_recorder left;
	} members[]; /* by rank */
};

/* The process's: contexts of the library are their ranks' own, and what one of them takes of a GPU the others lack. */
static struct {
	pthread_mutex_t lock;
	uint32_t taken[GPUS];        /* blocks */
	struct collet_together *first;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- What the driver has been told ---- */

static bool is_set(const char *name)
{
	const char *value = getenv(name);
	return value && *value && strcmp(value, "0") != 0;
}

static uint32_t connections(void)
{
	const char *value = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	const long number = value ? strtol(value, NULL, 10) : CONNECTIONS;
	return number < 1 ? CONNECTIONS : number > UINT16_MAX ? UINT16_MAX : (uint32_t)number;
}

const char *collet_together_doubt(uint32_t ranks)
{
	if (is_set("CUDA_LAUNCH_BLOCKING"))
		return "CUDA_LAUNCH_BLOCKING is set, and each launch waits for its kernel's end";
	if (is_set("NV_SANITIZER_INJECTION_PORT_BASE"))
		return "compute-sanitizer may have one kernel run after the other";
	if (ranks * STREAMS_OF_A_RANK > connections())
		return "the ranks' streams would share the driver's queues, where one waits for another; "
		       "CUDA_DEVICE_MAX_CONNECTIONS, set before the driver is initialised, to twice the ranks (at most "
		       "32) gives more";
	return NULL;
}

/* ---- Room ---- */

bool collet_together_take(int ordinal, uint32_t blocks, uint32_t resident, bool counted)
{
	if (ordinal < 0 || ordinal >= GPUS)
		return counted;
	pthread_mutex_lock(&process.lock);
	uint32_t *taken = &process.taken[ordinal];
	const bool fits = *taken <= resident && blocks <= resident - *taken;
	if (fits || counted)
		*taken += blocks;
	pthread_mutex_unlock(&process.lock);
	return fits || counted;
}

void collet_together_give(int ordinal, uint32_t blocks)
{
	if (ordinal < 0 || ordinal >= GPUS)
		return;
	pthread_mutex_lock(&process.lock);
	process.taken[ordinal] -= blocks;
	pthread_mutex_unlock(&process.lock);
}

/* ---- Calls ---- */

/* Under lock. */
static struct collet_together *find(uint64_t group)
{
	struct collet_together *found = process.first;
	while (found && found->group != group)
		found = found->next;
	return found;
}

/* Under lock. */
static struct collet_together *make(uint64_t group, uint32_t size)
{
	struct collet_together *made = malloc(sizeof(*made) + size * sizeof(made->members[0]));
	if (!made)
		return NULL;
	*made = (struct collet_together){ .next = process.first, .group = group, .size = size };
	memset(made->members, 0, size * sizeof(made->members[0]));
	for (uint32_t r = 0; r < size; r++)
		atomic_init(&made->members[r].calls, LEFT);
	process.first = made;
	return made;
}

struct collet_together *collet_together_join(uint64_t group, uint32_t rank, uint32_t size)
{
	pthread_mutex_lock(&process.lock);
	struct collet_together *together = find(group);
	if (!together)
		together = make(group, size);
	if (together) {
		together->users++;
		atomic_store_explicit(&together->members[rank].calls, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&process.lock);
	return together;
}

void collet_together_leave(struct collet_together *together, uint32_t rank)
{
	if (!together)
		return;
	pthread_mutex_lock(&process.lock);
	struct member *member = &together->members[rank];
	const bool last = !--together->users;
	if (member->recorder && !last && collet_recorder_copy(&member->left, member->recorder) == COLLET_OK)
		member->recorder = &member->left;
	else
		member->recorder = NULL;
	atomic_store_explicit(&member->calls, LEFT, memory_order_relaxed);
	struct collet_together **at = &process.first;
	while (last && *at != together)
		at = &(*at)->next;
	if (last)
		*at = together->next;
	pthread_mutex_unlock(&process.lock);
	if (!last)
		return;
	for (uint32_t r = 0; r < together->size; r++)
		collet_recorder_deinit(&together->members[r].left);
	free(together);
}

/* Relaxed, both: they order nothing but what the driver is asked for, which has locks of its own. */
uint64_t collet_together_call(struct collet_together *together, uint32_t rank)
{
	return atomic_fetch_add_explicit(&together->members[rank].calls, 1, memory_order_relaxed) + 1;
}

bool collet_together_have_called(const struct collet_together *together, uint64_t number)
{
	for (uint32_t r = 0; r < together->size; r++)
		if (atomic_load_explicit(&together->members[r].calls, memory_order_relaxed) < number)
			return false;
	return true;
}

void collet_together_show(struct collet_together *together, uint32_t rank, const struct collet_recorder *recorder)
{
	pthread_mutex_lock(&process.lock);
	together->members[rank].recorder = recorder;
	pthread_mutex_unlock(&process.lock);
}

/* Under lock, while which neither recorder goes. */
static bool differ(const struct collet_recorder *own, const struct collet_recorder *others, struct collet_record *mine,
	struct collet_record *theirs)
{
	const uint64_t own_calls = collet_recorder_count(own), others_calls = collet_recorder_count(others);
	const uint64_t calls = own_calls < others_calls ? own_calls : others_calls;
	for (uint64_t call = calls > COLLET_RECORDS ? calls - COLLET_RECORDS : 0; call < calls; call++)
		if (collet_recorder_find(own, call, mine) && collet_recorder_find(others, call, theirs) &&
			collet_call_signature(&mine->call) != collet_call_signature(&theirs->call))
			return true;
	return false;
}

bool collet_together_has_left(const struct collet_together *together, uint32_t rank)
{
	return atomic_load_explicit(&together->members[rank].calls, memory_order_relaxed) == LEFT;
}

bool collet_together_differ(const struct collet_together *together, uint32_t rank, uint32_t other,
	struct collet_call *own, struct collet_call *others)
{
	struct collet_record mine, theirs;
	pthread_mutex_lock(&process.lock);
	const struct collet_recorder *recorder = together->members[rank].recorder,
				     *another = together->members[other].recorder;
	const bool found = recorder && another && differ(recorder, another, &mine, &theirs);
	pthread_mutex_unlock(&process.lock);
	if (found) {
		*own = mine.call;
		*others = theirs.call;
	}
	return found;
}
