#include "bootstrap/meet/host_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

struct collet_binding {
	uint64_t host;
	uint32_t bytes;                  /* of mask; 0: not known */
	uint8_t mask[];
};

enum { NO_RANK = UINT32_MAX };

struct collet_host_entry {
	uint64_t host;
	uint32_t rank_count;             /* registered ones */
	uint32_t asked_rank;             /* the rank that was asked and has not answered, or NO_RANK */
	bool answered;
	struct collet_host_topology topology; /* no cpus: not known */
};

collet_status collet_host_table_init(struct collet_host_table *table, uint32_t size)
{
	*table = (struct collet_host_table){ .size = size };
	table->hosts = calloc(size, sizeof(*table->hosts));
	table->bindings = calloc(size, sizeof(*table->bindings));
	if (table->hosts && table->bindings)
		return COLLET_OK;
	collet_host_table_deinit(table);
	return collet_fail(COLLET_ERR_MEMORY, "no memory for the bindings of %u ranks", size);
}

void collet_host_table_deinit(struct collet_host_table *table)
{
	for (uint32_t i = 0; table->hosts && i < table->count; i++)
		collet_host_topology_deinit(&table->hosts[i].topology);
	for (uint32_t r = 0; table->bindings && r < table->size; r++)
		free(table->bindings[r]);
	free(table->hosts);
	free(table->bindings);
	*table = (struct collet_host_table){ 0 };
}

/* Finds the entry of a host, or makes one. There is room: every other entry that is not empty has a registered rank,
 * and the caller is about to add one more. */
static struct collet_host_entry *find_or_add_host(struct collet_host_table *table, uint64_t host)
{
	struct collet_host_entry *empty = NULL;
	for (uint32_t i = 0; i < table->count; i++) {
		if (table->hosts[i].host == host)
			return &table->hosts[i];
		if (table->hosts[i].rank_count == 0)
			empty = &table->hosts[i];
	}
	if (!empty) {
		assert(table->count < table->size);
		empty = &table->hosts[table->count++];
	}
	collet_host_topology_deinit(&empty->topology);
	*empty = (struct collet_host_entry){ .host = host, .asked_rank = NO_RANK };
	return empty;
}

static struct collet_host_entry *find_host(const struct collet_host_table *table, uint64_t host)
{
	for (uint32_t i = 0; i < table->count; i++)
		if (table->hosts[i].host == host)
			return &table->hosts[i];
	return NULL;
}

collet_status collet_host_table_add_rank(
	struct collet_host_table *table, uint32_t rank, uint64_t host, const void *mask, uint32_t bytes, bool *must_ask)
{
	assert(rank < table->size && !table->bindings[rank] && bytes <= COLLET_BINDING_BYTES);
	struct collet_binding *binding = malloc(sizeof(*binding) + bytes);
	if (!binding)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the binding of rank %u", rank);
	binding->host = host;
	binding->bytes = bytes;
	if (bytes)
		memcpy(binding->mask, mask, bytes);
	table->bindings[rank] = binding;
	struct collet_host_entry *entry = find_or_add_host(table, host);
	entry->rank_count++;
	*must_ask = entry->rank_count > 1 && !entry->answered && entry->asked_rank == NO_RANK;
	if (*must_ask) {
		entry->asked_rank = rank;
		table->unanswered_count++;
	}
	return COLLET_OK;
}

void collet_host_table_remove_rank(struct collet_host_table *table, uint32_t rank)
{
	struct collet_binding *binding = table->bindings[rank];
	if (!binding)
		return;
	struct collet_host_entry *entry = find_host(table, binding->host);
	entry->rank_count--;
	if (entry->asked_rank == rank) {
		entry->asked_rank = NO_RANK;
		table->unanswered_count--;
	}
	free(binding);
	table->bindings[rank] = NULL;
}

bool collet_host_table_is_asked(const struct collet_host_table *table, uint32_t rank)
{
	const struct collet_binding *binding = table->bindings[rank];
	return binding && find_host(table, binding->host)->asked_rank == rank;
}

bool collet_host_table_set_topology(struct collet_host_table *table, uint32_t rank, const void *cpus, uint32_t bytes)
{
	const uint32_t count = bytes / (uint32_t)sizeof(struct collet_locality);
	if (!collet_host_table_is_asked(table, rank) || bytes % sizeof(struct collet_locality) ||
		count > COLLET_MAX_CPUS)
		return false;
	struct collet_host_entry *entry = find_host(table, table->bindings[rank]->host);
	entry->asked_rank = NO_RANK;
	entry->answered = true;
	table->unanswered_count--;
	/* Without memory for it, the host's topology stays unknown. */
	entry->topology.cpus = count ? malloc(bytes) : NULL;
	if (entry->topology.cpus) {
		memcpy(entry->topology.cpus, cpus, bytes);
		entry->topology.cpu_count = count;
	}
	return true;
}

/* Counts the hardware threads that the ranks of a host may use together. Returns 0 if no binding is known. */
static uint32_t count_threads(const struct collet_host_table *table, const struct collet_host_entry *entry)
{
	uint8_t all[COLLET_BINDING_BYTES] = { 0 };
	uint32_t count = 0;
	for (uint32_t r = 0; r < table->size; r++) {
		const struct collet_binding *binding = table->bindings[r];
		for (uint32_t i = 0; binding && binding->host == entry->host && i < binding->bytes; i++)
			all[i] |= binding->mask[i];
	}
	for (size_t i = 0; i < sizeof(all); i++)
		count += (uint32_t)__builtin_popcount(all[i]);
	return count;
}

/* Does the same, limited by the tightest CPU quota. The result is at least the usable_cores of each rank whose binding
 * is not known, if the quota allows it. */
static uint32_t count_cores(const struct collet_host_table *table, const struct collet_host_entry *entry,
	const struct collet_peer_info *infos)
{
	uint32_t cores = count_threads(table, entry);
	for (uint32_t r = 0; r < table->size; r++) {
		const struct collet_binding *binding = table->bindings[r];
		if (!binding || binding->host != entry->host)
			continue;
		cores = binding->bytes == 0 && infos[r].usable_cores > cores ? infos[r].usable_cores : cores;
		cores = infos[r].quota_cores && infos[r].quota_cores < cores ? infos[r].quota_cores : cores;
	}
	return cores;
}

void collet_host_table_fill_infos(const struct collet_host_table *table, struct collet_peer_info *infos)
{
	for (uint32_t i = 0; i < table->count; i++) {
		const struct collet_host_entry *entry = &table->hosts[i];
		const uint32_t cores = entry->rank_count ? count_cores(table, entry, infos) : 0;
		for (uint32_t r = 0; r < table->size; r++) {
			const struct collet_binding *binding = table->bindings[r];
			if (!binding || binding->host != entry->host)
				continue;
			infos[r].host_cores = (uint16_t)cores;
			infos[r].locality =
				collet_host_topology_locality(&entry->topology, binding->mask, binding->bytes);
		}
	}
}
