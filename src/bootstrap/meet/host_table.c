#include "bootstrap/meet/host_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

struct collet_binding {
	uint64_t host;
	uint32_t bytes;                  /* 0: it could not say */
	uint8_t mask[];
};

enum { NOBODY = UINT32_MAX };

struct collet_site {
	uint64_t host;
	uint32_t ranks;                  /* that have come, and not gone */
	uint32_t asked;                  /* the rank that was asked and has not answered; NOBODY */
	bool answered;
	struct collet_machine machine;   /* without cpus: not known */
};

collet_status collet_sites_init(struct collet_sites *sites, uint32_t size)
{
	*sites = (struct collet_sites){ .size = size };
	sites->sites = calloc(size, sizeof(*sites->sites));
	sites->bindings = calloc(size, sizeof(*sites->bindings));
	if (sites->sites && sites->bindings)
		return COLLET_OK;
	collet_sites_deinit(sites);
	return collet_fail(COLLET_ERR_MEMORY, "no memory for the bindings of %u ranks", size);
}

void collet_sites_deinit(struct collet_sites *sites)
{
	for (uint32_t i = 0; sites->sites && i < sites->count; i++)
		collet_machine_deinit(&sites->sites[i].machine);
	for (uint32_t r = 0; sites->bindings && r < sites->size; r++)
		free(sites->bindings[r]);
	free(sites->sites);
	free(sites->bindings);
	*sites = (struct collet_sites){ 0 };
}

/* Every site but empty ones has a rank, and one more rank is about to come: there is room. */
static struct collet_site *site_of(struct collet_sites *sites, uint64_t host)
{
	struct collet_site *empty = NULL;
	for (uint32_t i = 0; i < sites->count; i++) {
		if (sites->sites[i].host == host)
			return &sites->sites[i];
		if (sites->sites[i].ranks == 0)
			empty = &sites->sites[i];
	}
	if (!empty) {
		assert(sites->count < sites->size);
		empty = &sites->sites[sites->count++];
	}
	collet_machine_deinit(&empty->machine);
	*empty = (struct collet_site){ .host = host, .asked = NOBODY };
	return empty;
}

static struct collet_site *find(const struct collet_sites *sites, uint64_t host)
{
	for (uint32_t i = 0; i < sites->count; i++)
		if (sites->sites[i].host == host)
			return &sites->sites[i];
	return NULL;
}

collet_status collet_sites_arrive(struct collet_sites *sites, uint32_t rank, uint64_t host, const void *mask,
	uint32_t bytes, bool *ask)
{
	assert(rank < sites->size && !sites->bindings[rank] && bytes <= COLLET_BINDING_BYTES);
	struct collet_binding *binding = malloc(sizeof(*binding) + bytes);
	if (!binding)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the binding of rank %u", rank);
	binding->host = host;
	binding->bytes = bytes;
	if (bytes)
		memcpy(binding->mask, mask, bytes);
	sites->bindings[rank] = binding;
	struct collet_site *site = site_of(sites, host);
	site->ranks++;
	*ask = site->ranks > 1 && !site->answered && site->asked == NOBODY;
	if (*ask) {
		site->asked = rank;
		sites->unanswered++;
	}
	return COLLET_OK;
}

void collet_sites_leave(struct collet_sites *sites, uint32_t rank)
{
	struct collet_binding *binding = sites->bindings[rank];
	if (!binding)
		return;
	struct collet_site *site = find(sites, binding->host);
	site->ranks--;
	if (site->asked == rank) {
		site->asked = NOBODY;
		sites->unanswered--;
	}
	free(binding);
	sites->bindings[rank] = NULL;
}

bool collet_sites_asked(const struct collet_sites *sites, uint32_t rank)
{
	const struct collet_binding *binding = sites->bindings[rank];
	return binding && find(sites, binding->host)->asked == rank;
}

bool collet_sites_answer(struct collet_sites *sites, uint32_t rank, const void *cpus, uint32_t bytes)
{
	const uint32_t count = bytes / (uint32_t)sizeof(struct collet_spot);
	if (!collet_sites_asked(sites, rank) || bytes % sizeof(struct collet_spot) || count > COLLET_CPUS_MOST)
		return false;
	struct collet_site *site = find(sites, sites->bindings[rank]->host);
	site->asked = NOBODY;
	site->answered = true;
	sites->unanswered--;
	/* Without memory for it, the host is one that nothing is known of. */
	site->machine.cpus = count ? malloc(bytes) : NULL;
	if (site->machine.cpus) {
		memcpy(site->machine.cpus, cpus, bytes);
		site->machine.cpu_count = count;
	}
	return true;
}

/* How many hardware threads the ranks of a host may use together, as far as their bindings say; 0: they do not. */
static uint32_t threads_of(const struct collet_sites *sites, const struct collet_site *site)
{
	uint8_t all[COLLET_BINDING_BYTES] = { 0 };
	uint32_t count = 0;
	for (uint32_t r = 0; r < sites->size; r++) {
		const struct collet_binding *binding = sites->bindings[r];
		for (uint32_t i = 0; binding && binding->host == site->host && i < binding->bytes; i++)
			all[i] |= binding->mask[i];
	}
	for (size_t i = 0; i < sizeof(all); i++)
		count += (uint32_t)__builtin_popcount(all[i]);
	return count;
}

/* The same, and no more than the tightest CPU quota leaves; where bindings cannot be read, what a rank may use. */
static uint32_t cores_of(
	const struct collet_sites *sites, const struct collet_site *site, const struct collet_card *cards)
{
	uint32_t cores = threads_of(sites, site);
	for (uint32_t r = 0; r < sites->size; r++) {
		const struct collet_binding *binding = sites->bindings[r];
		if (!binding || binding->host != site->host)
			continue;
		cores = binding->bytes == 0 && cards[r].usable_cores > cores ? cards[r].usable_cores : cores;
		cores = cards[r].quota_cores && cards[r].quota_cores < cores ? cards[r].quota_cores : cores;
	}
	return cores;
}

void collet_sites_place(const struct collet_sites *sites, struct collet_card *cards)
{
	for (uint32_t i = 0; i < sites->count; i++) {
		const struct collet_site *site = &sites->sites[i];
		const uint32_t cores = site->ranks ? cores_of(sites, site, cards) : 0;
		for (uint32_t r = 0; r < sites->size; r++) {
			const struct collet_binding *binding = sites->bindings[r];
			if (!binding || binding->host != site->host)
				continue;
			cards[r].host_cores = (uint16_t)cores;
			cards[r].spot = collet_machine_spot(&site->machine, binding->mask, binding->bytes);
		}
	}
}
