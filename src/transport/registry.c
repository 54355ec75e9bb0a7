/* A rank's transports: which there are, in which order, and their devices. */
#include "transport/registry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "transport/transports-built.h"

extern const struct collet_transport collet_self_transport;
#ifdef COLLET_HAVE_SHM
extern const struct collet_transport collet_shm_transport;
#endif
#ifdef COLLET_HAVE_TCP
extern const struct collet_transport collet_tcp_transport;
#endif

/* Building in a transport is a folder and a line here. */
const struct collet_transport *const collet_transports[] = {
#ifdef COLLET_HAVE_SELF
	&collet_self_transport,
#endif
#ifdef COLLET_HAVE_SHM
	&collet_shm_transport,
#endif
#ifdef COLLET_HAVE_TCP
	&collet_tcp_transport,
#endif
	NULL,
};

static const struct {
	const char *name;
	collet_status (*wrap)(struct collet_offer *offer, const struct collet_device_config *config);
} wrappers[] = {
	{ "trace", collet_trace_wrap },
	{ "faulty", collet_faulty_wrap },
};
enum { WRAPPERS = sizeof(wrappers) / sizeof(wrappers[0]) };

/* ---- One ---- */

static void free_offer(struct collet_offer *offer, bool forked)
{
	if (!offer)
		return;
	/* In a forked child a device is the parent's, and its module's threads and locks are not here. */
	if (offer->device && !forked)
		offer->transport->device_close(offer->device);
	free_offer(offer->inner, forked);
	if (offer->module && !forked)
		dlclose(offer->module);
	free(offer);
}

static collet_status open_device(struct collet_offer *offer, const struct collet_device_config *config)
{
	if (!offer->transport->device_open)
		return COLLET_OK;
	const collet_status status = offer->transport->device_open(&offer->device, config, &offer->info);
	if (status != COLLET_OK) {
		const size_t length = strlen(offer->name);
		const char *why = collet_last_error();
		offer->device = NULL;
		if (strncmp(why, offer->name, length) != 0 || why[length] != ':')
			collet_error_prefix("transport %s", offer->name);
		return status;
	}
	offer->info.text[sizeof(offer->info.text) - 1] = '\0';
	if (offer->info.card_bytes > sizeof(offer->info.card))
		return collet_fail(COLLET_ERR_TRANSPORT,
			"transport %s: puts %u bytes on the card, which has room for %zu", offer->name,
			offer->info.card_bytes, sizeof(offer->info.card));
	return COLLET_OK;
}

static const struct collet_transport *find_built_in(const char *name)
{
	for (uint32_t i = 0; collet_transports[i]; i++)
		if (strcmp(collet_transports[i]->name, name) == 0)
			return collet_transports[i];
	return NULL;
}

/* A transport of its own, not a wrapper. */
static collet_status fill_plain(
	struct collet_offer *offer, const char *name, const struct collet_device_config *config)
{
	offer->transport = find_built_in(name);
	if (!offer->transport) {
		const collet_status status = collet_module_load(offer, name, config->log);
		if (status != COLLET_OK)
			return status;
		offer->transport = &offer->own;
	}
	return open_device(offer, config);
}

static collet_status make_offer(
	struct collet_offer **made, const char *name, const struct collet_device_config *config);

static collet_status fill_wrapper(struct collet_offer *offer, const char *name, size_t wrapper_length,
	const struct collet_device_config *config)
{
	for (uint32_t w = 0; w < WRAPPERS; w++) {
		if (strlen(wrappers[w].name) != wrapper_length ||
			memcmp(wrappers[w].name, name, wrapper_length) != 0)
			continue;
		collet_status status = make_offer(&offer->inner, name + wrapper_length + 1, config);
		if (status != COLLET_OK)
			return status;
		offer->transport = &offer->own;
		status = wrappers[w].wrap(offer, config);
		offer->info = offer->inner->info;
		return status;
	}
	return collet_fail(COLLET_ERR_CONFIG, "there is no wrapper \"%.*s\" (in \"%s\"); there are trace and faulty",
		(int)wrapper_length, name, name);
}

