/* Identifies this host and this process by numbers that ranks can compare. */
#ifndef COLLET_BOOTSTRAP_IDENTITY_H
#define COLLET_BOOTSTRAP_IDENTITY_H

#include <collet/transport.h>

/* Hashes COLLET_HOST_ID, else the boot id and the network namespace. So containers that share neither Unix sockets nor
 * loopback count as different hosts. Uses the host name where /proc is missing. */
collet_status collet_host_id(uint64_t *id);
/* Hashes the process number and its start time, PID namespace and host. No two processes have the same id. */
collet_status collet_process_id(uint64_t host_id, uint64_t *id);
/* True if the process that has this number in our PID namespace is the one with this id. */
bool collet_process_matches(uint64_t host_id, uint32_t pid, uint64_t id);

/* Fills in host_id, process_id, pid, uid, host, cpu, usable_cores and quota_cores, and allows_cma from COLLET_SHM_CMA.
 * Sets host_cores and locality as for a rank that is alone on its host. */
collet_status collet_peer_info_fill_host(struct collet_peer_info *info);

#endif
