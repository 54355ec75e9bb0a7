/* The lists that form the table of algorithms: the programs of each collective, best for small messages first. */
#ifndef COLLET_COLLECTIVES_PROGRAM_LISTS_H
#define COLLET_COLLECTIVES_PROGRAM_LISTS_H

#include "collectives/program.h"

struct collet_program_list {
	const struct collet_program *const *programs;
	size_t count;
};

#define PROGRAM_LIST(rows) { .programs = (rows), .count = sizeof(rows) / sizeof((rows)[0]) }

/* programs_reducing.c */
extern const struct collet_program_list collet_allreduce_programs;
extern const struct collet_program_list collet_reduce_programs;
extern const struct collet_program_list collet_reduce_scatter_programs;

/* programs_moving.c */
extern const struct collet_program_list collet_broadcast_programs;
extern const struct collet_program_list collet_barrier_programs;
extern const struct collet_program_list collet_allgather_programs;
extern const struct collet_program_list collet_gather_programs;
extern const struct collet_program_list collet_scatter_programs;
extern const struct collet_program_list collet_alltoall_programs;

/* In no list: the inter-host parts of `hierarchical`, which the engine runs if GPUs do the work inside hosts. */
/* programs_reducing.c */
extern const struct collet_program collet_allreduce_inter_host, collet_reduce_inter_host,
	collet_reduce_scatter_inter_host;
extern const struct collet_program collet_broadcast_inter_host, collet_allgather_inter_host; /* programs_moving.c */

#endif
