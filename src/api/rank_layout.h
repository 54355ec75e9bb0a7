/* Orders a communicator's ranks. Algorithms see positions in such an order, not ranks. */
#ifndef COLLET_API_RANK_LAYOUT_H
#define COLLET_API_RANK_LAYOUT_H

#include "collectives/program.h"

/* One order of the ranks. */
struct collet_layout {
	uint32_t *order, *host_first; /* as in struct collet_shape; order is NULL if positions are ranks */
	uint32_t *position;           /* indexed by rank; NULL likewise */
	uint32_t host_count;
};

/* Finds both layouts, local_rank and local_size. After a failure collet_layouts_deinit() frees what there is. */
collet_status collet_layouts_find(collet_comm *comm);
void collet_layouts_deinit(collet_comm *comm);
/* Orders positions by host, where the result may depend on that (docs/design.md, "Same inputs, same bits"). */
void collet_layout_by_host(const collet_comm *comm, struct collet_shape *shape, bool commutes);
/* Orders positions by cache too, if that changes no bit of the result and the chosen program allows it. */
void collet_layout_by_locality(const collet_comm *comm, struct collet_shape *shape,
	const struct collet_program *program, collet_dtype dtype, collet_op op);

#endif
