/* verbs: connecting the queue pairs of iWARP adapters by rdma_cm. Built without librdmacm's headers,
 * verbs_iwarp_none.c defines these functions and refuses every adapter. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_IWARP_H
#define COLLET_TRANSPORT_VERBS_VERBS_IWARP_H

#include "verbs_endpoint.h"

/* Fills in the address of an iWARP adapter; NULL: it can be used, else why not. */
const char *collet_verbs_iwarp_address(struct collet_device *device, struct verbs_adapter *adapter);
/* The end that accepts: opens its doors, to be told in the hello. */
collet_status collet_verbs_iwarp_listen(struct verbs_endpoint *verbs);
/* The end that dialed: begins to connect its queue pairs to the doors in the peer's hello. */
collet_status collet_verbs_iwarp_connect(struct verbs_endpoint *verbs);
/* COLLET_OK when all queue pairs are connected. */
collet_status collet_verbs_iwarp_connect_progress(struct verbs_endpoint *verbs);
void collet_verbs_iwarp_disconnect(struct verbs_endpoint *verbs);
void collet_verbs_iwarp_close_in_child(const struct verbs_endpoint *verbs);
void collet_verbs_unload_rdmacm(struct verbs_rdmacm *rdmacm);

#endif
