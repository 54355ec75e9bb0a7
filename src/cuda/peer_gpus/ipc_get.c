#include "cuda/peer_gpus/ipc_get.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "cuda/driver/exported_handles.h"
#include "cuda/driver/peer_mapping.h"
#include "engine/lock.h"

enum {
	WORDS = 1024,                /* of the pattern */
	TEST_BYTES = 2 << 20         /* allocated, so that the driver gives a block of its own; its ends are used */
};

/* Memory of one CUDA context: at its start this rank's pattern, at its end a place for what is copied from others. */
struct ground {
	struct ground *next;
	const struct collet_copier *copier;
	cu_pointer memory;           /* 0: it cannot be had, and need not be tried again */
	struct collet_shared shared;
};

/* Another rank of this host. */
struct peer {
	struct peer *next;
	uint32_t rank;               /* of the world */
	struct collet_shown shown;
	bool complained;
};

/* From one context to another: the memory that was read, and who read it. */
struct link {
	struct link *next;
	uint64_t process, allocation;
	cu_context context;
	uint32_t wrong;              /* words */
};

struct collet_pulls {
	struct ground *grounds;
	struct peer *peers;
	struct link *links;
};

bool collet_pull_may(const struct collet_engine *engine, uint32_t rank)
{
	const struct collet_peer_info *own = &engine->peer_infos[engine->rank], *other = &engine->peer_infos[rank];
	return own->host_id == other->host_id && collet_card_has_gpu(own) && collet_card_has_gpu(other);
}

static struct collet_pulls *get(struct collet_device *device)
{
	if (!device->pulls)
		device->pulls = calloc(1, sizeof(*device->pulls));
	return device->pulls;
}

/* NULL: no memory. */
static struct peer *get_peer(struct collet_device *device, uint32_t rank)
{
	struct collet_pulls *pulls = get(device);
	struct peer *peer = pulls ? pulls->peers : NULL;
	while (peer && peer->rank != rank)
		peer = peer->next;
	if (peer || !pulls)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->rank = rank;
	peer->next = pulls->peers;
	pulls->peers = peer;
	return peer;
}

/* ---- What is tested with ---- */

static uint32_t pattern(uint32_t rank, uint32_t word)
{
	const uint32_t mixed = (rank + 1) * 2246822519u ^ (word + 1) * 2654435761u;
	return mixed ^ mixed >> 15;
}

static struct ground *find_ground(const struct collet_device *device, const struct collet_copier *copier)
{
	struct ground *ground = device->pulls ? device->pulls->grounds : NULL;
	while (ground && ground->copier != copier)
		ground = ground->next;
	return ground;
}

static collet_status fill(const struct collet_device *device, struct ground *ground)
{
	static const char what[] = "writing a pattern to a GPU's memory";
	uint32_t words[WORDS];
	cu_memory mapped;
	const cu_result result = device->cuda->cuMemAlloc(&ground->memory, TEST_BYTES);
	if (result != CU_OK) {
		ground->memory = 0;
		return collet_cuda_fail(device->cuda, result, "allocating memory to test");
	}
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = pattern(device->rank, i);
	void *memory = (void *)(uintptr_t)ground->memory;
	const collet_status added =
		collet_copier_add(device->cuda, ground->copier, memory, words, sizeof(words), what);
	const collet_status waited = collet_copier_wait(device->cuda, ground->copier, what);
	if (added != COLLET_OK || waited != COLLET_OK)
		return added == COLLET_OK ? waited : added;
	return collet_ipc_describe(device->cuda, device->process, memory, &ground->shared, &mapped);
}

static void free_ground(const struct collet_device *device, struct ground *ground)
{
	/* Fails where the program has destroyed its context, and the memory with it. */
	if (ground->memory && collet_cuda_enter(device->cuda, ground->copier->context) == CU_OK) {
		(void)device->cuda->cuMemFree(ground->memory);
		collet_cuda_leave(device->cuda);
	}
	free(ground);
}

/* Without the lock: allocating may wait for the GPU. NULL: no memory to note it in. */
static struct ground *make_ground(const struct collet_device *device, const struct collet_copier *copier)
{
	struct ground *ground = calloc(1, sizeof(*ground));
	if (!ground)
		return NULL;
	ground->copier = copier;
	collet_status status = collet_copier_begin(device->cuda, copier);
	if (status == COLLET_OK) {
		status = fill(device, ground);
		if (status != COLLET_OK && ground->memory)
			(void)device->cuda->cuMemFree(ground->memory);
		collet_copier_end(device->cuda);
	}
	if (status != COLLET_OK) {
		ground->memory = 0;
		collet_log(device->log, COLLET_LOG_INFO, "%s; messages of this GPU go by way of the host",
			collet_last_error());
	}
	return ground;
}

