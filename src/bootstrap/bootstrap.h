/* Bootstraps a context: gives every rank the peer infos of all ranks. It also leaves one authenticated connection
 * between rank 0 (the root) and each other rank (a client). These connections carry the control messages afterwards;
 * together they are the hub.
 *
 * A store only says where rank 0 listens. Each client connects there, proves that it knows the secret and sends its
 * peer info. It receives all peer infos and rank 0's blob: one gather and one broadcast. */
#ifndef COLLET_BOOTSTRAP_BOOTSTRAP_H
#define COLLET_BOOTSTRAP_BOOTSTRAP_H

#include <collet/transport.h>

#include "bootstrap/environment/launch.h"
#include "core/log.h"

/* The result of a bootstrap. */
struct collet_bootstrap {
	struct collet_peer_info *peer_infos; /* by rank */
	int listen_tcp, listen_unix;     /* this rank's listeners, non-blocking; -1: none */
	/* On rank 0 by rank, with -1 for itself. On others the first is the connection to rank 0; the rest are -1. */
	int *control_sockets;
	uint32_t control_socket_count;   /* the world size */
	void *blob;                      /* what rank 0's make_blob made, the same on every rank */
	size_t blob_bytes;
	uint8_t session_key[32];         /* the same on all ranks; authenticates later connections */
};

/* Called on rank 0 with the peer infos of all ranks. Compares what must be equal, and makes the blob (malloc) that all
 * ranks get. The blob's content is the caller's: today struct collet_agreement with the tuning (api/agreement.c). An
 * error becomes the status and sentence of every rank. */
typedef collet_status (*collet_make_blob)(
	void *context, const struct collet_peer_info *infos, uint32_t size, void **blob, size_t *bytes);

/* Runs the bootstrap. Fills in this rank's addresses (the caller has filled the rest of info) and what rank 0 computed,
 * and the secret if the store hands one on.
 * Undoes everything on failure. The sentence of COLLET_ERR_RENDEZVOUS names the ranks that are missing. */
collet_status collet_bootstrap_init(struct collet_bootstrap *bootstrap, struct collet_launch *launch,
	struct collet_peer_info *info, collet_make_blob make_blob, void *context, const struct collet_log *log);

/* Closes the sockets that the control plane has not taken over (those are -1), and frees the rest. Accepts a zeroed
 * object, and may be called twice. */
void collet_bootstrap_deinit(struct collet_bootstrap *bootstrap);

#endif
