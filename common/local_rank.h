/* Which of its host's ranks this process is, for those who open its GPU before they create the communicator, as ranks
 * that are to use GPUs together must. */
#ifndef COLLET_COMMON_LOCAL_RANK_H
#define COLLET_COMMON_LOCAL_RANK_H

#include <collet/collet.h>

/* As its launcher says. Where no launcher says so, the ranks meet once for that, which knows nothing of GPUs: comm_options are
 * what they are going to create their communicator with. What that came to. */
collet_status local_rank_find(const collet_options *comm_options, uint32_t *local_rank);

#endif
