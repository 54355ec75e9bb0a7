/* Collects on rank 0 where each rank runs. Each rank sends its CPU binding with its peer info. On a host with several
 * ranks, one rank is asked for the host's topology (topology/host_topology.h), because reading it is expensive. From
 * both rank 0 computes each rank's locality, which all ranks receive in the peer infos. */
#ifndef COLLET_BOOTSTRAP_MEET_HOST_TABLE_H
#define COLLET_BOOTSTRAP_MEET_HOST_TABLE_H

#include <collet/transport.h>

#include "topology/host_topology.h"

/* A zeroed table is empty. */
struct collet_host_table {
	struct collet_host_entry *hosts;
	uint32_t count;
	uint32_t unanswered_count;        /* ranks that were asked and have not answered */
	struct collet_binding **bindings; /* by rank; NULL if the rank is not registered */
	uint32_t size;
};

collet_status collet_host_table_init(struct collet_host_table *table, uint32_t size);
void collet_host_table_deinit(struct collet_host_table *table);

/* Adds a rank with its mask, which is one of collet_binding_read(). Sets *must_ask if this rank is to be asked for its
 * host's topology. Fails with COLLET_ERR_MEMORY. */
collet_status collet_host_table_add_rank(struct collet_host_table *table, uint32_t rank, uint64_t host,
	const void *mask, uint32_t bytes, bool *must_ask);
/* Removes a rank that has disconnected. If it was asked, the next rank of its host that registers will be. */
void collet_host_table_remove_rank(struct collet_host_table *table, uint32_t rank);
/* True if the rank was asked and has not answered. */
bool collet_host_table_is_asked(const struct collet_host_table *table, uint32_t rank);
/* Stores the answer of a rank: the cpus of struct collet_host_topology, or 0 bytes if it cannot read them. Returns
 * false if the rank was not asked or the answer is not valid. */
bool collet_host_table_set_topology(struct collet_host_table *table, uint32_t rank, const void *cpus, uint32_t bytes);

/* Fills in locality and host_cores of all peer infos. All ranks must be registered, and all asked ones must have
 * answered. */
void collet_host_table_fill_infos(const struct collet_host_table *table, struct collet_peer_info *infos);

#endif