/* name: "tcp", "faulty:tcp", "trace:faulty:tcp". */
static collet_status make_offer(
	struct collet_offer **made, const char *name, const struct collet_device_config *config)
{
	if (strlen(name) >= COLLET_TRANSPORT_NAME_BYTES)
		return collet_fail(COLLET_ERR_CONFIG, "the transport's name \"%s\" is longer than %d characters", name,
			COLLET_TRANSPORT_NAME_BYTES - 1);
	struct collet_offer *offer = calloc(1, sizeof(*offer));
	if (!offer)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a transport");
	strcpy(offer->name, name);
	const char *colon = strchr(name, ':');
	const collet_status status = colon ? fill_wrapper(offer, name, (size_t)(colon - name), config)
					   : fill_plain(offer, name, config);
	if (status != COLLET_OK) {
		free_offer(offer, false);
		return status;
	}
	*made = offer;
	return COLLET_OK;
}

/* ---- All ---- */

static collet_status add(struct collet_transport_set *set, struct collet_offer *offer)
{
	if (set->count == COLLET_OFFERS_MOST) {
		const collet_status status = collet_fail(COLLET_ERR_CONFIG,
			"transport %s: a rank has room for %d transports; name those wanted in COLLET_TRANSPORT",
			offer->name, COLLET_CARD_TRANSPORTS);
		free_offer(offer, false);
		return status;
	}
	/* self is first; of equals, the one that came first. */
	uint32_t at = set->count++;
	for (; at > 1 && set->offer[at - 1]->transport->priority < offer->transport->priority; at--)
		set->offer[at] = set->offer[at - 1];
	set->offer[at] = offer;
	set->learns |= offer->transport->memory_register != NULL;
	return COLLET_OK;
}

/* COLLET_TRANSPORT's: each is wanted. */
static collet_status add_named(
	struct collet_transport_set *set, const char *text, const struct collet_device_config *config)
{
	for (const char *at = text;;) {
		const size_t length = strcspn(at, ",");
		char name[64];
		snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : sizeof(name) - 1), at);
		if (!collet_offer_find(set, name, NULL)) {
			struct collet_offer *offer;
			collet_status status = make_offer(&offer, name, config);
			if (status == COLLET_OK)
				status = add(set, offer);
			if (status != COLLET_OK)
				return status;
		}
		if (!at[length])
			return COLLET_OK;
		at += length + 1;
	}
}

/* All there are; a module that will not do is passed over. */
static collet_status add_all(struct collet_transport_set *set, const struct collet_device_config *config)
{
	for (uint32_t i = 0; collet_transports[i]; i++) {
		struct collet_offer *offer;
		if (collet_offer_find(set, collet_transports[i]->name, NULL))
			continue;
		collet_status status = make_offer(&offer, collet_transports[i]->name, config);
		if (status == COLLET_OK)
			status = add(set, offer);
		if (status != COLLET_OK)
			return status;
	}
	uint32_t count;
	char (*names)[COLLET_TRANSPORT_NAME_BYTES] = collet_module_names(&count);
	for (uint32_t i = 0; i < count; i++) {
		struct collet_offer *offer;
		if (collet_offer_find(set, names[i], NULL))
			continue;  /* what is built in cannot be replaced */
		collet_status status = make_offer(&offer, names[i], config);
		const bool absent = status == COLLET_ERR_UNSUPPORTED;  /* as on most machines */
		if (status == COLLET_OK)
			status = add(set, offer);
		if (status != COLLET_OK)
			collet_log(config->log, absent ? COLLET_LOG_INFO : COLLET_LOG_WARN,
				"transport module %s is passed over: %s", names[i], collet_last_error());
	}
	free(names);
	return COLLET_OK;
}

