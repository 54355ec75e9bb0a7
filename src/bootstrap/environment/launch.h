/* Reads how a rank was launched, from options and environment. */
#ifndef COLLET_BOOTSTRAP_ENVIRONMENT_LAUNCH_H
#define COLLET_BOOTSTRAP_ENVIRONMENT_LAUNCH_H

#include <collet/collet.h>

/* All that the environment and the options say, read once. Everything but the secret may be printed. */
struct collet_launch {
	uint32_t rank, size, local_rank;
	const char *launcher; /* static: "torchrun", "Open MPI", "MPICH", "Slurm", "OpenPAI", "options", "none" */
	char store[256];                 /* "tcp://HOST:PORT", "file:///FOLDER", "unix:NAME" */
	bool needs_port_scan;            /* the launcher's own store may use the port: see environment.c */
	const collet_store_callbacks *store_callbacks;
	char job[64];
	uint8_t secret[64];              /* a key derived from the user's text */
	uint32_t secret_bytes;           /* 0: no secret; then all ranks must be on one host */
	char interface[256];
	uint16_t port_first, port_last;  /* 0: any port */
	int64_t timeout_ns;              /* of collectives; < 0: none */
	int64_t rendezvous_timeout_ns;   /* < 0: none */
};

/* Reads options and environment. On failure *launch keeps all but the rank, which is 0 if it was not read. */
collet_status collet_launch_read(struct collet_launch *launch, const collet_options *options);

#endif
