/* Finds this process's local rank, for programs that open its GPU before they create the communicator. Ranks that
 * share GPUs must do so. */
#ifndef COLLET_COMMON_LOCAL_RANK_H
#define COLLET_COMMON_LOCAL_RANK_H

#include <collet/collet.h>

/* Sets *local_rank as the launcher says. Without a launcher's word the ranks create a communicator once for it,
 * without GPUs. comm_options are those of the communicator to be created. Returns the status of that. */
collet_status local_rank_find(const collet_options *comm_options, uint32_t *local_rank);

#endif
