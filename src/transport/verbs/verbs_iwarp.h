/* verbs: connecting the queue pairs of iWARP adapters by rdma_cm. Built without librdmacm's headers,
 * verbs_iwarp_none.c defines these functions and refuses every adapter. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_IWARP_H
#define COLLET_TRANSPORT_VERBS_VERBS_IWARP_H

#include "verbs_endpoint.h"

/* Finds the IP address of an iWARP adapter. Returns NULL on success, else why the adapter cannot be used. */
const char *collet_verbs_iwarp_address(struct collet_device *device, struct verbs_adapter *adapter);
/* Accepting end: listens on each adapter and writes the ports into the hello. */
collet_status collet_verbs_iwarp_listen(struct verbs_endpoint *verbs);
/* Dialing end: starts to connect its queue pairs to the ports in the peer's hello. */
collet_status collet_verbs_iwarp_connect(struct verbs_endpoint *verbs);
/* Handles rdma_cm events. Returns COLLET_OK when all queue pairs are connected, else COLLET_PENDING or an error. */
collet_status collet_verbs_iwarp_connect_progress(struct verbs_endpoint *verbs);
void collet_verbs_iwarp_disconnect(struct verbs_endpoint *verbs);
void collet_verbs_iwarp_close_in_child(const struct verbs_endpoint *verbs);
void collet_verbs_unload_rdmacm(struct verbs_rdmacm *rdmacm);

#endif