/* What the others will know of this rank's transports. */
static collet_status fill_card(const struct collet_transport_set *set, struct collet_card *card)
{
	uint32_t used = 0;
	memset(card->transports, 0, sizeof(card->transports));
	memset(card->data, 0, sizeof(card->data));
	card->link_mbps = 0;
	for (uint32_t i = 1; i < set->count; i++) {
		const struct collet_offer *offer = set->offer[i];
		struct collet_card_transport *row = &card->transports[i - 1];
		if (offer->info.card_bytes > sizeof(card->data) - used)
			return collet_fail(COLLET_ERR_CONFIG,
				"transport %s: no room is left on the rank's card for its %u bytes; name fewer "
				"transports in COLLET_TRANSPORT",
				offer->name, offer->info.card_bytes);
		strcpy(row->name, offer->name);
		row->first = (uint8_t)used;
		row->bytes = (uint8_t)offer->info.card_bytes;
		memcpy(card->data + used, offer->info.card, offer->info.card_bytes);
		used += offer->info.card_bytes;
		if (!card->link_mbps)  /* of the best that has something to say; TCP's is found with its address */
			card->link_mbps = offer->info.link_mbps;
	}
	return COLLET_OK;
}

collet_status collet_transports_open(struct collet_transport_set *set, const char *text,
	const struct collet_device_config *config, struct collet_card *card)
{
	struct collet_offer *self;
	*set = (struct collet_transport_set){ .process = (uint32_t)getpid() };
	pthread_mutex_init(&set->lock, NULL);
	collet_status status = make_offer(&self, "self", config);
	if (status == COLLET_OK)
		status = add(set, self);
	if (status == COLLET_OK)
		status = text ? add_named(set, text, config) : add_all(set, config);
	if (status == COLLET_OK)
		status = fill_card(set, card);
	if (status != COLLET_OK) {
		collet_transports_close(set, false);
		return status;
	}
	for (uint32_t i = 0; i < set->count; i++)
		if (set->offer[i]->info.text[0])
			collet_log(config->log, COLLET_LOG_INFO, "transport %s: %s", set->offer[i]->name,
				set->offer[i]->info.text);
	return COLLET_OK;
}

void collet_transports_close(struct collet_transport_set *set, bool forked)
{
	if (!set->count)
		return;
	while (set->known_count && !forked)
		collet_transports_forget(set, set->known[set->known_count - 1].first);
	for (uint32_t i = 0; i < set->count; i++)
		free_offer(set->offer[i], forked);
	free(set->known);
	if (!forked)
		pthread_mutex_destroy(&set->lock);
	*set = (struct collet_transport_set){ 0 };
}

/* ---- Asking ---- */

const struct collet_offer *collet_offer_find(const struct collet_transport_set *set, const char *name, uint32_t *index)
{
	for (uint32_t i = 0; i < set->count; i++) {
		if (strcmp(set->offer[i]->name, name) != 0)
			continue;
		if (index)
			*index = i;
		return set->offer[i];
	}
	return NULL;
}

static bool lists(const struct collet_card *card, const char *name)
{
	for (uint32_t i = 0; i < COLLET_CARD_TRANSPORTS; i++)
		if (strncmp(card->transports[i].name, name, COLLET_TRANSPORT_NAME_BYTES) == 0)
			return true;
	return false;
}

bool collet_offer_reaches(
	const struct collet_offer *offer, const struct collet_card *self, const struct collet_card *peer)
{
	if (strcmp(offer->name, "self") != 0 && !lists(peer, offer->name))
		return false;
	while (offer->inner)
		offer = offer->inner;
	return offer->transport->reaches(self, peer);
}

/* Is that its name, or that of what it wraps? */
static bool is_named(const char *listed, const char *name)
{
	const size_t length = strlen(name), bytes = strnlen(listed, COLLET_TRANSPORT_NAME_BYTES);
	return bytes >= length && memcmp(listed + bytes - length, name, length) == 0 &&
		(bytes == length || listed[bytes - length - 1] == ':');
}

bool collet_card_has(const struct collet_card *card, const char *name)
{
	for (uint32_t i = 0; i < COLLET_CARD_TRANSPORTS; i++)
		if (is_named(card->transports[i].name, name))
			return true;
	return false;
}

