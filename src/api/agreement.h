/* The agreement: what rank 0 decides for all ranks when the first communicator is created (struct collet_agreement). */
#ifndef COLLET_API_AGREEMENT_H
#define COLLET_API_AGREEMENT_H

#include <collet/collet.h>

struct collet_context;
struct collet_peer_info;

/* Decides on rank 0, when it has all peer infos. of: the context. *blob is the caller's to free. COLLET_ERR_CONFIG: two
 * ranks differ in a setting, or the tuning is malformed; COLLET_ERR_SYSTEM: the tuning cannot be read;
 * COLLET_ERR_MEMORY. */
collet_status collet_agreement_decide(
	void *of, const struct collet_peer_info *peer_infos, uint32_t size, void **blob, size_t *bytes);

/* Takes over what rank 0 has sent. If its tuning lacks links of shared memory or TCP, adds the built-in ones.
 * COLLET_ERR_RENDEZVOUS, _CONFIG, _MEMORY. */
collet_status collet_agreement_receive(struct collet_context *context);

#endif
