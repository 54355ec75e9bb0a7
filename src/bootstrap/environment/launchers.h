/* What launchers set in the environment of each rank. */
#ifndef COLLET_BOOTSTRAP_ENVIRONMENT_LAUNCHERS_H
#define COLLET_BOOTSTRAP_ENVIRONMENT_LAUNCHERS_H

#include <collet/collet.h>

struct collet_launcher_info {
	const char *launcher;      /* NULL: no launcher */
	uint32_t rank, size;
	bool has_local;            /* the next two are known */
	uint32_t local_rank, local_size;
	const char *local_size_name;  /* the variable that said so, for error texts */
	char job[64];              /* "" where the launcher has no name for it */
	char host[256];            /* of rank 0; "" unknown */
	uint16_t port;             /* 0: unknown */
	bool needs_port_scan;      /* the port is somebody else's; look above it */
};

/* The first launcher whose variables are set, in the order torchrun and Kubernetes, Open MPI, Slurm, MPICH, OpenPAI: a
 * rank started by torchrun inside of an mpirun or a Slurm job is torchrun's. COLLET_ERR_CONFIG, naming the variables,
 * where only some of them are set, or they contradict each other. */
collet_status collet_launcher_read(struct collet_launcher_info *info);

#endif
