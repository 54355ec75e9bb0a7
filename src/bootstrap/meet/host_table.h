/* What rank 0 finds out about hosts while ranks come: who runs where. Each rank hands in its binding with its card; of
 * a host with several ranks one is asked how the host is built (topology/machine.h), for reading that is dear. From
 * both follows each rank's spot, which goes to all ranks in the cards. */
#ifndef COLLET_BOOTSTRAP_MEET_HOST_TABLE_H
#define COLLET_BOOTSTRAP_MEET_HOST_TABLE_H

#include <collet/transport.h>

#include "topology/machine.h"

/* Zero-initialise. */
struct collet_host_table {
	struct collet_host_entry *hosts;
	uint32_t count;
	uint32_t unanswered_count;       /* ranks that were asked and have not said */
	struct collet_binding **bindings;/* by rank; NULL: it is not there */
	uint32_t size;
};

collet_status collet_host_table_init(struct collet_host_table *table, uint32_t size);
void collet_host_table_deinit(struct collet_host_table *table);

/* A rank has come, with a mask as collet_binding_read() gives it. *ask: it is the one to be asked about its host.
 * COLLET_ERR_MEMORY. */
collet_status collet_host_table_add_rank(struct collet_host_table *table, uint32_t rank, uint64_t host,
	const void *mask, uint32_t bytes, bool *must_ask);
/* It has gone: if it was asked, the next one to come of its host will be. */
void collet_host_table_remove_rank(struct collet_host_table *table, uint32_t rank);
bool collet_host_table_is_asked(const struct collet_host_table *table, uint32_t rank);
/* The asked one's answer: cpus as in struct collet_machine; 0 bytes: it cannot tell. False: nobody asked, or it makes
 * no sense. */
bool collet_host_table_set_machine(struct collet_host_table *table, uint32_t rank, const void *cpus, uint32_t bytes);

/* All have come and answered: fills in the cards' spot and host_cores. */
void collet_host_table_fill_infos(const struct collet_host_table *table, struct collet_peer_info *infos);

#endif
