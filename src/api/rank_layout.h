/* The order in which a communicator's ranks stand. */
#ifndef COLLET_API_RANK_LAYOUT_H
#define COLLET_API_RANK_LAYOUT_H

#include "collectives/program.h"

/* Ranks in an order, and where this one stands in it. */
struct collet_layout {
	uint32_t *order, *host_first; /* as in struct collet_shape; order NULL: positions are ranks */
	uint32_t *position;           /* by rank; NULL: likewise */
	uint32_t host_count;
};

/* Both layouts, local_rank and local_size. On failure what is there is left for deinit. */
collet_status collet_layouts_find(collet_comm *comm);
void collet_layouts_deinit(collet_comm *comm);
/* Positions follow hosts where the result may depend on them (see docs/design.md, Same inputs, same bits). */
void collet_layout_by_host(const collet_comm *comm, struct collet_shape *shape, bool commutes);
/* Once the program is chosen: positions follow caches too, where that changes no bit and the program can. */
void collet_layout_by_locality(const collet_comm *comm, struct collet_shape *shape,
	const struct collet_program *program, collet_dtype dtype, collet_op op);

#endif