bool collet_card_has_no_rdma(const struct collet_card *card)
{
	for (uint32_t i = 0; i < COLLET_CARD_TRANSPORTS; i++) {
		const char *listed = card->transports[i].name;
		if (listed[0] && !is_named(listed, "self") && !is_named(listed, "shm") && !is_named(listed, "tcp"))
			return false;
	}
	return true;
}

/* ---- Memory ---- */

/* Under lock. NULL: no memory for one more. */
static struct collet_known_memory *next_known(struct collet_transport_set *set)
{
	if (set->known_count == set->known_capacity) {
		const size_t capacity = set->known_capacity ? 2 * set->known_capacity : 16;
		struct collet_known_memory *known = realloc(set->known, capacity * sizeof(*known));
		if (!known)
			return NULL;
		set->known = known;
		set->known_capacity = capacity;
	}
	struct collet_known_memory *next = &set->known[set->known_count];
	*next = (struct collet_known_memory){ 0 };
	return next;
}

collet_status collet_transports_learn(
	struct collet_transport_set *set, const struct collet_log *log, const struct collet_memory *memory)
{
	collet_status failed = COLLET_OK;
	if (!set->learns)
		return COLLET_OK;
	pthread_mutex_lock(&set->lock);
	struct collet_known_memory *known = next_known(set);
	if (!known)
		failed = collet_fail(COLLET_ERR_MEMORY, "no memory to register memory");
	for (uint32_t i = 0; known && i < set->count; i++) {
		const struct collet_offer *offer = set->offer[i];
		if (!offer->transport->memory_register)
			continue;
		const collet_status status =
			offer->transport->memory_register(offer->device, memory, &known->registration[i]);
		if (status == COLLET_OK)
			continue;
		known->registration[i] = NULL;
		collet_log(log, COLLET_LOG_INFO, "transport %s does not register %llu bytes at %p: %s", offer->name,
			(unsigned long long)memory->bytes, memory->first, collet_last_error());
		if (memory->kind == COLLET_MEMORY_GPU)
			failed = status;
	}
	if (known) {
		known->first = memory->first;
		known->bytes = memory->bytes;
		set->known_count++;
	}
	pthread_mutex_unlock(&set->lock);
	if (failed != COLLET_OK && known)
		collet_transports_forget(set, memory->first);
	return failed;
}

void collet_transports_forget(struct collet_transport_set *set, const void *first)
{
	if (!set->learns || set->process != (uint32_t)getpid())
		return;
	pthread_mutex_lock(&set->lock);
	for (size_t k = set->known_count; k-- > 0;) {
		if (set->known[k].first != first)
			continue;
		const struct collet_known_memory known = set->known[k];
		set->known[k] = set->known[--set->known_count];
		for (uint32_t i = 0; i < set->count; i++)
			if (known.registration[i])
				set->offer[i]->transport->memory_deregister(
					set->offer[i]->device, known.registration[i]);
		break;
	}
	pthread_mutex_unlock(&set->lock);
}

/* Under lock. */
static bool is_taken(const struct collet_transport_set *set, const struct collet_known_memory *known)
{
	for (uint32_t i = 0; i < set->count; i++)
		if (known->registration[i] && set->offer[i]->transport->takes_gpu)
			return true;
	return false;
}

bool collet_transports_know_gpu(struct collet_transport_set *set, const void *first, uint64_t bytes)
{
	const char *begin = first;
	bool found = false;
	pthread_mutex_lock(&set->lock);
	for (size_t k = 0; k < set->known_count && !found; k++) {
		const char *known = set->known[k].first;
		found = begin >= known && bytes <= set->known[k].bytes &&
			(uint64_t)(begin - known) <= set->known[k].bytes - bytes && is_taken(set, &set->known[k]);
	}
	pthread_mutex_unlock(&set->lock);
	return found;
}

bool collet_transports_take_gpu(
	const struct collet_transport_set *set, const struct collet_card *self, const struct collet_card *peer)
{
	for (uint32_t i = 0; i < set->count; i++)
		if (collet_offer_reaches(set->offer[i], self, peer))
			return set->offer[i]->transport->takes_gpu;
	return false;
}
