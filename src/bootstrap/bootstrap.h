/* How ranks meet: from options and environment to a table of all ranks' cards and one authenticated connection between
 * rank 0 and every other rank (the star), which stays and carries the control messages afterwards.
 *
 * Every store answers one question only: where does rank 0 listen? Then each rank connects there, proves that it knows
 * the secret, hands in its card and gets all cards and rank 0's blob back: one gather and one broadcast. */
#ifndef COLLET_BOOTSTRAP_BOOTSTRAP_H
#define COLLET_BOOTSTRAP_BOOTSTRAP_H

#include <collet/transport.h>

#include "core/log.h"

/* Everything the environment and the options say, read once. Printable but for the secret. */
struct collet_launch {
	uint32_t rank, size, local_rank;
	const char *launcher; /* static: "torchrun", "Open MPI", "MPICH", "Slurm", "OpenPAI", "options", "none" */
	char store[256];                 /* "tcp://HOST:PORT", "file:///FOLDER", "unix:NAME" */
	bool needs_port_scan;            /* the port may be held by the launcher's own store: see environment.c */
	const collet_store_callbacks *store_callbacks;
	char job[64];
	uint8_t secret[64];              /* a key derived from what the user gave */
	uint32_t secret_bytes;           /* 0: none; only ranks of one host may meet */
	char interface[256];
	uint16_t port_first, port_last;  /* 0: any */
	int64_t timeout_ns;              /* collectives; < 0: none */
	int64_t rendezvous_timeout_ns;   /* < 0: none */
};

collet_status collet_launch_read(struct collet_launch *launch, const collet_options *options);

/* Listening sockets and the star, once all have met. */
struct collet_bootstrap {
	struct collet_peer_info *peer_infos; /* size of them, by rank */
	int listen_tcp, listen_unix;     /* non-blocking; -1: none */
	int *control_sockets; /* rank 0: [size], its own -1; others: star[0] is the connection to rank 0; -1s else */
	uint32_t control_socket_count;   /* size */
	void *blob;                      /* what rank 0's make_blob gave, on every rank */
	size_t blob_bytes;
	uint8_t session_key[32]; /* random, made by rank 0, the same on all ranks: authenticates later connections */
};

/* Called on rank 0 once all cards are there: compares what must be equal and makes what all shall get (malloc). An
 * error is sent to all ranks as their status and sentence. */
typedef collet_status (*collet_make_blob)(
	void *context, const struct collet_peer_info *infos, uint32_t size, void **blob, size_t *bytes);

/* Fills the addresses into card (the caller has filled the rest), meets, and fills in what rank 0 found out. Everything
 * is undone on failure. COLLET_ERR_RENDEZVOUS names the ranks that did not come. */
collet_status collet_bootstrap_init(struct collet_bootstrap *bootstrap, const struct collet_launch *launch,
	struct collet_peer_info *info, collet_make_blob make_blob, void *context, const struct collet_log *log);

/* Closes what the control plane has not taken (-1), frees. Accepts a zeroed one; safe to repeat. */
void collet_bootstrap_deinit(struct collet_bootstrap *bootstrap);

#endif
