/* Which host and which process this is, in numbers that ranks can compare. */
#ifndef COLLET_BOOTSTRAP_IDENTITY_H
#define COLLET_BOOTSTRAP_IDENTITY_H

#include <collet/transport.h>

/* COLLET_HOST_ID, else the boot id and the network namespace: containers that share neither Unix sockets nor loopback
 * count as different hosts. Falls back to the host name where /proc is missing. */
collet_status collet_host_id(uint64_t *id);
/* Process number and start time, in its namespace, on its host: never used twice. */
collet_status collet_process_id(uint64_t host_id, uint64_t *id);
/* Is the process of this number, as this one sees it, that of this id? */
bool collet_process_matches(uint64_t host_id, uint32_t pid, uint64_t id);

/* Fills host_id, process_id, pid, uid, host, usable_cores; host_cores and spot as of a rank that is alone. */
collet_status collet_peer_info_fill_host(struct collet_peer_info *info);

#endif