/* Takes the lock, and leaves it taken. NULL: there is none. */
static const struct ground *lock_ground(
	struct collet_device *device, struct collet_engine *engine, const struct collet_copier *copier)
{
	collet_engine_lock(engine);
	struct ground *ground = find_ground(device, copier);
	if (!ground) {
		collet_engine_unlock(engine);
		struct ground *made = make_ground(device, copier);
		collet_engine_lock(engine);
		/* Another thread of the program may have made one too; then both stay. */
		if (made && get(device)) {
			made->next = device->pulls->grounds;
			device->pulls->grounds = ground = made;
		} else if (made) {
			free_ground(device, made);
		}
	}
	return ground && ground->memory ? ground : NULL;
}

/* ---- The sender ---- */

void collet_pull_describe(struct collet_device *device, struct collet_engine *engine, struct collet_copier *copier,
	uint64_t allocation, const void *first, size_t bytes, struct collet_pull_offer *offer)
{
	const struct collet_residence residence = { .device = true, .ordinal = copier->ordinal,
		.context = copier->retained ? NULL : copier->context, .allocation = allocation };
	*offer = (struct collet_pull_offer){ .side = { .place = COLLET_PLACE_NONE } };
	const struct ground *ground = lock_ground(device, engine, copier);
	if (ground) {
		offer->test = ground->shared;
		offer->side = (struct collet_direct_side){ .first = first, .bytes = bytes, .place = COLLET_PLACE_GPU,
			.ordinal = copier->ordinal, .context = (uintptr_t)residence.context };
		if (collet_device_describe(device, &residence, first, &offer->side.shared) != COLLET_OK)
			offer->side.place = COLLET_PLACE_NONE;
	}
	collet_device_look(device);  /* what others have handed in: the desk is full soon */
	collet_engine_unlock(engine);
}

bool collet_pull_show(struct collet_device *device, const struct collet_engine *engine, uint32_t to,
	const struct collet_pull_offer *offer)
{
	const struct collet_peer_info *card = &engine->peer_infos[to];
	if (offer->side.place != COLLET_PLACE_GPU || !collet_pull_may(engine, to))
		return false;
	if (card->process_id != device->process &&
		(offer->side.shared.kind == COLLET_SHARED_NOT || offer->test.kind == COLLET_SHARED_NOT))
		return false;
	if (offer->side.shared.kind != COLLET_SHARED_DESCRIPTOR)
		return true;
	struct peer *peer = get_peer(device, to);
	if (!peer)
		return false;
	collet_shown_tell_owed(device, &peer->shown, card);
	return collet_shown_add(device, &peer->shown, card, &offer->side.shared) == COLLET_OK;
}

void collet_pull_show_again(struct collet_device *device, uint32_t to, const struct collet_pull_offer *offer)
{
	struct peer *peer = get_peer(device, to);
	if (peer)
		collet_shown_again(&peer->shown, offer->side.shared.allocation);
}

void collet_pull_tell_gone(
	struct collet_device *device, const struct collet_engine *engine, const struct collet_shared *shared)
{
	for (struct peer *peer = device->pulls ? device->pulls->peers : NULL; peer; peer = peer->next)
		if (collet_shown_has(&peer->shown, shared->allocation))
			collet_shown_gone(device, &peer->shown, &engine->peer_infos[peer->rank], shared->allocation);
}

/* ---- The receiver ---- */

/* How many words of another's pattern arrive wrong here. COLLET_ERR_SYSTEM: the driver refuses. */
static collet_status count_wrong(const struct collet_device *device, const struct ground *ground, uint32_t from,
	const char *there, uint32_t *wrong)
{
	static const char what[] = "copying a pattern from another rank's GPU";
	static const uint32_t zeros[WORDS];
	const struct collet_copier *copier = ground->copier;
	char *place = (char *)(uintptr_t)ground->memory + TEST_BYTES - sizeof(zeros);
	uint32_t words[WORDS];
	collet_status status = collet_copier_begin(device->cuda, copier);
	if (status != COLLET_OK)
		return status;
	status = collet_copier_add(device->cuda, copier, place, zeros, sizeof(zeros), what);
	if (status == COLLET_OK)
		status = collet_copier_add(device->cuda, copier, place, there, sizeof(words), what);
	if (status == COLLET_OK)
		status = collet_copier_add(device->cuda, copier, words, place, sizeof(words), what);
	const collet_status waited = collet_copier_wait(device->cuda, copier, what);
	collet_copier_end(device->cuda);
	*wrong = 0;
	for (uint32_t i = 0; i < WORDS && status == COLLET_OK && waited == COLLET_OK; i++)
		*wrong += words[i] != pattern(from, i);
	return status == COLLET_OK ? waited : status;
}

static struct link *find_link(
	const struct collet_device *device, const struct collet_copier *copier, const struct collet_shared *test)
{
	struct link *link = device->pulls->links;
	while (link && (link->process != test->process || link->allocation != test->allocation ||
			       link->context != copier->context))
		link = link->next;
	return link;
}

/* NULL; or why not. */
static const char *test_link(struct collet_device *device, uint32_t from, const struct collet_copier *copier,
	const struct collet_pull_offer *offer, bool *refused)
{
	const struct ground *ground = find_ground(device, copier);
	struct collet_direct_side side = offer->side;
	struct collet_opened *opened = NULL;
	struct link *link = NULL;
	const char *why = NULL;
	uint32_t wrong = 0;
	if (!ground || !ground->memory)
		return "this rank has no memory to test with";
	link = find_link(device, copier, &offer->test);
	if (!link) {
		side.first = (const void *)(uintptr_t)offer->test.first;
		side.bytes = WORDS * sizeof(uint32_t);
		side.shared = offer->test;
		const char *there = collet_device_reach(device, copier, &side, &opened, &why, refused);
		if (!there)
			return why;
		const collet_status status = count_wrong(device, ground, from, there, &wrong);
		collet_ipc_put(&device->ipc, opened);
		*refused = true;
		if (status != COLLET_OK)
			return collet_last_error();
		link = malloc(sizeof(*link));
		if (!link)
			return "no memory to note a test in";
		*link = (struct link){ device->pulls->links, offer->test.process, offer->test.allocation,
			copier->context, wrong };
		device->pulls->links = link;
	}
	*refused = link->wrong;
	if (!link->wrong)
		return NULL;
	(void)collet_fail(COLLET_ERR_SYSTEM,
		"cuda: of %d words that were copied from that GPU %u are wrong; is an IOMMU in the way?", WORDS,
		link->wrong);
	return collet_last_error();
}

static void complain(
	struct collet_device *device, const struct collet_engine *engine, uint32_t from, const char *why, bool refused)
{
	struct peer *peer = get_peer(device, from);
	if (!peer || peer->complained)
		return;
	peer->complained = true;
	collet_log(&engine->log, refused ? COLLET_LOG_WARN : COLLET_LOG_INFO,
		"cuda: messages from rank %u by way of the host, and not from its GPU to this one's: %s", from, why);
}

/* A thread's own memory is where it is: nothing is between a context and itself. */
static bool is_own(
	const struct collet_device *device, const struct collet_copier *copier, const struct collet_direct_side *side)
{
	return side->shared.process == device->process && side->ordinal == copier->ordinal;
}

char *collet_pull_reach(struct collet_device *device, const struct collet_engine *engine, uint32_t from,
	const struct collet_copier *copier, const struct collet_pull_offer *offer, struct collet_opened **opened,
	bool *again)
{
	const char *why = NULL;
	bool refused = false;
	char *there = NULL;
	*opened = NULL;
	*again = false;
	/* Progress is made by whichever thread waits, the program's own among them. */
	const int mode = collet_cuda_relax(device->cuda);
	if (!is_own(device, copier, &offer->side))
		why = test_link(device, from, copier, offer, &refused);
	if (!why) {
		there = collet_device_reach(device, copier, &offer->side, opened, &why, &refused);
		*again = !there && offer->side.shared.kind == COLLET_SHARED_DESCRIPTOR;
	}
	collet_cuda_relax_no_more(device->cuda, mode);
	if (!there && !*again)
		complain(device, engine, from, why, refused);
	return there;
}

void collet_pulls_free(struct collet_device *device)
{
	struct collet_pulls *pulls = device->pulls;
	if (!pulls)
		return;
	for (struct ground *ground = pulls->grounds, *next; ground; ground = next) {
		next = ground->next;
		free_ground(device, ground);
	}
	for (struct peer *peer = pulls->peers, *next; peer; peer = next) {
		next = peer->next;
		free(peer);
	}
	for (struct link *link = pulls->links, *next; link; link = next) {
		next = link->next;
		free(link);
	}
	free(pulls);
	device->pulls = NULL;
}
